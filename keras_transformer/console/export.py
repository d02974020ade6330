"""Export a model for another engine.

  keras-transformer export runs/en-de/model.keras --format ctranslate2 --output en-de-ctranslate2

ctranslate2: a folder for ctranslate2.Translator. It needs the package ctranslate2.
marian: a folder for transformers.MarianMTModel. It needs the package safetensors.
safetensors: the bare weights of any model, by name. It needs the package safetensors.
"""

import argparse
import pathlib
import sys

from ..exporting import FORMATS, export
from .files import load_task


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a parser."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="path of a .keras file")
    add("--format", choices=FORMATS, default="ctranslate2", help="format (default: ctranslate2)")
    kinds = sorted({kind for format in FORMATS.values() for kind in format.quantizations})
    add("--quantize", choices=kinds or None, help="number type of the weights (default: float32)")
    add("--output", metavar="PATH", help="folder to write (default: MODEL.FORMAT)")
    add("--overwrite", action="store_true", help="replacement of an existing output")


def run(options: argparse.Namespace) -> None:
    """Writes the model in the format."""
    output = pathlib.Path(options.output or f"{options.model}.{options.format}")
    if output.exists() and not options.overwrite:
        sys.exit(f"{output} exists; choose another --output, or pass --overwrite.")
    task = load_task(options.model)
    try:
        export(task, output, options.format, options.quantize, options.overwrite)
    except (ValueError, ImportError) as error:
        sys.exit(f"{error}")
    print(f"{output} holds the model for {FORMATS[options.format].engine}.")
