"""Several hypotheses per sentence: beam search."""

import dataclasses
from typing import NamedTuple

import numpy as np
from keras import ops

from ..backend import Tensor
from ..checks import check, check_at_least
from ..ids import END, PADDING, START
from ..layers.cache import Entries
from .configuration import UNCHANGED, GenerationConfig, LogitsConfig
from .constraints import IMPOSSIBLE, top_tokens
from .logits import processed
from .sampling import with_length


class Hypotheses(NamedTuple):
    """The result of a beam search, best first.

    Args:
        ids: int32, (batch, n_best, longest max_length), END included if it was reached, padded
            with 0.
        scores: float32, (batch, n_best), log-probability / `length_penalty`, nats; -inf where
            there are fewer hypotheses.
        finished: bool, (batch, n_best), False: cut off at the length limit.
    """

    ids: Tensor
    scores: Tensor
    finished: Tensor


class BeamState(NamedTuple):
    """The state of a beam search. Caches are never reordered.

    The token at position t of beam k stays in the slot it was written to, t * beams + k, or that
    of the turn instead of t (`ContinuousSearch`). The ancestors of a hypothesis are the slots of
    its tokens, and the mask of its self-attention.
    """

    position: Tensor  # int32, (batch,), of the tokens to be read next
    ids: Tensor  # int32, (batch, beams), those tokens
    decoded: Entries  # keys and values of the tokens read; see `Cache`
    tokens: Tensor  # int32, (batch, length, beams), the tokens at all positions
    ancestors: Tensor  # bool, (batch, beams, length * beams), of the live hypotheses
    scores: Tensor  # float32, (batch, beams), their log-probabilities, falling
    finished_ancestors: Tensor  # bool, (batch, beams, length * beams); END follows
    finished_scores: Tensor  # float32, (batch, beams), log-probability / length penalty, falling
    ended: Tensor  # bool, (batch,), the search for a sentence


def length_penalty(length, alpha):
    """((5 + length) / 6)^alpha, length in tokens with END; a score is log-probability / penalty.

    Source: Wu et al. 2016 (GNMT), equation 14, without its coverage penalty.
    """
    return ((5.0 + length) / 6.0) ** alpha


