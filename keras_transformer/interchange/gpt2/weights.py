"""Where each weight of Hugging Face's GPT-2 models is in a `LanguageModel`, and how it is stored.

GPT-2 adds E[id] to the position and has the logits h E^T; ours adds sqrt(d_model) E[id]. With
E / sqrt(d_model) in its place, and the scale and offset of the last layer normalization times
sqrt(d_model), both are the same.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...models.configuration import TransformerConfig

PREFIX = "transformer."  # before all names, if the model was saved with its head
EMBEDDING, POSITIONS, HEAD = "wte.weight", "wpe.weight", "lm_head.weight"
MASKS = r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias"  # of attention, in old files


class Gpt2Weight(NamedTuple):
    """One weight of a GPT-2 model.

    Args:
        theirs: str, its name in Hugging Face's model, without prefix.
        ours: strs, paths of the variables that it becomes, each an equal part of its last axis.
        shape: ints, theirs.
        factor: float, by which it is multiplied.
    """

    theirs: str
    ours: Sequence[str]
    shape: tuple[int, ...]
    factor: float = 1.0

    def to_ours(self, array: np.ndarray) -> dict[str, np.ndarray]:
        """The values of our variables, by their paths."""
        parts = np.split(array * np.float32(self.factor), len(self.ours), axis=-1)
        return dict(zip(self.ours, parts, strict=True))


def gpt2_weights(config: TransformerConfig, vocabulary_size: int) -> Iterator[Gpt2Weight]:
    """Yields all weights of a model.

    Args:
        config: `TransformerConfig`.
        vocabulary_size: int, theirs.
    """
    d_model, d_ff, scale = config.d_model, config.d_ff, config.d_model**0.5
    yield Gpt2Weight(EMBEDDING, ["embedding/embeddings"], (vocabulary_size, d_model), 1 / scale)
    yield Gpt2Weight(POSITIONS, ["positions/positions"], (config.max_length or 0, d_model))
    for number in range(config.num_layers):
        theirs, ours = f"h.{number}", f"decoder/block_{number + 1}"
        attention, feed_forward = f"{ours}/self_attention", f"{ours}/feed_forward"
        projections = [f"{attention}/{name}" for name in ("query", "key", "value")]
        yield from _norm(f"{theirs}.ln_1", f"{attention}_add_norm/norm", d_model)
        yield from _dense(f"{theirs}.attn.c_attn", projections, (d_model, 3 * d_model))
        output = f"{attention}/output"
        yield from _dense(f"{theirs}.attn.c_proj", [output], (d_model, d_model))
        yield from _norm(f"{theirs}.ln_2", f"{feed_forward}_add_norm/norm", d_model)
        yield from _dense(f"{theirs}.mlp.c_fc", [f"{feed_forward}/inner"], (d_model, d_ff))
        yield from _dense(f"{theirs}.mlp.c_proj", [f"{feed_forward}/outer"], (d_ff, d_model))
    yield from _norm("ln_f", "decoder/norm", d_model, scale)


def _dense(theirs, ours, shape):
    """A kernel, stored (inputs, outputs) as ours is, and its bias."""
    yield Gpt2Weight(f"{theirs}.weight", [f"{path}/kernel" for path in ours], shape)
    yield Gpt2Weight(f"{theirs}.bias", [f"{path}/bias" for path in ours], shape[1:])


def _norm(theirs, ours, width, factor=1.0):
    yield Gpt2Weight(f"{theirs}.weight", [f"{ours}/gamma"], (width,), factor)
    yield Gpt2Weight(f"{theirs}.bias", [f"{ours}/beta"], (width,), factor)
