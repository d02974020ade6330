"""Files as lines of text: formats by their names, compression, encodings.

Text is UTF-8, with or without a byte-order mark, or UTF-16 or UTF-32 with one; gzip, bzip2, xz,
zstd and lz4 are recognized by the content, not by the name. Only a newline ends a line (that of
Windows counts as one); the last line may lack it. In all scripts and commands, `format_of` decides
the format of a file by its name. An error names the file and the line, numbered from 1.

Every reader, here and in the modules that build on this one, raises `FileNotFoundError` if the file
does not exist, `ValueError` if it is a folder, empty, damaged, of another compression or of another
encoding (a NUL is not text), and `ImportError` if it is zstd or lz4 and pyarrow is not installed.
Those called `iterate_...` keep one line or batch of rows in memory, and read the standard input
where the path is "-".
"""

import bz2
import codecs
import contextlib
import gzip
import io
import itertools
import lzma
import os
import re
import sys
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from ..checks import imported, unexpected

TREEBANK, JSON_LINES, PARQUET = "a treebank", "JSON Lines", "Parquet"
FORMATS = {".parquet": PARQUET} | dict.fromkeys((".conllu", ".conll"), TREEBANK)
FORMATS |= dict.fromkeys((".jsonl", ".ndjson", ".json"), JSON_LINES)
RECORDS = (JSON_LINES, PARQUET)  # with fields by name
NOT_THERE = "{}: no such file. Check its name and folder."
LINE_ENDS = r"\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029"  # as in str.splitlines

_MARKS = {  # of encodings other than UTF-8; that of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}

_OLDER_ENCODINGS = {  # that text is still found in: Python's names, and those of iconv
    **{f"cp{number}": f"CP{number}" for number in (*range(1250, 1258), 874, 932, 949)},
    **{f"iso8859_{number}": f"ISO-8859-{number}" for number in (2, 5, 7, 9)},
    **{"koi8_r": "KOI8-R", "gb18030": "GB18030", "big5": "BIG5"},
    **dict.fromkeys(("euc_jp", "euc_jis_2004"), "EUC-JP"),
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
    return FORMATS.get(suffix_of(path))


def suffix_of(path: PathLike) -> str:
    """How a name ends before the compression: ".tsv" of "NEWS.TSV.gz"."""
    name, suffix = os.path.splitext(os.fspath(path).lower())
    packed = suffix in (".gz", ".bz2", ".xz", ".zst", ".lz4")
    return os.path.splitext(name)[1] if packed else suffix


def check_plain(path: PathLike, why: str) -> None:
    """Refuses a file whose name is not that of plain text."""
    if found := format_of(path):
        uses = "as --texts of prepare, or to train a language model or a"
        uses = f"{uses} tagger" if found == TREEBANK else f"as --pairs, {uses} classifier"
        raise ValueError(f"{path} is {found} by its name, {why}. It can be given {uses}.")


def read_text(path: PathLike) -> str:
    """A whole text file; the line ends of Windows become newlines."""
    with open_bytes(path) as file:
        return _decoded(b"".join(_lines(file, path)), path, 1).replace("\r\n", "\n")


def read_lines(path: PathLike) -> list[str]:
    """The lines of a text file, without their ends."""
    return list(iterate_lines(path))


def iterate_lines(path: PathLike) -> Iterator[str]:
    """The lines of a text file one by one, without their ends."""
    with open_bytes(path) as file:
        yield from decoded_lines(file, path, may_be_empty=False)


def decoded_lines(file: BinaryIO, name: PathLike, may_be_empty: bool = True) -> Iterator[str]:
    """The lines of an open file, plain or compressed, without their ends."""
    for number, line in enumerate(_lines(file, name, may_be_empty), start=1):
        line = line[:-2] if line.endswith(b"\r\n") else line.removesuffix(b"\n")
        yield _decoded(line, name, number)


def iterate_blocks(path: PathLike) -> Iterator[list[tuple[int, str]]]:
    """The numbered lines of a file in lists; blank lines separate them."""
    numbered = enumerate(iterate_lines(path), start=1)
    for has_text, lines in itertools.groupby(numbered, lambda line: bool(line[1].strip())):
        if has_text:
            yield list(lines)


def one_line(text: str) -> str:
    r"""A text on one line: a line end in it becomes its escape sequence, such as \n."""
    return re.sub(f"[{LINE_ENDS}]", lambda end: end[0].encode("unicode_escape").decode(), text)


def split_columns(line: str, blanks: str | None = None) -> list[str]:
    """The fields of a line; of words, only spaces are removed, since a word may be a wide space."""
    return [field.strip(blanks) for field in line.split("\t")]


def open_bytes(path: PathLike) -> contextlib.AbstractContextManager[BinaryIO]:
    """A file opened for reading, or the standard input."""
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
    start, end = data.rfind(b"\n", 0, place) + 1, data.find(b"\n", place)
    line = data[start : end if end >= 0 else None].strip()
    cures = [
        f"if {reading!r} reads right, with iconv -f {name} -t UTF-8"
        for reading, name in (_likely_readings(path, line).items() if data[place] else ())
    ]
    cure = "; ".join(["Save the file as UTF-8", *cures])
    raise unexpected(f"{path}, line {number}", "UTF-8", found, f"{cure}.")


def _likely_readings(path, line):
    """For an error: what part of a line says in other encodings, and their names for iconv.

    They are those that the lines beyond ASCII suggest; few lines fit several of them.
    """
    try:
        import charset_normalizer
    except ImportError:
        return {}
    if not os.path.isfile(path):  # a pipe has been read
        return {}
    with open_bytes(path) as file:
        others = (
            each for each in itertools.islice(_lines(file, path), 10**6) if not each.isascii()
        )
        sample = b"".join(itertools.islice(others, 200))
    readings = {}
    for guess in charset_normalizer.from_bytes(sample):
        codec = guess.encoding
        with contextlib.suppress(UnicodeDecodeError):  # the same in the most frequent one
            codec = "cp1252" if sample.decode("cp1252") == sample.decode(codec) else codec
        with contextlib.suppress(UnicodeDecodeError):
            if codec in _OLDER_ENCODINGS:
                text = line.decode(codec)
                places = (n for n, each in enumerate(text) if each > "\x7f")
                start = max(0, next(places, 0) - 10)
                readings.setdefault(text[start : start + 30], _OLDER_ENCODINGS[codec])
    return dict(itertools.islice(readings.items(), 3))
