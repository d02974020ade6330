"""The four special ids, and the check that ids belong to a vocabulary."""

from collections.abc import Sequence

import numpy as np

PADDING, UNKNOWN, START, END = range(4)


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
