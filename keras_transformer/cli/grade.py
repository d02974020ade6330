"""Grade the layers, masks and functions of a Python file against the paper's formulas.

  keras-transformer grade my_layer.py
  keras-transformer grade my_layer.py Mine=multi_head_attention
  keras-transformer grade submissions/

The file is run. The kind of a function or class is guessed from its name, such as
MyMultiHeadAttention, look_ahead_mask, positional_encoding or EncoderBlock; NAME=KIND gives it. The
kinds are attention, multi_head_attention, positional_encoding, padding_mask, look_ahead_mask,
feed_forward, layer_norm, encoder_block and decoder_block. Of a folder, all Python files are graded,
in a table. The command ends with code 1 if anything is wrong. To check a saved model:
keras-transformer check.
"""

import argparse
import contextlib
import inspect
import os
import pathlib
import runpy
import sys

from . import grading


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a parser."""
    parser.add_argument("file", metavar="FILE.py", help="path of a program or folder")
    names = "function or class (default: all with a telling name); NAME=KIND gives its kind"
    parser.add_argument("names", metavar="NAME", nargs="*", help=names)


def run(options: argparse.Namespace) -> None:
    """Prints one sentence per function or class."""
    path = pathlib.Path(options.file)
    if path.suffix == ".keras":
        options.usage_error(f"{path} is a saved model: keras-transformer check {path}")
    if not path.is_dir() and (path.suffix != ".py" or not path.exists()):
        options.usage_error(f"{path} is {'not a program' if path.exists() else 'not there'}.")
    if path.is_dir():
        print("| file | right | sentence |\n|---|---|---|")
        found = [each for file in sorted(path.rglob("*.py")) for each in _row(path, file, options)]
    else:
        try:
            found = list(_grade(path, options.names))
        except (grading.CannotCheck, SystemExit) as error:
            sys.exit(_why_not(error))
        print(*(sentence for _, sentence in found), sep="\n")
    sys.exit(not all(passed for passed, _ in found))


def _row(folder, file, options):
    """Prints the lines of one file in the table, whatever its code does."""
    before = set(sys.modules)
    try:
        with _as_before():
            found = list(_grade(file, options.names))
    except (Exception, SystemExit) as error:
        found = [(False, _why_not(error))]
    for name in set(sys.modules) - before:  # the next file may import another one of this name
        if str(folder.resolve()) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    for passed, sentence in found:
        sentence = sentence.replace("|", r"\|")
        print(f"| {file.relative_to(folder)} | {'yes' if passed else 'no'} | {sentence} |")
    return found


def _why_not(error):
    """Why a file was not graded."""
    if isinstance(error, grading.CannotCheck):
        return f"{error}"
    return f"The file does not run: {type(error).__name__}: {grading.reason_of(error)}."


def _grade(path, names):
    """Yields whether a function or class of a file is right, and a sentence about it."""
    places = [*sys.path]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what the program itself prints
            found = runpy.run_path(str(path), run_name="checked")
            for name, kind in list(_chosen(path, found, names)):
                try:
                    report = grading.check_layer(found[name], kind)
                    yield report.passed, f"{report}"
                except grading.CannotCheck as error:
                    yield False, f"{name} was not examined. {error}"
    finally:
        sys.path[:] = places


@contextlib.contextmanager
def _as_before():
    """Undoes what a program changes for those after it: the current folder, and number types."""
    import keras

    folder = pathlib.Path.cwd()
    policy, number_type = keras.config.dtype_policy(), keras.config.floatx()
    try:
        yield
    finally:
        os.chdir(folder)
        keras.config.set_floatx(number_type)
        keras.config.set_dtype_policy(policy)


def _chosen(path, found, names):
    """Names of functions and classes, and their kinds: None for one that is guessed."""
    guessed = [
        name
        for name, thing in found.items()
        if getattr(thing, "__module__", None) == "checked"
        and (inspect.isfunction(thing) or inspect.isclass(thing))
        and not name.startswith("_")
        and grading.guess_kind(thing)
    ]
    if not names and not guessed:
        reason = "has no function or class whose name tells its kind; give NAME=KIND."
        raise grading.CannotCheck(f"{path} {reason}")
    for name in names or guessed:
        name, _, kind = name.partition("=")
        if name not in found:
            raise grading.CannotCheck(f"There is no {name} in {path}.")
        yield name, kind or None
