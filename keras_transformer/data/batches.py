"""Batches of padded ids for `fit`, each example once per epoch.

NumPy alone; `fit` converts the arrays to the backend's own.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..checks import check, check_at_least
from ..ids import END, START, are_ints, check_ids, id_rows, int_rows
from .buckets import BucketedBatches, Column, RowsInMemory


class TranslationBatches(BucketedBatches):
    """Batches of sentence pairs, each pair once per epoch, in an order set by a seed.

    A batch is ({"source_ids", "target_ids"}, labels), each int32 (rows, length): source + END,
    START + target, target + END, padded with 0 on the right. The decoder reads target_ids and
    learns to predict labels, one token ahead. All batches of a bucket have one shape; rows that
    the last one lacks are padding.

    Pass `shuffle=False` to `fit`: the shuffling is done here, and by default Keras shuffles the
    batches once more from Python's global random state. `epoch` is the epoch whose order is
    served; it advances after each whole pass (so give `fit` no steps_per_epoch). A run that is
    resumed sets it to the `initial_epoch` of `fit`.

    Args:
        source: Sequence of sequences of int, plain ids as a tokenizer's `encode` returns them.
        target: As many sequences of int; item n translates source item n.
        tokens_per_batch: int or None, maximum number of target tokens per batch, padding included:
            shorter sentences, larger batches. A longer sentence is a batch of its own.
        batch_size: int or None, maximum number of examples per batch; 64 if neither is given.
        num_buckets: int, maximum number of shapes.
        multiple: int; lengths, START or END included, are rounded up to a multiple of it.
        rows_multiple: int; so is the number of rows, by rows of padding, which weigh nothing. None:
            the devices that share a batch: of `keras.distribution.DataParallel`, of
            TensorFlow's strategy, or of `distribution.use_devices`.
        max_length: int or None, the longest input that the model reads, in ids: a longer sentence
            is refused, and none is padded further. A model with learned positions has one.
        shuffle: bool, whether each epoch has an order of its own; False: bucket by bucket.
        seed: int from 0; the order is a function of seed and epoch alone.
        source_vocabulary_size: int or None; if given, larger ids are an error.
        target_vocabulary_size: int or None, for the target.
        resample: function of the epoch that returns other ids for the same sentences, (source,
            target), such as `encode(sample=True)` of both sides; None: every epoch has
            the same. The shapes fit the first few epochs; a pair that outgrows its bucket in a
            later one keeps its original ids.

    Raises:
        ValueError: There are no examples, the sides differ in number, an argument is out of range,
            a sentence is too long, or an id is special or not in the vocabulary (its row is named).

    Source: Vaswani et al. 2017, section 5.1 (batches of similar lengths, a budget of tokens).
    Departs: counts target tokens with their padding, not source and target tokens without.
    """

    def __init__(
        self,
        source: Sequence,
        target: Sequence,
        *,
        source_vocabulary_size: int | None = None,
        target_vocabulary_size: int | None = None,
        **options: Any,
    ):
        sizes = source_vocabulary_size, target_vocabulary_size

        make_rows = functools.partial(_translation_rows, sizes=sizes)
        super().__init__(make_rows, (source, target), ("source", "target"), **options)


class TextBatches(BucketedBatches):
    """Batches of texts for a `LanguageModel`: ({"token_ids"}, labels), each int32 (rows, length).

    The model reads START + text and learns to predict text + END, padded with 0 on the right. For
    `chunks` of a longer text pass `append_end=False`: the last token is then predicted but not
    read, and no END is predicted.

    Args:
        texts: Sequence of sequences of int, plain ids as a tokenizer's `encode` returns them.
        append_end: bool, whether END follows each text.
        vocabulary_size: int or None; if given, larger ids are an error.
        **options: the other arguments of `TranslationBatches`; `resample` returns (texts,).

    Raises:
        ValueError: There is no text, an argument is out of range, or an id is special or not in
            the vocabulary (its row is named).
    """

    def __init__(
        self,
        texts: Sequence,
        *,
        append_end: bool = True,
        vocabulary_size: int | None = None,
        **options: Any,
    ):
        make_rows = functools.partial(
            _text_rows, append_end=append_end, vocabulary_size=vocabulary_size
        )
        super().__init__(make_rows, (texts,), ("text",), **options)


class WordBatches(BucketedBatches):
    """Batches of words with labels: ({"word_ids", "character_ids"}, labels), int32.

    word_ids are (rows, length), character_ids (rows, length, characters), labels (rows, length)
    for a label per word, or (rows,) for one per text; padded with 0.

    Args:
        words: Sequence of int arrays, (length,), as `WordVocabulary.encode` returns them.
        characters: As many int arrays, (length, characters).
        labels: As many int sequences, (length,), from 1; or one int per text.
        **options: the other arguments of `TranslationBatches`; `resample` returns (words,
            characters, labels).

    Raises:
        ValueError: There is no example, the three do not fit together (the sentence is named), or
            an argument is out of range.
    """

    def __init__(self, words: Sequence, characters: Sequence, labels: Sequence, **options: Any):
        super().__init__(_word_rows, (words, characters, labels), ("word",), **options)


def chunks(ids: np.ndarray, length: int, start: int = 0) -> np.ndarray:
    """Consecutive chunks of a long text; the rest at its end is dropped.

    Their number depends on the length of the text alone, so that each epoch may start elsewhere:

        TextBatches(
            chunks(ids, 64), append_end=False, resample=lambda epoch: [chunks(ids, 64, epoch)]
        )

    Args:
        ids: int, (tokens,).
        length: int from 1, tokens per chunk.
        start: int, position of the first chunk; taken modulo `length`.

    Returns:
        int32, (chunks, length).

    Raises:
        ValueError: The text is shorter than two chunks.
    """
    check_at_least(1, length=length)
    ids = np.asarray(ids)
    expected = "ids must be one sequence of ints"
    check(ids.ndim == 1 and are_ints(ids), expected, shape=ids.shape, dtype=ids.dtype.name)
    check_ids("ids", [ids])
    number = len(ids) // length - 1
    if number < 1:
        raise ValueError(
            f"Expected a text of at least two chunks of {length} tokens; received {len(ids)} "
            "tokens. Provide more text, or choose shorter chunks."
        )
    start %= length
    return ids[start : start + number * length].reshape(number, length).astype("int32")


def _translation_rows(source, target, sizes):
    source, target = list(source), list(target)
    if len(source) != len(target) or not source:
        raise ValueError(
            "Expected as many source as target sentences, and at least one; received "
            f"{len(source)} and {len(target)}. Read the two sides as pairs."
        )
    source = id_rows("source", source, sizes[0], plain=True)
    target = id_rows("target", target, sizes[1], plain=True)
    columns = {
        "source_ids": Column(_with_end(source), side=0),
        "target_ids": Column(_with_start(target), side=1),
        "labels": Column(_with_end(target), side=1),
    }
    return RowsInMemory(columns)


def _text_rows(texts, append_end, vocabulary_size):
    texts = list(texts)
    check(len(texts), "Expected at least one text", number=len(texts))
    texts = id_rows("texts", texts, vocabulary_size, plain=True)
    if append_end:
        columns = {"token_ids": Column(_with_start(texts)), "labels": Column(_with_end(texts))}
        return RowsInMemory(columns)
    shortest = min(map(len, texts))
    check(shortest, "Without END, a text needs at least one token", shortest=shortest)
    read = _with_start([ids[:-1] for ids in texts])
    return RowsInMemory({"token_ids": Column(read), "labels": Column(texts)})


def _word_rows(words, characters, labels):
    words, characters, labels = list(words), list(characters), list(labels)
    if not len(words) == len(characters) == len(labels) or not words:
        raise ValueError(
            "Expected as many sentences of words as of characters and of labels, and at least "
            f"one; received {len(words)}, {len(characters)} and {len(labels)}."
        )
    per_word = np.ndim(labels[0]) == 1
    for number, (ids, spelling, label) in enumerate(zip(words, characters, labels, strict=True)):
        is_labeled = np.shape(label) == ((len(ids),) if per_word else ())
        if len(ids) != len(spelling) or not is_labeled:
            raise ValueError(
                "Expected the characters of each word, and a label per word or one per text; "
                f"received {len(ids)} words, the characters of {len(spelling)} and the labels "
                f"{label!r:.60} in sentence {number}."
            )
    characters = int_rows("characters", characters, axes=2)
    check_ids("characters", [array.reshape(-1) for array in characters])
    labels = id_rows("labels", labels if per_word else [labels])
    columns = {
        "word_ids": Column(id_rows("words", words)),
        "character_ids": Column(characters),
        "labels": Column(labels, side=0) if per_word else Column(list(labels[0]), side=None),
    }
    return RowsInMemory(columns)


def _with_start(sequences):
    start = np.array([START], "int32")
    return [np.concatenate([start, ids]) for ids in sequences]


def _with_end(sequences):
    end = np.array([END], "int32")
    return [np.concatenate([ids, end]) for ids in sequences]
