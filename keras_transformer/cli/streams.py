"""The standard streams of a process: there, in UTF-8, and quiet once their reader has left."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def standard_streams() -> Iterator[None]:
    """Keeps what is printed, or cannot be, from ending a program with a traceback.

    A closed stream (`<&-`, as cron and services have it) becomes the null device. All are UTF-8,
    whatever the locale is. When the reader of the output has left, such as `head`, the block ends
    quietly.

    Raises:
        SystemExit: with code 1 and one sentence for an OSError, such as a full disk.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, _null_device(number))
        with contextlib.suppress(AttributeError, io.UnsupportedOperation):  # of a notebook's
            errors = "backslashreplace" if number else "surrogateescape"
            getattr(sys, name).reconfigure(encoding="utf-8", errors=errors)
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        pass
    except OSError as error:
        sys.exit(f"{error}")
    finally:
        _flush_or_discard()


def _null_device(number):
    """The null device, as the file of this number unless a library has opened another as that."""
    file = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    os.set_inheritable(file, file == number)
    return os.fdopen(file, "w" if number else "r", encoding="utf-8")


def _flush_or_discard():
    """Keeps what is left in the buffers from failing once more as the process ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):  # it need not be a file
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream.fileno())
                os.close(null)
