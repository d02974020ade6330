"""The feed-forward network, its activations, and Add & Norm."""

from collections.abc import Callable
from typing import Any

import keras

from ..backend import Linear, Tensor
from ..checks import check, check_above_0, check_at_least, check_rates, check_weightless

EPSILON = 1e-6  # of layer normalization, as in the authors' code; Keras's default is 1e-3


@keras.saving.register_keras_serializable(package="keras_transformer")
class FeedForward(keras.layers.Layer):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, at each position.

    Args:
        d_ff: int, width of the inner layer.
        activation: name or function, between the two layers.

    Call arguments:
        x: float, (batch, length, d_model).

    Returns:
        float, (batch, length, d_model).

    Raises:
        ValueError: d_ff is below 1, or the activation is unknown.

    Source: Vaswani et al. 2017, section 3.3, equation 2.
    """

    def __init__(self, d_ff: int, activation: str | Callable = "relu", **kwargs: Any):
        super().__init__(**kwargs)
        check_at_least(1, d_ff=d_ff)
        self.d_ff = d_ff
        self.activation = get_activation(activation)

    def build(self, x_shape):
        dtype = self.dtype_policy
        self.inner = Linear(self.d_ff, self.activation, dtype=dtype, name="inner")
        self.outer = Linear(x_shape[-1], dtype=dtype, name="outer")
        self.inner.build(x_shape)
        self.outer.build((*x_shape[:-1], self.d_ff))

    def call(self, x: Tensor):
        return self.outer(self.inner(x))

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {
            **super().get_config(),
            "d_ff": self.d_ff,
            "activation": serialize_activation(self.activation),
        }


@keras.saving.register_keras_serializable(package="keras_transformer")
class AddNorm(keras.layers.Layer):
    """LayerNorm(x + Dropout(Sublayer(x))): the residual connection around every sublayer.

    Args:
        dropout: float in [0, 1), dropout rate on the output of the sublayer.
        norm_first: bool, False: post-norm as in the paper; True: pre-norm, which normalizes the
            input of the sublayer instead: x + Dropout(Sublayer(LayerNorm(x))).
        layer_norm_epsilon: float above 0, added to the variance.

    Call arguments:
        x: float, (batch, length, d_model).
        sublayer: function of x, passed by keyword: a layer, or a lambda that calls one. It belongs
            to the layer that calls this one, which trains and saves its weights; a functional model
            would not know them, and is refused.

    Returns:
        float, (batch, length, d_model).

    Raises:
        ValueError: The rate or, when built, layer_norm_epsilon is out of range; or in a functional
            model the sublayer is a layer with weights.

    Source: Vaswani et al. 2017, sections 3.1 and 5.4; pre-norm: Xiong et al. 2020.
    """

    def __init__(
        self,
        dropout: float = 0.0,
        norm_first: bool = False,
        layer_norm_epsilon: float = EPSILON,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_rates(dropout=dropout)
        self.dropout = dropout
        self.norm_first = norm_first
        self.layer_norm_epsilon = layer_norm_epsilon

    def build(self, x_shape):
        self.norm = layer_norm(self.layer_norm_epsilon, self.dtype_policy)
        self.norm.build(x_shape)
        self.output_dropout = keras.layers.Dropout(self.dropout, dtype=self.dtype_policy)

    def call(self, x: Tensor, sublayer: Callable):
        if self.norm_first:
            return x + self.output_dropout(sublayer(self.norm(x)))
        return self.norm(x + self.output_dropout(sublayer(x)))

    def compute_output_shape(self, x_shape):
        return x_shape

    def compute_output_spec(self, x, sublayer=None):
        check_weightless(sublayer)
        return keras.KerasTensor(x.shape, dtype=self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "dropout": self.dropout,
            "norm_first": self.norm_first,
            "layer_norm_epsilon": self.layer_norm_epsilon,
        }


def layer_norm(epsilon: float, dtype: Any) -> keras.layers.LayerNormalization:
    """Layer normalization over the features of each position."""
    check_above_0(layer_norm_epsilon=epsilon)
    return keras.layers.LayerNormalization(epsilon=epsilon, dtype=dtype, name="norm")


@keras.saving.register_keras_serializable(package="keras_transformer")
def gelu_tanh(x: Tensor) -> Tensor:
    """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).

    Keras has it as an option of `gelu`, without a name of its own.

    Args:
        x: float tensor.

    Source: Hendrycks and Gimpel 2016, section 2.
    """
    return keras.activations.gelu(x, approximate=True)


def get_activation(activation: str | dict | Callable) -> Callable:
    """The function of a name, or of a function's configuration.

    Args:
        activation: "gelu_tanh", or what keras.activations.get takes.

    Raises:
        ValueError: Unknown activation.
    """
    if activation == gelu_tanh.__name__:
        return gelu_tanh
    return keras.activations.get(activation)


def serialize_activation(activation: Callable) -> Any:
    """The inverse of `get_activation`: str, or a dict for a function without a name of its own."""
    name = getattr(activation, "__name__", "")
    if activation is getattr(keras.activations, name, gelu_tanh):
        return name  # Keras would import TensorFlow, to ask whether this is a type of it
    found = keras.activations.serialize(activation)
    differs = isinstance(found, str) and keras.activations.get(found) is not activation
    check(not differs, f"Keras also has an activation {name}: register yours", given=activation)
    return found
