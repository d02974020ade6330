"""The command `keras-transformer`, within this process; what needs another one is slow."""

import contextlib
import importlib
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import types
import zipfile

import h5py
import keras
import numpy as np
import pytest
from keras.saving import load_model

import keras_transformer as kt
from keras_transformer import backend, evaluation, training
from keras_transformer import cli as console
from keras_transformer.cli import files, lines
from keras_transformer.cli.files import load_task
from keras_transformer.cli.lines import ask_for_lines, one_line, waiting_lines
from keras_transformer.tasks.translation import Hypothesis
from programs import largest_file

CONSOLE = [sys.executable, "-c", "from keras_transformer.cli import main; main()"]
TRANSLATE = [*CONSOLE, "translate"]
PREDICT = [*CONSOLE, "predict"]  # a tagger answers sooner


@pytest.fixture
def command(monkeypatch, run_main, tasks):
    """Runs `keras-transformer` with arguments and a standard input."""

    def loaded(path, **kwargs):  # an intact file is read once, and its programs compiled once
        return tasks[path] if path in tasks else load_model(path, **kwargs)

    monkeypatch.setattr(keras.saving, "load_model", loaded)

    def call(*arguments, stdin=b""):
        texts = [str(argument) for argument in arguments]
        return run_main(lambda: console.main(texts), arguments, stdin)

    return call


@pytest.fixture(scope="module")
def translator(dates, randomize):
    """Random weights: its answers differ from text to text."""
    tokenizer = kt.train_tokenizer(dates.train.source + dates.train.target, model_type="char")
    size = tokenizer.vocabulary_size()
    model = kt.Transformer(size, num_layers=1, d_model=16, num_heads=2, d_ff=16)
    return kt.Translator(randomize(model), tokenizer)


