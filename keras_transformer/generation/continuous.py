"""Continuous batching: a sentence that has ended gives its row to one that waits."""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from .. import backend
from ..backend import Tensor
from ..layers.cache import Cache
from .constraints import Constraints
from .requests import FIRST_LENGTH, Batch


class Progress(NamedTuple):
    """How far the sentences of a batch are."""

    turn: Tensor  # int32 scalar, of the tokens to be read next: their slot modulo the length
    taken: Tensor  # int32 scalar, sentences that have been given a row
    read: Tensor  # int32 scalar, sentences whose source was encoded, a multiple of the rows
    sentences: Tensor  # int32, (rows,), which sentence each row decodes; their number: none
    state: Any  # of the search, one row per row
    memory: Any  # of the sentences in the rows
    waiting: Any  # memory of the sentences encoded last
    answers: Any  # states of the sentences that have ended, without their caches


class ContinuousSearch:
    """A search for the answers of more sentences than there are rows, as two compiled programs.

    The rows of a batch are at positions of their own, but write into the same slot of the cache at
    each turn. The slots are a ring: a row attends to those of its last turns. When a sentence
    needs more positions than the ring has, it is copied to a longer one.

    Args:
        programs: `backend.Programs` of the model of a `Decoding`.
        search: a search.
        read_source: function of source ids to what `step` reads of them.
        step: function of a state, what was read, constraints, parameters and the turn to the next
            state.

    Source: Yu et al. 2022 (Orca): iteration-level scheduling.
    """

    def __init__(self, programs, search, read_source, step):
        self.model, self.search = programs.model, search
        self._read_source = read_source
        self._step = backend.trace(step)
        self._swap = backend.trace(self._swap_one)
        self._answers = backend.trace(search.answers)
        self._compiled_begin = backend.jit(self._begin, programs, "rows", "length")
        self._compiled_resume = backend.jit(self._resume, programs, "rows")

    def run(self, batch: Batch) -> Any:
        """The answers, one row per sentence."""
        given = (batch.source_ids, batch.constraints, batch.parameters)
        length = min(FIRST_LENGTH, batch.room)
        progress, answers = self._compiled_begin(*given, rows=batch.at_a_time, length=length)
        while (ops.convert_to_numpy(progress.sentences) < len(batch.source_ids)).any():
            progress = self._with_room(progress, batch.room)
            progress, answers = self._compiled_resume(*given, progress, rows=batch.at_a_time)
        return answers

    def _begin(self, source_ids, constraints, parameters, rows, length):
        most = constraints.max_length
        first = ops.arange(rows, dtype="int32")
        memory = self._read_source(ops.take(source_ids, first, axis=0))
        decoded = self.model.empty_cache(rows, length * self.search.width)
        progress = Progress(
            turn=ops.zeros((), "int32"),
            taken=ops.full((), rows, "int32"),
            read=ops.full((), rows, "int32"),
            sentences=first,
            state=self.search.begin(ops.take(most, first, axis=0) < 1, decoded, length),
            memory=memory,
            waiting=memory,
            answers=self.search.begin(ops.ones_like(most, "bool"), (), length),
        )
        return self._resume(source_ids, constraints, parameters, progress, rows)

    def _resume(self, source_ids, constraints, parameters, progress, rows):
        """The progress when all sentences have ended, or one needs a longer cache; the answers."""
        number = ops.shape(source_ids)[0]
        length = self.search.length(progress.state)
        counts = ops.arange(1, number + 1, dtype="int32")
        last = ops.max(ops.where(constraints.max_length > 0, counts, 0))  # fillers may follow

        def unfinished(*progress):
            progress = Progress(*progress)
            state = progress.state
            too_long = ops.any(~state.ended & (state.position >= length))
            return ops.any(progress.sentences < number) & ~too_long

        def must_read(taken, read):
            return (taken >= read) & (taken < last)

        def go_on(*progress):
            progress = Progress(*progress)
            already, waiting = ops.while_loop(
                lambda already, _: must_read(progress.taken, already),
                read_more,
                (progress.read, progress.waiting),
            )
            progress = progress._replace(read=already, waiting=waiting)
            return ops.while_loop(
                lambda *each: unfinished(*each) & ~must_read(Progress(*each).taken, already),
                turn,
                tuple(progress),
            )

        def read_more(already, _):
            ids = ops.take(source_ids, already + ops.arange(rows, dtype="int32"), axis=0)
            return already + rows, self._read_source(ids)

        def turn(*progress):
            progress = Progress(*progress)
            now = ops.minimum(progress.sentences, number - 1)
            state = self._step(
                progress.state,
                progress.memory,
                Constraints(*(_rows(x, now) for x in constraints)),
                keras.tree.map_structure(lambda x: _rows(x, now), parameters),
                progress.turn,
            )
            # A loop copies what it could change, so this one gets no more than that.
            changing = progress._replace(
                turn=(), read=(), waiting=(), state=state._replace(decoded=())
            )

            def can_swap(*changing):
                each = Progress(*changing)
                ended = each.state.ended & (each.sentences < number)
                return ops.any(ended) & ~must_read(each.taken, progress.read)

            def swap(*changing):
                given = progress.waiting, constraints.max_length, last, progress.turn + 1
                return tuple(self._swap(Progress(*changing), *given))

            changed = Progress(*ops.while_loop(can_swap, swap, tuple(changing)))
            state = changed.state._replace(decoded=state.decoded)
            return tuple(
                progress._replace(
                    turn=progress.turn + 1,
                    taken=changed.taken,
                    sentences=changed.sentences,
                    state=state,
                    memory=changed.memory,
                    answers=changed.answers,
                )
            )

        progress = Progress(*ops.while_loop(unfinished, go_on, tuple(progress)))
        return progress, self._answers(progress.answers, parameters)

    def _swap_one(self, progress, waiting, max_length, last, turn):
        """The progress with the answer of one row that has ended kept, and a new sentence there."""
        rows, number = ops.shape(progress.sentences)[0], ops.shape(max_length)[0]
        state = progress.state
        row = ops.argmax(ops.cast(state.ended & (progress.sentences < number), "int32"))
        row = ops.reshape(ops.cast(row, "int32"), (1,))
        old = ops.take(progress.sentences, row, axis=0)
        is_one = progress.taken < last
        new = ops.reshape(ops.minimum(progress.taken, number - 1), (1,))

        def put(target, source, place, at):
            def put(target, source):
                value = ops.take(source, place, axis=0)
                return backend.write_slots(target, value, backend.slot_indices(at[0], 1), axis=0)

            return keras.tree.map_structure(put, target, source)

        first = ops.zeros_like(row)
        ended = ~is_one | (ops.take(max_length, new, axis=0) < 1)
        empty = self.search.begin(ended, (), self.search.length(state))
        one = keras.tree.map_structure(lambda x: ops.take(x, row, axis=0), state)
        answer = self.search.rolled(one, turn - one.position)  # the slots are positions again
        answers = put(progress.answers, answer, first, at=old)
        return progress._replace(
            taken=progress.taken + ops.cast(is_one, "int32"),
            sentences=put(progress.sentences, ops.where(is_one, new, number), first, at=row),
            state=put(state, empty, first, at=row),
            memory=put(progress.memory, waiting, new % rows, at=row),
            answers=answers,
        )

    def _with_room(self, progress, room):
        """The progress in a ring twice as long: its last turns come first."""
        state, width = progress.state, self.search.width
        length = self.search.length(state)
        longer = min(2 * length, room)
        turn = int(progress.turn) % length
        back = -turn * width
        decoded = {
            path: (ops.roll(keys, back, axis=3), ops.roll(values, back, axis=2))
            for path, (keys, values) in state.decoded.items()
        }
        empty = self.model.empty_cache(len(state.ids), longer * width)
        state = self.search.rolled(state, ops.full_like(state.position, turn))
        return progress._replace(
            turn=backend.to_arguments(np.int32(length)),
            state=self.search.grow(state, longer - length, Cache.grow(decoded, empty)),
            answers=self.search.grow(progress.answers, longer - length, ()),
        )


def _rows(x, numbers):
    """Rows of an array; None and scalars are for all of them."""
    return x if x is None or not len(x.shape) else ops.take(x, numbers, axis=0)
