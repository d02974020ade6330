"""Words and their characters as ids, for labels of words and of texts."""

import collections
import functools
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import regex

from ..checks import check, check_at_least
from ..ids import PADDING, UNKNOWN
from .normal_forms import check_form, normalized

MASK, MASKED = 2, "[MASK]"  # the masked word or character as an id, and the word in a text
FIRST = 3  # the first id of a known word or character


class Segmentation:
    """A definition of words: an expression over classes of characters.

    Args:
        library: `re` or `regex`, which knows the classes.
        flags: of the library.
        classes: dict from a letter to a class of characters, as the library writes it.
        expression: str, the letters in braces.
    """

    def __init__(self, library: Any, flags: int, classes: dict[str, str], expression: str):
        self._classes, self._expression = classes, expression
        self._compile = functools.partial(library.compile, flags=flags)
        self.pattern = self._compile(expression.format(**classes))

    @functools.cached_property
    def portable(self) -> str:
        """The same for any engine, since every class lists its characters: Unicode grows."""
        points = (*range(0xD800), *range(0xE000, 0x110000))
        everything = "".join(map(chr, points))

        def listed(of_library):
            spans = self._compile(f"{of_library}+").findall(everything)
            parts = [(re.escape(span[0]), re.escape(span[-1])) for span in spans]
            return f"[{''.join(a if a == b else f'{a}-{b}' for a, b in parts)}]"

        return self._expression.format(**{key: listed(one) for key, one in self._classes.items()})


# Letters before which a line may break without a blank (UAX #14): Chinese, kana, Thai, Khmer, ...
_BLANKLESS = (
    r"[[\p{LB=ID}\p{LB=CJ}\p{LB=NS}\p{LB=SA}\p{LB=AK}\p{LB=AP}\p{LB=AS}&&[\p{L}\p{Nl}]]"
    "--[\\p{Latin}\\p{Hangul}\u0e33\u0eb3]]"  # the last two belong to the letter before them
)
_EXTENDING = "[\\p{M}\\p{WB=Extend}\\p{WB=Format}\u200b\u200d\u0e33\u0eb3]"
_LETTER = rf"[[\p{{L}}\p{{M}}\p{{N}}\p{{WB=ALetter}}_]--{_BLANKLESS}]"

SEGMENTATIONS = {
    "unicode": Segmentation(
        regex,
        regex.VERSION1,  # sets within sets
        {
            "letter": _LETTER,
            "inner": rf"[{_LETTER}||{_EXTENDING}]",
            "blankless": _BLANKLESS,
            "extending": _EXTENDING,
            "linker": r"\p{InCB=Linker}",  # joins two letters of Khmer or Burmese
            "flag": r"\p{Regional_Indicator}",
            "mark": rf"[^\s\x1c-\x1f{_LETTER}{_BLANKLESS}{_EXTENDING}]",
        },
        "{letter}{inner}*(?:[.,'’·\u0387\u05f4-]{extending}*{letter}{inner}*)*"
        "|{blankless}(?:{linker}{blankless}|{extending})*"
        "|{flag}{{2}}{extending}*|{mark}(?:\u200d{mark}|{extending})*",
    ),
    "latin": Segmentation(
        re, 0, {"letter": r"\w", "mark": r"[^\w\s]"}, "{letter}+(?:[.,'’-]{letter}+)*|{mark}"
    ),
}


def split_words(text: str, segmentation: str = "unicode") -> list[str]:
    """The words and punctuation marks of a text: "It's 3.5 m." -> It's, 3.5, m, .

    Vowel signs, accents and joiners belong to their word. In scripts without blanks, such as
    Chinese, kana, Thai, Lao, Khmer and Burmese, a word is one character with its marks.

    Args:
        text: str.
        segmentation: str, "unicode"; or "latin", the rule of files of version 0.1.0: marks are
            words of their own, and a text without blanks is one word.

    Returns:
        List of str.

    Source: Unicode Standard Annex #29, section 4.1, with the properties of the package `regex`.

    Departs: a hyphen between letters joins them, and so do a full stop and a comma ("1,000");
        kana are also single; a zero-width space ends no word.
    """
    pattern = SEGMENTATIONS["latin" if text.isascii() else segmentation].pattern  # the same, faster
    return pattern.findall(text)


