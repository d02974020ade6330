"""Tables, JSON Lines and Parquet: pairs of sentences, and texts with their labels.

Spaces at the ends of a column are removed, and every line of a table has as many columns as the
first one; columns are numbered from 1. `lines` has encodings, compression and the errors of files;
Parquet raises `ImportError` if pyarrow is not installed.
"""

import collections
import contextlib
import csv
import json
import logging
from collections.abc import Iterator

from ..checks import check, check_at_least, first_line, imported, unexpected
from .lines import (
    PARQUET,
    RECORDS,
    TREEBANK,
    PathLike,
    check_plain,
    format_of,
    iterate_lines,
    open_bytes,
    split_columns,
    suffix_of,
)
from .records import Examples, LabeledTexts, collect_complete

_FEWEST_ROWS = 10  # of a table whose header can be told by the rows below it
SEPARATE = (
    "Separate columns with one TAB, write no TAB within one, choose other columns (--sides, "
    "--columns), or read the file by the rules of CSV, with commas in a .csv file (--quoted)."
)


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
        check_first_label([label for _, label in rows], path)
    return collect_complete(LabeledTexts, rows, str(path))


def _two_columns(path, json_lines, quoted, **given):
    """The two columns or fields that are read, and the number of each line with their values.

    None is the field of the argument's name, in a table the first or the second column.
    """
    if json_lines or format_of(path) in RECORDS:
        fields = {name: str(value or name) for name, value in given.items()}
        message = f"{' and '.join(fields).capitalize()} must be two fields"
        check(len({*fields.values()}) == 2, message, **fields)
        return [*fields.values()], enumerate(iterate_records(path, *fields.values()), start=1)
    columns = {
        name: _number_or_name(number if value is None else value)
        for number, (name, value) in enumerate(given.items(), start=1)
    }
    return [*columns.values()], _table(path, quoted, **columns)


def _number_or_name(column):
    return int(column) if isinstance(column, str) and column.isdecimal() else column


def _table(path, quoted, **columns):
    """The number of each line and its fields in these columns; those of a blank line are blank."""
    if format_of(path) == TREEBANK:
        check_plain(path, "whose sentences have neither translations nor one label each")
    return _rows(path, _quoted_fields(path) if quoted else _fields(path), columns)


def _fields(path):
    """The number of each line of a table, and its fields; a blank one has a blank field."""
    return (
        (number, split_columns(line)) for number, line in enumerate(iterate_lines(path), start=1)
    )


def _quoted_fields(path):
    """The same by the rules of CSV."""
    separator = "," if suffix_of(path) == ".csv" else "\t"
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


def check_first_label(labels: list[str], path: PathLike) -> None:
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


def iterate_records(path: PathLike, *names: str) -> Iterator[tuple[str, ...]]:
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
    with open_bytes(path) as opened:
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
