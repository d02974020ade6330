"""Cross-entropy in nats per real target token."""

import keras
from keras import ops

from ..arguments import check_rates
from ..tokenizers import PADDING


def nats_per_token(labels, logits, label_smoothing=0.0):
    """-sum_k q_k log p_k with p = softmax(logits), q = (1 - e) onehot(label) + e / V, everywhere.

    Each array as large as the logits costs more than any sum over it, so there are two: p, and the
    gradient p - q, written out below. No log p, no one-hot matrix is built.

    Args:
        labels: int, (batch, length).
        logits: float, (batch, length, vocabulary size).
        label_smoothing: float in [0, 1), e.

    Returns:
        float32, (batch, length), nats.

    Source: Szegedy et al. 2016, section 7; Vaswani et al. 2017, section 5.4.
    """
    on_label, on_each = 1 - label_smoothing, label_smoothing / logits.shape[-1]  # q in two parts
    shape = ops.shape(labels)
    labels = ops.reshape(labels, (-1, 1))

    @ops.custom_gradient
    def nats(logits):
        p = ops.softmax(logits, axis=-1)
        largest = ops.max(logits, axis=-1, keepdims=True)
        from_label = largest - ops.take_along_axis(logits, labels, axis=-1)
        from_largest = -ops.log(ops.max(p, axis=-1, keepdims=True))  # its own nats
        result = from_largest + on_label * from_label
        if label_smoothing:
            from_each = logits.shape[-1] * largest - ops.sum(logits, axis=-1, keepdims=True)
            result = result + on_each * from_each

        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            p_minus_q = p - on_each  # a new array; what follows is done in place where it can be
            p_minus_q *= upstream
            return _subtract_at(p_minus_q, labels, on_label * upstream)

        return result, gradient

    logits = ops.reshape(ops.cast(logits, "float32"), (-1, logits.shape[-1]))
    return ops.reshape(nats(logits), shape)


def _subtract_at(x, columns, numbers):
    """x, (n, m), less numbers, (n, 1), at one column of each row; on PyTorch, x itself."""
    if keras.backend.backend() == "torch":
        return x.scatter_add_(-1, columns.long(), -numbers)
    rows = ops.expand_dims(ops.arange(ops.shape(x)[0], dtype=columns.dtype), -1)
    places = ops.concatenate([rows, columns], axis=-1)
    return ops.scatter_update(x, places, -ops.squeeze(numbers, -1), reduction="add")


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenCrossEntropy(keras.losses.Loss):
    """Cross-entropy in nats per real target token; padding counts for nothing.

    Args:
        label_smoothing: float in [0, 1), the share of probability spread over the vocabulary.

    Call arguments:
        y_true: int, (batch, length), labels padded with 0.
        y_pred: float, (batch, length, vocabulary size), logits.
        sample_weight: float, broadcastable to (batch, length).

    Returns:
        float32 scalar: (weighted) sum over real tokens / their (weighted) number.

    Source: Vaswani et al. 2017, section 5.4.
    Departs: Keras would divide by the padded positions too; here they do not exist.
    """

    def __init__(self, label_smoothing=0.0, name="token_cross_entropy"):
        super().__init__(name=name)
        check_rates(label_smoothing=label_smoothing)
        self.label_smoothing = label_smoothing

    def call(self, y_true, y_pred):
        return nats_per_token(y_true, y_pred, self.label_smoothing)

    def __call__(self, y_true, y_pred, sample_weight=None):
        y_true = ops.convert_to_tensor(y_true, "int32")
        weights = token_weights(y_true, sample_weight)
        total = ops.sum(self.call(y_true, y_pred) * weights)
        return total / ops.maximum(ops.sum(weights), keras.config.epsilon())

    def get_config(self):
        return {"name": self.name, "label_smoothing": self.label_smoothing}


def token_weights(labels, sample_weight=None):
    """1 at real tokens, 0 at padding; times the sample weight."""
    weights = ops.cast(ops.not_equal(labels, PADDING), "float32")
    if sample_weight is None:
        return weights
    sample_weight = ops.convert_to_tensor(sample_weight, "float32")
    if len(sample_weight.shape) < len(labels.shape):  # one weight a sentence
        sample_weight = ops.expand_dims(sample_weight, -1)
    return weights * sample_weight
