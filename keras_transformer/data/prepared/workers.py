"""Processes that write shards in parallel.

Not those of `multiprocessing`: each would run the program that started it once more, and so import
Keras with its backend (hundreds of megabytes and some seconds). Those of joblib import only the
module of the function that they run.
"""

import collections
import signal
from collections.abc import Callable, Iterable
from typing import Any

from ...backend.process import num_cores

IDLE = 60  # seconds after which a process ends, such as one whose parent was killed


def run_in_processes(
    task: Callable[..., None],
    arguments: Iterable[dict[str, Any]],
    num_processes: int | None = None,
) -> None:
    """Runs a function once per item; few items wait, so that they may come from a stream.

    Args:
        task: function of a module that imports no Keras.
        arguments: Iterable of dict, the arguments of the function by name.
        num_processes: int from 1; None: one per core.

    Raises:
        Exception: The first one that the function raises.
        ChildProcessError: A process ended, perhaps for lack of memory.
    """
    from joblib.externals.loky import BrokenProcessPool, ProcessPoolExecutor

    # Control-C is for the process that started them.
    ignored = {"initializer": signal.signal, "initargs": (signal.SIGINT, signal.SIG_IGN)}
    number = num_processes or num_cores()
    executor = ProcessPoolExecutor(number, timeout=IDLE, **ignored)
    waiting: collections.deque = collections.deque()
    try:
        for each in arguments:
            if len(waiting) > number:
                waiting.popleft().result()
            waiting.append(executor.submit(task, **each))
        while waiting:
            waiting.popleft().result()
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "A process that writes shards ended, perhaps for lack of memory. Use fewer processes, "
            "then continue."
        ) from error
    finally:
        executor.shutdown(kill_workers=True)
