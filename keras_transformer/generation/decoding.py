"""Decoding: a search around a model that is called with a cache.

An encoder-decoder and a decoder-only model use the same code. A search (greedy, sampling, beam
search) is an object that begins a state and advances it by the model's logits; `Decoding` runs it
in a loop, compiled once per shape of its input.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from .. import backend
from ..checks import check, check_at_least
from ..ids import PADDING, START, are_ints, id_matrix
from ..layers.cache import Cache
from ..losses import token_cross_entropy
from .beam_search import BeamSearch, Hypotheses
from .configuration import GenerationConfig, SamplingConfig
from .constraints import Constraints
from .sampling import GreedySearch, Sampling, sampling_parameters, with_length

FIRST_LENGTH = 32  # tokens that fit into the first cache; it doubles when they are used up


class Request(NamedTuple):
    """One batch to be decoded: see the methods of `Decoding` that return one."""

    search: Any  # `GreedySearch`, `Sampling` or `BeamSearch`
    parameters: Any  # tensors that the search depends on; None: nothing
    source_ids: Any  # int32, (batch, source length); None: a model without a source
    constraints: Constraints
    room: int  # the most positions that a cache may have
    length: int  # of the answers


class Decoding:
    """Searches for the answers of one model.

    What depends on the source alone is computed once; every step calls the decoder with one token
    per hypothesis and a cache; a loop ends when all sentences have ended. It is one XLA program on
    TensorFlow and JAX, and on PyTorch a loop over recorded operations (`backend.trace`).

    Args:
        model: a `Transformer`, a `LanguageModel`, or a model with their methods `decode` and
            `empty_cache` (and with a source `encode` and `cache_memory`). Its weights are read at
            each call, so it may be trained further.

    Source: Vaswani et al. 2017, section 3.1 ("auto-regressive").
    """

    def __init__(self, model: keras.Model):
        self.model = model
        self._programs = backend.Programs(model)

    def greedy(
        self, source_ids: Any, max_length: Any, min_length: Any = None, prefix: Any = None
    ) -> np.ndarray:
        """The most probable next token, repeatedly.

        Args:
            source_ids: int, (batch, source length), padded with 0; None: a model without a source.
            max_length: int, or (batch,), the most tokens of an answer, END included; in an array,
                0 for a row that only fills the batch. The cache fits an int exactly; the largest
                of an array is rounded up, so that there are few shapes to compile.
            min_length: int, or (batch,), the fewest tokens before END; None: 0.
            prefix: int, (batch, length), what the answers begin with, padded with 0; or None.

        Returns:
            int32, (batch, longest max_length): the answers, END included if it was reached,
            padded with 0.

        Raises:
            ValueError: an argument is out of range, or a prefix is longer than its max_length.
        """
        batch = dict(source_ids=source_ids, max_length=max_length, prefix=prefix)
        return next(self.decode([self.greedy_request(**batch, min_length=min_length)]))

    def greedy_request(self, **batch: Any) -> Request:
        """The request by which `decode` does the same as `greedy`; its arguments are a batch."""
        return Request(GreedySearch(), None, *self._checked(**batch))

    def sample(
        self,
        source_ids: Any,
        max_length: Any,
        seeds: Sequence,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        min_length: Any = None,
        prefix: Any = None,
    ) -> np.ndarray:
        """Answers drawn from the model's distribution, each reproducible from its own seed.

        Args:
            source_ids, max_length, min_length, prefix: as in `greedy`.
            seeds: int from 0 (or a tuple of them) per row: its random numbers depend on it alone.
            temperature, top_k, top_p: see `SamplingConfig`.

        Returns: as `greedy`.

        Raises: as `greedy`.
        """
        config = SamplingConfig(temperature, top_k, top_p)
        batch = dict(source_ids=source_ids, max_length=max_length, prefix=prefix)
        request = self.sample_request(seeds, config, **batch, min_length=min_length)
        return next(self.decode([request]))

    def sample_request(self, seeds: Sequence, config: SamplingConfig, **batch: Any) -> Request:
        """The request by which `decode` does the same as `sample`; a batch as in `greedy`."""
        given = self._checked(**batch)
        _, constraints, room, _ = given
        parameters = sampling_parameters(seeds, len(constraints.max_length), room, config)
        return Request(Sampling(config.top_k), parameters, *given)

    def stream(
        self,
        source_ids: Any,
        max_length: Any,
        seeds: Sequence | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        min_length: Any = None,
        prefix: Any = None,
    ) -> Iterator[np.ndarray]:
        """`greedy`, or with seeds `sample`, one position at a time; arguments as there.

        Returns:
            Iterator of int32, (batch,), the next token of each sentence; 0 after its end.
        """
        config = SamplingConfig(temperature, top_k, top_p)
        batch = dict(source_ids=source_ids, max_length=max_length, prefix=prefix)
        batch["min_length"] = min_length
        if seeds is None:
            request = self.greedy_request(**batch)
        else:
            request = self.sample_request(seeds, config, **batch)
        return self._next_ids(request)

    def _next_ids(self, request):
        program = self._program_of(request.search)
        inputs, _ = program.begin(request, stop=1)
        yield ops.convert_to_numpy(inputs[0].ids)[:, 0]
        for stop in range(2, request.length + 1):
            if ops.convert_to_numpy(inputs[0].ended).all():
                return
            inputs, _ = program.resume(inputs, stop, request.room)
            yield ops.convert_to_numpy(inputs[0].ids)[:, 0]

    def beam_search(
        self,
        source_ids: Any,
        max_length: Any,
        beams: int = 4,
        length_penalty: float = 0.6,
        n_best: int = 1,
        min_length: Any = None,
        prefix: Any = None,
    ) -> Hypotheses:
        """The best hypotheses that a beam of a given width finds.

        Each step ranks the extensions of all live hypotheses by log-probability. Those among the
        first `beams` that end are finished: they leave the beam and are never extended or pushed
        out by an extension. The best `beams` that do not end live on. A search ends as soon as
        no live hypothesis can still come among the n_best, however long it became. One beam is
        greedy decoding: it ends with its first END.

        Args:
            source_ids, max_length, min_length, prefix: as in `greedy`.
            beams: int, live hypotheses.
            length_penalty: float from 0, exponent of `generation.length_penalty`.
            n_best: int, at most `beams`, the hypotheses to return.

        Returns:
            `Hypotheses` of NumPy arrays: the finished ones, best first; then, if they are too few,
            live ones that the length limit cut off.

        Raises: as `greedy`.

        Source: Wu et al. 2016, section 7.
        Departs: many engines stop once `beams` hypotheses have finished, and so miss a better
            one that is a token longer: 0.2 BLEU on Multi30k (docs/results.md).
        """
        batch = dict(source_ids=source_ids, max_length=max_length, prefix=prefix)
        request = self.beam_request(beams, length_penalty, n_best, **batch, min_length=min_length)
        return next(self.decode([request]))

    def beam_request(self, beams: int, length_penalty: float, n_best: int, **batch: Any) -> Request:
        """The request by which `decode` does the same as `beam_search`; a batch as in `greedy`."""
        GenerationConfig(beams=beams, length_penalty=length_penalty)  # checks them
        check_at_least(1, n_best=n_best)
        check(n_best <= beams, "n_best must be from 1 to beams", n_best=n_best, beams=beams)
        alpha = backend.to_arguments(np.float32(length_penalty))
        return Request(BeamSearch(beams, n_best), alpha, *self._checked(**batch))

    def decode(self, requests: Iterable[Request]) -> Iterator[Any]:
        """Answers requests in their order, on a CPU with XLA two at a time.

        Args:
            requests: iterable of `Request`, read a few ahead.

        Yields:
            For each request what its search returns: an array, or `Hypotheses`.
        """
        return backend.map_batches(self._answer, requests)

    def _answer(self, request):
        program, stop = self._program_of(request.search), min(FIRST_LENGTH, request.room)
        inputs, answers = program.begin(request, stop)
        while stop < request.room and not ops.convert_to_numpy(inputs[0].ended).all():
            stop = min(2 * stop, request.room)
            inputs, answers = program.resume(inputs, stop, request.room)
        answers = keras.tree.map_structure(ops.convert_to_numpy, answers)
        return request.search.collect(answers, request.length)

    def graph(
        self, search: Any, source_ids: Any, constraints: Constraints, parameters: Any = None
    ) -> Any:
        """A whole search as operations on tensors, to be traced for another engine.

        One graph serves any batch and any length: where `greedy` has caches of a few fixed sizes,
        here they grow with every token. Trace it within `backend.portable()`.

        Args:
            search: `GreedySearch` or `BeamSearch`.
            source_ids: int32, (batch, source length); None: a model without a source.
            constraints: `Constraints` of tensors.
            parameters: what the search depends on; see `GreedySearch.advance`.

        Returns:
            What `search.answers` returns.
        """
        return self._program_of(search).graph(source_ids, constraints, parameters)

    def score(self, source_ids: Any, target_ids: Any) -> np.ndarray:
        """Log-probabilities of given answers, by teacher forcing.

        Args:
            source_ids: int, (batch, source length), padded with 0; None: a model without a source.
            target_ids: int, (batch, target length), END included, padded with 0.

        Returns:
            float32, (batch, target length), nats, 0 at padding.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        target_ids = id_matrix("target_ids", target_ids, self.model.target_vocabulary_size)
        if source_ids is not None:
            source_ids = id_matrix("source_ids", source_ids, self.model.source_vocabulary_size)
            rows = dict(source_ids=len(source_ids), target_ids=len(target_ids))
            check(len(set(rows.values())) == 1, "Expected one target per source", **rows)
        score = self._programs.get("score", lambda: backend.jit(self._score_targets, self.model))
        return ops.convert_to_numpy(score(*backend.split_rows((source_ids, target_ids))))

    def _score_targets(self, source_ids, target_ids):
        shifted = ops.pad(target_ids[:, :-1], ((0, 0), (1, 0)), constant_values=START)
        memory = None if source_ids is None else self.model.encode(source_ids)
        nats = token_cross_entropy(target_ids, self.model.decode(shifted, memory))
        return ops.where(ops.equal(target_ids, PADDING), 0.0, -nats)

    def _program_of(self, search):
        return self._programs.get(search, lambda: _Program(self.model, search))

    def _checked(self, source_ids, max_length, min_length=None, prefix=None):
        """Source and constraints as tensors, the room of the caches, the length of the answers."""
        given = source_ids if source_ids is not None else prefix
        batch = np.size(max_length) if given is None else len(given)
        max_length = _as_ints("max_length", max_length)
        room = int(np.max(max_length))
        check(
            room >= 1 and np.min(max_length) >= 0,
            "max_length must be at least 1",
            max_length=max_length.tolist(),
        )
        check(
            room <= (self.model.max_length or room),
            f"max_length must not exceed the positions learned, max_length={self.model.max_length}",
            received=room,
        )
        if np.ndim(max_length):
            room = max(FIRST_LENGTH, 1 << (room - 1).bit_length())  # the next power of two
            room = min(room, self.model.max_length or room)

        def per_row(name, lengths):
            check(
                lengths.shape in ((), (batch,)),
                f"{name} must be an int, or one per row",
                rows=batch,
                shape=lengths.shape,
            )
            return np.broadcast_to(lengths, batch)

        constraints = Constraints(per_row("max_length", max_length))
        if min_length is not None and np.any(min_length):
            min_length = _as_ints("min_length", min_length)
            smallest = int(np.min(min_length))
            check(smallest >= 0, "min_length must be at least 0", min_length=smallest)
            constraints = constraints._replace(min_length=per_row("min_length", min_length))
        if prefix is not None:
            prefix = self._checked_prefix(prefix, constraints.max_length)
            constraints = constraints._replace(prefix=with_length(prefix, room))
        if source_ids is not None:
            source_ids = id_matrix("source_ids", source_ids, self.model.source_vocabulary_size)
        given = backend.split_rows(source_ids), backend.split_rows(constraints)
        return *given, room, int(np.max(max_length))

    def _checked_prefix(self, prefix, max_length):
        prefix = id_matrix("prefix", prefix, self.model.target_vocabulary_size, may_be_empty=True)
        check(START not in prefix, f"A prefix must be without {START} (start)", prefix=prefix)
        check(
            len(prefix) == len(max_length),
            "prefix must have one row per answer",
            rows=len(max_length),
            shape=prefix.shape,
        )
        is_token = prefix != PADDING
        rows = np.flatnonzero((is_token[:, 1:] > is_token[:, :-1]).any(axis=1)).tolist()
        check(not rows, "A prefix must be padded on the right", rows=rows)
        lengths = is_token.sum(axis=1)
        fits = (lengths <= max_length) | (max_length == 0)
        row = int(fits.argmin())  # the first that does not, if there is one
        check(
            fits.all(),
            "A prefix must not be longer than max_length",
            prefix_length=int(lengths[row]),
            max_length=int(max_length[row]),
        )
        return prefix


