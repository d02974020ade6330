"""What all models share: they are functional, and rebuilt from their constructor's arguments."""

import dataclasses
from typing import Any, Self

import keras

from .. import activations, backend
from ..checks import check
from ..configuration import TransformerConfig
from ..positions import LearnedPositionalEncoding, PositionalEncoding
from .embeddings import LogitsBias


@keras.saving.register_keras_serializable(package="keras_transformer")
class FunctionalModel(keras.Model):
    """A functional keras.Model that is trained in less time.

    On PyTorch, `fit` records the operations of a call, once it has seen a shape 20 times, and
    repeats them without the Python of the layers, with the same results. What is changed on a layer
    holds after the next `compile`. Each layer is called with compile(run_eagerly=True), under a
    keras.RematScope, and where a call does more than a record repeats: a state of its own
    (BatchNormalization), random numbers other than those of a plain Dropout, losses (`add_loss`,
    `activity_regularizer`), Keras's masks. On TensorFlow, the first step is traced once instead of
    twice, unless metrics are made in it, as for several outputs. On JAX there is nothing to gain.

    Args:
        inputs: keras.Input, or a structure of them.
        outputs: what the layers return for these inputs.
        name: str.
        **kwargs: of keras.Model.
    """

    def __init__(self, inputs: Any, outputs: Any, name: str | None = None, **kwargs: Any):
        super().__init__(inputs=inputs, outputs=outputs, name=name, **kwargs)
        self._calls_each_layer = any(map(_does_more, self._flatten_layers()))
        self._adaptation = Adaptation(self)
        self.record_again()

    def call(self, inputs, training=None, mask=None, **kwargs):
        plain = not kwargs and all(each is None for each in keras.tree.flatten(mask))
        if training and plain and self._may_be_recorded and backend.is_training_step(inputs):
            if self._adaptation.changed():
                self.record_again()
            return self._training_call(backend.to_tensors(inputs))
        return super().call(inputs, training=training, mask=mask, **kwargs)

    def record_again(self) -> None:
        """Forgets what was recorded: what has changed on a layer holds. `compile` does this."""
        self._training_call = backend.trace(self._call_in_training, training=True)

    def _call_in_training(self, inputs):
        outputs = super().call(inputs, training=True)
        has_losses = any(layer._losses for layer in self._flatten_layers())
        if has_losses or any(hasattr(x, "_keras_mask") for x in keras.tree.flatten(outputs)):
            self._calls_each_layer = True  # more than a record would return
        return outputs

    def make_train_function(self, force=False):
        if self.train_function is None or force:  # compiled again
            self.record_again()
        # An optimizer that is built within the first step makes TensorFlow trace that step twice.
        if self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    @property
    def _may_be_recorded(self):
        return not (self.run_eagerly or self._calls_each_layer)


class ConfiguredModel(FunctionalModel):
    """A functional keras.Model whose configuration is what its constructor was given.

    A subclass assigns its layers, connects them by its own methods, which decoding calls too, and
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
        for layer in self._flatten_layers(include_self=False):
            if layer.path in quantized:
                layer.quantize(quantized[layer.path])
            if layer.path in frozen:
                layer.trainable = False

    def __setattr__(self, name, value):
        if isinstance(value, keras.Layer) and not hasattr(self, "_arguments"):
            # The graph tracks the layers; PyTorch refuses them before the constructor has run.
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def rematerialized_call(self, layer_call, *args, **kwargs):
        """Refuses a `keras.RematScope` that rematerializes the whole model, blocks and all."""
        if super().rematerialized_call(layer_call, *args, **kwargs) is not layer_call:
            raise ValueError(
                "Blocks alone can be rematerialized, by their names; received "
                f"keras.RematScope(mode={self._remat_mode.mode!r}). Use "
                'mode="list_of_layers", layer_names=["block_1", ...].'
            )
        return layer_call

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
        modes = _quantization_modes(self)
        check(not modes, "A quantized model cannot be trained", quantized_layers=len(modes))
        updates = [x for x in self._flatten_layers() if getattr(x, "lora_enabled", False)]
        check(
            not updates,
            "Save a model with LoRA and load it, which adds the updates up, before it is copied",
            layers_with_lora=len(updates),
        )
        model = type(self)(**self._arguments, config=self.config.replace(**changes), dtype=dtype)
        model.set_weights(self.get_weights())
        return model

    def get_config(self):
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "frozen": _frozen_paths(self) if self.trainable else [],
            "quantized": _quantization_modes(self),
            **self._arguments,
            **dataclasses.asdict(self.config),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**config)


def _does_more(layer):
    """Whether a call in training does more than operations that can be repeated."""
    is_dropout = type(layer) is keras.layers.Dropout  # its bits are those of PyTorch's generator
    draws = is_dropout and (layer.seed is not None or layer.noise_shape is not None)
    draws = draws or (not is_dropout and bool(layer._seed_generators))
    has_state = bool(layer._non_trainable_variables)
    return bool(layer._remat_mode) or has_state or draws or layer.activity_regularizer is not None


def _frozen_paths(layer):
    """The paths of the outermost layers within `layer` that are not trainable."""
    paths = []
    for inner in layer._flatten_layers(include_self=False, recursive=False):
        if inner.trainable:
            paths.extend(_frozen_paths(inner))
        elif inner.weights:
            paths.append(inner.path)
    return paths


def _quantization_modes(model):
    """The mode of each layer that has been quantized, such as "int8", by its path."""
    layers = model._flatten_layers(include_self=False)
    return {layer.path: layer.quantization_mode for layer in layers if _is_quantized(layer)}


def _is_quantized(layer):
    return getattr(layer, "quantization_mode", None) is not None


class Adaptation:
    """Notices that LoRA or quantization gave layers other weights: programs must be compiled again.

    Args:
        model: keras.Model.
    """

    def __init__(self, model: keras.Model):
        layers = model._flatten_layers() if isinstance(model, keras.Model) else ()
        self._layers = [layer for layer in layers if hasattr(layer, "lora_enabled")]
        self._seen = self._now()

    def changed(self) -> bool:
        """Whether it has changed since the last call."""
        before, self._seen = self._seen, self._now()
        return self._seen != before

    def _now(self):
        return [(layer.lora_enabled, layer.quantization_mode) for layer in self._layers]


def split_options(config: TransformerConfig, options: dict) -> tuple[TransformerConfig, dict]:
    """What a model was given by keyword: its config with the changes, and what keras.Model takes.

    Raises:
        ValueError: An option has neither meaning, or is out of range.
    """
    own = ("name", "trainable", "frozen", "quantized")
    kwargs = {name: value for name, value in options.items() if name in own}
    changes = {name: value for name, value in options.items() if name not in own}
    if "activation" in changes:
        changes["activation"] = activations.serialize(activations.get(changes["activation"]))
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
    """The layer that adds a bias to the logits; None where there is none.

    Args:
        config: `TransformerConfig`.
        **kwargs: of the layer, such as dtype and name.
    """
    return LogitsBias(**kwargs) if config.logits_bias else None
