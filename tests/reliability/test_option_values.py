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
from keras_transformer import backend
from keras_transformer import cli as console
from keras_transformer.data.prepared import preparation
from keras_transformer.tasks import saved_files

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
    "prepare": (
        ["out{}", "--pairs", "pairs.tsv"],
        [
            "--sides",
            "--vocabulary",
            "--vocabulary-size",
            "--vocabulary-from",
            "--reserve",
            "--sample",
            "--normalization",
            "--max-characters",
            "--max-ratio",
            "--processes",
        ],
    ),
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


def accepted(*args, **kwargs):
    raise Accepted


@pytest.mark.parametrize(
    "numbers", [range(QUICK), pytest.param(range(QUICK, CASES), marks=pytest.mark.slow)]
)
def test_options_of_the_training_scripts(folder, monkeypatch, capsys, numbers):
    monkeypatch.setattr(backend, "set_num_threads", lambda number: None)  # too late for that
    monkeypatch.setattr(backend, "speed_up_training", lambda: None)  # for the whole process
    monkeypatch.setattr(backend, "make_deterministic", lambda: None)
    codes = set()
    for number in numbers:
        rng = random.Random(number)
        script = rng.choice(list(SCRIPTS))
        module = importlib.import_module(script)
        monkeypatch.setattr(module, "prepare", accepted)
        words = [*SCRIPTS[script]]
        drawn = rng.choice([1, 1, 1, 2, 3]) if number % QUICK else 0  # without any: accepted
        for name in rng.sample(names_of(script), drawn):
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
    monkeypatch.setattr(saved_files, "load", lambda path: task)  # its programs are compiled once
    monkeypatch.setattr(preparation, "ShardWriters", accepted)
    required, optional = COMMANDS[name]
    for number in range(40):
        rng = random.Random(number)
        words = [word.format(number) for word in required]
        for option in rng.sample(optional, rng.choice([1, min(2, len(optional))])):
            words += [option, *rng.choices(VALUES, k=rng.choice([1, 1, 1, 0]))]
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n"), "utf-8"))
        before = sorted(folder.rglob("*"))
        capsys.readouterr()
        code, message = outcome(lambda words=words: console.main([name, *words]))
        check(code, capsys.readouterr().err + message, before, folder, [name, *words])


SMALL = "--num-layers 1 --d-model 4 --num-heads 1 --d-ff 4 --threads 1 --output run".split()
LIMITED = "--max-length 40 --no-rotary --vocabulary char --dropout 0".split()
TEXTS = {  # options, what names each split, how a text becomes lines, the limit
    "train_translation": (LIMITED, "--{}pairs", lambda text: f"{text}\tx\n", 40),
    "train_tagger": ([], "--{}", lambda text: text.replace(" ", "\tA\n") + "\tB\n\n", 8192),
    "train_classifier": ([], "--{}", lambda text: f"{text}\t{text.count('3')}\n", 8192),
    "train_language_model": (
        [*LIMITED, "--lines"],
        "--{}",
        lambda text: f"{text}\n",
        40,
    ),
    "pretrain_words": ([], "--{}", lambda text: f"{text}\n", 8192),
}


# A language model scores any text in windows; there is no test data of masked words.
ACCEPTED = {("train_language_model", "test"), ("pretrain_words", "test")}


@pytest.mark.parametrize(
    "script", [pytest.param(n, marks=[pytest.mark.slow] * (n != "train_classifier")) for n in TEXTS]
)
def test_a_text_that_the_model_cannot_read_is_refused_before_the_run_begins(
    folder, monkeypatch, capsys, script
):
    def accepted(*args, **kwargs):
        raise Accepted

    options, option, lines, limit = TEXTS[script]
    monkeypatch.setattr(backend, "speed_up_training", lambda: None)
    monkeypatch.setattr(backend, "set_num_threads", lambda number: None)
    module = importlib.import_module(script)
    monkeypatch.setattr(module.training.Run, "begin", accepted)
    short = [lines(f"a b {number} .") for number in range(9)]
    number = sum(line.count("\n") for line in short[:4]) + 1
    splits = ["train", "valid", "test"]
    for long_split in [None, *splits]:
        words = [*options, *SMALL]
        for split in splits:
            if (script, split) == ("pretrain_words", "test"):
                continue
            name = option.format("" if option.endswith("pairs") and split == "train" else split)
            name = name.replace("dpairs", "d-pairs").replace("tpairs", "t-pairs")
            long = lines(("w " * (1 + limit)).strip())
            content = [*short[:4], long, *short[4:]] if split == long_split else short
            (folder / f"{split}.tsv").write_text("".join(content), "utf-8")
            words += [name, f"{split}.tsv"]
        monkeypatch.setattr(sys, "argv", [f"{script}.py", *words])
        code, message = outcome(module.main)
        if long_split is None or (script, long_split) in ACCEPTED:
            assert code == 0, message
        else:
            assert f"{long_split}.tsv, line {number}: the text must have at most {limit}" in message
        assert not (folder / "run").exists()
