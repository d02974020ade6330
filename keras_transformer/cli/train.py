"""Train a model, from scratch or further, in a run folder that can be resumed.

  keras-transformer train translation --pairs pairs.tsv --output runs/mine

keras-transformer train TASK --help shows the options of a task.
"""

import argparse
import importlib
import pathlib
import sys

from . import summary_of

PACKAGE = pathlib.Path(__file__).parents[1]
# A wheel contains the scripts within the package, a checkout next to it.
SCRIPTS = next(
    folder
    for folder in (PACKAGE / "scripts", PACKAGE.parent / "scripts")
    if (folder / "recipes.py").exists()
)
TASKS = {
    "translation": "train_translation",
    "tagging": "train_tagger",
    "classification": "train_classifier",
    "language-model": "train_language_model",
    "words": "pretrain_words",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the name of the task; its options are those of a script."""
    parser.usage = "%(prog)s TASK ..."
    summaries = (
        f"  {task:15}{summary_of(SCRIPTS / f'{script}.py')}" for task, script in TASKS.items()
    )
    parser.epilog = "\n".join(["tasks:", *summaries])
    parser.add_argument("task", choices=TASKS, metavar="TASK", help="one of the tasks below")
    parser.set_defaults(words=[])


def run(options: argparse.Namespace) -> None:
    """Runs the script of the task with the options that follow the name of the task."""
    sys.path.insert(0, str(SCRIPTS))  # the scripts import each other by bare names
    sys.argv = [f"keras-transformer train {options.task}", *options.words]
    importlib.import_module(TASKS[options.task]).main()