def _as_ints(name, values):
    """Lengths as an int32 array; nothing but ints is cast."""
    values = np.asarray(values)
    expected = f"{name} must be an int, or one per row"
    check(values.size and are_ints(values), expected, **{name: values.tolist()})
    check(np.max(values) < 2**31, f"{name} must be below 2**31", **{name: values.tolist()})
    return values.astype("int32")


class _Program:
    """One search over a model, as two compiled programs.

    The first reads the source and goes as far as the first cache allows, which for short answers
    is all; the second continues in a larger one.
    """

    def __init__(self, model, search):
        self.model, self.search = model, search
        self._read = backend.trace(self._read_source)
        self._step = backend.trace(self._next_tokens)
        self._finish = backend.trace(search.answers)
        self._first = backend.jit(self._begin, model, "length")
        self._next = backend.jit(self._continue, model)

    def begin(self, request, stop):
        """Reads the source, and decodes up to a position, or until all sentences have ended.

        Args:
            request: `Request`.
            stop: int from 1, at most FIRST_LENGTH.

        Returns:
            What `resume` needs: state, memory, constraints, parameters.
            The answers up to there.
        """
        given = request.constraints, request.parameters
        length, stop = min(FIRST_LENGTH, request.room), backend.to_arguments(np.int32(stop))
        state, answers, memory = self._first(request.source_ids, *given, stop, length=length)
        return (state, memory, *given), answers

    def resume(self, inputs, stop, room):
        """Decodes up to a later position, in a larger cache if it is beyond the present one."""
        state, *others = inputs
        state = self._grown(state, stop, room)
        state, answers = self._next(state, *others, backend.to_arguments(np.int32(stop)))
        return (state, *others), answers

    def graph(self, source_ids, constraints, parameters):
        """The answers, without a number that is fixed by the shape of the input; see `Decoding`."""
        one = ops.minimum(ops.shape(constraints.max_length)[0], 1)  # no constant: lengths will vary
        state, memory = self._start(source_ids, constraints, one)
        stop = ops.max(constraints.max_length)

        def step(state):
            state = self._step(state, memory, constraints, parameters)
            return self.search.grow(state, 1, state.decoded)  # the cache grows as it is written

        return self._finish(_repeat(step, state, stop), parameters)

    def _begin(self, source_ids, constraints, parameters, stop, length):
        """The source read, and the state at position `stop`."""
        state, memory = self._start(source_ids, constraints, length)
        return *self._continue(state, memory, constraints, parameters, stop), memory

    def _start(self, source_ids, constraints, length):
        """The source read, and the state before the first token, with a cache of `length`."""
        ended = constraints.max_length < 1
        memory = (None, {}) if source_ids is None else self._read(source_ids)
        decoded = self.model.empty_cache(ops.shape(ended)[0], length * self.search.width)
        return self.search.begin(ended, decoded, length), memory

    def _continue(self, state, memory, constraints, parameters, stop):
        """State and answers at position `stop`, or when all sentences have ended."""
        stop = ops.minimum(stop, self.search.length(state))  # a cache is not written past its end

        def step(state):
            return self._step(state, memory, constraints, parameters)

        state = _repeat(step, state, stop)
        return state, self._finish(state, parameters)

    def _read_source(self, source_ids):
        memory = self.model.encode(source_ids)
        return memory, self.model.cache_memory(memory)

    def _next_tokens(self, state, memory, constraints, parameters):
        """The state after one call of the decoder."""
        memory, of_memory = memory
        width = self.search.width
        positions = ops.broadcast_to(state.position, (width,))
        cache = Cache(state.decoded, of_memory, state.position * width, positions)
        mask = self.search.attends_to(state)
        logits = self.model.decode(state.ids, memory, attention_mask=mask, cache=cache)
        return self.search.advance(state, mask, logits, cache.decoded, constraints, parameters)

    def _grown(self, state, stop, room):
        """The state with a slot for every position before `stop`."""
        length = self.search.length(state)
        if stop <= length:
            return state
        longer = min(2 * length, room)
        empty = self.model.empty_cache(len(state.ids), longer * self.search.width)
        return self.search.grow(state, longer - length, Cache.grow(state.decoded, empty))


def _repeat(step, state, stop):
    """The state at position `stop`, or when all sentences have ended."""
    kind = type(state)

    def unfinished(*state):
        state = kind(*state)
        return ops.logical_and(state.position < stop, ops.logical_not(ops.all(state.ended)))

    return kind(*ops.while_loop(unfinished, lambda *state: step(kind(*state)), tuple(state)))
