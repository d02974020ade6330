"""The two blocks of Figure 1, alone and in stacks of N."""

from collections.abc import Callable
from typing import Any

import keras

from ..backend import RematerializedLayer, Tensor
from ..checks import check_at_least, check_rates
from .attention import MultiHeadAttention
from .feed_forward import (
    EPSILON,
    AddNorm,
    FeedForward,
    get_activation,
    layer_norm,
    serialize_activation,
)


class Block(RematerializedLayer):
    """The options of `EncoderBlock` and `DecoderBlock`, and how both make their sublayers.

    Args:
        num_heads: int, h; it must divide d_model, the width of the input.
        d_ff: int, inner width of the feed-forward network.
        dropout: float in [0, 1), dropout rate on the output of each sublayer (section 5.4).
        attention_dropout: float in [0, 1), dropout rate on the attention weights.
        activation: name or function, in the feed-forward network.
        norm_first: bool, False: post-norm as in the paper; True: pre-norm.
        rotary: bool, True: rotary positions in the self-attention.
        layer_norm_epsilon: float above 0, added to the variance in layer normalization.
    """

    def __init__(
        self,
        num_heads: int,
        d_ff: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation: str | Callable = "relu",
        norm_first: bool = False,
        rotary: bool = False,
        layer_norm_epsilon: float = EPSILON,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_at_least(1, num_heads=num_heads, d_ff=d_ff)
        check_rates(dropout=dropout, attention_dropout=attention_dropout)
        self.num_heads = num_heads
        self.d_ff = d_ff
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.activation = get_activation(activation)
        self.norm_first = norm_first
        self.rotary = rotary
        self.layer_norm_epsilon = layer_norm_epsilon

    def _attention(self, name, query_shape, value_shape, rotary=False):
        options = dict(num_heads=self.num_heads, dropout=self.attention_dropout, rotary=rotary)
        return self._built(MultiHeadAttention, name, query_shape, value_shape, **options)

    def _feed_forward(self, x_shape):
        options = dict(d_ff=self.d_ff, activation=self.activation)
        return self._built(FeedForward, "feed_forward", x_shape, **options)

    def _add_norm(self, name, x_shape):
        options = dict(dropout=self.dropout, layer_norm_epsilon=self.layer_norm_epsilon)
        return self._built(AddNorm, name, x_shape, norm_first=self.norm_first, **options)

    def _built(self, kind, name, *shapes, **options):
        layer = kind(**options, dtype=self.dtype_policy, name=name)
        layer.build(*shapes)
        return layer

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "d_ff": self.d_ff,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "activation": serialize_activation(self.activation),
            "norm_first": self.norm_first,
            "rotary": self.rotary,
            "layer_norm_epsilon": self.layer_norm_epsilon,
        }


@keras.saving.register_keras_serializable(package="keras_transformer")
class EncoderBlock(Block):
    """Self-attention, then the feed-forward network, each inside Add & Norm.

    Args:
        num_heads: int, h; it must divide d_model, the width of the input.
        d_ff: int, inner width of the feed-forward network.
        dropout: float in [0, 1), dropout rate on the output of each sublayer (section 5.4).
        attention_dropout: float in [0, 1), dropout rate on the attention weights.
        activation: name or function, in the feed-forward network.
        norm_first: bool, False: post-norm as in the paper; True: pre-norm.
        rotary: bool, True: rotary positions in the self-attention.
        layer_norm_epsilon: float above 0, added to the variance in layer normalization.
        **kwargs: name, dtype and trainable of keras.layers.Layer.

    Call arguments:
        x: float, (batch, length, d_model).
        attention_mask: bool, (batch, 1, length), True = may be attended to.
        use_causal_mask: bool, True: no position attends to the future, as in a decoder-only model.
        cache: `Cache` of earlier tokens; see `MultiHeadAttention`.

    Returns:
        float, (batch, length, d_model).

    Raises:
        ValueError: on build, num_heads does not divide d_model.

    Source: Vaswani et al. 2017, section 3.1 and Figure 1, left.
    """

    def build(self, x_shape):
        self.self_attention = self._attention("self_attention", x_shape, x_shape, self.rotary)
        self.self_attention_add_norm = self._add_norm("self_attention_add_norm", x_shape)
        self.feed_forward = self._feed_forward(x_shape)
        self.feed_forward_add_norm = self._add_norm("feed_forward_add_norm", x_shape)

    def call(
        self, x: Tensor, attention_mask=None, use_causal_mask=False, cache=None, training=None
    ):
        x = self.self_attention_add_norm(
            x,
            sublayer=lambda x: self.self_attention(
                x, x, attention_mask=attention_mask, use_causal_mask=use_causal_mask, cache=cache
            ),
        )
        return self.feed_forward_add_norm(x, sublayer=self.feed_forward)


