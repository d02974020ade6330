"""Several hypotheses a sentence: beam search."""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from ..tokenizers import END, PADDING, START
from .steps import IMPOSSIBLE, allowed, padded_to, until_ended


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
    num_finished: Any  # int32, (batch,), how many have ended so far
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
    batch = len(ended)
    scores = np.full((batch, beams), IMPOSSIBLE, "float32")
    first_alone = scores.copy()  # all beams begin alike: only one of them counts
    first_alone[:, 0] = 0
    return Beams(
        position=np.int32(0),
        ids=np.full((batch, beams), START, "int32"),
        past=past,
        read=np.full((batch, length, beams), PADDING, "int32"),
        lineage=np.zeros((batch, beams, length * beams), bool),
        scores=first_alone,
        finished_lineage=np.zeros((batch, beams, length * beams), bool),
        finished_scores=scores,
        num_finished=np.zeros(batch, "int32"),
        ended=ended,
    )


def loop(model, state, context, bounds, settings, stop, n_best):
    """Advances all searches to position `stop`; `settings`: alpha and beams * patience."""
    alpha, enough = settings[0], settings[1]
    beams = state.ids.shape[1]
    places = ops.arange(state.lineage.shape[-1], dtype="int32")

    def advance(state):
        position, ended = state.position, ops.expand_dims(state.ended, 1)
        own_place = position * beams + ops.arange(beams, dtype="int32")
        here = ops.equal(ops.expand_dims(own_place, 1), places)  # (beams, places)
        here = ops.logical_and(here, ops.logical_not(ops.expand_dims(ended, 1)))
        lineage = ops.logical_or(state.lineage, here)
        read = ops.slice_update(state.read, (0, position, 0), ops.expand_dims(state.ids, 1))
        logits, past = model.step(state.ids, position, state.past, context, lineage)

        # The 2 * beams best extensions: at least half of them do not end.
        normaliser = ops.expand_dims(ops.logsumexp(logits, axis=-1) - state.scores, -1)
        best, ids = top_k(allowed(logits, position, bounds), 2 * beams)
        ids = ops.cast(ids, "int32")
        per_beam = best.shape[-1]
        best = ops.reshape(best - normaliser, (-1, beams * per_beam))
        scores, chosen = ops.top_k(best, min(2 * beams, beams * per_beam))
        ids = ops.take_along_axis(ops.reshape(ids, (-1, beams * per_beam)), chosen, axis=1)
        parent = ops.cast(chosen, "int32") // per_beam
        ends = ops.equal(ids, END)

        # Those that end among the first `beams` join the finished, in order of their scores.
        possible = ops.logical_and(scores[:, :beams] > IMPOSSIBLE / 2, ops.logical_not(ended))
        finish = ops.logical_and(ends[:, :beams], possible)
        penalty = length_penalty(ops.cast(position + 1, "float32"), alpha)
        finish_scores = ops.where(finish, scores[:, :beams] / penalty, IMPOSSIBLE)
        merged = ops.concatenate([state.finished_scores, finish_scores], axis=1)
        finished_scores, kept = ops.top_k(merged, beams)
        lineages = ops.concatenate([state.finished_lineage, lineage], axis=1)
        whose = ops.concatenate([_counted(parent, beams), parent[:, :beams] + beams], axis=1)
        finished_lineage = _rows(lineages, ops.take_along_axis(whose, kept, axis=1))
        num_finished = state.num_finished + ops.sum(ops.cast(finish, "int32"), axis=1)

        # The best `beams` of the others live on.
        live, kept = ops.top_k(ops.where(ends, 2 * IMPOSSIBLE, scores), beams)
        parent = ops.take_along_axis(parent, kept, axis=1)
        parent = ops.where(ended, _counted(parent, beams), parent)
        live = ops.where(ended, state.scores, live)
        ids = ops.where(ended, state.ids, ops.take_along_axis(ids, kept, axis=1))

        # What a live one may still reach: no token more costs nothing at best.
        reach = live[:, 0] / length_penalty(ops.cast(bounds.longest, "float32"), alpha)
        lost = finished_scores[:, n_best - 1] >= reach
        over = ops.logical_or(lost, ops.cast(num_finished, "float32") >= enough)
        over = ops.logical_or(over, position + 1 >= bounds.longest)
        return Beams(
            position + 1,
            ids,
            past,
            read,
            _rows(lineage, parent),
            live,
            finished_lineage,
            finished_scores,
            num_finished,
            ops.logical_or(state.ended, over),
        )

    return until_ended(state, stop, advance)


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


def top_k(x, k):
    """ops.top_k along the last axis; all of it where it is no longer than k.

    Of a long axis it ranks only the k blocks with the largest maxima: no other block can hold one
    of the k largest. XLA on a CPU is a sixth faster so; PyTorch is not.
    """
    size, k = x.shape[-1], min(k, x.shape[-1])
    block = next((b for b in range(100, 31, -1) if size % b == 0), size)
    if size < 4 * k * block or keras.backend.backend() == "torch":
        return ops.top_k(x, k)
    blocks = ops.reshape(x, (*x.shape[:-1], size // block, block))
    _, which = ops.top_k(ops.max(blocks, axis=-1), k)
    within = ops.take_along_axis(blocks, ops.expand_dims(which, -1), axis=-2)
    best, place = ops.top_k(ops.reshape(within, (*x.shape[:-1], k * block)), k)
    return best, ops.take_along_axis(which, place // block, axis=-1) * block + place % block


def _counted(like, number):
    """0, 1, ..., number - 1 in every row of `like`."""
    return ops.broadcast_to(ops.arange(number, dtype="int32"), (like.shape[0], number))


def _rows(x, indices):
    """x[b, indices[b]], for x (batch, rows, width) and indices (batch, number)."""
    return ops.take_along_axis(x, ops.expand_dims(indices, -1), axis=1)
