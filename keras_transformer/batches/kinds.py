"""What is in a batch: pairs of sentences, texts, or words with labels."""

import numpy as np

from ..arguments import check, check_at_least
from ..tokenizers import END, PADDING, START
from .buckets import BucketedBatches, Column


class TranslationBatches(BucketedBatches):
    """Batches of sentence pairs in few shapes, each once an epoch, in an order set by a seed.

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

    sides = ("source", "target")
    unit = "target tokens"

    def __init__(
        self, source, target, *, source_vocabulary_size=None, target_vocabulary_size=None, **options
    ):
        self._sizes = source_vocabulary_size, target_vocabulary_size
        super().__init__((source, target), **options)

    def columns(self, source, target):
        source, target = list(source), list(target)
        if len(source) != len(target) or not len(source):
            raise ValueError(
                "Expected as many source as target sentences, and at least one; received "
                f"{len(source)} and {len(target)}. Read the two sides as pairs."
            )
        source, source_lengths = _flatten(source, "source sentence", self._sizes[0])
        target, target_lengths = _flatten(target, "target sentence", self._sizes[1])
        columns = [
            Column(_with_end(source, source_lengths), 0),
            Column(_with_start(target, target_lengths), 1),
            Column(_with_end(target, target_lengths), 1),
        ]
        return columns, np.stack([source_lengths, target_lengths], axis=1) + 1

    @property
    def num_source_tokens(self):
        """int, real source tokens in an epoch, each END counted."""
        return int(self._lengths[:, 0].sum())

    def batch(self, source_ids, target_ids, labels):
        return {"source_ids": source_ids, "target_ids": target_ids}, labels


class TextBatches(BucketedBatches):
    """Batches of texts for a `LanguageModel`: ({"token_ids"}, labels), each int32 (rows, length).

    START + text is read, text + END is to be written, padded with 0 on the right. Of what was cut
    from a longer text (`windows`), `ends=False`: nothing ends there, so START stands in the place
    of the last token, and no END is to be written.

    Args:
        texts: Sequence of sequences of int, plain ids as `encode` returns them.
        ends: bool, whether the texts end where they end.
        vocabulary_size: int or None; if given, larger ids are an error.
        **options: those of `TranslationBatches`; `redraw` gives other `texts` for an epoch.

    Raises:
        ValueError: If there is no text, an argument is out of range, or an id is none of a plain
            text's (the text is named).
    """

    def __init__(self, texts, *, ends=True, vocabulary_size=None, **options):
        self.ends, self._size = ends, vocabulary_size
        super().__init__((texts,), **options)

    def columns(self, texts):
        texts = list(texts)
        check(len(texts), "Expected at least one text", number=len(texts))
        ids, lengths = _flatten(texts, "text", self._size)
        read = _with_start(ids, lengths)
        if self.ends:
            return [Column(read), Column(_with_end(ids, lengths))], lengths[:, None] + 1
        check(lengths.all(), "A text that does not end needs a token", lengths=lengths.min())
        last = (lengths + 1).cumsum() - 1
        return [Column(np.delete(read, last)), Column(ids)], lengths[:, None]

    def batch(self, token_ids, labels):
        return {"token_ids": token_ids}, labels


def windows(ids, length, start=0):
    """A long text cut into windows that follow each other; what is left at the end is dropped.

    Their number depends on the length of the text alone, so that each epoch may start elsewhere:

        TextBatches(windows(ids, 64), ends=False, redraw=lambda epoch: [windows(ids, 64, epoch)])

    Args:
        ids: int, (tokens,).
        length: int from 1, tokens of a window.
        start: int, where the first begins; taken modulo `length`.

    Returns:
        int32, (windows, length).

    Raises:
        ValueError: The text is shorter than two windows.
    """
    check_at_least(1, length=length)
    ids = np.asarray(ids, "int32")
    number = len(ids) // length - 1
    if number < 1:
        raise ValueError(
            f"Expected a text of at least two windows of {length} tokens; received {len(ids)} "
            "tokens. Give more text, or choose a shorter window."
        )
    start %= length
    return ids[start : start + number * length].reshape(number, length)


class WordBatches(BucketedBatches):
    """Batches of words with labels: ({"word_ids", "character_ids"}, labels), int32.

    word_ids are (rows, length), character_ids (rows, length, characters), labels (rows, length)
    for a label a word, or (rows,) for one a text; padded with 0.

    Args:
        words: Sequence of int arrays, (length,), as `WordVocabulary.encode` returns them.
        characters: As many int arrays, (length, characters).
        labels: As many int sequences, (length,), from 1; or one int a text.
        **options: those of `TranslationBatches`; `redraw` gives other (words, characters, labels).

    Raises:
        ValueError: If there is no example, or the three do not fit together (the sentence is
            named), or an argument is out of range.
    """

    sides = ("words",)
    unit = "words"

    def __init__(self, words, characters, labels, **options):
        super().__init__((words, characters, labels), **options)

    def columns(self, words, characters, labels):
        words, characters, labels = list(words), list(characters), list(labels)
        if not len(words) == len(characters) == len(labels) or not len(words):
            raise ValueError(
                "Expected as many sentences of words as of characters and of labels, and at least "
                f"one; received {len(words)}, {len(characters)} and {len(labels)}."
            )
        a_word_each = np.ndim(labels[0]) == 1
        for number, (own, spelled, label) in enumerate(zip(words, characters, labels)):
            labelled = np.shape(label) == ((len(own),) if a_word_each else ())
            if len(own) != len(spelled) or not labelled:
                raise ValueError(
                    "Expected the characters of each word, and a label of each word or one of each "
                    f"text; received {len(own)} words, the characters of {len(spelled)} and the "
                    f"labels {label!r:.60} in sentence {number}."
                )
        lengths = np.array([len(own) for own in words])[:, None]
        together = np.concatenate(labels) if a_word_each else np.array(labels)
        return [
            Column(np.concatenate(words).astype("int32")),
            Column(np.concatenate(characters).astype("int32")),
            Column(together.astype("int32"), 0 if a_word_each else None),
        ], lengths

    def batch(self, word_ids, character_ids, labels):
        return {"word_ids": word_ids, "character_ids": character_ids}, labels


def _flatten(sequences, name, vocabulary_size):
    """All ids in one array, and the length of each sentence."""
    arrays = [np.asarray(ids) for ids in sequences]
    for n, array in enumerate(arrays):
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ValueError(
                f"Each sentence must be a sequence of int ids; {name} {n} is "
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
            f"end {END}, which are added here; received {ids[position]} in {name} {n}. "
            "Use ids from encode and the tokenizer that belongs to the model."
        )
    return ids.astype(np.int32), lengths


def _with_start(ids, lengths):
    """START before the ids of each sentence."""
    return np.insert(ids, lengths.cumsum() - lengths, START)


def _with_end(ids, lengths):
    """END behind the ids of each sentence."""
    return np.insert(ids, lengths.cumsum(), END)