@pytest.fixture(scope="module")
def models(small_tasks, translator, tmp_path_factory):
    """The path of a saved task of each kind."""
    folder = tmp_path_factory.mktemp("models")
    translator.save(folder / "translator.keras")
    for name, task in small_tasks.items():
        task.save(folder / f"{name}.keras")
    return {path.stem: path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def tasks(small_tasks, translator, models):
    """The task in each of these files."""
    every = {**small_tasks, "translator": translator}
    return {path: every[name] for name, path in models.items()}


def last_line(result):
    return result.stderr.strip().splitlines()[-1]


def assert_one_sentence(result, *expected, code=1):
    assert result.returncode == code, result
    assert len(result.stderr.strip().splitlines()) == 1, result
    for words in expected:
        assert words in last_line(result)


# Help


@pytest.mark.parametrize("name", console.COMMANDS)
def test_the_examples_of_a_command_keep_their_lines(command, name):
    result = command(name, "--help")
    assert result.returncode == 0
    module = importlib.import_module(f"{console.__name__}.{name}")
    examples = [line for line in module.__doc__.splitlines() if line[:2] == "  "]
    assert any(line.startswith(f"  keras-transformer {name} ") for line in examples)
    assert set(examples) <= set(result.stdout.splitlines())
    assert f"usage: keras-transformer {name}" in result.stdout


def test_the_help_names_every_command_and_the_backends(command):
    result = command("--help")
    assert result.returncode == 0 and "KERAS_BACKEND" in result.stdout
    for name in console.COMMANDS:
        module = importlib.import_module(f"{console.__name__}.{name}")
        assert f"  {name:11}{module.__doc__.splitlines()[0]}" in result.stdout.splitlines()


def test_the_help_names_the_models_of_the_package_that_a_command_takes(command):
    named = {}
    for name in ("translate", "evaluate", "predict"):
        printed = " ".join(command(name, "--help").stdout.split()).replace("zh- en", "zh-en")
        named[name] = re.search("or one of ([^;]*?), which come", printed)[1].split(", ")
    kinds = {model: type(files.load_task(model, "Task")) for model in named["predict"]}
    translators = [model for model, kind in kinds.items() if kind is kt.Translator]
    assert named["translate"] == named["evaluate"] == translators == ["dates", "zh-en"]
    assert named["predict"] == ["dates", "shakespeare", "zh-en"]


@pytest.mark.parametrize("arguments", [["--version"], ["translate", "--version"]])
def test_the_version_is_printed(command, arguments):
    result = command(*arguments)
    assert (result.returncode, result.stdout) == (0, f"keras-transformer {kt.__version__}\n")


@pytest.mark.parametrize("arguments", [(), ("translat",), ("translate",), ("predict", "m", "--x")])
def test_a_wrong_option_or_none_ends_with_2(command, arguments):
    result = command(*arguments)
    assert result.returncode == 2 and len(result.stderr.splitlines()) == 1
    assert re.search("^keras-transformer.* See keras-transformer.* --help.$", result.stderr)


# Loading


def rewritten(path, change):
    """A copy of a zip archive whose members went through `change`: name, bytes -> bytes or None."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            if (content := change(name, content)) is not None:
                archive.writestr(name, content)


def with_config(path, change):
    """Changes the configuration of the task in place."""

    def changed(name, content):
        if name != "config.json":
            return content
        config = json.loads(content)
        change(config)
        return json.dumps(config)

    rewritten(path, changed)


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)


def cut_the_weights(path):
    rewritten(path, lambda name, content: content[:2000] if name[-3:] == ".h5" else content)


DAMAGES = {
    "a flipped byte": flip_a_byte,
    "a cut file": lambda path: path.write_bytes(path.read_bytes()[:-1000]),
    "cut weights": cut_the_weights,
    "no weights": lambda path: rewritten(path, lambda n, c: None if n[-3:] == ".h5" else c),
    "no config": lambda path: rewritten(path, lambda n, c: None if n == "config.json" else c),
    "no JSON": lambda path: rewritten(path, lambda n, c: b"{" if n == "config.json" else c),
    "a list": lambda path: rewritten(path, lambda n, c: b"[]" if n == "config.json" else c),
    "an empty archive": lambda path: zipfile.ZipFile(path, "w").close(),
    "an empty file": lambda path: path.write_bytes(b""),
    "no archive": lambda path: path.write_bytes(b"not a zip"),
    "an unknown class": lambda path: with_config(path, lambda c: c.update(registered_name="Other")),
    "an unknown setting": lambda path: with_config(path, lambda c: c["config"].update(other=1)),
    "a missing part": lambda path: with_config(path, lambda c: c["config"].pop("model")),
    "a part of another type": lambda path: with_config(path, lambda c: c["config"].update(model=1)),
    "other sizes": lambda path: with_config(
        path, lambda c: c["config"]["model"]["config"].update(num_layers=3)
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_foreign_file_is_one_sentence(command, models, tmp_path, damage):
    path = tmp_path / "model.keras"
    shutil.copy(models["tagger"], path)
    DAMAGES[damage](path)
    result = command("predict", path, "a")
    assert_one_sentence(
        result, f"{path} cannot be loaded", "Train one with keras-transformer train."
    )
    assert last_line(result).startswith("Expected a .keras file of this package; ")


@pytest.mark.slow
def test_any_flipped_byte_is_harmless_or_one_sentence(command, models, tmp_path):
    content = models["tagger"].read_bytes()
    expected = command("predict", models["tagger"], "a dog").stdout
    for place in np.random.default_rng(0).integers(0, len(content), 15):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        (tmp_path / "x.keras").write_bytes(flipped)
        result = command("predict", tmp_path / "x.keras", "a dog")
        if result.returncode:
            assert_one_sentence(result, "cannot be loaded")
        else:
            assert result.stdout == expected


def test_a_model_of_keras_is_named(command, tmp_path):
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save(tmp_path / "x.keras")
    result = command("predict", tmp_path / "x.keras", "a")
    assert_one_sentence(
        result, "x.keras cannot be loaded: it holds keras.Sequential; expected a task"
    )


def test_another_task_than_expected_is_named(command, models):
    result = command("translate", models["tagger"], "text")
    assert_one_sentence(
        result,
        "Expected a Translator;",
        "holds a Tagger. Train one with keras-transformer train tr",
    )


@pytest.mark.parametrize("name", ["epoch-0001.weights.h5", "model.h5"])
def test_weights_without_a_model_are_named(command, translator, tmp_path, name):
    translator.transformer.save_weights(tmp_path / "epoch-0001.weights.h5")
    (tmp_path / "epoch-0001.weights.h5").replace(tmp_path / name)
    result = command("translate", tmp_path / name, "text")
    assert_one_sentence(result, f"{name}, which holds weights without", "Use the model.keras of")


def test_a_folder_is_not_a_model(command, tmp_path):
    result = command("predict", tmp_path, "text")
    assert_one_sentence(result, f"received the folder {tmp_path}. Try {tmp_path / 'model.keras'}.")


@pytest.mark.parametrize(
    "kind, task", [("TextGenerator", "language-model"), ("MaskFiller", "words")]
)
def test_a_missing_model_is_named_with_the_command_that_trains_one(kind, task):
    with pytest.raises(
        SystemExit, match=rf"no model at nowhere.keras. .*-transformer train {task}"
    ):
        load_task("nowhere.keras", kind)


# Lines


def test_line_n_in_is_line_n_out(command, models, translator):
    lines = ["April 22, 2019", "", "3 March 1912", "  "]
    result = command("translate", models["translator"], stdin="\r\n".join(lines).encode())
    assert result.returncode == 0, result.stderr
    answers = result.stdout.splitlines()
    assert len(answers) == 4 and answers[1] == answers[3] == ""
    assert answers == translator.translate(lines)
    assert command("predict", models["translator"], *lines).stdout == result.stdout


def test_after_many_lines_of_input_as_many_more_are_expected(run_main, monkeypatch):
    assert lines.FEW_LINES == 2048
    monkeypatch.setattr(lines, "FEW_LINES", 3)
    answered, expected = [], []

    def answer(texts, first):
        answered.extend(texts)
        return texts

    task = types.SimpleNamespace(batch_size=1, expect_many=lambda: expected.append(len(answered)))
    result = run_main(lambda: lines.answer_lines(task, [], answer), [], b"a\nb\nc\nd\n")
    assert (result.stdout, expected) == ("a\nb\nc\nd\n", [3, 4])


def test_a_byte_order_mark_is_not_text(command, models, translator):
    result = command("translate", models["translator"], stdin="\ufeffMay".encode())
    assert result.stdout.splitlines() == translator.translate(["May"])


def test_options_may_stand_between_the_model_and_the_text(command, models, translator):
    result = command("translate", models["translator"], "May 5", "--beams", "2", "June 6")
    assert result.stdout.splitlines() == translator.translate(["May 5", "June 6"], beams=2)


def test_a_line_that_is_not_utf_8_is_named(command, models):
    result = command("translate", models["translator"], stdin=b"May\nJ\xff\n")
    assert_one_sentence(result, "The input, line 2: expected UTF-8, received the invalid byte 0xff")


def test_among_random_bytes_each_line_is_its_text_or_the_first_that_is_not_text_is_named():
    """1,000 streams of bytes that often begin a character and seldom end it."""
    seen, random = set(), np.random.default_rng(0)
    pieces = [b"a", b" ", b"\n", b"\r\n", "ü".encode(), "猫".encode(), "🐈".encode(), b"\xff"]
    pieces += ["猫".encode()[:2], b"\x80", b"\xed\xa0\x80", b"\xc0\x80", b"\0"]
    for _ in range(1_000):
        odds = np.where(np.arange(len(pieces)) < 7, 1, random.choice([0, 0.02, 0.2]))
        chosen = random.choice(len(pieces), random.integers(40), p=odds / odds.sum())
        lines = io.BytesIO(b"".join(pieces[number] for number in chosen)).readlines()
        texts, error = [], None
        for number, line in enumerate(lines, start=1):
            try:
                text = line.decode()
                start = line.find(b"\0")
            except UnicodeDecodeError as wrong:
                start = next(n for n, byte in enumerate(line) if not byte or n == wrong.start)
            if start >= 0:
                found = "a NUL" if line[start] == 0 else f"the invalid byte {line[start]:#04x}"
                error = f"The input, line {number}: expected UTF-8, received {found}"
                break
            texts.append(text.rstrip("\r\n"))
        found = []
        with contextlib.nullcontext() if error is None else pytest.raises(ValueError, match=error):
            for batch in waiting_lines(io.BufferedReader(io.BytesIO(b"".join(lines))), 3):
                found += batch
        assert found == texts
        seen.add(error is None)
    assert seen == {True, False}


def test_waiting_lines_come_together_and_never_more_than_asked_for():
    lines = [f"{number}\n".encode() for number in range(10)]
    batches = list(waiting_lines(io.BufferedReader(io.BytesIO(b"".join(lines))), 4))
    assert [int(line) for batch in batches for line in batch] == list(range(10))
    assert max(map(len, batches)) <= 4
    assert list(waiting_lines(io.BufferedReader(io.BytesIO()), 4)) == []


def test_a_line_is_answered_while_the_stream_is_still_open():
    receiving, sending = os.pipe()
    with os.fdopen(receiving, "rb", buffering=0) as stream:
        batches = waiting_lines(io.BufferedReader(stream), 4)
        for line in ("one", "two"):
            os.write(sending, f"{line}\n".encode())
            assert next(batches) == [line]
        os.close(sending)
        assert list(batches) == []


def test_an_input_that_cannot_be_read_is_one_sentence(tmp_path):
    file = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)  # as nohup opens the null device
    with open(file, "rb") as stream, pytest.raises(OSError, match="cannot be read .*; give T"):
        next(waiting_lines(stream, 4))


@pytest.mark.parametrize("has_readline", [True, False])
def test_a_person_is_asked_for_lines_with_and_without_readline(monkeypatch, capsys, has_readline):
    if not has_readline:
        monkeypatch.setitem(sys.modules, "readline", None)  # as on Windows
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\ntwo\n"))
    assert list(ask_for_lines()) == [["one"], ["two"]]
    assert capsys.readouterr().err == "> > > \n"


# translate


@pytest.mark.slow
@pytest.mark.parametrize("translation", [None, "2019-04-21"])
def test_attention_is_drawn_for_a_text_and_any_translation(
    command, models, translator, translation, tmp_path
):
    picture = tmp_path / "attention.png"
    given = [] if translation is None else ["--translation", translation]
    text = "April 22, 2019"
    result = command("translate", models["translator"], text, *given, "--attention", picture)
    assert result.returncode == 0, result.stderr
    (own,) = translator.translate([text])
    assert result.stdout == f"{translation or own}\n"
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "arguments, code, expected",
    [
        (["May", "June", "--attention", "a.png"], 2, "draws one TEXT; received 2"),
        (["--attention", "a.png"], 2, "draws one TEXT; received 0"),
        (["May", "--translation", "5"], 2, "--translation needs --attention"),
        (["May", "--attention", "a.png", "--scores"], 2, "leave out --scores and --n-best"),
        (["May", "--attention", "a.png", "--n-best", "1"], 2, "leave out --scores and --n-best"),
        (["May", "--attention", "a.png", "--engine", "auto"], 2, "leave out --engine"),
        (["May", "--attention", "a.nonsense"], 2, "--attention must end in one of"),
        (["May", "--attention", "nowhere/a.png"], 1, "there is no nowhere"),
        (["May", "--attention", "."], 1, "--attention must name a file; received the folder ."),
    ],
)
def test_attention_that_cannot_be_drawn_is_one_sentence(
    command, models, arguments, code, expected, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    result = command("translate", models["translator"], *arguments)
    assert_one_sentence(result, expected, code=code)
    assert not any(tmp_path.iterdir())


def test_n_best_and_scores_are_columns(command, models, translator):
    texts = ["April 22, 2019", "3 March 1912"]
    search = ["--beams", "2", "--n-best", "2", "--length-penalty", "1", "--scores"]
    result = command("translate", models["translator"], *search, *texts)
    assert result.returncode == 0, result.stderr
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    found = translator.translate(texts, beams=2, length_penalty=1.0, n_best=2, return_scores=True)
    assert [row[0] for row in rows] == ["1", "1", "2", "2"]
    hypotheses = [each for of_text in found for each in of_text]
    assert [row[2] for row in rows] == [each.text for each in hypotheses]
    scores = [float(row[1].rstrip("*")) for row in rows]
    np.testing.assert_allclose(scores, [each.score for each in hypotheses], atol=1e-3)
    assert [row[1].endswith("*") for row in rows] == [not each.finished for each in hypotheses]
    numbers = command("translate", models["translator"], *search[:-1], *texts).stdout.splitlines()
    assert numbers == [f"{row[0]}\t{row[2]}" for row in rows]


def test_sentences_and_placeholders_are_options(command, models, translator):
    text = "May 5, 2019.  {x} June 6, 2018!"
    options = ["--sentences", "always", "--placeholders", "tag", "--beams", "2"]
    result = command("translate", models["translator"], text, *options)
    first, second = translator.translate(["May 5, 2019.", "June 6, 2018!"], beams=2)
    assert result.stdout == f"{first}  {{x}} {second}\n"
    result = command("translate", models["translator"], text, *options[:2], *options[-2:])
    assert result.stdout.splitlines() == translator.translate([text], sentences="always", beams=2)
    result = command("translate", models["translator"], "May", "--placeholders", "(")
    assert_one_sentence(result, "A placeholder must be one of")


def test_numbers_count_the_lines_of_the_input_across_batches(
    command, models, translator, monkeypatch
):
    def translate(texts, **options):
        assert len(texts) <= 2
        return [[Hypothesis(text.upper(), None, True)] * options["n_best"] for text in texts]

    monkeypatch.setattr(translator, "translate", translate)
    monkeypatch.setattr(translator, "config", translator.config.replace(batch_size=2))
    result = command("translate", models["translator"], "--n-best=2", stdin=b"a\nb\nc\nd\ne\n")
    expected = [f"{number}\t{text}" for number, text in enumerate("ABCDE", start=1)]
    assert result.stdout.splitlines() == [line for line in expected for _ in range(2)]


def test_translations_that_were_cut_off_are_counted_at_the_end(
    command, models, translator, monkeypatch
):
    def translate(texts, **_):
        return [Hypothesis(text, None, text != "June") for text in texts]

    monkeypatch.setattr(translator, "translate", translate)
    result = command("translate", models["translator"], stdin=b"May\nJune\nJuly\nJune\n")
    assert result.stdout.splitlines() == ["May", "June", "July", "June"]
    assert result.stderr.startswith("2 translations cut off at the length limit")
    assert not command("translate", models["translator"], "May", "July").stderr


@pytest.fixture
def second(translator, randomize, tmp_path):
    """A translator like the first, with other weights, and its file."""
    model = randomize(translator.model.copy(), seed=1)
    second = kt.Translator(model, translator.source_tokenizer)
    second.save(tmp_path / "second.keras")
    return second, tmp_path / "second.keras"


@pytest.mark.slow
def test_an_ensemble_translates_and_is_evaluated(
    command, models, translator, second, sides, tmp_path
):
    other, path = second
    both = kt.Translator.ensemble([translator, other])
    words = ["May 3, 2021", "--scores", "--ensemble", path]
    result = command("translate", models["translator"], *words)
    (found,) = both.translate(["May 3, 2021"], return_scores=True)
    score = float(result.stdout.split("\t")[0].rstrip("*"))
    assert score == pytest.approx(found.score, abs=1e-3), result.stderr

    scores = tmp_path / "scores.json"
    result = evaluate(command, models["translator"], sides, "--ensemble", path, "--json", scores)
    sources, references = (side.read_text("utf-8").splitlines() for side in sides)
    log_p = [
        sum(each.score(sources, references, length_penalty=0.0)) for each in (both, translator)
    ]
    tokens = sum(len(text) + 1 for text in references)
    expected, alone = np.exp(-np.array(log_p) / tokens)
    perplexity = json.loads(scores.read_text())["perplexity"]
    assert perplexity == pytest.approx(expected, rel=1e-4) and perplexity < 0.9 * alone


@pytest.mark.parametrize(
    "options, expected",
    [
        (["--engine", "ctranslate2"], "Keras alone decodes an ensemble, so leave out --engine"),
        (["--attention", "a.png"], "Attention maps show one model"),
        (
            ["--attention", "second.keras"],
            "--attention must be another file than --ensemble second.keras",
        ),
    ],
)
def test_an_ensemble_refuses_what_one_model_is_for(
    command, models, second, tmp_path, monkeypatch, options, expected
):
    monkeypatch.chdir(tmp_path)
    words = ["May", "--ensemble", "second.keras", *options]
    assert_one_sentence(command("translate", models["translator"], *words), expected)


def test_a_model_of_another_vocabulary_or_task_is_named_in_an_ensemble(command, models):
    result = command("translate", models["translator"], "May", "--ensemble", "dates")
    expected = "--ensemble dates: Translator 2 of an ensemble must have the source_tokenizer of"
    assert_one_sentence(result, expected)
    result = command("translate", models["translator"], "May", "--ensemble", models["tagger"])
    assert_one_sentence(result, "tagger.keras holds a Tagger")


def test_options_against_loops_reach_the_search(command, models, translator, monkeypatch):
    given = []
    monkeypatch.setattr(translator, "translate", lambda _, **options: given.append(options) or [])
    words = ["--no-repeat-ngram-size", "3", "--repetition-penalty", "1.2", "--max-length-ratio=1.5"]
    command("translate", models["translator"], "May", *words, "--suppress", "a b", "c")
    expected = dict(no_repeat_ngram_size=3, repetition_penalty=1.2, max_length_ratio=1.5)
    assert given[0].items() >= dict(expected, suppress=["a b", "c"]).items()


def test_a_search_that_cannot_be_is_one_sentence(command, models):
    result = command("translate", models["translator"], "--beams", "2", "--n-best", "3", "May")
    assert_one_sentence(result, "n_best must be")


# predict


def test_a_tagger_answers_word_slash_tag(command, models, small_tasks):
    result = command("predict", models["tagger"], stdin=b"The dog's cat\n")
    (pairs,) = small_tasks["tagger"].tag(["The dog's cat"])
    assert result.stdout == " ".join(f"{word}/{tag}" for word, tag in pairs) + "\n"
    (pairs,) = small_tasks["tagger"].tag([["The", "dog's", "cat"]])
    result = command("predict", models["tagger"], "--words", "The dog's cat")
    assert result.stdout == " ".join(f"{word}/{tag}" for word, tag in pairs) + "\n"
    result = command("predict", models["tagger"], "--words", " a\u00a0b \t\u3000")
    assert [one[:-1].split("/")[0] for one in result.stdout.split(" ")] == ["a\u00a0b", "\u3000"]


def test_a_classifier_answers_label_tab_probability(command, models, small_tasks):
    texts = ["A good cat.", "a dog"]
    expected = small_tasks["classifier"].classify(texts)
    result = command("predict", models["classifier"], *texts)
    assert result.stdout == "".join(f"{e.label}\t{e.probability:.4f}\n" for e in expected)


def test_a_mask_filler_answers_words_with_their_probabilities(command, models, small_tasks):
    (expected,) = small_tasks["filler"].fill(["The [MASK] barks."])
    result = command("predict", models["filler"], "The [MASK] barks.")
    assert result.stdout == ", ".join(f"{e.label} {e.probability:.2f}" for e in expected) + "\n"


def test_the_line_without_a_mask_is_named_by_its_place_in_the_whole_input(
    command, models, small_tasks, monkeypatch
):
    filler = models["filler"]
    result = command("predict", filler, stdin=b"the [MASK]\nno mask\n")
    assert_one_sentence(result, "Line 2 must have one [MASK]; received 0 in 'no mask'.")
    result = command("predict", filler, "the [MASK]", "a [MASK]", "[MASK] [MASK]")
    assert_one_sentence(result, "TEXT 3 must have one [MASK]; received 2")
    monkeypatch.setattr(small_tasks["filler"], "batch_size", 2)
    result = command("predict", filler, stdin=b"the [MASK]\n" * 6 + b"none\n" + b"a [MASK]\n")
    assert_one_sentence(result, "Line 7 must have one [MASK]")
    result = command("translate", models["translator"], stdin=b"May\n" * 3 + b"a" * 9000 + b"\n")
    assert_one_sentence(result, "Line 4 must have at most 8192 tokens")
    assert_one_sentence(command("translate", models["translator"], "M\udcff"), "TEXT 1 has half a")


def test_an_answer_is_one_line_whatever_characters_it_has():
    generator = np.random.default_rng(0)
    for _ in range(200):
        text = "".join(map(chr, generator.choice([*range(256), 0x2028, 0x2029, 0x6211], 20)))
        line = one_line(text)
        assert line.splitlines() == [line] and (line == text) == (text.splitlines() == [text])
    assert one_line("a\r\n\v\u2028b\tc\\n") == r"a\r\n\x0b\u2028b" + "\tc\\n"


def test_a_language_model_answers_on_one_line_and_heeds_its_options(command, models, small_tasks):
    generator = small_tasks["generator"]
    (expected,) = generator.generate(["the\n"], max_tokens=30, temperature=0.0)
    options = ["--max-tokens", "30", "--temperature", "0"]
    result = command("predict", models["generator"], "the\n", *options)
    assert result.stdout == expected.replace("\n", "\\n") + "\n"
    sampling = {"temperature": 2.0, "top_k": 5, "top_p": 0.9, "seed": 3}
    (expected,) = generator.generate(["the "], max_tokens=10, **sampling)
    options = [f"--{name.replace('_', '-')}={value}" for name, value in sampling.items()]
    result = command("predict", models["generator"], "the ", "--max-tokens=10", *options)
    assert result.stdout == expected.replace("\n", "\\n") + "\n"
    assert_one_sentence(command("predict", models["generator"], "the", "--top-p", "2"), "top_p")


def test_lines_that_come_one_by_one_are_continued_and_numbered_as_those_that_come_together(
    command, models, small_tasks, translator, monkeypatch
):
    prompts = ["the "] * 3
    monkeypatch.setattr(lines, "_batches", lambda texts, most: [[text] for text in prompts])
    expected = small_tasks["generator"].generate(prompts, 10, 2.0, seed=3)
    assert len(set(expected)) > 1
    options = ["--max-tokens=10", "--temperature=2", "--seed=3"]
    result = command("predict", models["generator"], *options)
    assert result.stdout == "".join(f"{one_line(text)}\n" for text in expected)
    result = command("translate", models["translator"], "--n-best=1")
    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == ["1", "2", "3"]


# evaluate


@pytest.fixture(scope="module")
def sides(dates, tmp_path_factory):
    """Eight short sources and their references, in two files."""
    folder = tmp_path_factory.mktemp("sides")
    short = [pair for pair in zip(*dates.test, strict=True) if len(pair[0]) < 16][:8]
    for name, texts in zip(("source", "reference"), zip(*short, strict=True), strict=True):
        (folder / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return folder / "source", folder / "reference"


def hypotheses(texts, cut_off=()):
    return [Hypothesis(text, None, number not in cut_off) for number, text in enumerate(texts)]


def evaluate(command, model, sides, *options):
    return command("evaluate", model, "--source", sides[0], "--reference", sides[1], *options)


@pytest.mark.slow
def test_scores_are_those_of_the_translations_and_of_the_references(
    command, models, translator, sides, tmp_path
):
    files = ["--json", tmp_path / "scores.json", "--translations", tmp_path / "translations"]
    options = [*files, "--beams", "2", "--worst", "2", "--tokenize", "char"]
    result = evaluate(command, models["translator"], sides, *options)
    assert result.returncode == 0, result.stderr
    scores = json.loads((tmp_path / "scores.json").read_text())
    translations = (tmp_path / "translations").read_text("utf-8").splitlines()
    sources, references = (path.read_text("utf-8").splitlines() for path in sides)
    assert translations == translator.translate(sources, beams=2)
    bleu = evaluation.bleu(translations, references, tokenize="char")
    assert scores["bleu"] == bleu.value and scores["bleu_signature"] == bleu.signature
    assert "tok:char" in bleu.signature
    assert scores["chrf"] == evaluation.chrf(translations, references).value
    log_p = sum(translator.score(sources, references, length_penalty=0.0))
    tokens = sum(len(text) + 1 for text in references)  # a character is a token here
    assert scores["perplexity"] == pytest.approx(np.exp(-log_p / tokens), rel=1e-4)
    each = evaluation.sentence_chrf(translations, references)
    worst = np.argsort(each, kind="stable")[:2]
    shown = [line for line in result.stdout.splitlines() if line.startswith("Sentence ")]
    assert shown == [f"Sentence {n + 1}, chrF {each[n]:.1f}" for n in worst]
    assert f"  translation {translations[worst[0]]}" in result.stdout.splitlines()


def test_scores_are_those_of_sacrebleu_on_the_same_files(
    command, models, translator, tmp_path, monkeypatch
):
    from sacrebleu.metrics import BLEU, CHRF

    monkeypatch.setattr(translator, "score", lambda texts, *_, **__: [-1.0] * len(texts))
    for seed in range(6):
        generator = np.random.default_rng(seed)
        number = int(generator.integers(4, 12))
        texts = [f"May {day}, 2019" for day in generator.integers(1, 29, 3 * number)]
        blank = generator.random(3 * number) < 0.3
        blank[:2] = False  # sources, then translations; at least one line is complete
        blank[[2 * number, number]] = False
        source, found, reference = (
            ["" if blank[n] else texts[n] for n in range(start, start + number)]
            for start in (0, number, 2 * number)
        )
        written = [text.replace(" ", "\n", generator.integers(2)) for text in found]
        answers = hypotheses(written)
        monkeypatch.setattr(translator, "translate", lambda texts, answers=answers, **_: answers)
        for name, side in (("s", source), ("r", reference)):
            (tmp_path / name).write_text("".join(f"{text}\n" for text in side))
        files = ["--json", tmp_path / "scores.json", "--translations", tmp_path / "out"]
        sides = tmp_path / "s", tmp_path / "r"
        result = evaluate(command, models["translator"], sides, *files, "--worst", "99")
        assert result.returncode == 0, result.stderr
        out = (tmp_path / "out").read_text().split("\n")[:-1]
        assert len(out) == number and [line.replace("\\n", " ") for line in out] == found
        scores = json.loads((tmp_path / "scores.json").read_text())
        for name, metric in (("bleu", BLEU()), ("chrf", CHRF())):
            assert scores[name] == pytest.approx(metric.corpus_score(out, [reference]).score)
        assert scores["length_ratio"] == BLEU().corpus_score(out, [reference]).ratio
        assert scores["sentences"] == number
        shown = re.findall(r"Sentence (\d+),.*\n  source      (.*)", result.stdout)
        complete = [n for n in range(number) if source[n] and reference[n]]
        assert sorted((int(n), text) for n, text in shown) == [(n + 1, source[n]) for n in complete]


def test_unknown_characters_are_reported_with_the_scores(command, models, tmp_path):
    (tmp_path / "s").write_text("May 3, 2019\n你好\n", "utf-8")
    (tmp_path / "r").write_text("2019-05-03\n你好世界世界世界世界\n", "utf-8")
    files = ["--json", tmp_path / "scores.json"]
    result = evaluate(command, models["translator"], (tmp_path / "s", tmp_path / "r"), *files)
    assert "Unknown characters: 15.38% of the sources, 50.00% of the references" in result.stdout
    shares = json.loads((tmp_path / "scores.json").read_text())["unknown_share"]
    assert shares == {"source": 2 / 13, "reference": 0.5}


def test_copies_and_loops_are_reported_with_the_scores(
    command, models, translator, tmp_path, monkeypatch
):
    sources = ["May 3, 2019", "May 4, 2019", "", "May 5, 2019"]
    written = ["may 3, 2019", "2 0 " * 9, "", "2019-05-05"]
    answers = hypotheses(written, cut_off=[1])
    monkeypatch.setattr(translator, "translate", lambda texts, **_: answers)
    for name, side in (("s", sources), ("r", ["2019-05-03", "2019-05-04", "", "2019-05-05"])):
        (tmp_path / name).write_text("".join(f"{text}\n" for text in side))
    files = ["--json", tmp_path / "scores.json"]
    result = evaluate(command, models["translator"], (tmp_path / "s", tmp_path / "r"), *files)
    assert "\nCopies of the source: 25.00%; loops: 25.00%\n" in result.stdout, result.stderr
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert (scores["copy_rate"], scores["loop_rate"], scores["cut_off"]) == (0.25, 0.25, 1)
    assert "\nCut off at the length limit: 1 of 4\n" in result.stdout
    assert f"\nLength ratio to the references: {scores['length_ratio']:.3f}\n" in result.stdout


def test_files_without_a_line_to_score_are_one_sentence(command, models, sides, tmp_path):
    (tmp_path / "blank").write_text("\n" * 8)
    result = evaluate(command, models["translator"], (sides[0], tmp_path / "blank"))
    assert_one_sentence(result, "at least one complete example, received 8 whose source or target")


def test_an_option_given_twice_is_one_sentence(command, models):
    result = command("translate", models["translator"], "May 3", "--beams", "2", "--beams=3")
    assert result.returncode == 2 and "Give --beams once" in result.stderr
    cut_short = command("translate", models["translator"], "May 3", "--beam", "2")
    assert cut_short.returncode == 2 and "--beam" in cut_short.stderr


@pytest.mark.parametrize(
    "name, words",
    [
        ("translator", "--words"),
        ("translator", "--max-tokens 9"),
        ("translator", "--no-repeat-ngram-size 3"),
        ("tagger", "--seed 1"),
        ("generator", "--words"),
    ],
)
def test_an_option_of_another_task_is_refused(command, models, name, words):
    result = command("predict", models[name], "May 3", *words.split())
    option = words.split()[0]
    assert result.returncode == 2 and f"{option} would not be used: it needs a" in result.stderr


def test_an_answer_with_line_ends_is_one_line(command, models, translator, monkeypatch):
    ends = "\n \r \r\n \x0b \x0c \x1c \x1d \x1e \x85 \u2028 \u2029".split(" ")
    answers = [Hypothesis(f"ab{end}cd", None, True) for end in ends]
    monkeypatch.setattr(translator, "translate", lambda texts, **_: answers[: len(texts)])
    result = command("translate", models["translator"], *["a"] * len(ends))
    lines = result.stdout.split("\n")[:-1]
    assert lines == result.stdout.splitlines() and len(lines) == len(ends)
    assert lines[0] == "ab\\ncd" and lines[2] == "ab\\r\\ncd" and lines[-1] == "ab\\u2029cd"


def test_a_perplexity_beyond_every_float_is_null_in_json(
    command, models, translator, sides, tmp_path, monkeypatch
):
    monkeypatch.setattr(translator, "translate", lambda texts, **options: hypotheses(texts))
    monkeypatch.setattr(translator, "score", lambda texts, *_, **__: [-1e6] * len(texts))
    options = ["--json", tmp_path / "scores.json", "--worst", "0"]
    result = evaluate(command, models["translator"], sides, *options)
    assert result.returncode == 0 and "inf per token" in result.stdout
    text = (tmp_path / "scores.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["perplexity"] is None


def test_a_line_that_is_too_long_to_score_is_named(command, models, tmp_path):
    source, reference = tmp_path / "a", tmp_path / "b"
    source.write_text("May\n\nMay\n" + "a" * 9000 + "\n")
    reference.write_text("2019\n2019\n2019\n2019\n")
    options = ["--source", source, "--reference", reference]
    result = command("evaluate", models["translator"], *options)
    assert_one_sentence(result, f"{source}, line 4: must have at most 8192 tokens")
    source.write_text("May\n\nMay\nMay\n")
    reference.write_text("2019\n2019\n" + "2" * 9000 + "\n2019\n")
    result = command("evaluate", models["translator"], *options)
    assert_one_sentence(result, f"{reference}, line 3: must have at most 8192 tokens")


def test_a_file_to_score_that_is_not_there_is_named(command, models, sides):
    result = evaluate(command, models["translator"], (sides[0], "none.txt"))
    assert_one_sentence(result, "none.txt: no such file")


@pytest.mark.parametrize(
    "options, expected",
    [
        (["--tokenize", "foo"], "'foo'"),
        (["--json", "nowhere/scores.json"], "--json must name a file in an existing folder"),
        (["--translations", "."], "--translations must name a file; received the folder"),
    ],
)
def test_what_would_fail_after_the_work_fails_before_it(command, sides, options, expected):
    # There is no model: it is not even looked for.
    assert_one_sentence(evaluate(command, "nowhere.keras", sides, *options), expected)


# A full disk


def test_an_average_on_a_full_disk_is_one_sentence(command, models, tmp_path):
    run_folder(tmp_path / "run", load_model(models["tagger"], compile=False))
    before = sorted((tmp_path / "run").rglob("*"))
    with largest_file((tmp_path / "run" / "model.keras").stat().st_size - 100):  # enough to load it
        result = command("average", tmp_path / "run")
    assert_one_sentence(result, "File too large: '", "average-3.keras'")
    assert sorted((tmp_path / "run").rglob("*")) == before


def test_a_model_is_not_called_damaged_where_a_full_disk_keeps_it_from_being_loaded(
    command, models, tmp_path
):
    copy = shutil.copy(models["translator"], tmp_path / "copy.keras")
    with largest_file(10):
        result = command("translate", copy, "May")
    assert_one_sentence(
        result, f"no room to load {copy}: Keras unpacks", "Make room, or set TMPDIR."
    )


@pytest.mark.parametrize("option", ["--translations", "--json"])
def test_scores_on_a_full_disk_are_printed_before_one_sentence(
    command, models, translator, sides, tmp_path, monkeypatch, option
):
    monkeypatch.setattr(translator, "translate", lambda texts, **options: hypotheses(texts))
    monkeypatch.setattr(translator, "score", lambda texts, *_, **__: [-1.0] * len(texts))
    with largest_file(10):
        result = evaluate(command, models["translator"], sides, option, tmp_path / "out")
    assert_one_sentence(result, f"File too large: '{tmp_path / 'out'}'")
    assert "BLEU" in result.stdout and not list(tmp_path.iterdir())


# average


WITHIN = {
    "r_drop": training.RDrop,
    "simcut": training.SimCut,
    "logits_in_pieces": training.ChunkedLogits,
}


def run_folder(folder, task, **options):
    """As a training script leaves it, with three checkpoints: weights, twice these, three times."""
    model = task.model
    for name, value in options.items():
        model = WITHIN[name](model, value)
    model.compile(keras.optimizers.SGD(), kt.TokenCrossEntropy())
    model.optimizer.build(model.trainable_variables)
    weights = [keras.ops.convert_to_numpy(v) for v in model.trainable_variables]
    (folder / "checkpoint").mkdir(parents=True)
    for epoch in (1, 2, 3):
        for variable, value in zip(model.trainable_variables, weights, strict=True):
            variable.assign(epoch * value)
        model.save_weights(folder / "checkpoint" / f"epoch-{epoch:04d}.weights.h5")
    task.save(folder / "model.keras")
    (folder / "settings.json").write_text(json.dumps({"arguments": options}))
    return weights


def trainable_weights(path):
    model = load_model(path, compile=False).model
    return [keras.ops.convert_to_numpy(v) for v in model.trainable_variables]


@pytest.mark.parametrize(
    "name, options",
    [
        pytest.param("translator", {"r_drop": 5.0}, marks=pytest.mark.slow),
        ("tagger", {}),
        pytest.param("classifier", {"r_drop": 1.0}, marks=pytest.mark.slow),
        pytest.param("translator", {"simcut": 3.0}, marks=pytest.mark.slow),
        pytest.param("generator", {"logits_in_pieces": 3}, marks=pytest.mark.slow),
        pytest.param("filler", {}, marks=pytest.mark.slow),
    ],
)
def test_the_checkpoints_of_every_task_can_be_averaged(command, models, tmp_path, name, options):
    task = load_model(models[name], compile=False)
    weights = run_folder(tmp_path / "run", task, **options)
    result = command("average", tmp_path / "run")
    assert result.returncode == 0, result.stderr
    output = tmp_path / "run" / "average-3.keras"
    for mean, weight in zip(trainable_weights(output), weights, strict=True):
        np.testing.assert_allclose(mean, 2 * weight, rtol=1e-6)


@pytest.mark.slow
def test_the_last_checkpoints_can_be_averaged_into_another_file(command, models, tmp_path):
    task = load_model(models["tagger"], compile=False)
    weights = run_folder(tmp_path / "run", task)
    output = tmp_path / "last-two.keras"
    result = command("average", tmp_path / "run", "--last", "2", "--output", output)
    assert result.returncode == 0 and "epoch-0002.weights.h5, epoch-0003" in result.stdout
    for mean, weight in zip(trainable_weights(output), weights, strict=True):
        np.testing.assert_allclose(mean, 2.5 * weight, rtol=1e-6)


def test_an_average_that_cannot_be_is_one_sentence(command, models, tmp_path):
    run = tmp_path / "run"
    task = load_model(models["tagger"], compile=False)
    run_folder(run, task)
    for last in (0, 1, 4):
        result = command("average", run, "--last", last)
        assert_one_sentence(result, f"two or more; received --last {last}. Train with --average N")
    assert_one_sentence(command("average", tmp_path), "checkpoints of 0 epochs, and a mean needs")
    assert_one_sentence(command("average", tmp_path / "x"), "no such run")
    result = command("average", run, "--output", "mean.h5")
    assert_one_sentence(result, "--output must end in .keras", code=2)
    result = command("average", run, "--output", tmp_path / "nowhere" / "x.keras")
    assert_one_sentence(result, "--output must name a file in an existing folder")
    before = (run / "model.keras").read_bytes()
    damaged = run / "checkpoint" / "epoch-0002.weights.h5"
    content = damaged.read_bytes()
    training.weight_files.add_checksum(damaged, {"batches": np.array(7)})
    with h5py.File(damaged, "r+") as file:
        file[training.weight_files.STATE]["batches"][...] = 8
    assert_one_sentence(command("average", run), "epoch-0002.weights.h5 is damaged: its checksum")
    damaged.write_bytes(content)
    shutil.copy(models["classifier"], run / "model.keras")
    assert_one_sentence(command("average", run), "must fit its model.keras")
    (run / "model.keras").write_bytes(before)
    (run / "settings.json").write_text("{")
    assert_one_sentence(command("average", run), "must fit its model.keras")
    assert not list(run.glob("average*"))


# export


def test_a_translator_is_exported_once_unless_overwritten(command, models, tmp_path):
    pytest.importorskip("ctranslate2", reason="the engine is optional")
    output = tmp_path / "exported"
    given = ["export", models["translator"], "--format", "ctranslate2", "--output", output]
    assert command(*given).returncode == 0
    assert {path.name for path in output.iterdir()} >= {"model.bin", "config.json"}
    assert_one_sentence(command(*given), "exists; choose another --output, or pass --overwrite")
    (output / "model.bin").unlink()
    assert command(*given, "--overwrite").returncode == 0 and (output / "model.bin").exists()


def test_what_has_no_export_is_one_sentence(command, models, tmp_path):
    result = command("export", models["tagger"], "--output", tmp_path / "x")
    assert_one_sentence(
        result, "ctranslate2 can hold a Translator or TextGenerator; received task='Tagger'"
    )
    assert_one_sentence(
        command("export", models["tagger"], "--format", "pdf"), "ctranslate2", code=2
    )
    result = command("export", models["tagger"], "--format", "onnx", "--quantize", "float16")
    assert_one_sentence(result, "onnx can hold weights in float32 int8; received quantization=")
    assert not list(models["tagger"].parent.glob("*.onnx"))


@pytest.fixture
def without_tensorflow(monkeypatch, tmp_path):
    """Hides TensorFlow from the processes that a command starts."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "tensorflow.py").write_text("raise ImportError('hidden')")
    before = os.environ.get("PYTHONPATH", "")
    root = str(pathlib.Path(kt.__file__).parents[1])
    path = os.pathsep.join([str(tmp_path / "hidden"), root, before])
    monkeypatch.setenv("PYTHONPATH", path)


@pytest.mark.slow
def test_without_tensorflow_its_formats_are_refused_in_one_sentence(
    command, models, tmp_path, monkeypatch, without_tensorflow
):
    monkeypatch.setattr(backend, "name", lambda: "none of them")
    result = command("export", models["tagger"], "--format", "litert", "--output", tmp_path / "x")
    assert_one_sentence(result, "written by TensorFlow, which is not installed; install it with")
    assert not (tmp_path / "x").exists()


def test_an_output_that_begins_with_a_dash_reaches_tensorflow(
    command, models, tmp_path, monkeypatch
):
    started = []

    def run(words, **options):
        started.append(words[3:])
        return subprocess.CompletedProcess(words, 0, "done", "")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(backend, "name", lambda: "none of them")
    monkeypatch.setattr(subprocess, "run", run)
    given = [models["tagger"], "--format", "litert", "--output=-x", "--overwrite"]
    result = command("export", *given)
    assert result.stdout.strip() == "done", result.stderr
    (words,) = started
    _, options = console._parse(words)
    assert (options.model, options.output) == (str(models["tagger"]), "-x")
    assert (options.format, options.quantize, options.overwrite) == ("litert", None, True)


@pytest.mark.slow
def test_tensorflow_exports_whichever_backend_runs_the_command(
    command, models, tmp_path, monkeypatch
):
    for module in ("tensorflow", "ai_edge_litert"):
        pytest.importorskip(module, exc_type=ImportError)
    monkeypatch.setattr(backend, "name", lambda: "none of them")  # so the command starts another
    given = ["export", models["tagger"], "--format", "litert", "--output", tmp_path / "x"]
    result = command(*given)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.strip() == f"{tmp_path / 'x'} holds the model for LiteRT."
    names = {path.name for path in (tmp_path / "x").iterdir()}
    assert names == {"probabilities.tflite", "settings.json", ".keras_transformer.json"}
    assert_one_sentence(command(*given, "--quantize", "int16"), "exists; choose another --output")
    given[1] = tmp_path / "missing.keras"
    assert_one_sentence(command(*given, "--overwrite"), "missing.keras")
    assert (tmp_path / "x" / "settings.json").exists()


def test_other_formats_are_written_by_their_names(command, models, tmp_path):
    pytest.importorskip("safetensors", reason="the format is optional")
    for model, format in (("translator", "marian"), ("tagger", "safetensors")):
        output = tmp_path / format
        given = ["export", models[model], "--format", format, "--output", output]
        assert command(*given).returncode == 0
        names = {path.name for path in output.iterdir()}
        assert names >= {"config.json", "model.safetensors"}


# In a process of its own


def environment():
    return {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}


@pytest.mark.slow
def test_a_terminal_is_asked_for_sentences(models, translator):
    terminal, theirs = os.openpty()
    with subprocess.Popen(
        [*TRANSLATE, str(models["translator"])],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.write(terminal, b"April 22, 2019\n\x04")
        answer, prompts = process.communicate(timeout=300)
    os.close(theirs)
    os.close(terminal)
    assert answer.splitlines() == translator.translate(["April 22, 2019"])
    assert "> " in prompts


@pytest.mark.slow
@pytest.mark.parametrize("end", ["close", "control-c", "no reader"])
def test_a_program_may_send_a_line_and_wait_for_its_answer(models, end):
    with subprocess.Popen(
        [*PREDICT, str(models["tagger"])],
        env=environment(),
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # As in a terminal: a background job would hand on Control-C as ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        for line in ("The dog barks.", "a cat"):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            assert process.stdout.readline().endswith("\n")  # while stdin is still open
        if end == "control-c":
            process.send_signal(signal.SIGINT)
            process.wait(60)  # while stdin is still open
        elif end == "no reader":
            process.stdout.close()
            process.stdin.write("a cat\n")
        process.stdin.close()
        assert process.wait(60) == (130 if end == "control-c" else 0)
        errors = process.stderr.read()
        assert "Traceback" not in errors and "Exception ignored" not in errors


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a disk that is always full")
def test_a_full_disk_is_one_sentence(models):
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [*PREDICT, str(models["tagger"]), "May"],
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert result.returncode == 1
    assert last_line(result) == "[Errno 28] No space left on device"
    assert "Traceback" not in result.stderr and "Exception ignored" not in result.stderr
