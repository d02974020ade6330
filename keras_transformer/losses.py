"""Cross-entropy in nats per real target token."""

import keras
from keras import ops

from . import backend
from .backend import Tensor
from .checks import check_rates
from .ids import PADDING


def token_cross_entropy(labels: Tensor, logits: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """-sum_k q_k log p_k with p = softmax(logits), q = (1 - e) onehot(label) + e / V, everywhere.

    `backend.cross_entropy` computes the same with half of the memory: training uses it.

    Args:
        labels: int, (batch, length), or (batch,) of a classifier.
        logits: float, (..., V), one axis more than `labels`.
        label_smoothing: float in [0, 1), e.

    Returns:
        float32, the shape of `labels`, nats.

    Source: Szegedy et al. 2016, section 7; Vaswani et al. 2017, section 5.4.
    """
    log_p = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
    of_label = ops.squeeze(ops.take_along_axis(log_p, ops.expand_dims(labels, -1), axis=-1), -1)
    everywhere = ops.mean(log_p, axis=-1) if label_smoothing else 0.0  # 0 times -inf is NaN
    return -(1 - label_smoothing) * of_label - label_smoothing * everywhere


def token_weights(labels: Tensor, sample_weight: Tensor = None) -> Tensor:
    """1 at real tokens, 0 at padding, times the sample weight.

    Args:
        labels: int, (batch, length) or (batch,).
        sample_weight: float, broadcastable to `labels`; (batch,), one weight per sentence; or with
            one more axis, of size 1.

    Returns:
        float32, the shape of `labels`.
    """
    weights = ops.cast(ops.not_equal(labels, PADDING), "float32")
    if sample_weight is None:
        return weights
    sample_weight = ops.convert_to_tensor(sample_weight, "float32")
    shape = (*ops.shape(sample_weight), 1)[: len(labels.shape)]  # as many axes as the labels
    return weights * ops.reshape(sample_weight, shape)


class TokenLoss(keras.losses.Loss):
    """A loss per token, reduced to its mean over the real tokens: padding counts for nothing.

    On several devices it is the mean over all of their tokens.

    Subclasses implement `call`, which returns float32, the shape of the labels.

    Call arguments:
        y_true: int, (batch, length), labels padded with 0; (batch,) of a classifier.
        y_pred: float, what `call` reads.
        sample_weight: float, broadcastable to (batch, length), or (batch,).

    Returns:
        float32 scalar: (weighted) sum over real tokens / their (weighted) number; 0 without
        real tokens.

    Departs: the default reduction of Keras divides by the number of padded positions too. The
    dtype is always float32, to which Keras also casts the labels: no lower one holds all ids.
    """

    def __init__(self, name: str | None = None):
        super().__init__(name=name, reduction="mean_with_sample_weight", dtype="float32")

    def __call__(self, y_true, y_pred, sample_weight=None):
        weights = token_weights(ops.convert_to_tensor(y_true, "int32"), sample_weight)
        loss = super().__call__(y_true, y_pred, sample_weight=weights)
        return backend.global_mean(loss, weights)


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenCrossEntropy(TokenLoss):
    """Cross-entropy in nats per real target token.

    Args:
        label_smoothing: float in [0, 1), share of the probability spread over the vocabulary.
        name: str.

    Call arguments:
        y_true: int, (batch, length), labels padded with 0; (batch,) of a classifier.
        y_pred: float, (..., vocabulary size), logits.
        sample_weight: float, broadcastable to (batch, length), or (batch,).

    Returns:
        float32 scalar, nats: (weighted) sum over real tokens / their (weighted) number.

    Raises:
        ValueError: If `label_smoothing` is outside [0, 1).

    Source: Vaswani et al. 2017, section 5.4.
    """

    def __init__(self, label_smoothing: float = 0.0, name: str = "token_cross_entropy"):
        super().__init__(name=name)
        check_rates(label_smoothing=label_smoothing)
        self.label_smoothing = label_smoothing

    def call(self, y_true: Tensor, y_pred: Tensor):
        # Keras casts labels to the dtype of the loss.
        return backend.cross_entropy(ops.cast(y_true, "int32"), y_pred, self.label_smoothing)

    def get_config(self):
        return {"name": self.name, "label_smoothing": self.label_smoothing}
