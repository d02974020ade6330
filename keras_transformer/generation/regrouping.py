"""Several batches decoded together: the sentences that have not ended are regrouped.

A loop over a batch ends with its longest answer, which is often three times as long as the mean. So
batches of one shape are decoded for some positions; then the sentences that have not ended
fill fewer of them, and so forth.
"""

import collections
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from .. import backend
from ..data.lengths import bucket_length

SOON = 16  # positions until batches are first regrouped
MANY = 4  # batches of one shape; fewer are regrouped no sooner than their first cache is full


class _Batch(NamedTuple):
    """Sentences side by side, and where the answer of each belongs."""

    requests: np.ndarray  # int, (batch,), the number of its request; -1: a row that only fills
    rows: np.ndarray  # int, (batch,), its row there
    inputs: Any  # state, memory, constraints and parameters of the program
    room: int  # the most positions
    stop: int  # the position that has been reached


def decode_together(program: Any, requests: list) -> list[list]:
    """The answers to requests for one search.

    Args:
        program: with the methods `begin` and `resume`, and `first_length`.
        requests: list of `Request`.

    Returns:
        For each request a list of what `search.answers` returns for each row, NumPy arrays.
    """
    found: list[list] = [[None] * len(request.constraints.max_length) for request in requests]
    number_of = collections.Counter(map(_shapes, requests))

    def begin(numbered):
        number, request = numbered
        many = number_of[_shapes(request)] >= MANY
        stop = min(SOON if many else program.first_length, request.room)
        inputs, answers = program.begin(request, stop)
        rows = np.arange(len(inputs[0].ended))
        return _Batch(np.full_like(rows, number), rows, inputs, request.room, stop), answers

    def resume(batch):
        stop = bucket_length(batch.stop + 1, batch.room)
        inputs, answers = program.resume(batch.inputs, stop, batch.room)
        return batch._replace(inputs=inputs, stop=stop), answers

    decoded = backend.map_batches(begin, enumerate(requests))
    while batches := list(_regrouped(_unfinished(decoded, found))):
        batches.reverse()
        in_order = (batches.pop() for _ in range(len(batches)))  # no outgrown cache is kept
        decoded = backend.map_batches(resume, in_order)
    return found


def _shapes(tensors):
    return tuple(np.shape(x) for x in keras.tree.flatten(tensors))


def _unfinished(decoded: Iterable, found: list[list]) -> Iterator[tuple[_Batch, np.ndarray]]:
    """Puts the answers of sentences that have ended where they belong.

    Yields:
        Each batch with sentences that have not ended, and bool, (batch,), which.
    """
    for batch, answers in decoded:
        ended = ops.convert_to_numpy(batch.inputs[0].ended)
        answers = keras.tree.map_structure(ops.convert_to_numpy, answers)
        for row in np.flatnonzero(ended & (batch.requests >= 0)):
            answer = keras.tree.map_structure(lambda x, row=row: x[row], answers)
            found[batch.requests[row]][batch.rows[row]] = answer
        if not ended.all():
            yield batch, ~ended


def _regrouped(unfinished: Iterable) -> Iterator[_Batch]:
    """The sentences that have not ended, in as few batches of their shape as hold them."""
    groups = collections.defaultdict(list)
    for batch, live in unfinished:
        groups[batch.room, batch.stop, _shapes(batch.inputs)].append((batch, live))
    for members in groups.values():
        size = len(members[0][0].rows)
        if sum(live.sum() for _, live in members) > size * (len(members) - 1):
            yield from (batch for batch, _ in members)
        else:
            yield from _merged(members, size)


def _merged(members: list, size: int) -> Iterator[_Batch]:
    """The live rows of several batches, in batches of `size`; the last is filled with copies."""

    def live_rows(*leaves):
        if not _has_rows(leaves[0]):
            return leaves[0]
        rows = (ops.convert_to_numpy(x)[live] for x, (_, live) in zip(leaves, members, strict=True))
        return np.concatenate([*rows])

    batches = [batch for batch, _ in members]
    parts = [(batch.requests, batch.rows, batch.inputs) for batch in batches]
    requests, rows, inputs = keras.tree.map_structure(live_rows, *parts)
    for start in range(0, len(rows), size):
        chosen = np.arange(start, start + size) % len(rows)
        fills = np.arange(start, start + size) >= len(rows)

        def part(x, chosen=chosen):
            return x[chosen] if _has_rows(x) else x

        state, *others = keras.tree.map_structure(part, inputs)
        inputs_of_part = backend.to_arguments((state._replace(ended=fills), *others))
        belongs = np.where(fills, -1, requests[chosen])
        yield batches[0]._replace(requests=belongs, rows=rows[chosen], inputs=inputs_of_part)


def _has_rows(x):
    return x is not None and len(x.shape) > 0
