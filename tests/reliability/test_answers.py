"""Answers that cannot be lost: odd texts, very long ones, many threads, weights that change."""

import concurrent.futures

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.backend import process
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
        "fill unchanged": small_tasks["filler"].fill,
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
@pytest.mark.parametrize("name", ["translate", "score", "tag", "classify", "fill"])
def test_a_text_of_ten_megabytes_is_one_sentence(ask, name):
    with pytest.raises(ValueError, match=rf"1 must have at most {LONGEST} tokens, since"):
        ask[name](["a", "ab " * 3_500_000])


NO_TEXTS, NO_LISTS = [[None], ["\ud800"], [b"bytes"]], ["one text", None, 3]
LISTS = "translate", "classify", "generate", "fill unchanged"
WRONG = [(name, wrong) for name in LISTS for wrong in NO_LISTS]
WRONG += [(name, wrong) for name in LISTS for wrong in NO_TEXTS]
WRONG += [("score", wrong) for wrong in NO_TEXTS]  # `ask` needs a list for it
WRONG += [("tag", wrong) for wrong in (*NO_LISTS, [None], [b"bytes"])]  # any characters are a word


@pytest.mark.parametrize("name, wrong", WRONG)
def test_what_is_not_a_list_of_texts_is_one_sentence(ask, name, wrong):
    expected = r"list of (texts|sentences|words)|must be a str|half a surrogate"
    with pytest.raises(ValueError, match=expected) as error:
        ask[name](wrong)
    assert "\n" not in str(error.value)


def test_a_generator_is_read_once(ask):
    for name in ("translate", "tag", "classify", "fill", "generate"):
        texts = ["ab", "cd"]
        assert ask[name](text for text in texts) == ask[name](texts)


def test_long_texts_share_a_batch_with_few_others():
    lengths = [5] * 100 + [700] * 20 + [3000] * 3
    for numbers, rows, length, _ in group_by_length(range(len(lengths)), lengths, batch_size=64):
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


@pytest.mark.parametrize("beams", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_two_batches_at_a_time_are_answered_as_one_by_one(randomize, monkeypatch, beams):
    tokenizer = kt.train_tokenizer(["abcdef gh"], model_type="char")
    model = randomize(kt.Transformer(tokenizer.vocabulary_size(), **SIZES))
    texts = ["fed cba", "hgf" * 9, "a", "abc def", "cab" * 8, "b"]

    def answers():
        translator = kt.Translator(model, tokenizer, max_length_ratio=0.2, batch_size=1)
        found = translator.translate(texts, beams=beams, return_scores=True)
        translations = [each.text for each in found]
        return found, translator.score(texts, translations), translator.sample(texts, seed=1)

    monkeypatch.setattr(process, "_has_idle_cores", lambda: False)
    one_by_one = answers()
    monkeypatch.setattr(process, "_has_idle_cores", lambda: True)
    assert answers() == one_by_one


# Threads, and weights that change: every task


@pytest.fixture(scope="module")
def tasks(translator, small_tasks):
    return {"translator": translator, **small_tasks}


def of_model(task, model):
    """A task that has compiled nothing, of a model and all else that `task` has."""
    given = {name: getattr(task, name) for name in (*task.parts, *task.settings)}
    if isinstance(task, kt.Translator):
        return kt.Translator(**{**given, "transformer": model, "config": task.config})
    return type(task)(**{**given, "model": model})


def numbers_of(task, texts=("a dog", "the cat")):
    """The outputs of a task for texts, as arrays."""
    match task:
        case kt.Translator():
            return np.array(task.score(texts, ["ab"] * len(texts)))
        case kt.TextGenerator():
            return np.array([score.nats for score in task.score(texts)])
        case kt.Tagger():
            return task._probabilities([text.split() for text in texts])[0]
        case kt.Classifier():
            return task.probabilities(texts)
        case kt.MaskFiller():
            filled = task.fill([f"{text} [MASK]" for text in texts], number=100)
            return np.array([sorted((p.label, p.probability) for p in each) for each in filled])


def quick(*names):
    """Every task; all but some of them are slow."""
    every = "translator", "generator", "tagger", "classifier", "filler"
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in names)) for name in every]


@pytest.mark.parametrize("name", quick("tagger"))
def test_threads_that_ask_together_get_the_answers_of_one(tasks, name):
    texts = ["a", "the dog", "it sees a cat", "a dog a cat a dog"]
    alone, together = (of_model(tasks[name], tasks[name].model) for _ in range(2))
    expected = [numbers_of(alone, [text]) for text in texts]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: numbers_of(together, [texts[n % 4]]), range(40)))
    for number, each in enumerate(found):
        np.testing.assert_array_equal(each, expected[number % 4])


def given_weights(model, randomize):
    randomize(model, seed=1)


def given_lora(model, randomize):
    for layer in model._flatten_layers():
        if layer.name in ("query", "value", "inner"):
            layer.enable_lora(2)
    randomize(model, seed=1)  # Keras begins with a product of zero


def quantized(model, randomize):
    with pytest.warns(UserWarning, match="does not have a `quantize`"):
        model.quantize("int8")


def trained(model, randomize):
    sizes = 2, 3, model.input["character_ids"].shape[-1] if "character_ids" in model.input else 0
    inputs = {name: np.full(sizes[: len(x.shape)], 3) for name, x in model.input.items()}
    labels = np.ones(sizes[: len(model.output.shape) - 1], "int32")
    model.compile("adam", kt.TokenCrossEntropy())
    model.fit(inputs, labels, epochs=2, verbose=0)


@pytest.mark.parametrize(
    "name, change",
    [
        ("tagger", given_lora),
        ("classifier", given_weights),
        *(
            pytest.param(name, change, marks=pytest.mark.slow)
            for name in ("translator", "generator", "tagger", "classifier", "filler")
            for change in (given_weights, given_lora, quantized, trained)
        ),
    ],
)
def test_a_task_answers_with_its_present_weights(tasks, randomize, name, change):
    task = of_model(tasks[name], tasks[name].model.copy())
    before = numbers_of(task)
    change(task.model, randomize)
    after = numbers_of(task)
    assert np.any(after != before)
    np.testing.assert_array_equal(after, numbers_of(of_model(task, task.model)))


@pytest.mark.parametrize("name", quick("tagger"))
def test_a_replaced_model_is_not_asked_any_more(tasks, randomize, name):
    task = of_model(tasks[name], tasks[name].model)
    before, other = numbers_of(task), randomize(task.model.copy(), seed=1)
    setattr(task, "transformer" if name == "translator" else "model", other)
    after = numbers_of(task)
    assert np.any(after != before)
    np.testing.assert_array_equal(after, numbers_of(of_model(task, other)))


def test_attention_scores_in_one_thread_change_no_call_in_another(randomize):
    model = randomize(kt.LanguageModel(12, **SIZES))
    ids = [np.random.default_rng(n).integers(4, 12, (2, 4)) for n in range(4)]

    def logits(n):
        return keras.ops.convert_to_numpy(model({"token_ids": ids[n]}))

    def scores(n):
        (found,) = kt.attention_scores(model, {"token_ids": ids[n]}).values()
        return keras.ops.convert_to_numpy(found)

    expected = [(logits(n), scores(n)) for n in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda n: (logits, scores)[n % 2](n // 2 % 4), range(64))
        for n, each in enumerate(found):
            np.testing.assert_array_equal(each, expected[n // 2 % 4][n % 2])
