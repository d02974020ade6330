"""Generated tags, labels and text: their properties, and the scores of simple baselines."""

import collections
import itertools
import math
import pathlib
import re
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts"))

import generated_english
from generated_english import (
    REVIEWS,
    TAGGED,
    TEXT,
    WORD_CLASSES,
    grammar_entropy,
    grammar_nats,
    grammar_text,
    reviews,
    tagged_sentences,
)

TAGS = "ADJ ADP ADV AUX CCONJ DET NOUN NUM PART PRON PROPN PUNCT SCONJ VERB".split()


@pytest.fixture(scope="module")
def sentences():
    return tagged_sentences(10_000, 0, 1_000)


def readings(grammar, fits, symbol, words, start=0, seen=None):
    """A dict from each end to the set of derivations from `start` to it: a chart parser."""
    seen = {} if seen is None else seen
    if (symbol, start) in seen:
        return seen[symbol, start]
    ends = collections.defaultdict(set)
    if symbol not in grammar:
        if start < len(words) and fits(symbol, words[start]):
            ends[start + 1].add((symbol,))
    else:
        for alternative in set(grammar[symbol]):
            reached = {start: {()}}
            for part in alternative.split():
                following = collections.defaultdict(set)
                for middle, before in reached.items():
                    found = readings(grammar, fits, part, words, middle, seen)
                    for end, after in found.items():
                        following[end] |= {a + b for a, b in itertools.product(before, after)}
                reached = following
            for end, derivations in reached.items():
                ends[end] |= derivations
    seen[symbol, start] = ends
    return ends


# Tagged sentences

KNOWN = {word.lower() for _, words, _ in WORD_CLASSES.values() for word in words}


STEM = "[^aeiou]+[aeiou](ck|ft|lk|lp|mp|nd|ng|nk|nt|rk|rt|st)"


def can_be(name, word):
    """Whether a word can be of a class, judged by its form."""
    _, words, suffix = WORD_CLASSES[name]
    if word.lower() in KNOWN:
        return word in words or word[0].lower() + word[1:] in words
    if word[0].isupper():
        return name == "Name"
    return suffix is not None and re.fullmatch(STEM + suffix, word)


def test_no_sentence_can_be_tagged_in_two_ways(sentences):
    hard = [n for n, words in enumerate(sentences.train.words) if len(words) > 8][:500]
    for n in [*range(500), *hard]:
        words, tags = sentences.train.words[n], sentences.train.tags[n]
        derivations = readings(TAGGED, can_be, "Sentence", words)[len(words)]
        taggings = {tuple(WORD_CLASSES[name][0] for name in found) for found in derivations}
        assert taggings == {tuple(tags)}, " ".join(words)


@pytest.mark.parametrize(
    "sentence, tags",
    [
        ("I saw a saw .", "PRON VERB DET NOUN PUNCT"),
        ("They can can the fish .", "PRON AUX VERB DET NOUN PUNCT"),
        ("They can the fish .", "PRON VERB DET NOUN PUNCT"),
        ("Her duck ducked under the duck pond .", "PRON NOUN VERB ADP DET NOUN NOUN PUNCT"),
        ("She wants to walk to that river .", "PRON VERB PART VERB ADP DET NOUN PUNCT"),
        ("She knows that that duck saw that .", "PRON VERB SCONJ DET NOUN VERB PRON PUNCT"),
        ("We walk before the ducks .", "PRON VERB ADP DET NOUN PUNCT"),
        ("We walk before the ducks like you .", "PRON VERB SCONJ DET NOUN VERB PRON PUNCT"),
        ("The fast blomp blomped fast .", "DET ADJ NOUN VERB ADV PUNCT"),
    ],
)
def test_the_grammar_tags_what_can_be_tagged_by_hand(sentence, tags):
    words = sentence.split()
    derivations = readings(TAGGED, can_be, "Sentence", words)[len(words)]
    taggings = {" ".join(WORD_CLASSES[name][0] for name in found) for found in derivations}
    assert taggings == {tags}


