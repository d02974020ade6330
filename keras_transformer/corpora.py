"""Text in: dates made here, text files read from disk, as pairs of a source and its target."""

import datetime
import gzip
import logging
import os
import random
import zlib
from typing import NamedTuple

MONTHS = (
    "January February March April May June July August September October November December"
).split()
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()

# The written forms of one date. No form can be read as two dates: where the digits alone do not
# tell the day from the month, the order is stated.
DATE_FORMS = (
    "{month} {day}, {year}",  # April 22, 2019
    "{month} {ordinal}, {year}",  # April 22nd, 2019
    "{month} {day} {year}",
    "{day} {month} {year}",
    "{ordinal} of {month} {year}",  # 22nd of April 2019
    "the {ordinal} of {month}, {year}",
    "{weekday}, {month} {day}, {year}",  # Monday, April 22, 2019
    "{weekday} {day} {month} {year}",
    "{weekday} the {ordinal} of {month} {year}",
    "{short_month} {day}, {year}",  # Apr 22, 2019
    "{day} {short_month} {year}",
    "{short_weekday}, {day:02} {short_month} {year}",  # Mon, 22 Apr 2019
    "{MONTH} {day}, {year}",  # APRIL 22, 2019
    "{day:02}-{SHORT_MONTH}-{year}",  # 22-APR-2019
    "{year}, {month} {day}",
    "{year}-{number:02}-{day:02}",  # 2019-04-22, which is the target itself
    "{year}/{number:02}/{day:02}",
    "{year}.{number:02}.{day:02}",
    "{number:02}/{day:02}/{year} (month/day/year)",
    "{day:02}/{number:02}/{year} (day/month/year)",
    "{day}.{number}.{year} (day.month.year)",  # 22.4.2019
)


class Examples(NamedTuple):
    """Pairs of texts; line n of `target` translates line n of `source`.

    Args:
        source: List of str.
        target: List of str, as many.
    """

    source: list[str]
    target: list[str]


class Splits(NamedTuple):
    """What a model learns from, what its settings are chosen on, what it is judged by.

    Args:
        train: Examples.
        valid: Examples.
        test: Examples.
    """

    train: Examples
    valid: Examples
    test: Examples


def dates(num_train=30_000, num_valid=2_000, num_test=2_000, seed=0):
    """Dates in many written forms, to be translated into one: "April 22, 2019" -> "2019-04-22".

    Each calendar date from the year 1000 to 9999 (Gregorian, also before 1582) is drawn at most
    once, in one form drawn at random, so no split holds a date of another.

    Args:
        num_train: int, pairs to learn from.
        num_valid: int, pairs to choose settings on.
        num_test: int, pairs to judge by.
        seed: int; the same seed gives the same pairs.

    Returns:
        Splits.

    Raises:
        ValueError: If a number is negative, or more dates are asked for than there are.

    Source: Géron, Hands-On Machine Learning, chapter 16, exercise 9.
    Departs: many written forms, where the exercise has one.
    """
    sizes = num_train, num_valid, num_test
    days = range(datetime.date(1000, 1, 1).toordinal(), datetime.date.max.toordinal() + 1)
    if min(sizes) < 0 or sum(sizes) > len(days):
        raise ValueError(
            "num_train, num_valid and num_test must not be negative and sum to at most "
            f"{len(days)} (the days of the years 1000 to 9999); received {sizes}. Ask for fewer."
        )
    generator = random.Random(seed)
    drawn = map(datetime.date.fromordinal, generator.sample(days, sum(sizes)))
    pairs = [(write_date(date, generator.choice(DATE_FORMS)), date.isoformat()) for date in drawn]
    starts = 0, num_train, num_train + num_valid
    return Splits(
        *(_examples(pairs[start : start + size]) for start, size in zip(starts, sizes, strict=True))
    )


