import json

import keras
import numpy as np
import pytest

from keras_transformer.data import mask_words, word_dropout
from keras_transformer.ids import PADDING, UNKNOWN
from keras_transformer.tokenizers.words import (
    FIRST,
    MASK,
    MASKED,
    WordVocabulary,
    split_words,
)

SENTENCES = [["The", "cat", "saw", "the", "Dog"], [], ["the", "dog", "barks"]]


@pytest.fixture
def vocabulary():
    return WordVocabulary.learn(SENTENCES, max_characters=4)


@pytest.mark.parametrize(
    "text, words",
    [
        ("It's 3.5 m.", ["It's", "3.5", "m", "."]),
        ("well-known, e.g. 1,000!", ["well-known", ",", "e.g", ".", "1,000", "!"]),
        ("d’été «naïf»", ["d’été", "«", "naïf", "»"]),
        ("«No»--he said...", ["«", "No", "»", "-", "-", "he", "said", ".", ".", "."]),
        (" \t\n", []),
        ("", []),
    ],
)
def test_words_and_marks_by_hand(text, words):
    assert split_words(text) == words


def test_words_are_known_in_lower_case_most_frequent_first(vocabulary):
    assert vocabulary.words == ["the", "dog", "barks", "cat", "saw"]
    assert vocabulary.num_words == FIRST + 5
    assert set(vocabulary.characters) == set("TheDogcatsawdogbarks")
    assert vocabulary.characters[0] == "a"  # cat, saw, barks; before e and s, as often
    assert WordVocabulary.learn(SENTENCES, min_count=2).words == ["the", "dog"]


def test_characters_keep_their_case_and_long_words_their_ends(vocabulary):
    (ids,), (spelled,) = vocabulary.encode([["The", "the", "barks", "bears", "Zoo", MASKED]])
    number = {one: n for n, one in enumerate(vocabulary.characters, start=FIRST)}
    assert ids.tolist() == [FIRST, FIRST, FIRST + 2, UNKNOWN, UNKNOWN, MASK]
    expected = [
        [number["T"], number["h"], number["e"], PADDING],
        [number["t"], number["h"], number["e"], PADDING],
        [number[one] for one in "baks"],
        [number[one] for one in "bers"],
        [UNKNOWN, number["o"], number["o"], PADDING],
        [MASK, PADDING, PADDING, PADDING],
    ]
    assert spelled.tolist() == expected
    assert ids.dtype == spelled.dtype == np.int32
    (_,), (odd,) = WordVocabulary([], "abcde", max_characters=3).encode([["abcde"]])
    assert odd.tolist() == [[FIRST, FIRST + 3, FIRST + 4]]


def test_no_sentence_and_no_word_have_no_ids(vocabulary):
    assert vocabulary.encode([]) == ([], [])
    (ids,), (spelled,) = vocabulary.encode([[]])
    assert ids.shape == (0,)
    assert spelled.shape == (0, 4)


