"""Check a saved model without running it, and say what it holds.

  keras-transformer check runs/en-de/model.keras

It ends with code 1 and one sentence if the file is damaged, was altered after it was saved, or
holds anything but a model of this package whose values, weights and vocabulary fit together.
"""

import argparse
import dataclasses
import json
import sys

from ..tasks.saved_files import check_file
from .files import MODEL


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a parser."""
    add = parser.add_argument
    add("model", metavar="MODEL", help=MODEL)
    add("--json", action="store_true", help="one JSON object instead of lines")


def run(options: argparse.Namespace) -> None:
    """Prints what the file holds."""
    if options.model.endswith(".py"):
        sys.exit(
            f"{options.model} is a program, not a saved model; to mark layers that you have "
            f"written: keras-transformer grade {options.model}"
        )
    summary = dataclasses.asdict(check_file(options.model))
    if options.json:
        print(json.dumps(summary))
        return
    for name, value in summary.items():
        print(f"{name.replace('_', ' '):15} {_text(value)}")


def _text(value):
    if isinstance(value, dict):
        return ", ".join(f"{name}={_text(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
