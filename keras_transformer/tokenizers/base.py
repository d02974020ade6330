"""Text to ids and back: the interface of every tokenizer.

A tokenizer takes and returns plain lists, the same on every backend. It is a Keras layer so that a
saved model carries it: the vocabulary is an asset of the `.keras` file.
"""

import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import keras

from ..checks import TextError, check
from ..ids import END, PADDING, START, check_ids, int_rows


class Tokenizer(keras.layers.Layer):
    """Interface of the tokenizers: 0 is padding, 1 unknown, 2 start, 3 end.

    A subclass has the methods `vocabulary_size`, `_read`, `_encode`, `_sample`, `_texts` and
    `_token`, and `unknown_characters` if it has any.

    Args:
        serialized: bytes, the vocabulary as its library writes it; None: `load_assets` will provide
            it.

    Raises:
        ValueError: It is not a valid vocabulary, or has other special ids.
    """

    vocabulary_file = ""  # its name among the assets of a .keras file

    def __init__(self, serialized: bytes | None = None, dtype: Any = "int32", **kwargs: Any):
        super().__init__(dtype=dtype, **kwargs)
        self.built = True
        self.serialized: Any = None  # bytes, once there is a vocabulary
        if serialized is not None:
            self._set(serialized)

    def encode(
        self,
        texts: Iterable[str],
        sample: bool = False,
        alpha: float = 0.1,
        seed: int | Sequence[int] = 0,
    ) -> list[list[int]]:
        """The ids of each text, without START, END or padding.

        Args:
            texts: Iterable of str. An empty text gives an empty list.
            sample: bool, whether to draw a random segmentation of each text (subword
                regularization); possible for SentencePiece's "bpe" and "unigram".
            alpha: float in [0, 1]. For "bpe", the probability that a merge is left out
                (BPE-dropout). For "unigram", a segmentation is drawn with a probability
                proportional to its own to the power of alpha.
            seed: int from 0, or several. The same seed and texts give the same ids, in
                every process.

        Returns:
            List of lists of int, one per text.

        Raises:
            ValueError: An item is not text (its position and type are named), alpha is out of
                range, or the vocabulary has one segmentation per text.
        """
        self._ready()
        texts = checked_texts(texts)
        return self._sample(texts, alpha, seed) if sample else self._encode(texts)

    def unknown_characters(self, texts: Iterable[str]) -> list[int]:
        """How many characters of each text are read as unknown; a run of them may be one id."""
        return [0] * len(checked_texts(texts))

    def unknown_share(self, texts: Iterable[str]) -> float:
        """The fraction of the characters of texts that are read as unknown, in [0, 1]."""
        texts = checked_texts(texts)
        return sum(self.unknown_characters(texts)) / max(1, sum(map(len, texts)))

    def vocabulary_size(self) -> int:
        """int, number of ids, the four special ones included."""
        raise NotImplementedError

    def decode(self, sequences: Any) -> list[str]:
        """The text of each sequence of ids, up to its first END; padding and START are dropped.

        Args:
            sequences: Sequences of int: lists of any lengths, or an array or tensor (number,
                length).

        Returns:
            List of str, one per sequence. The unknown id becomes U+2047, a double question mark.

        Raises:
            ValueError: An id is not in the vocabulary (its row and position are named).
        """
        self._ready()
        rows = [ids[: ids.index(END)] if END in ids else ids for ids in _as_lists(sequences)]
        check_ids("sequences", rows, self.vocabulary_size())
        return self._texts([[i for i in ids if i not in (PADDING, START)] for ids in rows])

    def get_vocabulary(self) -> list[str]:
        """The strings of all ids, in their order."""
        return self.tokens(range(self.vocabulary_size()))

    def tokens(self, ids: Any) -> list[str]:
        """The string of each id, to label an axis.

        Args:
            ids: int, (length,): one sequence.

        Returns:
            List of str, one per id, as the vocabulary writes it.

        Raises:
            ValueError: An id is not in the vocabulary (its position is named).
        """
        self._ready()
        rows = _as_lists([ids])
        check_ids("ids", rows, self.vocabulary_size())
        return [self._token(i) for i in rows[0]]

    def save_assets(self, dir_path: str) -> None:
        """Writes the vocabulary into a folder; `Model.save` calls this."""
        self._ready()
        pathlib.Path(dir_path, self.vocabulary_file).write_bytes(self.serialized)

    def load_assets(self, dir_path: str) -> None:
        """Reads the vocabulary from a folder; `load_model` calls this."""
        self._set(pathlib.Path(dir_path, self.vocabulary_file).read_bytes())

    def get_config(self) -> dict[str, Any]:
        """The layer's own configuration; the vocabulary is an asset."""
        return super().get_config()

    def _set(self, serialized):
        check(
            isinstance(serialized, bytes),
            "A vocabulary must be bytes, the content of its file",
            type=type(serialized).__name__,
        )
        self._processor = self._read(serialized)
        self.serialized = serialized

    def _ready(self):
        """The library's object that holds the vocabulary."""
        if self.serialized is None:
            raise ValueError(
                "The tokenizer has no vocabulary yet: learn one with train_tokenizer, "
                "or load the model that contains it."
            )
        return self._processor

    def _read(self, serialized):
        """The library's object of a serialized vocabulary; a ValueError if it has other ids."""
        raise NotImplementedError

    def _encode(self, texts):
        """The ids of each text."""
        raise NotImplementedError

    def _sample(self, texts, alpha, seed):
        """The ids of a random segmentation of each text."""
        raise NotImplementedError

    def _texts(self, rows):
        """The text of each list of ids, among which is neither padding, START nor END."""
        raise NotImplementedError

    def _token(self, id):
        """The string of an id of the vocabulary."""
        raise NotImplementedError


def checked_texts(texts: Iterable[str]) -> list[str]:
    """The texts as a list, once each is known to be a valid str.

    Args:
        texts: Iterable of str, a generator included.

    Raises:
        ValueError: `texts` is one str or no iterable at all, an item is not a str, or an item
            cannot be encoded as UTF-8.
    """
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        raise ValueError(
            f"Expected a list of texts; received one {type(texts).__name__}. "
            "Put the text in a list: [text]."
        )
    texts = list(texts)
    for n, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(
                f"Every text must be a str; item {n} is of type {type(text).__name__}: "
                f"{text!r:.60}. Drop it, or convert it to text."
            )
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise TextError(
                    n,
                    f"has half a surrogate pair at character {error.start}. Read it as UTF-8, "
                    "without 'surrogateescape'.",
                    "Every text must be valid Unicode; item",
                ) from None
    return texts


def _as_lists(sequences):
    if hasattr(sequences, "shape"):
        sequences = keras.ops.convert_to_numpy(sequences)
    return [ids.tolist() for ids in int_rows("sequences", list(sequences))]
