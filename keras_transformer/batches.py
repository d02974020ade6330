"""Ids to arrays: examples sorted into length buckets, padded, the target shifted right.

NumPy alone; `fit` turns the arrays into the backend's own.
"""

import itertools
import logging
from typing import NamedTuple

import keras
import numpy as np

from .arguments import check_at_least
from .tokenizers import END, PADDING, START

FEW_EPOCHS = 4  # of ids drawn at random tell how much room a sentence needs


class TranslationBatches(keras.utils.PyDataset):
    """Batches of padded ids in few shapes, each example once an epoch, in an order set by a seed.

    A batch is ({"source_ids", "target_ids"}, labels), each int32 (rows, length): source + END,
    START + target, target + END, padded with 0 on the right. The decoder reads target_ids and is to
    write labels, one token ahead. A bucket has one shape, its last batch too: the batches of a
    bucket are of even size, and what is missing at the end is filled with rows of padding.

    Pass `shuffle=False` to `fit`: the shuffling is done here, and by default Keras shuffles the
    batches once more from Python's global random state. `epoch` tells whose order is served; it
    advances after each whole pass (so give `fit` no steps_per_epoch). A resumed run sets it, or
    passes `fit` the callback `follow_epoch()`.

    Args:
        source: Sequence of sequences of int, plain ids as `encode` returns them.
        target: As many sequences of int; number n translates source number n.
        tokens_per_batch: int or None, the most target tokens in a batch, padding included: shorter
            sentences, larger batches. A sentence that is longer is a batch of its own.
        batch_size: int or None, the most examples in a batch; 64 if neither is given.
        num_buckets: int, the most shapes.
        multiple: int; lengths, START or END included, are rounded up to a multiple of it.
        shuffle: bool, whether each epoch has an order of its own; False: bucket by bucket.
        seed: int from 0; the order is a function of seed and epoch alone.
        source_vocabulary_size: int or None; if given, larger ids are an error.
        target_vocabulary_size: The same for the target.
        redraw: function of the epoch that gives other ids for the same sentences, (source,
            target), such as `encode_at_random` of both sides; None: every epoch has the same. A
            bucket has room for what a few epochs drew; a pair that gets longer keeps its plain ids.

    Raises:
        ValueError: If there are no examples, the sides differ in number, an argument is out of
            range, or an id is none of a plain text's (the sentence is named).

    Source: Vaswani et al. 2017, section 5.1 (batches of similar lengths, a budget of tokens).
    Departs: counts target tokens with their padding, not source and target tokens without.
    """

    def __init__(
        self,
        source,
        target,
        *,
        tokens_per_batch=None,
        batch_size=None,
        num_buckets=8,
        multiple=4,
        shuffle=True,
        seed=0,
        source_vocabulary_size=None,
        target_vocabulary_size=None,
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
        source, target = list(source), list(target)
        if len(source) != len(target) or not len(source):
            raise ValueError(
                "Expected as many source as target sentences, and at least one; received "
                f"{len(source)} and {len(target)}. Read the two sides as pairs."
            )
        self.tokens_per_batch, self.batch_size = tokens_per_batch, batch_size
        self.shuffle, self.seed = shuffle, seed
        self._sizes = source_vocabulary_size, target_vocabulary_size
        self._plain = self._flattened(source, target)
        self._redraw = redraw
        self.num_examples = len(source)

        # Rows of two: source and target.
        longest = self._plain.lengths
        if redraw is not None:
            drawn = [self._flattened(*redraw(epoch)).lengths for epoch in range(FEW_EPOCHS)]
            longest = np.maximum.reduce([longest, *drawn])
        self._room = -(-(longest + 1) // multiple) * multiple  # with START or END
        bucket_of_example = _group(self._room, num_buckets, self._batching)
        self._members = [bucket_of_example == bucket for bucket in np.unique(bucket_of_example)]
        for members in self._members:
            self._room[members] = self._room[members].max(axis=0)
        self._pack(self._plain)
        self._first_buckets = _two_unlike([bucket.shape for bucket in self._buckets])
        self._order_of_epoch = (None, None)
        self._within_epoch = self._warned = False
        self.epoch = 0

    @property
    def shapes(self):
        """List of (rows, source length, target length), all that the batches have."""
        return sorted({bucket.shape for bucket in self._buckets})

    @property
    def padding_share(self):
        """float from 0 to 1, padding in an epoch's source_ids and labels together."""
        padded = sum(b.num_batches * b.rows * sum(b.shape[1:]) for b in self._buckets)
        return 1 - (self.num_source_tokens + self.num_tokens) / padded

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
            else f"{self.tokens_per_batch} target tokens"
        )
        lines = [
            f"{self.num_examples} examples in {len(self)} batches of at most {budget}: "
            f"{len(self.shapes)} shapes to compile, {self.padding_share:.1%} padding",
            "  rows x source x target  examples  batches",
        ]
        for bucket in sorted(self._buckets, key=lambda bucket: bucket.shape[1:]):
            row = *bucket.shape, bucket.size, bucket.num_batches
            lines.append("{:6} x {:6} x {:6}{:10}{:9}".format(*row))
        return "\n".join(lines)

    def __len__(self):
        return sum(bucket.num_batches for bucket in self._buckets)

    def __getitem__(self, index):
        if not 0 <= index < len(self):
            raise IndexError(f"There are {len(self)} batches, from 0; received index {index}.")
        if self._within_epoch:
            self._served.append(index)
        bucket, rows = self._order()[index]
        source_ids, target_ids, labels = (array[rows] for array in bucket[:3])
        return {"source_ids": source_ids, "target_ids": target_ids}, labels

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

    def _flattened(self, source, target):
        sides = zip((source, target), ("source", "target"), self._sizes)
        (source, source_lengths), (target, target_lengths) = (_flatten(*side) for side in sides)
        return _Ids(source, target, np.stack([source_lengths, target_lengths], axis=1))

    def _pack(self, ids):
        """The buckets with these ids in them."""
        self.num_source_tokens, self.num_tokens = (
            int(total) + self.num_examples
            for total in ids.lengths.sum(axis=0)  # each with END
        )
        self._buckets = []
        for members in self._members:
            source_length, target_length = self._room[members][0].tolist()
            num_batches, rows = self._batching(members.sum(), target_length)
            source = ids.source, ids.lengths[:, 0], members, source_length
            target = ids.target, ids.lengths[:, 1], members, target_length
            arrays = _pack(*source, end=END), _pack(*target, start=START), _pack(*target, end=END)
            self._buckets.append(_Bucket(*arrays, int(num_batches), int(rows)))

    def _redrawn(self, epoch):
        """The ids of an epoch, each pair within its bucket's room."""
        drawn = self._flattened(*self._redraw(epoch))
        fits = (drawn.lengths < self._room).all(axis=1)
        lengths = np.where(fits[:, None], drawn.lengths, self._plain.lengths)
        sides = (
            _chosen(
                fits,
                getattr(drawn, side),
                drawn.lengths[:, n],
                getattr(self._plain, side),
                self._plain.lengths[:, n],
            )
            for n, side in enumerate(("source", "target"))
        )
        return _Ids(*sides, lengths)

    def _batching(self, num_examples, target_length):
        """Number of batches and rows of each, for one bucket or an array of them."""
        most = self.batch_size
        if most is None:
            most = np.maximum(1, self.tokens_per_batch // target_length)
        num_batches = -(-num_examples // most)
        return num_batches, -(-num_examples // num_batches)

    def _order(self):
        """The epoch's batches as (bucket, row numbers): a pure function of seed and epoch."""
        epoch, order = self._order_of_epoch
        if epoch == self.epoch:
            return order
        epoch = self.epoch
        if self._redraw is not None:
            self._pack(self._redrawn(epoch))
        generator = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        order = []
        for bucket in self._buckets:
            rows = np.full(bucket.num_batches * bucket.rows, bucket.size)  # the row of padding
            rows[: bucket.size] = np.arange(bucket.size)
            if self.shuffle:
                generator.shuffle(rows[: bucket.size])
            order.extend((bucket, batch) for batch in rows.reshape(bucket.num_batches, bucket.rows))
        if self.shuffle:
            order = [order[i] for i in generator.permutation(len(order))]
        for position, number in enumerate(self._first_buckets):
            first = next(i for i, (b, _) in enumerate(order) if b is self._buckets[number])
            order.insert(position, order.pop(first))
        self._order_of_epoch = (epoch, order)
        return order


class _Ids(NamedTuple):
    source: np.ndarray  # all sentences' ids, one after the other
    target: np.ndarray
    lengths: np.ndarray  # (examples, 2): how many are each one's


class _Bucket(NamedTuple):
    source_ids: np.ndarray  # (size + 1, source length); in all three, the last row is padding
    target_ids: np.ndarray  # (size + 1, target length)
    labels: np.ndarray  # (size + 1, target length)
    num_batches: int
    rows: int

    @property
    def size(self):
        return len(self.labels) - 1

    @property
    def shape(self):
        return self.rows, self.source_ids.shape[1], self.labels.shape[1]


def _flatten(sequences, side, vocabulary_size):
    """All ids in one array, and the length of each sentence."""
    arrays = [np.asarray(ids) for ids in sequences]
    for n, array in enumerate(arrays):
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ValueError(
                f"Each sentence must be a sequence of int ids; {side} sentence {n} is "
                f"{sequences[n]!r:.60}. Turn text into ids with encode first."
            )
    lengths = np.array([array.size for array in arrays])
    ids = np.concatenate([array.astype(np.int64) for array in arrays])
    end = 2**31 if vocabulary_size is None else vocabulary_size
    wrong = (ids < 0) | (ids >= end) | np.isin(ids, (PADDING, START, END))
    if wrong.any():
        position = int(wrong.argmax())
        n = int(np.searchsorted(lengths.cumsum(), position, side="right"))
        raise ValueError(
            f"A plain id is from 0 to {end - 1}, but none of padding {PADDING}, start {START} and "
            f"end {END}, which are added here; received {ids[position]} in {side} sentence {n}. "
            "Use ids from encode and the tokenizer that belongs to the model."
        )
    return ids.astype(np.int32), lengths


def _chosen(first, ids, lengths, other_ids, other_lengths):
    """The sentences' ids, where `first` from the one array and elsewhere from the other."""
    parts = np.split(ids, lengths.cumsum()[:-1]), np.split(other_ids, other_lengths.cumsum()[:-1])
    return np.concatenate([one if f else other for f, one, other in zip(first, *parts)])


def _pack(ids, lengths, members, length, start=None, end=None):
    """The members' ids as rows, START before them or END behind, and a last row of padding."""
    own = lengths[members, None]
    rows = np.full((len(own) + 1, length), PADDING, np.int32)
    offset = 0 if start is None else 1
    column = np.arange(length)
    real = (column >= offset) & (column < own + offset)
    rows[:-1][real] = ids[np.repeat(members, lengths)]
    if start is not None:
        rows[:-1, 0] = start
    if end is not None:
        np.put_along_axis(rows[:-1], own, end, axis=1)
    return rows


def _group(lengths, num_buckets, batching):
    """A bucket number for each example, so that little is padded.

    Two lengths count, so cutting the sorted examples would not do. Begin with a bucket for each
    pair of lengths (examples, 2); merge the two whose union adds the least padding, until there
    are few enough and no merger saves anything.
    """
    cells, step = lengths, 1
    while len(np.unique(cells, axis=0)) > 256:  # begin coarser; a thousand would take seconds
        step *= 2
        cells = -(-lengths // step)
    _, group, sizes = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
    group = group.reshape(-1)  # NumPy 2.0 kept the axis
    longest = np.zeros((len(sizes), 2), int)
    np.maximum.at(longest, group, lengths)

    def cost(sizes, longest):  # tokens to compute, padding included
        num_batches, rows = batching(sizes, longest[..., 1])
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
