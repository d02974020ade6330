"""Corpora of several languages: their directions, tags and shares."""

from collections import Counter

import pytest

from keras_transformer import data


def examples(name, number):
    return data.Examples([f"{name} {n}" for n in range(number)], [str(n) for n in range(number)])


@pytest.mark.parametrize(
    "path, direction",
    [
        ("en-de.tsv", "en-de"),
        ("a-b/train.zho-en.jsonl.gz", "zho-en"),
        ("wmt_en-de", "en-de"),
    ],
)
def test_the_direction_of_a_corpus_is_in_its_name(path, direction):
    assert data.direction_of(path) == direction


@pytest.mark.parametrize("path", ["en-de/train.tsv", "train.tsv", "ted-en-de.tsv", "en-german.tsv"])
def test_a_name_without_a_direction_is_refused(path):
    with pytest.raises(ValueError, match=f"{path}: expected .* such as en-de.tsv.*--directions"):
        data.direction_of(path)


def test_targets_are_named_once():
    assert data.targets_of(["en-de", "fr-de", "en-pt_BR"]) == ["de", "pt_BR"]


@pytest.mark.parametrize("temperature, numbers", [(1, (64, 16, 4)), (2, (64, 32, 16))])
def test_shares_are_the_root_of_the_sizes_and_no_pair_is_lost(temperature, numbers):
    corpora = [examples("a", 64), examples("b", 16), examples("c", 4)]
    joined = data.oversampled(corpora, temperature)
    counts = Counter(text[0] for text in joined.source)
    assert (counts["a"], counts["b"], counts["c"]) == numbers
    assert {text.split()[1] for text in joined.source if text[0] == "b"} == set(map(str, range(16)))
    assert [text.split()[1] for text in joined.source] == joined.target


def test_a_high_temperature_makes_corpora_equal_and_the_seed_decides_what_is_repeated():
    corpora = [examples("a", 10), examples("b", 4)]
    one, same, other = (data.oversampled(corpora, 1e9, seed) for seed in (1, 1, 5))
    assert one == same != other
    of_b = Counter(text for text in one.source if text[0] == "b")
    assert of_b.total() == 10 and sorted(of_b.values()) == [2, 2, 3, 3]


def test_what_one_direction_validates_no_direction_trains_on(caplog):
    def pairs(*rows):
        return data.Examples(*map(list, zip(*rows, strict=True)))

    train = {
        "en-de": pairs(("a", "A"), ("b", "B"), ("C ", "x")),
        "de-en": pairs(("A", "a"), ("D", "c")),
        "en-fr": pairs(("c", "y")),
    }
    valid = {"en-de": pairs(("c", "B")), "de-en": pairs(("E", "e"))}
    assert data.without_validation(train, valid) == {
        "en-de": pairs(("a", "A"), ("b", "B")),
        "de-en": pairs(("A", "a")),
        "en-fr": train["en-fr"],  # nothing would be left
    }
    assert "Dropped 3 training pairs" in caplog.text
    both = data.without_validation(train, valid, both_directions=True)
    assert both["en-de"] == pairs(("a", "A"))


def test_a_temperature_is_above_0():
    with pytest.raises(ValueError, match="temperature must be above 0"):
        data.oversampled([examples("a", 1)], 0)
