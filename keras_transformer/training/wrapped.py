"""Base class of models that wrap another model for training."""

from typing import Any, ClassVar

import keras

from ..backend import Tensor
from ..losses import TokenLoss


class PrecomputedLoss(TokenLoss):
    """The mean over the real tokens of losses that have been computed, one per token.

    Call arguments:
        y_true: int, (batch, length), labels padded with 0; (batch,) of a classifier.
        y_pred: float, the shape of `y_true`: the losses.
        sample_weight: float, broadcastable to `y_true`, or (batch,).
    """

    def call(self, y_true: Tensor, y_pred: Tensor):
        return y_pred


class WrappedModel(keras.Model):
    """Trains a functional model, whose weights are its own; afterwards, use that model.

    Args:
        transformer: functional keras.Model.
        **kwargs: of keras.Model; the dtype is that of `transformer` unless given.
    """

    OPTIONS: ClassVar[tuple[str, ...]] = ()  # what else the constructor of a subclass takes

    def __init__(self, transformer: keras.Model, **kwargs: Any):
        kwargs.setdefault("dtype", transformer.dtype_policy)
        super().__init__(**kwargs)
        self.transformer = transformer
        self.built = True  # the functional transformer is

    def get_config(self):
        transformer = keras.saving.serialize_keras_object(self.transformer)
        transformer.pop("compile_config", None)
        return {
            "name": self.name,
            "transformer": transformer,
            **{name: getattr(self, name) for name in self.OPTIONS},
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        transformer = keras.saving.deserialize_keras_object(
            config.pop("transformer"), custom_objects=custom_objects
        )
        return cls(transformer, **config)
