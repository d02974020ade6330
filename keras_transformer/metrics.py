"""Accuracy and perplexity of the real target tokens."""

import keras
from keras import ops

from . import backend
from .backend import Tensor
from .losses import token_weights


class TokenMean(keras.metrics.Mean):
    """The mean of a value per real token, over all tokens of all batches; NaN without any.

    Subclasses implement `values(labels, logits)`, which returns the shape of the labels.
    """

    def values(self, labels: Tensor, logits: Tensor) -> Tensor:
        """The value of each token, in the shape of `labels`."""
        raise NotImplementedError

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels, logits = ops.convert_to_tensor(y_true, "int32"), ops.convert_to_tensor(y_pred)
        # Of a classifier the loss takes labels (batch,) and (batch, 1).
        values = self.values(ops.reshape(labels, ops.shape(logits)[:-1]), logits)
        self.update_values(labels, values, sample_weight)

    def update_values(self, labels: Tensor, values: Tensor, sample_weight: Tensor = None) -> None:
        """As `update_state`, of `values` that have been computed."""
        weights = token_weights(labels, sample_weight)
        # Flat: of values with a second axis, keras.metrics.Mean averages the weights over it.
        super().update_state(*backend.gather_tokens(ops.ravel(values), ops.ravel(weights)))

    def result(self):
        return ops.where(self.count > 0, super().result(), float("nan"))


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenAccuracy(TokenMean):
    """Share of real target tokens whose label has the largest logit, in [0, 1].

    A tie is a miss: constant logits score 0. In a vocabulary of more than 1,000 ids, only a tie of
    all logits is looked for.

    Call arguments:
        y_true: int, (batch, length), labels padded with 0; (batch,) of a classifier.
        y_pred: float, (..., vocabulary size), logits.
        sample_weight: float, broadcastable to (batch, length), or (batch,).

    Departs: keras.metrics.SparseCategoricalAccuracy compares with the argmax, which is the first of
    several equal logits.
    """

    def __init__(self, name: str = "token_accuracy", **kwargs):
        super().__init__(name=name, **kwargs)

    def values(self, labels: Tensor, logits: Tensor) -> Tensor:
        """True where the label has the largest logit."""
        label_logit = ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1)
        if logits.shape[-1] <= 1000:
            not_less = ops.logical_not(logits < label_logit)  # the label, ties and NaN
            return ops.sum(ops.cast(not_less, "int32"), axis=-1) == 1
        # With 10,000 ids counting would take 11 to 26 % of a training step, a maximum 1 to 2 %.
        largest, smallest = ops.max(logits, axis=-1), ops.min(logits, axis=-1)
        is_largest = ops.squeeze(label_logit, -1) >= largest
        return ops.logical_and(is_largest, largest > smallest)


@keras.saving.register_keras_serializable(package="keras_transformer")
class Perplexity(TokenMean):
    """exp(total nats / number of real target tokens), without label smoothing.

    Call arguments:
        y_true: int, (batch, length), labels padded with 0; (batch,) of a classifier.
        y_pred: float, (..., vocabulary size), logits.
        sample_weight: float, broadcastable to (batch, length), or (batch,).

    Source: Jelinek et al. 1977; a mean of batch perplexities is a different, larger number.
    """

    def __init__(self, name: str = "perplexity", **kwargs):
        super().__init__(name=name, **kwargs)

    def values(self, labels: Tensor, logits: Tensor) -> Tensor:
        """The cross-entropy, nats."""
        return backend.cross_entropy(labels, logits)

    def result(self):
        return ops.exp(super().result())
