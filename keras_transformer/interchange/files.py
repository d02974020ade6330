"""Files of Hugging Face's models, read without running anything that they hold.

Weights come from `model.safetensors` (also in shards), which holds nothing but numbers, or from
`pytorch_model.bin`, a pickle, which PyTorch reads in the mode that makes tensors only.
"""

import contextlib
import json
import math
import os
import pathlib
import pickle
import re
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from keras import ops

from ..checks import check
from ..tasks.saved_files import first_line

SAFETENSORS, SHARDS, PICKLE = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
)
CONFIG, GENERATION_CONFIG = "config.json", "generation_config.json"
ACTIVATIONS = {  # Hugging Face's names, and ours
    "swish": "silu",
    "silu": "silu",
    "relu": "relu",
    "gelu": "gelu",
    "tanh": "tanh",
}
UNWRITTEN = -100.0  # logit of ids that they lack: probability 0, and no harm to label smoothing
NUMBERS = ("F64", "F32", "F16", "BF16")  # safetensors' names of what is converted to float32
MAX_BYTES_OF_JSON = 2**28


def check_folder(folder: str | os.PathLike) -> pathlib.Path:
    """The path of a folder.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: It is a file.
    """
    folder = pathlib.Path(folder)
    if not folder.exists():
        raise FileNotFoundError(f"There is no folder {folder}. Download the model first.")
    if not folder.is_dir():
        raise ValueError(
            f"Expected a folder with the files of a model; received the file {folder}."
        )
    return folder


