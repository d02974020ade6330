"""The folder of a training run: started, interrupted, resumed, and never lost by accident."""

import contextlib
import datetime
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import keras

from .. import backend
from ..atomic import LOCK, OwnedFiles, atomic_write, named, write_text
from ..backend import distribution
from ..backend.distribution import SynchronizedGradients
from ..checks import check_at_least
from .callbacks import Progress, ResumableCSVLogger, ResumableEarlyStopping, TerminateOnNonFinite
from .checkpoints import EpochCheckpoint, average_checkpoints, load_checkpoint
from .interruptions import SaveOnInterrupt, command_line
from .weight_files import check_weights

_RESULTS = (
    "average-*.keras",
    "checkpoint/damaged-*epoch-*.weights.h5",
    "checkpoint/epoch-*.weights.h5",
    "damaged-*history.csv",
    "history.csv",
    "model.keras",
    "sample.txt",
    "scores.json",
    "tensorboard/**/events.out.tfevents.*",
    *(f"{name}.png" for name in ("attention", "calibration", "confusion", "learning_curve")),
)
_OF_TEACHERS = (LOCK, "settings.json", "translations.json", *_RESULTS)
FILES = OwnedFiles(
    "run",
    ("settings.json",),
    ("arguments", "data", "versions"),
    (
        *_RESULTS,
        *(f"teachers/*ward-[0-9]*/{name}" for name in _OF_TEACHERS),
        *(f"teachers/{name}/translations.json" for name in ("distill-from", "back-translator")),
    ),
    "model.keras",
)


