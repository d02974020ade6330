"""Tasks of a process that writes shards: to encode texts, or to sample other ids of a shard."""

import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...tokenizers.processor import encode, make_processor
from ...tokenizers.sampling import sample_part
from .shards import Shard, write_shard

_processor = functools.lru_cache(maxsize=8)(make_processor)  # kept for later shards


def write_texts(
    path: str | os.PathLike,
    texts: Sequence[list[str]],
    vocabularies: Sequence[bytes],
    header: dict[str, Any],
) -> None:
    """Writes a shard of texts.

    Args:
        path: Path of the file.
        texts: of each side, a list of str.
        vocabularies: of each side, bytes, the SentencePiece model.
        header: see `write_shard`.
    """
    sides = [encode(_processor(v), side) for v, side in zip(vocabularies, texts, strict=True)]
    write_shard(path, sides, header)


def write_sampled(
    path: str | os.PathLike,
    shard: str | os.PathLike,
    vocabularies: Sequence[bytes],
    alpha: float,
    seed: Sequence[int],
    number: int,
) -> None:
    """Writes a shard with random segmentations of the texts of another one.

    Args:
        path: Path of the file.
        shard: Path of the other one.
        vocabularies: of each side, bytes, the SentencePiece model.
        alpha: float in [0, 1]; see `SentencePieceTokenizer.encode`.
        seed: ints; the number of the side follows them.
        number: int, that of the shard in its corpus.
    """
    original = Shard(shard)
    ends = original.lengths().cumsum(axis=1)[:, :-1]
    rows = (
        np.split(np.frombuffer(original.read(n), original.dtype), row) for n, row in enumerate(ends)
    )
    sides = []
    for side, ids in enumerate(zip(*rows, strict=True)):
        processor = _processor(vocabularies[side])
        texts = processor.decode([each.tolist() for each in ids])
        sides.append(sample_part(processor, texts, alpha, [*seed, side], number))
    original.close()
    write_shard(path, sides, original.header)
