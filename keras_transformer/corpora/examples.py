"""What every corpus is: texts and what is known of them, in splits."""

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


class TaggedSentences(NamedTuple):
    """Sentences in words, with a tag for each word.

    Args:
        words: List of lists of str; item n holds the words of sentence n.
        tags: List of lists of str; each as long as its sentence.
    """

    words: list[list[str]]
    tags: list[list[str]]


class LabelledTexts(NamedTuple):
    """Texts of several classes; `labels` item n is the class of text n.

    Args:
        texts: List of str.
        labels: List of str, as many.
    """

    texts: list[str]
    labels: list[str]


class Splits(NamedTuple):
    """What a model learns from, what its settings are chosen on, what it is judged by.

    Args:
        train: Examples, TaggedSentences, LabelledTexts, or for plain text a list of str.
        valid: The same, or None.
        test: The same, or None.
    """

    train: Examples | TaggedSentences | LabelledTexts | list[str]
    valid: Examples | TaggedSentences | LabelledTexts | list[str] | None
    test: Examples | TaggedSentences | LabelledTexts | list[str] | None


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


def labelled(pairs, name):
    """The pairs of a text and its label as `LabelledTexts`; logs how many have a blank text."""
    pairs = list(pairs)
    kept = [pair for pair in pairs if pair[0]]
    if not kept:
        raise ValueError(
            f"{name}: expected at least one text, received {len(pairs)} blank ones. Check that "
            "this is the right file and column."
        )
    if len(kept) < len(pairs):
        logging.getLogger(__name__).warning(
            "%s: dropped %d of %d texts, which are blank.", name, len(pairs) - len(kept), len(pairs)
        )
    return LabelledTexts(*map(list, zip(*kept, strict=True)))
