"""R-Drop: two passes with different dropout should agree."""

from typing import Any

import keras
from keras import ops

from ..backend import Tensor
from .wrapped import TwoPasses


def symmetric_kl_divergence(logits: Tensor) -> Tensor:
    """(KL(p_1 || p_2) + KL(p_2 || p_1)) / 2 with p_i = softmax(logits[i]), everywhere.

    Args:
        logits: float, (2, batch, length, vocabulary size), or of a classifier (2, batch, labels).

    Returns:
        float32, (batch, length), or (batch,): nats.

    Source: Liang et al. 2021, equation 2.
    """
    log_p1, log_p2 = ops.unstack(ops.log_softmax(ops.cast(logits, "float32"), axis=-1), 2)
    # Both directions in one sum: p_1 (log p_1 - log p_2) + p_2 (log p_2 - log p_1).
    return ops.sum((ops.exp(log_p1) - ops.exp(log_p2)) * (log_p1 - log_p2), axis=-1) / 2


@keras.saving.register_keras_serializable(package="keras_transformer")
class RDrop(TwoPasses):
    """Trains a model on each batch twice, with two draws of dropout whose predictions should agree.

    The loss is the mean of the losses of both passes plus alpha / 2 times their
    `symmetric_kl_divergence`, in nats per token. The weights are those of `transformer`: compile
    and fit this model, then use that one.

        training = RDrop(transformer, alpha=5.0)
        training.compile(paper_optimizer(schedule), TokenCrossEntropy(0.1))
        training.fit(batches, shuffle=False)

    Args:
        transformer: keras.Model from a dict of ids to logits, such as a `Transformer`.
        alpha: float from 0, weight of the divergence.
        **kwargs: of keras.Model; the dtype is that of `transformer` unless given.

    Call arguments:
        inputs: dict of int arrays, the ids that `transformer` takes.

    Returns:
        float32: logits; in training those of both passes, (2, batch, length, vocabulary size)
            or of a classifier (2, batch, labels).

    Raises:
        ValueError: If `alpha` is negative.

    Source: Liang et al. 2021, equations 3 and 4; they train translation with alpha = 5.
    Departs: the loss is half of theirs, to be in nats per token as without R-Drop; Adam is
        invariant to the scale.
    """

    OPTIONS = ("alpha",)

    def __init__(self, transformer: keras.Model, alpha: float = 5.0, **kwargs: Any):
        super().__init__(transformer, alpha, **kwargs)

    def divergence(self, logits: Tensor) -> Tensor:
        """Half of `symmetric_kl_divergence`, as the loss is half of that of the paper."""
        return symmetric_kl_divergence(logits) / 2
