"""The scripts as a user runs them: in a process of their own, killed and resumed."""

import argparse
import csv
import importlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

from keras_transformer import corpora, evaluation

ROOT = pathlib.Path(__file__).parents[1]
TRAIN = [sys.executable, ROOT / "scripts" / "train_translation.py"]
TRANSLATE = [sys.executable, ROOT / "scripts" / "translate.py"]
AVERAGE = [sys.executable, ROOT / "scripts" / "average_checkpoints.py"]
EVALUATE = [sys.executable, ROOT / "scripts" / "evaluate.py"]

try:
    import tensorboard
    import tensorflow

    HAS_TENSORBOARD = bool(tensorboard and tensorflow)
except ImportError:
    HAS_TENSORBOARD = False


def run(command, **kwargs):
    kwargs = {"capture_output": True, "text": True, "cwd": ROOT, "timeout": 600, **kwargs}
    return subprocess.run([str(part) for part in command], **kwargs)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A small TSV of short dates: two shapes to compile, so that a run takes seconds."""
    path = tmp_path_factory.mktemp("data") / "pairs.tsv"
    examples = zip(*corpora.dates(num_train=1600, num_valid=1, num_test=1, seed=2).train)
    short = [f"{source}\t{target}\n" for source, target in examples if len(source) < 16]
    path.write_text("".join(short[:400]), encoding="utf-8")
    return path


def options(pairs, output):
    small = ["--preset", "tiny", "--vocabulary", "char", "--batch-size", "32", "--epochs", "5"]
    small += ["--num-layers", "1", "--warmup-steps", "20", "--deterministic"]
    return ["--pairs", pairs, "--output", output, *small]


@pytest.fixture(scope="module")
def finished(pairs, tmp_path_factory):
    """A run that nobody killed."""
    output = tmp_path_factory.mktemp("runs") / "whole"
    result = run([*TRAIN, *options(pairs, output)])
    assert result.returncode == 0, result.stderr
    return output, result.stdout


def weights_of(output):
    return keras.saving.load_model(output / "model.keras").get_weights()


def history_of(output):
    with open(output / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if k != "tokens_per_second"} for row in rows]


def test_a_run_leaves_model_history_settings_scores_and_pictures(finished):
    output, printed = finished
    names = {path.name for path in output.iterdir()}
    pictures = {"learning_curve.png", "attention.png"}
    assert pictures | {"model.keras", "history.csv", "settings.json", "scores.json"} <= names
    for picture in pictures:
        assert (output / picture).read_bytes().startswith(b"\x89PNG")
    settings = json.loads((output / "settings.json").read_text())
    assert settings["arguments"]["seed"] == 0 and settings["versions"]["keras"] == keras.__version__
    assert keras.backend.backend() in settings["command"]
    scores = json.loads((output / "scores.json").read_text())
    assert scores["split"] == "validation" and "tok:13a" in scores["signature"]
    history = history_of(output)
    assert [int(row["epoch"]) for row in history] == [0, 1, 2, 3, 4]
    assert float(history[-1]["val_perplexity"]) < float(history[0]["val_perplexity"])
    for shown in ("tokens_per_second", "token_accuracy", "reference", "shapes to compile"):
        assert shown in printed


def test_a_run_killed_twice_and_resumed_ends_with_the_same_bits(finished, pairs, tmp_path):
    whole, _ = finished
    output = tmp_path / "killed"
    command = [str(part) for part in [*TRAIN, *options(pairs, output)]]
    chance = random.Random(5)
    for kill in (1, 2):
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        # An epoch has been saved; then, at some moment of a later one, the power fails.
        while not list((output / "checkpoint").glob(f"epoch-000[{kill}-9].weights.h5")):
            assert process.poll() is None, "the run ended before it was killed"
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.wait()
        command = [*map(str, TRAIN), "--resume", "--output", str(output)]
    result = run(command)
    assert result.returncode == 0, result.stderr
    for resumed, uninterrupted in zip(weights_of(output), weights_of(whole), strict=True):
        np.testing.assert_array_equal(resumed, uninterrupted)
    assert history_of(output) == history_of(whole)


@pytest.fixture(scope="module")
def regularised(pairs, tmp_path_factory):
    """A run with what helps on small data, from JSON Lines."""
    folder = tmp_path_factory.mktemp("regularised")
    lines = [line.split("\t") for line in pairs.read_text("utf-8").splitlines()]
    rows = [json.dumps({"from": source.upper(), "to": target}) for source, target in lines]
    (folder / "pairs.jsonl").write_text("\n".join([*rows, rows[0]]), encoding="utf-8")
    data = ["--pairs", folder / "pairs.jsonl", "--sides", "from", "to", "--lowercase", "--unique"]
    model = ["--recipe", "small", "--preset", "tiny", "--vocabulary-size", "100"]
    rate = ["--schedule", "cosine", "--warmup-steps", "20", "--clip-norm", "1"]
    helps = ["--r-drop", "5", "--subword-alpha", "0.1", "--attention-dropout", "0.1"]
    helps += ["--norm-first", "--length-penalty", "1.1", "--diversify", "0"]
    watch = ["--bleu-sentences", "4", "--patience", "2", "--average", "2", "--beams", "2"]
    few = ["--epochs", "3", "--tokens-per-batch", "600", "--output", folder / "run"]
    log = ["--tensorboard"] if HAS_TENSORBOARD else []
    result = run([*TRAIN, *data, *model, *rate, *helps, *watch, *few, *log])
    assert result.returncode == 0, result.stderr
    return folder / "run", result


def test_a_run_with_all_that_helps_on_small_data(regularised):
    output, result = regularised
    history = history_of(output)
    assert float(history[-1]["val_perplexity"]) < float(history[0]["val_perplexity"])
    assert all(0 <= float(row["val_bleu"]) <= 100 for row in history)
    assert "1 repeated (dropped)" in result.stderr and "minutes_left" in result.stdout
    settings = json.loads((output / "settings.json").read_text())["arguments"]
    assert (settings["num_layers"], settings["d_model"]) == (2, 64)  # of --preset, not --recipe
    assert (settings["label_smoothing"], settings["vocabulary"]) == (0.1, "bpe")
    assert settings["r_drop"] == 5 and settings["epochs"] == 3
    translator = keras.saving.load_model(output / "model.keras")
    assert translator.lowercase
    assert (translator.beams, translator.length_penalty) == (2, 1.1)
    assert translator.transformer.get_config()["norm_first"]


@pytest.fixture(scope="module")
def diversified(pairs, tmp_path_factory):
    """A run that learns from two teachers, too; nobody killed it."""
    output = tmp_path_factory.mktemp("diversified") / "whole"
    few = ["--epochs", "2", "--diversify", "1", "--seed", "3"]
    result = run([*TRAIN, *options(pairs, output), *few])
    assert result.returncode == 0, result.stderr
    return output, result.stdout


def test_teachers_learn_both_ways_and_what_they_say_is_learnt_from(inside, diversified, pairs):
    output, printed = diversified
    table = [line.split("\t") for line in pairs.read_text("utf-8").splitlines()]
    forward, backward = (output / "teachers" / way for way in ("forward-1", "backward-1"))
    for folder in (forward, backward):
        settings = json.loads((folder / "settings.json").read_text("utf-8"))["arguments"]
        assert (settings["seed"], settings["diversify"]) == (4, 0)
        said = json.loads((folder / "translations.json").read_text("utf-8"))
        translator = keras.saving.load_model(folder / "model.keras")
        train, _ = importlib.import_module("command_line").held_out(corpora.read_pairs(pairs))
        texts = train.source if folder == forward else train.target
        assert len(said) == len(texts) and said[:8] == translator.translate(texts[:8])
    (line,) = [line for line in printed.splitlines() if "that teachers made of them" in line]
    old, new = (int(word) for word in line.split() if word.isdecimal())
    assert old == len(table) - len(table[::50]) and 0 < new <= 2 * old


@pytest.mark.parametrize(
    "killed", [["teachers/backward-1", "."], ["."]], ids=["in_a_teacher", "after_them"]
)
def test_a_diversified_run_goes_on_where_it_was_killed(diversified, killed, tmp_path):
    whole, _ = diversified
    output = tmp_path / "killed"
    shutil.copytree(whole, output)
    for name in killed:  # as if in the first epoch of the first of them
        shutil.rmtree(output / name / "checkpoint")
        for file in ("history.csv", "model.keras", "translations.json"):
            (output / name / file).unlink(missing_ok=True)
    result = run([*TRAIN, "--resume", "--output", output])
    assert result.returncode == 0, result.stderr
    assert ("Teacher backward-1 learns" in result.stdout) == ("teachers/backward-1" in killed)
    assert "Teacher forward-1 learns" not in result.stdout
    for name in killed:
        assert history_of(output / name) == history_of(whole / name)
        both = zip(weights_of(output / name), weights_of(whole / name), strict=True)
        for resumed, uninterrupted in both:
            np.testing.assert_array_equal(resumed, uninterrupted)


def test_teachers_give_a_second_target_or_a_second_source_once(inside):
    script = importlib.import_module("diversification")
    pairs = corpora.Examples(["a dog", "a cat", "a fox"], ["ein Hund", "eine Katze", "ein Fuchs"])
    said = {
        ("forward", 1): ["ein Tier", "eine Katze", ""],  # new, as it is there, nothing
        ("backward", 1): ["one dog", "a cat", "a fox"],
        ("forward", 2): ["ein Tier", "die Katze", "ein Fuchs"],
        ("backward", 2): ["a dog", "one cat", "one fox"],
    }
    made = script.diversified(pairs, 2, lambda way, number: said[way, number])
    assert list(zip(*made)) == [
        *zip(*pairs),
        ("a dog", "ein Tier"),
        ("one dog", "ein Hund"),
        ("a cat", "die Katze"),
        ("one cat", "eine Katze"),
        ("one fox", "ein Fuchs"),
    ]
    assert script.diversified(pairs, 1, lambda way, _: pairs[way == "forward"]) == pairs


def test_tensorboard_is_written_or_missed_before_training(inside, regularised, pairs, tmp_path):
    if HAS_TENSORBOARD:
        events = [path.parent.name for path in regularised[0].glob("tensorboard/*/events*")]
        assert sorted(events) == ["train", "validation"]
        return
    command = [*TRAIN, *options(pairs, tmp_path / "run"), "--tensorboard"]
    result = inside(command)
    last = result.stderr.strip().splitlines()[-1]
    assert result.returncode == 1 and last.startswith("--tensorboard needs TensorFlow")
    assert not (tmp_path / "run").exists()


def test_the_mean_of_the_last_checkpoints_can_be_taken_again(inside, regularised, tmp_path):
    output, _ = regularised
    result = inside([*AVERAGE, output])
    assert result.returncode == 0, result.stderr
    same = keras.saving.load_model(output / "average-2.keras").get_weights()
    for one, other in zip(same, weights_of(output), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)
    result = inside([*AVERAGE, output, "--last", "1", "--output", tmp_path / "last.keras"])
    assert result.returncode == 0, result.stderr
    last = keras.saving.load_model(tmp_path / "last.keras").get_weights()
    assert max(np.abs(one - other).max() for one, other in zip(last, same)) > 1e-4
    result = inside([*AVERAGE, output, "--last", "3"])
    assert result.returncode == 1 and "holds 2 checkpoints; received --last 3" in result.stderr


def test_a_folder_that_holds_a_run_is_not_written_over(inside, finished, pairs):
    output, _ = finished
    before = (output / "model.keras").read_bytes()
    result = inside([*TRAIN, *options(pairs, output)])
    assert result.returncode == 1 and "--resume" in result.stderr and "--overwrite" in result.stderr
    assert (output / "model.keras").read_bytes() == before


def test_a_resumed_run_keeps_its_settings(inside, finished):
    output, _ = finished
    result = inside([*TRAIN, "--resume", "--output", output, "--learning-rate", "1"])
    assert result.returncode == 1 and "leave out --learning-rate" in result.stderr


def test_there_is_no_run_to_resume_in_an_empty_folder(inside, tmp_path):
    result = inside([*TRAIN, "--resume", "--output", tmp_path])
    assert result.returncode == 1 and "no run to resume" in result.stderr


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["--source", "nowhere.en", "--target", "nowhere.de"], "nowhere.en"),
        (["--source", "nowhere.en"], "go together"),
        (["--pairs", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
        (["--dataset", "tfds:no_such_set"], "no_such_set: "),
        (["--valid-pairs", "nowhere.tsv"], "Nothing to train on: give --source"),
        (["--diversify", "-1"], "diversify must be an integer of at least 0"),
        (["--pairs", "a.tsv", "--sides", "en", "de"], "two columns, such as 2 1; received en de."),
    ],
)
def test_wrong_data_ends_in_one_sentence_and_no_run_folder(inside, arguments, expected, tmp_path):
    result = inside([*TRAIN, *arguments, "--output", tmp_path / "run"])
    last = result.stderr.strip().splitlines()[-1]
    assert result.returncode == 1 and expected in last and "Traceback" not in result.stderr
    assert not (tmp_path / "run").exists()


def test_sides_turn_a_table_of_pairs_around(inside, tmp_path):
    (tmp_path / "a.tsv").write_text("a\tA\tB\nc\tC\tD\n", encoding="utf-8")
    script = importlib.import_module("train_translation")
    given = argparse.Namespace(source=None, target=None, pairs=str(tmp_path / "a.tsv"))
    for sides, expected in ((None, "a A"), (("2", "1"), "A a"), (("1", "3"), "a B")):
        given.sides = sides
        examples = script.read(given, "")
        assert f"{examples.source[0]} {examples.target[0]}" == expected


def test_help_teaches(inside):
    result = inside([*TRAIN, "--help"])
    assert result.returncode == 0
    for words in ("Without data it learns dates", "KERAS_BACKEND", "--resume", "--preset"):
        assert words in result.stdout


def test_line_n_in_is_line_n_out(finished):
    output, _ = finished
    lines = ["April 22, 2019", "", "3 March 1912", "  "]
    piped = run([*TRANSLATE, output / "model.keras"], input="\r\n".join(lines))
    assert piped.returncode == 0, piped.stderr
    answers = piped.stdout.splitlines()
    assert len(answers) == 4 and answers[1] == answers[3] == ""
    expected = keras.saving.load_model(output / "model.keras").translate(lines)
    assert answers == expected


@pytest.mark.parametrize("translation", [None, "2019-04-21"])
def test_attention_is_drawn_of_a_text_and_any_translation(inside, finished, translation, tmp_path):
    picture = tmp_path / "attention.png"
    given = [] if translation is None else ["--translation", translation]
    command = [*TRANSLATE, finished[0] / "model.keras", "April 22, 2019", *given]
    result = inside([*command, "--attention", picture])
    assert result.returncode == 0, result.stderr
    own = inside([*TRANSLATE, finished[0] / "model.keras", "April 22, 2019"]).stdout
    assert result.stdout == (own if translation is None else f"{translation}\n")
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["May", "June", "--attention", "a.png"], "draws one TEXT; received 2"),
        (["--attention", "a.png"], "draws one TEXT; received 0"),
        (["May", "--translation", "5"], "goes with --attention"),
        (["May", "--attention", "a.nonsense"], "nonsense"),
        (["May", "--attention", "nowhere/a.png"], "nowhere"),
    ],
)
def test_attention_that_cannot_be_drawn_is_said_in_one_line(inside, finished, arguments, expected):
    result = inside([*TRANSLATE, finished[0] / "model.keras", *arguments])
    last = result.stderr.strip().splitlines()[-1]
    assert result.returncode and expected in last and "Traceback" not in result.stderr


def test_n_best_and_scores_are_columns(inside, finished):
    output, _ = finished
    texts = ["April 22, 2019", "3 March 1912"]
    search = ["--beams", "4", "--n-best", "2", "--length-penalty", "1", "--scores"]
    result = inside([*TRANSLATE, output / "model.keras", *search, *texts])
    assert result.returncode == 0, result.stderr
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    translator = keras.saving.load_model(output / "model.keras")
    found = translator.translate(texts, beams=4, length_penalty=1.0, n_best=2, return_scores=True)
    assert [row[0] for row in rows] == ["1", "1", "2", "2"]
    hypotheses = [each for of_text in found for each in of_text]
    assert [row[2] for row in rows] == [each.text for each in hypotheses]
    scores = [float(row[1].rstrip("*")) for row in rows]
    np.testing.assert_allclose(scores, [each.score for each in hypotheses], atol=1e-3)
    assert [row[1].endswith("*") for row in rows] == [not each.finished for each in hypotheses]


def test_a_search_that_cannot_be_is_one_sentence(inside, finished):
    search = ["--beams", "2", "--n-best", "3"]
    result = inside([*TRANSLATE, finished[0] / "model.keras", *search, "May"])
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert "n_best must be from 1 to beams" in result.stderr.strip().splitlines()[-1]


def test_a_terminal_is_asked_for_sentences(finished):
    output, _ = finished
    terminal, theirs = os.openpty()
    command = [str(part) for part in [*TRANSLATE, output / "model.keras"]]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        os.write(terminal, b"April 22, 2019\n\x04")
        answer, prompts = process.communicate(timeout=300)
    os.close(theirs), os.close(terminal)
    expected = keras.saving.load_model(output / "model.keras").translate(["April 22, 2019"])
    assert answer.splitlines() == expected
    assert "> " in prompts


def test_a_program_may_send_a_line_and_wait_for_its_answer(finished):
    output, _ = finished
    command = [str(part) for part in [*TRANSLATE, output / "model.keras"]]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        for line in ("April 22, 2019", "3 March 1912"):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            assert process.stdout.readline().endswith("\n")  # while stdin is still open
        process.stdin.close()
        assert process.stdout.read() == ""


@pytest.mark.parametrize(
    "model, stdin, expected",
    [("nowhere.keras", b"", "no model at nowhere.keras"), (None, b"May\n\xff\n", "Line 2")],
)
def test_what_cannot_be_translated_ends_in_one_sentence(inside, finished, model, stdin, expected):
    model = model or finished[0] / "model.keras"
    result = inside([*TRANSLATE, model], stdin)
    assert result.returncode == 1
    assert expected in result.stderr.strip().splitlines()[-1]


def test_a_file_that_is_no_translator_is_named(inside, tmp_path):
    (tmp_path / "x.keras").write_bytes(b"not a zip")
    result = inside([*TRANSLATE, tmp_path / "x.keras", "May"])
    assert result.returncode == 1 and "x.keras is not a model" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.fixture(scope="module")
def sides(pairs, tmp_path_factory):
    """Twenty sources and their references, in two files."""
    folder = tmp_path_factory.mktemp("sides")
    rows = [line.split("\t") for line in pairs.read_text("utf-8").splitlines()[:20]]
    for name, column in zip(("source", "reference"), zip(*rows)):
        (folder / name).write_text("".join(f"{text}\n" for text in column), encoding="utf-8")
    return folder / "source", folder / "reference"


def test_scores_are_those_of_what_the_model_says_and_of_the_references(finished, sides, tmp_path):
    output, _ = finished
    source, reference = sides
    files = ["--json", tmp_path / "scores.json", "--translations", tmp_path / "said"]
    given = [output / "model.keras", "--source", source, "--reference", reference]
    result = run([*EVALUATE, *given, *files, "--beams", "2", "--worst", "2", "--tokenize", "char"])
    assert result.returncode == 0, result.stderr
    scores = json.loads((tmp_path / "scores.json").read_text())
    said = (tmp_path / "said").read_text("utf-8").splitlines()
    sources, references = (path.read_text("utf-8").splitlines() for path in sides)
    translator = keras.saving.load_model(output / "model.keras")
    assert said == translator.translate(sources, beams=2)
    bleu = evaluation.bleu(said, references, tokenize="char")
    assert (scores["bleu"], scores["bleu_signature"]) == bleu and "tok:char" in bleu.signature
    assert scores["chrf"] == evaluation.chrf(said, references).value
    log_p = sum(translator.score(sources, references, length_penalty=0.0))
    tokens = sum(len(text) + 1 for text in references)  # a character is a token here
    assert scores["perplexity"] == pytest.approx(np.exp(-log_p / tokens), rel=1e-4)
    each = evaluation.sentence_chrf(said, references)
    worst = [f"Sentence {n + 1}, chrF" for n in np.argsort(each, kind="stable")[:2]]
    assert [
        line[: line.index("F") + 1]
        for line in result.stdout.splitlines()
        if "chrF" in line and "Sentence" in line
    ] == worst


def test_a_file_to_score_that_is_not_there_is_named(inside, finished, sides):
    given = [finished[0] / "model.keras", "--source", sides[0], "--reference", "none.txt"]
    result = inside([*EVALUATE, *given])
    assert result.returncode == 1 and "none.txt: no such file" in result.stderr
    assert "Traceback" not in result.stderr
