"""The scripts of tags, labels and language models, on a few examples, within this process."""

import importlib
import json
import pathlib
import sys

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import cli as console

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"
SIZES = ["--num-layers", "1", "--d-model", "16", "--num-heads", "2", "--d-ff", "16"]
STEPS = ["--batch-size", "16", "--schedule", "paper", "--warmup-steps", "5"]


def script(name):
    return [sys.executable, SCRIPTS / f"{name}.py"]


@pytest.fixture
def predict(run_main):
    """Runs `keras-transformer predict` in this process."""

    def call(*words, stdin=b""):
        return run_main(lambda: console.main(["predict", *map(str, words)]), words, stdin)

    return call


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A treebank, a table and a text of generated English."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        english = importlib.import_module("generated_english")
    finally:
        sys.path.remove(str(SCRIPTS))
    folder = tmp_path_factory.mktemp("data")
    train, valid, _ = english.tagged_sentences(48, 8, 0)
    for name, sentences in (("train", train), ("valid", valid)):
        blocks = []
        for words, tags in zip(*sentences, strict=True):
            rows = enumerate(zip(words, tags, strict=True), start=1)
            blocks.append("".join(f"{n}\t{w}\t_\t{t}" + "\t_" * 6 + "\n" for n, (w, t) in rows))
        (folder / f"{name}.conllu").write_text("\n".join(blocks) + "\n", "utf-8")
    reviews = english.reviews(48, 0, 0).train
    table = [f"{label}\t{text}\n" for text, label in zip(*reviews, strict=True)]
    (folder / "reviews.tsv").write_text("label\tsentence\n" + "".join(table), "utf-8")
    (folder / "text.txt").write_text(english.grammar_text(40), "utf-8")
    return folder


def trained(inside, name, output, *options, epochs="2"):
    options = [*options, "--output", output, *SIZES, *STEPS, "--epochs", epochs]
    result = inside([*script(name), *options, "--deterministic"])
    assert result.returncode == 0, result.stderr
    return result.stdout


def resumed(inside, name, output, epochs="2"):
    result = inside([*script(name), "--output", output, "--resume", "--epochs", epochs])
    assert result.returncode == 0, result.stderr


def weights(folder):
    model = keras.saving.load_model(folder / "model.keras", compile=False)
    return [keras.ops.convert_to_numpy(weight) for weight in model.weights]


