"""Base class of models that wrap another model for training."""

from typing import Any, ClassVar

import keras
from keras import ops

from ..backend import Tensor
from ..checks import check_from_0
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


class TwoPasses(WrappedModel):
    """Base of `RDrop` and `SimCut`: two passes over each batch, whose predictions should agree.

    A subclass defines their divergence, and may compute the logits of both in another way.
    """

    LABELED = 2  # passes whose predictions are compared with the labels, from the first

    def __init__(self, transformer: keras.Model, alpha: float, **kwargs: Any):
        super().__init__(transformer, **kwargs)
        check_from_0(alpha=alpha)
        self.alpha = alpha

    def logits_of_both(self, inputs: dict[str, Tensor]) -> Tensor:
        """Logits in training of a batch that holds every row twice: first pass, second pass."""
        return self.transformer(inputs, training=True)

    def divergence(self, logits: Tensor) -> Tensor:
        """Nats per token by which two passes differ; `logits` as `call` returns them."""
        raise NotImplementedError

    def call(self, inputs: dict[str, Tensor], training: bool = False):
        if not training:
            return self.transformer(inputs, training=False)
        twice = {name: ops.concatenate([ids, ids]) for name, ids in inputs.items()}
        logits = self.logits_of_both(twice)
        return ops.reshape(logits, (2, -1, *ops.shape(logits)[1:]))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if not training:
            return super().compute_loss(x, y, y_pred, sample_weight, training)

        def labeled(each):
            return None if each is None else ops.concatenate([each] * self.LABELED)

        logits = ops.reshape(y_pred[: self.LABELED], (-1, *ops.shape(y_pred)[2:]))
        loss = super().compute_loss(x, labeled(y), logits, labeled(sample_weight), training)
        divergence = ops.reshape(self.divergence(y_pred), ops.shape(y))  # also (batch, 1)
        return loss + self.alpha * PrecomputedLoss("divergence")(y, divergence, sample_weight)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        both_passes = len(y_pred.shape) > len(self.transformer.output_shape)  # in training
        first = y_pred[0] if both_passes else y_pred
        return super().compute_metrics(x, y, first, sample_weight)
