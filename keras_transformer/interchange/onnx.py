"""ONNX: one graph per search, for ONNX Runtime and other engines.

A graph takes and returns ids; vocabularies or words are in its folder. docs/exporting.md shows
programs that run it.
"""

import os
import pathlib
import types
import unittest.mock

import numpy as np

from ..checks import imported
from ..tasks import Task, Translator
from .graphs import Graph, encoder_and_step, graphs_of, in_float32
from .tracing import quiet, traced
from .vocabularies import write_vocabularies

OPSET = 18


def write(task: Task, folder: pathlib.Path, quantization: str | None = None) -> None:
    """Writes the graphs of a task: see `graphs.graphs_of`.

    A `Translator` is also written as "encoder" and "step", for loops outside the graph.

    Args:
        task: the task.
        folder: pathlib.Path, an existing empty folder.
        quantization: see `write_graphs`.

    Raises:
        ImportError: A package that the format needs is not installed.
        ValueError: The format cannot hold the task.
    """
    task = in_float32(task)
    graphs = graphs_of(task)
    if isinstance(task, Translator):
        graphs |= encoder_and_step(task)
    write_graphs(graphs, folder, quantization)
    write_vocabularies(task, folder)


def write_graphs(
    graphs: dict[str, Graph], folder: pathlib.Path, quantization: str | None = None
) -> None:
    """Writes graphs, each with its weights. TensorFlow must be the backend.

    With "int8", matrices are stored in 8 bits and multiplied by numbers rounded to 8 bits as they
    come.

    Args:
        graphs: `Graph` by the names of their files.
        folder: pathlib.Path, an existing folder.
        quantization: str, number type of the weights; None: float32.

    Raises:
        ImportError: A package that the format needs is not installed.
    """
    with unittest.mock.patch.dict(os.environ):  # it sets TF_CPP_MIN_LOG_LEVEL
        tf2onnx = imported("tf2onnx.convert", "The export to ONNX", "tf2onnx onnx")
    onnx = imported("onnx", "The export to ONNX")
    if quantization:
        imported("onnxruntime.quantization", "The export to ONNX in int8", "onnxruntime")
    for name, graph in graphs.items():
        path = folder / f"{name}.onnx"
        with quiet():
            concrete = traced(graph)
            function = types.SimpleNamespace(get_concrete_function=lambda c=concrete: c)
            handlers = {"Erfc": (_convert_erfc, [])}
            model, _ = tf2onnx.from_function(function, (), opset=OPSET, custom_op_handlers=handlers)
            _share_constants_with_loops(model.graph)
            onnx.save(model, path)
            if quantization:
                _quantize(path)


def _convert_erfc(context, node, name, arguments):
    """erfc(x) = 1 - erf(x), in GELU; ONNX has erf alone."""
    node.type = "Erf"
    one = context.make_const(f"{name}/one", np.array(1, "float32")).output[0]
    context.insert_new_node_on_output("Sub", node.output[0], inputs=[one, node.output[0]])


def _quantize(path):
    """Weights as int8, those of the steps of a search included."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    whole = path.with_suffix(".float32")
    path.rename(whole)
    options = {"EnableSubgraph": True}
    quantize_dynamic(whole, path, weight_type=QuantType.QInt8, extra_options=options)
    whole.unlink()


def _share_constants_with_loops(graph):
    """Loops read what never changes in them, such as weights, from the graph around them.

    tf2onnx hands it from step to step: engines then treat weights as variables, which they neither
    prepare for their products nor quantize.
    """
    for loop in graph.node:
        bodies = [attribute.g for attribute in loop.attribute if attribute.name == "body"]
        for body in bodies:
            taken = {name for node in graph.node for name in node.input}
            taken |= {output.name for output in graph.output}
            for number in reversed(range(len(body.output) - 1)):  # after the condition
                given, returned = body.input[2 + number].name, body.output[1 + number].name
                if given == returned and loop.output[number] not in taken:
                    _rename(body, given, loop.input[2 + number])
                    for names in (loop.input, body.input):
                        del names[2 + number]
                    del body.output[1 + number], loop.output[number]
            _share_constants_with_loops(body)


def _rename(graph, old, new):
    """Renames a value wherever nodes read it."""
    for node in graph.node:
        for number, name in enumerate(node.input):
            if name == old:
                node.input[number] = new
        for attribute in node.attribute:
            _rename(attribute.g, old, new)
