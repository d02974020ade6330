"""Callbacks: progress, the log, validation scores, samples and early stopping."""

import csv
import math
import os
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from ..atomic import check_space, rename_damaged, write_text
from ..backend import distribution
from ..checks import check, check_at_least


class Progress(keras.callbacks.Callback):
    """Logs real target tokens per second, and shows the minutes left in the progress bar.

    The log of an epoch also has its seconds, without validation; of one that was resumed within, as
    many as it takes at the speed of its rest. The estimate covers the remaining epochs of this call
    of `fit`, at the speed of the current one.

    Args:
        batches: `TranslationBatches`, or anything with a length and `num_tokens` per epoch.
    """

    def __init__(self, batches: Any):
        super().__init__()
        self.batches = batches

    def on_epoch_begin(self, epoch, logs=None):
        self.tokens_per_batch = self.batches.num_tokens / len(self.batches)
        self.epochs_after = self.params["epochs"] - epoch - 1
        self.start = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        elapsed, done = time.perf_counter() - self.start, batch + 1
        left = self.epochs_after * len(self.batches) + self.params["steps"] - done
        self.rate = done * self.tokens_per_batch / elapsed
        logs["tokens_per_second"] = self.rate
        logs["minutes_left"] = left / done * elapsed / 60

    def on_epoch_end(self, epoch, logs=None):
        logs["tokens_per_second"] = self.rate
        logs["seconds"] = self.batches.num_tokens / self.rate


class ResumableCSVLogger(keras.callbacks.CSVLogger):
    """keras.callbacks.CSVLogger that continues the file of a resumed run.

    Args:
        path: the CSV file; it may be missing, or empty after a kill in the first epoch.
        initial_epoch: int, number of finished epochs; the rows of later ones are dropped.

    Raises:
        ValueError: The file is not a log of epochs.

    Attributes:
        past: list of dict of str, the rows of the finished epochs.
    """

    def __init__(self, path: str | os.PathLike, initial_epoch: int = 0):
        self._writes = distribution.is_first_process()
        super().__init__(path if self._writes else os.devnull, append=True)
        path = pathlib.Path(path)
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        has_rows = bool(lines) and lines[0].startswith("epoch,")
        expected = f"{path} must be a log of epochs, whose first column is epoch, or be empty"
        check(_is_log(lines), expected, first_line="".join(lines[:1])[:80])
        rows = list(csv.DictReader(lines if has_rows else ["epoch"]))
        whole = [row for row in rows if None not in row.values()]  # a kill may cut one short
        finished = [row["epoch"].isdecimal() and int(row["epoch"]) < initial_epoch for row in whole]
        self.past = rows[: sum(finished)]
        distribution.wait_for_all()  # until each has read it
        if self._writes and lines and not has_rows:
            rename_damaged(path)
        elif self._writes and len(rows) > len(self.past):
            write_text(path, "\n".join([*lines[: 1 + len(self.past)], ""]))

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        if self.past:  # perhaps of an older version, which logged less
            self.keys = [name for name in self.past[0] if name not in ("epoch", None)]

    def on_epoch_end(self, epoch, logs=None):
        if self._writes:
            check_space(self.filename, 4096)
        super().on_epoch_end(epoch, logs)


def _is_log(lines):
    """Whether the lines of a file are those of a log, perhaps without its header."""
    if not any(map(str.strip, lines)) or lines[0].startswith("epoch,"):
        return True
    if len(lines) == 1 and lines[0] and "epoch".startswith(lines[0]):
        return True  # a crash of the machine cut it short
    epochs = [line.partition(",")[0] for line in lines]
    start = int(epochs[0]) if epochs[0].isdecimal() else 0
    return epochs == [str(start + number) for number in range(len(lines))]


class TerminateOnNonFinite(keras.callbacks.Callback):
    """Ends training at the first update whose loss is infinite or not a number.

    Before the callbacks that write, so that nothing of that update is saved.

    Args:
        checkpoint: `EpochCheckpoint` of the training; None: the error says nothing of checkpoints.

    Raises:
        FloatingPointError: In `fit`; it names the update, the learning rate and the gradient.

    Departs: keras.callbacks.TerminateOnNaN lets the epoch end, and its weights be saved.
    """

    def __init__(self, checkpoint: Any = None):
        super().__init__()
        self.checkpoint = checkpoint

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        self._check(logs, "loss", f"at batch {batch + 1} of epoch {self.epoch + 1}")

    def on_epoch_end(self, epoch, logs=None):
        self._check(logs, "val_loss", f"after epoch {epoch + 1}")

    def _check(self, logs, name, when):
        value = float((logs or {}).get(name, 0.0))
        if math.isfinite(value):
            return
        optimizer = self.model.optimizer
        saved = self.checkpoint is not None and self.checkpoint.paths
        raise FloatingPointError(
            f"The {name} is {value} {when} (learning rate {float(optimizer.learning_rate):.3g}, "
            f"norm of the mean gradient {_mean_gradient(optimizer):.3g}). "
            + (f"{saved[-1]} is intact. " if saved else "")
            + "Start again with a lower learning rate, a longer warm-up or clipped gradients."
        )


