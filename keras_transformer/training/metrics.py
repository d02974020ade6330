"""What is watched: accuracy and perplexity of the real target tokens."""

import keras
from keras import ops

from .loss import nats_per_token, token_weights


def _flat(values, weights):
    """One row of tokens: keras.metrics.Mean would divide what a batch counts by its length."""
    return ops.ravel(values), ops.ravel(weights)


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenAccuracy(keras.metrics.Mean):
    """Share of real target tokens whose largest logit is the label's, in [0, 1].

    Call arguments: those of `TokenCrossEntropy`.
    """

    def __init__(self, name="token_accuracy", **kwargs):
        super().__init__(name=name, **kwargs)

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_true = ops.convert_to_tensor(y_true, "int32")
        hits = ops.equal(ops.cast(ops.argmax(y_pred, axis=-1), "int32"), y_true)
        super().update_state(*_flat(hits, token_weights(y_true, sample_weight)))


@keras.saving.register_keras_serializable(package="keras_transformer")
class Perplexity(keras.metrics.Mean):
    """exp(total nats / number of real target tokens), without label smoothing.

    Call arguments: those of `TokenCrossEntropy`.

    Source: Jelinek et al. 1977; a mean of batch perplexities is a different, larger number.
    """

    def __init__(self, name="perplexity", **kwargs):
        super().__init__(name=name, **kwargs)

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_true = ops.convert_to_tensor(y_true, "int32")
        nats = nats_per_token(y_true, y_pred)
        super().update_state(*_flat(nats, token_weights(y_true, sample_weight)))

    def result(self):
        return ops.exp(super().result())
