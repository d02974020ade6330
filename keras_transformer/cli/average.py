"""Average the last checkpoints of a finished run of any task.

  keras-transformer average runs/en-de --last 3 --output runs/en-de/average-3.keras

The mean of the weights of several checkpoints is often better than each of them (Vaswani et al.
2017, section 6.1). A training script with --average N keeps the last N checkpoints and saves their
mean as model.keras; this command averages them again, without training. Compare the results on the
validation set.
"""

import argparse
import pathlib
import sys

from ..atomic import check_files
from ..checks import first_line
from .files import load_task


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a parser."""
    add = parser.add_argument
    add("run", metavar="RUN", help="folder of a finished run")
    add("--last", type=int, metavar="N", help="number of checkpoints (default: all of the run)")
    add("--output", metavar="FILE", help=".keras file to write (default: RUN/average-N.keras)")


def run(options: argparse.Namespace) -> None:
    """Writes the mean as a model file."""
    if options.output is not None and not options.output.endswith(".keras"):
        options.usage_error(f"--output must end in .keras; received {options.output!r}.")
    from .. import training  # with Keras, for which --help does not wait

    folder = pathlib.Path(options.run)
    if not folder.is_dir():
        sys.exit(f"{folder}: no such run. Give the folder of one.")
    paths = training.checkpoint_paths(folder / "checkpoint")
    last = len(paths) if options.last is None else options.last
    if not 2 <= last <= len(paths):
        received = "" if options.last is None else f"; received --last {last}"
        sys.exit(
            f"{folder} has checkpoints of {len(paths)} epochs, and a mean needs two or more"
            f"{received}. Train with --average N to keep those of the last N."
        )
    paths = paths[-last:]
    output, model = options.output or folder / f"average-{last}.keras", folder / "model.keras"
    check_files({"--output": output}, {"the model of the run": model})
    task = load_task(model)
    try:
        training.average_checkpoints(_trained_model(task, folder), paths)
    except (ValueError, OSError, KeyError) as error:
        reason = first_line(error)
        sys.exit(f"The checkpoints and settings of {folder} must fit its model.keras: {reason}")
    task.save(output)
    print(f"{output} holds the mean of {', '.join(path.name for path in paths)}.")


def _trained_model(task, folder):
    """The model of a task as it was trained: alone, or within another one."""
    from .. import training

    arguments = training.run.read_settings(folder / "settings.json")["arguments"]
    wrapped = {
        "r_drop": training.RDrop,
        "simcut": training.SimCut,
        "logits_in_pieces": training.ChunkedLogits,
    }
    for name, model_of in wrapped.items():
        if arguments.get(name):
            return model_of(task.model, arguments[name])
    return task.model
