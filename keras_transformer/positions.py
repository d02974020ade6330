"""Where a token stands: added to its embedding, because attention itself cannot tell order."""

import keras
from keras import ops

from .arguments import check_at_least


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
    position = ops.cast(ops.arange(length), "float32")
    pair = ops.arange(0, d_model, 2, dtype="float32")
    angle = ops.outer(position, ops.power(10000.0, -pair / d_model))  # (length, ceil(d_model / 2))
    interleaved = ops.stack([ops.sin(angle), ops.cos(angle)], axis=-1)
    return ops.reshape(interleaved, (-1, 2 * angle.shape[-1]))[:, :d_model]


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
