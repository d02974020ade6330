"""Texts of similar lengths in one batch, and few shapes of batches: each shape is compiled once.

At inference the shapes come from a fixed grid, so that every call meets the same ones. In training
all lengths are known in advance, so the shapes are chosen to fit them.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..checks import TextError
from ..ids import PADDING

LONGEST = 8192  # tokens of an input, if no learned positions limit it: memory grows as the square
MOST_PAIRS = 2**24  # of tokens per batch, since each attends to each: 64 texts of 512
MOST_ROWS = 32  # of a batch whose sentences take the rows of others: 64 were slower
MOST_WAITING = 2**15  # source tokens of such a batch
MOST_ROUNDS = 16  # sentences per row of such a batch
FEW_TOKENS = 512  # padding that costs less than one more batch of one more shape
MOST_CELLS = 1024  # combinations of lengths to start merging from; more would take seconds
COUNTED_TOGETHER = 2**20  # examples whose lengths are counted at a time


def check_lengths(
    lengths: Any, most: int, name: str, of_what: str, cure: str, side: int = 0
) -> None:
    """Refuses texts that are longer than a model reads: before a run, and in each answer.

    Args:
        lengths: int, (texts,).
        most: int, the limit.
        name: str, what a text is called, before its number.
        of_what: str, what is counted, and why there is a limit.
        cure: str, a sentence.
        side: int, see `TextError`.

    Raises:
        TextError: One is longer; the first is named.
    """
    for number in np.flatnonzero(np.asarray(lengths) > most)[:1].tolist():
        problem = f"must have at most {most} {of_what}; received {int(lengths[number])}. {cure}"
        raise TextError(number, problem, name, side)


def bucket_length(n: int, limit: float = np.inf) -> int:
    """The next of 16, 32, 48, 64, 96, 128, 192, ..., at most `limit`."""
    length = 16
    while length < n:
        length += max(16, 1 << (length.bit_length() - 2))
    return int(min(length, limit))


def next_power_of_two(n: int, most: int) -> int:
    """The smallest power of two from `n`, at most `most`."""
    return min(1 << (n - 1).bit_length(), most)


def pad(sequences: Sequence, rows: int, length: int | None = None) -> np.ndarray:
    """One array from sequences of different lengths; missing values and rows are padding.

    Args:
        sequences: At least one int sequence, (length, ...); at most `rows`.
        rows: int.
        length: int; None: the length of the longest sequence.

    Returns:
        int32, (rows, length, ...).
    """
    lengths = np.array([len(sequence) for sequence in sequences])
    length = length or lengths.max()
    ids = np.full((rows, length, *np.shape(sequences[0])[1:]), PADDING, "int32")
    is_real = np.arange(length) < lengths[:, None]
    ids[: len(lengths)][is_real] = np.concatenate(sequences)
    return ids


def group_by_length(
    numbers: Iterable[int],
    lengths: Sequence[int],
    batch_size: int,
    limit: float = np.inf,
    tokens_per_batch: int | None = None,
    continuous: bool = False,
) -> Iterator[tuple[list[int], int, int, int]]:
    """Batches for inference; a few short texts join the longer ones.

    The longest come first: where several are decoded at a time, short ones fill the end.

    Args:
        numbers: ints, which texts.
        lengths: int sequence, tokens of each text, by number.
        batch_size: int, maximum number of texts per batch; of long ones there are fewer.
        limit: int, the longest input of the model.
        tokens_per_batch: int, maximum number of tokens per batch, padding included; None: no limit.
        continuous: bool, whether a batch may have several texts per row, the longest first.

    Yields:
        numbers: list of int, the texts of one batch.
        rows, length: int, the shape to pad them to.
        at_a_time: int, see `generation.Request`; it is `rows` unless there are several per row.
    """
    groups = {}
    for number in sorted(numbers, key=lengths.__getitem__):
        groups.setdefault(bucket_length(lengths[number], limit), []).append(number)
    for shorter, longer in itertools.pairwise(list(groups)):
        if len(groups[shorter]) * (longer - shorter) <= FEW_TOKENS:
            groups[longer] = groups.pop(shorter) + groups[longer]
    for length, group in reversed(groups.items()):
        most = min(batch_size, MOST_PAIRS // length**2)
        if tokens_per_batch is not None:
            most = min(most, tokens_per_batch // length)
        most = max(1, most)
        rounds = min(MOST_WAITING // (length * most), MOST_ROUNDS)
        if continuous and rounds > 1 and len(group) > 2 * most:
            parts = 2 * -(-len(group) // (2 * rounds * most))  # equal ones, for two at a time
            for first in range(parts):
                yield group[first::parts][::-1], rounds * most, length, most
            continue
        for start in range(0, len(group), most):
            batch = group[start : start + most]
            rows = most if len(group) > most else next_power_of_two(len(batch), most)
            yield batch, rows, length, rows


def assign_buckets(
    lengths: np.ndarray, num_buckets: int, cost: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """A bucket for each training example, so that little is padded.

    An example may have several lengths (source and target). The distinct combinations are sorted
    by their longest length, and of all ways to cut this list into at most `num_buckets` parts the
    cheapest one is found by dynamic programming.

    Args:
        lengths: int, (examples, sides).
        num_buckets: int from 1.
        cost: function of sizes, int (buckets,), and lengths, int (buckets, sides): the tokens to
            compute for each of these buckets, padding included.

    Returns:
        int32, (examples,), bucket numbers from 0.
    """
    combinations, counts, of_example = _distinct(lengths)
    cells, step = combinations, 1
    while len(np.unique(cells, axis=0)) > MOST_CELLS:
        step *= 2
        cells = -(-combinations // step)
    keys = np.column_stack([cells.max(axis=1), cells[:, ::-1]])
    distinct, cell_of_combination = np.unique(keys, axis=0, return_inverse=True)
    cell_of_combination = cell_of_combination.reshape(-1)  # NumPy 2.0 kept the axis
    number = len(distinct)
    sizes = np.zeros(number, int)
    np.add.at(sizes, cell_of_combination, counts)
    longest = np.zeros((number, lengths.shape[1]), int)
    np.maximum.at(longest, cell_of_combination, combinations)

    # With price[i, j], that of one bucket of the cells i to j - 1 (0 for none), the price of the
    # first j cells in at most n buckets, of which the last one starts at cell i, is
    #     cheapest_1[j] = price[0, j]
    #     cheapest_n[j] = min over i of cheapest_(n-1)[i] + price[i, j]
    price = np.full((number + 1, number + 1), np.inf)
    np.fill_diagonal(price, 0)
    for i in range(number):
        sizes_to_j, longest_to_j = sizes[i:].cumsum(), np.maximum.accumulate(longest[i:])
        price[i, i + 1 :] = cost(sizes_to_j, longest_to_j)
    cheapest, starts = price[0], []  # starts: for each n, the best i of each j
    for _ in range(num_buckets - 1):
        prices = cheapest[:, None] + price
        starts.append(prices.argmin(axis=0))
        cheapest = prices.min(axis=0)

    end, cuts = number, []
    for start in reversed(starts):
        end = start[end]
        cuts.append(end)
    bucket_of_cell = np.searchsorted(cuts[::-1], np.arange(number), side="right")
    bucket_of_cell = np.unique(bucket_of_cell, return_inverse=True)[1]
    return of_example(bucket_of_cell[cell_of_combination])


def _distinct(lengths):
    """The distinct rows of an array of lengths, and how often each occurs.

    In parts: the lengths of millions of examples are not copied as a whole.

    Returns:
        rows, counts, and a function from a value per row to an int32 array, a value per example.
    """
    sizes = lengths.max(axis=0) + 1
    parts = range(0, len(lengths), COUNTED_TOGETHER)

    def keys(start):
        part = lengths[start : start + COUNTED_TOGETHER].astype("int64")
        return np.ravel_multi_index(tuple(part.T), sizes)

    counted = [np.unique(keys(start), return_counts=True) for start in parts]
    distinct, inverse = np.unique(np.concatenate([k for k, _ in counted]), return_inverse=True)
    counts = np.zeros(len(distinct), int)
    np.add.at(counts, inverse.reshape(-1), np.concatenate([count for _, count in counted]))

    def of_example(values):
        values = values.astype("int32")
        return np.concatenate([values[np.searchsorted(distinct, keys(start))] for start in parts])

    return np.column_stack(np.unravel_index(distinct, sizes)), counts, of_example
