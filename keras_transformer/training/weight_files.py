"""Files of finite weights with a checksum, which shows damage when they are read."""

import contextlib
import hashlib
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import h5py
import ml_dtypes
import numpy as np

from ..atomic import rename_damaged

PathLike = str | os.PathLike
CHECKSUM, STATE = "sha256", "training_state"
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def add_checksum(path: PathLike, state: Mapping[str, Any]) -> None:
    """Adds to a file of `keras.Model.save_weights` what else training depends on, and a checksum.

    Args:
        path: the file.
        state: arrays by name, or lists of them; None is left out.
    """
    with h5py.File(path, "r+") as file:
        for name, value in state.items():
            if isinstance(value, list):
                for number, each in enumerate(value):
                    file[f"{STATE}/{name}/{number:04d}"] = _storable(each)
            elif value is not None:
                file[f"{STATE}/{name}"] = _storable(value)
        file.attrs[CHECKSUM], _ = _examine(file)


def _storable(array):
    """The array; in float32 if it is in bfloat16, which HDF5 reads back as bytes."""
    return np.float32(array) if np.asarray(array).dtype == BFLOAT16 else array


def read_state(path: PathLike) -> dict[str, Any]:
    """The `state` that was given to `add_checksum`."""
    with h5py.File(path, "r") as file:
        return {
            name: value[()] if isinstance(value, h5py.Dataset) else [value[n][()] for n in value]
            for name, value in file.get(STATE, {}).items()
        }


def check_weights(path: PathLike) -> None:
    """Reads a file back.

    Raises:
        OSError: It cannot be opened.
        ValueError: It is damaged, or its checksum differs.
        FloatingPointError: A weight is infinite or not a number.
    """
    with open(path, "rb"):  # too many open files, or no permission, is not damage
        pass
    try:
        with h5py.File(path, "r") as file:
            digest, wrong = _examine(file)
            whole = file.attrs.get(CHECKSUM, digest) == digest  # earlier versions wrote none
    except (OSError, KeyError, RuntimeError) as error:
        raise ValueError(f"{path} is damaged ({error}).") from error
    if not whole:
        raise ValueError(f"{path} is damaged: its checksum differs.")
    if wrong:
        raise FloatingPointError(f"{wrong[0]} became infinite or not a number.")


def remove_written(paths: Sequence[pathlib.Path]) -> None:
    """Removes those of the files that have a checksum, which `add_checksum` has written."""
    for path in paths:
        ours = False
        with contextlib.suppress(OSError), h5py.File(path, "r") as file:
            ours = CHECKSUM in file.attrs
        if ours:
            path.unlink()


def quarantine_damaged(paths: Sequence[pathlib.Path]) -> None:
    """Renames damaged files after the last valid one, with a message.

    Args:
        paths: files, oldest first.
    """
    for path in reversed(paths):
        try:
            check_weights(path)
            return
        except ValueError as error:
            print(f"{error} Continuing from the previous checkpoint.")
            rename_damaged(path)


def _examine(file):
    """SHA-256 of all arrays, and the names of those that are not finite; each is read once."""
    digest, wrong, names = hashlib.sha256(), [], []
    file.visit(names.append)
    for name in sorted(name for name in names if isinstance(file[name], h5py.Dataset)):
        values = file[name][()]
        digest.update(f"{name} {values.dtype} {values.shape} ".encode())
        digest.update(values.tobytes())
        if values.dtype == "V2":  # so Keras's own are read
            values = np.float32(values.view(BFLOAT16))
        if np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all():
            wrong.append(name)
    return digest.hexdigest(), wrong
