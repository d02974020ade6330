"""How to make a learner's layer and how to call it: arguments are recognized by their names."""

import inspect
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
from keras import ops

SIZES: dict[str, Any] = {"d_model": 12, "num_heads": 2, "key_dim": 6, "d_ff": 20, "dropout": 0.0}
NAMES = {  # the role of a parameter, by its name
    "d_model": "d_model embed_dim embed_size embedding_dim embedding_size model_dim emb_dim dim "
    "width units hidden_size d size",
    "num_heads": "num_heads heads n_heads h nhead n_head num_attention_heads",
    "key_dim": "key_dim d_k dk head_dim head_size depth head_width value_dim d_v",
    "d_ff": "d_ff dff ff_dim d_inner ff_size ffn_dim dim_feedforward hidden hidden_dim "
    "inner inner_dim intermediate_dim d_hidden",
    "dropout": "dropout rate dropout_rate p_drop attention_dropout",
    "query": "query queries q x_q xq x inputs input target x_target",
    "key": "key keys k x_k",
    "value": "value values v x_v",
    "memory": "memory encoder_output encoder_outputs enc_output enc_outputs context source x_kv kv",
    "ids": "ids tokens token_ids x inputs source_ids seq sequence",
    "length": "length max_length max_len n num_positions seq_len sequence_length size t steps "
    "positions max_position target_length seq_length",
    "gain": "gamma gain scale weight g alpha",
}


def reason_of(error: Exception) -> str:
    """One line of an error: the first one that is not Keras's own introduction."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith("Exception encountered when calling")]
    return ((own or lines or [type(error).__name__])[0]).rstrip(".")


class CannotCheck(ValueError):
    """The layer cannot be made or called; the message says what to change."""


def role_of(parameter: str, roles: Iterable[str]) -> str | None:
    """The role of a parameter, by its name.

    Args:
        parameter: str.
        roles: names of NAMES, those that are possible.

    Returns:
        str, the first such role, or None.
    """
    name = parameter.lower().strip("_")
    return next((role for role in roles if name in NAMES[role].split()), None)


def mask_role(parameter: str, is_decoder: bool = False) -> str | None:
    """The purpose of a mask, by the name of its parameter.

    Args:
        parameter: str.
        is_decoder: bool, True: a plain mask is that of the target.

    Returns:
        "look_ahead", "flag" (a bool that asks for the look-ahead mask), "memory", "padding", or
        None if it is not a mask.
    """
    name = parameter.lower()
    if "causal" in name and ("use" in name or "is" in name or name == "causal"):
        return "flag"
    if "mask" not in name or name in ("query_mask", "key_mask", "value_mask"):
        return None  # Keras fills the latter by itself
    if any(word in name for word in ("causal", "look", "future", "subsequent", "tgt", "target")):
        return "look_ahead"
    if any(word in name for word in ("cross", "memory", "source", "src", "enc", "context")):
        return "memory"
    if is_decoder:
        return "memory" if "pad" in name else "target"
    return "padding"


def parameters(function: Callable) -> dict[str, inspect.Parameter]:
    """The named parameters of a function, without self, *args, **kwargs and `training`."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind not in kinds and name not in ("self", "training")
    }


def make(layer: Any, sizes: dict[str, Any] = SIZES) -> keras.layers.Layer:
    """A layer, made if a class or a function that makes one is given.

    Args:
        layer: subclass of keras.layers.Layer, function without arguments, or layer.
        sizes: dict from a role of NAMES to the value of such an argument.

    Returns:
        keras.layers.Layer.

    Raises:
        CannotCheck: the constructor has an argument whose name is not known.
    """
    if isinstance(layer, keras.layers.Layer):
        return layer
    if not inspect.isclass(layer):
        return layer()
    arguments = {}
    for name, parameter in parameters(layer.__init__).items():
        role = role_of(name, sizes)
        needed = parameter.default is inspect.Parameter.empty
        if role and (needed or role != "key_dim"):
            arguments[name] = sizes[role]
        elif needed:
            raise CannotCheck(
                f"{layer.__name__} has an argument {name!r} whose meaning is not clear; give a "
                f"layer, such as {layer.__name__}({name}=...), or call it {', '.join(sizes)}."
            )
    return layer(**arguments)


def arguments_for(function: Callable, values: dict, masks: dict, is_decoder: bool = False) -> dict:
    """The keyword arguments for a call.

    Args:
        function: what is called.
        values: dict from a role of NAMES to its array.
        masks: dict from a role of `mask_role` to its array, True for "flag".
        is_decoder: bool.

    Returns:
        dict from the name of a parameter to its array.

    Raises:
        CannotCheck: a parameter without a default has none of the roles.
    """
    known = list(values)
    found, unknown = {}, []
    for name, parameter in parameters(function).items():
        needed = parameter.default is inspect.Parameter.empty
        mask, role = mask_role(name, is_decoder), role_of(name, known)
        if mask:
            if mask in masks or needed:
                found[name] = masks.get(mask)
        elif role and name not in found:
            found[name] = values[role]
            known.remove(role)
        elif needed:
            unknown.append(name)
    for name, role in zip(unknown, known, strict=False):  # by their order
        found[name] = values[role]
    if len(unknown) > len(known):
        raise CannotCheck(
            f"The meaning of the argument {unknown[-1]!r} is not clear; call it "
            f"{', '.join(values)} or mask, or give it a default."
        )
    return found


def call(function: Callable, arguments: dict) -> Any:
    """Calls a layer with tensors, a function with NumPy arrays or, if it fails, with tensors.

    Args:
        function: a layer or function.
        arguments: dict of arrays.

    Returns:
        float64 arrays, or a tuple of them.
    """
    if not isinstance(function, keras.layers.Layer):
        try:
            return to_numpy(function(**arguments))
        except Exception:
            pass  # written for tensors, which have methods of their own
    tensors = {
        name: ops.convert_to_tensor(value) if isinstance(value, np.ndarray) else value
        for name, value in arguments.items()
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*with a mask attached to it")
        return to_numpy(function(**tensors))


def to_numpy(result: Any) -> Any:
    """float64 or bool arrays of tensors; tuples and lists become tuples."""
    if isinstance(result, (tuple, list)):
        return tuple(map(to_numpy, result))
    array = result if isinstance(result, np.ndarray) else np.array(ops.convert_to_numpy(result))
    return array if array.dtype == bool else array.astype("float64")


def kernels_of(layer: keras.layers.Layer) -> list[tuple[str, Any]]:
    """The names and float64 values of a built layer's matrices, in the order of their making.

    Biases with an axis for the heads are zero and left out.
    """
    values = [(weight.path, to_numpy(weight)) for weight in layer.weights]
    return [(path, value) for path, value in values if value.ndim > 1 and value.any()]


def squeezed(shape: tuple) -> tuple:
    """A shape without leading ones, as a convolution of width 1 has."""
    shape = tuple(shape)
    return squeezed(shape[1:]) if len(shape) > 2 and shape[0] == 1 else shape
