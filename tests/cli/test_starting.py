"""How a command starts: the imports of Keras, and programs that JAX keeps for the next one."""

import os
import subprocess
import sys
import warnings

import pytest

from keras_transformer import backend
from keras_transformer.cli import starting
from programs import ROOT

KERAS = """
import sys
from keras_transformer.cli.starting import import_keras
import_keras()
before = "keras" in sys.modules
import keras, sklearn
print(before, keras.found, sklearn.__name__)
"""
TRANSLATION = "from keras_transformer.cli import main; main()", "translate", "dates", "May 3, 2021"


@pytest.mark.once
@pytest.mark.parametrize(
    "source, printed",
    [
        ("try:\n import sklearn\n found = True\nexcept ImportError:\n found = False", "True False"),
        ("import sklearn\nfound = True", "False True"),
    ],
    ids=["not needed", "needed"],
)
def test_keras_is_imported_without_a_library_that_it_does_not_need(tmp_path, source, printed):
    (tmp_path / "keras.py").write_text(source)
    (tmp_path / "sklearn.py").touch()
    command = [sys.executable, "-c", KERAS]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout == f"{printed} sklearn\n", done.stderr


@pytest.fixture
def kept_in(monkeypatch, tmp_path):
    """The folder in which JAX would keep programs, with these variables alone; None: in none."""

    def call(**variables):
        environment = {"HOME": str(tmp_path), **{n: str(v) for n, v in variables.items()}}
        monkeypatch.setattr(os, "environ", environment)
        with warnings.catch_warnings():
            starting.keep_programs()
        return environment.get("JAX_COMPILATION_CACHE_DIR")

    return call


@pytest.mark.once
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other folders")
def test_programs_are_kept_in_the_users_folder_for_caches(kept_in, tmp_path):
    assert kept_in() == str(tmp_path / ".cache/keras_transformer/jax")
    assert kept_in(XDG_CACHE_HOME=tmp_path) == str(tmp_path / "keras_transformer/jax")
    assert int(os.environ["JAX_COMPILATION_CACHE_MAX_SIZE"]) == starting.MOST_BYTES
    assert not list(tmp_path.iterdir())


@pytest.mark.once
def test_a_variable_names_another_folder_or_none(kept_in, tmp_path):
    folder = tmp_path / "keras_transformer/jax"
    assert kept_in(KERAS_TRANSFORMER_CACHE=tmp_path) == str(folder)
    assert kept_in(KERAS_TRANSFORMER_CACHE="") is None
    assert kept_in(JAX_COMPILATION_CACHE_DIR="own") == "own"
    assert "JAX_COMPILATION_CACHE_MAX_SIZE" not in os.environ


@pytest.mark.once
@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no such permissions")
def test_programs_that_others_could_have_written_are_not_run(kept_in, monkeypatch, tmp_path):
    folder = tmp_path / "keras_transformer/jax"
    folder.mkdir(parents=True)
    assert kept_in(KERAS_TRANSFORMER_CACHE=tmp_path) == str(folder)
    folder.chmod(0o777)
    assert kept_in(KERAS_TRANSFORMER_CACHE=tmp_path) is None
    folder.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    assert kept_in(KERAS_TRANSFORMER_CACHE=tmp_path) is None


@pytest.mark.once
def test_a_file_in_the_place_of_the_folder_stays(kept_in, tmp_path):
    file = tmp_path / "keras_transformer/jax"
    file.parent.mkdir()
    file.write_text("mine")
    assert kept_in(KERAS_TRANSFORMER_CACHE=tmp_path) is None
    assert file.read_text() == "mine"


@pytest.mark.once
def test_of_the_folder_only_programs_whose_writing_was_cut_short_are_removed(kept_in, tmp_path):
    whole, other = ["jit_a-1-atime", "jit_a-1-cache"], ["notes.txt", "folder-cache"]
    folder, mine = tmp_path / "keras_transformer/jax", tmp_path / "jax"  # JAX's own, of a program
    for each in (folder, mine):
        (each / "folder-cache").mkdir(parents=True)
        for name in [*whole, "notes.txt", "jit_b-2-cache"]:
            (each / name).write_bytes(b"x")
    kept_in(KERAS_TRANSFORMER_CACHE=tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*whole, *other])
    assert len(list(mine.iterdir())) == 5


@pytest.mark.slow
def test_a_second_command_compiles_nothing_and_damage_does_not_change_its_answer(tmp_path):
    if backend.name() != "jax":
        pytest.skip("JAX alone keeps programs")
    variables = {n: v for n, v in os.environ.items() if n != "JAX_COMPILATION_CACHE_DIR"}
    variables["KERAS_TRANSFORMER_CACHE"] = str(tmp_path)

    def answer():
        command = [sys.executable, "-c", *TRANSLATION]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and "Error" not in done.stderr, done.stderr
        return done.stdout, {path: path.read_bytes() for path in tmp_path.rglob("*-cache")}

    first, kept = answer()
    assert kept and answer() == (first, kept)
    for path, content in kept.items():
        path.write_bytes(content[: len(content) // 2])
    assert answer()[0] == first


GARBAGE = """
import atexit, gc, sys
atexit.register(lambda: print("at the end", gc.get_freeze_count() > 0))
{code}
print(gc.isenabled(), gc.get_freeze_count() > 0)
"""
IMPORT = "from keras_transformer.cli.starting import import_keras\nimport_keras()"
SCRIPT = f"""
sys.path.insert(0, {str(ROOT / "scripts")!r})
sys.argv[0] = {str(ROOT / "scripts" / "train_tagger.py")!r}
import start_up
print(gc.isenabled())
start_up.imported()
"""
COMMAND = """
from keras_transformer.cli import main
sys.argv[1:] = ["translate", "--help"]
try:
    main()
except SystemExit:
    print()
"""


@pytest.mark.once
@pytest.mark.parametrize(
    "code, printed",
    [
        (IMPORT, ["True True", "at the end True"]),
        pytest.param(
            f"gc.disable()\n{IMPORT}", ["False True", "at the end True"], marks=pytest.mark.slow
        ),
        pytest.param(
            f"import keras\n{IMPORT}", ["True False", "at the end False"], marks=pytest.mark.slow
        ),
        (SCRIPT, ["False", "True True", "at the end True"]),
        (COMMAND, ["", "True False", "at the end True"]),
    ],
    ids=["import", "disabled before", "imported before", "script", "command"],
)
def test_no_garbage_is_searched_for_in_modules_neither_after_their_import_nor_at_the_end(
    code, printed
):
    command = [sys.executable, "-c", GARBAGE.format(code=code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines()[-len(printed) :] == printed, done.stderr
