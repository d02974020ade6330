"""Texts far from those of the training: no loop without end, and no answer cut off in silence."""

import collections

import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.ids import END

WORDS = ["dog", "very", "狗", "的", "Straße", "ни", "кот", "αβγ", "שלום", "नमस्ते", "가나다"]
CODE = ["for (int i = 0; i < n; ++i) {", "return x[::-1]", "<b>&amp;</b>", "SELECT * FROM t;"]
ALPHABETS = [
    "абвгдежз",
    "αβγδεζηθ",
    "אבגדהוזח",
    "ابتثجحخد",
    "कखगघङचछज",
    "가나다라마바사",
    "ABCdefGHI",
]
EMOJI = "😀😂👍🏽🎉🐕👩‍👩‍👧🇩🇪❤️"


def line(kind, generator):
    """One line of a kind, of up to 300 characters."""
    number = int(generator.integers(1, 60))
    if kind == 0:
        return " ".join([str(generator.choice(WORDS))] * 50)
    if kind == 1:
        return "".join(map(str, generator.integers(0, 10, number)))
    if kind == 2:
        return "".join(generator.choice(list(EMOJI), number))
    if kind == 3:
        return " ".join(generator.choice(CODE, 1 + number // 15))
    letters = list(generator.choice(ALPHABETS) + " ")
    return "".join(generator.choice(letters, number))


@pytest.fixture(scope="module")
def lines():
    generator = np.random.default_rng(58)
    return [line(n % 5, generator) for n in range(1000)]


@pytest.mark.slow
@pytest.mark.parametrize("beams", [1, 4])
def test_a_thousand_lines_out_of_domain_end_or_say_that_they_were_cut(lines, beams, monkeypatch):
    translator = kt.load("zh-en")
    tokenizer, written = translator.target_tokenizer, []
    decode = type(tokenizer).decode

    def recorded(self, ids):
        written.extend(map(list, np.asarray(ids)))
        return decode(self, ids)

    monkeypatch.setattr(type(tokenizer), "decode", recorded)
    cut_off = {}
    for size in (0, 3):
        written.clear()
        # Answers of 500 tokens: 64 of them with 4 beams each take JAX 15 GB.
        options = dict(beams=beams, no_repeat_ngram_size=size, batch_size=16, return_finished=True)
        options |= dict(sentences="never")  # each line is one answer of the model
        found = translator.translate(lines, **options)
        blank = sum(not text.strip() for text in translator.normalized(lines))
        marked = collections.Counter((each.text, each.finished) for each in found)
        texts = decode(tokenizer, written)
        expected = collections.Counter(zip(texts, (END in ids for ids in written), strict=True))
        assert marked == expected + collections.Counter({("", True): blank})
        cut_off[size] = sum(not each.finished for each in found)
    assert cut_off[3] < cut_off[0]
    for ids in written:
        ids = [id for id in ids if id > 0]
        ngrams = list(zip(ids, ids[1:], ids[2:], strict=False))
        assert len(set(ngrams)) == len(ngrams)
