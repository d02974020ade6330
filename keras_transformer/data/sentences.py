"""Texts to sentences and back: everything between two sentences stays in its place.

Rules of the script find the ends of sentences, without a model to fetch and the same everywhere.
Where they cannot know, such as after an initial, two sentences stay together.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence

WHEN_TO_SPLIT = ("auto", "always", "never")
LINE = re.compile(r"[^\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+")  # as in str.splitlines
STOPS = "。！？｡।॥؟۔։።။"  # end a sentence whatever follows
CLOSING = "\"'”’»«›‹)\\]}」』）】》〉"
OPENING = "\"'“„‘‚«»‹›([{「『（【《〈¿¡"
MARKS = re.compile(  # “ closes a German quotation, and a French one ends with a space: « Va. »
    rf"(?P<marks>[.!?…{STOPS}]+)"
    rf"(?P<closing>(?:[{CLOSING}]|(?<![{STOPS}])“)*(?:[ \xa0\u202f]»(?=\s|$))?)(?P<gap>\s*)"
)
# What may precede the text of a line: indentation, and the mark of a list, a heading or a quote.
MARGIN = r"\s*(?:(?:[-*+>•‣◦▪·–—]|#{1,6}|\(?(?:\d{1,3}|[A-Za-z])\)NUMBER)\s+)?"
NUMBER = r"|\d{1,3}\."  # in a list of several lines; "3. Oktober" is a date
NUMBERED = re.compile(r"^[^\S\n]*\d{1,3}\.\s", re.MULTILINE)
# Abbreviations before a name or noun: a capital after them does not begin a sentence.
ABBREVIATIONS = frozenset(
    "dr prof mr mrs ms mx messrs st sr sra srta jr hr fr frl dipl ing mag rev hon gen col maj capt "
    "cpt lt sgt sen rep gov pres mme mlle pr vs cf viz esp incl excl resp inkl exkl bzw ggf evtl "
    "vgl sog zzgl bzgl geb gest verh mio mrd tsd std tel ev kath hl usf allg bes dt engl frz "
    "lat griech".split()
)
BEFORE_NUMBERS = frozenset(
    "no nos nr nrn vol vols pp fig figs abb tab art abs kap ch chap sec eq ziff bd ed nº n° núm "
    "num pág págs cap ca approx max min jan feb apr aug sep sept oct okt nov dec dez".split()
)
# Words before German ordinals: "am 3. Oktober", "im 19. und 20. Jahrhundert".
BEFORE_ORDINALS = frozenset(
    "am im vom zum zur beim der die das dem den des ein eine einen einem einer seit ab bis und "
    "oder".split()
)
SEEN = 50  # characters before and after a mark that decide whether it ends a sentence
CLAUSES = tuple(
    re.compile(gap)
    for gap in (r"(?<=[;:])\s+|(?<=[；：؛])\s*", r"(?<=,)\s+|(?<=[，、،])\s*", r"\s+")
)


def split_sentences(text: str, whole: re.Pattern | None = None) -> list[str]:
    r"""The sentences of a text, and what is between them.

        split_sentences("Hello, Dr. Lee.  How are you?\n")
        # ["", "Hello, Dr. Lee.", "  ", "How are you?", "\n"]

    Args:
        text: str.
        whole: pattern of what is never split, such as addresses; None: nothing.

    Returns:
        list of str, which joined are the text: a gap, a sentence, a gap, ..., a gap. Gaps are white
        space, marks of lists and lines without a letter or digit.
    """
    seen = text if whole is None else whole.sub(lambda found: "x" * len(found[0]), text)
    parts, at = [], 0
    for start, end in _spans(seen):
        parts += [text[at:start], text[start:end]]
        at = end
    return [*parts, text[at:]]


def _spans(text) -> Iterator[tuple[int, int]]:
    """The start and end of each sentence."""
    has_capitals = text != text.lower()
    numbered = len(NUMBERED.findall(text)) > 1
    margin = re.compile(MARGIN.replace("NUMBER", NUMBER if numbered else ""))
    for line in LINE.finditer(text):
        last = line.start() + len(line[0].rstrip())
        start = margin.match(text, line.start(), line.end()).end()  # type: ignore[union-attr]
        if not re.search(r"\w", text[start:last]):
            continue
        for found in MARKS.finditer(text, start, last):
            before = text[max(start, found.start() - SEEN) : found.start()]
            after = text[found.end() : min(last, found.end() + SEEN)]
            if after and _ends(before, found, after, has_capitals):
                yield start, found.end("closing")
                start = found.end()
        yield start, last


def _ends(before, found, after, has_capitals):
    """Whether marks within a line end a sentence."""
    marks, closing, gap = found["marks"], found["closing"], found["gap"]
    if before.endswith(("[", "(")) or not before.strip():  # "[...]"
        return False
    if any(mark in STOPS for mark in marks):
        return bool(gap) or not closing or after[0] in OPENING
    if not gap:
        return "." not in marks and _is_wide(before[-1]) and _is_wide(after[0])
    first = after.lstrip(OPENING)[:1]
    if first in ",;:" or (has_capitals and first.islower()):
        return False
    if marks != ".":
        return not ("." in marks or "…" in marks) or not before[-1].isspace()
    return not _is_abbreviation(before.split(), first)


def _is_abbreviation(words, next_character):
    """Whether the last of the words before a full stop is abbreviated, an initial or an ordinal."""
    word = words[-1].lstrip(OPENING).lower()
    previous = words[-2].lower() if words[1:] else ""
    if word in ("a.m", "p.m") or (word == "i" and previous.isalpha() and words[-2].islower()):
        return False
    if re.fullmatch(r"(?:[^\W\d_]\.)*[^\W\d_]", word) or word in ABBREVIATIONS:
        return not _is_wide(word[-1])
    if word in BEFORE_NUMBERS or word.endswith("str"):  # "Hauptstr. 5"
        return next_character.isdigit()
    return bool(re.fullmatch(r"\d{1,2}", word)) and (not previous or previous in BEFORE_ORDINALS)


def cut_at_clauses(sentence: str, fits: Callable[[str], bool]) -> list[str]:
    """Cuts a sentence that is too long: after a semicolon, a comma or white space.

    Args:
        sentence: str.
        fits: function of a text, whether it is short enough.

    Returns:
        list of str, which joined are the sentence: a piece, a gap, a piece, ..., a piece.
    """
    middle = len(sentence) // 2
    if not middle or fits(sentence):
        return [sentence]
    start = end = middle  # of the gap
    for clause in CLAUSES:
        gaps = [
            m.span() for m in clause.finditer(sentence) if m.start() and m.end() < len(sentence)
        ]
        if gaps:
            start, end = min(gaps, key=lambda gap: abs(gap[0] - middle))
            break
    first, second = (cut_at_clauses(part, fits) for part in (sentence[:start], sentence[end:]))
    return [*first, sentence[start:end], *second]


def join_sentences(parts: Sequence[str], translations: Sequence[str]) -> str:
    """The text in which translations stand for the sentences, the inverse of `split_sentences`.

    A space is added where the source needs none, after a Chinese character, and the translation
    does.

    Args:
        parts: list of str: a gap, a sentence, a gap, ..., a gap.
        translations: list of str, one per sentence.
    """
    written = parts[0]
    for sentence, translation, gap in zip(parts[1::2], translations, parts[2::2], strict=True):
        written = _joined(written, translation, sentence[:1])
        written = _joined(written, gap, sentence[-1:])
    return written


def _joined(before, after, source):
    """Two texts, between them the space that a character of the source did not need."""
    ends = before[-1:], after[:1]
    if _is_wide(source) and all(each.strip("<>").strip() and not _is_wide(each) for each in ends):
        return f"{before} {after}"
    return before + after


def _is_wide(character):
    """Whether it is Chinese, Japanese or the like: its script has no spaces."""
    return character != "" and unicodedata.east_asian_width(character) in "WF"
