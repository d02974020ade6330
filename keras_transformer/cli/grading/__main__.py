"""Mark the layers, masks and functions of a Python file against the paper's formulas.

  python -m keras_transformer.cli.grading my_layer.py

The file is run. What its functions and classes are is guessed from their names, such as
MyMultiHeadAttention, look_ahead_mask, positional_encoding or EncoderBlock; NAME=KIND tells it. It
ends with code 1 if anything is wrong. Saved models are checked by another command:
keras-transformer check MODEL.keras.
"""

import argparse
import inspect
import pathlib
import runpy
import sys
from collections.abc import Sequence

from ..streams import standard_streams
from . import KINDS, CannotCheck, check_layer, guess_kind


@standard_streams()
def main(arguments: Sequence[str] | None = None) -> None:
    """Prints one sentence per function or class.

    Args:
        arguments: list of str; None: those that the process was started with.

    Raises:
        SystemExit: with code 1 if something is wrong or nothing is found; 2 for bad options.
    """
    parser = argparse.ArgumentParser(
        prog="python -m keras_transformer.cli.grading",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE.py", help="path of the program")
    names = "function or class to check (default: all with a telling name); NAME=KIND gives one of "
    parser.add_argument("names", metavar="NAME", nargs="*", help=names + ", ".join(KINDS))
    options = parser.parse_args(arguments)
    path = pathlib.Path(options.file)
    if path.suffix != ".py" or not path.exists():
        kind = "a saved model: keras-transformer check" if path.suffix == ".keras" else "no program"
        parser.exit(2, f"{path} is {kind if path.exists() else 'not there'}.\n")
    sys.path.insert(0, str(path.resolve().parent))
    found = runpy.run_path(str(path), run_name="checked")
    try:
        reports = [check_layer(thing, kind) for thing, kind in _chosen(found, options.names)]
    except CannotCheck as error:
        sys.exit(f"{error}")
    if not reports:
        sys.exit(f"{path} has no function or class whose name tells its kind; give NAME=KIND.")
    print(*reports, sep="\n")
    sys.exit(not all(report.passed for report in reports))


def _chosen(found, names):
    """Pairs of what to check and its kind, None for one that is guessed."""
    if names:
        for name in names:
            name, _, kind = name.partition("=")
            if name not in found:
                raise CannotCheck(f"There is no {name} in the file.")
            yield found[name], kind or None
        return
    for name, thing in found.items():
        own = getattr(thing, "__module__", None) == "checked" and not name.startswith("_")
        if own and (inspect.isfunction(thing) or inspect.isclass(thing)) and guess_kind(thing):
            yield thing, None


if __name__ == "__main__":
    main()
