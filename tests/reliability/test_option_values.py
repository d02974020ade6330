"""Option values and combinations, drawn from a seed: taken, or refused in a sentence or two.

The scripts stop where they would make their model; what they do before is what they do for users.
"""

import importlib
import io
import pathlib
import random
import sys

import pytest

import keras_transformer as kt
from keras_transformer import backend, console

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parents[2]
CASES, QUICK = 500, 25
SCRIPTS = {
    "train_translation": ["--pairs", "pairs.tsv"],
    "train_tagger": ["--train", "tags.tsv"],
    "train_classifier": ["--train", "pairs.tsv", "--columns", "1", "2"],
    "train_language_model": ["--train", "pairs.tsv", "--lines"],
    "pretrain_words": ["--train", "pairs.tsv"],
}
COMMANDS = {
    "translate": (["model.keras", "a b"], ["--beams", "--length-penalty", "--n-best"]),
    "predict": (["model.keras", "a b"], ["--beams", "--temperature", "--top-k", "--max-tokens"]),
    "evaluate": (
        ["model.keras", "--source", "a.txt", "--reference", "a.txt"],
        ["--beams", "--length-penalty", "--tokenize", "--worst", "--json", "--translations"],
    ),
    "average": (["run"], ["--last", "--output"]),
    "export": (["model.keras"], ["--format", "--output"]),
    "check": (["model.keras"], ["--json"]),
}
SLOW = {"translate", "predict", "evaluate"}
VALUES = ["-1", "0", "1", "2", "7", "1.5", "nan", "inf", "-inf", "1e400", "x", "", " ", "None"]
VALUES += ["nowhere/file", ".", "a.txt", "é", "1 2", "--seed", "true", "[1]", "0x10", "١"]


class Accepted(Exception):
    """The options are taken: here a model would be made."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with data, in which the process works."""
    rows = [f"{number} of May {1900 + number}\t{number % 3}" for number in range(60)]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows), encoding="utf-8")
    tags = "\n".join(f"on\tADP\n{number}\tNUM\n" for number in range(60))
    (tmp_path / "tags.tsv").write_text(tags, encoding="utf-8")
    (tmp_path / "a.txt").write_text("a b\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return tmp_path


def names_of(script):
    """The options of a script that take a value or none."""
    module = importlib.import_module(script)
    recipes = next(v for k, v in vars(module).items() if k.isupper() and isinstance(v, dict))
    names = next(iter(recipes.values())).flat()
    return [f"--{name.replace('_', '-')}" for name in names if name not in ("dataset", "download")]


def outcome(call):
    """Exit code of a command, and what it wrote to stderr."""
    try:
        call()
    except Accepted:
        return 0, ""
    except SystemExit as end:
        return (1, end.code) if isinstance(end.code, str) else (end.code or 0, "")
    return 0, ""


def check(code, errors, before, folder, words):
    assert code in (0, 1, 2), words
    if code:
        assert 1 <= len(errors.strip().splitlines()) <= 3, (words, errors)
        assert "Traceback" not in errors and len(errors) < 700, (words, errors)
        left = sorted(folder.rglob("*"))
        assert left == before, (words, errors)


@pytest.mark.parametrize(
    "numbers", [range(QUICK), pytest.param(range(QUICK, CASES), marks=pytest.mark.slow)]
)
def test_options_of_the_training_scripts(folder, monkeypatch, capsys, numbers):
    def accepted(*args, **kwargs):
        raise Accepted

    monkeypatch.setattr(backend, "set_num_threads", lambda number: None)  # too late for that
    codes = set()
    for number in numbers:
        rng = random.Random(number)
        script = rng.choice(list(SCRIPTS))
        module = importlib.import_module(script)
        monkeypatch.setattr(module, "prepare", accepted)
        words = [*SCRIPTS[script]]
        for name in rng.sample(names_of(script), rng.choice([1, 1, 1, 2, 3])):
            words += [name, *rng.choices(VALUES, k=rng.choice([1, 1, 1, 1, 0, 2]))]
        monkeypatch.setattr(sys, "argv", [f"{script}.py", *words])
        before = sorted(folder.rglob("*"))
        capsys.readouterr()
        code, message = outcome(module.main)
        check(code, capsys.readouterr().err + message, before, folder, words)
        codes.add(code)
    assert codes == {0, 1, 2}


@pytest.fixture(scope="module")
def translator():
    tokenizer = kt.train_tokenizer(["a b c"], model_type="char")
    size = tokenizer.vocabulary_size()
    sizes = dict(num_layers=1, d_model=4, num_heads=1, d_ff=4)
    return kt.Translator(kt.Transformer(size, **sizes), tokenizer, max_length_ratio=0.1)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in COMMANDS]
)
def test_options_of_the_commands(folder, monkeypatch, capsys, translator, name):
    translator.save(folder / "model.keras")
    task = kt.load(folder / "model.keras")
    monkeypatch.setattr(console.files, "load", lambda path: task)  # its programs are compiled once
    required, optional = COMMANDS[name]
    for number in range(40):
        rng = random.Random(number)
        words = [*required]
        for option in rng.sample(optional, rng.choice([1, min(2, len(optional))])):
            words += [option, *rng.choices(VALUES, k=rng.choice([1, 1, 1, 0]))]
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n"), "utf-8"))
        before = sorted(folder.rglob("*"))
        capsys.readouterr()
        code, message = outcome(lambda words=words: console.main([name, *words]))
        check(code, capsys.readouterr().err + message, before, folder, [name, *words])