class WordVocabulary:
    """The words and characters that have ids: 0 padding, 1 unknown, 2 masked, then these.

    Words are looked up in lower case, characters in their own case: "The" has the id of "the", and
    its capital is in its characters.

    Args:
        words: List of str, lower case.
        characters: List of str of length 1.
        max_characters: int from 2, ids per word; a longer word keeps its first and its last ones.
        normalization: str, the form that every word is brought into, see `data.normalized`.
        segmentation: str, how a text is split, see `split_words`.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(
        self,
        words: Sequence[str],
        characters: Sequence[str],
        max_characters: int = 16,
        normalization: str | None = "NFC",
        segmentation: str = "unicode",
    ):
        check_at_least(2, max_characters=max_characters)
        check_form(normalization)
        expected = f"segmentation must be one of {', '.join(SEGMENTATIONS)}"
        check(segmentation in SEGMENTATIONS, expected, segmentation=segmentation)
        self.normalization, self.segmentation = normalization, segmentation
        self.words, self.characters = list(words), list(characters)
        self.max_characters = max_characters
        self._word_ids = {word: n for n, word in enumerate(self.words, start=FIRST)}
        self._character_ids = {one: n for n, one in enumerate(self.characters, start=FIRST)}

    @classmethod
    def learn(
        cls,
        sentences: Iterable[Sequence[str]],
        min_count: int = 1,
        max_characters: int = 16,
        normalization: str | None = "NFC",
        segmentation: str = "unicode",
    ) -> "WordVocabulary":
        """The vocabulary of training sentences, most frequent first.

        Args:
            sentences: List of lists of str, words.
            min_count: int from 1; rarer words have no id. Every character has one.
            max_characters, normalization, segmentation: see above.

        Raises:
            ValueError: There is no word, a sentence is not a list of words, or an argument is out
                of range.
        """
        check_at_least(1, min_count=min_count)
        vocabulary = cls([], [], max_characters, normalization, segmentation)
        sentences = checked_words(sentences)
        counts = collections.Counter(word for words in sentences for word in words)
        check(counts, "Expected at least one word to learn from", sentences=len(sentences))
        words, characters = collections.Counter(), collections.Counter()
        for word, count in counts.items():
            word = vocabulary.normalized(word)
            words[word.lower()] += count
            characters.update(dict.fromkeys(word, count))
        frequent = [word for word in words if words[word] >= min_count]
        learned = _sorted_by(words, frequent), _sorted_by(characters, characters)
        return cls(*learned, max_characters, normalization, segmentation)

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
        """The sizes of a `WordModel` for this vocabulary, by the names of its arguments."""
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
        counts = collections.Counter(word for words in checked_words(sentences) for word in words)
        unknown = sum(counts[word] for word in counts if self._word_id(word) == UNKNOWN)
        return unknown / max(1, counts.total())

    def normalized(self, text: str) -> str:
        """A text or a word in the form of this vocabulary; a word is never empty."""
        return normalized(text, self.normalization) or text

    def split(self, text: str) -> list[str]:
        """The words of a text, each in the form of this vocabulary."""
        return split_words(self.normalized(text), self.segmentation)

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
        names = ("words", "characters", "max_characters", "normalization", "segmentation")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "WordVocabulary":
        return cls(**{"normalization": None, "segmentation": "latin", **config})  # as 0.1.0 read

    def _word_id(self, word):
        word = self.normalized(word)
        return MASK if word == MASKED else self._word_ids.get(word.lower(), UNKNOWN)

    def _spelling(self, word):
        if word == MASKED:
            return [MASK]
        word = self.normalized(word)
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
