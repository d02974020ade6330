"""Frozen and quantized layers of a model, which its weights alone do not show."""

import json
from collections.abc import Iterable

import keras

from ..checks import check
from .private import layers_of


def layers_with_lora(model: keras.Model) -> list:
    """The layers of a model that LoRA updates, see `training.enable_lora`."""
    return [layer for layer in layers_of(model) if getattr(layer, "lora_enabled", False)]


def adaptations(model: keras.Model) -> dict:
    """The arguments of `adapt` that describe a model, for its configuration.

    Args:
        model: keras.Model.

    Returns:
        dict: "frozen", the list of the paths of the outermost layers that are not trainable;
            "quantized", a dict from the path of a quantized layer to its mode, such as "int8".

    Raises:
        ValueError: A layer is quantized in another way than by the defaults of its mode.
    """
    layers = [x for x in layers_of(model) if getattr(x, "quantization_mode", None) is not None]
    for layer in layers:
        config = getattr(layer, "quantization_config", None)
        check(
            config is None or _is_default(config),
            "A model is saved with the mode of its quantization alone: use quantize(mode)",
            layer=layer.path,
            quantization_config=type(config).__name__,
        )
    return {
        "frozen": _frozen_paths(model) if model.trainable else [],
        "quantized": {layer.path: layer.quantization_mode for layer in layers},
    }


def adapt(model: keras.Model, frozen: Iterable[str], quantized: dict) -> None:
    """Freezes and quantizes layers of a model.

    Args:
        model: keras.Model.
        frozen: paths of layers.
        quantized: dict from the path of a layer to its mode.
    """
    for layer in layers_of(model, include_self=False):
        if layer.path in quantized:
            layer.quantize(quantized[layer.path])
        if layer.path in frozen:
            layer.trainable = False


def _is_default(config):
    """Whether the mode of a quantization says all of it."""

    def content(config):
        parts = vars(config).items()  # quantizers and sizes
        return json.dumps({n: x.get_config() if hasattr(x, "get_config") else x for n, x in parts})

    try:
        return content(config) == content(type(config)())
    except TypeError:  # it has arguments without defaults
        return False


def _frozen_paths(layer):
    paths = []
    for inner in layers_of(layer, include_self=False, recursive=False):
        if inner.trainable:
            paths.extend(_frozen_paths(inner))
        elif inner.weights:
            paths.append(inner.path)
    return paths
