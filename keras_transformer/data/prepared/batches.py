"""Batches from prepared corpora: those of the same examples in memory, read from disk."""

import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...atomic import named, temporary_folder
from ...checks import check
from ...ids import END, PADDING, START
from ..buckets import Bucket, BucketedBatches
from .corpus import CORPUS_FILE, Corpus
from .workers import ShardWriters


class PreparedBatches(BucketedBatches):
    """Batches of one or several prepared corpora, in an order set by a seed.

    Of one corpus they are, bit for bit, those of `TranslationBatches` or of `TextBatches` for the
    same examples and options. Only lengths and order are in memory, some 30 bytes per pair.

    Several corpora are mixed by weights. An epoch is one pass over the corpus that its weight
    exhausts first; the others continue in the next epoch where they stopped, so that each of their
    examples comes once per pass over that corpus.

        batches = PreparedBatches(Corpus("corpora/en-de"), tokens_per_batch=4096, seed=1)
        model.fit(batches, epochs=3, shuffle=False)

    Args:
        corpora: `Corpus`, or several of one kind, vocabulary and cleaning.
        weights: float above 0 per corpus, its share of the examples of an epoch; they need not sum
            to 1. None: all examples of each.
        subword_alpha: float in [0, 1], subword regularization: each epoch has random segmentations
            of the same texts, written to a temporary folder before it begins; see
            `SentencePieceTokenizer.encode`. None: every epoch has the same ids.
        cache: path of the folder for these; None: that of temporary files. It must have room for
            the corpora twice.
        num_processes: int from 1, processes that write them; None: one per core.
        **options: the other arguments of `TranslationBatches`, except its vocabulary sizes and
            `resample`.

    Raises:
        ValueError: The corpora do not fit together, or an argument is out of range. In use: a shard
            is damaged (it is named).
    """

    def __init__(
        self,
        corpora: Corpus | Sequence[Corpus],
        weights: Sequence[float] | None = None,
        *,
        subword_alpha: float | None = None,
        cache: str | None = None,
        num_processes: int | None = None,
        seed: int = 0,
        **options: Any,
    ):
        self.corpora = [corpora] if isinstance(corpora, Corpus) else list(corpora)
        _check_mixable(self.corpora)
        sizes = np.array([len(corpus) for corpus in self.corpora])
        self._ends = sizes.cumsum()
        self._shares = _shares(sizes, weights)
        self._alpha, self._num_processes = subword_alpha, num_processes
        self._sampled_epoch, self._sampled = -1, []
        resample = None
        if subword_alpha is not None:
            check(0 <= subword_alpha <= 1, "subword_alpha must be in [0, 1]", alpha=subword_alpha)
            if cache is not None:
                named(cache, "cache")
            self._folder = temporary_folder(self, cache)
            resample = self._sample
        options |= {"seed": seed, "resample": resample}
        super().__init__(_RowsOnDisk, (self.corpora,), self.corpora[0].sides, **options)

    def _parts(self, examples):
        """The start and end of each corpus in a bucket, and how many of these an epoch has."""
        ends = np.searchsorted(examples, self._ends)
        starts = [0, *ends[:-1]]
        for share, start, end in zip(self._shares, starts, ends, strict=True):
            yield start, end, int(np.ceil((end - start) * share - 1e-9))

    def _num_per_epoch(self, examples):
        return sum(count for *_, count in self._parts(examples))

    def _chosen(self, number, epoch):
        parts = []
        for corpus, part in enumerate(self._parts(self._buckets[number].examples)):
            start, end, count = part
            seed = [self.seed, corpus, number]
            parts.append(start + _part_of_pass(end - start, count, epoch, self.shuffle and seed))
        return np.concatenate(parts).astype("int32")

    def _real_tokens(self):
        parts = np.split(self._rows.lengths, self._ends[:-1])
        sums = np.array([part.sum(axis=0, dtype="int64") for part in parts])
        return np.rint(self._shares @ sums).astype("int64")

    def _sample(self, epoch):
        """The corpora with random segmentations; those of the last epoch asked for are kept."""
        if epoch != self._sampled_epoch:
            self._sampled_epoch = -1  # if interrupted
            while self._sampled:
                corpus = self._sampled.pop()
                corpus.close()
                shutil.rmtree(corpus.folder)
            self._sampled = [Corpus(folder) for folder in self._write_sampled(epoch)]
            self._sampled_epoch = epoch
        return (self._sampled,)

    def _write_sampled(self, epoch):
        arguments, folders = [], []
        for number, corpus in enumerate(self.corpora):
            folder = self._folder / f"epoch-{epoch}-{number}"
            folder.mkdir(exist_ok=True)
            for path in (corpus.folder / CORPUS_FILE, *set(corpus.vocabulary_paths)):
                shutil.copy(path, folder)
            folders.append(folder)
            drawn = {"alpha": self._alpha, "seed": [self.seed, epoch]}
            drawn["vocabularies"] = corpus.vocabularies
            paths = corpus.shard_paths
            arguments += [{"path": folder / p.name, "shard": p, **drawn} for p in paths]
        numbered = ({**each, "number": number} for number, each in enumerate(arguments))
        with ShardWriters(self._num_processes) as writers:
            writers.run("write_sampled", numbered)
        return folders


