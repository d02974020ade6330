"""Where a token stands, because attention itself cannot tell order.

Added to its embedding, or, with rotary positions, turned into its queries and keys.
"""

import keras
from keras import ops

from .arguments import check, check_at_least


def sinusoids(length, d_model):
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos(the same angle).

    Args:
        length: int, or a scalar int tensor: number of positions.
        d_model: int, width.

    Returns:
        float32, (length, d_model), whatever the compute dtype: bfloat16 would collapse
        neighbouring positions into one.

    Source: Vaswani et al. 2017, section 3.5.
    """
    angle = _angles(ops.arange(length), d_model)
    interleaved = ops.stack([ops.sin(angle), ops.cos(angle)], axis=-1)
    return ops.reshape(interleaved, (-1, 2 * angle.shape[-1]))[:, :d_model]


def rotated(x, positions=None):
    """Each pair (x_2i, x_2i+1) turned by the angle position / 10000^(2i / d).

    The product of a turned query and a turned key depends on how far apart they are, not on where.

    Args:
        x: float, (batch, length, num_heads, d), queries or keys; d is even.
        positions: int, (length,); None: 0, 1, ..., length - 1.

    Returns:
        float, as `x`. The angles are float32, whatever the compute dtype.

    Source: Su et al. 2021 (RoFormer), equation 34.
    """
    x = ops.convert_to_tensor(x)
    shape = ops.shape(x)
    positions = ops.arange(shape[1]) if positions is None else positions
    angle = ops.expand_dims(_angles(positions, x.shape[-1]), 1)  # (length, 1, d / 2)
    cos, sin = (ops.cast(f(angle), x.dtype) for f in (ops.cos, ops.sin))
    pairs = ops.reshape(x, (*shape[:-1], x.shape[-1] // 2, 2))
    swapped = ops.flip(pairs, axis=-1)
    turned = pairs * ops.stack([cos, cos], axis=-1) + swapped * ops.stack([-sin, sin], axis=-1)
    return ops.reshape(turned, shape)


def _angles(positions, width):
    """position / 10000^(2i / width), float32, (length, ceil(width / 2))."""
    pair = ops.arange(0, width, 2, dtype="float32")
    return ops.outer(ops.cast(positions, "float32"), ops.power(10000.0, -pair / width))


@keras.saving.register_keras_serializable(package="keras_transformer")
class PositionalEncoding(keras.layers.Layer):
    """x + PE, the sinusoids of section 3.5. No weights, no length limit.

    Call arguments:
        x: float, (batch, length, d_model), token embeddings.

    Returns:
        float, (batch, length, d_model).

    Source: Vaswani et al. 2017, section 3.5.
    """

    def build(self, x_shape):
        self.d_model = x_shape[-1]
        self.built = True

    def table(self, length):
        """The first `length` positions, float32, (length, d_model)."""
        return sinusoids(length, self.d_model)

    def call(self, x):
        return ops.add(x, ops.cast(self.table(ops.shape(x)[1]), x.dtype))

    def compute_output_shape(self, x_shape):
        return x_shape


@keras.saving.register_keras_serializable(package="keras_transformer")
class LearnedPositionalEncoding(keras.layers.Layer):
    """x + P, one trained vector a position: the alternative of Table 3, row (E).

    Args:
        max_length: int, the longest input, in tokens.

    Call arguments:
        x: float, (batch, length, d_model), length at most `max_length`.

    Returns:
        float, (batch, length, d_model).

    Raises:
        ValueError: the input is longer than `max_length`.

    Source: Gehring et al. 2017; Vaswani et al. 2017, section 3.5 and Table 3, row (E).
    """

    def __init__(self, max_length, **kwargs):
        super().__init__(**kwargs)
        check_at_least(1, max_length=max_length)
        self.max_length = max_length

    def build(self, x_shape):
        self.d_model = x_shape[-1]
        self.positions = self.add_weight(
            shape=(self.max_length, self.d_model),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            name="positions",
        )

    def table(self, length):
        """The first `length` positions, (length, d_model)."""
        if isinstance(length, int) and length > self.max_length:
            raise ValueError(
                f"The input has {length} tokens, but max_length={self.max_length} positions were "
                "learned; shorten the input, or train with a larger max_length or with sinusoids."
            )
        return ops.convert_to_tensor(self.positions)[:length]

    def call(self, x):
        return ops.add(x, ops.cast(self.table(ops.shape(x)[1]), x.dtype))

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {**super().get_config(), "max_length": self.max_length}


@keras.saving.register_keras_serializable(package="keras_transformer")
class NoPositionalEncoding(keras.layers.Layer):
    """x itself: stands where nothing is added, because attention is `rotary`.

    Call arguments:
        x: float, (batch, length, d_model).

    Returns:
        float, (batch, length, d_model).
    """

    def build(self, x_shape):
        self.d_model = x_shape[-1]
        self.built = True

    def table(self, length):
        """What is added at the first `length` positions: zeros, (length, d_model)."""
        return ops.zeros((length, self.d_model))

    def call(self, x):
        return ops.convert_to_tensor(x)


def positional_encoding(max_length=None, rotary=False, **kwargs):
    """The layer that a model adds positions with.

    Args:
        max_length: int, number of learned positions; None: sinusoids, which have no limit.
        rotary: bool, True: nothing is added, attention turns queries and keys instead.
        **kwargs: of the layer, such as dtype and name.

    Returns:
        `PositionalEncoding`, `LearnedPositionalEncoding` or `NoPositionalEncoding`.

    Raises:
        ValueError: learned and rotary positions are asked for at once.
    """
    check(
        not (rotary and max_length),
        "positions are learned (max_length) or rotary, not both",
        max_length=max_length,
        rotary=rotary,
    )
    if rotary:
        return NoPositionalEncoding(**kwargs)
    if max_length is None:
        return PositionalEncoding(**kwargs)
    return LearnedPositionalEncoding(max_length, **kwargs)
