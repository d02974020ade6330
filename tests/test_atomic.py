"""Files are written whole, through links and into pipes, and only in place of the package's own."""

import contextlib
import errno
import itertools
import json
import os
import stat
import subprocess
import sys
import threading

import pytest

from keras_transformer import atomic, interchange
from keras_transformer.atomic import (
    MANIFEST,
    atomic_folder,
    check_files,
    check_folder,
    check_space,
    write_text,
)

pytestmark = pytest.mark.once

START = (
    "import sys, types; sys.modules['keras_transformer'] = types.ModuleType('keras_transformer'); "
    f"sys.modules['keras_transformer'].__path__ = [{os.path.dirname(atomic.__file__)!r}]"
)


@pytest.fixture
def write(tmp_path, monkeypatch):
    """A folder to write in, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(code, **options):
    """Runs code in a process of its own, which imports the module without the whole package."""
    command = [sys.executable, "-c", f"{START}\n{code}"]
    return subprocess.run(command, stderr=subprocess.DEVNULL, **options)


def test_a_link_stays_a_link_and_its_target_is_replaced(write):
    (write / "target").write_text("old")
    (write / "link").symlink_to("target")
    (write / "chain").symlink_to("link")
    write_text("chain", "new")
    assert os.readlink("chain") == "link" and os.readlink("link") == "target"
    assert (write / "target").read_text() == "new" and len(os.listdir()) == 3


def test_a_dangling_link_creates_its_target(write):
    (write / "folder").mkdir()
    (write / "link").symlink_to("folder/missing")
    write_text("link", "new")
    assert (write / "link").is_symlink() and (write / "folder/missing").read_text() == "new"


def test_a_pipe_is_written_to(write):
    os.mkfifo("pipe")
    found = []
    pipe = write / "pipe"
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    write_text("pipe", "new")
    reader.join(10)
    assert found == ["new"] and stat.S_ISFIFO(os.lstat("pipe").st_mode)


def test_a_device_is_written_to(write):
    try:
        os.mknod("null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("root alone makes devices")
    write_text("null", "new")
    assert stat.S_ISCHR(os.lstat("null").st_mode) and os.listdir() == ["null"]


def test_the_standard_output_receives_the_file_after_what_was_printed(write):
    code = (
        "from keras_transformer.atomic import write_text; print('before'); "
        "write_text('/dev/stdout', 'file\\n'); print('after')"
    )
    piped = run(code, stdout=subprocess.PIPE, text=True)
    assert piped.stdout == "before\nfile\nafter\n"
    with open("all.txt", "w") as file:
        run(code, stdout=file)
    assert (write / "all.txt").read_text() == "before\nfile\nafter\n"


def test_a_folder_is_not_a_file(write):
    (write / "folder").mkdir()
    (write / "link").symlink_to("folder")
    for name in ("folder", "link", ".", "/"):
        with pytest.raises(IsADirectoryError, match=r"must name a file; received the folder"):
            write_text(name, "new")


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o755])
def test_a_replaced_file_keeps_its_mode(write, mode):
    (write / "file").write_text("old")
    os.chmod("file", mode)
    write_text("file", "new")
    assert stat.S_IMODE(os.stat("file").st_mode) == mode


def test_a_new_file_has_the_mode_that_the_umask_leaves(write):
    before = os.umask(0o027)
    try:
        write_text("file", "new")
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat("file").st_mode) == 0o640


def test_a_file_that_may_not_be_written_stays(write, monkeypatch):
    (write / "file").write_text("old")
    monkeypatch.setattr(os, "access", lambda path, mode: os.fspath(path) != "file")  # root may
    with pytest.raises(PermissionError, match="received file"):
        write_text("file", "new")
    assert (write / "file").read_text() == "old"


def test_another_name_of_a_replaced_file_keeps_the_old_content(write):
    (write / "file").write_text("old")
    os.link("file", "backup")
    write_text("file", "new")
    assert (write / "backup").read_text() == "old" and (write / "file").read_text() == "new"


def test_files_with_names_that_look_temporary_stay(write):
    names = [".unfinished.file", ".unfinished.0.file", ".unfinished-file", ".unfinished"]
    for name in names:
        (write / name).write_text("mine")
    write_text("file", "new")
    check_space("file", 10, 2)
    with atomic_folder("folder") as folder:
        (folder / "model").write_text("new")
    assert all((write / name).read_text() == "mine" for name in names)
    assert sorted(os.listdir()) == sorted([*names, "file", "folder"])


def test_threads_that_write_one_file_leave_one_of_their_texts(write):
    texts = [str(number) * 10_000 for number in range(8)]
    threads = [threading.Thread(target=write_text, args=("file", text)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (write / "file").read_text() in texts and os.listdir() == ["file"]


def test_what_a_killed_process_left_goes_with_the_next_write(write):
    code = (
        "import os, sys; from keras_transformer.atomic import atomic_write\n"
        "with atomic_write('file') as path: path.write_text('half'); os._exit(9)"
    )
    run(code)
    assert len(os.listdir()) == 1
    write_text("other", "new")
    assert len(os.listdir()) == 2
    write_text("file", "new")
    assert sorted(os.listdir()) == ["file", "other"]


def test_what_another_user_left_is_in_nobodys_way(write, monkeypatch):
    left = atomic._temporary(write / "file")
    left.write_text("half")
    remove = atomic._remove

    def refuse(path):
        if path == left:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        remove(path)

    monkeypatch.setattr(atomic, "_remove", refuse)
    monkeypatch.setattr(atomic, "_is_alive", lambda process: False)
    write_text("file", "new")
    assert sorted(os.listdir()) == [left.name, "file"]


def test_a_process_with_the_number_of_a_killed_one_writes_next_to_its_files(write, monkeypatch):
    for name in ("folder", "file"):
        monkeypatch.setattr(atomic, "_numbers", itertools.count())
        left = atomic._temporary(write / name)
        left.mkdir()
        monkeypatch.setattr(atomic, "_numbers", itertools.count())
        if name == "folder":
            exported("folder")
        else:
            check_space("file", 10, 2)
        assert left.is_dir()
    assert files_in(write / "folder") == [MANIFEST, "assets/words", "model"]


def test_what_was_left_in_a_container_by_the_process_of_the_same_number_goes(write, monkeypatch):
    old = write / f"{atomic._start(write / 'file', '.unfinished')}{os.getpid()}-0"
    new = write / f"{atomic._start(write / 'file', '.unfinished')}{os.getpid()}-00"
    aside = write / f"{atomic._start(write / 'folder', '.replaced')}{os.getpid()}-0"
    exported("folder")
    os.rename("folder", aside)
    for path in (old, new):
        path.write_text("half")
    for path in (old, aside):
        os.utime(path, (0, 0))
    write_text("file", "whole")
    check_folder("folder", overwrite=True)
    assert sorted(os.listdir()) == sorted(["file", "folder", new.name])
    os.utime(new, (0, 0))
    monkeypatch.setattr(atomic, "_own", {new})  # by a thread of this process
    write_text("file", "whole")
    assert new.exists()


def test_a_name_may_be_as_long_as_the_disk_allows(write):
    name = f"a.{'y' * 253}"
    write_text(name, "new")
    assert os.listdir() == [name]


def test_a_disk_that_cannot_flush_is_written_to_and_a_broken_one_is_an_error(write, monkeypatch):
    def fail(number):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", lambda descriptor: fail(errno.EINVAL))
    write_text("file", "new")
    monkeypatch.setattr(os, "fsync", lambda descriptor: fail(errno.EIO))
    with pytest.raises(OSError, match="file"):
        write_text("file", "newer")
    assert (write / "file").read_text() == "new" and os.listdir() == ["file"]


def fill(folder, names=("model", "assets/words")):
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("new")


def exported(path, *names, **options):
    with atomic_folder(path, **options) as folder:
        fill(folder, *names)


def files_in(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir())


def test_an_export_is_replaced_by_the_next_one_and_by_nothing_else(write):
    exported("folder", ["model", "old/part"])
    with pytest.raises(ValueError, match="folder exists; choose another folder, or pass overwrite"):
        exported("folder")
    exported("folder", overwrite=True)
    assert files_in(write / "folder") == [MANIFEST, "assets/words", "model"]
    assert os.listdir() == ["folder"]


@pytest.mark.parametrize("name", ["thesis.tex", "assets/mine", "empty/"])
def test_a_folder_that_holds_files_of_others_is_not_an_export(write, name):
    exported("folder")
    path = write / "folder" / name
    path.mkdir() if name.endswith("/") else path.write_text("mine")
    before = sorted((write / "folder").rglob("*"))
    with pytest.raises(ValueError, match=f"folder holds {name.rstrip('/')}, which does not belong"):
        exported("folder", overwrite=True)
    assert sorted((write / "folder").rglob("*")) == before and os.listdir() == ["folder"]


OURS = '"written_by": "keras_transformer"'


@pytest.mark.parametrize(
    "manifest",
    [
        *("{", "[" * 10**5, "[]", "{}", '{"files": ["thesis.tex"]}'),
        *('{"written_by": "me", "files": []}', f"{{{OURS}}}", f'{{{OURS}, "files": 3}}'),
    ],
)
def test_a_manifest_of_another_program_proves_nothing(write, manifest):
    (write / "folder").mkdir()
    (write / "folder" / MANIFEST).write_text(manifest)
    (write / "folder" / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match="does not belong to an export"):
        exported("folder", overwrite=True)


def test_a_file_that_is_added_while_an_export_is_written_is_kept(write):
    exported("folder")

    def export():
        with atomic_folder("folder", overwrite=True) as folder:
            fill(folder)
            (write / "folder" / "notes.txt").write_text("mine")

    with pytest.raises(ValueError, match="holds notes.txt"):
        export()
    assert (write / "folder" / "notes.txt").read_text() == "mine"
    assert (write / "folder" / "model").exists() and os.listdir() == ["folder"]


def test_a_linked_folder_is_replaced_behind_its_link(write):
    exported("target")
    (write / "link").symlink_to("target")
    (write / "dangling").symlink_to("new/folder")
    exported("link", ["other"], overwrite=True)
    exported("dangling")
    assert files_in(write / "target") == [MANIFEST, "other"]
    assert (write / "link").is_symlink() and (write / "new" / "folder" / "model").exists()


@pytest.mark.parametrize("path", [".", "..", "/", "../..", "here/..", ""])
def test_the_current_folder_is_not_replaced(write, monkeypatch, path):
    (write / "a" / "here").mkdir(parents=True)
    monkeypatch.chdir(write / "a")
    for overwrite in (False, True):
        with pytest.raises(ValueError, match="current folder|must have a name"):
            check_folder(path, overwrite=overwrite)


def test_a_failed_export_leaves_no_folder_above_it(write):
    with pytest.raises(ZeroDivisionError), atomic_folder("new/deep/folder"):
        1 / 0  # noqa: B018
    assert os.listdir() == []


MOMENTS = [
    step if step in (4, 7) else pytest.param(step, marks=pytest.mark.slow) for step in range(12)
]


@pytest.mark.parametrize("step", MOMENTS)
def test_a_kill_while_an_export_is_replaced_leaves_the_old_or_the_new_one(write, step):
    exported("folder", ["old", "old_too/part"])
    code = f"""
