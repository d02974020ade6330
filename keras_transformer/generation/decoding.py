"""The searches for an answer, over any model that can take one step.

A model is searched through three methods, so that an encoder-decoder and a decoder-only model use
the same code: `decoding_context` (what stays the same from step to step), `empty_past` (a cache)
and `step` (the logits that follow the tokens of one position); `teacher_forced` scores answers. A
search is a loop around `step`, compiled once for each shape of its input.
"""

import functools

import keras
import numpy as np
from keras import ops

from ..arguments import check, check_at_least
from ..tokenizers import PADDING, START
from ..training import nats_per_token
from . import beam, chain
from .steps import Bounds, compiled, padded_to, recorded, tensors

FIRST_LENGTH = 32  # tokens that the first cache holds; it doubles when they are used up


class Decoding:
    """Searches for the answers of one model.

    What depends on the source alone is computed once; every step feeds one token a hypothesis
    through the decoder; a loop ends when all sentences have ended. It is one XLA program on
    TensorFlow and JAX, and on PyTorch a loop over recorded operations (`steps.recorded`).

    Args:
        model: a `Transformer`, a `LanguageModel` (whose source is ignored; a prompt is the
            `prefix`), or a model with their methods. Its weights may go on training: they are read
            at each call.

    Source: Vaswani et al. 2017, section 3.1 ("auto-regressive").
    """

    def __init__(self, model):
        self.model = model
        self._chain = _Search(model, chain, "k")
        self._beam = _Search(model, beam, "n_best")
        self._score = compiled(self._score_targets, model)

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
        source_ids, bounds, room = self._checked(source_ids, max_length, min_length, prefix)
        state = self._chain.run(source_ids, bounds, None, room, k=None)
        return chain.answers(state, np.max(max_length))

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
        source_ids, bounds, room = self._checked(source_ids, max_length, min_length, prefix)
        draw = chain.chance(seeds, len(source_ids), room, temperature, top_k, top_p)
        state = self._chain.run(source_ids, bounds, draw, room, k=top_k)
        return chain.answers(state, np.max(max_length))

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
        source_ids, bounds, room = self._checked(source_ids, max_length, min_length, prefix)
        draw = None
        if seeds is not None:
            draw = chain.chance(seeds, len(source_ids), room, temperature, top_k, top_p)
        stops = range(1, np.max(max_length) + 1)
        for state in self._chain.states(source_ids, bounds, draw, room, stops, k=top_k):
            yield ops.convert_to_numpy(state.ids)[:, 0]

    def beam_search(
        self,
        source_ids,
        max_length,
        beams=4,
        alpha=0.6,
        n_best=1,
        min_length=None,
        prefix=None,
    ):
        """The best hypotheses that a beam of a given width finds.

        Each step ranks the extensions of all live hypotheses by log-probability. Those among the
        first `beams` that end are finished: they leave the beam and are never extended or pushed
        out by an extension. The best `beams` that do not end live on. A search ends as soon as
        no live hypothesis can still come among the n_best, however long it became. One beam is
        greedy decoding: it ends with its first END.

        Args:
            source_ids, max_length, min_length, prefix: as in `greedy`.
            beams: int, live hypotheses.
            alpha: float from 0, exponent of `length_penalty`.
            n_best: int, at most `beams`: how many to return.

        Returns:
            `Hypotheses`: the finished ones, best first; then, if there are not enough of them,
            live ones that the length limit cut off.

        Source: Wu et al. 2016, section 7.
        Departs: many engines stop once `beams` hypotheses have finished, and so miss a better
            one that is a token longer: 0.2 BLEU on Multi30k (docs/results.md).
        """
        check_at_least(1, beams=beams)
        check(1 <= n_best <= beams, "n_best must be from 1 to beams", n_best=n_best, beams=beams)
        check(alpha >= 0, "length_penalty must be at least 0", length_penalty=alpha)
        source_ids, bounds, room = self._checked(source_ids, max_length, min_length, prefix)
        numbers = ops.convert_to_tensor(alpha, "float32")
        state = self._beam.run(source_ids, bounds, numbers, room, width=beams, n_best=n_best)
        return beam.hypotheses(state, n_best, alpha, np.max(max_length))

    def score(self, source_ids, target_ids):
        """Log-probabilities of given answers, by teacher forcing.

        Args:
            source_ids: int, (batch, source length), padded with 0.
            target_ids: int, (batch, target length), END included, padded with 0.

        Returns:
            NumPy float32, (batch, target length), nats, 0 at padding.
        """
        source_ids, target_ids = (np.asarray(x, "int32") for x in (source_ids, target_ids))
        return ops.convert_to_numpy(self._score(*tensors((source_ids, target_ids))))

    def _score_targets(self, source_ids, target_ids):
        read = ops.pad(target_ids[:, :-1], ((0, 0), (1, 0)), constant_values=START)
        logits = self.model.teacher_forced(source_ids, read)
        return ops.where(ops.equal(target_ids, PADDING), 0.0, -nats_per_token(target_ids, logits))

    def _checked(self, source_ids, max_length, min_length, prefix):
        """The source as NumPy int32, the bounds as tensors, and how long an answer may become."""
        source_ids = np.asarray(source_ids, "int32")
        shape = source_ids.shape
        check(
            source_ids.ndim == 2 and all(shape), "source_ids must be (batch, length)", shape=shape
        )
        _check_ids("source_ids", source_ids, getattr(self.model, "source_vocabulary_size", None))
        check(np.min(max_length) >= 1, "max_length must be at least 1", max_length=max_length)
        room = int(np.max(max_length))
        if np.ndim(max_length):
            room = max(FIRST_LENGTH, 1 << (room - 1).bit_length())  # the next power of two
            room = min(room, getattr(self.model, "max_length", None) or room)

        def one_a_row(lengths):
            return np.broadcast_to(np.asarray(lengths, "int32"), len(source_ids))

        bounds = Bounds(one_a_row(max_length))
        if min_length is not None and np.any(min_length):
            check(np.min(min_length) >= 0, "min_length must be at least 0", min_length=min_length)
            bounds = bounds._replace(shortest=one_a_row(min_length))
        if prefix is not None:
            _check_ids("prefix", prefix, getattr(self.model, "target_vocabulary_size", None))
            bounds = bounds._replace(prefix=padded_to(np.asarray(prefix, "int32"), room))
        return source_ids, tensors(bounds), room


