"""The processor of a SentencePiece vocabulary, and texts to ids.

Without Keras, so that processes that only encode start at once and stay small.
"""

import weakref
from typing import Any

from ..ids import END, PADDING, START, UNKNOWN

MODEL_TYPES = ("bpe", "unigram", "char", "byte")


def make_processor(proto: bytes) -> Any:
    """The `sentencepiece.SentencePieceProcessor` of a vocabulary.

    Args:
        proto: bytes, the serialized SentencePiece model.

    Raises:
        ValueError: It is not a SentencePiece model, or has other special ids.
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


_have_unused: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def has_unused(processor: Any) -> bool:
    """Whether a vocabulary has pieces that are marked as unused: one joined from two has."""
    if processor not in _have_unused:
        pieces = range(processor.vocab_size())
        _have_unused[processor] = any(map(processor.is_unused, pieces))
    return _have_unused[processor]


def encode(processor: Any, texts: list[str]) -> list[list[int]]:
    """The ids of each text.

    Args:
        processor: `sentencepiece.SentencePieceProcessor`.
        texts: list of str.

    Returns:
        List of lists of int.
    """
    rows = processor.encode(texts)
    if has_unused(processor):
        for number, ids in enumerate(rows):
            if UNKNOWN in ids:
                rows[number] = _with_unused(processor, texts[number], ids)
    return rows


def _with_unused(processor, text, ids):
    """The ids of a text, where unknown characters that together are an unused piece are that piece.

    In a vocabulary joined from two, such a piece is one of the other language.
    """
    pieces = map(processor.piece_to_id, processor.encode(text, out_type=str))
    return [
        found if before == UNKNOWN and processor.is_unused(found) else before
        for before, found in zip(ids, pieces, strict=True)
    ]
