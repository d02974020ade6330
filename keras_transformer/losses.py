"""Cross-entropy in nats per real target token."""

from typing import Any

import keras
from keras import ops

from . import backend
from .backend import distribution
from .checks import check_rates
from .ids import PADDING


def token_cross_entropy(labels: Any, logits: Any, label_smoothing: float = 0.0) -> Any:
    """-sum_k q_k log p_k with p = softmax(logits), q = (1 - e) onehot(label) + e / V, everywhere.

    Writing an array as large as the logits costs more than any sum over it, so there are only two:
    p, and the gradient p - q, spelled out below. Neither log p nor a one-hot matrix is built.

    Args:
        labels: int, (batch, length), or (batch,) of a classifier.
        logits: float, (..., vocabulary size), one axis more than `labels`.
        label_smoothing: float in [0, 1), e.

    Returns:
        float32, the shape of `labels`, nats.

    Source: Szegedy et al. 2016, section 7; Vaswani et al. 2017, section 5.4.
    """
    on_label, on_each = 1 - label_smoothing, label_smoothing / logits.shape[-1]  # q in two parts
    shape = ops.shape(labels)
    labels = ops.reshape(labels, (-1, 1))

    def nats(logits, labels):
        largest = ops.max(logits, axis=-1, keepdims=True)
        from_largest, kept = _nats_of_largest(logits, largest)
        from_label = largest - ops.take_along_axis(logits, labels, axis=-1)
        result = from_largest + on_label * from_label
        if label_smoothing:
            from_each = logits.shape[-1] * largest - ops.sum(logits, axis=-1, keepdims=True)
            result = result + on_each * from_each
        return result, (labels, *kept)

    def gradient(upstream, labels, *kept):
        p_minus_q = _probabilities(*kept) - on_each  # new: PyTorch changes it in place below
        p_minus_q *= upstream
        return backend.subtract_at(p_minus_q, labels, on_label * upstream)

    logits = ops.reshape(ops.cast(logits, "float32"), (-1, logits.shape[-1]))
    return ops.reshape(backend.with_gradient(nats, gradient)(logits, labels), shape)


def _nats_of_largest(logits, largest):
    """-log p of the largest logit, and what `_probabilities` needs for p.

    A compiler that fuses operations computes p again for the gradient, and never writes it.
    """
    if backend.fuses():
        nats = ops.log(ops.sum(ops.exp(logits - largest), axis=-1, keepdims=True))
        return nats, (logits, largest + nats)
    p = ops.softmax(logits, axis=-1)
    return -ops.log(ops.max(p, axis=-1, keepdims=True)), (p,)


def _probabilities(p_or_logits, log_of_sum=None):
    """p = softmax(logits), or exp(logits - log sum exp(logits))."""
    return p_or_logits if log_of_sum is None else ops.exp(p_or_logits - log_of_sum)


def token_weights(labels: Any, sample_weight: Any = None) -> Any:
    """1 at real tokens, 0 at padding, times the sample weight.

    Args:
        labels: int, (batch, length) or (batch,).
        sample_weight: float, broadcastable to `labels`, or (batch,): one weight per sentence.

    Returns:
        float32, the shape of `labels`.
    """
    weights = ops.cast(ops.not_equal(labels, PADDING), "float32")
    if sample_weight is None:
        return weights
    sample_weight = ops.convert_to_tensor(sample_weight, "float32")
    if len(sample_weight.shape) < len(labels.shape):
        sample_weight = ops.expand_dims(sample_weight, -1)
    return weights * sample_weight


class TokenLoss(keras.losses.Loss):
    """A loss per token, reduced to its mean over the real tokens: padding counts for nothing.

    On several devices it is the mean over all of their tokens.

    Subclasses implement `call`, which returns float32, the shape of the labels.

    Call arguments:
        y_true: int, (batch, length), labels padded with 0; (batch,) of a classifier.
        y_pred: float, what `call` reads.
        sample_weight: float, broadcastable to (batch, length), or (batch,).

    Returns:
        float32 scalar: (weighted) sum over real tokens / their (weighted) number; 0 if there are
        none.

    Departs: the default reduction of Keras divides by the number of padded positions too. The
    dtype is always float32, to which Keras also casts the labels: no lower one holds all ids.
    """

    def __init__(self, name: str | None = None):
        super().__init__(name=name, reduction="mean_with_sample_weight", dtype="float32")

    def __call__(self, y_true, y_pred, sample_weight=None):
        weights = token_weights(ops.convert_to_tensor(y_true, "int32"), sample_weight)
        loss = super().__call__(y_true, y_pred, sample_weight=weights)
        return distribution.whole_batch(loss, weights)


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

    def call(self, y_true, y_pred):
        labels = ops.cast(y_true, "int32")  # Keras casts them to the dtype of the loss
        return token_cross_entropy(labels, y_pred, self.label_smoothing)

    def get_config(self):
        return {"name": self.name, "label_smoothing": self.label_smoothing}
