"""Texts of like lengths together, in few shapes: each shape is compiled once."""

import itertools

import numpy as np

from ..tokenizers import PADDING

FEW_TOKENS = 512  # of padding are a smaller cost than one batch, and one shape, more


def by_length(numbers, lengths, batch_size, limit=np.inf, tokens_per_batch=None):
    """Which texts go together, and the shape of their batch; a few short ones join longer ones.

    Args:
        numbers: ints, the texts.
        lengths: int sequence, tokens of each text, by number.
        batch_size: int, the most of one batch.
        limit: int, the longest that the model takes.
        tokens_per_batch: int, the most tokens of one batch, padding included; None: no limit.

    Yields:
        numbers: list of int, which texts.
        rows, length: int, the shape they are padded to.
    """
    groups = {}
    for number in sorted(numbers, key=lengths.__getitem__):
        groups.setdefault(next_length(lengths[number], limit), []).append(number)
    for shorter, length in itertools.pairwise(list(groups)):
        if len(groups[shorter]) * (length - shorter) <= FEW_TOKENS:
            groups[length] = groups.pop(shorter) + groups[length]
    for length, group in groups.items():
        size = batch_size
        if tokens_per_batch is not None:
            size = max(1, min(size, tokens_per_batch // length))
        for start in range(0, len(group), size):
            together = group[start : start + size]
            rows = size if len(group) > size else next_size(len(together), size)
            yield together, rows, length


def next_size(size, largest):
    """The next power of two, at most `largest`: few shapes, few compilations."""
    return min(1 << (size - 1).bit_length(), largest)


def next_length(longest, limit):
    """The next of 16, 32, 48, 64, 96, 128, 192, ..., at most `limit`."""
    length = 16
    while length < longest:
        length += max(16, 1 << (length.bit_length() - 2))
    return int(min(length, limit))


def padded(sequences, rows, length=None):
    """int32, (rows, length, ...), None: as long as the longest; spare rows are padding."""
    length = length or max(map(len, sequences))
    ids = np.full((rows, length, *np.shape(sequences[0])[1:]), PADDING, "int32")
    for row, sequence in zip(ids, sequences):
        row[: len(sequence)] = sequence
    return ids
