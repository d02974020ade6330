"""Files of a command: the model to load, and outputs that must be writable."""

import os
import pathlib
import sys

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