def test_the_commonest_tag_of_each_word_is_not_enough(sentences):
    counts = collections.defaultdict(collections.Counter)
    for words, tags in zip(*sentences.train, strict=True):
        for word, tag in zip(words, tags, strict=True):
            counts[word][tag] += 1
    pairs = [
        (counts[word].most_common(1)[0][0] if word in counts else "PROPN", tag)
        for words, tags in zip(*sentences.test, strict=True)
        for word, tag in zip(words, tags, strict=True)
    ]
    assert 0.75 < np.mean([given == tag for given, tag in pairs]) < 0.9


def test_words_that_were_never_seen_occur_in_every_open_class(sentences):
    known = {word for words in sentences.train.words for word in words}
    unseen = collections.Counter(
        tag
        for words, tags in zip(*sentences.test, strict=True)
        for word, tag in zip(words, tags, strict=True)
        if word not in known
    )
    assert set(unseen) == {"PROPN", "NOUN", "VERB", "ADJ", "ADV"}
    assert 0.02 < unseen.total() / sum(map(len, sentences.test.words)) < 0.15


def test_every_tag_occurs_and_every_word_has_one(sentences):
    for split in sentences:
        assert [len(words) for words in split.words] == [len(tags) for tags in split.tags]
    counts = collections.Counter(itertools.chain(*sentences.train.tags))
    assert sorted(counts) == TAGS
    assert min(counts.values()) > 100


# Reviews


def bag(text):
    return re.findall("[a-z]+", text.lower())


def test_words_without_their_order_do_not_tell_the_label():
    """Naive Bayes: log p(label) + sum of log p(word | label), counts plus one."""
    splits = reviews(10_000, 0, 1_000)
    vocabulary = sorted({word for text in splits.train.texts for word in bag(text)})
    index = {word: n for n, word in enumerate(vocabulary)}
    counts = np.ones((2, len(vocabulary)))
    for text, label in zip(*splits.train, strict=True):
        np.add.at(counts[int(label == "positive")], [index[word] for word in bag(text)], 1)
    scores = np.log(counts / counts.sum(axis=1, keepdims=True))
    hits = [
        scores[:, [index[word] for word in bag(text)]].sum(axis=1).argmax() == (label == "positive")
        for text, label in zip(*splits.test, strict=True)
    ]
    assert 0.5 < np.mean(hits) < 0.7


def test_no_review_has_two_labels_and_both_are_as_frequent():
    train = reviews(2_000, 0, 0).train
    for text, label in list(zip(*train, strict=True))[:500]:
        words = re.sub("([.,])", r" \1", text[0].lower() + text[1:]).split()
        words = ["I" if word == "i" else word for word in words]
        other = {"positive": "negative", "negative": "positive"}[label]
        found = [
            readings(REVIEWS, str.__eq__, symbol, words)[len(words)] for symbol in (label, other)
        ]
        assert [bool(derivations) for derivations in found] == [True, False], text
    assert abs(train.labels.count("positive") - 1_000) < 4 * math.sqrt(2_000 / 4)


@pytest.mark.parametrize(
    "text, label",
    [
        ("it is not a good film .", "negative"),
        ("we saw it in town last week , and the plot is not dull .", "positive"),
        ("the plot is never dull .", "positive"),
        ("the acting is dull , but the story is wonderful .", "positive"),
        ("the acting is dull , although the story is wonderful .", "negative"),
        ("although it is a boring film , I did not dislike the cast of this film .", "positive"),
        ("the music is anything but good , but the pace is not bad .", "positive"),
    ],
)
def test_the_label_is_that_of_the_clause_that_decides(text, label):
    words = text.split()
    labels = [
        symbol
        for symbol in ("positive", "negative")
        if readings(REVIEWS, str.__eq__, symbol, words)[len(words)]
    ]
    assert labels == [label]


# Both


@pytest.mark.parametrize("make", [tagged_sentences, reviews])
def test_the_seed_decides_and_no_text_occurs_twice(make):
    splits = make(300, 200, 100, seed=3)
    assert splits == make(300, 200, 100, seed=3) != make(300, 200, 100, seed=4)
    assert [len(split[0]) for split in splits] == [300, 200, 100]
    texts = [str(text) for split in splits for text in split[0]]
    assert len(set(texts)) == 600