class _Search:
    """One kind of search over a model: the module `chain` or `beam`, as two compiled programs.

    The first reads the source and goes as far as the first cache allows, which for short answers
    is all; the second goes on in a larger one.

    Args:
        model: as in `Decoding`.
        kind: module with `begin` and `advance`.
        option: name of the argument of `advance` that is a plain value, not a tensor.
    """

    def __init__(self, model, kind, option):
        self.model, self.kind = model, kind
        self._context = recorded(model.decoding_context)
        self._advance = recorded(functools.partial(kind.advance, model))
        self._first = compiled(self._first_loop, model, "room", "length", "width", option)
        self._next = compiled(self._loop, model, option)

    def _first_loop(self, source_ids, bounds, numbers, stop, room, length, width, **option):
        """The source read, and the state at position `stop`."""
        ended = ops.all(ops.equal(source_ids, PADDING), axis=1)
        past = self.model.empty_past(source_ids.shape[0], length * width)
        state = self.kind.begin(ended, past, length, width)
        context = self._context(source_ids, max_length=room)
        return self._loop(state, context, bounds, numbers, stop, **option), context

    def _loop(self, state, context, bounds, numbers, stop, **option):
        """Advances to position `stop`, or until all sentences have ended."""

        def unfinished(*state):
            state = kind(*state)
            return ops.logical_and(state.position < stop, ops.logical_not(ops.all(state.ended)))

        def advance(*state):
            return self._advance(kind(*state), context, bounds, numbers, **option)

        kind = type(state)
        return kind(*ops.while_loop(unfinished, advance, tuple(state)))

    def states(self, source_ids, bounds, numbers, room, stops, width=1, **option):
        """Yields the state at each of the positions `stops`, until all sentences have ended."""
        state, source_ids = None, ops.convert_to_tensor(source_ids)
        for stop in stops:
            given = bounds, numbers, ops.convert_to_tensor(stop, "int32")
            if state is None:
                sizes = dict(room=room, length=min(FIRST_LENGTH, room), width=width)
                state, context = self._first(source_ids, *given, **sizes, **option)
            else:
                state = self._next(self._with_room(state, stop, room), context, *given, **option)
            yield state
            if ops.convert_to_numpy(state.ended).all():
                return

    def run(self, source_ids, bounds, numbers, room, width=1, **option):
        """The state at the end, the cache doubled each time that it is full."""
        stops = [min(FIRST_LENGTH, room)]
        while stops[-1] < room:
            stops.append(min(2 * stops[-1], room))
        *_, state = self.states(source_ids, bounds, numbers, room, stops, width, **option)
        return state

    def _with_room(self, state, stop, room):
        """The state with a place for every position before `stop`."""
        if stop <= state.length:
            return state
        length = min(2 * state.length, room)
        batch, width = state.ids.shape

        def grown(empty, full):
            return ops.slice_update(empty, [0] * len(full.shape), full)

        empty = self.model.empty_past(batch, length * width)
        past = keras.tree.map_structure(grown, empty, state.past)
        return state.with_room(length - state.length, past)


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
