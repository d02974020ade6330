"""Decoding: one step over a cache of keys and values, and the searches around it.

A model is searched through three methods, so that an encoder-decoder and a decoder-only model use
the same code: `decoding_context` (what stays the same from step to step), `empty_past` (a cache)
and `step` (the logits that follow the tokens of one position). A search is a loop around `step`,
compiled once for each shape of its input.
"""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from .tokenizers import END, PADDING, START
from .training import nats_per_token

NEVER = (PADDING, START)  # these ids are never a label, so they are never an answer
IMPOSSIBLE = -1e9  # log-probability of what may not be, finite so that sums and gradients stay so
FIRST_LENGTH = 32  # tokens that the first cache holds; it doubles when they are used up


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


class Bounds(NamedTuple):
    """What restricts an answer, one row a sentence; None where nothing does.

    Args:
        longest: int32, (batch,), the most tokens, END included.
        shortest: int32, (batch,), the fewest tokens before END.
        prefix: int32, (batch, length), what an answer begins with, padded with 0.
    """

    longest: Any
    shortest: Any = None
    prefix: Any = None


class Chain(NamedTuple):
    """Where greedy decoding or sampling stands: one hypothesis a sentence."""

    position: Any  # int32 scalar, of the next token to be read
    ids: Any  # int32, (batch, 1), that token
    past: Any  # the model's cache, its axis -2 one place a position
    answers: Any  # int32, (batch, length), what was written
    ended: Any  # bool, (batch,)


class Beams(NamedTuple):
    """Where a beam search stands. Caches are never reordered.

    Position t of beam k lies where it was written, in place (t, k); `lineage` tells the places that
    a hypothesis descends from, and is the mask of its self-attention.
    """

    position: Any  # int32 scalar, of the next tokens to be read
    ids: Any  # int32, (batch, beams), those tokens
    past: Any  # the model's cache, its axis -2 one place for each (position, beam)
    read: Any  # int32, (batch, length, beams), the tokens at all places
    lineage: Any  # bool, (batch, beams, length * beams), of the live hypotheses
    scores: Any  # float32, (batch, beams), their log-probabilities, falling
    finished_lineage: Any  # bool, (batch, beams, length * beams); END follows
    finished_scores: Any  # float32, (batch, beams), log-probability / length penalty, falling
    num_finished: Any  # int32, (batch,), how many have ended so far
    ended: Any  # bool, (batch,), the search


def length_penalty(length, alpha):
    """((5 + length) / 6)^alpha, length in tokens with END; a score is log-probability / penalty.

    Source: Wu et al. 2016 (GNMT), equation 14, without its coverage penalty.
    """
    return ((5.0 + length) / 6.0) ** alpha


