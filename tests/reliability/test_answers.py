"""Answers that cannot be lost: odd texts, very long ones, many threads, weights that change."""

import concurrent.futures

import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import backend
from keras_transformer.data.lengths import MOST_PAIRS, group_by_length
from keras_transformer.tasks.task import LONGEST

SIZES = dict(num_layers=1, d_model=8, num_heads=2, d_ff=16)
ODD = [
    "",
    " ",
    "\0",
    "a\0b",
    "<s>",
    "</s> <pad>",
    "\u2581\u2585",
    "e\u0301\u0302",
    "\u202eabc",
    "السلام عليكم",
    "👩‍👩‍👧 x",
    "\ufeffa",
    "a\u2028b",
    "\x1f",
    "\uffff",
    "a" * 300,
    "\t",
]


@pytest.fixture(scope="module")
def translator(randomize):
    tokenizer = kt.train_tokenizer(["abcdef gh"], model_type="char")
    model = randomize(kt.Transformer(tokenizer.vocabulary_size(), **SIZES))
    return kt.Translator(model, tokenizer, max_length_ratio=0.1)


@pytest.fixture(scope="module")
def ask(translator, small_tasks):
    """One function of a list of texts per task; each returns an answer per text."""
    return {
        "translate": translator.translate,
        "score": lambda texts: translator.score(texts, ["a"] * len(texts)),
        "tag": small_tasks["tagger"].tag,
        "classify": small_tasks["classifier"].classify,
        "fill": lambda texts: small_tasks["filler"].fill([f"{text} [MASK]" for text in texts]),
        "generate": lambda texts: small_tasks["generator"].generate(texts, 2, temperature=0),
    }


NAMES = ["translate", "score", "tag", "classify", "fill", "generate"]


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n not in ("translate", "tag"))) for n in NAMES],
)
def test_every_odd_text_has_its_answer(ask, name):
    answers = ask[name](ODD)
    assert len(answers) == len(ODD)
    alone = ask[name]([ODD[3]])[0]
    if name in ("translate", "tag", "generate"):  # the others contain rounded numbers
        assert answers[3] == alone


@pytest.mark.slow
@pytest.mark.parametrize("name", ["translate", "tag", "classify"])
def test_a_text_of_ten_megabytes_is_one_sentence(ask, name):
    with pytest.raises(ValueError, match=rf"Text 1 must have at most {LONGEST} tokens, since"):
        ask[name](["a", "ab " * 3_500_000])


NO_TEXTS, NO_LISTS = [[None], ["\ud800"], [b"bytes"]], ["one text", None, 3]
WRONG = [(name, wrong) for name in ("translate", "classify", "generate") for wrong in NO_LISTS]
WRONG += [(name, wrong) for name in ("translate", "classify", "generate") for wrong in NO_TEXTS]
WRONG += [("score", wrong) for wrong in NO_TEXTS]  # `ask` needs a list for it
WRONG += [("tag", wrong) for wrong in (*NO_LISTS, [None], [b"bytes"])]  # any characters are a word


@pytest.mark.parametrize("name, wrong", WRONG)
def test_what_is_no_list_of_texts_is_one_sentence(ask, name, wrong):
    with pytest.raises(
        ValueError, match=r"(list of|must be a str|half a surrogate|No sentence|is )"
    ):
        ask[name](wrong)


def test_a_generator_is_read_once(ask):
    for name in ("translate", "tag", "classify", "generate"):
        texts = ["ab", "cd"]
        assert ask[name](text for text in texts) == ask[name](texts)


def test_long_texts_share_a_batch_with_few_others():
    lengths = [5] * 100 + [700] * 20 + [3000] * 3
    for numbers, rows, length in group_by_length(range(len(lengths)), lengths, batch_size=64):
        assert rows == 1 or rows * length**2 <= MOST_PAIRS
        assert all(lengths[number] <= length for number in numbers)


def test_a_text_without_a_limit_is_scored_in_windows(randomize):
    tokenizer = kt.train_tokenizer(["ab"], model_type="char")
    model = randomize(kt.LanguageModel(tokenizer.vocabulary_size(), **SIZES))
    generator = kt.TextGenerator(model, tokenizer)
    spans = generator._spans(20_000, 0.5)
    assert max(last - first for first, last, _ in spans) == LONGEST
    assert spans[0][0] == 0 and spans[-1][1] == 20_000


@pytest.mark.parametrize("beams", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_longer_text_may_follow_a_short_one_alone(randomize, beams):
    # TensorFlow's program is then traced again, for any length but still for one row.
    tokenizer = kt.train_tokenizer(["abcdef gh"], model_type="char")
    model = randomize(kt.Transformer(tokenizer.vocabulary_size(), **SIZES))
    texts = ["fed cba abc def", "hgf" * 9, "a"]

    def translator():
        return kt.Translator(model, tokenizer, max_length_ratio=0.2)

    expected = [translator().translate([text], beams=beams) for text in texts]
    one = translator()
    assert [one.translate([text], beams=beams) for text in texts] == expected


@pytest.mark.parametrize("beams", [1, 2])
def test_two_batches_at_a_time_are_answered_as_one_by_one(randomize, monkeypatch, beams):
    tokenizer = kt.train_tokenizer(["abcdef gh"], model_type="char")
    model = randomize(kt.Transformer(tokenizer.vocabulary_size(), **SIZES))
    texts = ["fed cba", "hgf" * 9, "a", "abc def", "cab" * 8, "b"]

    def answers():
        translator = kt.Translator(model, tokenizer, max_length_ratio=0.2, batch_size=1)
        found = translator.translate(texts, beams=beams, return_scores=True)
        translations = [each.text for each in found]
        return found, translator.score(texts, translations), translator.sample(texts, seed=1)

    monkeypatch.setattr(backend, "_has_idle_cores", lambda: False)
    one_by_one = answers()
    monkeypatch.setattr(backend, "_has_idle_cores", lambda: True)
    assert answers() == one_by_one


@pytest.mark.slow
def test_threads_that_translate_for_the_first_time_together(randomize):
    tokenizer = kt.train_tokenizer(["abcdef gh"], model_type="char")
    model = randomize(kt.Transformer(tokenizer.vocabulary_size(), **SIZES))
    texts = [["abc", "d"], ["fed cba abc def"], ["a b c d e f", "g", "h"], ["hgf" * 9]]

    def translator():
        return kt.Translator(model, tokenizer, max_length_ratio=0.2)

    expected = [translator().translate(each) for each in texts]
    together = translator()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(together.translate, texts)) == expected


@pytest.mark.parametrize("change", ["lora", pytest.param("int8", marks=pytest.mark.slow)])
def test_a_tagger_answers_with_its_present_weights(small_tasks, randomize, change):
    old = small_tasks["tagger"]
    model = randomize(kt.TaggingModel.from_config(old.model.get_config()))
    tagger = kt.Tagger(model, old.vocabulary, old.labels)
    sentence = [["The", "dog", "barks", "."]]
    before = tagger._probabilities(sentence)[0]
    if change == "lora":
        for layer in model._flatten_layers():
            if layer.name in ("query", "value", "inner"):
                layer.enable_lora(2)
        randomize(model, seed=1)
    else:
        with pytest.warns(UserWarning, match="does not have a `quantize`"):
            model.quantize("int8")
    after = tagger._probabilities(sentence)[0]
    fresh = kt.Tagger(model, old.vocabulary, old.labels)._probabilities(sentence)[0]
    assert np.abs(after - before).max() > 1e-6
    np.testing.assert_allclose(after, fresh, atol=1e-6)
