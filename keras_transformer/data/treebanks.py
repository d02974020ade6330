"""Words and their tags: treebanks in CoNLL-U, and lines of a word TAB its tag.

`lines` has encodings, compression and the errors of files.
"""

import re
from collections.abc import Iterator

from ..checks import check, unexpected
from .lines import TREEBANK, PathLike, check_plain, format_of, iterate_blocks, split_columns
from .records import RIGHT_FILE, TaggedSentences, collect
from .tables import check_first_label

CONLLU_COLUMNS = "ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC".split()
_MAY_BE_BLANK = "FORM LEMMA FEATS DEPS MISC".split()  # where "_" is a value like others


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
    check_plain(path, "which has no lines of a word and its tag")
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
    for block in iterate_blocks(path):
        rows = [split_columns(line, " ") for _, line in block]
        for (number, line), fields in zip(block, rows, strict=True):
            if len(fields) != 2 or not all(fields):
                raise unexpected(f"{path}, line {number}", "word TAB tag", f"{line!r:.60}", cure)
        sentences.append(tuple(map(list, zip(*rows, strict=True))))
    check_first_label([tag for _, tags in sentences for tag in tags], path)
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
    for block in iterate_blocks(path):
        words, tags = [], []
        for number, line in block:
            fields = split_columns(line, " ")
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
    for block in iterate_blocks(path):
        texts = [match[1] for _, line in block if (match := re.match(r"#\s*text\s*=(.*)", line))]
        if not texts and not all(line.startswith("#") for _, line in block):
            expected = "a sentence with its text, '# text = ...'"
            cure = "Add it, or give the sentences as plain text."
            raise unexpected(f"{path}, line {block[0][0]}", expected, "one without", cure)
        yield from (text.strip() for text in texts[:1])


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
