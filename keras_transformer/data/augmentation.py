"""Word dropout, and BERT's masked words."""

from collections.abc import Sequence

import numpy as np

from ..checks import check_from_0, check_rates
from ..ids import PADDING, UNKNOWN
from ..tokenizers.words import MASK


def word_dropout(
    words: Sequence[np.ndarray], alpha: float = 1.0, seed: int | Sequence[int] = 0
) -> list[np.ndarray]:
    """Replaces rare words by the unknown id at random, so that a model learns to read that id.

    A word that occurs c times is replaced with probability alpha / (alpha + c), independently at
    each occurrence.

    Args:
        words: List of int arrays, (length,), all sentences of the training data.
        alpha: float from 0.
        seed: int from 0, or several. The same seed and words give the same ids.

    Returns:
        List of int arrays.

    Source: Kiperwasser and Goldberg 2016, section 4.
    """
    check_from_0(alpha=alpha)
    ids = np.concatenate(words)
    counts = np.bincount(ids)[ids]
    draws = np.random.default_rng(seed).random(len(ids))
    return _split_like(np.where(draws < alpha / (alpha + counts), UNKNOWN, ids), words)


def mask_words(
    words: Sequence[np.ndarray],
    characters: Sequence[np.ndarray],
    rate: float = 0.15,
    seed: int | Sequence[int] = 0,
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """BERT's pretraining task: some words are masked, and these words are the labels.

    Of the chosen words 80 % become MASK, 10 % another word of the texts, and 10 % stay unchanged.

    Args:
        words: List of int arrays, (length,).
        characters: List of int arrays, (length, characters); masked with their word.
        rate: float in [0, 1), share of the known words that are chosen.
        seed: int from 0, or several.

    Returns:
        words, characters: copies with words masked.
        labels: List of int arrays, (length,): the original word where one was chosen, 0 elsewhere.

    Source: Devlin et al. 2019, section 3.1.
    """
    check_rates(rate=rate)
    generator = np.random.default_rng(seed)
    ids, spelling = np.concatenate(words), np.concatenate(characters)
    chosen = (generator.random(len(ids)) < rate) & (ids != UNKNOWN)
    labels = np.where(chosen, ids, PADDING)
    draws = generator.random(len(ids))
    masked, replaced = chosen & (draws < 0.8), chosen & (draws >= 0.9)
    other = generator.integers(len(ids), size=len(ids))
    ids = np.where(replaced, ids[other], np.where(masked, MASK, ids))
    spelling = np.where(replaced[:, None], spelling[other], spelling)
    spelling[masked] = PADDING
    spelling[masked, 0] = MASK
    return tuple(_split_like(values, words) for values in (ids, spelling, labels))


def _split_like(values, rows):
    return np.split(values, np.cumsum([len(row) for row in rows])[:-1])
