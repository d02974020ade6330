"""Text files with annotations, plain or .gz: a tag for each word, or a label for each text."""

import re

from ..arguments import check
from .examples import TaggedSentences, labelled
from .files import read_lines

COLUMNS = "ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC".split()
_MAY_BE_BLANK = "FORM LEMMA FEATS DEPS MISC".split()  # where "_" is a value like others


def read_conllu(path, column="UPOS"):
    """A treebank in the CoNLL-U format of Universal Dependencies: its words and one column.

    The words are the syntactic ones: of "3-4 don't", "3 do" and "4 n't", the last two. Comments
    and empty nodes ("3.1") are skipped. Read as `read_files` does.

    Args:
        path: Path of the file, plain or gzip.
        column: str, what to take as the tag: "UPOS" (Universal parts of speech, 17 of them),
            "XPOS" (those of the language), "DEPREL", "LEMMA", "FEATS", ...

    Returns:
        TaggedSentences.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If there is no such column or nothing in it, if the file cannot be read as
            text, holds no word, or has a line that is not CoNLL-U or lacks the tag.

    Source:
        https://universaldependencies.org/format.html
    """
    check(column in COLUMNS[1:], f"column must be one of {', '.join(COLUMNS[1:])}", column=column)
    sentences, words, tags = [], [], []
    blank = None  # the first line whose tag is "_"
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            sentences.append((words, tags))
            words, tags = [], []
            continue
        if line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("\t")]
        where = f"{path}, line {number}"
        if len(fields) != len(COLUMNS):
            raise ValueError(
                f"{where}: expected {len(COLUMNS)} columns separated by TAB, received "
                f"{len(fields)}: {line!r:.60}. Check that the file is CoNLL-U."
            )
        if re.fullmatch(r"\d+-\d+|\d+\.\d+", fields[0]):
            continue
        if fields[0] != str(len(words) + 1):
            raise ValueError(
                f"{where}: expected word {len(words) + 1} of its sentence, received the ID "
                f"{fields[0]!r:.20}. Number the words from 1, with a blank line after a sentence."
            )
        word, tag = fields[1], fields[COLUMNS.index(column)]
        if not word or not tag:
            raise ValueError(
                f"{where}: expected a word and its {column}, received {word!r} and {tag!r}. Fill "
                "both columns."
            )
        if tag == "_" and blank is None:
            blank = number
        words.append(word)
        tags.append(tag)
    sentences = [sentence for sentence in [*sentences, (words, tags)] if sentence[0]]
    if blank and all(tag == "_" for _, tags in sentences for tag in tags):
        raise ValueError(
            f"{path}, line {blank}: expected a tag in column {column}, received '_' there and in "
            "all other lines: this treebank has none. Choose another column."
        )
    if blank and column not in _MAY_BE_BLANK:
        raise ValueError(
            f"{path}, line {blank}: expected a tag in column {column}, received '_'. Fill it, "
            "remove the sentence, or choose another column."
        )
    return _tagged(sentences, path)


def read_tagged_lines(path):
    """A word TAB its tag a line, and a blank line after each sentence. Read as `read_files` does.

    Args:
        path: Path of the file, plain or gzip.

    Returns:
        TaggedSentences.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file cannot be read as text, holds no word, or has a line that is not a
            word and its tag.
    """
    sentences = [([], [])]
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            sentences.append(([], []))
            continue
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) != 2 or not all(fields):
            raise ValueError(
                f"{path}, line {number}: expected word TAB tag, received {line!r:.60}. Separate "
                "the two with one TAB, and sentences with a blank line."
            )
        for side, field in zip(sentences[-1], fields, strict=True):
            side.append(field)
    return _tagged([sentence for sentence in sentences if sentence[0]], path)


def read_labelled(path, text=0, label=1):
    """A table of texts and their labels, columns separated by TAB. Read as `read_files` does.

    Quotation marks are text like any other. A row whose text is blank is dropped; how many is
    logged.

    Args:
        path: Path of the file, plain or gzip.
        text: int, the column of the text, counted from 0; or str, its name in the first line.
        label: The same for the label. With two numbers the first line is an example like others.

    Returns:
        LabelledTexts.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file cannot be read as text, a column is not there, a row has no
            label, or no text is left.
    """
    rows = [line.split("\t") for line in read_lines(path)]
    first = 1
    if isinstance(text, str) or isinstance(label, str):
        header = [name.strip() for name in rows.pop(0)]
        text, label = (_column(header, column, path) for column in (text, label))
        first = 2
    check(min(text, label) >= 0, "columns are counted from 0", text=text, label=label)
    pairs = []
    for number, row in enumerate(rows, start=first):
        row = [field.strip() for field in row]
        if not any(row):
            pairs.append(("", ""))
            continue
        if len(row) <= max(text, label):
            raise ValueError(
                f"{path}, line {number}: expected at least {max(text, label) + 1} columns "
                f"separated by TAB, received {len(row)}: {row[0]!r:.60}. Check the columns asked "
                "for."
            )
        if row[text] and not row[label]:
            raise ValueError(
                f"{path}, line {number}: expected a label in column {label}, received none. "
                "Label the text, or remove the line."
            )
        pairs.append((row[text], row[label]))
    return labelled(pairs, path)


def _column(header, column, path):
    if isinstance(column, str) and column not in header:
        raise ValueError(
            f"{path}, line 1: expected a column named {column!r}, received "
            f"{', '.join(map(repr, header))}. Name one of these, or count columns from 0."
        )
    return header.index(column) if isinstance(column, str) else column


def _tagged(sentences, path):
    if not sentences:
        raise ValueError(
            f"{path}: expected at least one sentence, received none. Check that this is the right "
            "file."
        )
    return TaggedSentences(*map(list, zip(*sentences, strict=True)))