class Decoding:
    """Searches for the answers of one model.

    What depends on the source alone is computed once; every step feeds one token a hypothesis
    through the decoder; a loop ends when all sentences have ended. It is one XLA program on TensorFlow and
    JAX, and eager under inference mode on PyTorch.

    Args:
        model: a `Transformer`, or a model with its methods `decoding_context`, `empty_past` and
            `step`. Its weights may go on training: they are read at each call.

    Source: Vaswani et al. 2017, section 3.1 ("auto-regressive").
    """

    def __init__(self, model):
        self.model = model
        self._context = _compiled(model.decoding_context, model, "max_length")
        self._chain = _compiled(self._chain_loop, model, "top_k")
        self._beams = _compiled(self._beam_loop, model, "n_best")
        self._score = _compiled(self._score_targets, model)

    def greedy(self, source_ids, max_length, min_length=None, prefix=None):
        """The most probable next token, again and again.

        Args:
            source_ids: int, (batch, source length), padded with 0. A row of padding only is
                there to fill the batch; it ends at once.
            max_length: int, or (batch,), the most tokens of an answer, END included. The cache
                has room for an int exactly; the largest of several is rounded up, so that there
                are few shapes to compile.
            min_length: int, or (batch,), the fewest tokens before END; None: 0.
            prefix: int, (batch, length), what the answers begin with, padded with 0; or None.

        Returns:
            NumPy int32, (batch, longest max_length): the answers, END included if they came to it,
            padded with 0.
        """
        state, context, bounds, room = self._begin_chain(source_ids, max_length, min_length, prefix)
        state = self._run(self._chain, room, state, context, bounds, None, top_k=None)
        return _padded_to(ops.convert_to_numpy(state.answers), np.max(max_length))

    def sample(
        self,
        source_ids,
        max_length,
        seeds,
        temperature=1.0,
        top_k=None,
        top_p=1.0,
        min_length=None,
        prefix=None,
    ):
        """Answers drawn from the model's distribution, reproducible and each from its own seed.

        Args:
            source_ids, max_length, min_length, prefix: as in `greedy`.
            seeds: sequence of int from 0, one a row: its random numbers depend on nothing else.
            temperature: float above 0; logits are divided by it.
            top_k: int or None, draw from the k most probable tokens only.
            top_p: float in (0, 1], draw from the fewest tokens that together reach it.

        Returns:
            As `greedy`.

        Source: Fan et al. 2018 (top-k); Holtzman et al. 2020 (top-p, "nucleus").
        """
        _check_sampling(temperature, top_k, top_p)
        state, context, bounds, room = self._begin_chain(source_ids, max_length, min_length, prefix)
        draw = _draw(seeds, len(source_ids), room, temperature, top_p)
        state = self._run(self._chain, room, state, context, bounds, draw, top_k=top_k or 0)
        return _padded_to(ops.convert_to_numpy(state.answers), np.max(max_length))

    def stream(
        self,
        source_ids,
        max_length,
        seeds=None,
        temperature=1.0,
        top_k=None,
        top_p=1.0,
        min_length=None,
        prefix=None,
    ):
        """`greedy`, or with seeds `sample`, a position at a time; arguments as there.

        Yields:
            NumPy int32, (batch,), the next token of each sentence; 0 after its end.
        """
        draw = None
        if seeds is not None:
            _check_sampling(temperature, top_k, top_p)
        state, context, bounds, room = self._begin_chain(source_ids, max_length, min_length, prefix)
        if seeds is not None:
            draw, top_k = _draw(seeds, len(source_ids), room, temperature, top_p), top_k or 0
        for position in range(np.max(max_length)):
            state = _with_room(state, position, room)
            stop = ops.convert_to_tensor(position + 1, "int32")
            state = self._chain(state, context, bounds, draw, stop, top_k=top_k)
            yield ops.convert_to_numpy(state.ids)[:, 0]
            if ops.convert_to_numpy(state.ended).all():
                return

    def beam_search(
        self,
        source_ids,
        max_length,
        beams=4,
        alpha=0.6,
        n_best=1,
        min_length=None,
        prefix=None,
        patience=1.0,
    ):
        """The best hypotheses that a beam of a given width finds.

        Each step ranks the extensions of all live hypotheses by log-probability. Those among the
        first `beams` that end are finished: they leave the beam and are never extended or pushed
        out by an extension. The best `beams` that do not end live on. A search ends when
        beams * patience hypotheses have finished, or as soon as no live one can still win.

        Args:
            source_ids, max_length, min_length, prefix: as in `greedy`.
            beams: int, live hypotheses.
            alpha: float from 0, exponent of `length_penalty`.
            n_best: int, at most `beams`: how many to return.
            patience: float above 0.

        Returns:
            `Hypotheses`: the finished ones, best first; then, if there are not enough of them,
            live ones that the length limit cut off.

        Source: Wu et al. 2016, section 7; Kasai et al. 2022 (patience; 1 is common practice).
        """
        _check(beams >= 1, "beams must be at least 1", beams=beams)
        _check(1 <= n_best <= beams, "n_best must be from 1 to beams", n_best=n_best, beams=beams)
        _check(alpha >= 0, "length_penalty must be at least 0", length_penalty=alpha)
        _check(patience > 0, "patience must be above 0", patience=patience)
        source_ids, bounds, room = self._checked(source_ids, max_length, min_length, prefix)
        batch, length = len(source_ids), min(FIRST_LENGTH, room)
        scores = np.full((batch, beams), IMPOSSIBLE, "float32")
        first_alone = scores.copy()  # all beams begin alike: only one of them counts
        first_alone[:, 0] = 0
        state = Beams(
            position=np.int32(0),
            ids=np.full((batch, beams), START, "int32"),
            past=self.model.empty_past(batch, length * beams),
            read=np.full((batch, length, beams), PADDING, "int32"),
            lineage=np.zeros((batch, beams, length * beams), bool),
            scores=first_alone,
            finished_lineage=np.zeros((batch, beams, length * beams), bool),
            finished_scores=scores,
            num_finished=np.zeros(batch, "int32"),
            ended=(source_ids == PADDING).all(axis=1),
        )
        context = self._context(ops.convert_to_tensor(source_ids), max_length=room)
        settings = ops.convert_to_tensor([alpha, beams * patience], "float32")
        state = _tensors(state)
        state = self._run(self._beams, room, state, context, bounds, settings, n_best=n_best)
        return _hypotheses(state, n_best, alpha, np.max(max_length))

    def score(self, source_ids, target_ids):
        """Log-probabilities of given answers, by teacher forcing.

        Args:
            source_ids: int, (batch, source length), padded with 0.
            target_ids: int, (batch, target length), END included, padded with 0.

        Returns:
            NumPy float32, (batch, target length), nats, 0 at padding.
        """
        source_ids, target_ids = (np.asarray(x, "int32") for x in (source_ids, target_ids))
        return ops.convert_to_numpy(self._score(*_tensors((source_ids, target_ids))))

    def _score_targets(self, source_ids, target_ids):
        read = ops.pad(target_ids[:, :-1], ((0, 0), (1, 0)), constant_values=START)
        logits = self.model({"source_ids": source_ids, "target_ids": read})
        return ops.where(ops.equal(target_ids, PADDING), 0.0, -nats_per_token(target_ids, logits))

    # One sentence, one hypothesis.

    def _begin_chain(self, source_ids, max_length, min_length, prefix):
        source_ids, bounds, room = self._checked(source_ids, max_length, min_length, prefix)
        batch, length = len(source_ids), min(FIRST_LENGTH, room)
        state = Chain(
            position=np.int32(0),
            ids=np.full((batch, 1), START, "int32"),
            past=self.model.empty_past(batch, length),
            answers=np.full((batch, length), PADDING, "int32"),
            ended=(source_ids == PADDING).all(axis=1),
        )
        context = self._context(ops.convert_to_tensor(source_ids), max_length=room)
        return _tensors(state), context, bounds, room

    def _chain_loop(self, state, context, bounds, draw, stop, top_k):
        """Advances all sentences to position `stop`; greedy where `top_k` is None."""
        places = ops.arange(state.answers.shape[1])

        def unfinished(*state):
            state = Chain(*state)
            return ops.logical_and(state.position < stop, ops.logical_not(ops.all(state.ended)))

        def body(*state):
            state = Chain(*state)
            position = state.position
            seen = ops.reshape(places <= position, (1, 1, -1))
            logits, past = self.model.step(state.ids, position, state.past, context, seen)
            logits = _allowed(logits, position, bounds)[:, 0]
            if top_k is None:
                ids = ops.cast(ops.argmax(logits, axis=-1), "int32")
            else:
                ids = _drawn(logits, position, draw, top_k)
            ids = ops.where(state.ended, PADDING, ids)
            answers = ops.slice_update(state.answers, (0, position), ops.expand_dims(ids, 1))
            last = ops.logical_or(ops.equal(ids, END), position + 1 >= bounds.longest)
            ended = ops.logical_or(state.ended, last)
            return Chain(position + 1, ops.expand_dims(ids, 1), past, answers, ended)

        return Chain(*ops.while_loop(unfinished, body, tuple(state)))

    # One sentence, several hypotheses.

    def _beam_loop(self, state, context, bounds, settings, stop, n_best):
        """Advances all searches to position `stop`."""
        alpha, enough = settings[0], settings[1]
        beams = state.ids.shape[1]
        places = ops.arange(state.lineage.shape[-1], dtype="int32")

        def unfinished(*state):
            state = Beams(*state)
            return ops.logical_and(state.position < stop, ops.logical_not(ops.all(state.ended)))

        def body(*state):
            state = Beams(*state)
            position, ended = state.position, ops.expand_dims(state.ended, 1)
            own_place = position * beams + ops.arange(beams, dtype="int32")
            here = ops.equal(ops.expand_dims(own_place, 1), places)  # (beams, places)
            here = ops.logical_and(here, ops.logical_not(ops.expand_dims(ended, 1)))
            lineage = ops.logical_or(state.lineage, here)
            read = ops.slice_update(state.read, (0, position, 0), ops.expand_dims(state.ids, 1))
            logits, past = self.model.step(state.ids, position, state.past, context, lineage)

            # The 2 * beams best extensions: at least half of them do not end.
            normaliser = ops.expand_dims(ops.logsumexp(logits, axis=-1) - state.scores, -1)
            best, ids = _top_k(_allowed(logits, position, bounds), 2 * beams)
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

        return Beams(*ops.while_loop(unfinished, body, tuple(state)))

    # What all searches share.

    def _checked(self, source_ids, max_length, min_length, prefix):
        """The source as NumPy int32, the bounds as tensors, and how long an answer may become."""
        source_ids = np.asarray(source_ids, "int32")
        shape = source_ids.shape
        _check(source_ids.ndim == 2 and all(shape), "source_ids must be (batch, length)", shape=shape)
        _check_ids("source_ids", source_ids, getattr(self.model, "source_vocabulary_size", None))
        longest = int(np.max(max_length))
        _check(np.min(max_length) >= 1, "max_length must be at least 1", max_length=max_length)
        room = longest
        if np.ndim(max_length):
            while room & (room - 1) or room < FIRST_LENGTH:  # the next power of two
                room += 1
            room = min(room, getattr(self.model, "max_length", None) or room)

        def one_a_row(lengths):
            return np.broadcast_to(np.asarray(lengths, "int32"), len(source_ids))

        bounds = Bounds(one_a_row(max_length))
        if min_length is not None and np.any(min_length):
            _check(np.min(min_length) >= 0, "min_length must be at least 0", min_length=min_length)
            bounds = bounds._replace(shortest=one_a_row(min_length))
        if prefix is not None:
            _check_ids("prefix", prefix, getattr(self.model, "target_vocabulary_size", None))
            bounds = bounds._replace(prefix=_padded_to(np.asarray(prefix, "int32"), room))
        return source_ids, _tensors(bounds), room

    def _run(self, program, room, state, context, bounds, numbers, **static):
        """Runs a loop to its end, giving it a larger cache each time that one is full."""
        length = 0
        while length < room:
            state = _with_room(state, length, room)
            length = _length(state)
            stop = ops.convert_to_tensor(length, "int32")
            state = program(state, context, bounds, numbers, stop, **static)
            if ops.convert_to_numpy(state.ended).all():
                break
        return state


