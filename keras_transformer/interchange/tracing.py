"""Tools of exports by TensorFlow: traced graphs, constant weights, converters without warnings."""

import contextlib
import errno
import logging
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from .. import backend
from ..checks import Library
from .graphs import Graph

tf = Library("tensorflow", "The export by TensorFlow")

# "W0000 00:00:17.8 12 name.cc:364] ...", as absl writes it, or "name.cc(51) LOG(INFO) ..."
WARNING_OF_CPP = re.compile(rb"[IW]\d{4} .*\.cc:\d+\] |\w+\.cc\(\d+\) LOG\((INFO|WARNING)\) ")


def traced(graph: Graph) -> Any:
    """A graph as a concrete function of TensorFlow, made of operations that every engine has."""

    def function(**inputs):
        with backend.portable():
            return graph.function(**inputs)

    return tf.function(function, autograph=False).get_concrete_function(**_signature(graph))


def frozen(graph: Graph) -> Any:
    """As `traced`, with the weights as constants, also in loops."""
    concrete = traced(graph)
    constant = backend.as_constants(concrete)
    if constant is concrete:  # this TensorFlow cannot convert it
        return concrete
    names = [tensor.name.partition(":")[0] for tensor in constant.inputs]

    def function(**inputs):  # the constant one has lost the names of its outputs
        outputs = constant(*(inputs[name] for name in names))
        return dict(zip(sorted(concrete.structured_outputs), outputs, strict=True))

    return tf.function(function, autograph=False).get_concrete_function(**_signature(graph))


def _signature(graph):
    return {
        name: tf.TensorSpec(shape, dtype, name) for name, (shape, dtype) in graph.inputs.items()
    }


def save(module: Any, folder: str | os.PathLike, signatures: Any) -> None:
    """Writes a tf.Module as a SavedModel.

    Raises:
        OSError: the disk is full, which TensorFlow reports by an error of its own.
    """
    try:
        tf.saved_model.save(module, str(folder), signatures)
    except tf.errors.ResourceExhaustedError:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Drops the warnings of converters, some of which are written by C++ to the file of stderr.

    All other lines that arrive there meanwhile, such as those of other threads, are written to it
    at the end.
    """
    thread = threading.get_ident()

    def is_kept(record):
        return record.thread != thread or record.levelno >= logging.ERROR

    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    handlers = [handler for each in loggers for handler in getattr(each, "handlers", ())]
    filtered = [*loggers[:1], *handlers, logging.lastResort]  # handlers see records of all loggers
    with tempfile.TemporaryFile() as lines:
        sys.stderr.flush()
        stderr = os.dup(2)
        os.dup2(lines.fileno(), 2)
        for each in filtered:
            each.addFilter(is_kept)
        try:
            yield
        finally:
            for each in filtered:
                each.removeFilter(is_kept)
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            lines.seek(0)
            for line in lines:
                if not WARNING_OF_CPP.match(line):
                    os.write(2, line)
