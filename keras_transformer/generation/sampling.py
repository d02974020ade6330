"""One hypothesis per sentence: greedy decoding and sampling."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from .. import backend
from ..checks import check
from ..ids import END, PADDING, START
from .configuration import SamplingConfig
from .constraints import IMPOSSIBLE, top_tokens


class GreedyState(NamedTuple):
    """The state of greedy decoding or sampling."""

    position: Any  # int32 scalar, of the token to be read next
    ids: Any  # int32, (batch, 1), that token
    decoded: Any  # keys and values of the tokens read, one slot per position; see `Cache`
    answers: Any  # int32, (batch, length), the tokens written
    ended: Any  # bool, (batch,)


@dataclasses.dataclass(frozen=True)
class GreedySearch:
    """The most probable next token, at every position."""

    width = 1  # hypotheses per sentence

    def begin(self, ended, decoded, length):
        """The state before the first token.

        Args:
            ended: bool, (batch,), True where nothing is decoded.
            decoded: empty, with one slot per position.
            length: int, number of positions.
        """
        batch = ops.shape(ended)[0]
        return GreedyState(
            position=ops.zeros((), "int32"),
            ids=ops.full((batch, 1), START, "int32"),
            decoded=decoded,
            answers=ops.full((batch, length), PADDING, "int32"),
            ended=ended,
        )

    def length(self, state):
        """The number of positions that the state has room for."""
        return ops.shape(state.answers)[1]

    def grow(self, state, more, decoded):
        """The state with `more` positions, and a cache that has them."""
        answers = ops.pad(state.answers, ((0, 0), (0, more)))
        return state._replace(decoded=decoded, answers=answers)

    def attends_to(self, state):
        """bool, (1, 1, slots): every slot up to the position of the token that is read."""
        slots = ops.arange(ops.shape(state.answers)[1], dtype="int32")
        return ops.reshape(slots <= state.position, (1, 1, -1))

    def advance(self, state, attention_mask, logits, decoded, constraints, parameters):
        """The state after one more token of every sentence.

        Args:
            state: `GreedyState`.
            attention_mask: from `attends_to`.
            logits: float32, (batch, 1, vocabulary size), of the token after `state.ids`.
            decoded: with the keys and values of `state.ids`.
            constraints: `Constraints`.
            parameters: tensors that the choice depends on.
        """
        position, slots = state.position, ops.arange(ops.shape(state.answers)[1], dtype="int32")
        ids = self.choose(logits, position, constraints, parameters)
        ids = ops.where(ops.expand_dims(state.ended, 1), PADDING, ids)
        answers = ops.where(ops.equal(slots, position), ids, state.answers)
        last = ops.logical_or(ops.equal(ids[:, 0], END), position + 1 >= constraints.max_length)
        ended = ops.logical_or(state.ended, last)
        return GreedyState(position + 1, ids, decoded, answers, ended)

    def choose(self, logits, position, constraints, parameters):
        """int32, (batch, 1): the next token."""
        return top_tokens(logits, 1, position, constraints)[1]

    def answers(self, state, parameters):
        """int32, (batch, length): the tokens written, padded with 0."""
        return state.answers

    def collect(self, answers, length):
        """int32, (batch, length): answers, a NumPy array, cut or padded with 0."""
        return with_length(answers, length)


def with_length(ids, length):
    """The last axis cut or padded with 0 to `length`, NumPy int32."""
    ids = ids[..., :length].astype("int32")
    return np.pad(ids, [(0, 0)] * (ids.ndim - 1) + [(0, length - ids.shape[-1])])


class SamplingParameters(NamedTuple):
    """The tensors that sampling depends on."""

    uniforms: Any  # float32, (batch, longest), random numbers in [0, 1), one per token
    temperature: Any  # float32 scalar
    top_p: Any  # float32 scalar


@dataclasses.dataclass(frozen=True)
class Sampling(GreedySearch):
    """The next token drawn from the model's distribution.

    Args:
        top_k: int, the number of most probable tokens to sample from; None: all.
    """

    top_k: int | None = None

    def choose(self, logits, position, constraints, parameters):
        best, ids = top_tokens(logits, self.top_k or logits.shape[-1], position, constraints)
        return ops.take_along_axis(ids, _draw(best, position, parameters), axis=1)


def sampling_parameters(seeds, batch, length, config: SamplingConfig):
    """The `SamplingParameters` of one seed per sentence, for `length` positions."""
    check(len(seeds) == batch, "seeds must be one per row", rows=batch, seeds=seeds)
    uniforms = [np.random.default_rng(seed).random(length, "float32") for seed in seeds]
    temperature, top_p = np.float32(config.temperature), np.float32(config.top_p)
    return backend.to_arguments(SamplingParameters(np.stack(uniforms), temperature, top_p))


def _draw(logits, position, parameters):
    """int32, (batch, 1): the index of one of the falling logits, drawn at random.

    Inverse transform sampling: the cumulative distribution is inverted at a uniform number.
    """
    p = ops.softmax((logits - logits[:, :1]) / parameters.temperature)  # no overflow
    p = ops.where(logits > IMPOSSIBLE / 2, p, 0.0)  # which a high temperature would not leave 0
    nucleus = ops.cumsum(p, axis=-1) - p < parameters.top_p
    p = ops.where(nucleus, p, 0.0)
    cumulative = ops.cumsum(p, axis=-1)
    uniform = ops.expand_dims(ops.take(parameters.uniforms, position, axis=1), 1)
    below = ops.logical_and(cumulative <= uniform * cumulative[:, -1:], p > 0)
    index = ops.sum(ops.cast(below, "int32"), axis=-1, keepdims=True)
    last = ops.sum(ops.cast(p > 0, "int32"), axis=-1, keepdims=True) - 1  # if it rounds up to 1
    return ops.minimum(index, last)