class Draw(NamedTuple):
    """What sampling needs besides the logits."""

    uniforms: Any  # float32, (batch, longest), in [0, 1): all the chance there is
    temperature: Any  # float32 scalar
    top_p: Any  # float32 scalar


def _draw(seeds, batch, room, temperature, top_p):
    _check(len(seeds) == batch, "seeds must be one for each row", rows=batch, seeds=seeds)
    uniforms = [np.random.default_rng(seed).random(room, "float32") for seed in seeds]
    return _tensors(Draw(np.stack(uniforms), np.float32(temperature), np.float32(top_p)))


def _check_sampling(temperature, top_k, top_p):
    _check(temperature > 0, "temperature must be above 0", temperature=temperature)
    _check(0 < top_p <= 1, "top_p must be above 0 and at most 1", top_p=top_p)
    _check(top_k is None or top_k >= 1, "top_k must be at least 1", top_k=top_k)


def _drawn(logits, position, draw, top_k):
    """int32, (batch,): ids drawn by inverting the cumulative distribution at a uniform number."""
    size = logits.shape[-1]
    logits, ids = ops.top_k(logits / draw.temperature, min(top_k or size, size))  # falling
    p = ops.softmax(logits)
    p = ops.where(ops.cumsum(p, axis=-1) - p < draw.top_p, p, 0.0)  # more probable ones suffice
    cumulative = ops.cumsum(p, axis=-1)
    uniform = ops.slice(draw.uniforms, (0, position), (logits.shape[0], 1))
    below = ops.logical_and(cumulative <= uniform * cumulative[:, -1:], p > 0)
    number = ops.sum(ops.cast(below, "int32"), axis=-1, keepdims=True)
    last = ops.sum(ops.cast(p > 0, "int32"), axis=-1, keepdims=True) - 1  # were it rounded up to 1
    return ops.cast(ops.take_along_axis(ids, ops.minimum(number, last), axis=-1)[:, 0], "int32")


