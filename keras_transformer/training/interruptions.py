"""Control-C and SIGTERM: training finishes its update, saves, and says how to continue."""

import shlex
import signal
import sys
import threading
from types import FrameType
from typing import Any, Self

import keras

from .. import backend
from ..backend import distribution

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class SaveOnInterrupt(keras.callbacks.Callback):
    """Saves the run after the update during which Control-C or SIGTERM came, and ends the process.

    It handles the signals within a `with` statement, however that ends:

        save_on_interrupt = SaveOnInterrupt(checkpoint)
        with save_on_interrupt:
            model.fit(batches, callbacks=[checkpoint, save_on_interrupt], shuffle=False)

    The exit code is 130 or 143, and the last line on stderr is the command that continues the run.
    After the last update of an epoch, its validation and its checkpoint come first. A second signal
    ends the process at once. In `fit` it comes last.

    Args:
        checkpoint: `EpochCheckpoint`.
    """

    def __init__(self, checkpoint: Any):
        super().__init__()
        self.checkpoint = checkpoint
        self._received = 0  # the number of the signal
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind, error, traceback):
        while self._before:
            signal.signal(*self._before.popitem())
        if kind is None and self._received:  # after the last epoch was saved
            signal.raise_signal(self._received)

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if self._was_received() and self.checkpoint.save_within(self._epoch, batch):
            self._exit()

    def on_epoch_end(self, epoch, logs=None):
        if self._was_received():
            self._exit()

    def _was_received(self):
        """Whether a signal came, here or in another process of the same training."""
        if distribution.any_process(bool(self._received)):
            self._received = self._received or signal.SIGTERM
        return bool(self._received)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._received = number
        signal.signal(number, signal.SIG_DFL)

    def _exit(self):
        print(
            f"\nInterrupted, and saved. Continue with: {command_line(resume=True)}", file=sys.stderr
        )
        sys.exit(128 + self._received)


def command_line(resume: bool = False) -> str:
    """The command of this process with its backend, as a shell reads it.

    Args:
        resume: bool, whether it continues the run that this process began.
    """
    words = sys.orig_argv
    if resume:
        words = [word for word in words if word not in ("--overwrite", "--resume")] + ["--resume"]
    return f"KERAS_BACKEND={backend.name()} {shlex.join(words)}"
