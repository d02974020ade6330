"""Text files, plain or compressed, and Parquet: pairs, tagged sentences, labeled and plain texts.

Text is UTF-8, with or without a byte-order mark, or UTF-16 or UTF-32 with one; gzip, bzip2, xz,
zstd and lz4 are recognized by the content, not by the name. Only a newline ends a line (that of
Windows counts as one); the last line may lack it. Spaces at the ends of a line or a column are
removed, and every line of a table has as many columns as the first one. An error names the file and
the line; lines and columns are numbered from 1. In all scripts and commands, `format_of` decides
the format of a file by its name.

Every reader raises `FileNotFoundError` if the file does not exist, `ValueError` if it is a folder,
empty, damaged, of another compression or of another encoding (a NUL is not text), and `ImportError`
if it is Parquet, zstd or lz4 and pyarrow is not installed. Those called `iterate_...` keep one line
or batch of rows in memory; they also yield blank pairs, and read the standard input where the path
is "-".
"""

import bz2
import codecs
import collections
import contextlib
import csv
import glob
import gzip
import io
import itertools
import json
import logging
import lzma
import os
import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from ..checks import check, check_at_least, first_line, imported, unexpected
from ..tokenizers.normal_forms import normalized
from .records import (
    RIGHT_FILE,
    Examples,
    LabeledTexts,
    TaggedSentences,
    collect,
    collect_complete,
    collect_texts,
)

CONLLU_COLUMNS = "ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC".split()
TREEBANK, JSON_LINES, PARQUET = "a treebank", "JSON Lines", "Parquet"
FORMATS = {".parquet": PARQUET} | dict.fromkeys((".conllu", ".conll"), TREEBANK)
FORMATS |= dict.fromkeys((".jsonl", ".ndjson", ".json"), JSON_LINES)
RECORDS = (JSON_LINES, PARQUET)  # with fields by name
_MAY_BE_BLANK = "FORM LEMMA FEATS DEPS MISC".split()  # where "_" is a value like others
_FEWEST_ROWS = 10  # of a table whose header can be told by the rows below it
NOT_THERE = "{}: no such file. Check its name and folder."
SEPARATE = (
    "Separate columns with one TAB, write no TAB within one, choose other columns (--sides, "
    "--columns), or read the file by the rules of CSV, with commas in a .csv file (--quoted)."
)

