"""Safetensors: the bare weights of any task by name; its sizes and vocabulary as plain files."""

import pathlib

import keras
import numpy as np
from keras import ops

from .. import __version__
from ..checks import imported
from ..ids import END, PADDING, START, UNKNOWN
from ..tasks import Task, Translator
from ..tokenizers.base import Tokenizer
from ..tokenizers.words import MASK
from .vocabularies import training_data_of, write_json

WEIGHTS, CONFIG = "model.safetensors", "config.json"


def write(task: Task, folder: pathlib.Path, quantization: str | None = None) -> None:
    """Writes the weights of a task's model, and what is needed to use them without Keras.

    model.safetensors has a tensor per weight, by its path in the model, such as
    "encoder/block_1/self_attention/query/kernel" (inputs, outputs), in the dtype of the weight.
    config.json names the classes, the arguments of the model, the settings of the task, the special
    ids and the versions. A vocabulary is a file named after its part of the task: a SentencePiece
    model such as source_tokenizer.vocabulary.spm, a tokenizer.tokenizer.json of byte-level BPE, or
    the words and characters in the order of their ids, vocabulary.json.

    Args:
        task: the task.
        folder: pathlib.Path, an existing empty folder.
        quantization: str, number type of the weights; None: float32.

    Raises:
        ImportError: A package that the format needs is not installed.
        ValueError: The format cannot hold the task.
    """
    special_ids = {"padding": PADDING, "unknown": UNKNOWN, "start": START, "end": END}
    vocabularies, of_tokenizer = {}, {}
    for name in task.parts:
        part = getattr(task, name)
        if isinstance(part, Tokenizer):
            # Two sides with one tokenizer share its file.
            file = of_tokenizer.setdefault(id(part), f"{name}.{part.vocabulary_file}")
            (folder / file).write_bytes(part.serialized)
            vocabularies[name] = file
        elif part is not task.model:
            special_ids = {"padding": PADDING, "unknown": UNKNOWN, "mask": MASK}
            vocabularies[name] = f"{name}.json"
            write_json(folder / vocabularies[name], part.get_config())
    description = {
        "task": type(task).__name__,
        "model": type(task.model).__name__,
        "arguments": task.model.get_config(),
        "settings": {name: getattr(task, name) for name in task.settings},
        "vocabularies": vocabularies,
        "special_ids": special_ids,
        "versions": {"keras": keras.__version__, "keras_transformer": __version__},
    }
    if isinstance(task, Translator):
        description["settings"] |= training_data_of(task) | task.config.to_dict()
    write_json(folder / CONFIG, description)
    save_weights(folder, {weight.path: _array(weight) for weight in task.model.weights})


def save_weights(folder: pathlib.Path, weights: dict[str, np.ndarray]) -> None:
    """Writes model.safetensors.

    Args:
        folder: pathlib.Path.
        weights: arrays by their names.

    Raises:
        ImportError: safetensors is not installed.
    """
    save_file = imported("safetensors.numpy", "The export to safetensors", "safetensors").save_file
    arrays = {name: np.ascontiguousarray(array) for name, array in weights.items()}
    save_file(arrays, folder / WEIGHTS, metadata={"format": "pt"})  # which Hugging Face asks for


def _array(weight):
    """The weight in its own dtype; PyTorch's backend gives bfloat16 as float32."""
    return ops.convert_to_numpy(weight).astype(weight.dtype)
