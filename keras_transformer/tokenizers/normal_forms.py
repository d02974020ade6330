"""One form per text: Unicode's normal forms, without invisible characters."""

import re
import unicodedata
from typing import Any

from ..checks import check

FORMS = ("NFC", "NFKC", "NFD", "NFKD")

# Soft hyphen, zero-width space, byte-order mark, word joiner, marks of direction and others, as a
# class of characters. Zero-width joiners stay: they change letters of Persian, Hindi, ...
INVISIBLE = (
    "[\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]"
)
_INVISIBLE = re.compile(INVISIBLE)


def check_form(normalization: str | None) -> None:
    """Raises a ValueError if there is no such normal form."""
    expected = f"normalization must be one of {', '.join(FORMS)} or None"
    check(normalization in (None, *FORMS), expected, normalization=normalization)


def normalized(text: str, normalization: str | None = "NFC", lowercase: bool = False) -> str:
    """One text in the form in which tasks read it, and `data.clean` returns it.

    Args:
        text: str.
        normalization: str, a Unicode normal form: "NFC" (canonical: the same text in other bytes),
            "NFKC" (also replaces variants, such as full-width letters, by plain ones), "NFD" or
            "NFKD".
            Invisible characters, such as soft hyphens and marks of direction, are removed. None:
            no character is changed or removed.
        lowercase: bool, whether to convert everything to lower case.

    Returns:
        str.
    """
    if normalization is None or text.isascii():  # ASCII has one form
        return text.lower() if lowercase else text
    form: Any = normalization
    text = unicodedata.normalize(form, _INVISIBLE.sub("", text))
    # Both before and after: NFKC spells a trade mark sign with capitals.
    return unicodedata.normalize(form, text.lower()) if lowercase else text
