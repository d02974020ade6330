"""The folder of a training run: begun, killed, resumed, and not written over by another."""

import datetime
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import shutil
import sys

import keras

from ..writing import write_text
from .callbacks import EarlyStopping, Progress
from .checkpoints import Checkpoint, TrainingLog, average_checkpoints


class Run:
    """A folder with settings.json, history.csv, the checkpoint, scores.json and learning_curve.png.

        run = Run("runs/dates")
        run.begin(arguments, data=examples)
        run.fit(model, train, valid, epochs=7)
        run.write_scores({"bleu": 36.2})
        run.draw_learning_curve()

    Killed, the same lines with `Run("runs/dates", resume=True)` go on after the last whole epoch.
    Nothing is written before `begin`.

    Args:
        folder: where it lives.
        resume: bool, whether to go on with the run that is there.
        overwrite: bool, whether one that is there may be begun anew.

    Raises:
        FileExistsError: If the folder holds a run and neither `resume` nor `overwrite` is given.
        FileNotFoundError: If there is none to resume.
    """

    def __init__(self, folder, resume=False, overwrite=False):
        self.folder, self.resume = pathlib.Path(folder), resume
        self._settings = self.folder / "settings.json"
        if resume and not self._settings.exists():
            raise FileNotFoundError(
                f"There is no run to resume in {folder}: {self._settings} does not exist."
            )
        if self._settings.exists() and not (resume or overwrite):
            raise FileExistsError(
                f"{folder} holds a run already: --resume goes on with it, --overwrite begins "
                "anew, --output takes another folder."
            )

    @property
    def settings(self):
        """dict, what `begin` wrote; the arguments are under "arguments"."""
        return json.loads(self._settings.read_text("utf-8"))

    def begin(self, arguments, data):
        """Writes settings.json and clears what an earlier run left; a resumed run changes nothing.

        Args:
            arguments: dict that JSON can hold, all that the run depends on.
            data: what is trained on; its `repr` tells one from another.

        Raises:
            ValueError: If a resumed run has other data than it was begun with.
        """
        data = hashlib.sha256(repr(data).encode()).hexdigest()
        if self.resume:
            if self.settings["data"] != data:
                raise ValueError(
                    f"The training data is not what {self.folder} was begun with; put it back."
                )
            return
        for name in ("checkpoint", "tensorboard", "teachers"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        (self.folder / "history.csv").unlink(missing_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        packages = ("keras", "keras-hub", keras.backend.backend(), "numpy", "sentencepiece")
        settings = {
            "command": " ".join([f"KERAS_BACKEND={keras.backend.backend()}", *sys.orig_argv]),
            "arguments": arguments,
            "data": data,
            "versions": {name: importlib.metadata.version(name) for name in packages},
            "python": platform.python_version(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "begun": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        }
        _write_json(self._settings, settings)

    def fit(
        self,
        model,
        train,
        valid,
        *,
        epochs,
        seed=0,
        callbacks=(),
        patience=None,
        best=("val_perplexity", "min"),
        average=0,
        tensorboard=False,
    ):
        """`model.fit` with log and checkpoint, from the last whole epoch on.

        Args:
            model: a compiled keras.Model.
            train: batches that shuffle themselves from the seed and their `epoch`.
            valid: batches to watch.
            epochs: int, all of them, those before a resumption too.
            seed: int, of what is random in an epoch.
            callbacks: more of them; what they log is in history.csv.
            patience: int or None, epochs to wait for a better one before training ends.
            best: str and "min" or "max": the number of the log that tells, and which is better.
            average: int, the last epochs whose mean the weights become at the end; 0: the last.
            tensorboard: bool, whether to log for TensorBoard, too.
        """
        checkpoint = Checkpoint(self.folder / "checkpoint", train, seed, keep=max(1, average))
        finished = checkpoint.restore(model)
        if finished:
            print(f"Resuming after epoch {finished} of {epochs}.")
        log = TrainingLog(self.folder / "history.csv", finished)
        callbacks = [Progress(train), *callbacks, log]
        if patience:
            stopping = EarlyStopping(best[0], patience, best[1], log.past)
            callbacks.append(stopping)
            epochs = finished if stopping.ended else epochs
        if tensorboard:
            callbacks.append(keras.callbacks.TensorBoard(self.folder / "tensorboard"))
        model.fit(
            train,
            validation_data=valid,
            epochs=epochs,
            initial_epoch=finished,
            shuffle=False,  # the batches shuffle themselves
            callbacks=[*callbacks, checkpoint],
        )
        # With an EMA optimizer, Keras put the mean of the weights in place as `fit` ended.
        if average:
            average_checkpoints(model, checkpoint.paths)

    def write_scores(self, scores):
        """Writes a dict as scores.json."""
        _write_json(self.folder / "scores.json", scores)

    def draw_learning_curve(self):
        """Draws history.csv as learning_curve.png."""
        from ..plots import plot_history

        figure = plot_history(self.folder / "history.csv")
        figure.savefig(self.folder / "learning_curve.png", dpi=150)


def check_tensorboard():
    """Raises the ImportError that Keras's callback would raise only after the first epoch."""
    try:
        import tensorboard  # noqa: F401
        import tensorflow  # noqa: F401
    except ImportError:
        raise ImportError(
            "--tensorboard needs TensorFlow and TensorBoard; pip install tensorflow tensorboard, "
            "or leave it out: history.csv has the same numbers."
        ) from None


def _write_json(path, content):
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
