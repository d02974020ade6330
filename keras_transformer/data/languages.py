"""Corpora of several languages in one model: their directions, tags, and shares of the training.

The source of a pair begins with the tag of the language to translate into, and nothing else differs
from a model of one direction.

Source: Johnson et al. 2017 (tags); Arivazhagan et al. 2019 (temperature, 5 in the paper).
"""

import logging
import os
import re
from collections.abc import Iterable, Sequence

import numpy as np

from ..checks import check_above_0, unexpected
from .records import Examples, collect, text_key

_DIRECTION = re.compile(r"(?:^|[._])([a-z]{2,3}-[a-z]{2,3})(?=[._]|$)")


def direction_of(path: str) -> str:
    """The languages in the name of a file: "en-de" in corpora/train.en-de.tsv.gz.

    Raises:
        ValueError: The name has none.
    """
    found = _DIRECTION.search(os.path.basename(path))
    if not found:
        cure = "Rename it, or give --directions."
        raise unexpected(path, "a name with its languages, such as en-de.tsv", "none", cure)
    return found[1]


def targets_of(directions: Iterable[str]) -> list[str]:
    """The target languages of directions, each once: ["de", "fr"] of "en-de", "en-fr"."""
    return list(dict.fromkeys(each.partition("-")[2] for each in directions))


def language_tag(language: str) -> str:
    """The tag of a target language, in lower case: "<2de>"."""
    return f"<2{language.lower()}>"


def tagged(texts: Iterable[str], language: str) -> list[str]:
    """Texts after the tag of a target language; a blank one gets none."""
    tag = language_tag(language)
    return [f"{tag} {text}" if text.strip() else text for text in texts]


def without_validation(
    train: dict[str, Examples], valid: dict[str, Examples], both_directions: bool = False
) -> dict[str, Examples]:
    """The training pairs with no sentence that is translated for validation in some direction.

    Args:
        train, valid: dict of Examples, by their direction.
        both_directions: bool, whether the targets are also translated.

    Returns:
        dict of Examples, those that are left; the number of the others is logged. A direction of
        which none is left keeps all.
    """
    sides = 1 + both_directions
    keys = {text_key(text) for pairs in valid.values() for side in pairs[:sides] for text in side}
    kept = {
        direction: collect(
            Examples,
            (row for row in zip(*pairs, strict=True) if not keys & set(map(text_key, row))),
        )
        for direction, pairs in train.items()
    }
    dropped = sum(len(train[each].source) - len(pairs.source) for each, pairs in kept.items())
    if dropped:
        logging.getLogger(__name__).warning(
            "Dropped %d training pairs with a sentence that is validation data of a direction.",
            dropped,
        )
    return {each: pairs if pairs.source else train[each] for each, pairs in kept.items()}


def oversampled(corpora: Sequence[Examples], temperature: float, seed: int = 0) -> Examples:
    """Joins corpora, the smaller ones repeated; the largest is there once.

    Args:
        corpora: list of Examples.
        temperature: float above 0. A corpus of n pairs is repeated until its share is proportional
            to n^(1 / temperature): 1 repeats none, and a high one makes all equal.
        seed: int from 0, of the pairs that are repeated once more than others.

    Returns:
        Examples, one corpus after the other.
    """
    check_above_0(temperature=temperature)
    generator = np.random.default_rng(seed)
    largest = max(len(corpus.source) for corpus in corpora)
    joined = Examples([], [])
    for corpus in corpora:
        size = len(corpus.source)
        times, more = divmod(round(largest * (size / largest) ** (1 / temperature)), size)
        chosen = np.sort(generator.choice(size, more, replace=False))
        for column, side in zip(joined, corpus, strict=True):
            column += side * times + [side[n] for n in chosen]
    return joined
