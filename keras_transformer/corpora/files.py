"""Text files, plain or .gz: whole, or of sentence pairs."""

import gzip
import json
import os
import zlib

from ..arguments import check_at_least
from .examples import complete_pairs


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
    sources, targets = read_lines(source), read_lines(target)
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
    return complete_pairs(pairs, f"{source} and {target}")


def read_pairs(path, source=1, target=2):
    """A file of pairs, one a line: source TAB target, and perhaps other columns, which are ignored.

    Read as `read_files` does. A blank line counts as a pair with nothing in it: dropped.

    Args:
        path: Path of the file, plain or gzip.
        source: int from 1, the column to translate from.
        target: int from 1, the column to translate into.

    Returns:
        Examples.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is a folder, empty, a broken gzip file or not UTF-8, if a line
            lacks one of the columns, or if no pair is left.
    """
    check_at_least(1, source=source, target=target)
    last = max(source, target)
    pairs = []
    for number, line in enumerate(read_lines(path), start=1):
        columns = [column.strip() for column in line.split("\t")]
        if len(columns) < last and any(columns):
            raise ValueError(
                f"{path}, line {number}: expected source and target in columns {source} and "
                f"{target}, received {len(columns)} of them: {line!r:.60}. Separate columns with "
                "one TAB."
            )
        columns += [""] * (last - len(columns))  # a blank line
        pairs.append((columns[source - 1], columns[target - 1]))
    return complete_pairs(pairs, path)


def read_json_lines(path, source="source", target="target"):
    """A file with one JSON object a line: {"source": "A dog.", "target": "Ein Hund."}.

    Read as `read_files` does; a blank line counts as a pair with nothing in it: dropped.

    Args:
        path: Path of the file, plain or gzip.
        source: str, name of the field to translate from. A dot reaches into an object:
            "translation.en" for {"translation": {"en": ..., "de": ...}}.
        target: str, name of the field to translate into.

    Returns:
        Examples.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is a folder, empty, a broken gzip file or not UTF-8, if a line is no
            JSON object, has no such field or no text in it, or if no pair is left.
    """
    pairs = []
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            pairs.append(("", ""))
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            raise ValueError(
                f"{path}, line {number}: expected a JSON object, received {line!r:.60}. Write one "
                "object a line."
            ) from None
        pairs.append(tuple(_field(fields, name, path, number) for name in (source, target)))
    return complete_pairs(pairs, path)


def _field(fields, name, path, number):
    value = fields
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if not isinstance(value, str):
        known = ", ".join(map(repr, fields)) if isinstance(fields, dict) else ""
        raise ValueError(
            f"{path}, line {number}: expected text in the field {name!r}, received {value!r:.60} "
            f"in an object with {known or 'no fields'}. Name the two fields that hold the pair."
        )
    return value.strip()


def read_lines(path):
    """The lines of a file, for whoever reads one; Raises as `read_text`."""
    # Not str.splitlines, which also splits at U+2028, U+0085 and form feeds.
    return read_text(path).removesuffix("\n").split("\n")


def read_text(path):
    """A whole text file, read as `read_files` does; Windows' line ends become newlines.

    Args:
        path: Path of the file, plain or gzip.

    Returns:
        str.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is a folder, empty, a broken gzip file or not UTF-8.
    """
    data = _read_bytes(path).removeprefix(b"\xef\xbb\xbf")
    if not data:
        raise ValueError(f"{path}: expected lines of text, received an empty file.")
    try:
        return data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}, line {number}: expected UTF-8, received byte 0x{data[error.start]:02x} "
            "where it cannot stand. Save the file as UTF-8."
        ) from None


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
