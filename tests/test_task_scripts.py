"""The scripts of tags, labels and language models, on a few examples, within this process."""

import json
import pathlib
import sys

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import corpora

SCRIPTS = pathlib.Path(__file__).parents[1] / "scripts"
SIZES = ["--num-layers", "1", "--d-model", "16", "--num-heads", "2", "--d-ff", "16"]
STEPS = ["--batch-size", "16", "--schedule", "paper", "--warmup-steps", "5"]


def script(name):
    return [sys.executable, SCRIPTS / f"{name}.py"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A treebank, a table and a text of generated English."""
    folder = tmp_path_factory.mktemp("data")
    train, valid, _ = corpora.tagged_sentences(48, 8, 0)
    for name, sentences in (("train", train), ("valid", valid)):
        rows = [
            "".join(f"{n}\t{w}\t_\t{t}" + "\t_" * 6 + "\n" for n, (w, t) in enumerate(pairs, 1))
            for pairs in (zip(*sentence) for sentence in zip(*sentences))
        ]
        (folder / f"{name}.conllu").write_text("\n".join(rows) + "\n", "utf-8")
    reviews = corpora.reviews(48, 0, 0).train
    rows = [f"{label}\t{text}\n" for text, label in zip(*reviews)]
    (folder / "reviews.tsv").write_text("label\tsentence\n" + "".join(rows), "utf-8")
    (folder / "text.txt").write_text(corpora.grammar_text(40), "utf-8")
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


def test_a_tagger_begins_from_pretrained_words_and_a_resumed_one_is_the_one_that_would_have_been(
    inside, data, tmp_path
):
    words, whole, halves = (tmp_path / name for name in ("words", "whole", "halves"))
    trained(inside, "pretrain_words", words, "--train", data / "train.conllu", epochs="1")
    given = ["--train", data / "train.conllu", "--valid", data / "valid.conllu"]
    given += ["--start-from", words / "model.keras"]
    said = trained(inside, "train_tagger", whole, *given)
    assert "Accuracy on the validation set: " in said
    trained(inside, "train_tagger", halves, *given, epochs="1")
    resumed(inside, "train_tagger", halves)
    assert_equal_weights(whole, halves)

    scores = json.loads((whole / "scores.json").read_text())
    assert 0 <= scores["accuracy"] <= 1 and scores["num_unseen"] > 0
    assert (whole / "confusion.png").exists() and (whole / "learning_curve.png").exists()
    tagger = keras.saving.load_model(whole / "model.keras")
    filler = keras.saving.load_model(words / "model.keras")
    assert tagger.vocabulary.words == filler.vocabulary.words
    assert tagger.model.get_config()["word_stddev"] == 0.1  # the recipe's

    # Line in, line out, for both.
    tags = [label for _, label in tagger.tag(["I saw a saw"])[0]]
    pairs = zip("I saw a saw".split(), tags)
    answered = inside([*script("predict"), whole / "model.keras"], stdin=b"I saw a saw\n")
    assert answered.stdout == " ".join(f"{word}/{tag}" for word, tag in pairs) + "\n"
    answered = inside([*script("predict"), words / "model.keras", "The [MASK] runs."])
    (best, *_) = filler.fill(["The [MASK] runs."])[0]
    assert answered.stdout.startswith(f"{best.label} {best.probability:.2f}, ")


def test_a_classifier_learns_from_named_columns_and_answers_label_tab_probability(
    inside, data, tmp_path
):
    columns = ["--train", data / "reviews.tsv", "--columns", "sentence", "label"]
    said = trained(inside, "train_classifier", tmp_path, *columns, epochs="1")
    assert "expected calibration error" in said and (tmp_path / "calibration.png").exists()
    classifier = keras.saving.load_model(tmp_path / "model.keras")
    assert classifier.labels == ["negative", "positive"]
    (expected,) = classifier.classify(["A good film."])
    answered = inside([*script("predict"), tmp_path / "model.keras", "A good film."])
    assert answered.stdout == f"{expected.label}\t{expected.probability:.4f}\n"


def test_a_language_model_of_windows_is_scored_whole_and_goes_on(inside, data, tmp_path):
    given = ["--train", data / "text.txt", "--window", "16", "--vocabulary", "byte"]
    trained(inside, "train_language_model", tmp_path, *given, epochs="1")
    generator = keras.saving.load_model(tmp_path / "model.keras")
    text = (data / "text.txt").read_text("utf-8")
    watched = text[len(text) * 9 // 10 :]
    (score,) = generator.score([watched])
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert scores["overlapping"]["nats_per_token"] == pytest.approx(score.nats / len(watched))
    assert scores["overlapping"]["tokens"] == scores["side_by_side"]["tokens"] == len(watched)
    # Nothing ever ends in a text that was cut into windows, and newlines stay on the line.
    options = ["--max-tokens", "30", "--temperature", "0"]
    answered = inside([*script("predict"), tmp_path / "model.keras", "the ", *options])
    (expected,) = generator.generate(["the "], 30, 0)
    assert answered.stdout == expected.replace("\n", "\\n") + "\n"
    assert len(kt.encode(generator.tokenizer, [expected])[0]) >= 34


def test_lines_are_texts_that_end(inside, data, tmp_path):
    options = ["--train", data / "text.txt", "--lines", "--vocabulary", "char"]
    trained(inside, "train_language_model", tmp_path, *options, epochs="1")
    generator = keras.saving.load_model(tmp_path / "model.keras")
    assert generator.ends and generator.window is None
    scores = json.loads((tmp_path / "scores.json").read_text())
    lines = (data / "text.txt").read_text("utf-8").splitlines()[::50]  # 2 % of them, at least one
    assert scores["side_by_side"]["tokens"] == sum(len(line) + 1 for line in lines)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("train_tagger", ["--valid", "x.conllu"], "give --train or --dataset"),
        ("train_tagger", ["--train", "nothing.conllu"], "nothing.conllu: no such file"),
        ("train_classifier", ["--train", "nothing.tsv"], "nothing.tsv: no such file"),
        ("train_language_model", ["--test", "x.txt"], "give --train or --dataset"),
        ("pretrain_words", ["--valid", "x.txt"], "give --train"),
        ("train_tagger", ["--start-from", "words.keras"], "train one with scripts/pretrain_words"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_and_leaves_no_folder(
    inside, tmp_path, name, options, sentence
):
    result = inside([*script(name), *options, "--output", tmp_path / "run"])
    assert result.returncode == 1 and sentence in result.stderr
    assert "Traceback" not in result.stderr and not (tmp_path / "run").exists()


def test_another_task_than_asked_for_is_said_by_name(inside, tmp_path):
    vocabulary = kt.WordVocabulary.learn([["a"]])
    model = kt.TaggingModel(4, 4, 2, num_layers=1, d_model=4, num_heads=1, d_ff=4)
    kt.Tagger(model, vocabulary, ["X"]).save(tmp_path / "tagger.keras")
    result = inside([*script("translate"), tmp_path / "tagger.keras", "text"])
    assert "holds a Tagger, not a Translator; expected a file from train_trans" in result.stderr
