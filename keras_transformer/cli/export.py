"""Export a model for another engine.

  keras-transformer export runs/en-de/model.keras --format saved_model
  keras-transformer export runs/en-de/model.keras --format ctranslate2 --quantize int8

ctranslate2: translators and text generators, for the fastest decoding on CPUs and GPUs.
saved_model: texts in, texts out, for TensorFlow and TensorFlow Serving.
onnx: ids in, ids out, the search within the graph; for ONNX Runtime and others.
litert: the same for phones and other small machines.
keras: a .keras file, with --quantize float16 half as large, with int8 smaller still.
marian: a translator as a folder for transformers.MarianMTModel.
safetensors: the bare weights of any model, by name.
web: a static page that runs any model in the reader's browser; it needs --runtime (docs/web.md).

docs/exporting.md compares them. saved_model, onnx, litert and web are written by TensorFlow; the
model may have been trained on any backend.
"""

import argparse
import os
import subprocess
import sys
from typing import Any

from .. import backend
from ..atomic import check_folder
from ..interchange import FORMATS, checked_format, export
from ..tasks import addresses, pretrained
from .files import MODEL, check_used, load_task

AGAIN = "from keras_transformer.cli import main; main()"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a parser."""
    add = parser.add_argument
    add("model", metavar="MODEL", help=MODEL)
    add("--format", choices=FORMATS, default="ctranslate2", help="format (default: ctranslate2)")
    kinds = sorted({kind for format in FORMATS.values() for kind in format.quantizations})
    add("--quantize", choices=kinds, help="number type of the weights (default: float32)")
    add("--output", metavar="PATH", help="folder to write (default: MODEL.FORMAT)")
    add("--runtime", metavar="FOLDER", help="npm package onnxruntime-web, for --format web")
    add("--overwrite", action="store_true", help="replacement of an earlier export")


def run(options: argparse.Namespace) -> None:
    """Writes the model in the format."""
    output = options.output
    if output is None:
        output = f"{addresses.local_name(options.model)}.{options.format}"
    model = pretrained.find(options.model)
    check_folder(output, "--output", options.overwrite, inputs=[model])
    format = checked_format(options.format, options.quantize)
    page = {}
    if options.format == "web":
        from ..interchange.web.exporting import check_runtime

        check_runtime(options.runtime)
        page = {"runtime": options.runtime, "name": addresses.model_name(options.model)}
    else:
        check_used(options, {"runtime": "--format web"})
    if format.backend not in (None, backend.name()):
        _run_again(options, output, format)
        return
    task, quantization = load_task(options.model), options.quantize
    export(task, output, options.format, quantization, options.overwrite, **page)
    print(f"{output} holds the model for {format.engine}.")


def _run_again(options, output, format):
    """Runs the same command in a process with the backend that the format needs."""
    arguments = ["export", options.model, f"--format={options.format}", f"--output={output}"]
    arguments += [f"--quantize={options.quantize}"] if options.quantize else []
    arguments += [f"--runtime={options.runtime}"] if options.runtime else []
    arguments += ["--overwrite"] if options.overwrite else []
    environment = {**os.environ, "KERAS_BACKEND": format.backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", AGAIN, *arguments]
    text: Any = {"text": True, "encoding": "utf-8", "errors": "replace"}
    done = subprocess.run(command, env=environment, capture_output=True, **text)
    if not done.returncode:
        print(done.stdout.strip())
        return
    test = [sys.executable, "-c", f"import {format.backend}"]
    if subprocess.run(test, capture_output=True).returncode:
        sys.exit(
            f"The export for {format.engine} is written by TensorFlow, which is not installed; "
            "install it with pip install tensorflow."
        )
    reason = done.stderr.strip() or f"The process ended with {done.returncode}."
    sys.exit(reason if "Traceback" in reason else reason.splitlines()[-1])
