"""Files of a corpus: parallel text files, plain texts in any format, patterns of names.

Spaces at the ends of a line are removed. `lines` has encodings, compression and the errors of
files.
"""

import glob
import itertools
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator

from ..tokenizers.normal_forms import normalized
from .lines import (
    JSON_LINES,
    NOT_THERE,
    PARQUET,
    RECORDS,
    TREEBANK,
    PathLike,
    check_plain,
    format_of,
    iterate_blocks,
    iterate_lines,
    split_columns,
)
from .records import Examples, collect_complete, collect_texts
from .tables import iterate_records
from .treebanks import iterate_conllu


def read_files(source: PathLike, target: PathLike) -> Examples:
    """Two parallel text files, one sentence per line; the same line of both is a pair.

    A pair that is blank on one side is dropped as a pair, so no line shifts; the number is logged.

    Args:
        source: PathLike of the file to translate from.
        target: PathLike of the file to translate into.

    Returns:
        Examples.

    Raises:
        ValueError: The files differ in their number of lines, or by their names hold anything but
            plain text; or no complete pair is left.
    """
    return collect_complete(Examples, iterate_files(source, target), f"{source} and {target}")


def iterate_files(source: PathLike, target: PathLike) -> Iterator[tuple[str, str]]:
    """The pairs of `read_files` one by one, blank ones included."""
    for path in (source, target):
        check_plain(path, "whose sentences have no translations in another file")
    check_one_stdin((source, target))
    exist = os.path.exists(source) and os.path.exists(target)  # else the error comes later
    if exist and os.path.samefile(source, target):
        logging.getLogger(__name__).warning(
            f"{source} and {target} are the same file: each sentence translates itself."
        )
    return _side_by_side(source, target)


def _side_by_side(source, target):
    lines = itertools.zip_longest(iterate_lines(source), iterate_lines(target))
    for number, (one, other) in enumerate(lines, start=1):
        if one is None or other is None:
            short, long = (source, target) if one is None else (target, source)
            raise ValueError(
                "Parallel files must have the same number of lines; received "
                f"{number - 1} in {short} and {number + sum(1 for _ in lines)} in {long}, whose "
                f"line {number} has no counterpart. Find where they diverge, and keep an empty "
                "line where a translation is missing."
            )
        yield one.strip(), other.strip()


def read_texts(path: PathLike, field: str = "text") -> list[str]:
    """The texts of `iterate_texts` without the blank ones, whose number is logged.

    Raises:
        ValueError: All are blank.
    """
    return collect_texts(iterate_texts(path, field), path, "lines")


def iterate_texts(path: PathLike, field: str = "text") -> Iterator[str]:
    """The sentences of a treebank, a field of JSON Lines or Parquet, else the lines, one by one.

    Args:
        path: PathLike of the file, whose name says what it is.
        field: str, name of the field; see `read_pairs`.
    """
    if format_of(path) == TREEBANK:
        return iterate_conllu(path)
    if format_of(path) in RECORDS:
        return (text for (text,) in iterate_records(path, field))
    return iterate_lines(path)


def expand_files(patterns: Iterable[str]) -> list[str]:
    """Paths of files from paths and patterns such as "news.*.gz", those of a pattern in order.

    Args:
        patterns: Iterable of str; "-" is the standard input.

    Raises:
        FileNotFoundError: A pattern fits no file.
    """
    paths = []
    for pattern in patterns:
        found = [pattern] if pattern == "-" or os.path.exists(pattern) else glob.glob(pattern)
        if not found:
            raise FileNotFoundError(NOT_THERE.format(pattern))
        paths += sorted(found)
    check_one_stdin(paths)
    return paths


def parallel_files(source: Iterable[str], target: Iterable[str]) -> list[tuple[str, str]]:
    """Paths of parallel files from paths and patterns; see `expand_files`.

    Args:
        source, target: Iterable of str, which name as many files.

    Returns:
        List of (source, target).

    Raises:
        FileNotFoundError: A pattern fits no file.
        ValueError: One side has more files than the other, or the names of those that two patterns
            fit differ, from one pair to the next, in more than the language.
    """
    expanded = [[(each, expand_files([each])) for each in side] for side in (source, target)]
    sides = [[path for _, paths in side for path in paths] for side in expanded]
    if len(sides[0]) != len(sides[1]):
        raise ValueError(
            "Source and target must have as many files; received "
            f"{len(sides[0])} and {len(sides[1])}."
        )
    check_one_stdin([*sides[0], *sides[1]])
    if len(expanded[0]) == len(expanded[1]):
        for (pattern, paths), (other_pattern, other_paths) in zip(*expanded, strict=True):
            if paths != [pattern] and other_paths != [other_pattern]:
                pairs = list(zip(paths, other_paths, strict=False))
                _check_same_parts(pattern, other_pattern, pairs)
    return list(zip(*sides, strict=True))


def _check_same_parts(pattern, other_pattern, pairs):
    """Refuses files of two patterns whose names differ in another way than those of the first."""
    one, other = pairs[0]
    for next_one, next_other in pairs:
        if _difference(next_one, next_other) != _difference(one, other):
            raise ValueError(
                f"{pattern} and {other_pattern} must fit the same parts of a corpus; {one} would "
                f"go with {other}, and {next_one} with {next_other}. Name each file."
            )


def _difference(one, other):
    """The parts of two names between their equal beginnings and ends."""

    def num_equal(one, other):
        pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
        return len(list(pairs))

    start = num_equal(one, other)
    end = num_equal(reversed(one[start:]), reversed(other[start:]))
    return one[start : len(one) - end], other[start : len(other) - end]


def check_one_stdin(paths: Iterable[PathLike]) -> None:
    """Refuses files among which the standard input, "-", comes twice."""
    if list(paths).count("-") > 1:
        raise ValueError("The standard input can be one file only; received it twice.")


def find_line(paths: Iterable[PathLike], text: str | list[str]) -> str | None:
    """Where a text stands in files, for an error that names the place: "FILE, line 3".

    Args:
        paths: Iterable of PathLike, those that it may come from.
        text: str, or list of its words, which a treebank has in lines of their own.

    Returns:
        str, the first place; None: no regular file has it, in whatever case and normal form.
    """

    def key(text):
        return "".join(normalized(text).casefold().split())

    wanted = key("".join(text))
    paths = filter(os.path.isfile, paths if wanted else ())  # a pipe has been read
    for path in (each for each in paths if format_of(each) != PARQUET):
        for block in iterate_blocks(path):
            for number, line in block:
                if format_of(path) == JSON_LINES:  # with escape sequences
                    line = re.sub(r'"(?:\\.|[^"\\])*"', lambda quoted: json.loads(quoted[0]), line)
                if wanted in key(line):
                    return f"{path}, line {number}"
            rows = [split_columns(line) for _, line in block]
            for column in zip(*(row[:2] for row in rows if len(row) > 1), strict=True):
                if wanted in key("".join(column)):
                    return f"{path}, line {block[0][0]}"
    return None
