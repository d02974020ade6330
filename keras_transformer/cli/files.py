"""Files of a command: the model to load, and outputs that must be writable."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence

from .. import interchange, tasks
from ..atomic import check_files
from ..checks import check
from ..tasks import addresses, pretrained, saved_files
from .starting import import_keras

MODEL, TRANSLATOR = (
    f".keras file, or one of {', '.join(names)}, which come with the package; or an address, "
    "hf://USER/MODEL or https://URL#sha256=HEX"
    for names in (pretrained.NAMES, ("dates", "zh-en"))
)
TRAINED = {  # the name of each task in keras-transformer train
    "Task": "",
    "Translator": " translation",
    "Tagger": " tagging",
    "Classifier": " classification",
    "TextGenerator": " language-model",
    "MaskFiller": " words",
}


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Adds the option --engine."""
    faster = "ctranslate2, which is faster on a CPU; ctranslate2-int8, which changes some answers"
    auto = "auto, ctranslate2 where it is installed and answers the same"
    text = f"what decodes: keras; {faster}; {auto} (default: keras)"
    add = parser.add_argument
    add("--engine", choices=interchange.ENGINES, default="keras", metavar="NAME", help=text)


def load_task(
    path: str | os.PathLike,
    kind: str = "Task",
    engine: str = "keras",
    ensemble: Sequence[str | os.PathLike] = (),
    option: str = "--ensemble",
) -> "tasks.Task":
    """Loads a task, or ends the process with one sentence.

    Args:
        path: the file, its address, or a name in `keras_transformer.tasks.pretrained`.
        kind: "Task", or the name of the subclass that the file must hold.
        engine: what decodes, see `interchange.set_engine`.
        ensemble: other translators that decode together with this one.
        option: the option that names them, for errors.

    Raises:
        ImportError, ValueError: the engine is not installed, or cannot hold the task.
        SystemExit: the file is missing, damaged or foreign, or holds another task.
    """
    of_keras = not (ensemble and engine.startswith("ctranslate2"))
    check(of_keras, "Keras alone decodes an ensemble, so leave out --engine", engine=engine)
    cure = f"Train one with keras-transformer train{TRAINED[kind]}."
    import_keras()
    try:
        task = saved_files.load(path)
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"{error}" if addresses.is_address(path) else f"{error} {cure}")
    if not isinstance(task, getattr(tasks, kind)):
        sys.exit(f"Expected a {kind}; {path} holds a {type(task).__name__}. {cure}")
    if ensemble:
        others = [load_task(each, kind) for each in ensemble]
        try:
            task = tasks.Translator.ensemble([task, *others])
        except ValueError as error:
            sys.exit(f"{option} {' '.join(map(str, ensemble))}: {error}")
    if engine != "keras":
        interchange.set_engine(task, engine)
    return task


def check_used(options: argparse.Namespace, unused: Mapping[str, str]) -> None:
    """Ends the process if an option was given that this combination does not use.

    Args:
        options: those of the command.
        unused: the options that are not used, by name, each with what it needs.

    Raises:
        SystemExit: one of them was given.
    """
    for name, use in unused.items():
        if name.removeprefix("no_") in options.given:
            option = "--" + name.replace("_", "-")
            options.usage_error(f"{option} would not be used: it needs {use}.")


def check_outputs(
    options: argparse.Namespace, outputs: Sequence[str], inputs: Sequence[str] = ()
) -> None:
    """Refuses, before the work, a file that could not or must not be written after it.

    Args:
        options: those of the command; "model" is also an input.
        outputs: the names of those that name files to write.
        inputs: the names of those that name files to read.

    Raises:
        ValueError, OSError: see `atomic.check_files`.
    """
    read = {f"--{name}": getattr(options, name) for name in inputs}
    read["the model"] = pretrained.find(options.model)
    ensemble = getattr(options, "ensemble", ())
    read |= {f"--ensemble {each}": pretrained.find(each) for each in ensemble}
    check_files({f"--{name}": getattr(options, name) for name in outputs}, read)