def test_a_vocabulary_is_restored_from_its_config(vocabulary):
    serialized = json.loads(json.dumps(keras.saving.serialize_keras_object(vocabulary)))
    copy = keras.saving.deserialize_keras_object(serialized)
    assert type(copy) is WordVocabulary
    assert copy.get_config() == vocabulary.get_config()
    for mine, theirs in zip(vocabulary.encode(SENTENCES), copy.encode(SENTENCES), strict=True):
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "ask, message",
    [
        (lambda: WordVocabulary.learn([[]]), "at least one word to learn from"),
        (lambda: WordVocabulary.learn([["a"], "b c"]), "list of words; item 1 is 'b c'"),
        (lambda: WordVocabulary.learn([["a", 7]]), "list of words; item 0 is"),
        (lambda: WordVocabulary.learn([["a"], None]), "list of words; item 1 is None. Split it"),
        (lambda: WordVocabulary.learn([["a"]], min_count=0), "min_count must .* at least 1"),
        (lambda: WordVocabulary([], [], 1), "max_characters must .* of at least 2"),
        (lambda: word_dropout([np.ones(1, int)], alpha=-1), "alpha must be at least 0"),
        (lambda: mask_words([], [], rate=1.0), r"rate must be in \[0, 1\)"),
    ],
)
def test_arguments_out_of_range_are_errors(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()


# Word dropout and masked words


@pytest.fixture(scope="module")
def texts():
    """Words 100 to 1099, 1, 3 or 9 times, in 40 sentences and two empty ones."""
    number = np.arange(1000)
    ids = np.repeat(number + 100, np.array([1, 3, 9])[number % 3])
    ids = np.random.default_rng(0).permutation(ids).astype("int32")
    empty = np.zeros(0, "int32")
    return [empty, *np.array_split(ids, 40), empty]


def test_a_word_that_occurs_c_times_is_dropped_with_probability_alpha_over_alpha_plus_c(texts):
    dropped = word_dropout(texts, alpha=2.0, seed=1)
    assert [len(row) for row in dropped] == [len(row) for row in texts]
    before, after = np.concatenate(texts), np.concatenate(dropped)
    for count, kind in ((1, 0), (3, 1), (9, 2)):
        of_kind = (before - 100) % 3 == kind
        share, number = 2.0 / (2.0 + count), of_kind.sum()
        tolerance = 4 * np.sqrt(share * (1 - share) / number)
        assert (after[of_kind] == UNKNOWN).mean() == pytest.approx(share, abs=tolerance)
    kept = after != UNKNOWN
    np.testing.assert_array_equal(after[kept], before[kept])
    again, other = (np.concatenate(word_dropout(texts, 2.0, seed)) for seed in (1, 2))
    assert (again == after).all()
    assert (other != after).any()
    for row, same in zip(texts, word_dropout(texts, alpha=0.0), strict=True):
        np.testing.assert_array_equal(row, same)


def spelling(ids):
    """Four characters per word that are a function of its id; the last is 0."""
    return np.stack([ids // 100 + 3, ids % 100 + 3, ids % 7 + 3, 0 * ids], axis=1).astype("int32")


def test_masked_words_are_the_labels_and_nothing_else_changes(texts):
    texts = [np.where(row % 10 == 0, UNKNOWN, row) for row in texts]
    texts[3] = np.full_like(texts[3], UNKNOWN)  # a sentence of unknown words
    characters = [spelling(row) for row in texts]
    words, spelled, labels = mask_words(texts, characters, rate=0.4, seed=1)
    for each in (words, spelled, labels):
        assert [len(row) for row in each] == [len(row) for row in texts]
    before, characters = np.concatenate(texts), np.concatenate(characters)
    after, spelled = np.concatenate(words), np.concatenate(spelled)
    labels = np.concatenate(labels)
    chosen = labels != PADDING
    known = before != UNKNOWN
    assert not chosen[~known].any()
    assert chosen[known].mean() == pytest.approx(0.4, abs=0.04)
    np.testing.assert_array_equal(labels[chosen], before[chosen])
    np.testing.assert_array_equal(after[~chosen], before[~chosen])
    np.testing.assert_array_equal(spelled[~chosen], characters[~chosen])

    masked = chosen & (after == MASK)
    replaced = chosen & ~masked & (after != before)
    assert masked[chosen].mean() == pytest.approx(0.8, abs=0.05)
    assert replaced[chosen].mean() == pytest.approx(0.1, abs=0.04)
    assert (chosen & ~masked & ~replaced)[chosen].mean() == pytest.approx(0.1, abs=0.04)
    hidden = np.broadcast_to([MASK, PADDING, PADDING, PADDING], spelled[masked].shape)
    np.testing.assert_array_equal(spelled[masked], hidden)
    np.testing.assert_array_equal(spelled[~masked], spelling(after[~masked]))  # its own characters
    assert set(after[replaced]) <= set(before)
    assert len(set(after[replaced])) > 50

    again = np.concatenate(mask_words(texts, [spelling(t) for t in texts], 0.4, seed=1)[0])
    other = np.concatenate(mask_words(texts, [spelling(t) for t in texts], 0.4, seed=2)[0])
    assert (again == after).all()
    assert (other != after).any()


def test_masking_does_not_change_its_arguments(texts):
    words, characters = [row.copy() for row in texts], [spelling(row) for row in texts]
    kept = [row.copy() for row in characters]
    *_, labels = mask_words(words, characters, rate=0.0)
    mask_words(words, characters, rate=0.9)
    assert not np.concatenate(labels).any()
    for mine, given in ((words, texts), (characters, kept)):
        np.testing.assert_array_equal(np.concatenate(mine), np.concatenate(given))
