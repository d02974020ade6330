"""Cross-attention weights of a translation."""

from typing import NamedTuple

import numpy as np
from keras import ops

from ..ids import START
from ..layers.attention import attention_scores
from ..models import Transformer


class AttentionMaps(NamedTuple):
    """The cross-attention weights of one translation, as `plots.plot_attention` draws them.

    Args:
        weights: float32, (layers, heads, target length, source length).
        source_tokens: list of str, the keys; ends in </s>.
        target_tokens: list of str, the tokens written; ends in </s>, unless the translation has as
            many tokens as the model has learned positions.
    """

    weights: np.ndarray
    source_tokens: list[str]
    target_tokens: list[str]


def cross_attention_weights(
    transformer: Transformer, source: list[int], target: list[int]
) -> np.ndarray:
    """The weights of every layer and head, in one pass of the model.

    Args:
        transformer: `Transformer`.
        source: list of int, END included.
        target: list of int, the tokens written.

    Returns:
        float32, (layers, heads, target length, source length).
    """
    inputs = {"source_ids": np.array([source]), "target_ids": np.array([[START, *target[:-1]]])}
    scores = attention_scores(transformer, inputs)
    of_blocks = [scores[block.cross_attention.path] for block in transformer.decoder.blocks]
    return np.concatenate([ops.convert_to_numpy(ops.cast(x, "float32")) for x in of_blocks])
