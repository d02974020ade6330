"""Normalization and filtering of sentence pairs before training."""

import collections
import functools
import hashlib
import itertools
import logging
import sqlite3
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any

from ..checks import check, check_optional
from ..tokenizers.normal_forms import check_form, normalized
from .records import Examples, collect, text_key

# `--clean`: what is hardly a translation, or repeated.
PRESET: dict[str, Any] = {"max_ratio": 9.0, "unique": True, "plausible": True}
_FIRST = 1000  # pairs that show the scripts of each side


def clean(examples: Examples, **options: Any) -> Examples:
    """Normalizes both sides, and drops pairs that are too long, too unequal or repeated.

    So are pairs of which a side has invisible characters alone. The number of dropped pairs is
    logged with the reasons; so is the number of repeated pairs that are kept.

    Args:
        examples: Examples.
        **options: arguments of `Cleaner`, such as `normalization="NFKC"` or `max_ratio=9.0`.

    Returns:
        Examples.

    Raises:
        ValueError: An argument is out of range, or no pair with text on both sides is left.
    """
    cleaner = Cleaner(**options)
    kept = list(cleaner.iterate(zip(*examples, strict=True)))
    report = cleaner.log_report()
    if not any(all(map(str.strip, pair)) for pair in kept):
        raise cleaner.nothing_left(report)
    return collect(Examples, kept)


class Cleaner:
    """`clean` for a stream of pairs.

    Args:
        normalization: str, a Unicode normal form such as "NFC"; see `normalized`. None: no
            character is changed or removed.
        lowercase: bool, whether to lowercase both sides.
        max_characters: int from 1, maximum length of the longer side; None: no limit.
        max_ratio: float from 1, maximum length of the longer side / the shorter side, in
            characters; None: no limit.
        unique: bool, whether to keep only the first of pairs that are equal on both sides.
        on_disk: bool, whether pairs are remembered in a temporary file instead of in memory, and
            only if they must be unique: those that are kept are then not counted.
        keep_blank: bool, whether a side may be blank afterwards, as in test data, whose lines all
            count.
        plausible: bool, whether to drop copies (sides that differ at most in case, blanks and
            Unicode form) and pairs whose digits or scripts cannot fit: both sides have digits of
            which they share less than half, or most letters of a side are in a script that less
            than 5 % of its letters in the first 1,000 pairs are in.

    Attributes:
        total: int, pairs seen.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(
        self,
        normalization: str | None = "NFC",
        lowercase: bool = False,
        max_characters: int | None = None,
        max_ratio: float | None = None,
        unique: bool = False,
        on_disk: bool = False,
        keep_blank: bool = False,
        plausible: bool = False,
    ):
        check_form(normalization)
        check_optional(1, max_characters=max_characters)
        within = max_ratio is None or max_ratio >= 1
        check(within, "max_ratio must be at least 1", max_ratio=max_ratio)
        self.normalization, self.lowercase = normalization, lowercase
        self.max_characters, self.max_ratio, self.unique = max_characters, max_ratio, unique
        self._counts_repeated, self._keep_blank = unique or not on_disk, keep_blank
        self._seen = _SeenOnDisk() if on_disk else _Seen()
        self._plausible, self._implausible = plausible, collections.Counter()
        self.total = self._invisible = self._too_long = self._too_unequal = self._repeated = 0

    def iterate(self, pairs: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
        """Yields the pairs that are kept, normalized."""
        if self._plausible:
            pairs = iter(pairs)
            first = list(itertools.islice(pairs, _FIRST))
            scripts = [_main_scripts(side) for side in zip(*first, strict=True)]
            pairs = itertools.chain(first, pairs)
        for texts in pairs:
            self.total += 1
            pair = tuple(normalized(text, self.normalization, self.lowercase) for text in texts)
            shorter, longer = min(map(len, pair)), max(map(len, pair))
            emptied = any(t.strip() and not f.strip() for t, f in zip(texts, pair, strict=True))
            if emptied and not self._keep_blank:
                self._invisible += 1
            elif self.max_characters is not None and longer > self.max_characters:
                self._too_long += 1
            elif self.max_ratio is not None and longer > self.max_ratio * shorter:
                self._too_unequal += 1
            elif self._plausible and (reason := _implausible(pair, scripts)):
                self._implausible[reason] += 1
            elif not self._counts_repeated or self._seen.add(pair):
                yield pair
            else:
                self._repeated += 1
                if not self.unique:
                    yield pair

    def log_report(self) -> str:
        """Logs how many pairs were dropped or repeated, if any, and returns that part."""
        counts = {
            "dropped, invisible characters alone on one side": self._invisible,
            f"dropped, longer than {self.max_characters} characters": self._too_long,
            f"dropped, one side over {self.max_ratio} times as long": self._too_unequal,
            **self._implausible,
            f"repeated ({'dropped' if self.unique else 'kept'})": self._repeated,
        }
        report = "; ".join(f"{number} {what}" for what, number in counts.items() if number)
        if report:
            logging.getLogger(__name__).warning("Of %d pairs: %s.", self.total, report)
        return report

    def nothing_left(self, report: str) -> ValueError:
        """The error where no pair is kept."""
        return ValueError(
            f"Expected at least one pair within the limits; received {self.total} pairs, "
            f"{report or 'none with text on both sides'}. Raise the limits, or provide more pairs."
        )


def _implausible(pair, scripts):
    """Why a pair can hardly be a translation; None: it may be one."""
    if len(set(map(text_key, pair))) == 1:
        return "dropped, target equals source"
    one, other = (
        collections.Counter(unicodedata.decimal(each) for each in text if each.isdecimal())
        for text in pair
    )
    if one and other and 4 * (one & other).total() < one.total() + other.total():
        return "dropped, digits of which less than half are in both sides"
    for text, known in zip(pair, scripts, strict=True):
        counts = _scripts(text)
        if 2 * sum(counts[script] for script in known) < counts.total():
            return "dropped, letters of another script than that of their side"
    return None


def _main_scripts(texts):
    """The scripts of at least 5 % of the letters."""
    counts = _scripts("".join(texts))
    return [script for script, number in counts.items() if 20 * number >= counts.total()]


def _scripts(text):
    """The number of letters by script."""
    return collections.Counter(map(_script, filter(str.isalpha, text)))


@functools.cache
def _script(letter):
    """The first word of the name of a letter: LATIN, CYRILLIC, CJK, HIRAGANA, ..."""
    return unicodedata.name(letter, "").partition(" ")[0]


class _Seen(set):
    def add(self, pair: Any) -> bool:
        """Whether the pair is new."""
        before = len(self)
        super().add(pair)
        return len(self) > before


class _SeenOnDisk:
    """The pairs that were seen, in a temporary file, as hashes of 128 bits."""

    def __init__(self):
        self._file = sqlite3.connect("", isolation_level=None)
        for line in (
            "PRAGMA journal_mode = OFF",
            "PRAGMA cache_size = -200000",  # kB
            "CREATE TABLE seen (pair BLOB PRIMARY KEY) WITHOUT ROWID",
            "BEGIN",
        ):
            self._file.execute(line)

    def add(self, pair):
        digest = hashlib.blake2b(repr(pair).encode("utf-8", "surrogatepass"), digest_size=16)
        inserted = self._file.execute("INSERT OR IGNORE INTO seen VALUES (?)", (digest.digest(),))
        return bool(inserted.rowcount)
