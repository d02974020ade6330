"""What outlives a kill: weights and optimizer after every epoch, and the log."""

import csv
import pathlib

import keras
import numpy as np

from ..arguments import check_at_least
from ..writing import write_text, written_beside


def checkpoint_paths(folder):
    """List of the epochs' files that `Checkpoint` left in a folder, oldest first."""
    return sorted(pathlib.Path(folder).glob("epoch-[0-9][0-9][0-9][0-9].weights.h5"))


class Checkpoint(keras.callbacks.Callback):
    """Saves all that training depends on after every epoch, so that a killed run resumes.

    One file an epoch holds weights and optimizer; a kill at any moment leaves the last whole one.
    What is random (dropout, the order of the batches) starts every epoch from (seed, epoch) alone:
    a resumed epoch is the epoch that would have been.

        checkpoint = Checkpoint("runs/dates/checkpoint", batches, seed=0)
        first = checkpoint.restore(model)
        model.fit(batches, epochs=8, initial_epoch=first, callbacks=[checkpoint])

    Args:
        folder: where the checkpoint lives.
        batches: what is fitted on; its `epoch` is set at the start of every epoch.
        seed: int.
        keep: int from 1, how many of the last epochs stay, for `average_checkpoints`.

    Departs: keras.callbacks.BackupAndRestore writes weights and epoch number as two files, not
    at one moment, and keeps no state of the random generators.
    """

    def __init__(self, folder, batches, seed=0, keep=1):
        super().__init__()
        check_at_least(1, keep=keep)
        self.folder = pathlib.Path(folder)
        self.batches = batches
        self.seed = seed
        self.keep = keep

    @property
    def paths(self):
        """List of the epochs' files that are there, oldest first."""
        return checkpoint_paths(self.folder)

    def restore(self, model):
        """Puts the last checkpoint, if there is one, into a compiled model.

        Returns:
            int: the number of finished epochs, for `fit(initial_epoch=...)`.
        """
        # Built within the first step, TensorFlow would trace that step twice.
        model.optimizer.build(model.trainable_variables)
        if not self.paths:
            return 0
        last = self.paths[-1]
        model.load_weights(last)
        return int(last.name[6:10])

    def on_epoch_begin(self, epoch, logs=None):
        self.batches.epoch = epoch
        if keras.backend.backend() == "torch":  # whose dropout draws from torch's own generator
            import torch

            torch.manual_seed(self.seed + epoch)
        states = [v for v in self.model.variables if v.name == "seed_generator_state"]
        seeds = np.random.SeedSequence([self.seed, epoch]).generate_state(len(states)) >> 1
        for state, seed in zip(states, seeds):
            state.assign(np.array([seed, 0], "uint32"))

    def on_epoch_end(self, epoch, logs=None):
        self.folder.mkdir(parents=True, exist_ok=True)
        with written_beside(self.folder / f"epoch-{epoch + 1:04d}.weights.h5") as beside:
            self.model.save_weights(beside, overwrite=True)
        for path in self.paths[: -self.keep]:
            path.unlink()


def average_checkpoints(model, paths):
    """Puts the mean of the weights of several checkpoints into a model.

    Args:
        model: compiled as when they were written, its optimizer built.
        paths: of weights as `Checkpoint` writes them, for instance `checkpoint.paths[-5:]`.

    Raises:
        ValueError: No path is given.

    Source: Vaswani et al. 2017, section 6.1 (base: the last 5 checkpoints, 10 minutes apart).
    """
    if not len(paths):
        raise ValueError("Expected at least one checkpoint to average; received none.")
    sums = [0.0] * len(model.trainable_variables)
    for path in paths:
        model.load_weights(path)
        sums = [
            total + keras.ops.convert_to_numpy(variable).astype("float64")
            for total, variable in zip(sums, model.trainable_variables)
        ]
    for total, variable in zip(sums, model.trainable_variables):
        variable.assign(total / len(paths))


class TrainingLog(keras.callbacks.CSVLogger):
    """keras.callbacks.CSVLogger that goes on where a resumed run begins.

    Args:
        path: the CSV file.
        initial_epoch: int, finished epochs; rows after them are of a killed epoch and dropped.

    Attributes:
        past: list of dict of str, the rows of the finished epochs.
    """

    def __init__(self, path, initial_epoch=0):
        super().__init__(path, append=True)
        path = pathlib.Path(path)
        self.past = []
        if path.exists():
            header, *rows = path.read_text().splitlines(keepends=True)
            rows = [row for row in rows if int(row.split(",")[0]) < initial_epoch]
            write_text(path, "".join([header, *rows]))
            self.past = list(csv.DictReader([header, *rows]))
