"""Where each weight of Hugging Face's Marian models is in ours: one table, used in both directions.

Marian's sinusoids have the sines in the first half of the features and the cosines in the second;
the paper's, and ours, alternate. Attention and feed-forward networks do not care for the order of
features, so whatever reads or writes the residual stream is permuted, and the model is the same.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...models.configuration import TransformerConfig

THEIR_EMBEDDINGS = (  # names of one matrix
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
THEIR_BIAS = "final_logits_bias"
LENGTH_PENALTY_RATIO = 1.25  # (5 + 20) / 20: the same slope at 20 tokens, see `from_marian`
STACKS = ("encoder", "decoder")
SIZES = {"attention_heads": "num_heads", "ffn_dim": "d_ff"}  # of a stack
FIXED = {  # values in config.json; ours has no other
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "add_bias_logits": False,
    "static_position_embeddings": True,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
    "is_encoder_decoder": True,
}

_ATTENTION = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}


class MarianWeight(NamedTuple):
    """One weight of a Marian model.

    Args:
        theirs: str, its name in Hugging Face's model.
        ours: str, the path of the variable of a `Transformer`.
        shape: ints, theirs: (outputs, inputs) of a kernel, (outputs,) of a bias or norm.
        stream: int, the axis of `shape` that is the residual stream, if there is one.
    """

    theirs: str
    ours: str
    shape: tuple[int, ...]
    stream: int | None

    def to_ours(self, array: np.ndarray) -> np.ndarray:
        """The weight as our layer stores it: (inputs, outputs)."""
        return (array if self.stream is None else alternating(array, self.stream)).T

    def to_theirs(self, array: np.ndarray) -> np.ndarray:
        """The inverse of `to_ours`."""
        return array.T if self.stream is None else in_halves(array.T, self.stream)


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
    attentions = {"self_attn": "self_attention", "encoder_attn": "cross_attention"}
    blocks = ((stack, number) for stack in STACKS for number in range(config.depth(stack)))
    for stack, number in blocks:
        theirs, ours = f"model.{stack}.layers.{number}", f"{stack}/block_{number + 1}"
        for name, attention in attentions.items():
            if (stack, name) != ("encoder", "encoder_attn"):
                for projection, of_ours in _ATTENTION.items():
                    yield from _weights(
                        f"{theirs}.{name}.{projection}",
                        f"{ours}/{attention}/{of_ours}",
                        (d_model, d_model),
                        reads=projection != "out_proj",
                    )
                norm = f"{ours}/{attention}_add_norm/norm"
                yield from _weights(f"{theirs}.{name}_layer_norm", norm, (d_model,))
        feed_forward = f"{ours}/feed_forward"
        yield from _weights(f"{theirs}.fc1", f"{feed_forward}/inner", (d_ff, d_model), reads=True)
        yield from _weights(f"{theirs}.fc2", f"{feed_forward}/outer", (d_model, d_ff))
        yield from _weights(
            f"{theirs}.final_layer_norm", f"{feed_forward}_add_norm/norm", (d_model,)
        )


def _weights(theirs, ours, shape, reads=False):
    """The two weights of a dense layer or norm that reads the residual stream, or writes it."""
    names = ("kernel", "bias") if len(shape) == 2 else ("gamma", "beta")
    yield MarianWeight(f"{theirs}.weight", f"{ours}/{names[0]}", shape, int(reads))
    yield MarianWeight(f"{theirs}.bias", f"{ours}/{names[1]}", shape[:1], None if reads else 0)
