"""SentencePiece itself: the processor of a vocabulary, and texts to ids.

Without Keras, so that processes that only encode start at once and stay small.
"""

import itertools
import random
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..checks import check
from ..ids import END, PADDING, START, UNKNOWN
from .segmentations import Sampler, make_sampler

MODEL_TYPES = ("bpe", "unigram", "char", "byte")
SAMPLED_TOGETHER = 2**16  # texts after which a new seed is set, so that parts can be sampled alone
_samplers: weakref.WeakKeyDictionary[Any, Sampler] = weakref.WeakKeyDictionary()


def make_processor(proto: bytes) -> Any:
    """The `sentencepiece.SentencePieceProcessor` of a vocabulary.

    Args:
        proto: bytes, the serialized SentencePiece model.

    Raises:
        ValueError: It is no SentencePiece model, or has other special ids.
    """
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(proto)
    except RuntimeError:
        raise ValueError(
            f"Expected a SentencePiece model, received {len(proto)} bytes of a damaged one or of "
            "another kind. Restore the vocabulary from a copy, or name another."
        ) from None
    special = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
    if special != (PADDING, UNKNOWN, START, END):
        raise ValueError(
            "The vocabulary's padding, unknown, start and end must have the ids (0, 1, 2, 3); "
            f"received {special}, where -1 means missing. Learn it with train_tokenizer, or "
            "with SentencePiece's pad_id=0, unk_id=1, bos_id=2, eos_id=3."
        )
    return processor


def has_unused(processor: Any) -> bool:
    """Whether a vocabulary has pieces that are marked as unused: one joined from two has."""
    return any(map(processor.is_unused, range(processor.vocab_size())))


def encode(processor: Any, texts: list[str], unused: bool) -> list[list[int]]:
    """The ids of each text.

    Args:
        processor: `sentencepiece.SentencePieceProcessor`.
        texts: list of str.
        unused: bool, what `has_unused` says of the processor.

    Returns:
        List of lists of int.
    """
    rows = processor.encode(texts)
    if unused:
        for number, ids in enumerate(rows):
            if UNKNOWN in ids:
                rows[number] = _with_unused(processor, texts[number], ids)
    return rows


def sample(
    processor: Any, texts: list[str], alpha: float, seed: int | Sequence[int]
) -> list[list[int]]:
    """The ids of a random segmentation of each text; see `SentencePieceTokenizer.encode`.

    Every SAMPLED_TOGETHER texts have a seed of their own.

    Raises:
        ValueError: alpha is out of range, or the vocabulary is of characters.
    """
    check(0 <= alpha <= 1, "alpha must be in [0, 1]", alpha=alpha)
    starts = range(0, len(texts), SAMPLED_TOGETHER)
    parts = (
        sample_part(processor, texts[start : start + SAMPLED_TOGETHER], alpha, seed, number)
        for number, start in enumerate(starts)
    )
    return list(itertools.chain.from_iterable(parts))


def sample_part(
    processor: Any, texts: list[str], alpha: float, seed: int | Sequence[int], number: int
) -> list[list[int]]:
    """The part of the result of `sample` with this number, from 0."""
    seeds = [seed] if isinstance(seed, (int, np.integer)) else [*seed]
    (state,) = np.random.SeedSequence([*seeds, number] if number else seeds).generate_state(1)
    if processor not in _samplers:
        _samplers[processor] = make_sampler(processor)
    generator, draw = random.Random(int(state)), _samplers[processor].sample
    return [draw(text, alpha, generator) for text in texts]


def _with_unused(processor, text, ids):
    """The ids of a text, where unknown characters that together are an unused piece are that piece.

    In a vocabulary joined from two, such a piece is one of the other language.
    """
    pieces = map(processor.piece_to_id, processor.encode(text, out_type=str))
    return [
        found if before == UNKNOWN and processor.is_unused(found) else before
        for before, found in zip(ids, pieces, strict=True)
    ]
