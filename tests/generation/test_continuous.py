"""Sentences that wait take the rows of those that have ended, and no answer changes."""

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.generation import BeamSearch, GreedySearch, Request, Sampling, continuous
from keras_transformer.generation import decoding as decoding_module
from keras_transformer.generation.configuration import UNCHANGED

ops = keras.ops
SIZE, SENTENCES, ROWS = 23, 22, 3


class Adding:
    """A model whose next token is the source plus all tokens that it attends to in its cache.

    Args:
        peak: float, by how much its logit is above the others.
    """

    variables = ()
    max_length = None
    source_vocabulary_size = target_vocabulary_size = SIZE
    path = "adding"

    def __init__(self, peak):
        self.peak = peak

    def encode(self, source_ids):
        return source_ids

    def cache_memory(self, memory):
        return {}

    def empty_cache(self, batch_size, num_slots):
        shapes = (batch_size, 1, 1, num_slots), (batch_size, 1, num_slots, 1)
        return {self.path: tuple(ops.zeros(shape) for shape in shapes)}

    def keys_and_values(self, value, positions):
        return value, value

    def decode(self, ids, memory, attention_mask, cache):
        tokens = ops.cast(ops.expand_dims(ops.expand_dims(ids, 1), -1), "float32")
        _, values = cache.keys_and_values(self, tokens)
        seen = ops.where(attention_mask, ops.squeeze(values, -1), 0.0)  # (batch, beams, slots)
        total = ops.cast(ops.sum(seen, axis=-1), "int32") + memory[:, :1]
        is_last = cache.positions + 1 >= memory[:, 1:]  # positions of all rows, or of each
        token = ops.where(is_last, kt.END, 4 + total % (SIZE - 4))
        too_early = ops.expand_dims(~is_last, -1) & ops.equal(np.arange(SIZE), kt.END)
        return ops.where(too_early, -1e9, self.peak * ops.one_hot(token, SIZE))


def answer(source, limit):
    """The answer of `Adding`, token by token."""
    tokens, ids = [kt.START], []
    while len(ids) < limit and kt.END not in ids:
        total = sum(tokens) + source[0]
        ids.append(kt.END if len(ids) + 1 >= source[1] else 4 + total % (SIZE - 4))
        tokens.append(ids[-1])
    return ids


def plain_loop(sources, limits):
    """The answers, one sentence after the other, padded with 0."""
    found = np.zeros((len(limits), max(limits)), "int32")
    for row, (source, limit) in enumerate(zip(sources, limits, strict=True)):
        ids = answer(source.tolist(), limit)
        found[row, : len(ids)] = ids
    return found


def sources_and_limits(longest):
    """Sources, of whose two ids the second is the length of the answer, and limits of lengths."""
    rng = np.random.default_rng(longest)
    sources = rng.integers(4, SIZE, (SENTENCES, 2)).astype("int32")
    limits = np.minimum(rng.integers(2, 12, SENTENCES), longest)
    limits[[4, 9]] = longest  # beyond the first cache, after several rounds of the ring
    sources[[4, 9, 17], 1] = SIZE - 1
    fillers = -SENTENCES % ROWS
    return np.pad(sources, ((0, fillers), (0, 0))), np.pad(limits, (0, fillers))


@pytest.fixture(params=[pytest.param(8, marks=pytest.mark.slow), 21])
def given(request, monkeypatch):
    """Sources, and limits that fit the first cache of 8 positions or a larger one."""
    for module in (continuous, decoding_module):
        monkeypatch.setattr(module, "FIRST_LENGTH", 8)
    return sources_and_limits(request.param)


def answers(peak, search, given, at_a_time=ROWS, model=Adding, **options):
    sources, limits = given
    request = Request(search, sources, limits, **options, at_a_time=at_a_time)
    (found,) = kt.Decoding(model(peak)).decode([request])
    return found


def test_greedy_answers_are_those_of_a_plain_loop(given):
    expected = plain_loop(*given)
    np.testing.assert_array_equal(answers(50.0, GreedySearch(), given), expected)
    assert len(np.unique(expected, axis=0)) > SENTENCES // 2


def test_the_best_of_several_beams_is_found_in_every_row(given):
    found = answers(50.0, BeamSearch(3), given)
    np.testing.assert_array_equal(found.ids[:, 0], plain_loop(*given))
    np.testing.assert_allclose(found.scores[:SENTENCES], 0, atol=1e-4)
    assert not found.ids[SENTENCES:].any()


class Tilted(Adding):
    """`Adding`, whose other tokens differ in their logits, so that no two hypotheses tie."""

    def decode(self, *args, **kwargs):
        tilt = np.random.default_rng(0).normal(size=SIZE).astype("float32")
        return super().decode(*args, **kwargs) + ops.convert_to_tensor(tilt)


@pytest.mark.slow
def test_beams_avoid_what_their_own_row_has_written(given):
    logits = UNCHANGED.replace(repetition_penalty=2.0, no_repeat_ngram_size=2)
    search = BeamSearch(3, logits=logits)
    found = answers(3.0, search, given, model=Tilted)
    alone = answers(3.0, search, given, model=Tilted, at_a_time=None)
    np.testing.assert_array_equal(found.ids, alone.ids)
    assert (found.ids[:, 0] != plain_loop(*given)).any()


def test_each_row_has_its_own_random_numbers_limits_prefix_and_penalty(given):
    _, limits = given
    rows = np.arange(len(limits))
    logits = UNCHANGED.replace(repetition_penalty=2.0, no_repeat_ngram_size=2)
    search = Sampling([(3, row) for row in rows], 1.5, logits=logits)
    prefix = np.where(rows % 3 == 0, rows % 5 + 4, 0)[:, None]
    constraints = dict(min_length=limits // 2, prefix=prefix * (limits > 0)[:, None])
    found = answers(3.0, search, given, **constraints)
    alone = answers(3.0, search, given, at_a_time=None, **constraints)
    np.testing.assert_array_equal(found, alone)
    assert len({tuple(row) for row in found}) > SENTENCES // 2


def test_an_odd_number_of_sentences_per_row_is_an_error(given):
    with pytest.raises(ValueError, match="at_a_time must divide the number of sentences; received"):
        answers(50.0, GreedySearch(), given, at_a_time=5)