def assert_equal_weights(one, other):
    for a, b in zip(weights(one), weights(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_a_tagger_starts_from_pretrained_words_and_resumes_as_if_never_interrupted(
    inside, predict, files, tmp_path
):
    words, whole, halves = (tmp_path / name for name in ("words", "whole", "halves"))
    trained(inside, "pretrain_words", words, "--train", files / "train.conllu", epochs="1")
    given = ["--train", files / "train.conllu", "--valid", files / "valid.conllu"]
    given += ["--init-from", words / "model.keras"]
    printed = trained(inside, "train_tagger", whole, *given)
    assert "Accuracy on the validation data: " in printed
    trained(inside, "train_tagger", halves, *given, epochs="1")
    resumed(inside, "train_tagger", halves)
    assert_equal_weights(whole, halves)

    scores = json.loads((whole / "scores.json").read_text("utf-8"))
    assert 0 <= scores["accuracy"] <= 1 and scores["num_unseen"] > 0
    assert set(scores["tags"]["NOUN"]) == {"precision", "recall", "f1", "count"}
    counts = {tag: sum(row.values()) for tag, row in scores["confusion"].items()}
    assert counts == {t: each["count"] for t, each in scores["tags"].items() if each["count"]}
    assert (whole / "confusion.png").exists() and (whole / "learning_curve.png").exists()
    tagger = keras.saving.load_model(whole / "model.keras")
    filler = keras.saving.load_model(words / "model.keras")
    assert tagger.vocabulary.words == filler.vocabulary.words
    assert tagger.model.get_config()["word_stddev"] == 0.1  # the recipe's
    assert tagger.model.config.dropout == 0.4  # the recipe's, not that of the pretrained model

    # Line in, line out, for both.
    tags = [label for _, label in tagger.tag(["I saw a saw"])[0]]
    pairs = zip("I saw a saw".split(), tags, strict=True)
    answered = predict(whole / "model.keras", stdin=b"I saw a saw\n")
    assert answered.stdout == " ".join(f"{word}/{tag}" for word, tag in pairs) + "\n"
    answered = predict(words / "model.keras", "The [MASK] runs.")
    (best, *_) = filler.fill(["The [MASK] runs."])[0]
    assert answered.stdout.startswith(f"{best.label} {best.probability:.2f}, ")


@pytest.mark.slow
@pytest.mark.parametrize("columns", [["sentence", "label"], ["2", "1"]], ids=["names", "numbers"])
def test_a_classifier_learns_from_columns_and_answers_label_tab_probability(
    inside, predict, files, tmp_path, columns
):
    table = tmp_path / "reviews.tsv"
    head, *rows = (files / "reviews.tsv").read_text("utf-8").splitlines(keepends=True)
    table.write_text("".join(rows if columns == ["2", "1"] else [head, *rows]), "utf-8")
    options = ["--train", table, "--columns", *columns]
    printed = trained(inside, "train_classifier", tmp_path / "run", *options, epochs="1")
    assert "expected calibration error" in printed
    scores = json.loads((tmp_path / "run" / "scores.json").read_text("utf-8"))
    f1 = [score["f1"] for score in scores["labels"].values()]
    assert {*scores["labels"]} <= {"negative", "positive"}
    assert scores["macro_f1"] == pytest.approx(sum(f1) / len(f1))
    assert all(f"F1 {each:7.2%}" in printed for each in f1)
    counts = {label: each["count"] for label, each in scores["labels"].items() if each["count"]}
    assert {label: sum(row.values()) for label, row in scores["confusion"].items()} == counts
    assert sum(counts.values()) == scores["texts"]
    for name in ("calibration.png", "confusion.png"):
        assert (tmp_path / "run" / name).exists()
    classifier = keras.saving.load_model(tmp_path / "run" / "model.keras")
    assert classifier.labels == ["negative", "positive"]
    (expected,) = classifier.classify(["A good film."])
    answered = predict(tmp_path / "run" / "model.keras", "A good film.")
    assert answered.stdout == f"{expected.label}\t{expected.probability:.4f}\n"


@pytest.mark.slow
def test_a_language_model_of_chunks_is_scored_on_all_of_a_text_and_continues_prompts(
    inside, predict, files, tmp_path
):
    given = ["--train", files / "text.txt", "--window", "16", "--vocabulary", "byte"]
    trained(inside, "train_language_model", tmp_path, *given, epochs="1")
    generator = keras.saving.load_model(tmp_path / "model.keras")
    text = (files / "text.txt").read_text("utf-8")
    valid = text[len(text) * 9 // 10 :]
    (score,) = generator.score([valid])
    scores = json.loads((tmp_path / "scores.json").read_text("utf-8"))
    assert scores["overlapping"]["nats_per_token"] == pytest.approx(score.nats / len(valid))
    assert scores["overlapping"]["tokens"] == scores["side_by_side"]["tokens"] == len(valid)
    # A text that was cut into chunks never ends, and newlines stay on the line.
    options = ["--max-tokens", "30", "--temperature", "0"]
    answered = predict(tmp_path / "model.keras", "the ", *options)
    (expected,) = generator.generate(["the "], 30, 0)
    assert answered.stdout == expected.replace("\n", "\\n") + "\n"
    assert len(generator.tokenizer.encode([expected])[0]) >= 34


@pytest.mark.slow
def test_a_language_model_learns_one_normal_form_and_keeps_it(inside, tmp_path):
    text = "un cafe\u0301 de\u0301ja\u0300 la\u0300\n" * 60
    (tmp_path / "text.txt").write_text(text, "utf-8")
    options = ["--train", tmp_path / "text.txt", "--lines", "--vocabulary", "char"]
    for form in ("NFC", "none"):
        given = [*options, "--normalization", form]
        trained(inside, "train_language_model", tmp_path / form, *given, epochs="1")
    normal, raw = (kt.load(tmp_path / form / "model.keras") for form in ("NFC", "none"))
    assert (normal.normalization, raw.normalization) == ("NFC", None)
    typed, composed = ["cafe\u0301"], ["caf\u00e9"]
    assert normal.generate(typed, 5, 0) == normal.generate(composed, 5, 0)
    assert normal.tokenizer.unknown_share(composed) == 0 < raw.tokenizer.unknown_share(composed)
    tuned = ["--init-from", tmp_path / "NFC" / "model.keras", "--train", tmp_path / "text.txt"]
    trained(inside, "train_language_model", tmp_path / "tuned", *tuned, epochs="1")
    assert kt.load(tmp_path / "tuned" / "model.keras").normalization == "NFC"


@pytest.mark.slow
def test_lines_are_texts_that_end(inside, files, tmp_path):
    options = ["--train", files / "text.txt", "--lines", "--vocabulary", "char"]
    trained(inside, "train_language_model", tmp_path, *options, epochs="1")
    generator = keras.saving.load_model(tmp_path / "model.keras")
    assert generator.append_end and generator.window is None
    scores = json.loads((tmp_path / "scores.json").read_text("utf-8"))
    lines = (files / "text.txt").read_text("utf-8").splitlines()[::50]  # 2 % of them, at least one
    assert scores["side_by_side"]["tokens"] == sum(len(line) + 1 for line in lines)


@pytest.mark.parametrize(
    "name, options, sentence",
    [
        ("train_tagger", ["--valid", "x.conllu"], "give --train or --dataset"),
        ("train_tagger", ["--train", "nothing.conllu"], "nothing.conllu: no such file"),
        ("train_classifier", ["--train", "nothing.tsv"], "nothing.tsv: no such file"),
        ("train_language_model", ["--test", "x.txt"], "give --train or --dataset"),
        ("pretrain_words", ["--valid", "x.txt"], "give --train"),
        ("train_tagger", ["--init-from", "words.keras"], "There is no model at words.keras"),
        ("train_tagger", ["--epochs", "0"], "epochs must be an int"),
        (
            "train_tagger",
            ["--callback", "nowhere:Class"],
            "--callback must be package.module:Class",
        ),
        ("train_tagger", ["--callback", "keras:Nothing"], "no attribute 'Nothing'"),
        ("train_tagger", ["--callback", "keras"], "received 'keras'"),
    ],
)
def test_what_cannot_be_trained_is_one_sentence_and_no_folder(
    inside, tmp_path, name, options, sentence
):
    result = inside([*script(name), *options, "--output", tmp_path / "run"])
    assert result.returncode == 1 and sentence in result.stderr
    assert "Traceback" not in result.stderr and not (tmp_path / "run").exists()


def test_one_line_is_not_cut_into_training_and_validation_data(inside, tmp_path):
    (tmp_path / "line.txt").write_text("one line alone " * 30, "utf-8")
    options = ["--lines", "--train", tmp_path / "line.txt", "--output", tmp_path / "run"]
    result = inside([*script("train_language_model"), *options])
    assert result.returncode == 1 and "at least two training texts" in result.stderr


@pytest.mark.parametrize("name, row", [("tagger", "a{}\tX\n\n"), ("classifier", "text {}\tX\n")])
def test_one_label_alone_is_nothing_to_learn(inside, tmp_path, name, row):
    rows = [row.format(number) for number in range(60)]
    (tmp_path / "data.tsv").write_text("".join(rows), "utf-8")
    options = ["--train", tmp_path / "data.tsv", "--output", tmp_path / "run"]
    result = inside([*script(f"train_{name}"), *options])
    assert result.returncode == 1 and not (tmp_path / "run" / "model.keras").exists()
    assert "must have two labels or more; choose their column; received labels='X'" in result.stderr


def test_columns_count_from_1(inside, files, tmp_path):
    zero = ["--train", files / "reviews.tsv", "--columns", "0", "1"]
    result = inside([*script("train_classifier"), *zero, "--output", tmp_path / "run"])
    assert result.returncode == 1 and "must be an integer of at least 1" in result.stderr


@pytest.mark.parametrize(
    "name", ["train_tagger", "train_classifier", "train_language_model", "pretrain_words"]
)
def test_help_has_the_docstring_with_the_lines_of_its_examples(inside, name):
    result = inside([*script(name), "--help"])
    docstring = importlib.import_module(name).__doc__
    assert result.returncode == 0 and f"\n\n{docstring.strip()}\n\n" in result.stdout
    assert "KERAS_BACKEND=tensorflow, jax or torch selects" in " ".join(docstring.split())
