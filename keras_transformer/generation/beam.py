"""Several hypotheses a sentence: beam search."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from ..tokenizers import END, PADDING, START
from .steps import IMPOSSIBLE, best_tokens, padded_to, tensors


class Hypotheses(NamedTuple):
    """What a beam search returns, best first.

    Args:
        ids: NumPy int32, (batch, n_best, max length), END included if it came to it, padded with 0.
        scores: NumPy float32, (batch, n_best), log-probability / `length_penalty`, nats.
        finished: NumPy bool, (batch, n_best), False: cut off at the length limit.
    """

    ids: np.ndarray
    scores: np.ndarray
    finished: np.ndarray


class Beams(NamedTuple):
    """Where a beam search stands. Caches are never reordered.

    Position t of beam k lies where it was written, in place (t, k); `lineage` tells the places that
    a hypothesis descends from, and is the mask of its self-attention.
    """

    position: Any  # int32 scalar, of the next tokens to be read
    ids: Any  # int32, (batch, beams), those tokens
    past: Any  # the model's cache, one place for each (position, beam)
    read: Any  # int32, (batch, length, beams), the tokens at all places
    lineage: Any  # bool, (batch, beams, length * beams), of the live hypotheses
    scores: Any  # float32, (batch, beams), their log-probabilities, falling
    finished_lineage: Any  # bool, (batch, beams, length * beams); END follows
    finished_scores: Any  # float32, (batch, beams), log-probability / length penalty, falling
    ended: Any  # bool, (batch,), the search

    @property
    def length(self):
        """How many positions there is room for."""
        return self.read.shape[1]

    def with_room(self, more, past):
        """The state with `more` positions, in a cache that has them."""
        places = ((0, 0), (0, 0), (0, more * self.read.shape[2]))
        return self._replace(
            past=past,
            read=ops.pad(self.read, ((0, 0), (0, more), (0, 0))),
            lineage=ops.pad(self.lineage, places),
            finished_lineage=ops.pad(self.finished_lineage, places),
        )


def length_penalty(length, alpha):
    """((5 + length) / 6)^alpha, length in tokens with END; a score is log-probability / penalty.

    Source: Wu et al. 2016 (GNMT), equation 14, without its coverage penalty.
    """
    return ((5.0 + length) / 6.0) ** alpha


def begin(ended, past, length, beams):
    """The state before the first tokens."""
    batch = ended.shape[0]
    scores = np.full((batch, beams), IMPOSSIBLE, "float32")
    first_alone = scores.copy()  # all beams begin alike: only one of them counts
    first_alone[:, 0] = 0
    state = Beams(
        position=np.int32(0),
        ids=np.full((batch, beams), START, "int32"),
        past=past,
        read=np.full((batch, length, beams), PADDING, "int32"),
        lineage=np.zeros((batch, beams, length * beams), bool),
        scores=first_alone,
        finished_lineage=np.zeros((batch, beams, length * beams), bool),
        finished_scores=scores,
        ended=ended,
    )
    return tensors(state)


def advance(model, state, context, bounds, alpha, n_best):
    """One more token for every live hypothesis."""
    beams = state.ids.shape[1]
    position, ended = state.position, ops.expand_dims(state.ended, 1)
    own_place = position * beams + ops.arange(beams, dtype="int32")
    places = ops.arange(state.lineage.shape[-1], dtype="int32")
    here = ops.equal(ops.expand_dims(own_place, 1), places)  # (beams, places)
    here = ops.logical_and(here, ops.logical_not(ops.expand_dims(ended, 1)))
    lineage = ops.logical_or(state.lineage, here)
    positions = ops.arange(state.length, dtype="int32")
    here = ops.expand_dims(ops.equal(positions, position), -1)  # (length, 1)
    read = ops.where(here, ops.expand_dims(state.ids, 1), state.read)
    logits, past = model.step(state.ids, position, state.past, context, lineage)

    # The 2 * beams best extensions: at least half of them do not end.
    normaliser = ops.logsumexp(logits, axis=-1) - state.scores
    scores, chosen = best_tokens(logits, 2 * beams, position, bounds, normaliser)
    parent, ids = chosen // logits.shape[-1], chosen % logits.shape[-1]
    ends = ops.equal(ids, END)

    # Those that end among the first `beams` join the finished, in order of their scores. No
    # slice is taken of what a top_k returns: XLA would then sort all that it ranked.
    possible = ops.logical_and(scores > IMPOSSIBLE / 2, ops.logical_not(ended))
    first = ops.arange(scores.shape[1]) < beams
    finish = ops.logical_and(ops.logical_and(ends, first), possible)
    penalty = length_penalty(ops.cast(position + 1, "float32"), alpha)
    finish_scores = ops.where(finish, scores / penalty, IMPOSSIBLE)
    merged = ops.concatenate([state.finished_scores, finish_scores], axis=1)
    finished_scores, kept = ops.top_k(merged, beams)
    lineages = ops.concatenate([state.finished_lineage, lineage], axis=1)
    whose = ops.concatenate([_counted(parent, beams), parent + beams], axis=1)
    finished_lineage = _rows(lineages, ops.take_along_axis(whose, kept, axis=1))

    # The best `beams` of the others live on.
    live, kept = ops.top_k(ops.where(ends, 2 * IMPOSSIBLE, scores), beams)
    parent = ops.take_along_axis(parent, kept, axis=1)
    parent = ops.where(ended, _counted(parent, beams), parent)
    live = ops.where(ended, state.scores, live)
    ids = ops.where(ended, state.ids, ops.take_along_axis(ids, kept, axis=1))

    # What a live one may still reach: no token more costs nothing at best.
    reach = live[:, 0] / length_penalty(ops.cast(bounds.longest, "float32"), alpha)
    lost = finished_scores[:, n_best - 1] >= reach
    over = ops.logical_or(lost, position + 1 >= bounds.longest)
    if beams == 1:  # greedy decoding: the second best does not live on
        over = ops.logical_or(over, ops.any(finish, axis=1))
    return Beams(
        position + 1,
        ids,
        past,
        read,
        _rows(lineage, parent),
        live,
        finished_lineage,
        finished_scores,
        ops.logical_or(state.ended, over),
    )


def hypotheses(state, n_best, alpha, longest):
    """The finished hypotheses, best first; after them the live ones."""
    state = Beams(*(None if x is state.past else ops.convert_to_numpy(x) for x in state))
    batch, length, beams = state.read.shape

    def written(lineage, last):
        """The ids along a lineage, without the START that it begins with, and a last one."""
        places = lineage.reshape(batch, beams, length, beams)
        ids = (places * state.read[:, None]).sum(axis=-1)
        count = places.any(axis=-1).sum(axis=-1)
        ids = np.concatenate([ids[..., 1:], np.zeros_like(ids[..., :1])], axis=-1)
        np.put_along_axis(ids, np.maximum(count - 1, 0)[..., None], last[..., None], axis=-1)
        return ids, count

    finished_ids, _ = written(state.finished_lineage, np.full((batch, beams), END))
    live_ids, count = written(state.lineage, state.ids)
    live_scores = state.scores / length_penalty(count, alpha)
    ids = np.concatenate([finished_ids, live_ids], axis=1)
    scores = np.concatenate([state.finished_scores, live_scores], axis=1)
    possible = np.concatenate([state.finished_scores, state.scores], axis=1) > IMPOSSIBLE / 2
    possible[:, beams:] &= count > 0
    finished = np.repeat([[True, False]], beams, axis=1) & possible
    scores = np.where(possible, scores, -np.inf).astype("float32")
    order = np.lexsort((-scores, ~finished))[:, :n_best]
    ids = np.where(possible[..., None], ids, PADDING)
    ids, scores, finished = (
        np.take_along_axis(x, order.reshape(*order.shape, *[1] * (x.ndim - 2)), axis=1)
        for x in (ids, scores, finished)
    )
    return Hypotheses(padded_to(ids.astype("int32"), longest), scores, finished)


def _counted(like, number):
    """0, 1, ..., number - 1 in every row of `like`."""
    return ops.broadcast_to(ops.arange(number, dtype="int32"), (like.shape[0], number))


def _rows(x, indices):
    """x[b, indices[b]], for x (batch, rows, width) and indices (batch, number)."""
    return ops.take_along_axis(x, ops.expand_dims(indices, -1), axis=1)
