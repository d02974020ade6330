"""Examples of like lengths in batches of few shapes, each example once an epoch.

NumPy alone; `fit` turns the arrays into the backend's own.
"""

import itertools
import logging
from typing import NamedTuple

import keras
import numpy as np

from ..arguments import check_at_least
from ..tokenizers import PADDING

FEW_EPOCHS = 4  # of ids drawn at random tell how much room an example needs


class Column(NamedTuple):
    """One array of a batch before it is padded: the ids of all examples, one after the other.

    Args:
        values: int32, (ids, ...); or, for one value an example, (examples, ...).
        side: int, which of an example's lengths says how many are its own; None: one value each.
    """

    values: np.ndarray
    side: int | None = 0


class BucketedBatches(keras.utils.PyDataset):
    """Batches of padded ids in few shapes, in an order set by a seed.

    A kind of batch is a subclass. It names its `sides` (what has a length), turns what it is given
    into `Column`s by `columns`, and the padded arrays of these into what `fit` takes by `batch`.

    Args:
        given: tuple, the arguments of `columns`.
        tokens_per_batch: int or None, the most ids of the last side in a batch, padding included:
            shorter examples, larger batches. An example that is longer is a batch of its own.
        batch_size: int or None, the most examples in a batch; 64 if neither is given.
        num_buckets: int, the most shapes.
        multiple: int; lengths are rounded up to a multiple of it.
        shuffle: bool, whether each epoch has an order of its own; False: bucket by bucket.
        seed: int from 0; the order is a function of seed and epoch alone.
        redraw: function of the epoch that gives other arguments of `columns` for the same
            examples; None: every epoch has the same. A bucket has room for what a few epochs drew;
            an example that gets longer keeps what it had.
    """

    sides = ("text",)
    unit = "tokens"

    def __init__(
        self,
        given,
        *,
        tokens_per_batch=None,
        batch_size=None,
        num_buckets=8,
        multiple=4,
        shuffle=True,
        seed=0,
        redraw=None,
    ):
        super().__init__(workers=1)  # a batch is an index take: threads would only cost
        if tokens_per_batch is not None and batch_size is not None:
            raise ValueError(
                "Give tokens_per_batch or batch_size, not both; received "
                f"tokens_per_batch={tokens_per_batch}, batch_size={batch_size}."
            )
        if tokens_per_batch is None and batch_size is None:
            batch_size = 64
        check_at_least(1, tokens_per_batch=tokens_per_batch, batch_size=batch_size)
        check_at_least(1, num_buckets=num_buckets, multiple=multiple)
        check_at_least(0, seed=seed)
        self.tokens_per_batch, self.batch_size = tokens_per_batch, batch_size
        self.shuffle, self.seed = shuffle, seed
        self._redraw = redraw
        self._plain, self._plain_lengths = self.columns(*given)
        self.num_examples = len(self._plain_lengths)

        longest = self._plain_lengths  # (examples, sides)
        if redraw is not None:
            drawn = [self.columns(*redraw(epoch))[1] for epoch in range(FEW_EPOCHS)]
            longest = np.maximum.reduce([longest, *drawn])
        self._room = np.maximum(1, -(-longest // multiple)) * multiple
        bucket_of_example = _group(self._room, num_buckets, self._batching)
        self._members = [bucket_of_example == bucket for bucket in np.unique(bucket_of_example)]
        for members in self._members:
            self._room[members] = self._room[members].max(axis=0)
        self._pack(self._plain, self._plain_lengths)
        self._first_buckets = _two_unlike([bucket.shape for bucket in self._buckets])
        self._order_of_epoch = (None, None)
        self._within_epoch = self._warned = False
        self.epoch = 0

    def columns(self, *given):
        """List of `Column`, and the lengths of all examples, int, (examples, sides)."""
        raise NotImplementedError

    def batch(self, *arrays):
        """(inputs, labels) as `fit` takes them, of padded arrays, one a column."""
        raise NotImplementedError

    @property
    def shapes(self):
        """List of (rows, length of each side), all that the batches have."""
        return sorted({bucket.shape for bucket in self._buckets})

    @property
    def num_tokens(self):
        """int, real tokens in an epoch, of the last side: those that are predicted."""
        return int(self._lengths[:, -1].sum())

    @property
    def padding_share(self):
        """float from 0 to 1, padding in an epoch's batches, all sides together."""
        padded = sum(b.num_batches * b.rows * sum(b.shape[1:]) for b in self._buckets)
        return 1 - int(self._lengths.sum()) / padded

    @property
    def epoch(self):
        """int from 0, the epoch whose order is served. A resumed run sets it."""
        return self._epoch

    @epoch.setter
    def epoch(self, epoch):
        check_at_least(0, epoch=epoch)
        self._epoch, self._served = int(epoch), []

    def follow_epoch(self):
        """A callback for `fit` that keeps `epoch` equal to `fit`'s own, wherever that starts.

        Returns:
            `keras.callbacks.Callback`.
        """
        return keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: setattr(self, "epoch", epoch)
        )

    def summary(self):
        """The buckets as a table, after a line with the number of shapes and the padding.

        Returns:
            str of several lines.
        """
        budget = (
            f"{self.batch_size} examples"
            if self.tokens_per_batch is None
            else f"{self.tokens_per_batch} {self.unit}"
        )
        lines = [
            f"{self.num_examples} examples in {len(self)} batches of at most {budget}: "
            f"{len(self.shapes)} shapes to compile, {self.padding_share:.1%} padding",
            f"  {' x '.join(('rows', *self.sides))}  examples  batches",
        ]
        for bucket in sorted(self._buckets, key=lambda bucket: bucket.shape[1:]):
            shape = " x ".join(f"{length:6}" for length in bucket.shape)
            lines.append(f"{shape}{bucket.size:10}{bucket.num_batches:9}")
        return "\n".join(lines)

    def __len__(self):
        return sum(bucket.num_batches for bucket in self._buckets)

    def __getitem__(self, index):
        if not 0 <= index < len(self):
            raise IndexError(f"There are {len(self)} batches, from 0; received index {index}.")
        if self._within_epoch:
            self._served.append(index)
        bucket, rows = self._order()[index]
        return self.batch(*(array[rows] for array in bucket.arrays))

    def on_epoch_begin(self):
        self._within_epoch, self._served = True, []

    def on_epoch_end(self):
        # Keras also calls this as `fit` begins, perhaps after reading a batch to build the model:
        # only a whole pass counts.
        served, self._within_epoch = self._served, False
        if len(set(served)) < len(self):
            return
        if served != sorted(served) and not self._warned:
            self._warned = True
            logging.getLogger(__name__).warning(
                "Keras shuffles the batches a second time, from Python's global random state: "
                "this run cannot be resumed exactly. Pass fit(..., shuffle=False)."
            )
        self.epoch += 1

    def _pack(self, columns, lengths):
        """The buckets with these ids in them."""
        self._lengths = lengths
        self._buckets = []
        for members in self._members:
            room = self._room[members][0].tolist()
            num_batches, rows = self._batching(members.sum(), room[-1])
            arrays = [_rows(column, lengths, members, room) for column in columns]
            shape = int(rows), *room
            self._buckets.append(_Bucket(arrays, int(num_batches), shape))

    def _redrawn(self, epoch):
        """The columns and lengths of an epoch, each example within its bucket's room."""
        drawn, lengths = self.columns(*self._redraw(epoch))
        fits = (lengths <= self._room).all(axis=1)
        chosen = [
            _chosen(fits, new, lengths, old, self._plain_lengths)
            for new, old in zip(drawn, self._plain, strict=True)
        ]
        return chosen, np.where(fits[:, None], lengths, self._plain_lengths)

    def _batching(self, num_examples, length):
        """Number of batches and rows of each, for one bucket or an array of them."""
        most = self.batch_size
        if most is None:
            most = np.maximum(1, self.tokens_per_batch // length)
        num_batches = -(-num_examples // most)
        return num_batches, -(-num_examples // num_batches)

    def _order(self):
        """The epoch's batches as (bucket, row numbers): a pure function of seed and epoch."""
        epoch, order = self._order_of_epoch
        if epoch == self.epoch:
            return order
        epoch = self.epoch
        if self._redraw is not None:
            self._pack(*self._redrawn(epoch))
        generator = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        order = []
        for bucket in self._buckets:
            # the row of padding, where there is no example any more
            rows = np.full(bucket.num_batches * bucket.shape[0], bucket.size)
            rows[: bucket.size] = np.arange(bucket.size)
            if self.shuffle:
                generator.shuffle(rows[: bucket.size])
            order.extend((bucket, batch) for batch in rows.reshape(bucket.num_batches, -1))
        if self.shuffle:
            order = [order[i] for i in generator.permutation(len(order))]
        for position, number in enumerate(self._first_buckets):
            first = next(i for i, (b, _) in enumerate(order) if b is self._buckets[number])
            order.insert(position, order.pop(first))
        self._order_of_epoch = (epoch, order)
        return order


class _Bucket(NamedTuple):
    arrays: list  # (size + 1, length, ...), one a column; the last row is padding
    num_batches: int
    shape: tuple  # (rows, length of each side)

    @property
    def size(self):
        return len(self.arrays[0]) - 1

    @property
    def rows(self):
        return self.shape[0]


def _rows(column, lengths, members, room):
    """The members' values of a column, padded to their bucket's room, and a last row of padding."""
    values, side = column
    shape = (members.sum() + 1,) + (() if side is None else (room[side],)) + values.shape[1:]
    rows = np.full(shape, PADDING, np.int32)
    if side is None:
        rows[:-1] = values[members]
    else:
        own = lengths[:, side]
        real = np.arange(room[side]) < own[members, None]
        rows[:-1][real] = values[np.repeat(members, own)]
    return rows


def _chosen(first, column, lengths, other, other_lengths):
    """A column's values, where `first` from the one and elsewhere from the other."""

    def each(column, lengths):
        if column.side is None:
            return column.values[:, None]
        return np.split(column.values, lengths[:, column.side].cumsum()[:-1])

    pairs = zip(first, each(column, lengths), each(other, other_lengths), strict=True)
    return column._replace(values=np.concatenate([one if f else two for f, one, two in pairs]))


def _group(lengths, num_buckets, batching):
    """A bucket number for each example, so that little is padded.

    Several lengths may count, so cutting the sorted examples would not do. Begin with a bucket for
    each combination of lengths (examples, sides); merge the two whose union adds the least padding,
    until there are few enough and no merger saves anything.
    """
    cells, step = lengths, 1
    while len(np.unique(cells, axis=0)) > 256:  # begin coarser; a thousand would take seconds
        step *= 2
        cells = -(-lengths // step)
    _, group, sizes = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
    group = group.reshape(-1)  # NumPy 2.0 kept the axis
    longest = np.zeros((len(sizes), lengths.shape[1]), int)
    np.maximum.at(longest, group, lengths)

    def cost(sizes, longest):  # tokens to compute, padding included
        num_batches, rows = batching(sizes, longest[..., -1])
        return num_batches * rows * longest.sum(axis=-1)

    while len(sizes) > 1:
        union = cost(sizes[:, None] + sizes, np.maximum(longest[:, None], longest))
        alone = cost(sizes, longest)
        added = (union - alone[:, None] - alone).astype(float)
        np.fill_diagonal(added, np.inf)
        i, j = np.unravel_index(added.argmin(), added.shape)  # i < j: the first of the two
        if len(sizes) <= num_buckets and added[i, j] > 0:
            break
        sizes[i] += sizes[j]
        longest[i] = np.maximum(longest[i], longest[j])
        sizes, longest = np.delete(sizes, j), np.delete(longest, j, axis=0)
        group[group == j] = i
        group[group > j] -= 1
    return group


def _two_unlike(shapes):
    """Two buckets that differ in each of the lengths that differ at all; they always come first.

    On TensorFlow, Keras takes a length that batches 0 and 1 share for the length of all, and fails
    at the first other one. Such a pair exists: if a and b differ in the one length alone, whatever
    differs from them in the other length cannot share the one with both.
    """
    pairs = itertools.combinations(range(len(shapes)), 2)
    return max(
        pairs,
        key=lambda pair: sum(
            one != other for one, other in zip(*(shapes[b][1:] for b in pair), strict=True)
        ),
        default=(),
    )
