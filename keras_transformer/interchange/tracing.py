"""TensorFlow as a tool of export: graphs traced, their weights made constants, nothing printed."""

import contextlib
import errno
import importlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from .. import backend
from .graphs import Graph


def imported(name: str, engine: str, package: str | None = None) -> Any:
    """A library that an export needs.

    Args:
        name: str, of the module.
        engine: str, what it is needed for.
        package: str, its name for pip, or several; None: that of the module.

    Raises:
        ImportError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"The export to {engine} needs the package {name.partition('.')[0]} ({error}); install "
            f"it with pip install {package or name}."
        ) from None


def traced(graph: Graph) -> Any:
    """A graph as a concrete function of TensorFlow, made of operations that every engine has."""
    import tensorflow as tf

    def function(**inputs):
        with backend.portable():
            return graph.function(**inputs)

    return tf.function(function, autograph=False).get_concrete_function(**_signature(graph))


def frozen(graph: Graph) -> Any:
    """As `traced`, with the weights as constants, in loops too."""
    import tensorflow as tf
    from tensorflow.python.framework import convert_to_constants

    concrete = traced(graph)
    constant = convert_to_constants.convert_variables_to_constants_v2(
        concrete, lower_control_flow=False
    )
    names = [tensor.name.partition(":")[0] for tensor in constant.inputs]

    def function(**inputs):  # the constant one has lost the names of its outputs
        outputs = constant(*(inputs[name] for name in names))
        return dict(zip(sorted(concrete.structured_outputs), outputs, strict=True))

    return tf.function(function, autograph=False).get_concrete_function(**_signature(graph))


def _signature(graph):
    import tensorflow as tf

    return {
        name: tf.TensorSpec(shape, dtype, name) for name, (shape, dtype) in graph.inputs.items()
    }


def save(module: Any, folder: str | os.PathLike, signatures: Any) -> None:
    """Writes a tf.Module as a SavedModel.

    Raises:
        OSError: the disk is full, which TensorFlow reports by an error of its own.
    """
    import tensorflow as tf

    try:
        tf.saved_model.save(module, str(folder), signatures)
    except tf.errors.ResourceExhaustedError:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps what converters print, some of it from C++, away from the terminal."""
    with tempfile.TemporaryFile() as kept:
        sys.stdout.flush()
        sys.stderr.flush()
        streams = [os.dup(1), os.dup(2)]
        os.dup2(kept.fileno(), 1)
        os.dup2(kept.fileno(), 2)
        threshold = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(threshold)
            sys.stdout.flush()
            sys.stderr.flush()
            for number, stream in enumerate(streams, start=1):
                os.dup2(stream, number)
                os.close(stream)
