"""How to make a learner's layer and how to call it: arguments are recognized by their names."""

import inspect
import warnings
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from keras import ops

from .faults import read_table

SIZES: dict[str, Any] = {"d_model": 12, "num_heads": 2, "key_dim": 6, "d_ff": 20, "dropout": 0.0}
NAMES = read_table("names.toml")


def reason_of(error: BaseException) -> str:
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


def parameters(thing: Any) -> dict[str, bool]:
    """The named arguments of a call, without `self` and `training`.

    Args:
        thing: function, class, layer, or functional model, whose arguments are its inputs.

    Returns:
        dict from a name to whether it has no default.
    """
    if is_functional(thing):
        return dict.fromkeys((each.name for each in thing.inputs), True)
    if inspect.isclass(thing):
        function = thing.__init__
    else:
        function = thing.call if isinstance(thing, keras.layers.Layer) else thing
    return {
        name: parameter.default is inspect.Parameter.empty
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        and name not in ("self", "training")
    }


def is_functional(thing: Any) -> bool:
    """Whether something is a model that is called with its inputs."""
    is_sequential = isinstance(thing, keras.Sequential)
    return (
        isinstance(thing, keras.Model) and not is_sequential and bool(getattr(thing, "inputs", 0))
    )


def mask_role(parameter: str, is_decoder: bool) -> str | None:
    """The purpose of a mask, by the name of its argument.

    Args:
        parameter: str.
        is_decoder: bool, whether there are masks of two kinds.

    Returns:
        "flag" (a bool that asks for the look-ahead mask) or "mask"; in a decoder also "look_ahead",
        "memory_mask" or, where the name does not tell, "either"; None if it is not a mask.
    """
    name = parameter.lower()
    if "causal" in name and ("use" in name or "is" in name or name == "causal"):
        return "flag"
    if "mask" not in name or name in ("query_mask", "key_mask", "value_mask"):
        return None  # Keras fills the latter by itself
    if not is_decoder:
        return "mask"
    if any(word in name for word in ("causal", "look", "future", "subsequent", "tgt", "target")):
        return "look_ahead"
    words = ("cross", "memory", "source", "src", "enc", "context", "pad")
    return "memory_mask" if any(word in name for word in words) else "either"


def roles_in(thing: Any, possible: Iterable[str], is_decoder: bool = False) -> dict[str, str]:
    """The roles of the arguments with which something is called.

    Args:
        thing: function, layer or functional model.
        possible: roles of NAMES, in the order in which arguments of other names have them.
        is_decoder: bool, whether there are masks of two kinds.

    Returns:
        dict from the name of an argument to its role, one of `possible` or of `mask_role`.

    Raises:
        CannotCheck: an argument without a default has none of the roles.
    """
    inputs = thing.inputs if is_functional(thing) else []
    bools = [each.name for each in inputs if each.dtype == "bool"]
    found, unknown, known = {}, [], list(possible)
    for name, needed in parameters(thing).items():
        role = mask_role("mask" if name in bools else name, is_decoder)
        if role is None and (role := role_of(name, known)):
            known.remove(role)
        if role:
            found[name] = role
        elif needed:
            unknown.append(name)
    if len(unknown) > len(known):
        raise CannotCheck(
            f"The meaning of the argument {unknown[-1]!r} is not clear; call it "
            f"{', '.join(possible)} or mask, or give it a default."
        )
    return {**found, **dict(zip(unknown, known, strict=False))}


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
    for name, needed in parameters(layer).items():
        role = role_of(name, sizes)
        if role and (needed or role != "key_dim"):
            arguments[name] = sizes[role]
        elif needed:
            raise CannotCheck(
                f"{layer.__name__} has an argument {name!r} whose meaning is not clear; give a "
                f"layer, such as {layer.__name__}({name}=...), or call it {', '.join(sizes)}."
            )
    return layer(**arguments)


def call(thing: Any, roles: dict[str, str], given: dict[str, Any]) -> Any:
    """Calls a layer with tensors, a function with NumPy arrays or, if it fails, with tensors.

    Args:
        thing: function, layer or functional model.
        roles: dict from the name of an argument to its role.
        given: dict from a role to its array or number; None is passed for others that must be.

    Returns:
        float64 arrays, or a tuple of them.
    """
    arguments = {
        name: given.get(roles[name])
        for name, needed in parameters(thing).items()
        if name in roles and (needed or roles[name] in given)
    }
    if not isinstance(thing, keras.layers.Layer):
        try:
            return to_numpy(thing(**arguments))
        except Exception:
            pass  # written for tensors, which have methods of their own
    tensors = {
        name: ops.convert_to_tensor(value) if isinstance(value, np.ndarray) else value
        for name, value in arguments.items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras's, about masks and building
        if is_functional(thing):
            inputs = keras.tree.map_structure(lambda each: tensors[each.name], thing.input)
            return to_numpy(thing(inputs))
        return to_numpy(thing(**tensors))


def to_numpy(result: Any) -> Any:
    """float64 or bool arrays of tensors; tuples and lists become tuples."""
    if isinstance(result, (tuple, list)):
        return tuple(map(to_numpy, result))
    array = result if isinstance(result, np.ndarray) else np.array(ops.convert_to_numpy(result))
    return array if array.dtype == bool else array.astype("float64")