def write_date(date, form):
    """The date in one of DATE_FORMS, in English whatever the computer's language.

    Args:
        date: `datetime.date`.
        form: str, a format string over day, ordinal, number, month, MONTH, short_month,
            SHORT_MONTH, year, weekday and short_weekday.

    Returns:
        str, e.g. "Monday, April 22, 2019".
    """
    month, weekday = MONTHS[date.month - 1], WEEKDAYS[date.weekday()]
    return form.format(
        day=date.day,
        ordinal=f"{date.day}{_ordinal_suffix(date.day)}",
        number=date.month,
        month=month,
        MONTH=month.upper(),
        short_month=month[:3],
        SHORT_MONTH=month[:3].upper(),
        year=date.year,
        weekday=weekday,
        short_weekday=weekday[:3],
    )


def read_files(source, target):
    """Two parallel text files, one sentence a line; line n of `target` translates that of `source`.

    UTF-8, with or without a byte-order mark, plain or compressed with gzip (told by the content,
    not the name). Only a newline ends a line (Windows' counts as one); the last may lack it.
    Blanks at the ends of a line are removed. A pair with nothing left on one side is dropped as a
    pair, so no line shifts; how many is logged.

    Args:
        source: Path of the file to translate from.
        target: Path of the file to translate into.

    Returns:
        Examples.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a file is a folder, empty, a broken gzip file or not UTF-8, if the files
            differ in their number of lines, or if no pair is left.
    """
    sources, targets = _read_lines(source), _read_lines(target)
    if len(sources) != len(targets):
        (short, fewer), (long, more) = sorted(
            [(source, len(sources)), (target, len(targets))], key=lambda item: item[1]
        )
        raise ValueError(
            f"Parallel files must have as many lines as each other; received {fewer} in {short} "
            f"and {more} in {long}, whose line {fewer + 1} has no partner. Find where they part, "
            "and keep an empty line where there is no translation."
        )
    pairs = zip(map(str.strip, sources), map(str.strip, targets), strict=True)
    return _complete_pairs(pairs, f"{source} and {target}")


def read_pairs(path):
    """A file of pairs, one a line: source TAB target, and perhaps more columns, which are ignored.

    Read as `read_files` does. A blank line counts as a pair with nothing in it: dropped.

    Args:
        path: Path of the file, plain or gzip.

    Returns:
        Examples.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is a folder, empty, a broken gzip file or not UTF-8, if a line has
            no TAB, or if no pair is left.
    """
    pairs = []
    for number, line in enumerate(_read_lines(path), start=1):
        source, tab, rest = line.partition("\t")
        if not tab and line.strip():
            raise ValueError(
                f"{path}, line {number}: expected source TAB target, received a line without TAB: "
                f"{line!r:.60}. Separate the two sides with one TAB."
            )
        pairs.append((source.strip(), rest.partition("\t")[0].strip()))
    return _complete_pairs(pairs, path)


def _ordinal_suffix(day):
    return "th" if 11 <= day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")


def _examples(pairs):
    return Examples([source for source, _ in pairs], [target for _, target in pairs])


def _complete_pairs(pairs, name):
    pairs = list(pairs)
    kept = [pair for pair in pairs if all(pair)]
    if not kept:
        raise ValueError(
            f"{name}: expected at least one pair with text on both sides, received {len(pairs)} "
            "pairs, each blank on one side or both. Check that these are the right files."
        )
    dropped = len(pairs) - len(kept)
    if dropped:
        logging.getLogger(__name__).warning(
            "%s: dropped %d of %d pairs, blank on one side or both.", name, dropped, len(pairs)
        )
    return _examples(kept)


def _read_lines(path):
    data = _read_bytes(path).removeprefix(b"\xef\xbb\xbf")
    if not data:
        raise ValueError(f"{path}: expected one sentence a line, received an empty file.")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}, line {number}: expected UTF-8, received byte 0x{data[error.start]:02x} "
            "where it cannot stand. Save the file as UTF-8."
        ) from None
    # Not str.splitlines, which also splits at U+2028, U+0085 and form feeds. A Windows line end
    # leaves its \r behind, which goes with the other blanks at the ends.
    return text.removesuffix("\n").split("\n")


def _read_bytes(path):
    if os.path.isdir(path):
        raise ValueError(f"{path}: expected a file, received a folder. Name a file in it.")
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file. Check its name and folder.") from None
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(
            f"{path}: expected a whole gzip file, received a truncated or damaged one ({error}). "
            "Copy or download it again."
        ) from None
