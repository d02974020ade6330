"""Decoding: a search around a model that is called with a cache.

An encoder-decoder and a decoder-only model use the same code. A search (greedy, sampling, beam
search) is an object that begins a state and advances it by the model's logits; `Decoding` runs it
in a loop, compiled once per shape of its input.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from .. import backend
from ..backend import Tensor
from ..checks import check
from ..ids import PADDING, START, id_matrix
from ..layers.cache import Cache
from ..losses import token_cross_entropy
from .beam_search import BeamSearch, BeamState, Hypotheses
from .configuration import UNCHANGED
from .constraints import Constraints
from .continuous import ContinuousSearch
from .requests import FIRST_LENGTH, Batch, Request, checked_batch
from .sampling import GreedySearch, Sampling


class Decoding:
    """Searches for the answers of one model.

    In short, `greedy` is this loop around a `Transformer`:

        memory = model.encode(source_ids)  # once
        of_memory = model.cache_memory(memory)
        decoded = model.empty_cache(len(source_ids), max_length)
        never = np.isin(np.arange(model.target_vocabulary_size), [kt.PADDING, kt.START])
        ids = np.full((len(source_ids), 1), kt.START)
        answers = []
        for position in range(max_length):
            cache = kt.Cache(decoded, of_memory, slot=position, positions=np.array([position]))
            seen = np.arange(max_length).reshape(1, 1, -1) <= position
            logits = model.decode(ids, memory, attention_mask=seen, cache=cache)
            decoded = cache.decoded  # with the keys and values of `ids`
            ids = ops.argmax(ops.where(never, -1e9, logits), axis=-1)
            answers.append(ids)

    What it adds: the loop is one XLA program on TensorFlow and JAX, and on PyTorch recorded
    operations (`backend.trace`); it writes 0 after END, ends when all sentences have ended, and
    starts in a small cache; a search may hold several hypotheses per sentence, and has constraints.

    Args:
        model: a `Transformer`, a `LanguageModel`, or a model with their methods `decode` and
            `empty_cache` and their attributes `target_vocabulary_size` and `max_length` (None: no
            limit); with a source also `encode`, `cache_memory` and `source_vocabulary_size`. Its
            weights are read at each call, so it may be trained further.

    Source: Vaswani et al. 2017, section 3.1 ("auto-regressive").
    """

    def __init__(self, model: keras.Model):
        self.model = model
        self._programs = backend.Programs(model)

    def greedy(
        self,
        source_ids: Tensor,
        max_length: Tensor,
        min_length: Tensor = None,
        prefix: Tensor = None,
        **changes: Any,
    ) -> np.ndarray:
        """Greedy decoding: the most probable token at each position.

        Args:
            source_ids: int, (batch, source length), padded with 0; None: a model without a source.
            max_length: int, or (batch,), the most tokens of an answer, END included; in an array, 0
                for a row that only fills the batch.
            min_length: int, or (batch,), the fewest tokens before END; None: 0.
            prefix: int, (batch, length), the beginning of each answer, padded with 0; None: none.
            **changes: fields of `LogitsConfig`.

        Returns:
            int32, (batch, longest max_length): the answers, with the prefix, and with END if it was
            reached, padded with 0.

        Raises:
            ValueError: An argument is out of range, or a prefix is longer than its max_length.
        """
        search = GreedySearch(logits=UNCHANGED.replace(**changes))
        return self._answer_one(search, source_ids, max_length, min_length, prefix)

    def sample(
        self,
        source_ids: Tensor,
        max_length: Tensor,
        seeds: Sequence,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        min_length: Tensor = None,
        prefix: Tensor = None,
        **changes: Any,
    ) -> np.ndarray:
        """Answers drawn from the model's distribution, each reproducible from its own seed.

        Args:
            source_ids: int, (batch, source length), padded with 0; None: a model without a source.
            max_length: int, or (batch,), the most tokens of an answer, END included; in an array, 0
                for a row that only fills the batch.
            min_length: int, or (batch,), the fewest tokens before END; None: 0.
            prefix: int, (batch, length), the beginning of each answer, padded with 0; None: none.
            seeds: list with one seed per row, an int from 0 or a tuple of them. The random numbers
                of a row depend on its seed alone, not on the rest of the batch.
            temperature: float above 0, divisor of the logits: below 1 sharpens the distribution.
            top_k: int from 1, number of most probable tokens to sample from; None: all.
            top_p: float in (0, 1], nucleus sampling: the fewest tokens that together reach it.
            **changes: fields of `LogitsConfig`.

        Returns:
            int32, (batch, longest max_length): the answers, with the prefix, and with END if it was
            reached, padded with 0.

        Raises:
            ValueError: An argument is out of range, or a prefix is longer than its max_length.
        """
        logits = UNCHANGED.replace(**changes)
        search = Sampling(seeds, temperature, top_k, top_p, logits=logits)
        return self._answer_one(search, source_ids, max_length, min_length, prefix)

    def beam_search(
        self,
        source_ids: Tensor,
        max_length: Tensor,
        beams: int = 4,
        length_penalty: float = 0.6,
        n_best: int = 1,
        min_length: Tensor = None,
        prefix: Tensor = None,
        **changes: Any,
    ) -> Hypotheses:
        """The best hypotheses that a beam of a given width finds.

        Each step ranks the extensions of all live hypotheses by log-probability. Those among the
        first `beams` that end are finished: they leave the beam and are never extended or pushed
        out by an extension. The best `beams` that do not end live on. A search ends as soon as
        no live hypothesis can still come among the n_best, however long it became. One beam is
        greedy decoding: it ends with its first END.

        Args:
            source_ids: int, (batch, source length), padded with 0; None: a model without a source.
            max_length: int, or (batch,), the most tokens of an answer, END included; in an array, 0
                for a row that only fills the batch.
            min_length: int, or (batch,), the fewest tokens before END; None: 0.
            prefix: int, (batch, length), the beginning of each answer, padded with 0; None: none.
            beams: int, live hypotheses.
            length_penalty: float from 0, exponent of `generation.length_penalty`.
            n_best: int, at most `beams`, the hypotheses to return.
            **changes: fields of `LogitsConfig`.

        Returns:
            `Hypotheses` of NumPy arrays, with the prefix: the finished ones, best first; then, if
            they are too few, live ones that the length limit cut off.

        Raises:
            ValueError: An argument is out of range, or a prefix is longer than its max_length.

        Source: Wu et al. 2016, section 7.
        Departs: many engines stop once `beams` hypotheses have finished, and so miss a better
            one that is a token longer: 0.1 to 0.2 BLEU on Multi30k (docs/experiments.md).
        """
        search = BeamSearch(beams, length_penalty, n_best, UNCHANGED.replace(**changes))
        return self._answer_one(search, source_ids, max_length, min_length, prefix)

    @property
    def continuous(self) -> bool:
        """Whether requests of several sentences per row are faster; see `Request.at_a_time`."""
        return backend.prefers_continuous_batches()

    def decode(self, requests: Iterable[Request]) -> Iterator[Any]:
        """Answers requests in their order, on a CPU with XLA two at a time.

        Args:
            requests: iterable of `Request`, read a few ahead.

        Yields:
            For each request what its search returns: an array, or `Hypotheses`.
        """
        checked = ((each.search, checked_batch(each, self.model)) for each in requests)
        return backend.map_batches(self._answer, checked)

    def _answer_one(self, *request):
        return next(self.decode([Request(*request)]))

    def _answer(self, search_and_batch):
        search, batch = search_and_batch
        compiled = self._compiled(search, batch.few)
        if batch.at_a_time < len(batch.constraints.max_length):
            found = compiled.continuous.run(batch)
        else:
            stops = [min(FIRST_LENGTH, batch.room)]
            while stops[-1] < batch.room:
                stops.append(min(2 * stops[-1], batch.room))
            for _, answers in compiled.run(batch, stops):
                found = answers  # the last ones are whole
        found = keras.tree.map_structure(ops.convert_to_numpy, found)
        return search.collect(found, batch.length)

    def stream(
        self,
        source_ids: Tensor,
        max_length: Tensor,
        *,
        search: GreedySearch | None = None,
        min_length: Tensor = None,
        prefix: Tensor = None,
        few: bool = False,
    ) -> Iterator[np.ndarray]:
        """The answers of a search, one position at a time.

        Args:
            source_ids: int, (batch, source length), padded with 0; None: a model without a source.
            max_length: int, or (batch,), the most tokens of an answer, END included; in an array, 0
                for a row that only fills the batch.
            min_length: int, or (batch,), the fewest tokens before END; None: 0.
            prefix: int, (batch, length), the beginning of each answer, padded with 0; None: none.
            search: `GreedySearch` or `Sampling`; None: `GreedySearch`.
            few: bool, see `Request`.

        Returns:
            Iterator of int32, (batch,), the next token of each sentence, first those of the prefix;
            0 after its end.

        Raises:
            ValueError: An argument is out of range, or a prefix is longer than its max_length.
        """
        search = search or GreedySearch()
        request = Request(search, source_ids, max_length, min_length, prefix, few=few)
        batch = checked_batch(request, self.model)
        states = self._compiled(search, few).run(batch, range(1, batch.length + 1))
        return (ops.convert_to_numpy(state.ids)[:, 0] for state, _ in states)

    def beam_states(self, search: BeamSearch, **batch: Any) -> Iterator[BeamState]:
        """The states of a beam search, one position at a time.

        Args:
            search: `BeamSearch`.
            **batch: source_ids, max_length, min_length, prefix, few, see `Request`.

        Yields:
            `BeamState` after each position, with NumPy arrays for tensors and without its cache.

        Raises:
            ValueError: An argument is out of range, or a prefix is longer than its max_length.
        """
        checked = checked_batch(Request(search, **batch), self.model)
        states = self._compiled(search, checked.few).run(checked, range(1, checked.length + 1))
        for state, _ in states:
            yield keras.tree.map_structure(ops.convert_to_numpy, state._replace(decoded=()))

    def graph(self, search: Any, source_ids: Tensor, constraints: Constraints) -> Any:
        """A whole search as operations on tensors, to be traced for another engine.

        One graph serves any batch and any length: where `greedy` has caches of a few fixed sizes,
        here they grow with every token. Trace it within `backend.portable()`.

        Args:
            search: `GreedySearch` or `BeamSearch`.
            source_ids: int32, (batch, source length); None: a model without a source.
            constraints: `Constraints` of tensors.

        Returns:
            What `search.answers` returns.
        """
        return self._compiled(search).graph(search, source_ids, constraints)

    def score(self, source_ids: Tensor, target_ids: Tensor, few: bool = False) -> np.ndarray:
        """Log-probabilities of given answers, by teacher forcing.

        Args:
            source_ids: int, (batch, source length), padded with 0; None: a model without a source.
            target_ids: int, (batch, target length), END included, padded with 0.
            few: bool, see `Request`.

        Returns:
            float32, (batch, target length), nats, 0 at padding.

        Raises:
            ValueError: An id is outside the vocabulary, or the numbers of rows differ.
        """
        target_ids = id_matrix("target_ids", target_ids, self.model.target_vocabulary_size)
        if source_ids is not None:
            source_ids = id_matrix("source_ids", source_ids, self.model.source_vocabulary_size)
            rows = dict(source_ids=len(source_ids), target_ids=len(target_ids))
            check(len(set(rows.values())) == 1, "Expected one target per source", **rows)
        programs = self._programs
        score = programs.get("score", lambda: backend.jit(self._score_targets, programs))
        ids = backend.split_rows((source_ids, target_ids))
        return ops.convert_to_numpy(score(*ids, few=few))

    def _score_targets(self, source_ids, target_ids):
        shifted = ops.pad(target_ids[:, :-1], ((0, 0), (1, 0)), constant_values=START)
        memory = None if source_ids is None else self.model.encode(source_ids)
        nats = token_cross_entropy(target_ids, self.model.decode(shifted, memory))
        return ops.where(ops.equal(target_ids, PADDING), 0.0, -nats)

    def _compiled(self, search, few=False):
        return self._programs.get(search, lambda: _CompiledSearch(self._programs, search, few))


class _CompiledSearch:
    """A search over a model, as two compiled programs.

    The first reads the source and goes as far as the first cache allows, which for short answers
    is all; the second continues in a larger one.

    Args:
        programs: `backend.Programs` of the model of a `Decoding`.
        search: one of those that are equal; what they differ in is among their parameters.
        few: bool, whether it is made for few texts.
    """

    def __init__(self, programs, search, few):
        self.model, self.search = programs.model, search
        few = few or programs.full
        self._recorded_read = backend.trace(self._read_source, few)
        self._recorded_step = backend.trace(self._step, few)
        self._recorded_answers = backend.trace(search.answers, few)
        self._compiled_begin = backend.jit(self._begin, programs, "length")
        self._compiled_resume = backend.jit(self._resume, programs)
        self.continuous = ContinuousSearch(programs, search, self._recorded_read, self._step)

    def run(self, batch: Batch, stops: Iterable[int]):
        """Decodes up to one position after the other, or until all sentences have ended.

        Args:
            batch: `Batch`.
            stops: int from 1, rising: the first at most FIRST_LENGTH, none above `batch.room` or
                twice the one before.

        Yields:
            The state there.
            The answers up to there.
        """
        given, state = (batch.constraints, batch.parameters), None
        for stop in stops:
            limit = backend.to_arguments(np.int32(stop))
            if state is None:
                length = min(FIRST_LENGTH, batch.room)
                state, answers, memory = self._compiled_begin(
                    batch.source_ids, *given, limit, length=length, few=batch.few
                )
            elif ops.convert_to_numpy(state.ended).all():
                return
            else:
                state = self._with_room(state, stop, batch.room)
                state, answers = self._compiled_resume(state, memory, *given, limit, few=batch.few)
            yield state, answers

    def graph(self, search, source_ids, constraints):
        """The answers, without a number that is fixed by the shape of the input; see `Decoding`."""
        parameters = backend.to_tensors(search.parameters(None, None))  # not of an equal search
        one = ops.minimum(ops.shape(constraints.max_length)[0], 1)  # no constant: lengths will vary
        stop = ops.max(constraints.max_length)
        _, answers, _ = self._begin(source_ids, constraints, parameters, stop, one, grows=True)
        return answers

    def _begin(self, source_ids, constraints, parameters, stop, length, grows=False):
        """The state at `stop` in a cache of `length`, the answers up to there, the source read."""
        memory = (None, {}) if source_ids is None else self._recorded_read(source_ids)
        ended = constraints.max_length < 1
        decoded = self.model.empty_cache(ops.shape(ended)[0], length * self.search.width)
        state = self.search.begin(ended, decoded, length)
        return *self._resume(state, memory, constraints, parameters, stop, grows), memory

    def _resume(self, state, memory, constraints, parameters, stop, grows=False):
        """The state at `stop`, or when all sentences have ended, and the answers up to there."""
        kind = type(state)

        def unfinished(*state):
            state = kind(*state)
            return (ops.max(state.position) < stop) & ~ops.all(state.ended)

        def step(*state):
            state = self._recorded_step(kind(*state), memory, constraints, parameters)
            return self.search.grow(state, 1, state.decoded) if grows else state

        state = kind(*ops.while_loop(unfinished, step, tuple(state)))
        return state, self._recorded_answers(state, parameters)

    def _read_source(self, source_ids):
        memory = self.model.encode(source_ids)
        return memory, self.model.cache_memory(memory)

    def _step(self, state, memory, constraints, parameters, turn=None):
        """The state after one call of the decoder.

        Args:
            state: of the search.
            memory: from `_read_source`.
            constraints: `Constraints`.
            parameters: of the search.
            turn: int scalar, see `ContinuousSearch`; None: all rows are at the same position.
        """
        memory, of_memory = memory
        width = self.search.width
        mask = self.search.attends_to(state, turn)
        if turn is None:
            slot = ops.max(state.position)
            positions = ops.broadcast_to(slot, (width,))
        else:
            slot = turn % self.search.length(state)
            positions = ops.expand_dims(state.position, 1) + ops.zeros((width,), "int32")
        cache = Cache(state.decoded, of_memory, slot * width, positions)
        logits = self.model.decode(state.ids, memory, attention_mask=mask, cache=cache)
        given = constraints, parameters, turn
        return self.search.advance(state, mask, logits, cache.decoded, *given)

    def _with_room(self, state, stop, room):
        """The state with a slot for every position before `stop`: in a cache twice as long."""
        length = self.search.length(state)
        if stop <= length:
            return state
        longer = min(2 * length, room)
        empty = self.model.empty_cache(len(state.ids), longer * self.search.width)
        return self.search.grow(state, longer - length, Cache.grow(state.decoded, empty))
