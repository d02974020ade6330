"""Checkpoints: weights and optimizer after every epoch, and within one."""

import math
import os
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from .. import backend
from ..atomic import atomic_write, check_space, named, remove_unfinished
from ..backend import distribution
from ..checks import check, check_at_least, check_optional
from . import weight_files
from .callbacks import ResumableEarlyStopping

PathLike = str | os.PathLike


def checkpoint_paths(folder: PathLike) -> list[pathlib.Path]:
    """The files that `EpochCheckpoint` left in a folder, one per epoch, oldest first."""
    paths = pathlib.Path(folder).glob("epoch-*.weights.h5")
    whole = (path for path in paths if re.fullmatch(r"epoch-\d{4,}\.weights\.h5", path.name))
    return sorted(whole, key=_numbers)


def _numbers(path):
    """The epoch in the name of a checkpoint, and the batch if it was saved within one."""
    return [int(number) for number in re.findall(r"-(\d+)", path.name)]


class EpochCheckpoint(keras.callbacks.Callback):
    """Saves everything training depends on after every epoch, so that a killed run can be resumed.

    There is one file per epoch, for weights and optimizer together, with a checksum; `save_within`
    and `every` add one in the middle of an epoch. A file is flushed to disk and read back before
    older ones are removed; a file that is damaged later is skipped. All randomness
    (dropout, the order of the batches) is seeded by (seed, epoch) as an epoch begins, and saved
    within one: a resumed run equals the uninterrupted one.

        checkpoint = EpochCheckpoint("runs/dates/checkpoint", batches, seed=0)
        for span in checkpoint.restore(model, epochs=8):
            model.fit(batches, **span, callbacks=[checkpoint], shuffle=False)

    Args:
        folder: path of the folder of the checkpoints.
        batches: training data; its `epoch` is set at the start of every epoch, and its
            `first_batch`, if it has one, to resume within an epoch.
        seed: int.
        keep: int from 1, number of the last epochs to keep, for `average_checkpoints`; two are
            kept in any case.
        early_stopping: `ResumableEarlyStopping` whose best epoch is kept too; None: the last
            epochs only. In `fit` it may follow this callback.
        every: int from 1, batches within an epoch after which it also saves; None: never. It needs
            `batches` with a `first_batch`.

    Raises:
        ValueError: If `keep` or `every` is below 1.

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
        every: int | None = None,
    ):
        super().__init__()
        check_at_least(1, keep=keep)
        check_optional(1, every=every)
        self.folder = named(folder, "The folder of checkpoints")
        self.batches = batches
        self.seed = seed
        self.keep = max(2, keep)  # should the last one be damaged, there is one before it
        self.early_stopping = early_stopping
        self.every = every
        self._splits_epochs = hasattr(batches, "first_batch")
        self._dropout_state: np.ndarray | None = None
        if distribution.is_first_process():
            for name in ("epoch-1", "epoch-1-batch-1"):  # of whatever numbers
                remove_unfinished(self.folder / f"{name}.weights.h5")
            weight_files.quarantine_damaged(self.paths)
            weight_files.quarantine_damaged(self._paths_within(self.finished_epochs))
        distribution.wait_for_all()

    @property
    def paths(self) -> list[pathlib.Path]:
        """The checkpoints of whole epochs, oldest first."""
        return checkpoint_paths(self.folder)

    @property
    def finished_epochs(self) -> int:
        """Number of epochs that the last checkpoint has seen; 0 without a checkpoint."""
        return _numbers(self.paths[-1])[0] if self.paths else 0

    @property
    def best_path(self) -> pathlib.Path | None:
        """The checkpoint of the best epoch; None without early stopping or before an epoch."""
        best = getattr(self.early_stopping, "best_epoch", None)
        return None if best is None else self._path(best)

    def restore(self, model: keras.Model, epochs: int) -> Iterator[dict[str, int]]:
        """Loads the last checkpoint, if there is one, into a compiled model.

        Args:
            model: compiled keras.Model.
            epochs: int, number of epochs in total.

        Returns:
            Iterator of "initial_epoch" and "epochs" for `fit`: first the rest of an epoch in which
            the run was interrupted, then all whole ones.

        Raises:
            OSError: There is no room for the checkpoints.
        """
        model.optimizer.build(model.trainable_variables)  # whose variables are counted and loaded
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        if distribution.is_first_process():
            missing = max(1, self.keep + 1 - len(self.paths))  # the oldest goes after the next
            check_space(self.folder, _num_bytes(model), missing)
        if self.paths:
            load_checkpoint(model, self.paths[-1])
        if self._paths_within(self.finished_epochs):  # TensorFlow makes metrics on demand
            model.test_on_batch(*distribution.own_rows(self.batches)[0])
        return self._spans(model, self.finished_epochs, epochs)

    def _spans(self, model, first, epochs):
        model.stop_training = False
        within = self._paths_within(first)
        if within and first < epochs:
            _, self.batches.first_batch = _numbers(within[-1])
            yield {"initial_epoch": first, "epochs": first + 1}
            load_checkpoint(model, self._path(first))  # not the moving average that `fit` sets
            first = epochs if model.stop_training else first + 1
        # Even with no epoch left: `fit` applies the moving average at its end.
        yield {"initial_epoch": min(first, epochs), "epochs": epochs}

    def save_within(self, epoch: int, batch: int) -> bool:
        """Saves in the middle of an epoch, after one of its batches.

        Args:
            epoch: int from 0.
            batch: int from 0, as `on_train_batch_end` receives it.

        Returns:
            bool, whether it was saved: the last two batches of an epoch are left to `on_epoch_end`,
            and so is all of it where `batches` cannot begin within one.
        """
        # With one batch left, TensorFlow would take its shape for that of all.
        if not self._splits_epochs or batch + 2 >= self.batches.num_batches:
            return False
        num_done = self.batches.first_batch + batch + 1
        dropout_state = distribution.gather(backend.dropout_state())
        if distribution.is_first_process():
            path = self.folder / f"epoch-{epoch:04d}-batch-{num_done:07d}.weights.h5"
            before = [each for each in self._paths_within(epoch) if each != path]
            with distribution.alone(self.model):
                variables = [*self._seeds(), *self.model.metrics_variables]
                values = [ops.convert_to_numpy(variable) for variable in variables]
                self._save(path, {"variables": values, "dropout": dropout_state})
            weight_files.remove_written(before)
        distribution.wait_for_all()
        return True

    def on_epoch_begin(self, epoch, logs=None):
        self.batches.epoch = self._epoch = epoch
        self._done = self.batches.first_batch if self._splits_epochs else 0
        backend.seed_dropout(distribution.own_seed(self.seed + epoch))
        states = self._seeds()
        seeds = np.random.SeedSequence([self.seed, epoch]).generate_state(len(states))
        for state, seed in zip(states, seeds, strict=True):
            state.assign(np.array([seed >> 1, 0], "uint32"))  # below 2**31, as Keras's own seeds
        if self._splits_epochs and self.batches.first_batch:
            self._continue_from(self._paths_within(epoch)[-1])

    def on_train_batch_begin(self, batch, logs=None):
        if self._dropout_state is not None:  # the PyTorch DataLoader also draws a number
            backend.set_dropout_state(self._dropout_state)
            self._dropout_state = None

    def on_train_batch_end(self, batch, logs=None):
        if not self.every:
            return
        done = self.batches.first_batch + batch + 1  # with `steps_per_execution` not each number
        if done // self.every > self._done // self.every:
            self.save_within(self._epoch, batch)
        self._done = done

    def on_epoch_end(self, epoch, logs=None):
        if distribution.is_first_process():
            with distribution.alone(self.model):
                self._save(self._path(epoch))
            old = [path for path in self.paths[: -self.keep] if path != self.best_path]
            within = self.folder.glob("epoch-*-batch-*.weights.h5")
            weight_files.remove_written([*old, *within])
        distribution.wait_for_all()
        if self._splits_epochs:
            self.batches.first_batch = 0

    def _save(self, path, state=None):
        self.folder.mkdir(parents=True, exist_ok=True)
        check_space(path, _num_bytes(self.model))
        adapted = [ops.convert_to_numpy(v) for v in _adapted_variables(self.model)]
        with atomic_write(path) as temporary:
            self.model.save_weights(temporary, overwrite=True)
            weight_files.add_checksum(temporary, {"adapted": adapted, **(state or {})})
            weight_files.check_weights(temporary)

    def _continue_from(self, path):
        """Continues an epoch after the batches that a checkpoint within it has seen."""
        state = load_checkpoint(self.model, path)
        variables = [*self._seeds(), *self.model.metrics_variables]
        for variable, value in zip(variables, state["variables"], strict=True):
            variable.assign(value)
        self._dropout_state = distribution.own(state.get("dropout"))

    def _seeds(self):
        """The state of each dropout; PyTorch ignores them."""
        return [v for v in self.model.variables if v.name == "seed_generator_state"]

    def _path(self, epoch):
        return self.folder / f"epoch-{epoch + 1:04d}.weights.h5"

    def _paths_within(self, epoch):
        return sorted(self.folder.glob(f"epoch-{epoch:04d}-batch-*.weights.h5"), key=_numbers)


def _num_bytes(model):
    """The most that a checkpoint of a compiled model takes."""
    variables = {id(v): v for v in (*model.variables, *model.optimizer.variables)}
    return sum(math.prod(v.shape) * 4 + 8192 for v in variables.values())


def load_checkpoint(model: keras.Model, path: PathLike) -> dict[str, Any]:
    """Loads a file of `EpochCheckpoint` into a model that is compiled in the same way.

    Keras merges LoRA's low-rank updates into their layers' weights when it saves them, so that all
    of these are stored a second time, as they were.

    Args:
        model: compiled keras.Model, its optimizer built.
        path: the file.

    Returns:
        dict, the further content of the file; see `weight_files.read_state`.
    """
    model.load_weights(path)
    state = weight_files.read_state(path)
    for variable, value in zip(_adapted_variables(model), state.get("adapted", []), strict=True):
        variable.assign(value)
    return state


def _adapted_variables(model):
    """All weights of each layer with LoRA, such as the scales of a quantized one."""
    return [weight for layer in backend.layers_with_lora(model) for weight in layer.weights]


def average_checkpoints(model: keras.Model, paths: Iterable[PathLike]) -> None:
    """Sets the weights of a model to the mean over several checkpoints.

    LoRA's updates are merged into their kernels: the mean of products is not the product of means.

    Args:
        model: of the same layers, compiled or not.
        paths: weights as `EpochCheckpoint` writes them, for instance `checkpoint.paths[-5:]`.

    Raises:
        ValueError: No path is given, a file is damaged, or the model is quantized: the mean of
            integers and of their scales is not the mean of weights.

    Source: Vaswani et al. 2017, section 6.1 (base: the last 5 checkpoints, 10 minutes apart).
    """
    paths = list(paths)
    check(paths, "Expected at least one checkpoint to average", paths=paths)
    quantized = backend.adaptations(model)["quantized"]
    check(not quantized, "A quantized model has no mean", quantized_layers=len(quantized))
    sums = [0.0] * len(model.weights)
    for path in paths:
        weight_files.check_weights(path)
        model.load_weights(path)
        sums = [
            total + ops.convert_to_numpy(weight).astype("float64")
            for total, weight in zip(sums, model.weights, strict=True)
        ]
    for total, weight in zip(sums, model.weights, strict=True):
        weight.assign(total / len(paths))
