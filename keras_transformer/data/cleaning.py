"""Normalization and filtering of sentence pairs before training."""

import logging
import unicodedata

from ..checks import check, check_at_least
from .examples import Examples, collect

FORMS = ("NFC", "NFKC", "NFD", "NFKD")


def clean(
    examples: Examples,
    normalization: str | None = "NFC",
    lowercase: bool = False,
    max_characters: int | None = None,
    max_ratio: float | None = None,
    unique: bool = False,
) -> Examples:
    """Normalizes both sides, and drops pairs that are too long, too unequal or repeated.

    The number of dropped pairs is logged with the reasons; so is the number of repeated pairs
    that are kept.

    Args:
        examples: Examples.
        normalization: str, a Unicode normal form: "NFC" (canonical: the same text in other
            bytes), "NFKC" (also replaces full-width letters and the like by plain ones), "NFD" or
            "NFKD"; None: none.
        lowercase: bool, whether to convert everything to lower case.
        max_characters: int from 1, maximum length of the longer side; None: no limit.
        max_ratio: float from 1, maximum length of the longer side / the shorter side, in
            characters; None: no limit.
        unique: bool, whether to keep only the first of pairs that are equal on both sides.

    Returns:
        Examples.

    Raises:
        ValueError: An argument is out of range, or no pair is left.
    """
    check(
        normalization in (None, *FORMS),
        f"normalization must be one of {', '.join(FORMS)} or None",
        normalization=normalization,
    )
    check_at_least(1, max_characters=max_characters)
    check(max_ratio is None or max_ratio >= 1, "max_ratio must be at least 1", max_ratio=max_ratio)

    kept, seen = [], set()
    too_long = too_unequal = repeated = 0
    for texts in zip(*examples, strict=True):
        pair = tuple(normalized(text, normalization, lowercase) for text in texts)
        shorter, longer = sorted(map(len, pair))
        if max_characters is not None and longer > max_characters:
            too_long += 1
        elif max_ratio is not None and longer > max_ratio * shorter:
            too_unequal += 1
        else:
            repeated += pair in seen
            if not unique or pair not in seen:
                kept.append(pair)
            seen.add(pair)
    counts = {
        f"dropped, longer than {max_characters} characters": too_long,
        f"dropped, one side over {max_ratio} times as long": too_unequal,
        f"repeated ({'dropped' if unique else 'kept'})": repeated,
    }
    total = len(examples.source)
    report = "; ".join(f"{number} {what}" for what, number in counts.items() if number)
    if report:
        logging.getLogger(__name__).warning("Of %d pairs: %s.", total, report)
    if not kept:
        raise ValueError(
            f"Expected at least one pair within the limits; received {total} pairs, "
            f"{report or 'so none'}. Raise the limits, or provide more pairs."
        )
    return collect(Examples, kept)


def normalized(text: str, normalization: str | None = "NFC", lowercase: bool = False) -> str:
    """One text as `clean` would return it.

    Args:
        text: str.
        normalization, lowercase: see `clean`.

    Returns:
        str.
    """
    text = text.lower() if lowercase else text
    if normalization is None:
        return text
    return unicodedata.normalize(normalization, text)  # type: ignore[arg-type]  # any str
