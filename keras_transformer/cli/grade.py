"""Grade the layers, masks and functions of a Python file against the paper's formulas.

  keras-transformer grade my_layer.py
  keras-transformer grade my_layer.py Mine=multi_head_attention

The file is run. The kind of a function or class is guessed from its name, such as
MyMultiHeadAttention, look_ahead_mask, positional_encoding or EncoderBlock; NAME=KIND gives it. The
kinds are attention, multi_head_attention, positional_encoding, padding_mask, look_ahead_mask,
feed_forward, layer_norm, encoder_block and decoder_block. The command ends with code 1 if anything
is wrong. To check a saved model: keras-transformer check.
"""

import argparse
import inspect
import pathlib
import runpy
import sys

from . import grading


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a parser."""
    parser.add_argument("file", metavar="FILE.py", help="path of the program")
    names = "function or class (default: all with a telling name); NAME=KIND gives its kind"
    parser.add_argument("names", metavar="NAME", nargs="*", help=names)


def run(options: argparse.Namespace) -> None:
    """Prints one sentence per function or class."""
    path = pathlib.Path(options.file)
    if path.suffix == ".keras":
        options.usage_error(f"{path} is a saved model: keras-transformer check {path}")
    if path.suffix != ".py" or not path.exists():
        options.usage_error(f"{path} is {'not a program' if path.exists() else 'not there'}.")
    sys.path.insert(0, str(path.resolve().parent))
    found = runpy.run_path(str(path), run_name="checked")
    try:
        chosen = _chosen(found, options.names)
        reports = [grading.check_layer(thing, kind) for thing, kind in chosen]
    except grading.CannotCheck as error:
        sys.exit(f"{error}")
    if not reports:
        sys.exit(f"{path} has no function or class whose name tells its kind; give NAME=KIND.")
    print(*reports, sep="\n")
    sys.exit(not all(report.passed for report in reports))


def _chosen(found, names):
    """Pairs of a function or class and its kind, None for one that is guessed."""
    if names:
        for name in names:
            name, _, kind = name.partition("=")
            if name not in found:
                raise grading.CannotCheck(f"There is no {name} in the file.")
            yield found[name], kind or None
        return
    for name, thing in found.items():
        own = getattr(thing, "__module__", None) == "checked" and not name.startswith("_")
        of_code = inspect.isfunction(thing) or inspect.isclass(thing)
        if own and of_code and grading.guess_kind(thing):
            yield thing, None
