"""Feed-forward network, Add & Norm, and the two blocks of Figure 1, alone and in stacks of N."""

import keras
from keras import ops

from .arguments import check_at_least, check_rates
from .attention import MultiHeadAttention, by_rows

EPSILON = 1e-6  # of layer normalisation, as in the authors' code; Keras's default is 1e-3


@keras.saving.register_keras_serializable(package="keras_transformer")
class FeedForward(keras.layers.Layer):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, at every position alike.

    Args:
        d_ff: int, width of the inner layer.
        activation: name or function, between the two layers.
        dropout: float in [0, 1), applied to the inner layer.

    Call arguments:
        x: float, (batch, length, d_model).

    Returns:
        float, (batch, length, d_model).

    Source: Vaswani et al. 2017, section 3.3, equation 2.
    """

    def __init__(self, d_ff, activation="relu", dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        check_rates(dropout=dropout)
        self.d_ff = d_ff
        self.activation = keras.activations.get(activation)
        self.dropout = dropout

    def build(self, x_shape):
        dtype = self.dtype_policy
        self.inner = keras.layers.Dense(self.d_ff, self.activation, dtype=dtype, name="inner")
        self.inner_dropout = keras.layers.Dropout(self.dropout, dtype=dtype)
        self.outer = keras.layers.Dense(x_shape[-1], dtype=dtype, name="outer")
        self.inner.build(x_shape)
        self.outer.build((*x_shape[:-1], self.d_ff))

    def call(self, x):
        return by_rows(lambda rows: self.outer(self.inner_dropout(self.inner(rows))), x)

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {
            **super().get_config(),
            "d_ff": self.d_ff,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
        }


@keras.saving.register_keras_serializable(package="keras_transformer")
class AddNorm(keras.layers.Layer):
    """LayerNorm(x + Dropout(Sublayer(x))): the residual path around every sublayer.

    With `norm_first` the normalisation moves to the sublayer's input:
    x + Dropout(Sublayer(LayerNorm(x))). Either way, a block writes

        x = add_norm(x, sublayer(add_norm.sublayer_input(x)))

    Args:
        dropout: float in [0, 1), applied to the sublayer's output.
        norm_first: bool, False: post-norm as in the paper; True: pre-norm.

    Call arguments:
        x: float, (batch, length, d_model), what went into the sublayer.
        sublayer_output: float, (batch, length, d_model).

    Returns:
        float, (batch, length, d_model).

    Source: Vaswani et al. 2017, sections 3.1 and 5.4; pre-norm: Xiong et al. 2020.
    """

    def __init__(self, dropout=0.0, norm_first=False, **kwargs):
        super().__init__(**kwargs)
        check_rates(dropout=dropout)
        self.dropout = dropout
        self.norm_first = norm_first
        # Here and not in `build`: `sublayer_input` is needed before the first call.
        dtype = self.dtype_policy
        self.norm = keras.layers.LayerNormalization(epsilon=EPSILON, dtype=dtype, name="norm")
        self.output_dropout = keras.layers.Dropout(dropout, dtype=dtype)

    def build(self, x_shape, sublayer_output_shape=None):
        if not self.norm.built:
            self.norm.build(x_shape)

    def sublayer_input(self, x):
        """What the sublayer reads: x, or LayerNorm(x) with `norm_first`."""
        return self.norm(x) if self.norm_first else x

    def call(self, x, sublayer_output):
        x = ops.add(x, self.output_dropout(sublayer_output))
        return x if self.norm_first else self.norm(x)

    def compute_output_shape(self, x_shape, sublayer_output_shape):
        return x_shape

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout, "norm_first": self.norm_first}


@keras.saving.register_keras_serializable(package="keras_transformer")
class EncoderBlock(keras.layers.Layer):
    """Self-attention, then the feed-forward network, each inside Add & Norm.

    Args:
        num_heads: int, h; it must divide d_model, the width of the input.
        d_ff: int, inner width of the feed-forward network.
        dropout: float in [0, 1), on the output of each sublayer (section 5.4).
        attention_dropout: float in [0, 1), on the attention weights.
        activation: name or function, in the feed-forward network.
        norm_first: bool, False: post-norm as in the paper; True: pre-norm.
        rotary: bool, True: self-attention turns queries and keys by their positions.

    Call arguments:
        x: float, (batch, length, d_model).
        attention_mask: bool, (batch, 1, length), True = may be attended to.
        use_causal_mask: bool, True: nobody attends to the future, as in a decoder-only model.
        return_attention_scores: bool, True: return the attention weights too.

    Returns:
        x: float, (batch, length, d_model).
        weights: float, (batch, num_heads, length, length), on request.

    Raises:
        ValueError: on build, num_heads does not divide d_model.

    Source: Vaswani et al. 2017, section 3.1 and Figure 1, left.
    """

    def __init__(
        self,
        num_heads,
        d_ff,
        dropout=0.0,
        attention_dropout=0.0,
        activation="relu",
        norm_first=False,
        rotary=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_rates(dropout=dropout, attention_dropout=attention_dropout)
        self.num_heads = num_heads
        self.d_ff = d_ff
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.activation = keras.activations.get(activation)
        self.norm_first = norm_first
        self.rotary = rotary

    def build(self, x_shape):
        self.self_attention = self._attention("self_attention", x_shape, x_shape, self.rotary)
        self.self_attention_add_norm = self._add_norm("self_attention_add_norm", x_shape)
        self.feed_forward = FeedForward(
            self.d_ff, self.activation, dtype=self.dtype_policy, name="feed_forward"
        )
        self.feed_forward.build(x_shape)
        self.feed_forward_add_norm = self._add_norm("feed_forward_add_norm", x_shape)

    def _attention(self, name, query_shape, value_shape, rotary=False):
        attention = MultiHeadAttention(
            self.num_heads,
            dropout=self.attention_dropout,
            rotary=rotary,
            dtype=self.dtype_policy,
            name=name,
        )
        attention.build(query_shape, value_shape)
        return attention

    def _add_norm(self, name, x_shape):
        add_norm = AddNorm(self.dropout, self.norm_first, dtype=self.dtype_policy, name=name)
        add_norm.build(x_shape)
        return add_norm

    def call(self, x, attention_mask=None, use_causal_mask=False, return_attention_scores=False):
        h = self.self_attention_add_norm.sublayer_input(x)
        h = self.self_attention(
            h,
            h,
            attention_mask=attention_mask,
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
        )
        h, weights = h if return_attention_scores else (h, None)
        x = self.self_attention_add_norm(x, h)

        h = self.feed_forward_add_norm.sublayer_input(x)
        x = self.feed_forward_add_norm(x, self.feed_forward(h))
        return (x, weights) if return_attention_scores else x

    def step(self, x, position, past, attention_mask):
        """`call` with the look-ahead mask for one position, given keys and values of those before.

        The hypotheses of a sentence share one cache: they are so many queries to the same keys,
        and the mask tells which of these are whose.

        Args:
            x: float, (batch, beams, d_model), one token of each hypothesis.
            position: int scalar, theirs.
            past: the cache of the self-attention, see `MultiHeadAttention.empty_cache`; beam k
                writes place position * beams + k.
            attention_mask: bool, (batch or 1, beams, places), True at what each may attend to.

        Returns:
            x: float, (batch, beams, d_model).
            past: with the keys and values of `x`.
        """
        x, past = self._self_attention_step(x, position, past, attention_mask)
        h = self.feed_forward_add_norm.sublayer_input(x)
        return self.feed_forward_add_norm(x, self.feed_forward(h)), past

    def _self_attention_step(self, x, position, past, attention_mask):
        beams = x.shape[1]
        positions = ops.broadcast_to(position, (beams,))
        h = self.self_attention_add_norm.sublayer_input(x)
        past = self.self_attention.add_to_cache(past, position * beams, h, positions)
        h = self.self_attention.attend_to(h, past, attention_mask, positions)
        return self.self_attention_add_norm(x, h), past

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "d_ff": self.d_ff,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "activation": keras.activations.serialize(self.activation),
            "norm_first": self.norm_first,
            "rotary": self.rotary,
        }


@keras.saving.register_keras_serializable(package="keras_transformer")
class DecoderBlock(EncoderBlock):
    """Masked self-attention, cross-attention to the memory, feed-forward network.

    The look-ahead mask is built in. Padding on the right of the target needs no mask of its
    own: it lies in the future of every real token.

    Args: those of `EncoderBlock`.

    Call arguments:
        x: float, (batch, target length, d_model).
        memory: float, (batch, source length, width), the encoder's output.
        cross_attention_mask: bool, (batch, 1, source length), the padding mask of the SOURCE.
        attention_mask: bool, (batch, 1, target length), for a target padded elsewhere.
        return_attention_scores: bool, True: return the attention weights too.

    Returns:
        x: float, (batch, target length, d_model).
        self_weights: float, (batch, num_heads, target length, target length), on request.
        cross_weights: float, (batch, num_heads, target length, source length), on request.

    Raises:
        ValueError: on build, num_heads does not divide d_model.

    Source: Vaswani et al. 2017, section 3.1 and Figure 1, right.
    """

    def build(self, x_shape, memory_shape):
        super().build(x_shape)
        self.cross_attention = self._attention("cross_attention", x_shape, memory_shape)
        self.cross_attention_add_norm = self._add_norm("cross_attention_add_norm", x_shape)

    def call(
        self,
        x,
        memory,
        cross_attention_mask=None,
        attention_mask=None,
        return_attention_scores=False,
    ):
        h = self.self_attention_add_norm.sublayer_input(x)
        h = self.self_attention(
            h,
            h,
            attention_mask=attention_mask,
            use_causal_mask=True,
            return_attention_scores=return_attention_scores,
        )
        h, self_weights = h if return_attention_scores else (h, None)
        x = self.self_attention_add_norm(x, h)

        h = self.cross_attention_add_norm.sublayer_input(x)
        h = self.cross_attention(
            h,
            memory,
            attention_mask=cross_attention_mask,
            return_attention_scores=return_attention_scores,
        )
        h, cross_weights = h if return_attention_scores else (h, None)
        x = self.cross_attention_add_norm(x, h)

        h = self.feed_forward_add_norm.sublayer_input(x)
        x = self.feed_forward_add_norm(x, self.feed_forward(h))
        return (x, self_weights, cross_weights) if return_attention_scores else x

    def step(self, x, position, past, attention_mask, memory, cross_attention_mask=None):
        """`call` for the tokens at one position, given the keys and values of those before.

        Args:
            x, position, past, attention_mask: as in `EncoderBlock.step`.
            memory: `cross_attention.keys_and_values(memory)`, shared by the hypotheses too.
            cross_attention_mask: bool, (batch, 1, source length).

        Returns: as `EncoderBlock.step`.
        """
        x, past = self._self_attention_step(x, position, past, attention_mask)

        h = self.cross_attention_add_norm.sublayer_input(x)
        h = self.cross_attention.attend_to(h, memory, cross_attention_mask)
        x = self.cross_attention_add_norm(x, h)

        h = self.feed_forward_add_norm.sublayer_input(x)
        return self.feed_forward_add_norm(x, self.feed_forward(h)), past


@keras.saving.register_keras_serializable(package="keras_transformer")
class Encoder(keras.layers.Layer):
    """A stack of N identical `EncoderBlock`s; with `norm_first`, a last LayerNorm.

    Args:
        num_layers: int, N.
        num_heads, d_ff, dropout, attention_dropout, activation, norm_first, rotary: of every block.

    Call arguments: those of `EncoderBlock`.

    Returns:
        x: float, (batch, length, d_model), the memory.
        weights: list of N, on request.

    Source: Vaswani et al. 2017, section 3.1.
    """

    block = EncoderBlock

    def __init__(
        self,
        num_layers,
        num_heads,
        d_ff,
        dropout=0.0,
        attention_dropout=0.0,
        activation="relu",
        norm_first=False,
        rotary=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_at_least(1, num_layers=num_layers)
        self.num_layers = num_layers
        self.norm_first = norm_first
        self.blocks = [
            self.block(
                num_heads,
                d_ff,
                dropout,
                attention_dropout,
                activation,
                norm_first,
                rotary,
                dtype=self.dtype_policy,
                name=f"block_{i + 1}",
            )
            for i in range(num_layers)
        ]
        if norm_first:
            self.norm = keras.layers.LayerNormalization(
                epsilon=EPSILON, dtype=self.dtype_policy, name="norm"
            )

    def build(self, x_shape, *other_shapes):
        for block in self.blocks:
            block.build(x_shape, *other_shapes)
        if self.norm_first:
            self.norm.build(x_shape)

    def call(self, x, attention_mask=None, use_causal_mask=False, return_attention_scores=False):
        all_weights = []
        for block in self.blocks:
            x = block(
                x,
                attention_mask=attention_mask,
                use_causal_mask=use_causal_mask,
                return_attention_scores=return_attention_scores,
            )
            if return_attention_scores:
                x, weights = x
                all_weights.append(weights)
        x = self.norm(x) if self.norm_first else x
        return (x, all_weights) if return_attention_scores else x

    def empty_past(self, batch_size, places):
        """Empty caches for the self-attention of each block.

        Args:
            batch_size: int.
            places: int, how many tokens they can hold.

        Returns:
            list of pairs, see `MultiHeadAttention.empty_cache`.
        """
        return [block.self_attention.empty_cache(batch_size, places) for block in self.blocks]

    def step(self, x, position, past, attention_mask):
        """`call` for the tokens at one position; see `EncoderBlock.step`."""
        present = []
        for block, block_past in zip(self.blocks, past):
            x, block_past = block.step(x, position, block_past, attention_mask)
            present.append(block_past)
        return (self.norm(x) if self.norm_first else x), present

    def get_config(self):
        block = self.blocks[0].get_config()
        shared = "num_heads d_ff dropout attention_dropout activation norm_first rotary".split()
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            **{name: block[name] for name in shared},
        }


@keras.saving.register_keras_serializable(package="keras_transformer")
class Decoder(Encoder):
    """A stack of N identical `DecoderBlock`s; with `norm_first`, a last LayerNorm.

    Args: those of `Encoder`.

    Call arguments: those of `DecoderBlock`.

    Returns:
        x: float, (batch, target length, d_model).
        self_weights, cross_weights: lists of N, on request.

    Source: Vaswani et al. 2017, section 3.1.
    """

    block = DecoderBlock

    def build(self, x_shape, memory_shape):
        super().build(x_shape, memory_shape)

    def call(
        self,
        x,
        memory,
        cross_attention_mask=None,
        attention_mask=None,
        return_attention_scores=False,
    ):
        self_weights, cross_weights = [], []
        for block in self.blocks:
            x = block(
                x,
                memory,
                cross_attention_mask=cross_attention_mask,
                attention_mask=attention_mask,
                return_attention_scores=return_attention_scores,
            )
            if return_attention_scores:
                x, of_self, of_memory = x
                self_weights.append(of_self)
                cross_weights.append(of_memory)
        x = self.norm(x) if self.norm_first else x
        return (x, self_weights, cross_weights) if return_attention_scores else x

    def project(self, memory):
        """Keys and values of the memory for the cross-attention of each block.

        Args:
            memory: float, (batch, source length, width).

        Returns:
            list of pairs, see `MultiHeadAttention.keys_and_values`.
        """
        return [block.cross_attention.keys_and_values(memory) for block in self.blocks]

    def step(self, x, position, past, attention_mask, projected, cross_attention_mask=None):
        """`call` for the tokens at one position; see `DecoderBlock.step`."""
        present = []
        for block, block_past, memory in zip(self.blocks, past, projected):
            x, block_past = block.step(
                x, position, block_past, attention_mask, memory, cross_attention_mask
            )
            present.append(block_past)
        return (self.norm(x) if self.norm_first else x), present
