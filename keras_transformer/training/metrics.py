"""What is watched: accuracy and perplexity of the real target tokens."""

import keras
from keras import ops

from .loss import nats_per_token, token_weights


def _flat(values, weights):
    """One row of tokens: keras.metrics.Mean would divide what a batch counts by its length."""
    return ops.ravel(values), ops.ravel(weights)


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenAccuracy(keras.metrics.Mean):
    """Share of real target tokens whose label has the largest logit (a tie counts), in [0, 1].

    Call arguments: those of `TokenCrossEntropy`.
    """

    def __init__(self, name="token_accuracy", **kwargs):
        super().__init__(name=name, **kwargs)

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_true = ops.convert_to_tensor(y_true, "int32")
        of_label = ops.take_along_axis(y_pred, ops.expand_dims(y_true, -1), axis=-1)
        hits = ops.squeeze(of_label, -1) >= ops.max(y_pred, axis=-1)  # a fraction of argmax's time
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
