"""The base of all models: functional, and rebuilt from the arguments of their constructor."""

import dataclasses
from typing import Any, Self

import keras

from ..backend import FunctionalModel, Tensor, adapt, adaptations, layers_with_lora
from ..checks import check
from ..layers.cache import Cache
from ..layers.embeddings import LogitsBias
from ..layers.feed_forward import get_activation, serialize_activation
from ..layers.positions import LearnedPositionalEncoding, PositionalEncoding
from .configuration import DEPTHS, TransformerConfig


class ConfiguredModel(FunctionalModel):
    """A functional keras.Model whose configuration is what its constructor was given.

    A subclass assigns its layers, connects them by its own methods, which decoding also calls, and
    then hands the graph to this constructor.

    Args:
        inputs, outputs: as of a functional model.
        arguments: dict, what the constructor takes besides the config.
        config: `TransformerConfig`.
        dtype: keras.DTypePolicy of the layers.
        **kwargs: of keras.Model.
    """

    def __init__(self, inputs, outputs, arguments, config, dtype, **kwargs):
        frozen, quantized = kwargs.pop("frozen", ()), kwargs.pop("quantized", {})
        super().__init__(inputs, outputs, **kwargs)
        self.config = config
        self._arguments = arguments
        self.dtype_policy = dtype  # float16 is trained with a scaled loss only if the model says so
        adapt(self, frozen, quantized)

    @property
    def max_length(self) -> int | None:
        """int, number of learned positions; None: no limit."""
        return self.config.max_length

    def copy(self, dtype: Any = None, **changes: Any) -> Self:
        """A model with the same weights, none of them frozen, to be trained further.

        Args:
            dtype: name or keras.DTypePolicy of all layers; None: the global policy.
            **changes: fields of `TransformerConfig` that no weight depends on, such as `dropout`.

        Raises:
            ValueError: The model is quantized or has LoRA, or an option does not exist or is out of
                range.
        """
        self.check_plain()
        model = type(self)(**self._arguments, config=self.config.replace(**changes), dtype=dtype)
        model.set_weights(self.get_weights())
        return model

    def check_plain(self) -> None:
        """Refuses a model whose weights another one of its sizes cannot take over.

        Raises:
            ValueError: The model is quantized or has LoRA.
        """
        modes = adaptations(self)["quantized"]
        check(not modes, "A quantized model cannot be trained", quantized_layers=len(modes))
        updates = layers_with_lora(self)
        check(
            not updates,
            "Save a model with LoRA and load it, which adds the updates up, before it is copied",
            layers_with_lora=len(updates),
        )

    def get_config(self):
        config = dataclasses.asdict(self.config)
        equal = [name for name in DEPTHS if config[name] is None]  # versions before them read it
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            **adaptations(self),
            **self._arguments,
            **{name: value for name, value in config.items() if name not in equal},
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**config)


class DecoderModel(ConfiguredModel):
    """A model whose decoder predicts the next token; see `ConfiguredModel` for its arguments."""

    def logits(self, states: Tensor) -> Tensor:
        """The linear layer before the softmax, whose matrix is that of the embedding.

        Args:
            states: float, (..., d_model), of the decoder.

        Returns:
            float32, (..., target vocabulary size).
        """
        logits = self.target_embedding(states, reverse=True)
        return self.logits_bias(logits) if self.logits_bias else logits

    def empty_cache(self, batch_size: Any, num_slots: int) -> dict:
        """Room for the keys and values of `num_slots` tokens; see `Cache.empty`."""
        attentions = [block.self_attention for block in self.decoder.blocks]
        return Cache.empty(attentions, batch_size, num_slots)


def split_options(config: TransformerConfig, options: dict) -> tuple[TransformerConfig, dict]:
    """The keyword arguments of a model: its config with the changes, and those of keras.Model.

    Raises:
        ValueError: An option has neither meaning, or is out of range.
    """
    own = ("name", "trainable", "frozen", "quantized")
    kwargs = {name: value for name, value in options.items() if name in own}
    changes = {name: value for name, value in options.items() if name not in own}
    if "activation" in changes:
        changes["activation"] = serialize_activation(get_activation(changes["activation"]))
    return config.replace(**changes), kwargs


def policy_of(dtype):
    """The keras.DTypePolicy that a model's layers get: `dtype`, or the global one."""
    return keras.dtype_policies.get(dtype or keras.config.dtype_policy())


def positions_of(config, **kwargs):
    """The layer that adds positions to embeddings; None where they are rotary.

    Args:
        config: `TransformerConfig`.
        **kwargs: of the layer, such as dtype and name.
    """
    if config.rotary:
        return None
    if config.max_length is None:
        return PositionalEncoding(**kwargs)
    return LearnedPositionalEncoding(config.max_length, **kwargs)


def logits_bias_of(config, **kwargs):
    """The layer that adds a bias to the logits, or None.

    Args:
        config: `TransformerConfig`.
        **kwargs: of the layer, such as dtype and name.
    """
    return LogitsBias(**kwargs) if config.logits_bias else None