_MARKS = {  # of encodings other than UTF-8; that of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def _unpacked_by_arrow(codec):
    def unpack(file):
        arrow = imported("pyarrow", f"{codec} compression")
        return io.BufferedReader(arrow.CompressedInputStream(file, codec))

    return unpack


# How a file begins, what unpacks it, and the command that does so.
_COMPRESSED: dict[str, tuple[bytes, Any, str]] = {
    "gzip": (rb"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file), "gunzip"),
    "bzip2": (rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", bz2.BZ2File, "bunzip2"),
    "xz": (rb"\xfd7zXZ\0", lzma.LZMAFile, "unxz"),
    "zstd": (rb"\x28\xb5\x2f\xfd", _unpacked_by_arrow("zstd"), "unzstd"),
    "lz4": (rb"\x04\x22\x4d\x18", _unpacked_by_arrow("lz4"), "unlz4"),
    "zip": (rb"PK(\x03\x04|\x05\x06)", None, "unzip"),
    "7z": (rb"7z\xbc\xaf\x27\x1c", None, "7z x"),
}

PathLike = str | os.PathLike


def format_of(path: PathLike) -> str | None:
    """The format of a file by its name: `TREEBANK`, `JSON_LINES`, `PARQUET`, or None.

    The name ends in .conllu or .conll, in .jsonl, .ndjson or .json, or in .parquet, in whatever
    case, and with .gz, .bz2, .xz, .zst or .lz4 after it or not.
    """
    return FORMATS.get(_suffix(path))


def _suffix(path):
    """How a name ends before the compression: ".tsv" of "NEWS.TSV.gz"."""
    name, suffix = os.path.splitext(os.fspath(path).lower())
    packed = suffix in (".gz", ".bz2", ".xz", ".zst", ".lz4")
    return os.path.splitext(name)[1] if packed else suffix


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
        _check_format(path, "whose sentences have no translations in another file")
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


def read_pairs(
    path: PathLike,
    source: int | str | None = None,
    target: int | str | None = None,
    json_lines: bool = False,
    quoted: bool = False,
) -> Examples:
    """A table of sentence pairs, one per line, columns separated by TAB; or JSON Lines or Parquet.

    A line of JSON Lines is an object: {"source": "A dog.", "target": "Ein Hund."}. Other columns
    and fields are ignored. A pair that is blank on one side is dropped; the number is logged.

    Args:
        path: PathLike of the file.
        source: int from 1, the column to translate from; or str, its name in the first line, or
            that of a field, where a dot reaches into an object: "translation.en" for
            {"translation": {"en": ..., "de": ...}}. None: the first column, or the field "source".
        target: the same of what to translate into; None: the second column, or "target". With two
            numbers the first line is an example like others.
        json_lines: bool, whether it is JSON Lines whatever its name.
        quoted: bool, whether the rules of CSV hold in a table: a field in quotation marks may
            contain TABs, line ends and, doubled, quotation marks. In a file named .csv, commas
            separate.

    Returns:
        Examples.

    Raises:
        ValueError: A line lacks one of the columns or has another number of them than the first
            one, is not a JSON object or has no text in one of the fields; both sides are one
            column or field, no complete pair is left, or its name is that of a treebank.
    """
    pairs = iterate_pairs(path, source, target, json_lines, quoted)
    return collect_complete(Examples, pairs, str(path))


def iterate_pairs(
    path: PathLike,
    source: int | str | None = None,
    target: int | str | None = None,
    json_lines: bool = False,
    quoted: bool = False,
) -> Iterator[tuple[str, str]]:
    """The pairs of `read_pairs` one by one, blank ones included."""
    _, rows = _two_columns(path, json_lines, quoted, source=source, target=target)
    return (row for _, row in rows)


def _two_columns(path, json_lines, quoted, **given):
    """The two columns or fields that are read, and the number of each line with their values.

    None is the field of the argument's name, in a table the first or the second column.
    """
    if json_lines or format_of(path) in RECORDS:
        fields = {name: str(value or name) for name, value in given.items()}
        message = f"{' and '.join(fields).capitalize()} must be two fields"
        check(len({*fields.values()}) == 2, message, **fields)
        return [*fields.values()], enumerate(_records(path, *fields.values()), start=1)
    columns = {
        name: _number_or_name(number if value is None else value)
        for number, (name, value) in enumerate(given.items(), start=1)
    }
    return [*columns.values()], _table(path, quoted, **columns)


def read_labeled(
    path: PathLike,
    text: int | str | None = None,
    label: int | str | None = None,
    quoted: bool = False,
) -> LabeledTexts:
    """A table of texts and their labels, columns separated by TAB; or JSON Lines or Parquet.

    A row whose text is blank is dropped; the number is logged. With two numbers the first line is
    an example like others, but if its label occurs nowhere else and each of the others does, it is
    taken for the names of the columns and refused.

    Args:
        path: PathLike of the file.
        text: int from 1, the column of the text; or str, its name in the first line, or that of a
            field; None: the first column, or the field "text".
        label: the same for the label; None: the second column, or the field "label".
        quoted: bool, whether the table follows the rules of CSV, see `read_pairs`; otherwise
            quotation marks are text.

    Returns:
        LabeledTexts.

    Raises:
        ValueError: A line lacks one of the columns or has another number of them than the first
            one, a text has no label, the first line names the columns, or no text is left.
    """
    (text, label), found = _two_columns(path, False, quoted, text=text, label=label)
    rows = []
    for number, row in found:
        if row[0] and not row[1]:
            cure = "Label the text, or remove the line."
            raise unexpected(f"{path}, line {number}", f"a label in column {label}", "none", cure)
        rows.append(row)
    if not isinstance(text, str) and not isinstance(label, str):
        _check_first_label([label for _, label in rows], path)
    return collect_complete(LabeledTexts, rows, str(path))


def read_tagged(path: PathLike, column: str = "UPOS") -> TaggedSentences:
    """Tagged sentences of a treebank if the name of the file says so, else of lines.

    Args:
        path: PathLike of the file.
        column: str, see `read_conllu`; it is of treebanks alone.

    Returns:
        TaggedSentences, see `read_conllu` and `read_tagged_lines`.
    """
    if format_of(path) == TREEBANK:
        return read_conllu(path, column)
    _check_format(path, "which has no lines of a word and its tag")
    return read_tagged_lines(path)


def read_tagged_lines(path: PathLike) -> TaggedSentences:
    """A word TAB its tag per line, and a blank line after each sentence.

    Args:
        path: PathLike of the file.

    Returns:
        TaggedSentences.

    Raises:
        ValueError: The file contains no word, a line is not a word and its tag, or the first one
            names the columns.
    """
    cure = (
        "Separate the two with one TAB, and sentences with a blank line; the name of a treebank in "
        "CoNLL-U must end in .conllu or .conll."
    )
    sentences = []
    for block in _blocks(path):
        rows = [_columns(line, " ") for _, line in block]
        for (number, line), fields in zip(block, rows, strict=True):
            if len(fields) != 2 or not all(fields):
                raise unexpected(f"{path}, line {number}", "word TAB tag", f"{line!r:.60}", cure)
        sentences.append(tuple(map(list, zip(*rows, strict=True))))
    _check_first_label([tag for _, tags in sentences for tag in tags], path)
    return _tagged(sentences, path)


def read_conllu(path: PathLike, column: str = "UPOS") -> TaggedSentences:
    """A treebank in the CoNLL-U format of Universal Dependencies: its words and one column.

    The words are the syntactic ones: of "3-4 don't", "3 do" and "4 n't", the last two. Comments
    and empty nodes ("3.1") are skipped.

    Args:
        path: PathLike of the file.
        column: str, which column is the tag: "UPOS" (universal parts of speech, 17 of them),
            "XPOS" (those of the language), "DEPREL", "LEMMA", "FEATS", ...

    Returns:
        TaggedSentences.

    Raises:
        ValueError: There is no such column or nothing in it, the file contains no word, or a line
            is not CoNLL-U or lacks the tag.

    Source:
        https://universaldependencies.org/format.html
    """
    expected = f"column must be one of {', '.join(CONLLU_COLUMNS[1:])}"
    check(column in CONLLU_COLUMNS[1:], expected, column=column)
    sentences, blank = [], []
    for block in _blocks(path):
        words, tags = [], []
        for number, line in block:
            fields = _columns(line, " ")
            if line.startswith("#") or re.fullmatch(r"\d+-\d+|\d+\.\d+", fields[0]):
                continue
            _check_conllu(fields, len(words) + 1, column, f"{path}, line {number}")
            words.append(fields[1])
            tags.append(fields[CONLLU_COLUMNS.index(column)])
            if tags[-1] == "_":
                blank.append(number)
        sentences.append((words, tags))
    num_words = sum(len(words) for words, _ in sentences)
    if blank and (column not in _MAY_BE_BLANK or len(blank) == num_words):
        raise unexpected(
            f"{path}, line {blank[0]}",
            f"a tag in column {column}",
            f"'_' (of {num_words} words, {len(blank)} have none)",
            "Fill it, remove the sentence, or choose another column.",
        )
    return _tagged([sentence for sentence in sentences if sentence[0]], path)


def iterate_conllu(path: PathLike) -> Iterator[str]:
    """The sentences of a treebank in CoNLL-U as texts, one by one.

    The text of a sentence is its comment "# text = ...", which Universal Dependencies require.

    Args:
        path: PathLike of the file.

    Yields:
        str.

    Raises:
        ValueError: A sentence has no such comment.

    Source:
        https://universaldependencies.org/format.html
    """
    for block in _blocks(path):
        texts = [match[1] for _, line in block if (match := re.match(r"#\s*text\s*=(.*)", line))]
        if not texts and not all(line.startswith("#") for _, line in block):
            expected = "a sentence with its text, '# text = ...'"
            cure = "Add it, or give the sentences as plain text."
            raise unexpected(f"{path}, line {block[0][0]}", expected, "one without", cure)
        yield from (text.strip() for text in texts[:1])


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
        return (text for (text,) in _records(path, field))
    return iterate_lines(path)


def read_lines(path: PathLike) -> list[str]:
    """The lines of a text file, without their ends."""
    return list(iterate_lines(path))


def iterate_lines(path: PathLike) -> Iterator[str]:
    """The lines of a text file one by one, without their ends."""
    with _open(path) as file:
        yield from decoded_lines(file, path, may_be_empty=False)


def decoded_lines(file: BinaryIO, name: PathLike, may_be_empty: bool = True) -> Iterator[str]:
    """The lines of an open file, plain or compressed, without their ends."""
    for number, line in enumerate(_lines(file, name, may_be_empty), start=1):
        line = line[:-2] if line.endswith(b"\r\n") else line.removesuffix(b"\n")
        yield _decoded(line, name, number)


def read_text(path: PathLike) -> str:
    """A whole text file; the line ends of Windows become newlines."""
    with _open(path) as file:
        return _decoded(b"".join(_lines(file, path)), path, 1).replace("\r\n", "\n")


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
        ValueError: One side has more files than the other.
    """
    sides = expand_files(source), expand_files(target)
    if len(sides[0]) != len(sides[1]):
        raise ValueError(
            "Source and target must have as many files; received "
            f"{len(sides[0])} and {len(sides[1])}."
        )
    check_one_stdin([*sides[0], *sides[1]])
    return list(zip(*sides, strict=True))


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
        for block in _blocks(path):
            for number, line in block:
                if format_of(path) == JSON_LINES:  # with escape sequences
                    line = re.sub(r'"(?:\\.|[^"\\])*"', lambda quoted: json.loads(quoted[0]), line)
                if wanted in key(line):
                    return f"{path}, line {number}"
            rows = [_columns(line) for _, line in block]
            for column in zip(*(row[:2] for row in rows if len(row) > 1), strict=True):
                if wanted in key("".join(column)):
                    return f"{path}, line {block[0][0]}"
    return None


def _open(path):
    if path == "-":
        return contextlib.nullcontext(sys.stdin.buffer)
    if os.path.isdir(path):
        raise unexpected(path, "a file", "a folder", "Name a file in it.")
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise FileNotFoundError(NOT_THERE.format(path)) from None


def _lines(file, path, may_be_empty=False):
    """The lines of a file, plain or compressed, in UTF-8 with their ends."""
    start = file.peek(10)
    name = next((name for name, (magic, *_) in _COMPRESSED.items() if re.match(magic, start)), None)
    if name is not None:
        _, unpack, command = _COMPRESSED[name]
        if unpack is None:
            expected = "text, plain or compressed by gzip, bzip2, xz, zstd or lz4"
            raise unexpected(path, expected, f"a file of {name}", f"Unpack it with {command}.")
        file = unpack(file)
    try:
        start = file.peek(4)
        encoding = next((code for mark, code in _MARKS.items() if start.startswith(mark)), None)
        if encoding:
            text = io.TextIOWrapper(file, encoding, newline="\n")
            file = (line.encode() for line in text)
        first = next(iter(file), b"").removeprefix(codecs.BOM_UTF8)
        if first:
            yield first
            yield from file
        elif not may_be_empty:
            raise ValueError(f"{path}: expected lines of text, received an empty file.")
    except UnicodeDecodeError as error:
        expected, received = f"{encoding}, as its first bytes say", f"other bytes ({error.reason})"
        raise unexpected(path, expected, received, "Save the file as UTF-8.") from None
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        if name is None:
            raise
        expected, received = f"a complete {name} file", f"a truncated or damaged one ({error})"
        raise unexpected(path, expected, received, "Copy or download it again.") from None


def _decoded(data, path, number):
    """The text of bytes that begin with this line."""
    place, found = data.find(b"\0"), "a NUL, as in UTF-16 or in a binary file"
    try:
        text = data.decode()
        if place < 0:
            return text
    except UnicodeDecodeError as error:
        if place < 0 or error.start < place:
            place, found = error.start, f"the invalid byte 0x{data[error.start]:02x}"
    number += data.count(b"\n", 0, place)
    cure = f"Save the file as UTF-8{_likely_encoding(path) if data[place] else ''}."
    raise unexpected(f"{path}, line {number}", "UTF-8", found, cure)


def _likely_encoding(path):
    """A guess for an error: the encoding that the lines beyond ASCII suggest."""
    try:
        import charset_normalizer
    except ImportError:
        return ""
    if not os.path.isfile(path):  # a pipe has been read
        return ""
    with _open(path) as file:
        others = (
            line for line in itertools.islice(_lines(file, path), 10**6) if not line.isascii()
        )
        guess = charset_normalizer.from_bytes(b"".join(itertools.islice(others, 200))).best()
    return f"; it may be {guess.encoding}: iconv -f {guess.encoding} -t UTF-8" if guess else ""


def _check_format(path, why):
    """Refuses a file whose name is not that of plain text."""
    if found := format_of(path):
        uses = "as --texts of prepare, or to train a language model or a"
        uses = f"{uses} tagger" if found == TREEBANK else f"as --pairs, {uses} classifier"
        raise ValueError(f"{path} is {found} by its name, {why}. It can be given {uses}.")


def _columns(line, blanks=None):
    """The fields of a line; of words, only spaces are removed, since a word may be a wide space."""
    return [field.strip(blanks) for field in line.split("\t")]


def _number_or_name(column):
    return int(column) if isinstance(column, str) and column.isdecimal() else column


def _table(path, quoted, **columns):
    """The number of each line and its fields in these columns; those of a blank line are blank."""
    if format_of(path) == TREEBANK:
        _check_format(path, "whose sentences have neither translations nor one label each")
    return _rows(path, _quoted_fields(path) if quoted else _fields(path), columns)


def _fields(path):
    """The number of each line of a table, and its fields; a blank one has a blank field."""
    return ((number, _columns(line)) for number, line in enumerate(iterate_lines(path), start=1))


def _quoted_fields(path):
    """The same by the rules of CSV."""
    separator = "," if _suffix(path) == ".csv" else "\t"
    lines = (f"{line}\n" for line in iterate_lines(path))
    rows = csv.reader(lines, delimiter=separator, strict=True, skipinitialspace=True)
    number = 1
    try:
        for fields in rows:
            yield number, [field.strip() for field in fields] or [""]
            number = rows.line_num + 1
    except csv.Error as error:
        cure = "Close each quotation mark, and double those within a field."
        if "field limit" in str(error):
            cure += " Longer texts can be read without quotation marks, or as JSON Lines."
        raise unexpected(
            f"{path}, line {number}", "a row of CSV", first_line(error), cure
        ) from None


def _rows(path, lines, columns):
    first, header = None, []
    if any(isinstance(column, str) for column in columns.values()):
        first, header = next(lines)
        columns = {name: _number(column, header, path) for name, column in columns.items()}
    check_at_least(1, **columns)
    numbers, last = list(columns.values()), max(columns.values())
    check(len(set(numbers)) == len(numbers), "The columns must differ", **columns)
    width, num_rows, names = len(header), 0, []  # names: the first two rows of single words
    for number, fields in lines:
        if not any(fields):
            yield number, ("",) * len(numbers)
            continue
        first, width, num_rows = first or number, width or len(fields), num_rows + 1
        if not last <= len(fields) == width:
            expected = f"{width} columns as in line {first}"
            if len(fields) < last:
                expected = f"columns {' and '.join(map(str, numbers))}"
            line = "\t".join(fields)
            received = f"{len(fields)} of them: {line!r:.60}"
            raise unexpected(f"{path}, line {number}", expected, received, SEPARATE)
        if fields == header:
            received = "the names of the columns again"
            raise unexpected(f"{path}, line {number}", "an example", received, "Remove the line.")
        row = tuple(fields[column - 1] for column in numbers)
        if len(names) < 2 and all(len(field.split()) == 1 for field in row):
            names.append(num_rows)
        yield number, row
    if not header and num_rows >= _FEWEST_ROWS and names == [1]:
        logging.getLogger(__name__).warning(
            f"{path}: line {first} is the only one of single words. If it names the columns, give "
            "them by these names (--sides, --columns); now it is an example."
        )


def _check_first_label(labels, path):
    """Refuses a first line whose label looks like the name of its column."""
    counts = collections.Counter(label for label in labels if label)
    once = [label for label, count in counts.items() if count == 1]
    if len(labels) >= _FEWEST_ROWS and once == labels[:1]:
        raise unexpected(
            f"{path}, line 1",
            "an example",
            f"the names of the columns, it seems: {labels[0]!r} is the only label of {len(counts)} "
            "that occurs once",
            "Remove the line, give the columns by their names, or if it is an example, move it "
            "down.",
        )


def _number(column, header, path):
    """The number of a column that is given by its number or by its name."""
    if not isinstance(column, str):
        return column
    place, found = f"{path}, line 1", header.count(column)
    if not found:
        known, cure = ", ".join(map(repr, header)), "Choose one of these, or a number from 1."
        if len(header) == 1 and "," in header[0]:
            cure = "If commas separate the columns, read the file by the rules of CSV (--quoted)."
        raise unexpected(place, f"a column named {column!r}", known, cure)
    if found > 1:
        cure = "Choose it by its number, from 1."
        raise unexpected(place, f"one column named {column!r}", found, cure)
    return header.index(column) + 1


def _records(path, *names):
    """The texts in these fields of each record of JSON Lines or Parquet; of a blank line, blank."""
    for place, fields in (_parquet if format_of(path) == PARQUET else _objects)(path, names):
        yield tuple("" if fields is None else _text_of(fields, name, place) for name in names)


def _objects(path, names):
    """The place of each line of JSON Lines, and its object; None if it is blank."""
    for number, line in enumerate(iterate_lines(path), start=1):
        place, fields = f"{path}, line {number}", None
        if line.strip():
            with contextlib.suppress(ValueError, RecursionError):
                fields = json.loads(line)
            if not isinstance(fields, dict):
                cure = "Write one object per line."
                raise unexpected(place, "a JSON object", f"{line!r:.60}", cure)
        yield place, fields


def _parquet(path, names):
    """The place of each row of Parquet, and its fields."""
    arrow = imported("pyarrow.parquet", f"{path} is Parquet by its name, which", "pyarrow")
    with _open(path) as opened:
        try:
            file = arrow.ParquetFile(opened)
            known = {*file.schema_arrow.names}
            columns = {name if name in known else name.partition(".")[0] for name in names}
            columns = [*columns] if columns <= known else None  # for the error
            rows = (
                row for batch in file.iter_batches(columns=columns) for row in batch.to_pylist()
            )
            for number, row in enumerate(rows, start=1):
                yield f"{path}, row {number}", row
        except (ValueError, OSError, NotImplementedError) as error:  # the classes of pyarrow's
            expected, received = "a complete Parquet file", f"another one ({first_line(error)})"
            raise unexpected(path, expected, received, "Copy or download it again.") from None


def _text_of(fields, name, place):
    """The text in a field of a record."""
    value = fields
    for part in [name] if name in fields else name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    expected = f"text in the field {name!r}"
    if not isinstance(value, str):
        known = ", ".join(map(repr, fields)) or "no fields"
        received = f"{value!r:.60} in an object with {known}"
        raise unexpected(place, expected, received, "Name a field with text (--sides, --feature).")
    if "\0" in value:
        raise unexpected(place, expected, f"a NUL in {value!r:.60}", "Remove it.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        received = f"{value[error.start]!r}, half of a surrogate pair"
        raise unexpected(place, expected, received, "Write both halves, or remove it.") from None
    return value.strip()


def _blocks(path):
    """The numbered lines of a file in lists; blank lines separate them."""
    numbered = enumerate(iterate_lines(path), start=1)
    for has_text, lines in itertools.groupby(numbered, lambda line: bool(line[1].strip())):
        if has_text:
            yield list(lines)


def _check_conllu(fields, expected_id, column, place):
    if len(fields) != len(CONLLU_COLUMNS):
        expected = f"{len(CONLLU_COLUMNS)} columns separated by TAB"
        received = f"{len(fields)}: {fields[0]!r:.60}"
        raise unexpected(place, expected, received, "Check that the file is CoNLL-U.")
    if fields[0] != str(expected_id):
        cure = "Number the words from 1, with a blank line after a sentence."
        received = f"the ID {fields[0]!r:.20}"
        raise unexpected(place, f"word {expected_id} of its sentence", received, cure)
    word, tag = fields[1], fields[CONLLU_COLUMNS.index(column)]
    if not word or not tag:
        raise unexpected(
            place, f"a word and its {column}", f"{word!r} and {tag!r}", "Fill both columns."
        )


def _tagged(sentences, path):
    if not sentences:
        raise unexpected(path, "at least one sentence", "none", RIGHT_FILE)
    return collect(TaggedSentences, sentences)