class _RowsOnDisk:
    """The examples of corpora; has the methods of `RowsInMemory`."""

    def __init__(self, corpora):
        self._corpora = corpora
        self._starts = np.cumsum([0, *map(len, corpora)])
        self.lengths = np.concatenate([corpus.lengths for corpus in corpora]) + 1  # START or END

    def limited(self, fits, original):
        return _LimitedRows(self, fits, original)

    def place(self, buckets: Sequence[Bucket]) -> None:
        self._examples = [bucket.examples for bucket in buckets]
        self._shapes = [bucket.shape for bucket in buckets]

    def take(self, number, rows):
        examples, shape = self._examples[number], self._shapes[number]
        examples = examples[rows[rows < len(examples)]]
        lengths = self.lengths[examples] - 1
        sides = [
            (ids, lengths[:, side], (len(rows), shape[1 + side]))
            for side, ids in enumerate(self._ids(examples, lengths))
        ]
        if len(sides) == 1:
            return {"token_ids": _with_start(*sides[0]), "labels": _with_end(*sides[0])}
        source, target = sides
        return {
            "source_ids": _with_end(*source),
            "target_ids": _with_start(*target),
            "labels": _with_end(*target),
        }

    def record(self, example):
        """The stored ids of an example, and their dtype."""
        corpus = 0
        if len(self._corpora) > 1:
            corpus = int(np.searchsorted(self._starts, example, side="right")) - 1
        return self._corpora[corpus].record(int(example - self._starts[corpus]))

    def _ids(self, examples, lengths):
        """The ids of each side, those of all examples one after the other."""
        records = [self.record(example) for example in examples.tolist()]
        ids = np.frombuffer(b"".join(values for values, _ in records), records[0][1])
        num_sides = lengths.shape[1]
        side = np.repeat(np.tile(np.arange(num_sides), len(examples)), lengths.ravel())
        return [ids[side == number] for number in range(num_sides)]


class _LimitedRows(_RowsOnDisk):
    """Those of one `_RowsOnDisk` where they fit, else those of the other."""

    def __init__(self, drawn, fits, original):
        self._drawn, self._fits, self._original = drawn, fits, original
        self.lengths = np.where(fits[:, None], drawn.lengths, original.lengths)

    def record(self, example):
        return (self._drawn if self._fits[example] else self._original).record(example)


def _with_start(ids, lengths, shape):
    """START and the ids of each row, padded."""
    array, is_real = _empty(lengths, shape)
    array[: len(lengths), 0] = START
    array[: len(lengths), 1:][is_real[:, :-1]] = ids
    return array


def _with_end(ids, lengths, shape):
    """The ids of each row and END, padded."""
    array, is_real = _empty(lengths, shape)
    array[: len(lengths)][is_real] = ids
    array[np.arange(len(lengths)), lengths] = END
    return array


def _empty(lengths, shape):
    return np.full(shape, PADDING, "int32"), np.arange(shape[1]) < lengths[:, None]


def _shares(sizes, weights):
    """The part of each corpus that an epoch has, at most 1."""
    if weights is None:
        return np.ones(len(sizes))
    values = np.array(weights, float)
    holds = values.shape == sizes.shape and np.isfinite(values).all() and (values > 0).all()
    expected = f"weights must be {len(sizes)} numbers above 0, one per corpus"
    check(holds, expected, weights=weights)
    return values * (sizes / values).min() / sizes


def _part_of_pass(size, count, epoch, seed):
    """The positions that an epoch takes of `size`, where each takes the next `count` of passes.

    Args:
        size: int, examples.
        count: int, at most `size`.
        epoch: int from 0.
        seed: ints, from which each pass has its order; False: the given order.
    """
    if count == size:
        return np.arange(size)
    first, last = epoch * count // size, (epoch * count + count - 1) // size

    def order(number):
        if not seed:
            return np.arange(size)
        return np.random.Generator(np.random.PCG64([*seed, number])).permutation(size)

    passes = np.concatenate([order(number) for number in range(first, last + 1)])
    return passes[epoch * count - first * size :][:count]


def _check_mixable(corpora):
    are_corpora = corpora and all(isinstance(each, Corpus) for each in corpora)
    expected = "Expected one Corpus or several, such as Corpus(folder)"
    check(are_corpora, expected, corpora=corpora[:3])
    first = corpora[0]
    for corpus in corpora[1:]:
        for what in ("kind", "cleaning", "vocabularies"):
            if getattr(corpus, what) != getattr(first, what):
                raise ValueError(
                    f"Corpora to mix must have the same {what}; those of {first.folder} and "
                    f"{corpus.folder} differ. Prepare one with the vocabulary and the options of "
                    "the other."
                )
