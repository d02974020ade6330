"""Processes that write shards in parallel.

Not those of `multiprocessing`: each would import Keras with its backend (hundreds of megabytes and
some seconds), and the program that started it once more.
"""

import collections
import concurrent.futures
import os
import pathlib
import pickle
import queue
import signal
import subprocess
import sys
from collections.abc import Iterable
from typing import Any, Self

from ...backend.process import num_cores
from ...checks import check_optional
from . import jobs

ROOT = str(pathlib.Path(__file__).parents[3])  # the processes import this copy of the package
START = "import sys; sys.path.insert(0, sys.argv[1]); from {} import serve; serve()"


class ShardWriters:
    """Processes for the functions of `prepared.jobs`; a context manager.

        with ShardWriters(2) as writers:
            writers.run("write_texts", arguments)  # an iterable of dict

    Args:
        num_processes: int from 1; None: one per core.

    Raises:
        ValueError: `num_processes` is out of range.
    """

    def __init__(self, num_processes: int | None = None):
        check_optional(1, num_processes=num_processes)
        self.num_processes = num_processes or num_cores()

    def __enter__(self) -> Self:
        command = [sys.executable, "-c", START.format(__name__), ROOT]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(self.num_processes)
        ]
        self._idle: queue.SimpleQueue = queue.SimpleQueue()
        for process in self._processes:
            self._idle.put(process)
        self._threads = concurrent.futures.ThreadPoolExecutor(self.num_processes)
        return self

    def __exit__(self, kind, error, traceback):
        if kind is not None:
            for process in self._processes:
                process.kill()
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.communicate()  # closes its input, so it ends

    def run(self, task: str, arguments: Iterable[dict[str, Any]]) -> None:
        """Runs a function once per item; few items wait, so that they may come from a stream.

        Args:
            task: str, name of a function in `prepared.jobs`.
            arguments: Iterable of dict, its arguments by name.

        Raises:
            Exception: The first one that the function raises.
            ChildProcessError: A process ended, perhaps for lack of memory.
        """
        waiting: collections.deque = collections.deque()
        for each in arguments:
            if len(waiting) > self.num_processes:
                waiting.popleft().result()
            waiting.append(self._threads.submit(self._ask, task, each))
        while waiting:
            waiting.popleft().result()

    def _ask(self, task, arguments):
        process = self._idle.get()
        try:
            pickle.dump((task, arguments), process.stdin)
            process.stdin.flush()
            error = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            raise ChildProcessError(
                f"A process that writes shards ended (exit code {process.wait()}), perhaps for "
                "lack of memory. Use fewer processes, then continue."
            ) from None
        finally:
            self._idle.put(process)  # even one that ended, or threads would wait for it for ever
        if error is not None:
            raise error


def serve() -> None:
    """Runs functions of `prepared.jobs` for the process that started this one, until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Control-C is for that process
    read, write = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is not an answer
    while True:
        try:
            task, arguments = pickle.load(read)
        except EOFError:
            return
        error = None
        try:
            getattr(jobs, task)(**arguments)
        except Exception as raised:
            error = raised
        pickle.dump(error, write)
        write.flush()
