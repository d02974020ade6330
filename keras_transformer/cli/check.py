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
    summary = check_file(options.model)
    if options.json:
        print(json.dumps(dataclasses.asdict(summary)))
        return
    for name, text in summary.lines().items():
        print(f"{name:15} {text}")