@dataclasses.dataclass(frozen=True)
class BeamSearch:
    """The best hypotheses that a beam of a given width finds; see `Decoding.beam_search`.

    Args:
        beams: int, live hypotheses per sentence.
        length_penalty: float from 0, exponent of `length_penalty`; see `sampling` for why it does
            not compare.
        n_best: int, at most `beams`, the hypotheses to return.
        logits: `LogitsConfig`.
    """

    beams: int = 4
    length_penalty: float = dataclasses.field(default=0.6, compare=False)
    n_best: int = 1
    logits: LogitsConfig = UNCHANGED

    def __post_init__(self):
        GenerationConfig(beams=self.beams, length_penalty=self.length_penalty)  # checks them
        check_at_least(1, n_best=self.n_best)
        within = self.n_best <= self.beams
        check(within, "n_best must be from 1 to beams", n_best=self.n_best, beams=self.beams)

    def parameters(self, rows, length):
        """float32 scalar, the exponent of the length penalty; see `GreedySearch.parameters`."""
        return np.float32(self.length_penalty)

    @property
    def width(self):
        return self.beams

    def begin(self, ended, decoded, length):
        """The state before the first tokens; see `GreedySearch.begin`."""
        batch = ops.shape(ended)[0]
        impossible = ops.full((batch, self.beams), IMPOSSIBLE, "float32")
        first = ops.equal(ops.arange(self.beams), 0)  # all beams begin the same: only one counts
        return BeamState(
            position=ops.zeros((batch,), "int32"),
            ids=ops.full((batch, self.beams), START, "int32"),
            decoded=decoded,
            tokens=ops.full((batch, length, self.beams), PADDING, "int32"),
            ancestors=ops.zeros((batch, self.beams, length * self.beams), "bool"),
            scores=ops.where(first, 0.0, impossible),
            finished_ancestors=ops.zeros((batch, self.beams, length * self.beams), "bool"),
            finished_scores=impossible,
            ended=ended,
        )

    def length(self, state):
        """The number of positions that the state has room for."""
        return ops.shape(state.tokens)[1]

    def grow(self, state, more, decoded):
        """The state with `more` positions, and a cache that has them."""
        slots = ((0, 0), (0, 0), (0, more * self.beams))
        return state._replace(
            decoded=decoded,
            tokens=ops.pad(state.tokens, ((0, 0), (0, more), (0, 0))),
            ancestors=ops.pad(state.ancestors, slots),
            finished_ancestors=ops.pad(state.finished_ancestors, slots),
        )

    def rolled(self, state, first):
        """The state with slot `first` of each row as its first one; see `ContinuousSearch`."""
        return state._replace(
            ancestors=_rolled(state.ancestors, first),
            finished_ancestors=_rolled(state.finished_ancestors, first),
        )

    def attends_to(self, state, turn=None):
        """bool, (batch, beams, slots): the ancestors of each hypothesis, and its own slot."""
        slot = state.position if turn is None else turn % self.length(state)
        first = ops.reshape(slot * self.beams, (-1, 1, 1))
        own_slot = first + ops.reshape(ops.arange(self.beams, dtype="int32"), (-1, 1))
        slots = ops.arange(ops.shape(state.ancestors)[-1], dtype="int32")
        own = ops.equal(own_slot, slots)  # (batch or 1, beams, slots)
        return state.ancestors | (own & ~ops.reshape(state.ended, (-1, 1, 1)))

    def advance(self, state, ancestors, logits, decoded, constraints, alpha, turn=None):
        """The state after one more token of every live hypothesis; see `GreedySearch.advance`."""
        position = state.position
        positions = ops.arange(ops.shape(state.tokens)[1], dtype="int32")
        here = ops.equal(positions, ops.expand_dims(position, 1))  # (batch, length)
        here = ops.expand_dims(here, -1)
        tokens = ops.where(here, ops.expand_dims(state.ids, 1), state.tokens)

        def written():
            by_position = ancestors if turn is None else _rolled(ancestors, turn - position)
            return self._along(tokens, by_position)[0]

        logits, allowed = processed(logits, written, position, constraints, self.logits)
        extensions = self._extensions(state, logits, allowed, constraints)
        finished, finished_scores, finish = self._finish(state, ancestors, extensions, alpha)
        ids, scores, parents = self._live(state, extensions)
        ended = self._ended(state, scores, finished_scores, finish, constraints, alpha)
        ancestors = _rows(ancestors, parents)
        return BeamState(
            position + 1, ids, decoded, tokens, ancestors, scores, finished, finished_scores, ended
        )

    def _extensions(self, state, logits, allowed, constraints):
        """The 2 * beams best extensions, of which at least half do not end: (batch, 2 * beams)."""
        normalizer = ops.logsumexp(logits, axis=-1) - state.scores
        best = top_tokens(allowed, 2 * self.beams, state.position, constraints, normalizer)
        scores, chosen = best
        size = logits.shape[-1]
        return scores, chosen // size, chosen % size  # log-probabilities, parents, ids

    def _finish(self, state, ancestors, extensions, alpha):
        """The finished hypotheses, with the extensions that end among the first `beams`.

        No slice is taken of what a top_k returns, nor in `_ended`: XLA would then sort it all.
        """
        scores, parents, ids = extensions
        possible = (scores > IMPOSSIBLE / 2) & ~ops.expand_dims(state.ended, 1)
        first = ops.arange(scores.shape[1]) < self.beams
        finish = ops.equal(ids, END) & first & possible
        penalty = length_penalty(ops.cast(state.position + 1, "float32"), alpha)
        penalty = ops.expand_dims(penalty, 1)
        new_scores = ops.where(finish, scores / penalty, IMPOSSIBLE)

        all_scores = ops.concatenate([state.finished_scores, new_scores], axis=1)
        finished_scores, kept = ops.top_k(all_scores, self.beams)
        all_ancestors = ops.concatenate([state.finished_ancestors, ancestors], axis=1)
        rows = ops.concatenate([self._own_rows(state), parents + self.beams], axis=1)
        kept_rows = ops.take_along_axis(rows, kept, axis=1)
        return _rows(all_ancestors, kept_rows), finished_scores, finish

    def _live(self, state, extensions):
        """The best `beams` extensions that do not end; nothing changes where a search has ended."""
        scores, parents, ids = extensions
        ended = ops.expand_dims(state.ended, 1)
        live, kept = ops.top_k(ops.where(ops.equal(ids, END), 2 * IMPOSSIBLE, scores), self.beams)
        ids, parents = (ops.take_along_axis(x, kept, axis=1) for x in (ids, parents))
        return (
            ops.where(ended, state.ids, ids),
            ops.where(ended, state.scores, live),
            ops.where(ended, self._own_rows(state), parents),
        )

    def _ended(self, state, scores, finished_scores, finish, constraints, alpha):
        """bool, (batch,): where no live hypothesis can still come among the n_best."""
        longest = length_penalty(ops.cast(constraints.max_length, "float32"), alpha)
        best_possible = ops.max(scores, axis=1) / longest  # if no further token costs anything
        ended = state.ended | (state.position + 1 >= constraints.max_length)
        is_wanted = ops.arange(self.beams) < self.n_best
        worst = ops.min(ops.where(is_wanted, finished_scores, float("inf")), axis=1)
        ended = ended | (worst >= best_possible)
        if self.beams == 1:  # greedy decoding: it ends with its first END
            ended = ended | ops.any(finish, axis=1)
        return ended

    def _own_rows(self, state):
        """0, 1, ..., beams - 1 for every sentence."""
        shape = ops.shape(state.ids)[0], self.beams
        return ops.broadcast_to(ops.arange(self.beams, dtype="int32"), shape)

    def answers(self, state, alpha):
        """`Hypotheses`: the finished ones, then, if they are too few, the live ones."""
        end = ops.full_like(state.ids, END)
        finished_ids, _ = self._written(state, state.finished_ancestors, end)
        live_ids, count = self._written(state, state.ancestors, state.ids)
        penalty = length_penalty(ops.cast(count, "float32"), alpha)

        is_finished = state.finished_scores > IMPOSSIBLE / 2
        is_live = (state.scores > IMPOSSIBLE / 2) & (count > 0)
        ids = ops.concatenate([finished_ids, live_ids], axis=1)
        scores = ops.concatenate([state.finished_scores, state.scores / penalty], axis=1)
        possible = ops.concatenate([is_finished, is_live], axis=1)

        # Both kinds are sorted: the first `number` are finished, the live ones follow.
        number = ops.sum(ops.cast(is_finished, "int32"), axis=1, keepdims=True)
        rank = ops.expand_dims(ops.arange(self.n_best, dtype="int32"), 0)
        finished = rank < number
        chosen = ops.where(finished, rank, self.beams + rank - number)
        possible = ops.take_along_axis(possible, chosen, axis=1)
        scores = ops.where(possible, ops.take_along_axis(scores, chosen, axis=1), -float("inf"))
        ids = ops.where(ops.expand_dims(possible, -1), _rows(ids, chosen), PADDING)
        return Hypotheses(ids, scores, finished & possible)

    def collect(self, answers, length):
        """`Hypotheses` of NumPy arrays, their ids cut or padded with 0."""
        return answers._replace(ids=with_length(answers.ids, length))

    def _written(self, state, ancestors, last):
        """The tokens along ancestors, without the START that they begin with, and the last one.

        Returns:
            int32, (batch, beams, length): the tokens, padded with 0.
            int32, (batch, beams): their number.
        """
        ids, slots = self._along(state.tokens, ancestors)
        count = ops.sum(ops.cast(ops.any(slots, axis=-1), "int32"), axis=-1)
        positions = ops.arange(ops.shape(ids)[-1], dtype="int32")
        here = ops.equal(positions, ops.expand_dims(count - 1, -1))
        return ops.where(here, ops.expand_dims(last, -1), ids), count

    def _along(self, tokens, ancestors):
        """The tokens in the slots of ancestors, without the START that they begin with.

        Returns:
            int32, (batch, beams, length): the tokens, padded with 0.
            bool, (batch, beams, length, beams): the ancestors.
        """
        slots = ops.reshape(ancestors, (-1, self.beams, ops.shape(tokens)[1], self.beams))
        ids = ops.sum(ops.where(slots, ops.expand_dims(tokens, 1), PADDING), axis=-1)
        return ops.concatenate([ids[..., 1:], ops.zeros_like(ids[..., :1])], axis=-1), slots


def _rolled(mask, first):
    """A mask of slots, (batch, beams, length * beams), from slot `first` on, (batch,), around."""
    beams, slots = mask.shape[1], ops.shape(mask)[2]
    length = slots // beams
    order = (ops.expand_dims(first, 1) + ops.arange(length, dtype="int32")) % length
    order = ops.reshape(order, (-1, 1, length, 1))
    by_slot = ops.reshape(mask, (-1, beams, length, beams))
    return ops.reshape(ops.take_along_axis(by_slot, order, axis=2), (-1, beams, slots))


def _rows(x, indices):
    """x[b, indices[b]], for x (batch, rows, width) and indices (batch, number)."""
    batch, rows, width = ops.shape(x)
    first = ops.expand_dims(rows * ops.arange(batch, dtype="int32"), 1)  # row of each sentence
    return ops.take(ops.reshape(x, (-1, width)), first + indices, axis=0)
