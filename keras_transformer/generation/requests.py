"""Batches to decode: what is asked, checked and made ready for the compiled programs."""

from typing import Any, NamedTuple

import numpy as np

from .. import backend
from ..checks import check
from ..ids import PADDING, START, are_ints, id_matrix, id_rows
from .constraints import Constraints
from .sampling import with_length

FIRST_LENGTH = 32  # tokens that fit into the first cache; it doubles when they are used up


class Request(NamedTuple):
    """A search for the answers of one batch.

    Args:
        search: `GreedySearch`, `Sampling` or `BeamSearch`.
        source_ids: int, (batch, source length), padded with 0; None: a model without a source.
        max_length: int, or (batch,), the most tokens of an answer, END included; in an array, 0 for
            a row that only fills the batch. The cache begins with 32 positions and doubles as they
            are used up, at most to an int exactly, or to the largest of an array rounded up to a
            power of two, so that there are few shapes to compile.
        min_length: int, or (batch,), the fewest tokens before END; None: 0.
        prefix: int, (batch, length), the beginning of each answer, padded with 0; None: none.
        at_a_time: int, rows that are decoded at a time, a divisor of the batch: when one has ended,
            the next of the other sentences takes its row. None: all rows; so it is where there is
            no source.
        few: bool, whether a task was given so few texts that programs should be ready soon, at the
            price of their speed: a graph without XLA on TensorFlow, and on PyTorch steps that are
            recorded once they have run 64 times.
    """

    search: Any
    source_ids: backend.Tensor
    max_length: backend.Tensor
    min_length: backend.Tensor = None
    prefix: backend.Tensor = None
    at_a_time: int | None = None
    few: bool = False

    def stepwise(self) -> dict[str, Any]:
        """The arguments of `Decoding.stream` and of `Decoding.beam_states`."""
        return {name: value for name, value in self._asdict().items() if name != "at_a_time"}


class Batch(NamedTuple):
    """One batch, ready to be decoded.

    Args:
        source_ids: int32 tensor, (batch, source length); None: a model without a source.
        constraints: `Constraints` of tensors.
        parameters: tensors that the search depends on; None: nothing.
        room: int, the most positions that a cache may have.
        length: int, of the answers.
        at_a_time: int, rows that are decoded at a time.
        few: bool, see `Request`.
    """

    source_ids: backend.Tensor
    constraints: Constraints
    parameters: Any
    room: int
    length: int
    at_a_time: int
    few: bool


def checked_batch(request: Request, model: Any) -> Batch:
    """The batch of a request to a model.

    Raises:
        ValueError: An argument is out of range, or a prefix is longer than its max_length.
    """
    source_ids, prefix = request.source_ids, request.prefix
    given = source_ids if source_ids is not None else prefix
    rows = np.size(request.max_length) if given is None else len(given)
    max_length = _lengths("max_length", request.max_length, rows)
    longest, given = int(np.max(request.max_length)), np.asarray(request.max_length).tolist()
    positive = longest >= 1 and np.min(request.max_length) >= 0
    check(positive, "max_length must be at least 1", max_length=given)
    expected = f"max_length must be at most the {model.max_length} positions learned"
    check(longest <= (model.max_length or longest), expected, max_length=given)
    room = longest
    if np.ndim(request.max_length):
        room = max(FIRST_LENGTH, 1 << (longest - 1).bit_length())  # the next power of two
        room = min(room, model.max_length or room)
    min_length = None
    if request.min_length is not None and np.any(request.min_length):
        min_length = _lengths("min_length", request.min_length, rows)
        smallest = min_length.min(initial=0)
        check(smallest == 0, "min_length must be at least 0", min_length=int(smallest))
    if prefix is not None:
        prefix = with_length(_checked_prefix(prefix, max_length, model), room)
    config = request.search.logits
    if config.suppress:
        id_rows("suppress", config.suppress, model.target_vocabulary_size)
    penalties = config.penalties(rows)
    if source_ids is not None:
        source_ids = id_matrix("source_ids", source_ids, model.source_vocabulary_size)
    at_a_time = (source_ids is not None and request.at_a_time) or rows
    expected = "at_a_time must divide the number of sentences"
    check(rows % at_a_time == 0, expected, at_a_time=at_a_time, sentences=rows)
    return Batch(
        source_ids=backend.split_rows(source_ids),
        constraints=backend.split_rows(Constraints(max_length, min_length, prefix, penalties)),
        parameters=backend.to_arguments(request.search.parameters(rows, room)),
        room=room,
        length=longest,
        at_a_time=at_a_time,
        few=request.few,
    )


def _lengths(name, values, rows):
    """int32, (rows,): a length per row. Nothing but ints is cast."""
    values = np.asarray(values)
    given = {"rows": rows, name: values.tolist()}
    fits = values.size and are_ints(values) and values.shape in ((), (rows,))
    check(fits, f"{name} must be an int, or one per row", **given)
    check(np.max(values) < 2**31, f"{name} must be below 2**31", **given)
    return np.broadcast_to(values.astype("int32"), rows)


def _checked_prefix(prefix, max_length, model):
    prefix = id_matrix("prefix", prefix, model.target_vocabulary_size, may_be_empty=True)
    check(START not in prefix, f"A prefix must be without {START} (start)", prefix=prefix)
    given = dict(rows=len(max_length), shape=prefix.shape)
    check(len(prefix) == len(max_length), "prefix must have one row per answer", **given)
    is_token = prefix != PADDING
    rows = np.flatnonzero((is_token[:, 1:] > is_token[:, :-1]).any(axis=1)).tolist()
    check(not rows, "A prefix must be padded on the right", rows=rows)
    lengths = is_token.sum(axis=1)
    fits = (lengths <= max_length) | (max_length == 0)
    row = int(fits.argmin())  # the first that does not, if there is one
    given = dict(prefix_length=int(lengths[row]), max_length=int(max_length[row]))
    check(fits.all(), "A prefix must not be longer than max_length", **given)
    return prefix
