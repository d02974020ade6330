"""The sizes and options of a Transformer, and how its answers are decoded."""

import dataclasses
from typing import Any, Self

from ..checks import (
    SMALLEST,
    check,
    check_above_0,
    check_at_least,
    check_finite,
    check_from_0,
    check_optional,
    check_rates,
)

MOST_PENALTY = 10  # exponent: the penalty of 8,192 tokens is then 2e31, within float32


@dataclasses.dataclass(frozen=True)
class Configuration:
    """A configuration that can be copied with changes; names that do not exist are refused."""

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed.

        Raises:
            ValueError: There is no such field, or a value is out of range.
        """
        known = [field.name for field in dataclasses.fields(self)]
        unknown = [name for name in changes if name not in known]
        check(not unknown, f"Options are {', '.join(known)}", unknown=", ".join(unknown))
        return dataclasses.replace(self, **changes)


@dataclasses.dataclass(frozen=True)
class TransformerConfig(Configuration):
    """The sizes and options of a Transformer; a row of Table 3.

    Args:
        num_layers: Number of blocks in the encoder, and again in the decoder (N).
        d_model: Width of embeddings and sublayers.
        num_heads: Attention heads (h); must divide d_model.
        d_ff: Inner width of the feed-forward networks.
        dropout: Dropout rate on embeddings and sublayer outputs, in [0, 1) (P_drop).
        attention_dropout: Dropout rate on attention weights, in [0, 1).
        activation: Activation of the feed-forward networks, by its Keras name; or gelu_tanh.
        norm_first: Layer normalization before each sublayer (pre-norm), not after it.
        max_length: Number of learned positions, in tokens; without it sinusoids, without a limit.
        rotary: Rotary positions in self-attention, instead of positions added to embeddings.
        layer_norm_epsilon: Added to the variance in layer normalization.
        logits_bias: A bias per token, added to the logits of a Transformer or LanguageModel.

    Raises:
        ValueError: A size is not a positive integer, a rate is outside [0, 1), num_heads does not
            divide d_model, positions are both learned and rotary, or layer_norm_epsilon is not
            above 0.

    Source: Vaswani et al. 2017, Table 3.
    """

    num_layers: int = 6
    d_model: int = 512
    num_heads: int = 8
    d_ff: int = 2048
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation: str = "relu"
    norm_first: bool = False
    max_length: int | None = None
    rotary: bool = False
    layer_norm_epsilon: float = 1e-6
    logits_bias: bool = False

    def __post_init__(self):
        check_at_least(1, num_layers=self.num_layers, d_model=self.d_model, d_ff=self.d_ff)
        check_at_least(1, num_heads=self.num_heads)
        check_optional(1, max_length=self.max_length)
        check_rates(dropout=self.dropout, attention_dropout=self.attention_dropout)
        check(
            self.d_model % self.num_heads == 0,
            "num_heads must divide d_model",
            num_heads=self.num_heads,
            d_model=self.d_model,
        )
        check(
            not (self.rotary and self.max_length),
            "positions are learned (max_length) or rotary, not both",
            max_length=self.max_length,
            rotary=self.rotary,
        )
        check_above_0(layer_norm_epsilon=self.layer_norm_epsilon)

    def block_options(self) -> dict[str, Any]:
        """The arguments of a stack of blocks."""
        outside = ("d_model", "max_length", "logits_bias")
        return {n: v for n, v in dataclasses.asdict(self).items() if n not in outside}


BASE = TransformerConfig()
PRESETS = {
    "tiny": TransformerConfig(num_layers=2, d_model=64, num_heads=4, d_ff=128),
    "mini": TransformerConfig(num_layers=3, d_model=256, num_heads=4, d_ff=1024),
    "base": BASE,  # Table 3
    "big": TransformerConfig(d_model=1024, num_heads=16, d_ff=4096, dropout=0.3),  # Table 3
}


@dataclasses.dataclass(frozen=True)
class GenerationConfig(Configuration):
    """How answers are decoded: what a task uses unless a call says otherwise.

    Args:
        beams: Width of the beam search; 1: greedy decoding.
        length_penalty: Exponent of the length penalty, from 0 to 10; larger favors longer answers.
        min_length_ratio: Fewest tokens of an answer per source token, END counted in neither.
        max_length_ratio: Most tokens of an answer per source token, plus 16.
        batch_size: Most texts per batch. On a CPU, TensorFlow and JAX decode two batches at a time.
        tokens_per_batch: Most source tokens per batch, padding included; None: no limit.

    Raises:
        ValueError: A value is out of range.

    Source: Wu et al. 2016, equation 14 (length penalty).
    """

    beams: int = 1
    length_penalty: float = 0.6
    min_length_ratio: float = 0.0
    max_length_ratio: float = 2.0
    batch_size: int = 64
    tokens_per_batch: int | None = None

    def __post_init__(self):
        check_at_least(1, beams=self.beams, batch_size=self.batch_size)
        check_optional(1, tokens_per_batch=self.tokens_per_batch)
        ratios = dict(
            min_length_ratio=self.min_length_ratio, max_length_ratio=self.max_length_ratio
        )
        check_finite(**ratios)
        check_from_0(length_penalty=self.length_penalty)
        check(
            self.length_penalty <= MOST_PENALTY,
            f"length_penalty must be at most {MOST_PENALTY}, for float32 to hold the penalty of a "
            "long answer",
            length_penalty=self.length_penalty,
        )
        check(
            0 <= self.min_length_ratio <= self.max_length_ratio and self.max_length_ratio > 0,
            "Expected 0 <= min_length_ratio <= max_length_ratio, the latter above 0",
            **ratios,
        )


@dataclasses.dataclass(frozen=True)
class SamplingConfig(Configuration):
    """How tokens are drawn from a model's distribution.

    Args:
        temperature: Divisor of the logits, above 0: below 1 sharpens the distribution.
        top_k: Number of most probable tokens to sample from; None: all.
        top_p: Nucleus sampling threshold: the fewest tokens that together reach it, in (0, 1].

    Raises:
        ValueError: A value is out of range.

    Source: Fan et al. 2018 (top-k); Holtzman et al. 2020 (nucleus sampling).
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self):
        check_above_0(temperature=self.temperature)
        check_optional(1, top_k=self.top_k)
        check_finite(top_p=self.top_p)
        in_range = SMALLEST <= self.top_p <= 1
        check(in_range, "top_p must be above 0 and at most 1", top_p=self.top_p)