def _mean_gradient(optimizer):
    """The norm of the optimizer's running mean of the gradients."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # within loss scaling
    is_muon = isinstance(optimizer, keras.optimizers.Muon)
    paths, squares = {variable.path for variable in optimizer.variables}, 0.0
    for variable in optimizer.variables:
        if variable.path.endswith("_momentum"):
            mean = keras.ops.convert_to_numpy(variable).astype("float64")
            if is_muon and variable.path.replace("_momentum", "_velocity") not in paths:
                mean *= 1 - optimizer.momentum  # a sum, with the weights 1, 0.95, 0.95^2, ...
            squares += np.square(mean).sum()
    return math.sqrt(squares)


class ValidationScore(keras.callbacks.Callback):
    """Translates the same sentences after every epoch and logs a score of the translations.

    Place it before the callbacks that read the log. An error does not cost the epoch: the log gets
    NaN, and the error is raised once the other callbacks have seen the end of the epoch.

    Args:
        translator: a `Translator` over the model in training.
        examples: `Examples` outside the training data.
        score: function of translations and references, such as `evaluation.bleu`; returns a number
            or an object with a `value`.
        number: int, maximum number of examples, evenly spaced over all.
        name: str, key in the log.
    """

    def __init__(
        self,
        translator: Any,
        examples: Any,
        score: Callable[[Sequence[str], Sequence[str]], Any],
        number: int = 200,
        name: str = "val_bleu",
    ):
        super().__init__()
        self.translator, self.score, self.name = translator, score, name
        self.source, self.target = (evenly_spaced(side, number) for side in examples)
        self._error: Exception | None = None

    def on_epoch_end(self, epoch, logs=None):
        value = math.nan
        try:
            with distribution.alone(self.model):
                score = self.score(self.translator.translate(self.source), self.target)
            value = float(getattr(score, "value", score))
        except Exception as error:  # raised once the checkpoint of the epoch is written
            self._error = error
        logs[self.name] = distribution.of_first_process(value)

    def on_epoch_begin(self, epoch, logs=None):
        error, self._error = self._error, None
        if error is not None:
            raise error

    def on_train_end(self, logs=None):
        self.on_epoch_begin(0)


class ResumableEarlyStopping(keras.callbacks.Callback):
    """Stops training once a logged number has not improved for `patience` epochs.

    Args:
        monitor: str, key in the log, such as "val_perplexity".
        patience: int from 1, epochs.
        mode: "min" or "max", whether smaller or larger is better.
        past: list of dict, the logs of the epochs before a resumption, each with its "epoch".

    Raises:
        ValueError: If `patience` or `mode` is out of range. In `fit`: the log does not have the
            number, for instance since there are no validation data.

    Departs: keras.callbacks.EarlyStopping starts counting again when a run is resumed, and trains
        one more batch of a run that was stopped. The best weights are kept by `EpochCheckpoint`.
    """

    def __init__(
        self, monitor: str, patience: int, mode: str = "min", past: Sequence[dict[str, Any]] = ()
    ):
        super().__init__()
        check_at_least(1, patience=patience)
        check(mode in ("min", "max"), "mode must be min or max", mode=mode)
        self.monitor, self.patience, self.sign = monitor, patience, 1 if mode == "min" else -1
        self.values: dict[int, float] = {}
        for row in past:
            self._add(int(row["epoch"]), row)

    @property
    def best_epoch(self) -> int | None:
        """int from 0, the first epoch with the best value; None before the first epoch."""
        return min(self.values, key=lambda epoch: self.values[epoch], default=None)

    @property
    def stopped(self) -> bool:
        """Whether the last improvement is `patience` epochs ago."""
        best = self.best_epoch
        return best is not None and max(self.values) - best >= self.patience

    def on_epoch_end(self, epoch, logs=None):
        self._add(epoch, logs)
        self.model.stop_training |= self.stopped

    def _add(self, epoch, logs):
        rule = f"monitor must be one of {', '.join(logs)}"
        if "val_loss" not in logs:
            rule += ", or fit must be given validation_data"
        check(self.monitor in logs, rule, monitor=self.monitor)
        value = self.sign * float(logs[self.monitor])
        self.values[epoch] = math.inf if math.isnan(value) else value


class PrintSamples(keras.callbacks.Callback):
    """Prints predictions after every epoch, to show what the model has learned.

    Args:
        sample: function without arguments that returns a str.
    """

    def __init__(self, sample: Callable[[], str]):
        super().__init__()
        self.sample = sample

    def on_epoch_end(self, epoch, logs=None):
        with distribution.alone(self.model):
            print(f"\n{self.sample()}")


def evenly_spaced(examples: Sequence, number: int) -> Sequence:
    """At most `number` items of a sequence, evenly spaced over it; `number` is at least 1."""
    check_at_least(1, number=number)
    number = min(number, len(examples))
    return [examples[i * len(examples) // number] for i in range(number)]
