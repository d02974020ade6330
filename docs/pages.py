"""The chapters as pages: prose, code, and what the code printed and drew, in both languages.

chapters/NN_name.py is the source of code and English prose, chapters/zh/NN_name.md that of Chinese
prose. `.ci/refresh_chapters.py` runs chapters and writes their pages, chapters/NN_name.md and
chapters/NN_name.zh-CN.md.

A piece of prose is what stands between two cells of code. A line `<!-- 1a2b3c4d -->` above a piece
of the Chinese is the digest of the English that it translates: see `to_look_at`.
"""

import difflib
import hashlib
import itertools
import pathlib
import re
import sys
from typing import NamedTuple

CHAPTERS = pathlib.Path(__file__).resolve().parents[1] / "chapters"
sys.path.append(str(CHAPTERS))

import labels  # noqa: E402, of the chapters

PICTURES = "../docs/chapters/"
DRAWINGS = "../docs/drawings/"
LINES = 24  # of an output that are shown
RECORDING = "# extra code – the numbers of the gallery"  # a cell that no page shows
LEAST_SHARED = 0.8  # of the words of a page's outputs, and of their numbers: see `shared`

DIGEST = re.compile(r"^<!-- ([0-9a-f]{8}) -->$", re.M)
OUTPUT = re.compile(r"^```text\n(.*?)^```$", re.M | re.S)
OUTPUT_OR_PICTURE = re.compile(
    rf"{OUTPUT.pattern}|^!\[[^]]*\]\({re.escape(PICTURES)}.*?\)$", re.M | re.S
)
EXTRA = re.compile(r"# extra code – (.*)")
ANSWER = re.compile(r"(?:\*\*)?(\d)\\?\.(?:\*\*)? |\*(Broken|弄坏之后)\b")
FORMULA = re.compile(r"```.*?```|`[^`]*`|\$\$(.+?)\$\$|\$([^$]+)\$", re.S)
SPECIAL = re.compile(r"\\[!-/:-@[-`{-~]|\*|[^\w\s]_|<")  # what Markdown takes for its own
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")


class Language(NamedTuple):
    """Where the pages of a language are, and the words that they add to a chapter."""

    suffix: str  # of a page's name
    folder: str  # of its drawings and pictures
    head: str  # below the title
    extra: str  # of a folded cell
    answers: str
    here: str


ENGLISH = Language(
    "",
    "",
    "English · [简体中文]({0}.zh-CN.md) · [program]({0}.py) · [all chapters](README.md)",
    "extra code – {}",
    "Answer",
    "You are here: chapter {} on the map of the Transformer",
)
CHINESE = Language(
    ".zh-CN",
    "zh/",
    "[English]({0}.md) · 简体中文 · [程序]({0}.py) · [各章](README.zh-CN.md)",
    "附加代码：{}",
    "答案",
    "你在这里：Transformer 全图上的第 {} 章",
)
SOURCE = "<!-- Made by .ci/refresh_chapters.py from {}: change that, not this page. -->"


# Sources


class Cell(NamedTuple):
    """A cell of code, or the prose between two of them."""

    is_code: bool
    text: str


def cells(program):
    """The cells of a program in percent cells."""
    found = []
    parts = re.split(r"^# %%(.*)\n", program, flags=re.M)[1:]
    for mark, text in zip(parts[::2], parts[1::2], strict=True):
        if not mark.strip():
            found.append(Cell(True, text.strip()))
            continue
        prose = re.sub(r"^# ?", "", text, flags=re.M).strip()
        if found and not found[-1].is_code:
            prose = f"{found.pop().text}\n\n{prose}"
        found.append(Cell(False, prose))
    return found


def digest(prose):
    """Eight hexadecimal digits that stay the same if only line breaks change."""
    return hashlib.sha256(" ".join(prose.split()).encode()).hexdigest()[:8]


def pieces(translation):
    """(digest or None, text) of each piece of prose of a Chinese source."""
    before, *parts = DIGEST.split(translation)
    if before.strip():
        parts = [None, before, *parts]
    return list(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))


def in_chinese(english, translation):
    """The cells of a chapter with the prose of its Chinese source."""
    translated = iter([text for _, (_, text) in paired(english, translation)])
    return [cell if cell.is_code else Cell(False, next(translated)) for cell in english]


def paired(english, translation):
    """(English text, (digest, Chinese text)) of each piece of prose."""
    prose, found = [cell.text for cell in english if not cell.is_code], pieces(translation)
    if len(prose) != len(found):
        raise ValueError(f"{len(prose)} pieces of prose in English, {len(found)} in Chinese")
    return list(zip(prose, found, strict=True))


def to_look_at(english, translation):
    """The beginnings of the pieces of prose whose English is another than was translated."""
    return [
        text.splitlines()[0]
        for text, (mark, _) in paired(english, translation)
        if mark != digest(text)
    ]


def looked_at(english, translation):
    """A Chinese source with the digests of the English prose."""
    return "\n".join(
        f"<!-- {digest(text)} -->\n{chinese}\n"
        for text, (_, chinese) in paired(english, translation)
    )


# Pages