def read_bytes(path: pathlib.Path) -> bytes:
    """The content of a file.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is a folder.
    """
    if path.is_dir():
        raise ValueError(f"Expected a file; received the folder {path}.")
    if not path.is_file():
        raise FileNotFoundError(f"There is no {path}. Download all files of the model.")
    return path.read_bytes()


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is a folder, or not a JSON object in UTF-8.
    """
    content = read_bytes(path)
    check(len(content) <= MAX_BYTES_OF_JSON, f"{path} is too large", bytes=len(content))
    try:
        content = json.loads(content)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ValueError(
            f"{path} must hold one JSON object in UTF-8; it does not. Download it again."
        )
    return content


class Settings:
    """The values of a JSON file, each checked when it is read.

    Args:
        path: the file.
    """

    def __init__(self, path: pathlib.Path):
        self.path = path
        self.values = read_json(path)

    def integer(self, key: str, smallest: int = 1) -> int:
        """The value of a key: int, at least `smallest`.

        Raises:
            ValueError: It is missing or anything else.
        """
        value: Any = self.values.get(key)
        whole = isinstance(value, int) and not isinstance(value, bool)
        self._check(key, whole and value >= smallest, f"an integer of at least {smallest}")
        return value

    def number(self, key: str, default: float) -> float:
        """The value of a key: float, finite and at least 0; `default` if it is missing.

        Raises:
            ValueError: It is anything else.
        """
        value = self.values.get(key, default)
        real = isinstance(value, (int, float)) and not isinstance(value, bool)
        self._check(key, real and 0 <= value < math.inf, "a number of at least 0")
        return float(value)

    def is_one_of(self, key: str, *allowed: Any, default: Any = None) -> Any:
        """The value of a key, if it is one of those that are allowed; `default` if it is missing.

        Raises:
            ValueError: It is anything else.
        """
        value = self.values.get(key, default)
        holds = any(type(value) is type(each) and value == each for each in allowed)
        self._check(key, holds, " or ".join(json.dumps(each) for each in allowed))
        return value

    def _check(self, key, holds, expected):
        if not holds:
            received = json.dumps(self.values[key]) if key in self.values else "none"
            raise ValueError(
                f"{self.path}: expected {key} to be {expected}; received {received:.100}."
            )


class Weights:
    """The tensors of a model, each read when it is taken.

    Args:
        path: the file that lists them, for errors.
        readers: functions that return a tensor, by its name.
    """

    def __init__(self, path: pathlib.Path, readers: dict[str, Callable[[], np.ndarray]]):
        self.path = path
        self._readers = dict(readers)

    def __contains__(self, name: str) -> bool:
        return name in self._readers

    def take(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """A tensor, which is then no longer among `names`.

        Args:
            name: str.
            shape: ints, the expected shape.

        Returns:
            float32, a copy of its own.

        Raises:
            ValueError: It is missing, of another shape, not of floating-point numbers, or holds
                infinities or NaN.
        """
        if name not in self._readers:
            raise ValueError(f"{self.path} must hold the weight {name}; it does not.")
        with one_sentence(self.path):
            array = self._readers.pop(name)()
        if array.shape != shape:
            raise ValueError(
                f"{self.path}: expected {name} of shape {shape}, as config.json says; received "
                f"{array.shape}."
            )
        array = np.array(array, "float32")
        if not np.isfinite(array).all():
            raise ValueError(f"{self.path}: expected finite numbers; {name} holds others.")
        return array

    @property
    def names(self) -> list[str]:
        """List of str, the tensors that were not taken."""
        return sorted(self._readers)


def open_weights(folder: pathlib.Path, left_out: str | None = None) -> Weights:
    """The weights in a folder.

    Args:
        folder: pathlib.Path.
        left_out: str, a regular expression: names of tensors that are not weights; None: all are
            weights.

    Raises:
        FileNotFoundError: There are no weights, or a shard is missing.
        ImportError: safetensors or PyTorch is needed and not installed.
        ValueError: A file is damaged, or holds anything but tensors.
    """
    kinds = {SAFETENSORS: _safetensors, SHARDS: _shards, PICKLE: _pickle}
    for name, readers_of in kinds.items():
        if (folder / name).exists():
            pattern = re.compile(left_out or r"(?!)")
            return Weights(folder / name, readers_of(folder / name, pattern))
    raise FileNotFoundError(f"There is neither {SAFETENSORS} nor {PICKLE} in {folder}.")


def _safetensors(path, left_out):
    try:
        import ml_dtypes  # noqa: F401  gives NumPy bfloat16
        from safetensors import safe_open
    except ImportError:
        raise ImportError(
            f"Reading {path} needs the package safetensors; install it with "
            "pip install safetensors."
        ) from None
    if path.is_dir():
        raise ValueError(f"Expected a file; received the folder {path}.")
    with one_sentence(path):
        file = safe_open(str(path), framework="numpy")
        names = [name for name in file.keys() if not left_out.fullmatch(name)]  # noqa: SIM118
        kinds = {name: file.get_slice(name).get_dtype() for name in names}
    for name, kind in kinds.items():
        if kind not in NUMBERS:
            raise ValueError(f"{path}: expected floating-point numbers; {name} is of type {kind}.")
    return {name: lambda name=name: file.get_tensor(name) for name in kinds}


def _shards(index, left_out):
    """The readers of all shards that an index names."""
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise ValueError(f"{index} must map weights to files in weight_map; it does not.")
    readers = {}
    for name in sorted(set(names.values())):
        plain = pathlib.PurePath(name).name == name and name.endswith(".safetensors")
        if not plain:
            raise ValueError(
                f"{index} must name .safetensors files in its folder; received {name!r:.100}."
            )
        if not (index.parent / name).exists():
            raise FileNotFoundError(f"There is no {index.parent / name}, which {index} names.")
        readers |= _safetensors(index.parent / name, left_out)
    listed = {name for name in names if not left_out.fullmatch(name)}
    if readers.keys() != listed:
        differing = min(readers.keys() ^ listed)
        raise ValueError(
            f"{index} must list the weights of its files; it differs in {differing:.100}."
        )
    return readers


def _pickle(path, left_out):
    """The tensors of a `pytorch_model.bin`; what would run code is refused by PyTorch."""
    try:
        import torch
    except ImportError:
        raise ImportError(
            f"Reading {path} needs PyTorch; install it, or convert the file to {SAFETENSORS}."
        ) from None
    if path.is_dir():
        raise ValueError(f"Expected a file; received the folder {path}.")
    with one_sentence(path):
        mapped = zipfile.is_zipfile(path)  # files of before PyTorch 1.6 cannot be
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    if not isinstance(tensors, dict):
        raise ValueError(f"{path} must hold tensors by name; received a {type(tensors).__name__}.")
    for name, tensor in tensors.items():
        if not (isinstance(name, str) and isinstance(tensor, torch.Tensor)):
            raise ValueError(f"{path} must hold tensors by name; {name!r:.100} is not a tensor.")
        if not tensor.dtype.is_floating_point and not left_out.fullmatch(name):
            kind = tensor.dtype
            raise ValueError(f"{path}: expected floating-point numbers; {name} is of type {kind}.")
    return {
        name: lambda t=tensor: t.float().numpy()
        for name, tensor in tensors.items()
        if not left_out.fullmatch(name)
    }


@contextlib.contextmanager
def naming(path: pathlib.Path) -> Iterator[None]:
    """Puts the name of a file before the text of a `ValueError`."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def float32_array(x: Any) -> np.ndarray:
    """A tensor as a contiguous float32 array."""
    return np.ascontiguousarray(ops.convert_to_numpy(ops.cast(x, "float32")))


@contextlib.contextmanager
def one_sentence(path: pathlib.Path) -> Iterator[None]:
    """Raises the errors of a library that reads a damaged file as a `ValueError` that names it.

    Args:
        path: the file.
    """
    from_libraries = (
        ArithmeticError, AttributeError, EOFError, ImportError, LookupError, MemoryError, OSError,
        RuntimeError, TypeError, ValueError, pickle.UnpicklingError, zipfile.BadZipFile,
    )  # fmt: skip
    try:
        yield
    except Exception as error:
        safetensors_error = type(error).__name__ == "SafetensorError"
        if not (isinstance(error, from_libraries) or safetensors_error):
            raise
        raise ValueError(
            f"{path} cannot be read as weights: {first_line(error)}. It is damaged or not a file "
            "of weights."
        ) from None
