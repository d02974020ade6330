"""Train a model, prepare a corpus, use a saved model; every command explains itself.

  keras-transformer translate --help

KERAS_BACKEND=tensorflow, jax or torch selects the backend; it need not be the one that trained the
model. On JAX, compiled programs are kept for the next command; KERAS_TRANSFORMER_CACHE names their
folder, or, where it is empty, none.
"""

import ast
import atexit
import gc
import importlib
import os
import pathlib
import sys
from collections.abc import Sequence

from .parser import Parser, option_names
from .starting import keep_programs
from .streams import standard_streams

# Modules of this package; each is imported when it runs, since Keras needs seconds to start.
COMMANDS = "train translate predict evaluate average export push check grade prepare serve".split()


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command `keras-transformer`.

    Args:
        arguments: list of str, the name of a command and its options; None: those that the process
            was started with.

    Raises:
        SystemExit: with code 1 and one sentence for what cannot be done; 2 for options that
            do not exist or exclude each other; 130 for Control-C.
    """
    if arguments is None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # fewer notices of TensorFlow
        # Otherwise a process ends with a search of all objects for garbage: a second on PyTorch.
        atexit.register(gc.freeze)
    with standard_streams():
        words = sys.argv[1:] if arguments is None else list(arguments)
        of_task = words[2:] if words[:1] == ["train"] else []  # the script parses them
        if arguments is None and words[:1] != ["train"]:  # it has --compilation-cache
            keep_programs()
        command, options = _parse(words[: len(words) - len(of_task)])
        if of_task:
            options.words = of_task
        try:
            command.run(options)
        except KeyboardInterrupt:
            sys.exit(130)
        except (ValueError, ImportError) as error:
            if of_task:  # it says itself which ones its user can mend
                raise
            sys.exit(f"{error}")


def _parse(arguments):
    """The module of a command, and its options."""
    folder = pathlib.Path(__file__).parent
    summaries = (f"  {name:11}{summary_of(folder / f'{name}.py')}" for name in COMMANDS)
    parser = Parser("keras-transformer", __doc__, usage="%(prog)s COMMAND ...")
    parser.epilog = "\n".join(["commands:", *summaries])
    one = "one of the commands below"
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help=one)
    name = parser.parse_args(arguments[:1]).command
    command = importlib.import_module(f".{name}", __name__)
    parser = Parser(f"keras-transformer {name}", command.__doc__)
    parser.set_defaults(usage_error=parser.error)
    command.add_options(parser)
    try:
        given = option_names(arguments[1:])
    except ValueError as error:
        parser.error(f"{error}")
    parser.set_defaults(given=given)
    # Subparsers would refuse MODEL --beams 4 TEXT.
    return command, parser.parse_intermixed_args(arguments[1:])


def summary_of(path: pathlib.Path) -> str:
    """The first line of a module's docstring; the module is not imported."""
    return str(ast.get_docstring(ast.parse(path.read_text("utf-8")))).splitlines()[0]
