"""Text as words, each with an id and its characters: for labels of words and of texts."""

import collections
import re

import keras
import numpy as np

from .arguments import check, check_at_least, check_rates
from .tokenizers import PADDING, UNKNOWN

MASK, MASKED = 2, "[MASK]"  # as an id of words and of characters, and in a text
FIRST = 3  # the first id of a word or a character that was seen

WORD = re.compile(r"\w+(?:[.,'’-]\w+)*|[^\w\s]")


def split_words(text):
    """The words and punctuation marks of a text: "It's 3.5 m." -> It's, 3.5, m, .

    Args:
        text: str.

    Returns:
        List of str.
    """
    return WORD.findall(text)


@keras.saving.register_keras_serializable(package="keras_transformer")
class WordVocabulary:
    """The words and the characters that have ids: 0 padding, 1 unknown, 2 masked, then these.

    Words are known by their lower-case form, characters as they are: "The" has the id of "the" and
    the capital in its characters.

    Args:
        words: List of str, lower case.
        characters: List of str of length 1.
        max_characters: int from 2; of a longer word, the first and the last of them are read.
    """

    def __init__(self, words, characters, max_characters=16):
        check_at_least(2, max_characters=max_characters)
        self.words, self.characters = list(words), list(characters)
        self.max_characters = max_characters
        self._word_ids = {word: n for n, word in enumerate(self.words, start=FIRST)}
        self._character_ids = {one: n for n, one in enumerate(self.characters, start=FIRST)}

    @classmethod
    def learn(cls, sentences, min_count=1, max_characters=16):
        """The vocabulary of training sentences, most frequent first.

        Args:
            sentences: List of lists of str, words.
            min_count: int from 1; words seen less often have no id. Characters all have one.
            max_characters: as above.

        Raises:
            ValueError: There is no word, or a sentence is not a list of words.
        """
        check_at_least(1, min_count=min_count)
        counts = collections.Counter(word for words in checked_words(sentences) for word in words)
        check(counts, "Expected at least one word to learn from", sentences=len(sentences))
        words, characters = collections.Counter(), collections.Counter()
        for word, count in counts.items():
            words[word.lower()] += count
            characters.update(dict.fromkeys(word, count))
        kept = sorted((word for word in words if words[word] >= min_count), key=_by(words))
        return cls(kept, sorted(characters, key=_by(characters)), max_characters)

    @property
    def num_words(self):
        """int, number of word ids, the three special ones included."""
        return FIRST + len(self.words)

    @property
    def num_characters(self):
        """int, number of character ids, the three special ones included."""
        return FIRST + len(self.characters)

    def encode(self, sentences):
        """Ids of words and of their characters.

        Args:
            sentences: List of lists of str.

        Returns:
            List of int32 arrays (length,); list of int32 arrays (length, max_characters), padded
            with 0.

        Raises:
            ValueError: A sentence is not a list of words.
        """
        numbers = {}  # each different word is spelled once
        rows = [
            [numbers.setdefault(word, len(numbers)) for word in words]
            for words in checked_words(sentences)
        ]
        ids = np.array([self._word_ids.get(word.lower(), UNKNOWN) for word in numbers], "int32")
        spelled = np.full((len(numbers), self.max_characters), PADDING, "int32")
        half = self.max_characters // 2
        for number, (row, word) in enumerate(zip(spelled, numbers)):
            if word == MASKED:
                ids[number] = row[0] = MASK
                continue
            if len(word) > self.max_characters:
                word = word[:half] + word[half - self.max_characters :]
            row[: len(word)] = [self._character_ids.get(one, UNKNOWN) for one in word]
        rows = [np.array(row, int) for row in rows]
        return [ids[row] for row in rows], [spelled[row] for row in rows]

    def get_config(self):
        return {
            "words": self.words,
            "characters": self.characters,
            "max_characters": self.max_characters,
        }

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def forget_words(words, alpha=1.0, seed=0):
    """Rare words become unknown at random, so that a model learns to read unknown ones.

    A word seen c times is forgotten with probability alpha / (alpha + c), each time anew.

    Args:
        words: List of int arrays, (length,), all sentences of the training data.
        alpha: float from 0.
        seed: int from 0, or several. The same seed and words give the same ids.

    Returns:
        List of int arrays.

    Source: Kiperwasser and Goldberg 2016, section 4.
    """
    check(alpha >= 0, "alpha must be at least 0", alpha=alpha)
    together = np.concatenate(words)
    counts = np.bincount(together)[together]
    chance = np.random.default_rng(seed).random(len(together))
    return _split(np.where(chance < alpha / (alpha + counts), UNKNOWN, together), words)


def mask_words(words, characters, rate=0.15, seed=0):
    """BERT's task: some words are hidden, and they are the labels.

    Of the chosen words 80 % become MASK, 10 % another word of the texts, 10 % stay as they are.

    Args:
        words: List of int arrays, (length,).
        characters: List of int arrays, (length, characters); masked with their word.
        rate: float in [0, 1), share of the known words that are chosen.
        seed: int from 0, or several.

    Returns:
        words, characters: as given, with words masked.
        labels: list of int arrays, (length,): the word where one was chosen, 0 elsewhere.

    Source: Devlin et al. 2019, section 3.1.
    """
    check_rates(rate=rate)
    generator = np.random.default_rng(seed)
    ids, spelled = np.concatenate(words), np.concatenate(characters)
    chosen = (generator.random(len(ids)) < rate) & (ids != UNKNOWN)
    labels = np.where(chosen, ids, PADDING)
    fate = generator.random(len(ids))
    masked, exchanged = chosen & (fate < 0.8), chosen & (fate >= 0.9)
    other = generator.integers(len(ids), size=len(ids))
    ids = np.where(exchanged, ids[other], np.where(masked, MASK, ids))
    spelled = np.where(exchanged[:, None], spelled[other], spelled)
    spelled[masked] = PADDING
    spelled[masked, 0] = MASK
    return _split(ids, words), _split(spelled, words), _split(labels, words)


def checked_words(sentences):
    """The sentences, once they are known to be lists of str."""
    sentences = list(sentences)
    for number, words in enumerate(sentences):
        if isinstance(words, (str, bytes)) or not all(isinstance(word, str) for word in words):
            raise ValueError(
                f"Every sentence must be a list of words; item {number} is {words!r:.60}. Split it "
                "with split_words."
            )
    return sentences


def _by(counts):
    """Falling counts, then the alphabet: the same on every machine."""
    return lambda item: (-counts[item], item)


def _split(together, like):
    return np.split(together, np.cumsum([len(row) for row in like])[:-1])