def _allowed(logits, position, bounds):
    """The logits, (batch, hypotheses, vocabulary size), at -1e9 where the bounds forbid an id."""
    ids = np.arange(logits.shape[-1])
    logits = ops.add(logits, np.where(np.isin(ids, NEVER), IMPOSSIBLE, 0).astype("float32"))
    if bounds.shortest is not None:
        too_short = ops.reshape(position < bounds.shortest, (-1, 1, 1))
        logits = ops.where(ops.logical_and(too_short, ids == END), IMPOSSIBLE, logits)
    if bounds.prefix is not None:
        forced = ops.slice(bounds.prefix, (0, position), (bounds.prefix.shape[0], 1))
        forced = ops.expand_dims(forced, -1)
        free = ops.logical_or(ops.equal(forced, PADDING), ops.equal(forced, ids.astype("int32")))
        logits = ops.where(free, logits, IMPOSSIBLE)
    return logits


def _top_k(x, k):
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


def _length(state):
    """How many positions a state has room for."""
    return (state.answers if isinstance(state, Chain) else state.read).shape[1]


def _with_room(state, position, room):
    """The state with a place for `position`: twice as long if need be, but at most `room`."""
    length = _length(state)
    if position < length:
        return state
    more = min(2 * length, room) - length

    def grown(x, axis):
        padding = [(0, 0)] * len(x.shape)
        padding[axis] = (0, more * x.shape[axis] // length)
        return ops.pad(x, padding)

    state = state._replace(past=keras.tree.map_structure(lambda x: grown(x, -2), state.past))
    if isinstance(state, Chain):
        return state._replace(answers=grown(state.answers, 1))
    return state._replace(
        read=grown(state.read, 1),
        lineage=grown(state.lineage, 2),
        finished_lineage=grown(state.finished_lineage, 2),
    )


def _hypotheses(state, n_best, alpha, longest):
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
    possible[:, beams:] &= (count > 0)
    finished = np.repeat([[True, False]], beams, axis=1) & possible
    scores = np.where(possible, scores, -np.inf).astype("float32")
    order = np.lexsort((-scores, ~finished))[:, :n_best]
    ids = np.where(possible[..., None], ids, PADDING)
    ids, scores, finished = (
        np.take_along_axis(x, order.reshape(*order.shape, *[1] * (x.ndim - 2)), axis=1)
        for x in (ids, scores, finished)
    )
    return Hypotheses(_padded_to(ids.astype("int32"), longest), scores, finished)


def _padded_to(ids, length):
    """The last axis cut or padded with 0 to `length`."""
    ids = ids[..., :length]
    return np.pad(ids, [(0, 0)] * (ids.ndim - 1) + [(0, length - ids.shape[-1])])


def _tensors(structure):
    convert = ops.convert_to_tensor
    return keras.tree.map_structure(lambda x: None if x is None else convert(x), structure)


def _check_ids(name, ids, vocabulary_size):
    """JAX would answer with NaN, silently."""
    ids, size = np.asarray(ids), vocabulary_size or np.inf
    wrong = np.argwhere((ids < 0) | (ids >= size))
    if len(wrong):
        row, position = wrong[0]
        raise ValueError(
            f"Every id of {name} must be from 0 to {size - 1}; received {ids[row, position]} in "
            f"row {row}, position {position}. Use the tokenizer that belongs to the model."
        )


def _check(holds, expected, **received):
    if not holds:
        received = ", ".join(f"{name}={value}" for name, value in received.items())
        raise ValueError(f"{expected}; received {received}.")


def _compiled(function, model, *static):
    """`function` as one program a shape, reading the weights of `model` anew each call.

    Its positional arguments are structures of tensors; those named in `static` are plain values.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=True)
    if backend == "jax":
        import jax

        def stateless(values, *args, **kwargs):
            with keras.StatelessScope(state_mapping=zip(model.variables, values)):
                return function(*args, **kwargs)

        program = jax.jit(stateless, static_argnames=static)
        return lambda *args, **kwargs: program([v.value for v in model.variables], *args, **kwargs)

    import torch

    return torch.inference_mode()(function)
