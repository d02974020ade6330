"""Keras's own file in less room: matrices in 8 bits, or all weights stored in 16."""

import io
import pathlib
import warnings
import zipfile

import numpy as np

from ..atomic import atomic_write
from ..checks import check
from ..tasks import Task
from ..tasks.saved_files import CHECKSUMS, WEIGHTS, add_checksums, load

NAME = "model.keras"


def write(task: Task, folder: pathlib.Path, quantization: str | None = None) -> None:
    """Writes model.keras.

    With "int8" the Dense layers are quantized by Keras and compute so. With "float16" the file is
    half as large and computes in float32 as before: the weights are rounded in the file alone.

    Args:
        task: the task.
        folder: pathlib.Path, an existing empty folder.
        quantization: str, number type of the weights; None: float32.

    Raises:
        ImportError: A package that the format needs is not installed.
        ValueError: The format cannot hold the task.
    """
    path = folder / NAME
    task.save(path)
    if quantization == "float16":
        _store_in_float16(path)
    elif quantization:
        copy = load(path)  # the task itself does not change
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*`quantize` method")  # of a layer without matrices
            copy.model.quantize(quantization)
        copy.save(path)


def _store_in_float16(path):
    """Rounds the arrays within the file; Keras converts them to the variable's type on loading."""
    with atomic_write(path) as unfinished:
        with (
            zipfile.ZipFile(path) as given,
            zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            for name in given.namelist():
                if name == WEIGHTS:
                    archive.writestr(name, _in_float16(given.read(name)))
                elif name != CHECKSUMS:
                    archive.writestr(name, given.read(name))
        add_checksums(unfinished)


def _in_float16(weights):
    """The bytes of an HDF5 file with float16 instead of all larger floats."""
    import h5py

    def copy(name, item):
        if isinstance(item, h5py.Group):
            made = narrow.require_group(name)
        else:
            values = item[()]
            if np.issubdtype(values.dtype, np.floating):
                values = values.astype("float16")
                check(np.isfinite(values).all(), "float16 must hold all weights", weights=name)
            made = narrow.create_dataset(name, data=values)
        made.attrs.update(item.attrs)

    with h5py.File(io.BytesIO(weights)) as whole, h5py.File(content := io.BytesIO(), "w") as narrow:
        whole.visititems(copy)
        narrow.attrs.update(whole.attrs)
    return content.getvalue()
