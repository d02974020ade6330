"""Files of a command: the model to load, and outputs that must be writable."""

import argparse
import os
import pathlib
import sys
from collections.abc import Mapping

from .. import pretrained
from ..saved_files import load
from ..tasks import Classifier, MaskFiller, Tagger, Task, TextGenerator, Translator

MODEL = f".keras file, or one of {', '.join(pretrained.NAMES)}, which come with the package"
TRAINING_SCRIPTS = {
    Task: "scripts/train_*.py",
    Translator: "scripts/train_translation.py",
    Tagger: "scripts/train_tagger.py",
    Classifier: "scripts/train_classifier.py",
    TextGenerator: "scripts/train_language_model.py",
    MaskFiller: "scripts/pretrain_words.py",
}


def load_task(path: str | os.PathLike, kind: type[Task] = Task) -> Task:
    """Loads a task, or ends the process with one sentence.

    Args:
        path: the file, or a name in `keras_transformer.pretrained`.
        kind: `Task`, or the subclass that the file must hold.

    Raises:
        SystemExit: the file is missing, damaged or foreign, or holds another task.
    """
    cure = f"Train one with {TRAINING_SCRIPTS[kind]}."
    try:
        task = load(path)
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"{error} {cure}")
    if not isinstance(task, kind):
        sys.exit(f"Expected a {kind.__name__}; {path} holds a {type(task).__name__}. {cure}")
    return task


def check_used(options: argparse.Namespace, unused: Mapping[str, str]) -> None:
    """Ends the process if an option was given that this combination does not use.

    Args:
        options: those of the command.
        unused: the options that are not used, by name, each with what it needs.

    Raises:
        SystemExit: one of them was given.
    """
    for name in options.given:
        if name in unused:
            option = "--" + name.replace("_", "-")
            options.usage_error(f"{option} would not be used: it needs {unused[name]}.")


def check_output(option: str, path: str | os.PathLike) -> None:
    """Ends the process before the work if a file could not be written after it.

    Args:
        option: str, the name of the option, for the sentence.
        path: the file to write.

    Raises:
        SystemExit: the path is a folder, or not in a folder with write access.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        sys.exit(f"{option} must name a file; received the folder {path}.")
    if not path.parent.is_dir():
        sys.exit(f"{option} must name a file in an existing folder; there is no {path.parent}.")
    if not os.access(path.parent, os.W_OK):
        sys.exit(f"{option} must name a file in a writable folder; received {path}.")
