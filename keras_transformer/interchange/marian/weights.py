"""Where each weight of Hugging Face's Marian models is in ours: one table, used in both directions.

Marian's sinusoids have the sines in the first half of the features and the cosines in the second;
the paper's, and ours, alternate. Attention and feed-forward networks do not care for the order of
features, so whatever reads or writes the residual stream is permuted, and the model is the same.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...models import Transformer
from ...models.configuration import TransformerConfig

EMBEDDINGS = (  # names of one matrix
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
LOGITS_BIAS = "final_logits_bias"
LENGTH_PENALTY_RATIO = 1.25  # (5 + 20) / 20: the same slope at 20 tokens, see `from_marian`

_ATTENTION = {
    "q_proj": "query",
    "k_proj": "key",
    "v_proj": "value",
    "out_proj": "output_projection",
}
_SUBLAYERS = {
    "self_attn": ("self_attention", "self_attn_layer_norm"),
    "encoder_attn": ("cross_attention", "encoder_attn_layer_norm"),
}


class MarianWeight(NamedTuple):
    """One weight of a Marian model.

    Args:
        theirs: str, its name in Hugging Face's model.
        ours: str, where it is in a `Transformer`.
        shape: ints, theirs: (outputs, inputs) of a kernel, (outputs,) of a bias or norm.
        stream: int, the axis of `shape` that is the residual stream, if there is one.
    """

    theirs: str
    ours: str
    shape: tuple[int, ...]
    stream: int | None

    def to_ours(self, array: np.ndarray) -> np.ndarray:
        """The weight as our layer stores it: (inputs, outputs)."""
        if self.stream is not None:
            array = alternating(array, self.stream)
        return array.T

    def to_theirs(self, array: np.ndarray) -> np.ndarray:
        """The inverse of `to_ours`."""
        array = array.T
        return array if self.stream is None else in_halves(array, self.stream)

    def variable(self, transformer: Transformer) -> Any:
        """The keras.Variable of a `Transformer`."""
        found: Any = transformer
        for part in self.ours.split("."):
            found = found[int(part)] if part.isdecimal() else getattr(found, part)
        return found


def alternating(array: np.ndarray, axis: int) -> np.ndarray:
    """Features from Marian's order (sines, then cosines) to the paper's (in turn)."""
    return np.take(array, _order(array.shape[axis]), axis)


def in_halves(array: np.ndarray, axis: int) -> np.ndarray:
    """The inverse of `alternating`."""
    return np.take(array, np.argsort(_order(array.shape[axis])), axis)


def _order(d_model):
    """Marian's feature at each of the paper's: 0, h, 1, h + 1, ... with h sines."""
    feature = np.arange(d_model)
    return feature // 2 + feature % 2 * ((d_model + 1) // 2)


def marian_weights(config: TransformerConfig) -> Iterator[MarianWeight]:
    """Yields all weights but the embedding and the bias of the logits, which have rows per token.

    Args:
        config: `TransformerConfig`.
    """
    d_model, d_ff = config.d_model, config.d_ff
    for stack in ("encoder", "decoder"):
        for number in range(config.num_layers):
            theirs, ours = f"model.{stack}.layers.{number}", f"{stack}.blocks.{number}"
            for name, (attention, norm) in _SUBLAYERS.items():
                if name == "encoder_attn" and stack == "encoder":
                    continue
                for projection, of_ours in _ATTENTION.items():
                    reads = projection != "out_proj"
                    yield from _dense(
                        f"{theirs}.{name}.{projection}",
                        f"{ours}.{attention}.{of_ours}",
                        (d_model, d_model),
                        reads,
                    )
                yield from _norm(f"{theirs}.{norm}", f"{ours}.{attention}_add_norm.norm", d_model)
            feed_forward = f"{ours}.feed_forward"
            yield from _dense(f"{theirs}.fc1", f"{feed_forward}.inner", (d_ff, d_model), True)
            yield from _dense(f"{theirs}.fc2", f"{feed_forward}.outer", (d_model, d_ff), False)
            yield from _norm(f"{theirs}.final_layer_norm", f"{feed_forward}_add_norm.norm", d_model)


def _dense(theirs, ours, shape, reads):
    """A layer that reads the residual stream, or else writes it."""
    yield MarianWeight(f"{theirs}.weight", f"{ours}.kernel", shape, 1 if reads else 0)
    yield MarianWeight(f"{theirs}.bias", f"{ours}.bias", shape[:1], None if reads else 0)


def _norm(theirs, ours, width):
    yield MarianWeight(f"{theirs}.weight", f"{ours}.gamma", (width,), 0)
    yield MarianWeight(f"{theirs}.bias", f"{ours}.beta", (width,), 0)