def page(chapter, outputs, stem, language):
    """The Markdown of a page.

    Args:
        chapter: list of `Cell`s.
        outputs: for each cell of code a dict of "text", str, and "pictures", list of str.
        stem: name of the program without ".py".
        language: `ENGLISH` or `CHINESE`.
    """
    source = f"{stem}.py" if language is ENGLISH else f"{stem}.py and zh/{stem}.md"
    blocks, outputs, fold = [SOURCE.format(source)], iter(outputs), Fold(language)
    for cell in chapter:
        if cell.is_code:
            output = next(outputs)
            if cell.text.startswith(RECORDING):
                continue
            blocks += code(cell.text, language) + shown(output, cell.text, language)
        else:
            blocks.append(fold(linked(for_github(cell.text), language)))
    blocks[1] = blocks[1].replace("\n", f"\n\n{language.head.format(stem)}\n", 1)
    return "\n\n".join(blocks) + "\n"


def subject(text, language):
    """What a cell outside the lesson is about; "" of any other cell."""
    extra = EXTRA.match(text)
    if not extra:
        return ""
    return labels.in_chinese(extra[1]) if language is CHINESE else extra[1]


def code(text, language):
    """A block of code; what is outside the lesson is folded."""
    block, about = f"```python\n{text}\n```", subject(text, language)
    if not about:
        return [block]
    return [f"<details>\n<summary>{language.extra.format(about)}</summary>", block, "</details>"]


def shown(output, text, language):
    """What a cell printed, and its pictures."""
    lines, about = output["text"].rstrip().splitlines(), subject(text, language)
    if len(lines) > LINES:
        lines[LINES - 4 : -3] = ["..."]
    printed = ["```text\n" + "\n".join(line.rstrip() for line in lines) + "\n```"] if lines else []
    return printed + [
        f"![{about}]({PICTURES}{language.folder}{name}.png)" for name in output["pictures"]
    ]


def for_github(prose):
    """Prose with each formula in a form that Markdown leaves alone."""

    def protected(found):
        display, inline = found.groups()
        if display:
            return f"```math\n{display.strip()}\n```"
        if inline is None:
            return found[0]
        inline = " ".join(inline.split())
        return f"$`{inline}`$" if SPECIAL.search(inline) else f"${inline}$"

    return FORMULA.sub(protected, prose)


def linked(prose, language):
    """Prose whose links lead to pages, drawings and pictures of its own language."""
    prose = re.sub(r"\]\((\d\d_\w+)\.(?:py|md)", rf"](\1{language.suffix}.md", prose)
    return prose.replace(f"]({DRAWINGS}", f"]({DRAWINGS}{language.folder}")


class Fold:
    """Folds the answers of a chapter one by one; called with each piece of prose in order."""

    def __init__(self, language):
        self.word, self.in_answers, self.is_open = language.answers, False, False

    def __call__(self, prose):
        lines = []
        for line in prose.splitlines():
            answer = self.in_answers and ANSWER.match(line)
            if (answer or line.startswith("## ")) and self.is_open:
                lines += ["</details>", ""]
                self.is_open = False
            if line.startswith("## "):
                self.in_answers = line.startswith(f"## {self.word}")
            if answer:
                title = answer[2] or f"{self.word} {answer[1]}"
                lines += ["<details>", f"<summary>{title}</summary>", ""]
                self.is_open = True
            lines.append(line)
        return "\n".join(lines)


# The check


def complaints(kept, fresh, is_whole=True):
    """Yields what is stale on a page, compared with the page of the last run.

    Prose, code and pictures must be the same; of the outputs, which depend on the processor, most
    words and most numbers. If a part of the chapter has not run, `is_whole` is False: prose and
    code alone are compared.
    """
    left_out = OUTPUT if is_whole else OUTPUT_OR_PICTURE
    texts = [left_out.sub("", text).splitlines() for text in (kept, fresh)]
    if not is_whole:
        texts = [[line for line in lines if line] for lines in texts]
    for ours, theirs in itertools.zip_longest(*texts, fillvalue="nothing"):
        if ours != theirs:
            yield f"has {ours!r} where the chapter has {theirs!r}"
            return
    if not is_whole:
        return
    outputs = ["".join(OUTPUT.findall(text)) for text in (kept, fresh)]
    words, numbers = shared(*outputs)
    if min(words, numbers) < LEAST_SHARED:
        yield f"has {words:.0%} of the words and {numbers:.0%} of the numbers of the last outputs"


def shared(one, other):
    """The shares of words and of numbers that two outputs have in common.

    Numbers are compared where the words are the same, and may differ by a tenth, or by 0.05.
    """
    words = [text.split() for text in (one, other)]
    masked = [[NUMBER.sub("#", word) for word in part] for part in words]
    matcher = difflib.SequenceMatcher(None, *masked, autojunk=False)
    close = []
    for first, second, length in matcher.get_matching_blocks():
        parts = words[0][first : first + length], words[1][second : second + length]
        pairs = zip(*(NUMBER.findall(" ".join(part)) for part in parts), strict=True)
        for pair in pairs:
            a, b = (float(number.replace(",", "")) for number in pair)
            close.append(abs(a - b) <= max(0.05, 0.1 * max(a, b)))
    return matcher.ratio(), sum(close) / max(len(close), 1)
