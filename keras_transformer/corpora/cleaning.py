"""What is done to the pairs of a corpus before anything learns from them."""

import logging
import unicodedata

from ..arguments import check
from .examples import examples_of

FORMS = ("NFC", "NFKC", "NFD", "NFKD")


def clean(
    examples,
    normalization="NFC",
    lowercase=False,
    max_characters=None,
    max_ratio=None,
    unique=False,
):
    """Normalises both sides, and drops pairs that are too long, too unlike or there twice.

    What was dropped, and why, is logged; so is the number of repeated pairs that stay.

    Args:
        examples: Examples.
        normalization: str, Unicode's "NFC" (the same text in other bytes), "NFKC" (full-width
            letters and the like become plain ones, too), "NFD" or "NFKD"; None: leave it.
        lowercase: bool, whether to write everything in lower case.
        max_characters: int, of the longer side; None: no limit.
        max_ratio: float from 1, characters of the longer side / the shorter; None: no limit.
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
    check(max_ratio is None or max_ratio >= 1, "max_ratio must be at least 1", max_ratio=max_ratio)

    kept, seen = [], set()
    too_long = too_unlike = repeated = 0
    for texts in zip(*examples, strict=True):
        pair = tuple(normalized(text, normalization, lowercase) for text in texts)
        shorter, longer = sorted(map(len, pair))
        if max_characters is not None and longer > max_characters:
            too_long += 1
        elif max_ratio is not None and longer > max_ratio * shorter:
            too_unlike += 1
        else:
            again = pair in seen
            repeated += again
            seen.add(pair)
            if not (again and unique):
                kept.append(pair)
    counts = {
        f"dropped, longer than {max_characters} characters": too_long,
        f"dropped, one side over {max_ratio} times as long": too_unlike,
        f"repeated ({'dropped' if unique else 'kept'})": repeated,
    }
    said = "; ".join(f"{number} {what}" for what, number in counts.items() if number)
    if said:
        total = len(examples.source)
        logging.getLogger(__name__).warning("Of %d pairs: %s.", total, said)
    if not kept:
        raise ValueError(
            f"Expected at least one pair within the limits, received {len(examples.source)} pairs, "
            f"none of them: {said or 'there were none'}. Raise the limits."
        )
    return examples_of(kept)


def normalized(text, normalization="NFC", lowercase=False):
    """One text as `clean` leaves it.

    Args:
        text: str.
        normalization, lowercase: as in `clean`.

    Returns:
        str.
    """
    text = text.lower() if lowercase else text
    return unicodedata.normalize(normalization, text) if normalization else text
