"""Several models that predict the next token together."""

import copy
import functools
import math
from collections.abc import Iterable
from typing import Any

import keras
from keras import ops

from ..backend import Tensor
from ..checks import check
from ..layers.cache import Cache, Entries


class Ensemble(keras.Model):
    """Transformers over the same ids: softmax(logits) is the mean of their softmax(logits_n).

    It is decoded as a `Transformer` is, in the time of all of its models. It is not saved; each of
    them is.

    Args:
        models: list of at least two `Transformer`, of any sizes but those of the vocabularies.
        **kwargs: of keras.Model.

    Call arguments: the arguments of `Transformer`.

    Returns:
        float32, (batch, target length, target_vocabulary_size): logits of the next token.

    Raises:
        ValueError: There are fewer than two models, or their vocabularies have other sizes.

    Source: Sutskever et al. 2014, section 3.6.
    """

    def __init__(self, models: Iterable[Any], **kwargs: Any):
        super().__init__(**kwargs)
        self.models = list(models)
        sizes = [(m.source_vocabulary_size, m.target_vocabulary_size) for m in self.models]
        check(len(sizes) > 1, "An ensemble needs at least two models", models=len(sizes))
        expected = "The models of an ensemble must have vocabularies of the same sizes"
        check(len({*sizes}) == 1, expected, sizes=sizes)
        self.source_vocabulary_size, self.target_vocabulary_size = sizes[0]
        self.built = True  # its models are

    @property
    def max_length(self) -> int | None:
        """int, the fewest positions that a model has learned; None: no limit."""
        return min((m.max_length for m in self.models if m.max_length), default=None)

    def call(self, inputs):
        return self.decode(inputs["target_ids"], self.encode(inputs["source_ids"]))

    def encode(self, source_ids: Tensor) -> tuple:
        """The memory of each model; see `Transformer.encode`."""
        return tuple(model.encode(source_ids) for model in self.models)

    def decode(
        self,
        target_ids: Tensor,
        memory: tuple,
        attention_mask: Tensor = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """The logits of all models as those of one; see `Transformer.decode`."""
        caches = [_part(cache, number) for number in range(len(self.models))]
        calls = zip(self.models, memory, caches, strict=True)
        logits = [m.decode(target_ids, x, attention_mask, own) for m, x, own in calls]
        if cache is not None:
            cache.decoded = _joined(own.decoded for own in caches)
        normalizers = [ops.logsumexp(each, axis=-1, keepdims=True) for each in logits]
        log_ps = [each - normalizer for each, normalizer in zip(logits, normalizers, strict=True)]
        # One after the other: over an axis of models XLA took ten times as long on a CPU.
        log_p = functools.reduce(ops.logaddexp, log_ps) - math.log(len(self.models))
        # As large as the logits of a model: a repetition penalty depends on more than the softmax.
        return log_p + sum(normalizers) / len(self.models)

    def cache_memory(self, memory: tuple) -> Entries:
        """Keys and values of the memory of each model; see `Transformer.cache_memory`."""
        return _joined(model.cache_memory(memory[n]) for n, model in enumerate(self.models))

    def empty_cache(self, batch_size: Any, num_slots: int) -> Entries:
        """Room for the keys and values of each model; see `Transformer.empty_cache`."""
        return _joined(model.empty_cache(batch_size, num_slots) for model in self.models)

    def get_config(self):
        raise ValueError("Keras alone decodes an ensemble: save or export each of its models.")


def _joined(entries):
    """The entries of all models: the paths of two models may be the same."""
    return {f"{n}/{path}": pair for n, each in enumerate(entries) for path, pair in each.items()}


def _part(cache, number):
    """The cache of one model, with its entries by their own paths."""
    if cache is None:
        return None
    part, prefix = copy.copy(cache), f"{number}/"
    part.decoded, part.memory = (
        {path.removeprefix(prefix): x[path] for path in x if path.startswith(prefix)}
        for x in (cache.decoded, cache.memory)
    )
    return part
