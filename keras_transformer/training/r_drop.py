"""R-Drop: two passes with different dropout should agree."""

import keras
from keras import ops

from ..arguments import check
from .loss import token_weights


def symmetric_divergence(logits):
    """(KL(p_1 || p_2) + KL(p_2 || p_1)) / 2 with p_i = softmax(logits[i]), everywhere.

    Its gradient is written out: by z_1 it is (p_1 (log p_1 - log p_2 - KL(p_1 || p_2)) + p_1 - p_2)
    / 2, by z_2 the same with 1 and 2 exchanged.

    Args:
        logits: float, (2, batch, length, vocabulary size), or of a classifier (2, batch, labels).

    Returns:
        float32, (batch, length), or (batch,): nats.

    Source: Liang et al. 2021, equation 2.
    """

    @ops.custom_gradient
    def nats(logits):
        log_p = ops.log_softmax(logits, axis=-1)
        p = ops.exp(log_p)
        log_ratio = log_p - ops.flip(log_p, axis=0)  # log p_i - log p_j
        divergence = ops.sum(p * log_ratio, axis=-1, keepdims=True)  # KL(p_i || p_j)

        def gradient(*args, upstream=None):
            by_logits = p * (log_ratio - divergence) + (p - ops.flip(p, axis=0))
            return by_logits * ops.expand_dims(args[0] if upstream is None else upstream, -1) / 2

        return ops.mean(ops.squeeze(divergence, -1), axis=0), gradient

    return nats(ops.cast(logits, "float32"))


@keras.saving.register_keras_serializable(package="keras_transformer")
class RDrop(keras.Model):
    """Trains a model on each batch twice, with two draws of dropout, whose answers should agree.

    The loss is the mean of both passes' own plus alpha / 2 times their `symmetric_divergence`, in
    nats a token. The weights are those of `transformer`: compile and fit this, then use that.

        training = RDrop(transformer, alpha=5.0)
        training.compile(paper_optimizer(schedule), TokenCrossEntropy(0.1))
        training.fit(batches, shuffle=False)

    Args:
        transformer: keras.Model from a dict of ids to logits, such as a `Transformer`.
        alpha: float from 0.

    Call arguments: those of `transformer`.

    Returns:
        float32: logits; while training those of both passes, (2, batch, length, vocabulary size)
            or of a classifier (2, batch, labels).

    Source: Liang et al. 2021, equations 3 and 4; they train translation with alpha = 5.
    Departs: the loss is half of theirs, to be nats a token as without R-Drop; Adam does not mind.
    """

    def __init__(self, transformer, alpha=5.0, **kwargs):
        kwargs.setdefault("dtype", transformer.dtype_policy)
        super().__init__(**kwargs)
        check(alpha >= 0, "alpha must be at least 0", alpha=alpha)
        self.transformer = transformer
        self.alpha = alpha
        self.built = True  # the functional transformer is

    def call(self, inputs, training=False):
        if not training:
            return self.transformer(inputs, training=False)
        twice = {name: ops.concatenate([ids, ids]) for name, ids in inputs.items()}
        logits = self.transformer(twice, training=True)
        return ops.reshape(logits, (2, -1, *ops.shape(logits)[1:]))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if not training:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        weights = token_weights(y, sample_weight)
        nats = ops.sum(weights * symmetric_divergence(y_pred))
        nats /= ops.maximum(ops.sum(weights), keras.config.epsilon())

        def both(each):
            return None if each is None else ops.concatenate([each, each])

        logits = ops.reshape(y_pred, (-1, *ops.shape(y_pred)[2:]))
        loss = super().compute_loss(x, both(y), logits, both(sample_weight), training)
        return loss + self.alpha / 2 * nats

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        twice = len(y_pred.shape) == len(y.shape) + 2  # in training: the first of both passes
        first = y_pred[0] if twice else y_pred
        return super().compute_metrics(x, y, first, sample_weight)

    def get_config(self):
        transformer = keras.saving.serialize_keras_object(self.transformer)
        transformer.pop("compile_config", None)
        return {"name": self.name, "transformer": transformer, "alpha": self.alpha}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        transformer = keras.saving.deserialize_keras_object(config.pop("transformer"))
        return cls(transformer, **config)
