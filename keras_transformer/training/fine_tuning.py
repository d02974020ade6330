"""Training a trained model further: in part, or with LoRA.

To forget less of what it could before, see `data.mix`.
"""

from collections.abc import Iterable

import keras

from ..backend import Linear, layers_of, layers_with_lora
from ..checks import check, check_at_least


def freeze(model: keras.Model, names: Iterable[str]) -> None:
    """Lets layers of a model keep their weights.

        freeze(translator.model, ["embedding", "encoder", "decoder/block_1"])

    Args:
        model: such as a `Transformer`. Compile it afterwards.
        names: list of str, paths of its layers; a layer comprises those within it.

    Raises:
        ValueError: There is no such layer, or nothing would be left to be trained.
    """
    names = list(names)
    inner = layers_of(model, include_self=False)
    layers = {layer.path: layer for layer in inner if layer.path and layer.weights}
    known = ", ".join(layer.name for layer in model.layers if layer.weights)
    example = next((path for path in layers if "block_1" in path), known)
    expected = f"A layer to freeze is one of {known}, or one within such as {example}"
    for name in names:
        check(name in layers, expected, name=name)
    frozen = {id(weight) for name in names for weight in layers[name].weights}
    left = [weight for weight in model.trainable_variables if id(weight) not in frozen]
    check(left, "A layer must be left to be trained", frozen=names)
    for name in names:
        layers[name].trainable = False


def enable_lora(model: keras.Model, rank: int) -> None:
    """Trains low-rank updates of the kernels of attention and feed-forward networks, and no more.

    A kernel W becomes W + A B, where A and B have `rank` columns and rows. Saving the task adds
    them up, so that its file is an ordinary one.

    Args:
        model: such as a `Transformer`. Compile it afterwards.
        rank: int from 1.

    Raises:
        ValueError: `rank` is below 1, or the model has no such kernel or has updates already.

    Source: Hu et al. 2021 (LoRA); keras.layers.Dense.enable_lora.
    Departs: the biases, embeddings and layer normalizations keep their weights, as in the paper.
    """
    check_at_least(1, rank=rank)
    kernels = [layer for layer in layers_of(model) if isinstance(layer, Linear)]
    check(kernels, "Expected a model with attention layers", model=type(model).__name__)
    check(not layers_with_lora(model), "LoRA can be enabled once", model=model.name)
    frozen = [kernel.path for kernel in kernels if not kernel.trainable]
    check(len(frozen) < len(kernels), "A layer must be left to be trained", frozen=frozen)
    for variable in model.weights:
        variable.trainable = False
    for kernel in kernels:
        kernel.enable_lora(rank)
