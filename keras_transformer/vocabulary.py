"""Words and their characters as ids, for labels of words and of texts."""

import collections
import re
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np

from .checks import check, check_at_least
from .ids import PADDING, UNKNOWN

MASK, MASKED = 2, "[MASK]"  # the masked word or character as an id, and the word in a text
FIRST = 3  # the first id of a known word or character

WORD = re.compile(r"\w+(?:[.,'’-]\w+)*|[^\w\s]")


def split_words(text: str) -> list[str]:
    """The words and punctuation marks of a text: "It's 3.5 m." -> It's, 3.5, m, .

    Args:
        text: str.

    Returns:
        List of str.
    """
    return WORD.findall(text)


@keras.saving.register_keras_serializable(package="keras_transformer")
class WordVocabulary:
    """The words and characters that have ids: 0 padding, 1 unknown, 2 masked, then these.

    Words are looked up in lower case, characters as they are: "The" has the id of "the", and its
    capital is in its characters.

    Args:
        words: List of str, lower case.
        characters: List of str of length 1.
        max_characters: int from 2, ids per word; a longer word keeps its first and its last ones.
    """

    def __init__(self, words: Sequence[str], characters: Sequence[str], max_characters: int = 16):
        check_at_least(2, max_characters=max_characters)
        self.words, self.characters = list(words), list(characters)
        self.max_characters = max_characters
        self._word_ids = {word: n for n, word in enumerate(self.words, start=FIRST)}
        self._character_ids = {one: n for n, one in enumerate(self.characters, start=FIRST)}

    @classmethod
    def learn(
        cls, sentences: Iterable[Sequence[str]], min_count: int = 1, max_characters: int = 16
    ) -> "WordVocabulary":
        """The vocabulary of training sentences, most frequent first.

        Args:
            sentences: List of lists of str, words.
            min_count: int from 1; rarer words have no id. Every character has one.
            max_characters: int from 2, see above.

        Raises:
            ValueError: There is no word, or a sentence is not a list of words.
        """
        check_at_least(1, min_count=min_count)
        sentences = checked_words(sentences)
        counts = collections.Counter(word for words in sentences for word in words)
        check(counts, "Expected at least one word to learn from", sentences=len(sentences))
        words, characters = collections.Counter(), collections.Counter()
        for word, count in counts.items():
            words[word.lower()] += count
            characters.update(dict.fromkeys(word, count))
        frequent = [word for word in words if words[word] >= min_count]
        return cls(_sorted_by(words, frequent), _sorted_by(characters, characters), max_characters)

    @property
    def num_words(self) -> int:
        """int, number of word ids, the three special ones included."""
        return FIRST + len(self.words)

    @property
    def num_characters(self) -> int:
        """int, number of character ids, the three special ones included."""
        return FIRST + len(self.characters)

    @property
    def sizes(self) -> dict[str, int]:
        """What a `WordModel` must be given for this vocabulary."""
        return dict(
            num_words=self.num_words,
            num_characters=self.num_characters,
            max_characters=self.max_characters,
        )

    @property
    def masked_labels(self) -> list[str]:
        """The labels of a model that fills in masked words, one per word id from 1 on."""
        return ["[UNKNOWN]", MASKED, *self.words]

    def unknown_share(self, sentences: Iterable[Sequence[str]]) -> float:
        """The fraction of the words of sentences that have no id, in [0, 1]."""
        words = [word.lower() for words in checked_words(sentences) for word in words]
        return sum(word not in self._word_ids for word in words) / max(1, len(words))

    def encode(
        self, sentences: Iterable[Sequence[str]]
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Ids of words and of their characters.

        Args:
            sentences: List of lists of str.

        Returns:
            List of int32 arrays (length,); list of int32 arrays (length, max_characters), padded
            with 0.

        Raises:
            ValueError: A sentence is not a list of words.
        """
        numbers = {}  # each distinct word is looked up once
        rows = [
            np.array([numbers.setdefault(word, len(numbers)) for word in words], np.intp)
            for words in checked_words(sentences)
        ]
        ids = np.array([self._word_id(word) for word in numbers], "int32")
        characters = np.full((len(numbers), self.max_characters), PADDING, "int32")
        for row, word in zip(characters, numbers, strict=True):
            spelling = self._spelling(word)
            row[: len(spelling)] = spelling
        return [ids[row] for row in rows], [characters[row] for row in rows]

    def get_config(self) -> dict[str, Any]:
        return {
            "words": self.words,
            "characters": self.characters,
            "max_characters": self.max_characters,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "WordVocabulary":
        return cls(**config)

    def _word_id(self, word):
        return MASK if word == MASKED else self._word_ids.get(word.lower(), UNKNOWN)

    def _spelling(self, word):
        if word == MASKED:
            return [MASK]
        if len(word) > self.max_characters:
            half = self.max_characters // 2
            word = word[:half] + word[half - self.max_characters :]
        return [self._character_ids.get(one, UNKNOWN) for one in word]


def checked_words(sentences: Iterable[Iterable[str]]) -> list[list[str]]:
    """The sentences as lists of words, iterators read once.

    Raises:
        ValueError: A sentence is not a list of words, or there is only one.
    """
    if isinstance(sentences, (str, bytes)) or not isinstance(sentences, Iterable):
        raise ValueError(
            f"Expected a list of sentences; received one {type(sentences).__name__}. Split it with "
            "split_words, and put its words in a list: [words]."
        )
    checked = []
    for number, sentence in enumerate(sentences):
        is_list = isinstance(sentence, Iterable) and not isinstance(sentence, (str, bytes))
        words = list(sentence) if is_list else []
        if not is_list or not all(isinstance(word, str) for word in words):
            raise ValueError(
                f"Every sentence must be a list of words; item {number} is {sentence!r:.60}. Split "
                "it with split_words."
            )
        checked.append(words)
    return checked


def _sorted_by(counts, items):
    """Items by falling count, then alphabetically: the same order on every machine."""
    return sorted(items, key=lambda item: (-counts[item], item))
