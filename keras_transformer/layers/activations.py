"""Activations by their names: those of Keras, and the GELU of GPT-2."""

from collections.abc import Callable
from typing import Any

import keras


@keras.saving.register_keras_serializable(package="keras_transformer")
def gelu_tanh(x: Any) -> Any:
    """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).

    Keras has it as an option of `gelu`, without a name of its own.

    Args:
        x: float tensor.

    Source: Hendrycks and Gimpel 2016, section 2.
    """
    return keras.activations.gelu(x, approximate=True)


def get(activation: str | dict | Callable) -> Callable:
    """The function of a name, or of a function's configuration.

    Args:
        activation: "gelu_tanh", or what keras.activations.get takes.

    Raises:
        ValueError: There is none of this name.
    """
    if activation == gelu_tanh.__name__:
        return gelu_tanh
    return keras.activations.get(activation)


def serialize(activation: Callable) -> Any:
    """The inverse of `get`: str, or a dict for a function that neither we nor Keras have."""
    if activation is gelu_tanh:
        return gelu_tanh.__name__
    return keras.activations.serialize(activation)
