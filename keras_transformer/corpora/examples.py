"""What every corpus is: pairs of a source and its target, in splits."""

import logging
from typing import NamedTuple


class Examples(NamedTuple):
    """Pairs of texts; line n of `target` translates line n of `source`.

    Args:
        source: List of str.
        target: List of str, as many.
    """

    source: list[str]
    target: list[str]


class Splits(NamedTuple):
    """What a model learns from, what its settings are chosen on, what it is judged by.

    Args:
        train: Examples.
        valid: Examples.
        test: Examples.
    """

    train: Examples
    valid: Examples
    test: Examples


def examples_of(pairs):
    """Pairs of str as `Examples`."""
    return Examples([source for source, _ in pairs], [target for _, target in pairs])


def complete_pairs(pairs, name):
    """The pairs with text on both sides; how many lack it is logged under `name`."""
    pairs = list(pairs)
    kept = [pair for pair in pairs if all(pair)]
    if not kept:
        raise ValueError(
            f"{name}: expected at least one pair with text on both sides, received {len(pairs)} "
            "pairs, each blank on one side or both. Check that these are the right files."
        )
    dropped = len(pairs) - len(kept)
    if dropped:
        logging.getLogger(__name__).warning(
            "%s: dropped %d of %d pairs, blank on one side or both.", name, dropped, len(pairs)
        )
    return examples_of(kept)