@pytest.mark.parametrize("make", [tagged_sentences, reviews])
def test_a_negative_number_of_examples_is_an_error(make):
    with pytest.raises(ValueError, match="num_valid must be an integer of at least 0; .*=-1"):
        make(1, -1, 0)


# Plain text


def test_the_probability_of_a_sentence_is_the_product_of_its_choices():
    # One Does | Each Adj Noun | the (2 of 4) big (1 of 4) hen (1 of 6) | Sees Object | sees | it
    line = "the big hen sees it\n"
    probability = 1 / 4 * 1 / 3 * (2 / 4 * 1 / 4 * 1 / 6) * 1 / 3 * (1 / 3 * 1 / 5)
    assert grammar_nats(line) == pytest.approx(-math.log(probability) / len(line))
    assert grammar_nats(line * 3) == pytest.approx(grammar_nats(line))


def test_every_sentence_is_short_and_derived_in_one_way():
    lines = set(grammar_text(2_000).splitlines())
    for line in lines:
        words = line.split()
        assert len(readings(TEXT, str.__eq__, "Sentence", words)[len(words)]) == 1, line
        assert len(line) < 40


def test_the_entropy_is_the_mean_over_all_sentences_of_a_small_grammar(monkeypatch):
    # Five sentences: a b, a ccc, a ccc, b d, b e.  H = (2 log 4 + log 2 ... ) by enumeration.
    small = {"Sentence": ["a X", "b Y"], "X": ["b", "ccc", "ccc"], "Y": ["d", "e"]}
    probabilities = {"a b": 1 / 6, "a ccc": 1 / 3, "b d": 1 / 4, "b e": 1 / 4}
    nats = -sum(p * math.log(p) for p in probabilities.values())
    characters = sum(p * (len(line) + 1) for line, p in probabilities.items())
    monkeypatch.setattr(generated_english, "TEXT", small)
    caches = generated_english._expected, generated_english._line_probability
    try:
        for cache in caches:
            cache.cache_clear()
        assert grammar_entropy() == pytest.approx(nats / characters)
        for line, p in probabilities.items():
            assert grammar_nats(f"{line}\n") == pytest.approx(-math.log(p) / (len(line) + 1))
    finally:
        for cache in caches:
            cache.cache_clear()


@pytest.mark.slow
def test_long_texts_approach_the_entropy():
    text = grammar_text(10_000, seed=5)
    per_line = [grammar_nats(line) * len(line) for line in text.splitlines(keepends=True)]
    spread = np.std(per_line) / math.sqrt(len(per_line)) * len(per_line) / len(text)
    assert abs(grammar_nats(text) - grammar_entropy()) < 4 * spread < 0.02 * grammar_entropy()


def test_the_verb_agrees_across_what_stands_between():
    grammar_nats("the dogs by the lake sing\nthe dog by the lake sings\n")
    for wrong in ("the dogs by the lake sings\n", "the dog by the lake sing\n"):
        with pytest.raises(ValueError, match="line 1: expected a sentence of the grammar"):
            grammar_nats(wrong)


@pytest.mark.parametrize(
    "text, number",
    [("", 1), ("\n", 1), ("the dog ran", 1), ("the dog ran\nthe dog\n", 2), ("a dog  ran\n", 1)],
)
def test_text_that_the_grammar_does_not_produce_is_named_by_its_line(text, number):
    with pytest.raises(ValueError, match=f"line {number}: .*Pass whole lines of grammar_text"):
        grammar_nats(text)


def test_the_seed_decides_the_text():
    assert grammar_text(50, seed=1) == grammar_text(50, seed=1) != grammar_text(50, seed=2)
    assert grammar_text(7).count("\n") == 7
    assert grammar_text(0) == ""


def test_the_words_are_about_sixty():
    words = {word for line in grammar_text(5_000).splitlines() for word in line.split()}
    assert 50 <= len(words) <= 70
