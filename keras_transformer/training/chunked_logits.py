"""Logits in pieces: training with a large vocabulary in little memory."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from .. import backend
from ..checks import check, check_at_least
from ..losses import TokenLoss
from ..metrics import TokenMean
from .wrapped import PrecomputedLoss, WrappedModel


@keras.saving.register_keras_serializable(package="keras_transformer")
class ChunkedLogits(WrappedModel):
    """Trains a model without ever holding the logits of all tokens.

    With 4,096 target tokens and a vocabulary of 32,000, the logits, their probabilities and their
    gradient are 524 MB each, often more than all else. Here they exist for a part of the tokens at
    a time, and are computed once more in the backward pass: one product in four of those with the
    vocabulary. Losses, metrics and gradients are those of the model, up to rounding. The weights
    are those of `transformer`: compile and fit this model, then use that one.

        training = ChunkedLogits(transformer, pieces=8)
        training.compile(paper_optimizer(schedule), TokenCrossEntropy(0.1), [Perplexity()])
        training.fit(batches, shuffle=False)

    Args:
        transformer: `Transformer` or `LanguageModel`.
        pieces: int from 1.
        **kwargs: of keras.Model; the dtype is that of `transformer` unless given.

    Call arguments:
        inputs: dict of int arrays, the ids that `transformer` takes.

    Returns:
        float, (batch, length, d_model), the decoder's output, from which the logits are computed.

    Raises:
        ValueError: If `pieces` is not a positive integer; on compile, if the loss is not a
            `TokenLoss`, such as `TokenCrossEntropy`, or a metric is not a `TokenMean`.
    """

    OPTIONS = ("pieces",)

    def __init__(self, transformer: keras.Model, pieces: int = 8, **kwargs):
        super().__init__(transformer, **kwargs)
        check_at_least(1, pieces=pieces)
        self.pieces = pieces
        self.states = keras.Model(transformer.input, transformer.decoder.output)

    def compile(
        self, optimizer: Any, loss: Any, metrics: Sequence[Any] | None = None, **kwargs: Any
    ):
        """Compiles both models.

        Args:
            optimizer: keras.optimizers.Optimizer.
            loss: `TokenLoss`, such as `TokenCrossEntropy`.
            metrics: list of `TokenMean`, such as `Perplexity`.
            **kwargs: further arguments of `keras.Model.compile`, except `weighted_metrics`.
        """
        weighted, metrics = kwargs.get("weighted_metrics"), list(metrics or ())
        check(not weighted, "Logits in pieces have no weighted metrics", weighted_metrics=weighted)
        for each, kind in [(loss, TokenLoss), *((metric, TokenMean) for metric in metrics)]:
            expected = f"Logits in pieces need a {kind.__name__} of this package"
            check(isinstance(each, kind), expected, given=each)
        self.token_loss, self.token_metrics = loss, metrics
        super().compile(optimizer, PrecomputedLoss(), **kwargs)

    def call(self, inputs: dict[str, backend.Tensor], training: bool = False):
        return self.states(inputs, training=training)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        labels = ops.cast(y, "int32")
        count = ops.size(labels)
        missing = -count % self.pieces

        def pieces(rows, *shape):
            rows = ops.reshape(rows, (-1, *shape))
            rows = ops.pad(rows, [(0, missing), *[(0, 0)] * len(shape)])
            return ops.reshape(rows, (self.pieces, -1, *shape))

        def values(states, labels):
            logits = self.transformer.logits(ops.expand_dims(states, 0))[0]
            of_metrics = [metric.values(labels, logits) for metric in self.token_metrics]
            return [self.token_loss.call(labels, logits), *of_metrics]

        layers = self.transformer.target_embedding, self.transformer.logits_bias
        weights = [variable for layer in layers if layer for variable in layer.variables]
        states = pieces(y_pred, y_pred.shape[-1])
        found = backend.one_by_one(weights, values, states, pieces(labels))
        nats, *of_metrics = [
            ops.reshape(ops.reshape(each, (-1,))[:count], ops.shape(labels)) for each in found
        ]
        for metric, each in zip(self.token_metrics, of_metrics, strict=True):
            metric.update_values(labels, each)  # as Keras does: sample weights are of the loss
        return super().compute_loss(x, labels, nats, sample_weight, training)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return self.get_metrics_result()  # `compute_loss` has updated them


keras.saving.get_custom_objects()["keras_transformer>LogitsInPieces"] = ChunkedLogits  # old name
