"""The formats of other engines: one module per format, each a folder.

`export(load("runs/en-de/model.keras"), "en-de-onnx", "onnx")` does what the command
`keras-transformer export` does.
"""

import importlib
import os
import tempfile
from typing import Any, NamedTuple

from .. import backend, tasks
from ..atomic import atomic_folder, check_folder
from ..checks import check
from ..generation.configuration import OF_LOGITS
from ..tasks.saved_files import load


class Format(NamedTuple):
    """Capabilities of an export format.

    Args:
        engine: str, the name of the engine that reads it.
        tasks: names of the classes of tasks that it can hold.
        quantizations: names of the number types of weights, in addition to float32.
        module: str, the module of this package that writes it, imported on demand. Its function
            `write(task, folder, quantization, **options)` fills an existing empty folder.
        backend: str, the one backend that can write it; None: any.
        lacks: fields of `GenerationConfig` that it cannot hold.
    """

    engine: str
    tasks: tuple[str, ...]
    quantizations: tuple[str, ...]
    module: str
    backend: str | None = None
    lacks: tuple[str, ...] = ()


ENGINES = ("keras", "ctranslate2", "ctranslate2-int8", "auto")  # of `set_engine`

FORMATS = {
    "ctranslate2": Format(
        "CTranslate2",
        ("Translator", "TextGenerator"),
        ("float16", "int16", "int8", "int8_float16"),
        "ctranslate2",
    ),
    "saved_model": Format("TensorFlow", ("Task",), (), "saved_model", "tensorflow"),
    "onnx": Format("ONNX Runtime", ("Task",), ("int8",), "onnx", "tensorflow"),
    "litert": Format("LiteRT", ("Task",), ("float16", "int8"), "litert", "tensorflow"),
    "keras": Format("Keras", ("Task",), ("float16", "int8"), "keras_file"),
    "marian": Format(
        "Hugging Face's MarianMTModel",
        ("Translator",),
        (),
        "marian.exporting",
        lacks=("suppress", "min_length_ratio"),
    ),
    "safetensors": Format("safetensors", ("Task",), (), "safetensors"),
    "web": Format(
        "a browser",
        ("Task",),
        ("int8",),
        "web.exporting",
        "tensorflow",
        (*OF_LOGITS, "placeholders"),
    ),
}


def export(
    task: "tasks.Task",
    folder: str | os.PathLike,
    format: str,
    quantization: str | None = None,
    overwrite: bool = False,
    **options: Any,
) -> None:
    """Writes a task for another engine; the folder appears complete, or not at all.

    Args:
        task: such as a `Translator`.
        folder: where the files go.
        format: str, a name in `FORMATS`.
        quantization: str, number type of the weights, such as "int8"; None: float32.
        overwrite: bool, whether to replace a folder that holds an earlier export and nothing else.
        **options: of "web": runtime, the folder of the npm package onnxruntime-web, and name, str,
            the name of the model on its page.

    Raises:
        ImportError: A package that the format needs is not installed.
        ValueError: The folder exists, or holds files of others; or the format cannot hold this task
            or quantization, or it needs another backend.
    """
    to = checked_format(format, quantization)
    kinds = tuple(getattr(tasks, name) for name in to.tasks)
    expected = f"{format} can hold a {' or '.join(to.tasks)}"
    check(isinstance(task, kinds), expected, task=type(task).__name__)
    check(
        to.backend in (None, backend.name()),
        f"{format} requires KERAS_BACKEND={to.backend}; any backend may have trained the model",
        backend=backend.name(),
    )
    if isinstance(task, tasks.Translator):
        used = task.config.to_dict() | {"placeholders": task.placeholders}
        lacking = ", ".join(name for name in to.lacks if used.get(name))
        check(not lacking, f"{format} cannot hold these options of a translator", options=lacking)
    quantized = task.model.get_config()["quantized"]
    check(
        not quantized,
        "Export the model without quantization; a format has its own number types",
        quantized_layers=len(quantized),
    )
    check_folder(folder, overwrite=overwrite)
    if backend.layers_with_lora(task.model):
        task = _with_updates_added(task)
    module = importlib.import_module(f".{to.module}", __package__)
    with atomic_folder(folder, overwrite) as unfinished:
        module.write(task, unfinished, quantization, **options)


def _with_updates_added(task):
    """A copy of a task whose kernels contain the updates of LoRA, as its file has them."""
    with tempfile.TemporaryDirectory() as folder:
        task.save(file := os.path.join(folder, "model.keras"))
        return load(file)


def checked_format(format: str, quantization: str | None = None) -> Format:
    """The format of a name.

    Args:
        format, quantization: see `export`.

    Raises:
        ValueError: There is no such format, or it cannot hold this quantization.
    """
    check(format in FORMATS, f"format must be one of {', '.join(FORMATS)}", format=format)
    to = FORMATS[format]
    check(
        quantization in (None, *to.quantizations),
        f"{format} can hold weights in float32 {' '.join(to.quantizations)}".rstrip(),
        quantization=quantization,
    )
    return to
