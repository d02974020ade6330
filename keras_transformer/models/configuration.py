"""The sizes and options of a Transformer."""

import dataclasses
from typing import Any, Self

from ..checks import (
    Configuration,
    check,
    check_above_0,
    check_at_least,
    check_optional,
    check_rates,
)

DEPTHS = ("encoder_layers", "decoder_layers")


@dataclasses.dataclass(frozen=True)
class TransformerConfig(Configuration):
    """Sizes and options of the Transformer (Table 3 of the paper).

    Args:
        num_layers: Number of blocks (N); of a Transformer in the encoder, and again in the decoder.
        d_model: Width of embeddings and sublayers.
        num_heads: Attention heads (h); must divide d_model.
        d_ff: Inner width of the feed-forward networks.
        dropout: Dropout rate on embeddings and sublayer outputs, in [0, 1) (P_drop).
        attention_dropout: Dropout rate on attention weights, in [0, 1).
        activation: Activation of the feed-forward networks, by its Keras name; or gelu_tanh.
        norm_first: Layer normalization before each sublayer (pre-norm), not after it.
        max_length: Number of learned positions, in tokens; none: sinusoids (or rotary positions),
            which tasks use for up to 8,192 tokens.
        rotary: Rotary positions in self-attention, instead of positions added to embeddings.
        layer_norm_epsilon: Added to the variance in layer normalization.
        logits_bias: A bias per token, added to the logits of a Transformer or LanguageModel.
        encoder_layers: Number of blocks in the encoder of a Transformer; none: num_layers.
        decoder_layers: Number of blocks in the decoder of a Transformer; none: num_layers.

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
    encoder_layers: int | None = None
    decoder_layers: int | None = None

    def __post_init__(self):
        check_at_least(1, num_layers=self.num_layers, d_model=self.d_model, d_ff=self.d_ff)
        check_at_least(1, num_heads=self.num_heads)
        check_optional(1, max_length=self.max_length)
        check_optional(1, encoder_layers=self.encoder_layers, decoder_layers=self.decoder_layers)
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

    def depth(self, stack: str) -> int:
        """Number of blocks in the "encoder" or the "decoder" of a Transformer."""
        return getattr(self, f"{stack}_layers") or self.num_layers

    def of_encoder(self) -> Self:
        """The configuration of a model whose only stack is the encoder of a Transformer."""
        return self.replace(num_layers=self.depth("encoder"), **dict.fromkeys(DEPTHS))

    def block_options(self, stack: str | None = None) -> dict[str, Any]:
        """The arguments of a stack of blocks.

        Args:
            stack: "encoder" or "decoder" of a Transformer; None: the only stack of another model.

        Raises:
            ValueError: A model with one stack has a depth other than num_layers.
        """
        depths = {name: getattr(self, name) for name in DEPTHS}
        one = "Only a Transformer has two depths; a model with one stack has num_layers"
        check(stack or not any(depths.values()), one, **depths)
        outside = ("d_model", "max_length", "logits_bias", *DEPTHS)
        options = {n: v for n, v in dataclasses.asdict(self).items() if n not in outside}
        return options | ({"num_layers": self.depth(stack)} if stack else {})


BASE = TransformerConfig()
PRESETS = {
    "tiny": TransformerConfig(num_layers=2, d_model=64, num_heads=4, d_ff=128),
    "mini": TransformerConfig(num_layers=3, d_model=256, num_heads=4, d_ff=1024),
    "base": BASE,  # Table 3
    "big": TransformerConfig(d_model=1024, num_heads=16, d_ff=4096, dropout=0.3),  # Table 3
}
