import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.generation import NEVER

VOCABULARY = 23


def array(x):
    return keras.ops.convert_to_numpy(x)


@pytest.fixture(scope="module", params=["post_norm", "pre_norm_learned_separate"])
def transformer(request):
    keras.utils.set_random_seed(3)
    options = {}
    if request.param != "post_norm":
        options = dict(target_vocabulary_size=VOCABULARY, norm_first=True, max_length=40)
    model = kt.Transformer(VOCABULARY, num_layers=2, d_model=16, num_heads=2, d_ff=32, **options)
    rng = np.random.default_rng(0)
    for weight in model.trainable_variables:
        if len(weight.shape) == 2:  # large enough for varied, confident answers
            weight.assign(rng.normal(0, 0.6, weight.shape))
    return model


@pytest.fixture(scope="module")
def decoding(transformer):
    return kt.Decoding(transformer)


def padded(rows, length=None):
    length = length or max(map(len, rows))
    return np.array([row + [kt.PADDING] * (length - len(row)) for row in rows], "int32")


def some_sources():
    rng = np.random.default_rng(1)
    return [[*rng.integers(4, VOCABULARY, n).tolist(), kt.END] for n in (1, 4, 2, 7, 5, 3)]


def teacher_forced(transformer, source_ids, target_ids):
    """Logits of the whole target at once, without any cache."""
    return array(transformer({"source_ids": source_ids, "target_ids": target_ids}))


def greedy_without_a_cache(transformer, sources, max_length):
    """The whole model run anew for every token; padded to one shape, which changes nothing."""
    source_ids = padded(sources)
    target_ids = np.full((len(sources), max_length), kt.PADDING, "int32")
    target_ids[:, 0] = kt.START
    answers = np.zeros((len(sources), max_length), "int32")
    for position in range(max_length):
        logits = teacher_forced(transformer, source_ids, target_ids)[:, position]
        logits[:, list(NEVER)] = -np.inf
        ended = (answers == kt.END).any(axis=1)
        answers[:, position] = np.where(ended, kt.PADDING, logits.argmax(axis=-1))
        target_ids[:, position + 1 : position + 2] = answers[:, position, None]
    return answers


def test_cached_decoding_equals_uncached_at_every_position(transformer, decoding):
    source_ids = padded(some_sources())
    rng = np.random.default_rng(2)
    target_ids = rng.integers(4, VOCABULARY, (len(source_ids), 9)).astype("int32")
    uncached = teacher_forced(transformer, source_ids, target_ids)
    past, context = decoding.start(source_ids, 9)
    allowed = [i for i in range(VOCABULARY) if i not in NEVER]
    for position in range(9):
        logits, past = decoding.step(target_ids[:, position], position, past, context)
        np.testing.assert_allclose(
            array(logits)[:, allowed], uncached[:, position][:, allowed], atol=1e-5, rtol=1e-5
        )


def test_greedy_is_the_most_probable_next_token_again_and_again(transformer, decoding):
    sources = some_sources()
    answers = decoding.greedy(padded(sources), 12)
    expected = greedy_without_a_cache(transformer, sources, 12)
    np.testing.assert_array_equal(answers, expected)
    assert len({tuple(row) for row in expected}) > 1  # a constant decoder would agree with itself


def test_an_answer_depends_on_nothing_but_its_own_source(decoding):
    sources = some_sources()
    together = decoding.greedy(padded(sources, 16), 12)
    alone = [decoding.greedy(padded([source], 8), 12)[0] for source in sources]
    np.testing.assert_array_equal(together, alone)


def test_nothing_follows_the_end(decoding):
    for row in decoding.greedy(padded(some_sources()), 30).tolist():
        if kt.END in row:
            assert set(row[row.index(kt.END) + 1 :]) <= {kt.PADDING}
        assert kt.START not in row


def test_a_row_of_padding_only_ends_at_once_and_changes_no_other_row(decoding):
    sources = some_sources()
    with_filler = padded([*sources, []])
    answers = decoding.greedy(with_filler, 12)
    assert not answers[-1].any()
    np.testing.assert_array_equal(answers[:-1], decoding.greedy(padded(sources), 12))


def test_the_loop_ends_when_every_sentence_has_ended(transformer):
    end_first = kt.Decoding(transformer)
    seen = []
    step = end_first.step

    def end_at_once(ids, position, past, context):
        seen.append(1)
        logits, past = step(ids, position, past, context)
        return keras.ops.add(logits, 1e4 * np.eye(VOCABULARY, dtype="float32")[kt.END]), past

    end_first.step = end_at_once
    answers = array(end_first._greedy_loop(keras.ops.convert_to_tensor(padded([[5, 3]])), 40))
    assert answers[0, 0] == kt.END and not answers[0, 1:].any()
    assert len(seen) < 5  # eager: one step; traced: the loop's body once or twice


def test_an_answer_that_never_ends_has_the_length_allowed(transformer):
    endless = kt.Decoding(transformer)
    step = endless.step

    def never_end(ids, position, past, context):
        logits, past = step(ids, position, past, context)
        return keras.ops.subtract(logits, 1e4 * np.eye(VOCABULARY, dtype="float32")[kt.END]), past

    endless.step = never_end
    answers = array(endless._greedy_loop(keras.ops.convert_to_tensor(padded([[5, 3]])), 7))
    assert answers.shape == (1, 7) and (answers > kt.END).sum() + (answers == kt.UNKNOWN).sum() == 7


def test_a_compiled_loop_sees_weights_that_changed_since(transformer, decoding):
    source_ids = padded(some_sources())
    before = decoding.greedy(source_ids, 12)
    kernel = transformer.embed_target.trainable_variables[0]
    value = array(kernel)
    try:
        kernel.assign(value[::-1])
        changed = decoding.greedy(source_ids, 12)
        expected = greedy_without_a_cache(transformer, some_sources(), 12)
        np.testing.assert_array_equal(changed, expected)
        assert (changed != before).any()
    finally:
        kernel.assign(value)
    np.testing.assert_array_equal(decoding.greedy(source_ids, 12), before)
