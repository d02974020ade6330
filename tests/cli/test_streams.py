"""Standard streams that are closed, in another encoding, or that nobody reads any longer."""

import io
import pathlib
import subprocess
import sys

import pytest

import keras_transformer.cli.streams as module
from keras_transformer.cli.streams import standard_streams

pytestmark = pytest.mark.once  # no backend runs

PROGRAM = """\
import runpy, sys
standard_streams = runpy.run_path(sys.argv[1])["standard_streams"]
with standard_streams():
"""


def run(lines, redirections="", **environment):
    """Runs lines within `standard_streams`, in a shell, without any other import."""
    program = PROGRAM + "".join(f"    {line}\n" for line in lines.splitlines())
    command = f'"$@" {redirections}'
    arguments = [sys.executable, "-c", program, module.__file__]
    return subprocess.run(
        ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}", "bash", *arguments],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env={"PATH": "/usr/bin:/bin", **environment},
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_the_null_device_and_stays_one(closed, tmp_path):
    path = tmp_path / "kept"
    lines = f"""\
import subprocess
file = open({str(path)!r}, "w")
print(sys.stdin.read(), "printed", flush=True)
print("printed", file=sys.stderr, flush=True)
subprocess.run(["sh", "-c", "cat; echo printed; echo printed >&2"], check=True)
file.write("whole")
file.close()"""
    result = run(lines, closed)
    assert result.returncode == 0 and path.read_text() == "whole", result.stderr
    expected = [b"" if ">&-" in closed.replace("2>&-", "") else b" printed\n", b"printed\n"]
    assert result.stdout.startswith(expected[0]) and b"Error" not in result.stderr


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-16", "latin-1:strict"])
def test_what_is_printed_is_utf_8(encoding):
    text = "'\\u6211 \\u2501 \\xe9 \\x00'"
    lines = f"print({text})\nprint({text}, file=sys.stderr)"
    result = run(lines, PYTHONIOENCODING=encoding, LC_ALL="C")
    assert result.stdout == result.stderr == "我 ━ é \0\n".encode()
    assert run("print('\\udcff')").stdout == b"\\udcff\n"  # a byte of a file's name


def test_what_is_read_is_utf_8():
    result = run("print(ascii(input()))", "< <(printf '\\xe6\\x88\\x91\\n')", LC_ALL="C")
    assert result.stdout == b"'\\u6211'\n"


@pytest.mark.parametrize(
    "lines", ["while True: print('x' * 99)", "print('x' * 10**6); sys.exit(0)"]
)
def test_a_reader_that_has_left_ends_a_program_quietly(lines):
    result = run(lines, "| head -c 1")
    assert (result.returncode, result.stdout, result.stderr) == (0, b"x", b"")


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="a disk that is always full")
def test_a_full_disk_is_a_sentence():
    for lines in ("print('x')", "print('x'); print('y' * 10**6)"):
        result = run(lines, "> /dev/full")
        assert result.returncode == 1
        assert result.stderr == b"[Errno 28] No space left on device\n"


def test_a_mistake_keeps_its_traceback():
    result = run("print('x'); 1 / 0", "| true")
    assert result.returncode == 1 and b"ZeroDivisionError" in result.stderr
    with pytest.raises(ZeroDivisionError), standard_streams():
        raise ZeroDivisionError


def test_streams_that_are_not_files_stay(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    with standard_streams():
        print("我")
    assert stream.getvalue() == "我\n"
