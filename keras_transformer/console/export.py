"""Export a translation model for another engine.

  keras-transformer export runs/en-de/model.keras --format ctranslate2 --output en-de-ctranslate2

ctranslate2: a folder for ctranslate2.Translator, with weights in float32. It needs the package
ctranslate2.
"""

import argparse
import pathlib
import sys

from ..export import to_ctranslate2
from ..tasks import Translator
from .files import load_task

FORMATS = {"ctranslate2": to_ctranslate2}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a parser."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="translation model: path of a .keras file")
    add("--format", choices=FORMATS, default="ctranslate2", help="engine (default: ctranslate2)")
    add("--output", metavar="PATH", help="folder to write (default: MODEL.FORMAT)")
    add("--overwrite", action="store_true", help="replacement of an existing output")


def run(options: argparse.Namespace) -> None:
    """Writes the model in the format."""
    output = pathlib.Path(options.output or f"{options.model}.{options.format}")
    if output.exists() and not options.overwrite:
        sys.exit(f"{output} exists; choose another --output, or pass --overwrite.")
    translator = load_task(options.model, Translator)
    try:
        FORMATS[options.format](translator, output, overwrite=options.overwrite)
    except (ValueError, ImportError) as error:
        sys.exit(f"{error}")
    print(f"{output} holds the model for {options.format}.")
