"""What survives an interruption: weights and optimizer after every epoch, and the log."""

import csv
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from .. import backend
from ..atomic import atomic_write, write_text
from ..checks import check_at_least
from .callbacks import ResumableEarlyStopping

PathLike = str | os.PathLike


def checkpoint_paths(folder: PathLike) -> list[pathlib.Path]:
    """The files that `EpochCheckpoint` left in a folder, one per epoch, oldest first."""
    return sorted(pathlib.Path(folder).glob("epoch-[0-9][0-9][0-9][0-9].weights.h5"))


class EpochCheckpoint(keras.callbacks.Callback):
    """Saves everything training depends on after every epoch, so that a killed run can be resumed.

    There is one file per epoch, for weights and optimizer together; after a kill at any moment the
    last complete one is valid. All randomness (dropout, the order of the batches) is seeded by
    (seed, epoch) as an epoch begins: a resumed epoch equals the uninterrupted one.

        checkpoint = EpochCheckpoint("runs/dates/checkpoint", batches, seed=0)
        initial_epoch = checkpoint.restore(model)
        model.fit(batches, epochs=8, initial_epoch=initial_epoch, callbacks=[checkpoint])

    Args:
        folder: path of the folder of the checkpoints.
        batches: training data; its `epoch` is set at the start of every epoch.
        seed: int.
        keep: int from 1, number of the last epochs to keep, for `average_checkpoints`.
        early_stopping: `ResumableEarlyStopping` whose best epoch is kept too; None: the last
            epochs only. In `fit` it precedes this callback.

    Raises:
        ValueError: If `keep` is below 1.

    Departs: keras.callbacks.BackupAndRestore writes weights and epoch number into two files, one
        after the other, and does not save the state of the random generators.
    """

    def __init__(
        self,
        folder: PathLike,
        batches: Any,
        seed: int = 0,
        keep: int = 1,
        early_stopping: ResumableEarlyStopping | None = None,
    ):
        super().__init__()
        check_at_least(1, keep=keep)
        self.folder = pathlib.Path(folder)
        self.batches = batches
        self.seed = seed
        self.keep = keep
        self.early_stopping = early_stopping

    @property
    def paths(self) -> list[pathlib.Path]:
        """The checkpoints, oldest first."""
        return checkpoint_paths(self.folder)

    @property
    def finished_epochs(self) -> int:
        """Number of epochs that the last checkpoint has seen; 0 without a checkpoint."""
        return int(self.paths[-1].name[6:10]) if self.paths else 0

    @property
    def best_path(self) -> pathlib.Path | None:
        """The checkpoint of the best epoch; None without early stopping or before an epoch."""
        if self.early_stopping is None or self.early_stopping.best_epoch is None:
            return None
        return self._path(self.early_stopping.best_epoch)

    def restore(self, model: keras.Model) -> int:
        """Loads the last checkpoint, if there is one, into a compiled model.

        Args:
            model: compiled keras.Model.

        Returns:
            int, the number of finished epochs, for `fit(initial_epoch=...)`.
        """
        # An optimizer that is built within the first step makes TensorFlow trace that step twice.
        model.optimizer.build(model.trainable_variables)
        if self.paths:
            model.load_weights(self.paths[-1])
        return self.finished_epochs

    def on_epoch_begin(self, epoch, logs=None):
        self.batches.epoch = epoch
        backend.seed_dropout(self.seed + epoch)
        states = [v for v in self.model.variables if v.name == "seed_generator_state"]
        seeds = np.random.SeedSequence([self.seed, epoch]).generate_state(len(states)) >> 1
        for state, seed in zip(states, seeds, strict=True):
            state.assign(np.array([seed, 0], "uint32"))

    def on_epoch_end(self, epoch, logs=None):
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(self._path(epoch)) as temporary:
            self.model.save_weights(temporary, overwrite=True)
        for path in self.paths[: -self.keep]:
            if path != self.best_path:
                path.unlink()

    def _path(self, epoch):
        return self.folder / f"epoch-{epoch + 1:04d}.weights.h5"


def average_checkpoints(model: keras.Model, paths: Sequence[PathLike]) -> None:
    """Sets the weights of a model to the mean over several checkpoints.

    Args:
        model: compiled as when they were written, its optimizer built.
        paths: weights as `EpochCheckpoint` writes them, for instance `checkpoint.paths[-5:]`.

    Raises:
        ValueError: If no path is given.

    Source: Vaswani et al. 2017, section 6.1 (base: the last 5 checkpoints, 10 minutes apart).
    """
    if not len(paths):
        raise ValueError("Expected at least one checkpoint to average; received none.")
    sums = [0.0] * len(model.trainable_variables)
    for path in paths:
        model.load_weights(path)
        sums = [
            total + keras.ops.convert_to_numpy(variable).astype("float64")
            for total, variable in zip(sums, model.trainable_variables, strict=True)
        ]
    for total, variable in zip(sums, model.trainable_variables, strict=True):
        variable.assign(total / len(paths))


class ResumableCSVLogger(keras.callbacks.CSVLogger):
    """keras.callbacks.CSVLogger that continues the file of a resumed run.

    Args:
        path: the CSV file; an empty one, as a run killed in its first epoch leaves it, is none.
        initial_epoch: int, number of finished epochs; the rows of later ones are dropped.

    Attributes:
        past: list of dict of str, the rows of the finished epochs.
    """

    def __init__(self, path: PathLike, initial_epoch: int = 0):
        super().__init__(path, append=True)
        path = pathlib.Path(path)
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        if not lines or not lines[0].startswith("epoch,"):
            path.unlink(missing_ok=True)
            lines = ["epoch"]
        rows = list(csv.DictReader(lines))
        num_finished = sum(int(row["epoch"]) < initial_epoch for row in rows)
        self.past = rows[:num_finished]
        if len(rows) > num_finished:
            write_text(path, "\n".join([*lines[: 1 + num_finished], ""]))
