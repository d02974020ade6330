"""The four special ids, and the checks of ids, which come before any cast to int32."""

from collections.abc import Sequence

import numpy as np

from .checks import check

PADDING, UNKNOWN, START, END = range(4)


def are_ints(array: np.ndarray) -> bool:
    """Whether an array holds ints, not bools, floats or strings that a cast would accept."""
    return array.dtype.kind in "iu" or not array.size


def int_rows(name: str, rows: np.ndarray | Sequence, axes: int = 1) -> list[np.ndarray]:
    """The rows as arrays of ints of any size.

    Args:
        name: str, name of the argument, for the error.
        rows: sequence of int arrays or sequences.
        axes: int, axes of a row.

    Raises:
        ValueError: A row holds anything else; it is named, from 0.
    """
    arrays = [_as_array(row) for row in rows]
    for n, array in enumerate(arrays):
        if array.ndim != axes or not are_ints(array):
            raise ValueError(
                f"Every row of {name} must be a sequence of int ids; row {n} is "
                f"{rows[n]!r:.60}. Encode text with a tokenizer first."
            )
    return arrays


def id_rows(
    name: str, rows: np.ndarray | Sequence, vocabulary_size: int | None = None, plain: bool = False
) -> list[np.ndarray]:
    """The rows as int32 arrays, once `check_ids` has passed; arguments as there."""
    arrays = int_rows(name, rows)
    check_ids(name, arrays, vocabulary_size, plain)
    return [array.astype("int32") for array in arrays]


def id_matrix(
    name: str, ids: np.ndarray | Sequence, vocabulary_size: int, may_be_empty: bool = False
) -> np.ndarray:
    """One int32 array of rows of equal length, once `check_ids` has passed; arguments as there.

    Args:
        name, vocabulary_size: as of `check_ids`.
        ids: int, (batch, length).
        may_be_empty: bool, whether the length may be 0.
    """
    array = _as_array(ids)
    check(
        array.ndim == 2 and are_ints(array) and (may_be_empty or array.size),
        f"{name} must be (batch, length), of int ids",
        shape=array.shape,
        dtype=array.dtype.name,
    )
    check_ids(name, array, vocabulary_size)
    return array.astype("int32")


def _as_array(ids):
    if hasattr(ids, "detach"):  # a tensor of PyTorch, perhaps on a GPU
        ids = ids.detach().cpu()
    try:
        return np.asarray(ids)
    except ValueError:  # rows of several lengths
        return np.empty((), "object")


def check_ids(
    name: str,
    rows: np.ndarray | Sequence,
    vocabulary_size: int | None = None,
    plain: bool = False,
) -> None:
    """Refuses ids outside the vocabulary, for which JAX would silently return NaN.

    Args:
        name: str, name of the argument, for the error.
        rows: int, (rows, length), or sequences of int of any lengths.
        vocabulary_size: int, number of ids; None: as many as fit into int32.
        plain: bool, whether PADDING, START and END are refused as well.

    Raises:
        ValueError: An id is out of range; the first one is named with its row and position, both
            from 0.
    """
    lengths = [len(row) for row in rows]
    if not sum(lengths):
        return
    ids = np.concatenate([row for row in rows if len(row)])
    limit = 2**31 if vocabulary_size is None else vocabulary_size
    wrong = (ids < 0) | (ids >= limit)
    if plain:
        wrong |= np.isin(ids, (PADDING, START, END))
    if not wrong.any():
        return
    first = int(wrong.argmax())
    ends = np.cumsum(lengths)
    row = int(np.searchsorted(ends, first, side="right"))
    position = first - int(ends[row]) + lengths[row]
    specials = f" and none of {PADDING}, {START} and {END} (padding, start, end)" if plain else ""
    raise ValueError(
        f"Every id of {name} must be from 0 to {limit - 1}{specials}; received {ids[first]} in "
        f"row {row}, position {position}. Use the tokenizer that belongs to the model."
    )
