"""SimCut: the predictions should stay the same when some tokens are cut off."""

from typing import Any

import keras
from keras import ops

from ..backend import Tensor
from ..checks import check, check_rates
from ..ids import END, START
from ..layers.embeddings import TokenEmbedding, WordEmbedding
from .wrapped import TwoPasses


def kl_divergence(logits: Tensor) -> Tensor:
    """KL(p_1 || p_2) = sum_k p_1k log(p_1k / p_2k) with p_i = softmax(logits[i]), everywhere.

    Args:
        logits: float, (2, batch, length, vocabulary size), or of a classifier (2, batch, labels).

    Returns:
        float32, (batch, length), or (batch,): nats.
    """
    log_p1, log_p2 = ops.unstack(ops.log_softmax(ops.cast(logits, "float32"), axis=-1), 2)
    return ops.sum(ops.exp(log_p1) * (log_p1 - log_p2), axis=-1)


class TokenCutoff(keras.layers.Layer):
    """Zeros in place of the embeddings of random tokens, in the second half of a batch.

    Args:
        rate: float in [0, 1), probability that a token is cut off.
        kept: ids that are never cut off.

    Call arguments:
        x: float, (batch, length, d_model).
        ids: int, (batch, length).

    Returns:
        float, (batch, length, d_model).
    """

    def __init__(self, rate: float, kept: tuple[int, ...] = (), **kwargs: Any):
        super().__init__(autocast=False, **kwargs)  # x has the dtype of the embedding
        self.rate, self.kept = rate, kept
        self.seed_generator = keras.random.SeedGenerator()

    def call(self, x: Tensor, ids: Tensor):
        ones, rows = ops.ones_like(ids, dtype="float32"), ops.shape(ids)[0]
        keep = keras.random.dropout(ones, self.rate, seed=self.seed_generator) > 0
        keep = ops.logical_or(keep, ops.arange(rows)[:, None] < rows // 2)
        for each in self.kept:
            keep = ops.logical_or(keep, ops.equal(ids, each))
        return ops.where(keep[..., None], x, ops.zeros_like(x))

    def compute_output_spec(self, x, ids):
        return keras.KerasTensor(x.shape, dtype=x.dtype)


def with_token_cutoff(model: keras.Model, rate: float) -> keras.Model:
    """A model of the same layers with a `TokenCutoff` after each embedding.

    Args:
        model: functional keras.Model with a `TokenEmbedding` or a `WordEmbedding`.
        rate: float in [0, 1), probability that a token is cut off.

    Raises:
        ValueError: The model has no such embedding.
    """
    cutoffs = []

    def call(layer, *args, **kwargs):
        outputs = layer(*args, **kwargs)
        if not isinstance(layer, (TokenEmbedding, WordEmbedding)) or kwargs.get("reverse"):
            return outputs
        is_subword = isinstance(layer, TokenEmbedding)  # ids of words are of other tokens
        cutoffs.append(TokenCutoff(rate, kept=(START, END) if is_subword else ()))
        return cutoffs[-1](outputs, args[0])

    plain = keras.Model(model.input, model.output)  # Keras compiles the clone of a compiled model
    clone = keras.models.clone_model(plain, clone_function=lambda layer: layer, call_function=call)
    check(cutoffs, "SimCut needs a TokenEmbedding or a WordEmbedding", model=model.name)
    return clone


@keras.saving.register_keras_serializable(package="keras_transformer")
class SimCut(TwoPasses):
    """Trains a model to predict the same when the embeddings of some tokens are zero.

    The loss is that of a pass over the batch, plus alpha times KL(p || p_cut), where p_cut are the
    predictions of a second pass, with other dropout, in which each source and target token is cut
    off with probability `cutoff`: its embedding is zero, its position stays. The gradient goes
    through both p and p_cut. START and END are never cut off. The weights are those of
    `transformer`: compile and fit this model, then use that one.

        training = SimCut(transformer, alpha=3.0, cutoff=0.05)
        training.compile(paper_optimizer(schedule), TokenCrossEntropy(0.1))
        training.fit(batches, shuffle=False)

    Args:
        transformer: model of this package, from a dict of ids to logits.
        alpha: float from 0, weight of the divergence.
        cutoff: float in [0, 1), probability that a token is cut off.
        **kwargs: of keras.Model; the dtype is that of `transformer` unless given.

    Call arguments:
        inputs: dict of int arrays, the ids that `transformer` takes.

    Returns:
        float32: logits; in training those of both passes, (2, batch, length, vocabulary size)
            or of a classifier (2, batch, labels).

    Raises:
        ValueError: If `alpha` is negative, `cutoff` is not in [0, 1), or `transformer` has no
            `TokenEmbedding` or `WordEmbedding`.

    Source: Gao et al. 2022 (Bi-SimCut), section 3; they train translation with alpha = 3 and
        cutoff = 0.05.
    """

    OPTIONS = ("alpha", "cutoff")
    LABELED = 1

    def __init__(
        self, transformer: keras.Model, alpha: float = 3.0, cutoff: float = 0.05, **kwargs: Any
    ):
        super().__init__(transformer, alpha, **kwargs)
        check_rates(cutoff=cutoff)
        self.cutoff = cutoff
        self.with_cutoff = with_token_cutoff(transformer, cutoff)

    def logits_of_both(self, inputs: dict[str, Tensor]) -> Tensor:
        return self.with_cutoff(inputs, training=True)

    def divergence(self, logits: Tensor) -> Tensor:
        return kl_divergence(logits)
