"""Control-C and SIGTERM: training finishes its update, saves, and says how to continue."""

import shlex
import signal
import sys
import threading
from types import FrameType
from typing import Any

import keras

from .. import backend
from ..backend import distribution
from .callbacks import frame_of_fit

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class SaveOnSignal(keras.callbacks.Callback):
    """Saves the run after the update during which Control-C or SIGTERM came, and ends the process.

    The exit code is 130 or 143, and the last line on stderr is the command that continues the run.
    After the last update of an epoch, its validation and its checkpoint come first. A second signal
    ends the process at once, and so does the first if `fit` has ended with an error. In `fit` it
    comes last.

    Args:
        checkpoint: `EpochCheckpoint`.
    """

    def __init__(self, checkpoint: Any):
        super().__init__()
        self.checkpoint = checkpoint
        self._received = 0  # the number of the signal

    def on_train_begin(self, logs=None):
        self._in_fit = frame_of_fit(self.model, sys._getframe()) is not None
        self._before = _handle(self._note)

    def on_train_end(self, logs=None):
        for number, handler in self._before.items():
            signal.signal(number, handler)

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
        # Of an error, Keras tells no callback.
        if self._in_fit and frame_of_fit(self.model, frame) is None:
            self.on_train_end()
            signal.raise_signal(number)
            return
        self._received = number
        signal.signal(number, signal.SIG_DFL)

    def _exit(self):
        self.on_train_end()
        print(f"\nInterrupted, and saved. Continue with: {resume_command()}", file=sys.stderr)
        sys.exit(128 + self._received)


def command_line() -> str:
    """The command of this process with its backend, as a shell reads it."""
    return _quoted(sys.orig_argv)


def resume_command() -> str:
    """The command that continues a run which the command of this process began."""
    words = [word for word in sys.orig_argv if word not in ("--overwrite", "--resume")]
    return _quoted([*words, "--resume"])


def _quoted(words):
    return f"KERAS_BACKEND={backend.name()} {shlex.join(words)}"


def _handle(handler):
    """Handles both signals, unless they are ignored; returns the handlers of before."""
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
    return before