@keras.saving.register_keras_serializable(package="keras_transformer")
class DecoderBlock(Block):
    """Masked self-attention, cross-attention to the memory, feed-forward network.

    The look-ahead mask is built in. Padding on the right of the target needs no mask of its
    own: it lies in the future of every real token.

    Args:
        num_heads: int, h; it must divide d_model, the width of the input.
        d_ff: int, inner width of the feed-forward network.
        dropout: float in [0, 1), dropout rate on the output of each sublayer (section 5.4).
        attention_dropout: float in [0, 1), dropout rate on the attention weights.
        activation: name or function, in the feed-forward network.
        norm_first: bool, False: post-norm as in the paper; True: pre-norm.
        rotary: bool, True: rotary positions in the self-attention.
        layer_norm_epsilon: float above 0, added to the variance in layer normalization.
        **kwargs: name, dtype and trainable of keras.layers.Layer.

    Call arguments:
        x: float, (batch, target length, d_model).
        memory: float, (batch, source length, width), the encoder's output.
        cross_attention_mask: bool, (batch, 1, source length), the padding mask of the SOURCE.
        attention_mask: bool, (batch, 1, target length), for a target padded elsewhere.
        cache: `Cache` of earlier tokens; see `MultiHeadAttention`.

    Returns:
        float, (batch, target length, d_model).

    Raises:
        ValueError: on build, num_heads does not divide d_model.

    Source: Vaswani et al. 2017, section 3.1 and Figure 1, right.
    """

    def build(self, x_shape, memory_shape):
        self.self_attention = self._attention("self_attention", x_shape, x_shape, self.rotary)
        self.self_attention_add_norm = self._add_norm("self_attention_add_norm", x_shape)
        self.cross_attention = self._attention("cross_attention", x_shape, memory_shape)
        self.cross_attention_add_norm = self._add_norm("cross_attention_add_norm", x_shape)
        self.feed_forward = self._feed_forward(x_shape)
        self.feed_forward_add_norm = self._add_norm("feed_forward_add_norm", x_shape)

    def call(
        self,
        x: Tensor,
        memory: Tensor,
        cross_attention_mask=None,
        attention_mask=None,
        cache=None,
        training=None,
    ):
        x = self.self_attention_add_norm(
            x,
            sublayer=lambda x: self.self_attention(
                x, x, attention_mask=attention_mask, use_causal_mask=True, cache=cache
            ),
        )
        x = self.cross_attention_add_norm(
            x,
            sublayer=lambda x: self.cross_attention(
                x, memory, attention_mask=cross_attention_mask, cache=cache
            ),
        )
        return self.feed_forward_add_norm(x, sublayer=self.feed_forward)


class Stack(keras.layers.Layer):
    """N identical blocks, one after the other; with `norm_first`, a last LayerNorm.

    Args:
        num_layers: int, N.
        name: str.
        dtype: name or keras.DTypePolicy of all layers; None: the global policy.
        trainable: bool.
        **options: arguments of a block: num_heads, d_ff, dropout, attention_dropout, activation,
            norm_first, rotary, layer_norm_epsilon.
    """

    block: type[Block]

    def __init__(
        self,
        num_layers: int,
        *,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
        **options: Any,
    ):
        super().__init__(name=name, dtype=dtype, trainable=trainable)
        check_at_least(1, num_layers=num_layers)
        self.blocks = [
            self.block(**options, dtype=self.dtype_policy, name=f"block_{number}")
            for number in range(1, num_layers + 1)
        ]
        self.norm_first = self.blocks[0].norm_first

    def build(self, x_shape, *memory_shape):
        for block in self.blocks:
            block.build(x_shape, *memory_shape)
        if self.norm_first:
            self.norm = layer_norm(self.blocks[0].layer_norm_epsilon, self.dtype_policy)
            self.norm.build(x_shape)

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        own = super().get_config()
        return {**self.blocks[0].get_config(), **own, "num_layers": len(self.blocks)}


@keras.saving.register_keras_serializable(package="keras_transformer")
class Encoder(Stack):
    """A stack of N identical `EncoderBlock`s; with `norm_first`, a last LayerNorm.

    Args:
        num_layers: int, N.
        name: str.
        dtype: name or keras.DTypePolicy of all layers; None: the global policy.
        trainable: bool.
        **options: arguments of a block: num_heads, d_ff, dropout, attention_dropout, activation,
            norm_first, rotary, layer_norm_epsilon.

    Call arguments:
        x: float, (batch, length, d_model).
        attention_mask: bool, (batch, 1, length), True = may be attended to.
        use_causal_mask: bool, True: no position attends to the future, as in a decoder-only model.
        cache: `Cache` of earlier tokens; see `MultiHeadAttention`.

    Returns:
        float, (batch, length, d_model), the memory.

    Source: Vaswani et al. 2017, section 3.1.
    """

    block = EncoderBlock

    def call(self, x: Tensor, attention_mask=None, use_causal_mask=False, cache=None):
        for block in self.blocks:
            x = block(
                x, attention_mask=attention_mask, use_causal_mask=use_causal_mask, cache=cache
            )
        return self.norm(x) if self.norm_first else x


@keras.saving.register_keras_serializable(package="keras_transformer")
class Decoder(Stack):
    """A stack of N identical `DecoderBlock`s; with `norm_first`, a last LayerNorm.

    Args:
        num_layers: int, N.
        name: str.
        dtype: name or keras.DTypePolicy of all layers; None: the global policy.
        trainable: bool.
        **options: arguments of a block: num_heads, d_ff, dropout, attention_dropout, activation,
            norm_first, rotary, layer_norm_epsilon.

    Call arguments:
        x: float, (batch, target length, d_model).
        memory: float, (batch, source length, width), the encoder's output.
        cross_attention_mask: bool, (batch, 1, source length), the padding mask of the SOURCE.
        attention_mask: bool, (batch, 1, target length), for a target padded elsewhere.
        cache: `Cache` of earlier tokens; see `MultiHeadAttention`.

    Returns:
        float, (batch, target length, d_model).

    Source: Vaswani et al. 2017, section 3.1.
    """

    block = DecoderBlock

    def build(self, x_shape, memory_shape):
        super().build(x_shape, memory_shape)

    def call(self, x: Tensor, memory, cross_attention_mask=None, attention_mask=None, cache=None):
        for block in self.blocks:
            x = block(
                x,
                memory,
                cross_attention_mask=cross_attention_mask,
                attention_mask=attention_mask,
                cache=cache,
            )
        return self.norm(x) if self.norm_first else x
