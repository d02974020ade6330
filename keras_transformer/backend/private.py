"""Private interfaces of PyTorch, TensorFlow and Keras, and the plain way where one is missing.

No other module uses one. Each is looked up when it is needed. Where a release lacks it, one line
says what follows, and the results stay the same.
"""

import collections
import contextlib
import functools
import importlib
import sys
from collections.abc import Iterator
from typing import Any

import keras


@functools.cache
def notice(package: str, effect: str, reason: str) -> None:
    """Prints once what follows from a release of a package, and why."""
    version = importlib.import_module(package).__version__
    print(f"{effect}: {package} {version} {reason}.", file=sys.stderr)


def attribute(owner: Any, name: str, effect: str) -> Any:
    """A private attribute of a module, by its name, or of an object of Keras.

    Args:
        owner: str, the module; or the object.
        name: str.
        effect: str, what follows where it is missing, for the notice.

    Returns:
        The attribute; None if it is missing.
    """
    try:
        return getattr(importlib.import_module(owner) if isinstance(owner, str) else owner, name)
    except (ImportError, AttributeError):
        kind = "keras.Layer" if isinstance(owner, keras.layers.Layer) else "keras.Variable"
        where = owner if isinstance(owner, str) else kind
        notice(where.partition(".")[0], effect, f"has no {where}.{name}")
        return None


def torch_recorder() -> tuple | None:
    """`tracing`, `TracingContext`, `FakeTensorMode`, `make_fx`, `_disable_current_modes`."""
    places = [
        ("torch._guards", "tracing"),
        ("torch._guards", "TracingContext"),
        ("torch._subclasses", "FakeTensorMode"),
        ("torch.fx.experimental.proxy_tensor", "make_fx"),
        ("torch.utils._python_dispatch", "_disable_current_modes"),
    ]
    found = tuple(attribute(*place, "Decoding is slower") for place in places)
    return None if None in found else found


def data_adapters() -> list[Any]:
    """The classes by which `fit` makes a tf.data.Dataset of batches, arrays or a generator."""
    names = ("ArrayDataAdapter", "GeneratorDataAdapter", "PyDatasetAdapter")
    module = "keras.src.trainers.data_adapters"
    found = [attribute(module, name, "Epochs may be slower") for name in names]
    return [] if None in found else found


def safe_mode() -> contextlib.AbstractContextManager:
    """Within it, Keras loads no code, whatever `keras.config.enable_unsafe_deserialization` says.

    A Keras without its private scope does as that function says.
    """
    module, effect = "keras.src.saving.serialization_lib", "Files are loaded in the mode of Keras"
    scope = attribute(module, "SafeModeScope", effect)
    return scope(True) if scope else contextlib.nullcontext()


def as_constants(function: Any) -> Any:
    """A concrete function of TensorFlow with its weights as constants, in loops too."""
    module, effect = "tensorflow.python.framework.convert_to_constants", "Weights stay variables"
    convert = attribute(module, "convert_variables_to_constants_v2", effect)
    return convert(function, lower_control_flow=False) if convert else function


def layers_of(
    layer: keras.layers.Layer, include_self: bool = True, recursive: bool = True
) -> list[Any]:
    """A layer and all layers within it.

    Args:
        layer: keras.layers.Layer or keras.Model.
        include_self: bool, whether `layer` is one of them.
        recursive: bool, whether layers within its layers are included.
    """
    flatten = attribute(layer, "_flatten_layers", "Layers are found by their attributes")
    if flatten:
        return [*flatten(include_self=include_self, recursive=recursive)]
    found, waiting = [layer] * include_self, collections.deque(_layers_in(layer))
    while waiting:
        inner = waiting.popleft()
        if inner not in found:
            found.append(inner)
            waiting.extendleft(_layers_in(inner) if recursive else ())  # the order of Keras
    return found


def _layers_in(layer):
    """The layers that a layer has as attributes, also in lists and dicts."""
    if isinstance(layer, keras.Model):
        return layer.layers
    waiting, found = [*vars(layer).values()], []
    for value in waiting:
        if isinstance(value, (list, tuple, dict)):
            waiting += value.values() if isinstance(value, dict) else value
        elif isinstance(value, keras.layers.Layer) and value not in found:
            found.append(value)
    return found


def twin(layer: keras.layers.Layer, **changed: Any) -> Any:
    """A layer with the weights of another one, and other attributes.

    Args:
        layer: keras.layers.Layer or keras.Model, which stays as it was.
        **changed: attributes of the twin; a layer among them replaces the one of `layer`.
    """
    other = object.__new__(type(layer))
    vars(other).update(vars(layer) | changed)
    layers = attribute(layer, "_layers", "Saved tasks hold the state of their optimizer")
    if layers is not None:
        replaced = {id(getattr(layer, name, None)): value for name, value in changed.items()}
        vars(other)["_layers"] = [replaced.get(id(each), each) for each in layers]
    return other


def is_rematerialized(layer: keras.layers.Layer) -> bool:
    """Whether a layer was made within a `keras.RematScope`; False if Keras does not tell."""
    effect = "Estimates of memory ignore rematerialization"
    return attribute(layer, "_remat_mode", effect) is not None


@contextlib.contextmanager
def values_replaced(variables: list, values: list) -> Iterator[None]:
    """Within it, variables have other values, without a layout over several devices.

    Args:
        variables: list of keras.Variable.
        values: list of tensors.
    """
    effect = "Weights of one process are seen by one thread"
    before = [attribute(variable, "_value", effect) for variable in variables]
    layouts = [attribute(variable, "_layout", effect) for variable in variables]
    if any(value is None for value in before):
        with keras.StatelessScope([*zip(variables, values, strict=True)]):
            yield
        return
    for variable, value in zip(variables, values, strict=True):
        variable._value, variable._layout = value, None
    try:
        yield
    finally:
        for variable, value, layout in zip(variables, before, layouts, strict=True):
            variable._value, variable._layout = value, layout
