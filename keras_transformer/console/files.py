"""Files of a command: the model to load, and outputs that must be writable."""

import os
import pathlib
import sys

import keras

from ..tasks import Classifier, MaskFiller, Tagger, Task, TextGenerator, Translator

TRAINING_SCRIPTS = {
    Task: "scripts/train_*.py",
    Translator: "scripts/train_translation.py",
    Tagger: "scripts/train_tagger.py",
    Classifier: "scripts/train_classifier.py",
    TextGenerator: "scripts/train_language_model.py",
    MaskFiller: "scripts/pretrain_words.py",
}


def load_task(path: str | os.PathLike, kind: type[Task] = Task) -> Task:
    """Loads the task of a .keras file, or ends the process with one sentence.

    Args:
        path: the file.
        kind: `Task`, or the subclass that the file must hold.

    Raises:
        SystemExit: the file is missing, damaged or foreign, or holds another task.
    """
    path = pathlib.Path(path)
    cure = f"Train one with {TRAINING_SCRIPTS[kind]}."
    if path.is_dir():
        sys.exit(f"Expected a .keras file; received the folder {path}. Try {path / 'model.keras'}.")
    if not path.exists():
        sys.exit(f"There is no model at {path}. {cure}")
    if path.suffix == ".h5":
        sys.exit(
            f"Expected a .keras file; received {path}, which holds weights without their model. "
            "Use the model.keras of its run."
        )
    try:
        task = keras.saving.load_model(path, compile=False)
    except Exception as error:  # Keras, zipfile and h5py have an exception for each kind of damage
        sys.exit(
            f"Expected a .keras file of this package; {path} cannot be loaded "
            f"({type(error).__name__}: {first_line(error)}). {cure}"
        )
    if not isinstance(task, kind):
        sys.exit(f"Expected a {kind.__name__}; {path} holds a {type(task).__name__}. {cure}")
    return task


def first_line(error: Exception) -> str:
    """The first line of what an exception says, at most 200 characters."""
    return next(iter(str(error).strip().splitlines()), "")[:200]


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
