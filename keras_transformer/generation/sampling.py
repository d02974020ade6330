"""One hypothesis per sentence: greedy decoding and sampling.

A search holds its options, and is the key of its compiled program: a field that does not compare is
a tensor among the `parameters` of the program, which serves all of its values.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from keras import ops

from ..backend import Tensor
from ..checks import check
from ..ids import END, PADDING, START
from ..layers.cache import Entries
from .configuration import UNCHANGED, LogitsConfig, SamplingConfig
from .constraints import IMPOSSIBLE, at_position, top_tokens
from .logits import processed


class GreedyState(NamedTuple):
    """The state of greedy decoding or sampling."""

    position: Tensor  # int32, (batch,), of the token to be read next
    ids: Tensor  # int32, (batch, 1), that token
    decoded: Entries  # keys and values of the tokens read, one slot per position; see `Cache`
    answers: Tensor  # int32, (batch, length), the tokens written
    ended: Tensor  # bool, (batch,)


@dataclasses.dataclass(frozen=True)
class GreedySearch:
    """The most probable next token, at every position.

    Args:
        logits: `LogitsConfig`.
    """

    logits: LogitsConfig = dataclasses.field(default=UNCHANGED, kw_only=True)
    width = 1  # hypotheses per sentence

    def parameters(self, rows, length):
        """NumPy arrays that the choice depends on; None: nothing.

        Args:
            rows: int, sentences of the batch.
            length: int, the most tokens of an answer.
        """
        return None

    def begin(self, ended, decoded, length):
        """The state before the first token.

        Args:
            ended: bool, (batch,), True where nothing is decoded.
            decoded: empty, with one slot per position.
            length: int, number of positions.
        """
        batch = ops.shape(ended)[0]
        return GreedyState(
            position=ops.zeros((batch,), "int32"),
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

    def rolled(self, state, first):
        """The state with slot `first` of each row as its first one; see `ContinuousSearch`."""
        return state

    def attends_to(self, state, turn=None):
        """bool, (batch, 1, length): the slots up to that of the token that is read.

        Args:
            state: `GreedyState`.
            turn: int scalar, see `ContinuousSearch`; None: the slots are the positions.
        """
        length = ops.shape(state.answers)[1]
        slots = ops.arange(length, dtype="int32")
        back = slots if turn is None else (turn - slots) % length
        return back <= ops.reshape(state.position, (-1, 1, 1))

    def advance(self, state, attention_mask, logits, decoded, constraints, parameters, turn=None):
        """The state after one more token of every sentence.

        Args:
            state: `GreedyState`.
            attention_mask: from `attends_to`.
            logits: float32, (batch, 1, vocabulary size), of the token after `state.ids`.
            decoded: with the keys and values of `state.ids`.
            constraints: `Constraints`.
            parameters: from `parameters`, as tensors.
            turn: as of `attends_to`.
        """
        position = state.position
        positions = ops.arange(ops.shape(state.answers)[1], dtype="int32")
        _, logits = processed(
            logits, lambda: ops.expand_dims(state.answers, 1), position, constraints, self.logits
        )
        ids = self.choose(logits, position, constraints, parameters)
        ids = ops.where(ops.expand_dims(state.ended, 1), PADDING, ids)
        answers = ops.where(ops.equal(positions, ops.expand_dims(position, 1)), ids, state.answers)
        last = ops.equal(ids[:, 0], END) | (position + 1 >= constraints.max_length)
        ended = state.ended | last
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
    """The arrays that sampling depends on."""

    uniforms: Tensor  # float32, (batch, length), random numbers in [0, 1), one per token
    temperature: Tensor  # float32 scalar
    top_p: Tensor  # float32 scalar


@dataclasses.dataclass(frozen=True)
class Sampling(GreedySearch):
    """The next token drawn from the model's distribution.

    Args:
        seeds: list with one seed per row, an int from 0 or a tuple of them. The random numbers of a
            row depend on its seed alone, not on the rest of the batch.
        temperature: float above 0, divisor of the logits: below 1 sharpens the distribution.
        top_k: int from 1, number of most probable tokens to sample from; None: all.
        top_p: float in (0, 1], nucleus sampling: the fewest tokens that together reach it.
        logits: `LogitsConfig`.
    """

    seeds: Sequence = dataclasses.field(compare=False)
    temperature: float = dataclasses.field(default=1.0, compare=False)
    top_k: int | None = None
    top_p: float = dataclasses.field(default=1.0, compare=False)

    def __post_init__(self):
        SamplingConfig(self.temperature, self.top_k, self.top_p)  # checks them

    def parameters(self, rows, length):
        check(len(self.seeds) == rows, "seeds must be one per row", rows=rows, seeds=self.seeds)
        uniforms = [np.random.default_rng(seed).random(length, "float32") for seed in self.seeds]
        numbers = np.float32(self.temperature), np.float32(self.top_p)
        return SamplingParameters(np.stack(uniforms), *numbers)

    def choose(self, logits, position, constraints, parameters):
        best, ids = top_tokens(logits, self.top_k or logits.shape[-1], position, constraints)
        return ops.take_along_axis(ids, _draw(best, position, parameters), axis=1)


def _draw(logits, position, parameters):
    """int32, (batch, 1): the index of one of the falling logits, drawn at random.

    Inverse transform sampling: the cumulative distribution is inverted at a uniform number.
    """
    p = ops.softmax((logits - logits[:, :1]) / parameters.temperature)  # no overflow
    p = ops.where(logits > IMPOSSIBLE / 2, p, 0.0)  # which a high temperature would not leave 0
    nucleus = ops.cumsum(p, axis=-1) - p < parameters.top_p
    p = ops.where(nucleus, p, 0.0)
    cumulative = ops.cumsum(p, axis=-1)
    uniform = ops.expand_dims(at_position(parameters.uniforms, position), 1)
    below = (cumulative <= uniform * cumulative[:, -1:]) & (p > 0)
    index = ops.sum(ops.cast(below, "int32"), axis=-1, keepdims=True)
    last = ops.sum(ops.cast(p > 0, "int32"), axis=-1, keepdims=True) - 1  # if it rounds up to 1
    return ops.minimum(index, last)
