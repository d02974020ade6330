"""ONNX: one graph per search, for ONNX Runtime and other engines.

A graph takes and returns ids; SentencePiece models or words lie beside it. docs/exporting.md shows
the programs that run it.
"""

import pathlib
import types

from ..tasks import Task, Translator
from .graphs import encoder_and_step, graphs_of
from .tracing import imported, quiet, traced
from .vocabularies import write_vocabularies

OPSET = 18


def write(task: Task, folder: pathlib.Path, quantization: str | None = None) -> None:
    """Writes the graphs of a task: see `graphs.graphs_of`.

    A `Translator` is also written as "encoder" and "step", for loops outside the graph. With
    "int8", matrices are stored in 8 bits and multiplied by numbers rounded to 8 bits as they come.

    Args, raises: see `keras_transformer.exporting.export`.
    """
    tf2onnx = imported("tf2onnx.convert", "ONNX", "tf2onnx onnx")
    imported("onnx", "ONNX")
    if quantization:
        imported("onnxruntime.quantization", "ONNX in int8", "onnxruntime")
    graphs = graphs_of(task)
    if isinstance(task, Translator):
        graphs |= encoder_and_step(task)
    for name, graph in graphs.items():
        path = folder / f"{name}.onnx"
        with quiet():
            concrete = traced(graph)
            function = types.SimpleNamespace(get_concrete_function=lambda c=concrete: c)
            tf2onnx.from_function(function, (), opset=OPSET, output_path=str(path))
            if quantization:
                _quantize(path)
    write_vocabularies(task, folder)


def _quantize(path):
    """Weights as int8, where they are: also in the loop of a search."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    whole = path.with_suffix(".float32")
    path.rename(whole)
    quantize_dynamic(
        whole, path, weight_type=QuantType.QInt8, extra_options={"EnableSubgraph": True}
    )
    whole.unlink()