import os
from keras_transformer import atomic
steps = iter(range(100))
def killed(function):
    def call(*args, **kwargs):
        if next(steps) == {step}:
            os._exit(9)
        return function(*args, **kwargs)
    return call
with atomic.atomic_folder("folder", overwrite=True) as folder:
    (folder / "new").write_text("new")
    for name in ("rename", "unlink", "rmdir", "fsync", "chmod"):
        setattr(os, name, killed(getattr(os, name)))
"""
    run(code)
    old, new = [MANIFEST, "old", "old_too/part"], [MANIFEST, "new"]
    found = [files_in(path) for path in write.iterdir()]
    assert old in found or new in found
    with contextlib.suppress(ValueError):
        check_folder("folder")  # as the next command does
    assert files_in(write / "folder") in (old, new)
    exported("folder", overwrite=True)
    assert files_in(write / "folder") == [MANIFEST, "assets/words", "model"]
    assert os.listdir() == ["folder"]


@pytest.mark.parametrize("other", ["b.txt", "./b.txt", "folder/../b.txt", "link", "hard", "new/b"])
def test_an_output_is_neither_an_input_nor_another_output(write, other):
    (write / "folder").mkdir()
    (write / "new").symlink_to("folder")
    (write / "b.txt").write_text("old")
    (write / "link").symlink_to("b.txt")
    os.link("b.txt", "hard")
    one = "folder/b" if other == "new/b" else "b.txt"  # which does not exist yet
    for outputs, inputs in (
        ({"--json": one}, {"--source": other}),
        ({"--a": one, "--b": other}, {}),
    ):
        with pytest.raises(ValueError, match="must be another file than --"):
            check_files(outputs, inputs)
    check_files({"--json": one, "--b": "c.txt"}, {"--source": "d.txt", "--text": None})


def test_pipes_and_devices_may_be_named_twice(write):
    check_files({"--json": "/dev/null", "--translations": "/dev/null"}, {"--source": "/dev/null"})


@pytest.mark.parametrize(
    "path, message",
    [("", "--json must have a name"), ("a/b", "there is no a"), (".", "must name a file")],
)
def test_what_cannot_be_written_is_known_before_the_work(write, path, message):
    with pytest.raises((ValueError, OSError), match=message):
        check_files({"--json": path})


def test_an_export_does_not_replace_the_folder_of_its_model(write):
    exported("folder", ["model.keras"])
    with pytest.raises(ValueError, match="folder holds the input folder/model.keras"):
        check_folder("folder", "--output", True, ["folder/model.keras"])


def test_an_export_into_no_folder_is_refused_before_the_work(write, small_tasks):
    for path in ("", "."):
        with pytest.raises(ValueError, match="must have a name|current folder"):
            interchange.export(small_tasks["tagger"], path, "safetensors", overwrite=True)
    assert os.listdir() == []


def test_a_manifest_lists_all_files(write):
    exported("folder")
    content = json.loads((write / "folder" / MANIFEST).read_text())
    assert content == {
        "written_by": "keras_transformer",
        "files": ["assets", "assets/words", "model"],
    }
