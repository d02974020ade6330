"""Placeholders: addresses, code, tags and others that no translation may change."""

import re
from collections.abc import Callable, Iterable, Iterator

from ..checks import check
from .records import Examples

MASKS = tuple(f"⟦{number}⟧" for number in range(10))  # reserved pieces of a vocabulary
_LETTERS = "À-ÖØ-öø-ӿ"  # of Latin, Greek and Cyrillic; Chinese ones may follow an address
_OF_ADDRESS = rf"[!#-&*-;=?-_a-z{{|}}~{_LETTERS}]"  # no quotes, parentheses and <>
_OF_PATH = rf"[A-Za-z0-9_.+*{_LETTERS}-]"
# Each pattern takes linear time: no long run of characters is read from each of its places.
_SCHEME = r"[A-Za-z][A-Za-z\d+-]{0,30}://"
KINDS = {  # of addresses, one with a Chinese or the like host first
    "url": rf"{_SCHEME}(?=(?:[^\W\u2e80-\uffef]|[.-])*+[\u2e80-\uffef][\w-]*+\.\w)[\w.-]+(?::\d+)?"
    r"(?:/[^\s，。！？；：、“”‘’「」『』（）《》<>()\"']*)?(?<![.,;:!?])"
    rf"|(?:{_SCHEME}|www\.)(?:\({_OF_ADDRESS}*\)|{_OF_ADDRESS})*"
    rf"(?:\({_OF_ADDRESS}*\)|(?<![.,;:!?\]}}]))",
    "email": r"(?a:(?<![\w.%+-])[\w.%+-]+@[\w-]+(?:\.[\w-]+)+)",
    "path": r"(?a:(?<![\w/:.)<@]))(?:(?:[A-Za-z]:[\\/]|\\\\|~/|\.{1,2}/|/(?=[A-Za-z]))"
    rf"(?:{_OF_PATH}+[/\\])*{_OF_PATH}*[A-Za-z0-9_/{_LETTERS}]"
    r"|(?a:(?<!-)[\w.-]+(?:/[\w.-]+)+\.[A-Za-z]\w*))",
    "code": r"```(?s:.*?)```|`+[^`\n]+`+",
    "tag": r"<!--(?:(?!<!--).)*?-->|</?[A-Za-z][^<>\n]*>|&#?\w+;|\{\{[^{}\n]*\}\}"
    r"|[$#%]?\{[^{}\s]*\}|\$[A-Za-z_]\w*"
    r"|%(?:\(\w+\)|\d+\$)?[-+#0]*+\d*+(?:\.\d+)?l{0,2}[sdifgexuoEGXc@](?![A-Za-z])",
    "number": r"v?\d+(?:[.,:/'\xa0\u202f-]\d+)*",
}


class Patterns:
    """Regular expressions of which the match that begins first counts, or that of the first one.

    Joined with "|", one would change what flags, names and numbers of groups mean in another.

    Args:
        patterns: list of pattern.
    """

    def __init__(self, patterns: list[re.Pattern]):
        self._patterns = patterns

    def finditer(self, text: str) -> Iterator[re.Match]:
        """Yields the matches of at least one character, as re.Pattern.finditer does."""
        matches, at = [pattern.search(text) for pattern in self._patterns], 0
        while any(matches):
            found = min(filter(None, matches), key=lambda match: (match.start(), not match[0]))
            if found[0]:
                yield found
            at = max(found.end(), found.start() + 1)
            for number, pattern in enumerate(self._patterns):
                match = matches[number]
                if match and match.start() < at:
                    matches[number] = pattern.search(text, at)

    def sub(self, replace: Callable[[re.Match], str], text: str) -> str:
        """As re.Pattern.sub."""
        parts, at = [], 0
        for found in self.finditer(text):
            parts += [text[at : found.start()], replace(found)]
            at = found.end()
        return "".join([*parts, text[at:]])


def placeholder_pattern(kinds: Iterable[str]) -> Patterns | None:
    r"""The pattern of what must not be translated.

    Args:
        kinds: list of str: "url", "email", "path", "code", "tag", "number", or regular expressions,
            such as r"[A-Z]{2}-\d+". None of them: nothing is masked.

    Returns:
        pattern, or None.

    Raises:
        ValueError: A kind is not known, or not a regular expression that matches some text.
    """
    patterns = []
    for kind in kinds:
        known = f"A placeholder must be one of {', '.join(KINDS)} or a regular expression"
        try:
            pattern = re.compile(KINDS.get(kind, kind))
        except re.error as error:
            raise ValueError(f"{known}; received {kind!r} ({error}).") from None
        valid = (kind in KINDS or not kind.isalpha()) and not pattern.match("")
        check(valid, f"{known} of at least one character", placeholder=kind)
        patterns.append(pattern)
    return Patterns([*patterns, re.compile("|".join(MASKS))]) if patterns else None


def find_placeholders(text: str, pattern: Patterns) -> list[str]:
    """The parts of a text that must not be translated, in their order."""
    return [found[0] for found in pattern.finditer(text)]


def mask(text: str, pattern: Patterns) -> str:
    """The text with a mask for each of its first ten placeholders."""
    masks = iter(MASKS)
    return pattern.sub(lambda found: next(masks, found[0]), text)


def unmask(text: str, placeholders: list[str]) -> str:
    """The text with its masks replaced."""
    known = dict(zip(MASKS, placeholders, strict=False))
    return re.sub("|".join(MASKS), lambda found: known.get(found[0], found[0]), text)


def mask_pair(source: str, target: str, pattern: Patterns) -> tuple[str, str]:
    """Both sides of a training pair with masks, if each placeholder is on both sides as often.

    Args:
        source: str.
        target: str.
        pattern: of the placeholders.

    Returns:
        str, the source.
        str, the target.
    """
    found = find_placeholders(source, pattern)
    if sorted(found) != sorted(find_placeholders(target, pattern)):
        return source, target
    masks: dict[str, list[str]] = {}
    for placeholder, name in zip(found, MASKS, strict=False):
        masks.setdefault(placeholder, []).append(name)
    left = {placeholder: iter(names) for placeholder, names in masks.items()}
    masked = pattern.sub(lambda m: next(left.get(m[0], iter(())), m[0]), target)
    return mask(source, pattern), masked


def mask_pairs(examples: Examples, pattern: Patterns) -> Examples:
    """Training pairs with masks, see `mask_pair`."""
    pairs = [mask_pair(*pair, pattern) for pair in zip(*examples, strict=True)]
    return Examples(*map(list, zip(*pairs, strict=True)))


def split_placeholders(text: str, pattern: Patterns) -> list[str]:
    """The parts of a text around its placeholders, in the form of `split_sentences`."""
    parts, at = [""], 0
    for found in [*pattern.finditer(text), None]:
        start, end = found.span() if found else (len(text), len(text))
        part = text[at:start]
        if first := re.search(r"[^\W_]", part):
            words = part[first.start() :].rstrip(" \t\n()[]{}<")
            parts[-1] += part[: first.start()]
            parts += [words, part[first.start() + len(words) :]]
        else:
            parts[-1] += part
        parts[-1] += text[start:end]
        at = end
    return parts
