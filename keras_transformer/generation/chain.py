"""One hypothesis a sentence: greedy decoding and sampling."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from ..arguments import check, check_at_least
from ..tokenizers import END, PADDING, START
from .steps import best_tokens, padded_to, tensors


class Chain(NamedTuple):
    """Where greedy decoding or sampling stands."""

    position: Any  # int32 scalar, of the next token to be read
    ids: Any  # int32, (batch, 1), that token
    past: Any  # the model's cache, one place a position
    answers: Any  # int32, (batch, length), what was written
    ended: Any  # bool, (batch,)

    @property
    def length(self):
        """How many positions there is room for."""
        return self.answers.shape[1]

    def with_room(self, more, past):
        """The state with `more` positions, in a cache that has them."""
        return self._replace(past=past, answers=ops.pad(self.answers, ((0, 0), (0, more))))


class Draw(NamedTuple):
    """What sampling needs besides the logits."""

    uniforms: Any  # float32, (batch, longest), in [0, 1): all the chance there is
    temperature: Any  # float32 scalar
    top_p: Any  # float32 scalar


def begin(ended, past, length, width=1):
    """The state before the first token; `width`: one hypothesis a sentence."""
    batch = ended.shape[0]
    state = Chain(
        position=np.int32(0),
        ids=np.full((batch, 1), START, "int32"),
        past=past,
        answers=np.full((batch, length), PADDING, "int32"),
        ended=ended,
    )
    return tensors(state)


def advance(model, state, context, bounds, draw, k):
    """The next token of every sentence: the best one, or by a `Draw` among the `k` best."""
    position = state.position
    places = ops.arange(state.length, dtype="int32")
    seen = ops.reshape(places <= position, (1, 1, -1))
    logits, past = model.step(state.ids, position, state.past, context, seen)
    if draw is None:
        _, ids = best_tokens(logits, 1, position, bounds)
    else:
        best, ids = best_tokens(logits, k or logits.shape[-1], position, bounds)
        ids = ops.take_along_axis(ids, _drawn(best, position, draw), axis=1)
    ids = ops.where(ops.expand_dims(state.ended, 1), PADDING, ids)
    answers = ops.where(ops.equal(places, position), ids, state.answers)
    last = ops.logical_or(ops.equal(ids[:, 0], END), position + 1 >= bounds.longest)
    return Chain(position + 1, ids, past, answers, ops.logical_or(state.ended, last))


def answers(state, longest):
    """NumPy int32, (batch, longest): what was written, padded with 0."""
    return padded_to(ops.convert_to_numpy(state.answers), longest)


def chance(seeds, batch, room, temperature, top_k, top_p):
    """The `Draw` of so many seeds."""
    check(temperature > 0, "temperature must be above 0", temperature=temperature)
    check(0 < top_p <= 1, "top_p must be above 0 and at most 1", top_p=top_p)
    check_at_least(1, top_k=top_k)
    check(len(seeds) == batch, "seeds must be one for each row", rows=batch, seeds=seeds)
    uniforms = [np.random.default_rng(seed).random(room, "float32") for seed in seeds]
    return tensors(Draw(np.stack(uniforms), np.float32(temperature), np.float32(top_p)))


def _drawn(logits, position, draw):
    """int32, (batch, 1): which of the falling logits is drawn.

    It inverts the cumulative distribution at a uniform number.
    """
    p = ops.softmax(logits / draw.temperature)
    p = ops.where(ops.cumsum(p, axis=-1) - p < draw.top_p, p, 0.0)  # more probable ones suffice
    cumulative = ops.cumsum(p, axis=-1)
    uniform = ops.expand_dims(ops.take(draw.uniforms, position, axis=1), 1)
    below = ops.logical_and(cumulative <= uniform * cumulative[:, -1:], p > 0)
    number = ops.sum(ops.cast(below, "int32"), axis=-1, keepdims=True)
    last = ops.sum(ops.cast(p > 0, "int32"), axis=-1, keepdims=True) - 1  # were it rounded up to 1
    return ops.minimum(number, last)
