"""Texts to sentences and back: everything between two sentences stays in its place.

Rules of the script find the ends of sentences, without a model to fetch and the same everywhere.
Where they cannot know, such as after an initial, two sentences stay together.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence

from .lines import LINE_ENDS
from .placeholders import Patterns

WHEN_TO_SPLIT = ("auto", "always", "never")
LINE = re.compile(rf"[^{LINE_ENDS}]+")
EDGES = re.compile(rf"[{LINE_ENDS}\t]|^\s|\s$")  # of lines and columns, or around a text
INVISIBLE = "\u200b\u200e\u200f\u2060\ufeff"  # no width, and in no word
SOLID = re.compile(rf".*[^\s{INVISIBLE}]", re.DOTALL)
STOPS = "。！？｡।॥؟۔։።။"  # end a sentence whatever follows
CLOSING = "\"'”’»«›‹)\\]}」』）】》〉"
OPENING = "\"'“„‘‚«»‹›([{「『（【《〈¿¡"
MARKS = re.compile(  # “ closes a German quotation, and a French one ends with a space: « Va. »
    rf"(?P<marks>[.!?…{STOPS}]+)(?P<closing>(?:[{CLOSING}]|(?<=[.!?…‘)\]])[“‘])*"
    rf"(?:[ \xa0\u202f]»(?=\s|$))?)(?P<gap>[\s{INVISIBLE}]*)|(?<! ) *\t\s*"  # or columns
)
# What may precede the text of a line: indentation, and marks of lists, headings and quotes.
MARGIN = (
    rf"[\s{INVISIBLE}]*"
    r"(?:(?:[•‣◦▪·]|(?:[-*+>–—]|#{1,6}|\(?(?:\d{1,3}|[A-Za-z])\)NUMBER)(?=\s))\s*)*"
)
NUMBER = r"|\d{1,3}(?:\.\d{1,3})*\."  # in a list of several lines; "3. Oktober" is a date
NUMBERED = re.compile(rf"^[^\S\n]*(?:{NUMBER[1:]})\s", re.MULTILINE)
# Abbreviations before a name or noun: a capital after them does not begin a sentence.
ABBREVIATIONS = frozenset(
    "dr prof mr mrs ms mx messrs st mt sr sra srta hr fr frl dipl ing mag rev hon gen col maj capt "
    "cpt lt sgt sen rep gov pres mme mlle pr vs cf viz esp incl excl resp inkl exkl bzw ggf evtl "
    "vgl sog zzgl bzgl geb gest verh tel ev kath hl allg bes dt engl frz lat griech".split()
)
BEFORE_NUMBERS = frozenset(
    "no nos nr nrn vol vols pp fig figs abb tab art abs kap ch chap sec eq ziff bd ed nº n° núm "
    "num pág págs cap ca approx max min jan feb apr aug sep sept oct okt nov dec dez".split()
)
# These, initials and an ellipsis after a space end a sentence if such a word begins the next one.
MAY_END = frozenset("jr mio mrd tsd std usf".split())
BEGINNINGS = frozenset(
    "the this that these those there then he she it they we you but and if when what why how where "
    "who his her their our my der die das ein eine er sie es wir ich du man dies diese dieser "
    "dieses dann da doch aber und wenn als wie was wer wo warum im am".split()
)
# Words before German ordinals, "am 3. Oktober", "im 19. und 20. Jahrhundert", and after them.
BEFORE_ORDINALS = frozenset(
    "am im vom zum zur beim der die das dem den des ein eine einen einem einer seit ab bis und "
    "oder als jeder jede jedes jeden jedem sein seine seinem seinen seiner ihr ihre ihrem ihren "
    "ihrer mein meine meinem meinen meiner unser unsere unserem unseren unserer".split()
)
AFTER_ORDINALS = frozenset(
    "januar jänner februar märz april mai juni juli august september oktober november dezember "
    "jahrhundert".split()
)
# The speaker of a quotation with which a sentence begins: both are in one sentence.
SPEAKER = re.compile(
    r"[^，。！？：；“”「」『』\s]{0,8}?(?:[说說问問喊叫嚷吼答]|告[诉訴]|(?<!知)道)"
    r"[道着著了我他她你们們]{0,4}[，。！]"
    r"|(?:[A-Z][\w'’]*\.? ){1,6}(?:said|asked|cried|replied|shouted|answered|exclaimed|whispered"
    r"|added|yelled|called|thought|wondered)\b(?!:)"
)
SEEN = 50  # characters before and after a mark that decide whether it ends a sentence
CLAUSES = tuple(
    re.compile(gap)
    for gap in (r"(?<=[;:])\s+|(?<=[；：؛])\s*", r"(?<=,)\s+|(?<=[，、،])\s*", r"\s+")
)


def split_sentences(text: str, whole: Patterns | None = None) -> list[str]:
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
    parts, at = [], 0
    for start, end in _spans(_without(text, whole)):
        if re.search(r"[^\W_]", text[start:end]):
            parts += [text[at:start], text[start:end]]
            at = end
    return [*parts, text[at:]]


def _without(text, whole):
    """A text of the same length, where of what is whole digits are left, as in "3. Mai"."""
    return text if whole is None else whole.sub(lambda found: re.sub(r"\D", "_", found[0]), text)


def _spans(text) -> Iterator[tuple[int, int]]:
    """The start and end of each sentence."""
    has_capitals = text != text.lower()
    numbered = len(NUMBERED.findall(text)) > 1
    margin = re.compile(MARGIN.replace("NUMBER", NUMBER if numbered else rf"{NUMBER}(?=\t)"))
    for line in LINE.finditer(text):
        solid = SOLID.match(text, *line.span())
        last = solid.end() if solid else line.start()
        start = margin.match(text, line.start(), line.end()).end()  # type: ignore[union-attr]
        for found in MARKS.finditer(text, start, last):
            before = text[max(start, found.start() - SEEN) : found.start()]
            after = text[found.end() : min(last, found.end() + SEEN)]
            quoted = found["closing"] and text[start] in OPENING
            ends = after and not (quoted and SPEAKER.match(after))
            if "\t" in found[0] or (ends and _ends(before, found, after, has_capitals)):
                yield start, found.end("closing") if found["marks"] else found.start()
                start = found.end()
        yield start, last


def _ends(before, found, after, has_capitals):
    """Whether marks within a line end a sentence."""
    marks, closing, gap = found["marks"], found["closing"], found["gap"]
    if before.endswith(("[", "(")) or not before.strip():  # "[...]"
        return False
    if any(mark in STOPS for mark in marks):
        return bool(gap) or not closing or after[0] in OPENING or _is_wide(after[0])
    has_dots = "." in marks or "…" in marks
    if not gap:
        between = _is_wide(before[-1]) and _is_wide(after[0])
        return between and (marks == "." or not has_dots)
    after = after.lstrip(OPENING)
    if after[:1] in tuple(",;:") or (has_capitals and after[:1].islower()):
        return False
    if marks == ".":
        return not _is_abbreviation(before.split(), after)
    return not (has_dots and before[-1].isspace()) or _first_word(after) in BEGINNINGS


def _first_word(text):
    """The word at the start of a text, in lower case; "" if it is an initial, or none is there."""
    found = re.match(r"\w\w+|\w(?!\.)", text)
    return found[0].lower() if found else ""


def _is_abbreviation(words, after):
    """Whether the last of the words before a full stop is abbreviated, an initial or an ordinal."""
    last, previous, next_word = words[-1].lstrip(OPENING), words[-2:-1], _first_word(after)
    word, before_word = last.lower(), "".join(previous).lower()
    if word in ("a.m", "p.m") or (word == "i" and before_word.isalpha() and previous[0].islower()):
        return False
    if re.fullmatch(r"(?:[^\W\d_]\.)*[^\W\d_]", word):
        is_name = last.isupper() and not re.fullmatch(r"[a-zäöü]\.", "".join(previous))  # "z. B."
        return not _is_wide(word[-1]) and not (is_name and next_word in BEGINNINGS)
    if word in MAY_END:
        return next_word not in BEGINNINGS
    if word in BEFORE_NUMBERS or word.endswith("str"):  # "Hauptstr. 5"
        return after[:1].isdigit()
    if re.fullmatch(r"\d{1,3}(?:\.\d{1,3})*", word):
        is_ordinal = before_word in BEFORE_ORDINALS or next_word in AFTER_ORDINALS
        is_ordinal = is_ordinal or re.fullmatch(r"\d\d?\.", before_word)  # "10. 11. 2026"
        return not previous or ("." not in word and is_ordinal and words[-3:-1] != ["I", "am"])
    return word in ABBREVIATIONS


def cut_at_clauses(
    sentence: str, fits: Callable[[str], bool], whole: Patterns | None = None
) -> list[str]:
    """Cuts a sentence that is too long: after a semicolon, a comma or white space.

    Args:
        sentence: str.
        fits: function of a text, whether it is short enough.
        whole: pattern of what is cut only where there is no such place; None: nothing.

    Returns:
        list of str, which joined are the sentence: a piece, a gap, a piece, ..., a piece.
    """
    middle = len(sentence) // 2
    if not middle or fits(sentence):
        return [sentence]
    start = end = middle  # of the gap
    seen = _without(sentence, whole)
    for clause in CLAUSES:
        gaps = [m.span() for m in clause.finditer(seen) if m.start() and m.end() < len(seen)]
        if gaps:
            start, end = min(gaps, key=lambda gap: abs(gap[0] - middle))
            break
    first, second = (
        cut_at_clauses(part, fits, whole) for part in (sentence[:start], sentence[end:])
    )
    return [*first, sentence[start:end], *second]


def join_sentences(parts: Sequence[str], translations: Sequence[str]) -> str:
    """The text in which translations stand for the sentences, the inverse of `split_sentences`.

    A space is added where the source needs none, after a Chinese character, and the translation
    does.

    Args:
        parts: list of str: a gap, a sentence, a gap, ..., a gap.
        translations: list of str, one per sentence.
    """
    return "".join(join_pieces(parts, ([each] for each in translations)))


def join_pieces(parts: Sequence[str], translations: Iterable[Iterable[str]]) -> Iterator[str]:
    """The pieces of `join_sentences`, of translations that are being written.

    Args:
        parts: list of str: a gap, a sentence, a gap, ..., a gap.
        translations: iterables of str, one per sentence, which joined are its translation.
    """
    written, source = parts[0], ""
    if written:
        yield written
    for sentence, pieces, gap in zip(parts[1::2], translations, parts[2::2], strict=True):
        source += sentence[:1]
        for piece in filter(None, pieces):
            yield _space(written, piece, source) + piece
            written, source = piece, ""
        source = sentence[-1:]
        if gap:
            yield _space(written, gap, source) + gap
            written, source = gap, ""


def _space(before, after, source):
    """The space between two texts that characters of the source did not need, or ""."""
    ends = before[-1:], after[:1]
    needed = all(each.strip("<>").strip() and not _is_wide(each) for each in ends)
    return " " if needed and any(map(_is_wide, source)) else ""


def _is_wide(character):
    """Whether it is Chinese, Japanese or the like: its script has no spaces."""
    return character != "" and unicodedata.east_asian_width(character) in "WF"
