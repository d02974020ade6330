"""Keras's own file, with the matrices in 8 bits: half the size of a saved task."""

import pathlib
import warnings

from ..saved_files import load
from ..tasks import Task

NAME = "model.keras"


def write(task: Task, folder: pathlib.Path, quantization: str | None = None) -> None:
    """Writes model.keras; with "int8" its Dense layers are quantized by Keras.

    Args, raises: see `keras_transformer.exporting.export`.
    """
    path = folder / NAME
    task.save(path)
    if quantization:
        copy = load(path)  # the task itself stays as it is
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*`quantize` method")  # of a layer without matrices
            copy.model.quantize(quantization)
        copy.save(path)
