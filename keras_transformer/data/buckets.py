"""Batches in few shapes: examples of similar lengths share a bucket, and it has one shape."""

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from ..backend import distribution
from ..checks import check, check_at_least, check_optional
from ..ids import PADDING
from .lengths import assign_buckets, check_lengths, pad

FEW_EPOCHS = 4  # of resampled ids are measured to choose the shapes


class Column(NamedTuple):
    """The rows of one array of a batch.

    Args:
        rows: list, one per example: an int array (length, ...), or one int.
        side: int, which length of the bucket the rows are padded to; None: each row is one int.
    """

    rows: list
    side: int | None = 0


class Bucket(NamedTuple):
    """Examples that are padded to the same lengths.

    Args:
        examples: int array (size,), numbers of the examples.
        shape: tuple of int, (rows of a batch, length of each side).
        per_epoch: int, number of these per epoch.
    """

    examples: np.ndarray
    shape: tuple[int, ...]
    per_epoch: int

    @property
    def num_batches(self) -> int:
        """int, batches per epoch."""
        return -(-self.per_epoch // self.shape[0])

    @property
    def num_tokens(self) -> int:
        """int, tokens per epoch of all sides, padding included."""
        return self.num_batches * self.shape[0] * sum(self.shape[1:])


class RowsInMemory:
    """The padded arrays of examples in memory, made once.

    Args:
        columns: dict from the name of an array to its `Column`; one name is "labels".

    Attributes:
        lengths: int array (examples, sides), with START or END.
    """

    def __init__(self, columns: dict[str, Column]):
        self.columns, self.lengths = columns, _lengths(columns)

    def limited(self, fits: np.ndarray, original: "RowsInMemory") -> "RowsInMemory":
        """These rows where `fits`, bool (examples,), is true; elsewhere the rows of `original`."""
        columns = {}
        for name, column in self.columns.items():
            triples = zip(fits, column.rows, original.columns[name].rows, strict=True)
            columns[name] = column._replace(rows=[new if fit else old for fit, new, old in triples])
        return RowsInMemory(columns)

    def place(self, buckets: Sequence[Bucket]) -> None:
        """Makes the arrays of each bucket, (size + 1, length, ...); the last row is padding."""
        self._arrays: list[dict[str, np.ndarray]] = []
        for bucket in buckets:
            examples, lengths = bucket.examples.tolist(), bucket.shape[1:]
            self._arrays.append({})
            for name, (rows, side) in self.columns.items():
                values = [rows[example] for example in examples]
                if side is None:
                    self._arrays[-1][name] = np.array([*values, PADDING], "int32")
                else:
                    self._arrays[-1][name] = pad(values, len(values) + 1, lengths[side])

    def take(self, number: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        """A batch of a bucket.

        Args:
            number: int, the bucket.
            rows: int (rows,), positions in the examples of the bucket; their number means a row
                of padding.

        Returns:
            dict from a name to an int32 array (rows, length, ...).
        """
        return {name: array[rows] for name, array in self._arrays[number].items()}


class BucketedBatches(keras.utils.PyDataset):
    """Batches in few shapes, in an order set by a seed; a kind of batch is a subclass.

    A batch is (inputs, labels): inputs is a dict of all arrays but "labels".

    The shapes and the order are planned from the lengths alone, so that the examples themselves
    may be in memory or on disk.

    Attributes:
        epoch: int from 0, the epoch whose order is served. It advances after each whole pass of
            `fit` (or of `evaluate`: Keras does not tell them apart); a run that is resumed sets it.
        first_batch: int, the first batch of the epoch that `fit` reads; a run that is resumed
            within an epoch sets it.

    Args:
        make_rows: function that makes `RowsInMemory` of examples, or what has its methods.
        examples: tuple, its arguments.
        sides: tuple of str, names of what has a length of its own, e.g. ("source", "target").
        tokens_per_batch: int or None, maximum number of ids of the last side per batch, padding
            included: shorter examples, larger batches. A longer example is a batch of its own.
        batch_size: int or None, maximum number of examples per batch; 64 if neither is given.
        num_buckets: int, maximum number of shapes.
        multiple: int; lengths are rounded up to a multiple of it.
        rows_multiple: int; so is the number of rows, by rows of padding, which weigh nothing. None:
            the devices that share a batch, see `distribution.num_shares`.
        shuffle: bool, whether each epoch has an order of its own; False: bucket by bucket.
        seed: int from 0; the order is a function of seed and epoch alone.
        max_length: int or None, the longest input that the model reads, in ids: a longer example is
            refused, and none is padded further.
        resample: function of the epoch that returns other arguments of `make_rows` for the same
            examples; None: every epoch has the same. The shapes fit the first few epochs; an
            example that outgrows its bucket in a later one keeps its original ids.
    """

    def __init__(
        self,
        make_rows: Callable[..., Any],
        examples: tuple,
        sides: tuple[str, ...],
        *,
        tokens_per_batch: int | None = None,
        batch_size: int | None = None,
        num_buckets: int = 8,
        multiple: int = 4,
        rows_multiple: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        max_length: int | None = None,
        resample: Callable[[int], Sequence] | None = None,
    ):
        super().__init__(workers=1)  # a batch is made in less time than threads would cost
        limits = dict(tokens_per_batch=tokens_per_batch, batch_size=batch_size)
        check(None in limits.values(), "Give tokens_per_batch or batch_size, not both", **limits)
        check_optional(1, **limits, rows_multiple=rows_multiple, max_length=max_length)
        check_at_least(1, num_buckets=num_buckets, multiple=multiple)
        check_at_least(0, seed=seed)
        self.sides = sides
        self.tokens_per_batch = tokens_per_batch
        self.batch_size = 64 if tokens_per_batch is None and batch_size is None else batch_size
        self.rows_multiple = rows_multiple or distribution.num_shares()
        self.shuffle, self.seed = shuffle, seed
        self.epoch = self.first_batch = 0
        self._make_rows, self._resample = make_rows, resample
        self._rows = self._original = make_rows(*examples)
        longest = self._rows.lengths
        limit = np.iinfo("int32").max if max_length is None else max_length
        for number, side in enumerate(sides):
            ids = "words" if side == "word" else f"{side} tokens, START or END included"
            cure = "Split it, or leave it out, or read more with a larger max_length."
            check_lengths(longest[:, number], limit, "Example", ids, cure, number)
        if resample is not None:
            for epoch in reversed(range(FEW_EPOCHS)):  # the first one is needed first
                longest = np.maximum(longest, make_rows(*resample(epoch)).lengths)
        rounded = np.minimum(np.maximum(1, -(-longest // multiple)) * multiple, limit)
        self._buckets = self._choose_buckets(rounded, num_buckets)
        self._rows.place(self._buckets)
        self._order_of_epoch: tuple[int | None, list] = (None, [])
        self._served: list | None = None  # by index, since an epoch of `fit` began
        self._warned = False

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """List of (rows, length of each side), the distinct shapes of the batches."""
        return sorted({bucket.shape for bucket in self._buckets})

    @property
    def num_tokens(self) -> int:
        """int, real tokens per epoch, of the last side: those that are predicted."""
        return int(self._real_tokens()[-1])

    @property
    def num_examples(self) -> int:
        """int, examples per epoch."""
        return sum(bucket.per_epoch for bucket in self._buckets)

    @property
    def padding_share(self) -> float:
        """float from 0 to 1, the share of padding in an epoch's batches, all sides together."""
        return 1 - int(self._real_tokens().sum()) / sum(b.num_tokens for b in self._buckets)

    @property
    def num_batches(self) -> int:
        """int, batches that Keras reads per epoch: the ones from `first_batch` on."""
        return len(self) - self.first_batch

    def summary(self) -> str:
        """The buckets as a table, after a line with the number of shapes and the padding.

        Returns:
            str of several lines.
        """
        most = f"{self.batch_size} examples"
        if self.tokens_per_batch is not None:
            most = f"{self.tokens_per_batch} {self.sides[-1]} tokens"
        lines = [
            f"{self.num_examples} examples in {len(self)} batches of at most {most}: "
            f"{len(self.shapes)} shapes (XLA compiles each), {self.padding_share:.1%} padding",
            f"  {' x '.join(('rows', *self.sides))}  examples  batches",
        ]
        for bucket in sorted(self._buckets, key=lambda bucket: bucket.shape[1:]):
            shape = " x ".join(f"{length:6}" for length in bucket.shape)
            lines.append(f"{shape}{bucket.per_epoch:10}{bucket.num_batches:9}")
        return "\n".join(lines)

    def __len__(self) -> int:
        return sum(bucket.num_batches for bucket in self._buckets)

    def __getitem__(self, index: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        if not 0 <= index < self.num_batches:
            raise IndexError(
                f"There are {self.num_batches} batches, from 0; received index {index}."
            )
        if self._served is not None:
            self._served.append(index)
            index += self.first_batch  # outside, Keras looks at the first two for their shapes
        bucket, rows = self._order()[index]
        missing = -len(rows) % distribution.num_shares()  # devices that came after the plan
        rows = np.append(rows, np.full(missing, len(self._buckets[bucket].examples), rows.dtype))
        inputs = self._rows.take(bucket, rows)
        labels = inputs.pop("labels")
        return inputs, labels

    def on_epoch_begin(self) -> None:
        self._served = []

    def on_epoch_end(self) -> None:
        # Keras also calls this as `fit` begins, perhaps after reading a batch to build the model:
        # only a whole pass counts.
        served, self._served = self._served, None
        if served is None or len(set(served)) < len(self):
            return
        if served != sorted(served) and not self._warned:
            self._warned = True
            logging.getLogger(__name__).warning(
                "Keras shuffles the batches a second time, from Python's global random state: "
                "this run cannot be resumed exactly. Pass fit(..., shuffle=False)."
            )
        self.epoch += 1

    def _num_per_epoch(self, examples):
        """How many of the examples of a bucket an epoch has."""
        return len(examples)

    def _chosen(self, number, epoch):
        """The examples of a bucket that an epoch has, as positions in the bucket."""
        return np.arange(len(self._buckets[number].examples), dtype="int32")

    @property
    def trained_length(self) -> int:
        """Tokens of the first side, END included, that at most 1 % of the examples exceed."""
        return int(np.percentile(self._rows.lengths[:, 0], 99, method="inverted_cdf"))

    def _real_tokens(self):
        """int, (sides,): real tokens per epoch."""
        return self._rows.lengths.sum(axis=0, dtype="int64")

    def _num_rows(self, num_examples, length):
        """Rows of the batches of one bucket, or of an array of them: batches of even size."""
        most = self.batch_size
        if most is None:
            most = np.maximum(1, self.tokens_per_batch // length)
        multiple = self.rows_multiple
        most = np.maximum(multiple, most // multiple * multiple)
        num_batches = -(-num_examples // most)
        rows = -(-num_examples // num_batches)
        return -(-rows // multiple) * multiple

    def _cost(self, num_examples, lengths):
        """Tokens to compute for buckets, padding included."""
        rows = self._num_rows(num_examples, lengths[:, -1])
        return -(-num_examples // rows) * rows * lengths.sum(axis=1)

    def _choose_buckets(self, lengths, num_buckets):
        buckets = []
        bucket_of_example = assign_buckets(lengths, num_buckets, self._cost)
        for number in range(bucket_of_example.max() + 1):
            examples = np.flatnonzero(bucket_of_example == number).astype("int32")
            longest = lengths[examples].max(axis=0)
            per_epoch = self._num_per_epoch(examples)
            rows = self._num_rows(per_epoch, longest[-1])
            buckets.append(Bucket(examples, (int(rows), *longest.tolist()), per_epoch))
        return buckets

    def _order(self):
        """The epoch's batches as (bucket number, rows): a function of seed and epoch alone."""
        epoch, order = self._order_of_epoch
        if epoch != self.epoch:
            check_at_least(0, epoch=self.epoch)
            if self._resample is not None:
                drawn = self._make_rows(*self._resample(self.epoch))
                self._rows = drawn.limited(self._fits(drawn.lengths), self._original)
                self._rows.place(self._buckets)
            order = self._shuffled(self.epoch)
            self._order_of_epoch = (self.epoch, order)
        return order

    def _fits(self, lengths):
        """bool, (examples,): whether resampled ones, of these lengths, still fit their bucket."""
        fits = np.empty(len(lengths), bool)
        for bucket in self._buckets:
            within = lengths[bucket.examples] <= bucket.shape[1:]
            fits[bucket.examples] = within.all(axis=1)
        return fits

    def _shuffled(self, epoch):
        generator = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        batches = []  # of each bucket
        for number, bucket in enumerate(self._buckets):
            size, chosen = len(bucket.examples), self._chosen(number, epoch)
            # Rows of padding, which others replace below.
            rows = np.full((bucket.num_batches, bucket.shape[0]), size, "int32")
            chosen = generator.permutation(chosen) if self.shuffle else chosen
            rows.flat[: len(chosen)] = chosen
            batches.append([(number, batch) for batch in rows])
        first = [batches[number].pop(0) for number in _most_different(self._buckets)]
        others = list(itertools.chain(*batches))
        if self.shuffle:
            others = [others[i] for i in generator.permutation(len(others))]
        return [*first, *others]


def _lengths(columns):
    """int, (examples, sides)."""
    rows_of_side = {column.side: column.rows for column in columns.values()}
    rows_of_side.pop(None, None)
    return np.array([[len(row) for row in rows_of_side[side]] for side in sorted(rows_of_side)]).T


def _most_different(buckets):
    """Two buckets that differ in each of the lengths that vary at all; they come first.

    On TensorFlow, Keras takes a length that batches 0 and 1 share for the length of all, and fails
    at the first other one. Such a pair exists: if a and b differ in one length alone, a bucket that
    differs from them in the other length cannot share the first with both.

    Returns:
        Tuple of two bucket numbers; of none if there is one bucket.
    """

    def number_of_differences(pair):
        one, other = (buckets[number].shape[1:] for number in pair)
        return sum(a != b for a, b in zip(one, other, strict=True))

    pairs = itertools.combinations(range(len(buckets)), 2)
    return max(pairs, key=number_of_differences, default=())
