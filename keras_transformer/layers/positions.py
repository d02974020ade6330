"""Positions of tokens: attention by itself ignores their order.

Positions are added to the embeddings, or, if rotary, rotate queries and keys.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from ..backend import Tensor, look_up
from ..checks import check, check_at_least


def sinusoids(length: int | Tensor, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos(the same angle).

    Args:
        length: int, or a scalar int tensor: number of positions.
        d_model: int, width.

    Returns:
        float32, (length, d_model), whatever the compute dtype: bfloat16 would collapse
        neighboring positions into one.

    Source: Vaswani et al. 2017, section 3.5.
    """
    return _sinusoids_at(ops.arange(length), d_model)


def _sinusoids_at(positions, d_model):
    """The rows of `sinusoids` at the given positions, float32, (..., length, d_model)."""
    angle = _angles(positions, d_model)
    interleaved = ops.stack([ops.sin(angle), ops.cos(angle)], axis=-1)
    shape = (*ops.shape(angle)[:-1], 2 * angle.shape[-1])
    return ops.reshape(interleaved, shape)[..., :d_model]


def apply_rotary_embedding(x: Tensor, positions: Tensor = None) -> Tensor:
    """Rotates each pair (x_2i, x_2i+1) by the angle position / 10000^(2i / d).

    The product of a rotated query and a rotated key depends on their distance alone.

    Args:
        x: float, (..., length, d), queries or keys; d is even.
        positions: int, (length,), or (batch, length) of x with heads; None: 0, 1, ..., length - 1.

    Returns:
        float, (..., length, d). The angles are float32, whatever the compute dtype.

    Source: Su et al. 2021 (RoFormer), equation 34.
    """
    x = ops.convert_to_tensor(x)
    *others, d = ops.shape(x)
    positions = ops.arange(others[-1]) if positions is None else positions
    angle = ops.expand_dims(_angles(positions, d), -3)  # (..., 1 for all heads, length, d / 2)
    cos, sin = (ops.cast(f(angle), x.dtype) for f in (ops.cos, ops.sin))
    pairs = ops.reshape(x, (*others, d // 2, 2))
    swapped = ops.flip(pairs, axis=-1)
    rotated = pairs * ops.stack([cos, cos], axis=-1) + swapped * ops.stack([-sin, sin], axis=-1)
    return ops.reshape(rotated, (*others, d))


def _angles(positions, width):
    """position / 10000^(2i / width), float32, (..., length, ceil(width / 2))."""
    frequencies = (10000.0 ** (-np.arange(0, width, 2) / width)).astype("float32")
    return ops.multiply(ops.expand_dims(ops.cast(positions, "float32"), -1), frequencies)


@keras.saving.register_keras_serializable(package="keras_transformer")
class PositionalEncoding(keras.layers.Layer):
    """x + PE, the sinusoids of section 3.5. No weights, no length limit.

    Call arguments:
        x: float, (batch, length, d_model), token embeddings.
        positions: int, (length,) or (batch, length), where the tokens stand; None: 0, 1, ...,
            length - 1.

    Returns:
        float, (batch, length, d_model).

    Source: Vaswani et al. 2017, section 3.5.
    """

    def build(self, x_shape):
        self.built = True

    def call(self, x: Tensor, positions: Tensor = None):
        positions = ops.arange(ops.shape(x)[1]) if positions is None else positions
        return ops.add(x, ops.cast(_sinusoids_at(positions, x.shape[-1]), x.dtype))

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return super().get_config()  # Keras derives none for a layer with a DTypePolicy


@keras.saving.register_keras_serializable(package="keras_transformer")
class LearnedPositionalEncoding(keras.layers.Layer):
    """x + P, one trained vector per position: the alternative of Table 3, row (E).

    Args:
        max_length: int, the longest input, in tokens.

    Call arguments:
        x: float, (batch, length, d_model), length at most `max_length`.
        positions: int, (length,) or (batch, length), where the tokens stand; None: 0, 1, ...,
            length - 1.

    Returns:
        float, (batch, length, d_model).

    Raises:
        ValueError: the input is longer than `max_length`.

    Source: Gehring et al. 2017; Vaswani et al. 2017, section 3.5 and Table 3, row (E).
    """

    def __init__(self, max_length: int, **kwargs: Any):
        super().__init__(**kwargs)
        check_at_least(1, max_length=max_length)
        self.max_length = max_length

    def build(self, x_shape):
        self.positions = self.add_weight(
            shape=(self.max_length, x_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            name="positions",
        )

    def call(self, x: Tensor, positions: Tensor = None):
        if positions is not None:
            return ops.add(x, look_up(self.positions, positions, x.dtype))
        length = ops.shape(x)[1]
        expected = f"An input must fit max_length={self.max_length}: cut it, or use sinusoids"
        check(not isinstance(length, int) or length <= self.max_length, expected, tokens=length)
        rows = ops.convert_to_tensor(self.positions)[:length]
        return ops.add(x, ops.cast(rows, x.dtype))

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {**super().get_config(), "max_length": self.max_length}
