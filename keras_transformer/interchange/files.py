"""Files of Hugging Face's models, read without running anything that they hold.

Weights come from `model.safetensors` (also in shards), which holds nothing but numbers, or from
`pytorch_model.bin`, a pickle, which PyTorch reads in the mode that makes tensors only.
"""

import contextlib
import json
import math
import os
import pathlib
import re
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from keras import ops

from ..checks import check, first_line, imported

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
# The paths of our variables that depend on the order of ids.
EMBEDDINGS, LOGITS_BIAS = "embedding/embeddings", "logits_bias/bias"
UNWRITTEN = -100.0  # logit of ids that they lack: probability 0, and no harm to label smoothing
NUMBERS = ("float64", "float32", "float16", "bfloat16")  # are converted to float32


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


def check_is_file(path: pathlib.Path) -> pathlib.Path:
    """The path of a file.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is a folder.
    """
    if path.is_dir():
        raise ValueError(f"Expected a file; received the folder {path}.")
    if not path.is_file():
        raise FileNotFoundError(f"There is no {path}. Download all files of the model.")
    return path


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is a folder, or not a JSON object in UTF-8.
    """
    content = None
    with contextlib.suppress(ValueError, RecursionError):
        content = json.loads(check_is_file(path).read_bytes())
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

    def integer(self, key: str, smallest: int = 1, default: int | None = None) -> int:
        """The value of a key: int, at least `smallest`; `default` if it is missing.

        Raises:
            ValueError: It is anything else, or missing without a default.
        """
        value: Any = self.values.get(key, default)
        holds = type(value) is int and value >= smallest
        self._check(key, holds, f"an integer of at least {smallest}")
        return value

    def number(self, key: str, default: float) -> float:
        """The value of a key: float, finite and at least 0; `default` if it is missing.

        Raises:
            ValueError: It is anything else.
        """
        value = self.values.get(key, default)
        holds = type(value) in (int, float) and 0 <= value < math.inf
        self._check(key, holds, "a number of at least 0")
        return float(value)

    def is_one_of(self, key: str, *allowed: Any, default: Any = None) -> Any:
        """The value of a key, if it is one of those that are allowed; `default` if it is missing.

        Raises:
            ValueError: It is anything else.
        """
        value = self.values.get(key, default)
        holds = any(type(value) is type(each) and value == each for each in allowed)
        self._check(key, holds, " or ".join(map(json.dumps, allowed)))
        return value

    def are(self, fixed: dict[str, Any]) -> None:
        """Checks that keys have these values, or are missing."""
        for key, value in fixed.items():
            self.is_one_of(key, value, default=value)

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
        """A tensor, which is then no longer among them.

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
        with naming(self.path):
            array = self._readers.pop(name)()
            kind, size = array.dtype.name, array.shape
            check(kind in NUMBERS, f"expected floating-point numbers in {name}", dtype=kind)
            check(size == shape, f"expected {name} of the shape {shape} of config.json", shape=size)
            array = np.array(array, "float32")
            check(np.isfinite(array).all(), "expected finite numbers", weights=name)
        return array

    def take_shared(self, names: tuple[str, ...], shape: tuple[int, ...]) -> np.ndarray:
        """The one tensor that has several names, of which a file may hold some.

        Raises:
            ValueError: They differ, or `take` does not accept one.
        """
        first, *others = [name for name in names if name in self] or names[:1]
        array = self.take(first, shape)
        for other in others:
            if not np.array_equal(self.take(other, shape), array):
                raise ValueError(
                    f"{self.path}: expected one matrix for embeddings and logits; {other} differs "
                    f"from {first}."
                )
        return array

    def check_all_taken(self, model: str) -> None:
        """Raises a ValueError if tensors are left that a model has no place for."""
        for name in self._readers:
            raise ValueError(
                f"{self.path}: expected the weights of a {model}; it also holds {name:.100}."
            )


def open_weights(folder: pathlib.Path, left_out: str = "") -> Weights:
    """The weights in a folder.

    Args:
        folder: pathlib.Path.
        left_out: str, a regular expression: names of tensors that are not weights.

    Raises:
        FileNotFoundError: There are no weights, or a shard is missing.
        ImportError: safetensors or PyTorch is needed and not installed.
        ValueError: A file is damaged, or holds anything but tensors.
    """
    for name, readers_of in {SAFETENSORS: _safetensors, SHARDS: _shards, PICKLE: _pickle}.items():
        path = folder / name
        if path.exists():
            readers = readers_of(check_is_file(path))
            names = [name for name in readers if not re.fullmatch(left_out, name)]
            return Weights(path, {name: readers[name] for name in names})
    raise FileNotFoundError(f"There is neither {SAFETENSORS} nor {PICKLE} in {folder}.")


def _safetensors(path):
    imported("ml_dtypes", f"Reading {path}")  # gives NumPy bfloat16
    library = imported("safetensors", f"Reading {path}")
    with naming(path):
        file = library.safe_open(str(path), framework="numpy")
        return {name: lambda n=name: file.get_tensor(n) for name in file.keys()}  # noqa: SIM118


def _shards(index):
    """The readers of all shards that an index names."""
    files: Any = read_json(index).get("weight_map")
    plain = isinstance(files, dict) and all(
        re.fullmatch(r"[^/\\]+\.safetensors", str(name)) for name in files.values()
    )
    if not plain:
        raise ValueError(
            f"{index} must map weights to .safetensors files in its folder; received "
            f"weight_map={files!r:.100}."
        )
    readers = {}
    for name in sorted(set(files.values())):
        readers |= _safetensors(check_is_file(index.parent / name))
    differing = readers.keys() ^ files.keys()
    if differing:
        raise ValueError(
            f"{index} must list the weights of its files; it differs in {min(differing):.100}."
        )
    return readers


def _pickle(path):
    """The tensors of a `pytorch_model.bin`; what would run code is refused by PyTorch."""
    torch = imported("torch", f"Reading {path}")
    with naming(path):
        mapped = zipfile.is_zipfile(path)  # files of before PyTorch 1.6 cannot be
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
        items = tensors.items() if isinstance(tensors, dict) else [(None, tensors)]
        for name, tensor in items:
            holds = isinstance(name, str) and isinstance(tensor, torch.Tensor)
            check(holds, "expected tensors by name", type=type(tensor).__name__)
    return {
        name: lambda t=tensor: (t.float() if t.is_floating_point() else t).numpy()
        for name, tensor in tensors.items()
    }


@contextlib.contextmanager
def naming(path: pathlib.Path) -> Iterator[None]:
    """Raises the errors of a block, as of a library that reads it, as a `ValueError` of its file.

    Args:
        path: the file.
    """
    try:
        yield
    except (FileNotFoundError, ImportError):
        raise
    except Exception as error:
        raise ValueError(f"{path}: {first_line(error)}.") from None


def float32_array(x: Any) -> np.ndarray:
    """A tensor as a contiguous float32 array."""
    return np.ascontiguousarray(ops.convert_to_numpy(ops.cast(x, "float32")))
