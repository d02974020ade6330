"""`keras-transformer train`: the scripts, from a checkout and from a wheel."""

import ast
import os
import pathlib
import shutil
import subprocess
import sys
import tomllib

import pytest

from keras_transformer import cli as console
from keras_transformer.cli.train import SCRIPTS, TASKS

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def train(monkeypatch, run_main):
    """Runs `keras-transformer train` with arguments in this process."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", ["pytest"])
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    return lambda *words: run_main(lambda: console.main(["train", *words]), words)


def test_help_lists_the_tasks_with_one_line_per_task(train):
    result = train("--help")
    assert result.returncode == 0
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines() if line[:2] == "  "]
    summaries = dict(line for line in lines if line[0] in TASKS)
    assert list(summaries) == list(TASKS)
    assert summaries["tagging"].startswith("Train a tagger, from scratch: a label for every word")


@pytest.mark.parametrize("words", [(), ("translate",)])
def test_a_missing_or_wrong_task_ends_with_2(train, words):
    result = train(*words)
    assert result.returncode == 2 and len(result.stderr.splitlines()) == 1
    assert "TASK" in result.stderr and "See keras-transformer train --help." in result.stderr


def test_the_options_are_those_of_the_script(train):
    assert "usage: keras-transformer train tagging" in train("tagging", "--help").stdout
    result = train("tagging", "--epochs", "0")
    assert result.returncode == 1
    assert result.stderr.startswith("epochs must be an integer of at least 1; received epochs=0")


def imported_scripts(name, found):
    """The scripts that a script imports, itself included."""
    if name not in found and (SCRIPTS / f"{name}.py").exists():
        found.add(name)
        for node in ast.walk(ast.parse((SCRIPTS / f"{name}.py").read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for each in [node.module] if isinstance(node, ast.ImportFrom) else names:
                imported_scripts(each, found)
    return found


@pytest.mark.once
def test_a_wheel_ships_the_scripts_that_train_import_and_no_others():
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    found = set()
    for script in TASKS.values():
        imported_scripts(script, found)
    expected = [f"keras_transformer.scripts.{name}" for name in sorted(found)]
    assert setuptools["py-modules"] == expected
    assert setuptools["package-dir"] == {"keras_transformer.scripts": "scripts"}


@pytest.mark.once
@pytest.mark.slow
def test_a_wheel_trains_without_a_checkout(tmp_path):
    clone = tmp_path / "clone"
    for folder in ("keras_transformer", "scripts"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, clone / folder, ignore=ignored)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, clone)
    target = tmp_path / "target"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile"]
    subprocess.run([*pip, "--target", target, clone], check=True, cwd=tmp_path)
    shutil.rmtree(clone)
    command = [sys.executable, target / "bin" / "keras-transformer", "train", "translation"]
    environment = {**os.environ, "PYTHONPATH": str(target)}
    (tmp_path / "pairs.tsv").write_text("a b\tb a\nb c\tc b\n" * 40)
    small = "--pairs pairs.tsv --vocabulary char --vocabulary-size None --epochs 1 --average 0"
    small = f"{small} --num-layers 1 --d-model 16 --num-heads 2 --d-ff 16".split()
    for words in (["--help"], [*small, "--output", "run"]):
        done = subprocess.run(
            [*command, *words], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    assert "Try: keras-transformer translate run/model.keras" in done.stdout
    assert (tmp_path / "run" / "model.keras").exists()
