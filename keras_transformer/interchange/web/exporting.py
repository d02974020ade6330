"""A static page that runs a model in the reader's browser: the server's page without a server.

The folder holds the page, the model as ONNX with the search inside, its vocabularies, and ONNX
Runtime for browsers, of the npm package onnxruntime-web.
"""

import base64
import json
import os
import pathlib
import shutil
from typing import Any

from ...checks import check, imported
from ...tasks import Task, TextGenerator, Translator
from ...tokenizers.base import Tokenizer
from ...tokenizers.byte_pairs import byte_pairs_of
from ...tokenizers.sentencepiece import SentencePieceTokenizer
from ..graphs import Graph, attentions_of, graphs_of, in_float32, observed_pass, translation
from ..onnx import write_graphs
from ..vocabularies import SETTINGS, settings_of, write_json

RUNTIME = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")
LOWEST = -3e38  # of float32, nearly
PAGES = (
    pathlib.Path(__file__).parents[2] / "serving" / "page",
    pathlib.Path(__file__).with_name("page"),  # answers what the other asks a server
)


def check_runtime(runtime: str | os.PathLike | None) -> pathlib.Path:
    """The folder of ONNX Runtime's files for browsers.

    Args:
        runtime: folder of the npm package onnxruntime-web.

    Raises:
        ValueError: It is None, or lacks a file.
    """
    check(
        runtime is not None,
        "The format web needs --runtime, the folder of the npm package onnxruntime-web, such as "
        "node_modules/onnxruntime-web after npm install onnxruntime-web",
        runtime=None,
    )
    folder = pathlib.Path(str(runtime), "dist")
    for name in RUNTIME:
        check(
            (folder / name).is_file(),
            f"--runtime must be the folder of the npm package onnxruntime-web, with dist/{name}",
            runtime=str(runtime),
        )
    return folder


def write(
    task: Task,
    folder: pathlib.Path,
    quantization: str | None = None,
    runtime: str | os.PathLike | None = None,
    name: str = "model",
) -> None:
    """Writes a page.

    Args:
        task: the task.
        folder: pathlib.Path, an existing empty folder.
        quantization: str, number type of the weights; None: float32.
        runtime: folder of the npm package onnxruntime-web.
        name: str, the name of the model on its page.

    Raises:
        ImportError: A package that the format needs is not installed.
        ValueError: The format cannot hold the task, or `runtime` is not that folder.
    """
    files = check_runtime(runtime)
    settings = {"name": name, **_settings(task)}
    for page in PAGES:
        # Without the page of the server's requests.
        shutil.copytree(page, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("docs"))
    (folder / "runtime").mkdir()
    for file in RUNTIME:
        shutil.copyfile(files / file, folder / "runtime" / file)
    task = in_float32(task)
    graphs = _graphs(task)
    model = folder / "model"
    model.mkdir()
    write_json(model / SETTINGS, {**settings, "graphs": list(graphs)})
    write_graphs(graphs, model, quantization)


def _settings(task):
    """The settings that the page reads, vocabularies included."""
    settings = settings_of(task)
    settings["longest_input"] = task.longest_input
    settings["attentions"] = [layer.path for layer in attentions_of(task)]
    settings["heads"] = attentions_of(task)[0].num_heads
    if isinstance(task, Translator):
        settings["source"] = vocabulary_of(task.source_tokenizer)
        settings["target"] = vocabulary_of(task.target_tokenizer)
    elif isinstance(task, TextGenerator):
        settings["target"] = vocabulary_of(task.tokenizer)
    return settings


def _graphs(task) -> dict[str, Graph]:
    """The graphs of the page: the search that the task uses unless told otherwise, and a pass."""
    graphs = {"pass": observed_pass(task)}
    if isinstance(task, Translator):
        inputs = {"source_ids": ((None, None), "int32")}
        return {"search": Graph(translation(task, task.config.beams), inputs), **graphs}
    if isinstance(task, TextGenerator):
        return {"search": graphs_of(task)["generate"], **graphs}
    return graphs


def vocabulary_of(tokenizer: Tokenizer) -> dict[str, Any]:
    """A vocabulary as page/vocabularies.js reads it.

    Args:
        tokenizer: any tokenizer of this package.

    Raises:
        ImportError: protobuf is not installed.
        ValueError: It is of SentencePiece with options that the page lacks.
    """
    if not isinstance(tokenizer, SentencePieceTokenizer):
        tokens, merges = byte_pairs_of(json.loads(tokenizer.serialized))
        return dict(kind="byte_level", tokens=tokens, merges=merges)
    imported("google.protobuf", "Reading a SentencePiece model", "protobuf")
    protos = imported("sentencepiece.sentencepiece_model_pb2", "Reading a SentencePiece model")
    model = protos.ModelProto.FromString(tokenizer.serialized)
    trained, form = model.trainer_spec, model.normalizer_spec
    kind = trained.ModelType.Name(trained.model_type).lower()
    known = kind in ("unigram", "bpe", "char") and form.escape_whitespaces
    check(
        known and not trained.treat_whitespace_as_suffix,
        "The format web reads vocabularies of SentencePiece's types unigram, bpe and char, in "
        "which spaces are marked before words",
        type=kind,
    )
    return dict(
        kind=kind,
        pieces=[piece.piece for piece in model.pieces],
        scores=[max(piece.score, LOWEST) for piece in model.pieces],  # JSON has no infinity
        types=[piece.type for piece in model.pieces],
        byte_fallback=trained.byte_fallback,
        unk_surface=trained.unk_surface,
        add_dummy_prefix=form.add_dummy_prefix,
        remove_extra_whitespaces=form.remove_extra_whitespaces,
        charsmap=base64.b64encode(form.precompiled_charsmap).decode(),
    )
