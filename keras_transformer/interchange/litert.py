"""LiteRT (once TensorFlow Lite): one file per search, for phones and other small machines.

A graph takes and returns ids, as in ONNX; vocabularies or words are in its folder.
"""

import pathlib
import tempfile

from ..tasks import Task
from .graphs import graphs_of, in_float32
from .tracing import frozen, quiet, save, tf
from .vocabularies import write_vocabularies


def write(task: Task, folder: pathlib.Path, quantization: str | None = None) -> None:
    """Writes the graphs of a task: see `graphs.graphs_of`.

    With "float16" weights are stored in 16 bits; with "int8" matrices are stored in 8 bits and
    multiplied by numbers rounded to 8 bits as they come ("dynamic range").

    Args:
        task: the task.
        folder: pathlib.Path, an existing empty folder.
        quantization: str, number type of the weights; None: float32.

    Raises:
        ImportError: A package that the format needs is not installed.
        ValueError: The format cannot hold the task.
    """
    task = in_float32(task)
    for name, graph in graphs_of(task).items():
        with quiet(), tempfile.TemporaryDirectory() as saved:
            module, concrete = tf.Module(), frozen(graph)
            module.function = concrete
            module.weights = [variable.value for variable in task.model.variables]
            save(module, saved, concrete)
            converter = tf.lite.TFLiteConverter.from_saved_model(saved)
            if quantization:
                converter.optimizations = [tf.lite.Optimize.DEFAULT]
            if quantization == "float16":
                converter.target_spec.supported_types = [tf.float16]
            (folder / f"{name}.tflite").write_bytes(converter.convert())
    write_vocabularies(task, folder)
