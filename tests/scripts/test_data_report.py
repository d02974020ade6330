"""A report on data with their scores: unknown text, leaks between splits, new labels."""

import importlib
import pathlib
import sys

import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import data

pytestmark = pytest.mark.once

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def report():
    sys.path.insert(0, str(SCRIPTS))
    try:
        yield importlib.import_module("data_report").DataReport
    finally:
        sys.path.remove(str(SCRIPTS))


def labeled(*rows):
    return data.LabeledTexts(*map(list, zip(*rows, strict=True)))


def none_unknown(examples):
    return {"words": 0.0}


@pytest.mark.parametrize("seed", range(20))
def test_the_numbers_are_those_counted_by_hand(report, seed, capsys):
    generator = np.random.default_rng(seed)

    def split(texts, labels):
        number = int(generator.integers(5, 40))
        return labeled(
            ("text 0", "a"),
            *(
                (f"text {generator.choice(texts)}", str(generator.choice(labels)))
                for _ in range(number)
            ),
        )

    splits = data.Splits(
        split(50, ["a", "b"]), split(90, ["a", "b", "c"]), split(90, ["a", "d", "e"])
    )
    vocabulary = kt.WordVocabulary.learn([text.split() for text in splits.train.texts])

    def unknown(examples):
        return {"words": vocabulary.unknown_share([text.split() for text in examples.texts])}

    made = report(splits, unknown, ["a", "b"])
    printed = capsys.readouterr().out
    for name, examples in (("validation", splits.valid), ("test", splits.test)):
        words = [word for text in examples.texts for word in text.split()]
        known = {word for text in splits.train.texts for word in text.split()}
        share = sum(word not in known for word in words) / len(words)
        shared = sum(text in splits.train.texts for text in examples.texts)
        new = {n: examples.labels.count(n) for n in examples.labels if n not in ("a", "b")}
        assert made.scores["unknown"][name] == {"words": pytest.approx(share)}
        assert made.scores["also_in_training"][name] == shared > 0
        assert made.scores["new_labels"][name] == new
        assert f"{share:.2%} of the {name} data" in printed
        note = made.note(name)
        assert f"{shared} of its texts are also in the training data" in note
        assert all(f"{label} ({count})" in note for label, count in new.items())
        assert note in printed


def test_a_score_of_clean_data_has_no_remark(report):
    train, valid = labeled(("x", "a"), ("y", "b")), labeled(("z", "a"))
    made = report(data.Splits(train, valid, None), none_unknown, ["a", "b"])
    assert made.note("validation") == ""
    assert made.scores["also_in_training"] == {"validation": 0}


def test_a_prepared_corpus_is_not_searched_for_texts(report):
    corpus = object.__new__(data.Corpus)
    made = report(data.Splits([corpus], labeled(("z", "a")), None), none_unknown)
    assert made.scores["also_in_training"] is None and made.note("validation") == ""


def test_labels_of_which_none_is_trained_on_are_refused(report):
    splits = data.Splits(labeled(("x", "a")), labeled(("y", "b"), ("z", "c")), None)
    with pytest.raises(
        ValueError, match="validation data must have labels that the .*labels='b, c'"
    ):
        report(splits, none_unknown, ["a"])
    texts = labeled(*((str(n), f"a whole text {n}") for n in range(300)))
    with pytest.raises(ValueError, match="received labels='300 of them, a whole text 0, a whole"):
        report(data.Splits(labeled(("x", "a")), texts, None), none_unknown, ["a"])


def test_labels_that_differ_in_case_or_blanks_alone_are_named(report, capsys):
    train = labeled(("x", "Good"), ("y", "good"), ("z", "bad"), ("w", "very  good"))
    report(data.Splits(train, train, None), none_unknown, sorted(set(train.labels)))
    printed = capsys.readouterr().out
    assert "differ in case, blanks or Unicode form alone: 'Good', 'good'.\n" in printed
    assert "swapped" not in printed
    report(data.Splits(labeled(("x", "Good")), train, None), none_unknown, ["Good"])
    assert "1 training texts, but 4 for validation: are they swapped?" in capsys.readouterr().out
