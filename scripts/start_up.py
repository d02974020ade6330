"""Run before the imports, which take seconds: a clean end on Control-C, and less noise.

Control-C ends a script with exit code 130, SIGTERM with 143, without a traceback. While `fit` runs,
`training.SaveOnInterrupt` takes over. Until `imported` is called, and at the end, Python does not
search all modules for garbage, which takes a second or two.
"""

import atexit
import contextlib
import gc
import os
import signal
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # fewer notices of TensorFlow


def end(number, frame):
    """Ends the process at once: Python may swallow an exception, as in a callback of a weakref."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    with contextlib.suppress(OSError):  # a standard error that is closed
        if "train" in os.path.basename(sys.argv[0]):
            os.write(2, b"\nInterrupted. If training had started, --resume continues it.\n")
    os._exit(128 + number)


def imported():
    """Python searches for garbage from here on, but not among what the imports made."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


scripts = os.path.dirname(os.path.abspath(__file__))
program = sys.argv[0]  # not a script that a test imports
if "keras-transformer train" in program or os.path.dirname(os.path.abspath(program)) == scripts:
    gc.disable()
    atexit.register(gc.freeze)
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup asks
            signal.signal(number, end)