class Run:
    """A folder with settings, log, checkpoints, scores and learning curve of one training.

        run = Run("runs/dates")
        run.begin(options, data=examples)
        callbacks = run.callbacks(train, patience=5)
        with run.interruptible():
            for span in run.restore(model, epochs=40):
                model.fit(train, validation_data=valid, **span, callbacks=callbacks, shuffle=False)
        run.finish(model)

    After an interruption the same lines with `Run("runs/dates", resume=True)` continue after the
    last complete epoch. Nothing is written before `begin`. Of several processes that train together
    (`distribution`) the first one writes, in a folder that all of them see.

    Files of others in the folder stay. Those of a run that is overwritten are kept in a folder
    .replaced-N in it until `save`.

    Args:
        folder: path of the folder.
        resume: bool, whether to continue the run in the folder.
        overwrite: bool, whether a run in the folder may be replaced.

    Raises:
        FileExistsError: If the folder contains a run and neither `resume` nor `overwrite` is given,
            or another file with a name that a run uses.
        FileNotFoundError: If there is no run to resume.
        NotADirectoryError, PermissionError: If the folder cannot be written.
        ValueError: If the folder has no name.
    """

    def __init__(self, folder: str | os.PathLike, resume: bool = False, overwrite: bool = False):
        named(folder, "The run folder")
        self.folder, self.resume, self._overwrite = pathlib.Path(folder), resume, overwrite
        self._settings_path = self.folder / "settings.json"
        if resume and not self._settings_path.is_file():
            raise FileNotFoundError(
                f"There is no run to resume in {folder}: {self._settings_path} does not exist. "
                "Check the folder, or start a run without --resume."
            )
        if resume:
            read_settings(self._settings_path)
        self._check_folder()

    @property
    def settings(self) -> dict[str, Any]:
        """dict, the content of settings.json; the options are under "arguments".

        Raises:
            ValueError: The file is damaged.
        """
        return read_settings(self._settings_path)

    def begin(
        self,
        arguments: Mapping[str, Any],
        data: Any,
        validation_data: Any = None,
        test_data: Any = None,
    ) -> None:
        """Sets the files of an earlier run aside and writes settings.json; a resumed run stays.

        Interrupted at any point, it leaves either the old run or a folder without a run.

        Args:
            arguments: values that JSON can represent, all that the run depends on.
            data: training data, str in lists or tuples; a hash of it is saved.
            validation_data, test_data: the same for validation and the scores; None: it is not
                compared.

        Raises:
            ValueError: If a resumed run has other data than before.
            FileExistsError: If there are files in the way; see `Run`.
            BlockingIOError: If another process runs in this folder.
        """
        distribution.wait_for_all()  # until each has seen the folder before it changes
        if distribution.is_first_process():
            splits = {"data": data, "validation_data": validation_data, "test_data": test_data}
            digests = {name: _digest(each) for name, each in splits.items() if each is not None}
            self._begin(arguments, digests)
        distribution.wait_for_all()
        if not self._settings_path.exists():
            raise FileNotFoundError(
                f"{self._settings_path} is not there: the run folder must be on a file system that "
                "all processes share."
            )

    def _begin(self, arguments, digests):
        self._lock = FILES.lock(self.folder, is_singleton=True)
        if self.resume:
            saved = self.settings
            for name, digest in digests.items():
                if saved.get(name, digest) != digest:  # older runs have fewer of them
                    what = name.removesuffix("data").removesuffix("_") or "training"
                    raise ValueError(
                        f"The {what} data has changed since {self.folder} was started; restore it "
                        "or start a new run."
                    )
            self._compare_backends(saved.get("versions", {}))
            kept = saved["arguments"]
            epochs = arguments.get("epochs", kept.get("epochs"))
            if epochs != kept.get("epochs"):  # which the next --resume continues to
                changed = saved | {"arguments": kept | {"epochs": epochs}}
                write_text(self._settings_path, _as_text(changed))
            return
        self._check_folder()
        settings = {
            "command": command_line(),
            "arguments": dict(arguments),
            **digests,
            "versions": _versions("keras", "keras-hub", backend.name(), "numpy", "sentencepiece"),
            "python": platform.python_version(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "started": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        }
        text = _as_text(settings)  # which may refuse them, while the old run is where it was
        FILES.set_aside(self.folder)
        write_text(self._settings_path, text)

    def _compare_backends(self, versions):
        """Says what another backend than that of the start means."""
        started = [name for name in versions if name in ("tensorflow", "jax", "torch")]
        if started and backend.name() not in started:
            print(
                f"{self.folder} was started on {started[0]}: on {backend.name()}, rounding and "
                "random numbers differ from those of an uninterrupted run. To have the same, set "
                f"KERAS_BACKEND={started[0]}.",
                file=sys.stderr,
            )

    def _check_folder(self):
        FILES.check(self.folder)
        if not (self.resume or self._overwrite) and FILES.are_in(self.folder):
            raise FileExistsError(
                f"{self.folder} already contains a run: use --resume to continue it, --overwrite "
                "to replace it, or another --output."
            )

    def callbacks(
        self,
        batches: Any,
        *,
        seed: int = 0,
        average: int = 0,
        patience: int | None = None,
        monitor: str = "val_perplexity",
        mode: str = "min",
        tensorboard: bool = False,
        checkpoint_every: int | None = None,
    ) -> list[keras.callbacks.Callback]:
        """Progress, history.csv, checkpoints, early stopping and a clean end, for `fit`.

        `fit` ends early with a FloatingPointError if the loss is infinite or not a number, and
        within `interruptible` with a SystemExit after Control-C or SIGTERM; the run can then be
        resumed.

        Callbacks that add to the log go before them, such as `ValidationScore`; others, such as
        `PrintSamples`, go after them: the checkpoint of an epoch is written before they may fail.

        Args:
            batches: training data that shuffles itself from the seed and its `epoch`.
            seed: int, of all randomness within an epoch.
            average: int, number of last epochs whose mean `finish` computes; 0: no averaging.
            patience: int, epochs without improvement before training stops; None: no limit.
            monitor: str, key in the log of the number that should improve.
            mode: "min" or "max", whether smaller or larger is better.
            tensorboard: bool, whether to write TensorBoard logs too.
            checkpoint_every: int, batches within an epoch after which to save; None: after each
                epoch only.

        Returns:
            List of keras.callbacks.Callback.
        """
        check_at_least(0, average=average)
        folder = self.folder / "checkpoint"
        self._average, self._early_stopping = average, None
        self._checkpoint = EpochCheckpoint(
            folder, batches, seed, keep=max(1, average), every=checkpoint_every
        )
        log = ResumableCSVLogger(self.folder / "history.csv", self._checkpoint.finished_epochs)
        callbacks = [
            SynchronizedGradients(),
            TerminateOnNonFinite(self._checkpoint),
            Progress(batches),
            log,
        ]
        callbacks.append(self._checkpoint)  # before all that may fail at the end of an epoch
        if patience is not None:
            self._early_stopping = ResumableEarlyStopping(monitor, patience, mode, log.past)
            callbacks.append(self._early_stopping)
            if not average:
                self._checkpoint.early_stopping = self._early_stopping
        if tensorboard and distribution.is_first_process():
            callbacks.append(keras.callbacks.TensorBoard(self.folder / "tensorboard"))
        self._save_on_interrupt = SaveOnInterrupt(self._checkpoint)
        return [*callbacks, self._save_on_interrupt]

    def interruptible(self) -> SaveOnInterrupt:
        """A context manager for `fit`: Control-C and SIGTERM save the run; comes after `callbacks`.

        Returns:
            `SaveOnInterrupt`, for `with`.
        """
        return self._save_on_interrupt

    def restore(self, model: keras.Model, epochs: int) -> Iterator[dict[str, int]]:
        """Loads the last checkpoint, if there is one; comes after `callbacks`.

        Args:
            model: compiled keras.Model.
            epochs: int, number of epochs in total.

        Returns:
            Iterator of "initial_epoch" and "epochs" for `fit`: without any epoch if the run has
            ended, two if it was interrupted within an epoch, whose rest comes first.
        """
        spans = self._checkpoint.restore(model, epochs)
        if finished := self._checkpoint.finished_epochs:
            print(f"Resuming after epoch {finished} of {epochs}.")
        stopped = self._early_stopping is not None and self._early_stopping.stopped
        return iter([{"initial_epoch": epochs, "epochs": epochs}]) if stopped else spans

    def finish(self, model: keras.Model) -> None:
        """Sets the final weights once `fit` has returned.

        They are the mean over the last epochs if `callbacks` was given `average`; else those of the
        best epoch if it was given `patience`; else those that `fit` left. An optimizer with an
        exponential moving average provides that of the epoch.

        Args:
            model: the keras.Model given to `restore`, fitted.
        """
        if self._average:
            average_checkpoints(model, self._checkpoint.paths[-self._average :])
        elif self._checkpoint.best_path is not None:
            check_weights(self._checkpoint.best_path)
            load_checkpoint(model, self._checkpoint.best_path)
            model.optimizer.finalize_variable_values(model.trainable_variables)

    def save(self, task: Any) -> None:
        """Saves a trained task as model.keras, and removes a run that was set aside for this one.

        Args:
            task: a `Translator`, `TextGenerator`, `Tagger`, `Classifier` or `MaskFiller`.
        """
        if distribution.is_first_process():
            with distribution.alone(task.model):
                task.save(self.folder / "model.keras")
            FILES.remove_replaced(self.folder)

    def write_scores(self, scores: Mapping[str, Any]) -> None:
        """Writes scores as scores.json; NaN becomes null, a named tuple an object."""
        from ..evaluation import as_json

        self._write("scores.json", _as_text(as_json(scores)))

    def write_sample(self, text: str) -> None:
        """Writes a text that the model has generated as sample.txt."""
        self._write("sample.txt", text + "\n")

    def _write(self, name, text):
        if distribution.is_first_process():
            write_text(self.folder / name, text)

    def draw(self, figure: Any, name: str) -> None:
        """Writes a figure of `plots`, with a name such as "attention.png"."""
        if distribution.is_first_process():
            with atomic_write(self.folder / name) as unfinished:
                figure.savefig(unfinished, dpi=150)

    def draw_learning_curve(self) -> None:
        """Draws history.csv as learning_curve.png."""
        from ..plots import plot_history

        if distribution.is_first_process():
            self.draw(plot_history(self.folder / "history.csv"), "learning_curve.png")


def read_settings(path: pathlib.Path) -> dict[str, Any]:
    """The content of the settings.json of a run; a ValueError if it is damaged."""
    try:
        settings = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError):
        settings = None
    if not isinstance(settings, dict) or not isinstance(settings.get("arguments"), dict):
        raise ValueError(
            f"{path}: expected the settings of a run, received a damaged file. Restore it from a "
            "copy, or start a new run."
        )
    return settings


def _digest(data):
    """SHA-256 of str in nested lists and tuples, read one after the other."""
    digest = hashlib.sha256()

    def update(item):
        if isinstance(item, (list, tuple)):
            digest.update(f"[{len(item)}]".encode())
            for each in item:
                update(each)
        else:
            text = str(item).encode("utf-8", "surrogatepass")
            digest.update(f"{len(text)}:".encode() + text)

    update(data)
    return digest.hexdigest()


def _versions(*packages):
    """The installed versions; of a package with another distribution name, that of its module."""
    versions = {}
    for name in packages:
        module = sys.modules.get(name.replace("-", "_"))
        versions[name] = getattr(module, "__version__", None)
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _as_text(content):
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
