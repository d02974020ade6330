"""Lines of text in, lines of answers out."""

import argparse
import contextlib
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from .. import tasks
from ..checks import TextError
from ..data.lines import decoded_lines, one_line

MAX_WAITING = 10_000  # lines read ahead of their answers
FEW_LINES = 2_048  # after them it is time to compile the fastest programs


def add_model_and_text(parser: argparse.ArgumentParser, model: str, text: str) -> None:
    """Adds the arguments MODEL [TEXT ...].

    Args:
        parser: `argparse.ArgumentParser`.
        model: str, the model that is expected, for the help.
        text: str, what the text is, for the help.
    """
    parser.add_argument("model", metavar="MODEL", help=model)
    parser.add_argument("text", nargs="*", metavar="TEXT", help=f"{text} (default: standard input)")


def answer_lines(
    task: "tasks.Task", texts: Sequence[str], answer: Callable[[list[str], int], Iterable[str]]
) -> None:
    """Prints the answers to texts.

    Args:
        task: `Task`, whose batch size is the maximum number of waiting lines answered together.
        texts: list of str; empty: the lines of the standard input, answered as they arrive, or at
            a terminal those that a person enters.
        answer: function from a list of texts, and the number of the first one in the whole input,
            from 0, to the lines to print.

    Raises:
        ValueError: a line is not UTF-8, or of `answer`.
        SystemExit: a stream is closed.
    """
    if sys.__stdout__ is None:
        sys.exit("The standard output is closed; open it (> FILE) for the answers.")
    if not texts and sys.__stdin__ is None:
        sys.exit("The standard input is closed; give TEXT, or open it (< FILE).")
    config: Any = getattr(task, "config", task)  # a `Translator` has a `GenerationConfig`
    answered = 0
    for batch in _batches(texts, config.batch_size):
        try:
            lines = list(answer(batch, answered))
        except TextError as error:
            name = "TEXT" if texts else "Line"
            raise ValueError(f"{name} {answered + error.number + 1} {error.problem}") from None
        for line in lines:
            print(one_line(line))
        sys.stdout.flush()
        answered += len(batch)
        if answered >= FEW_LINES:
            task.expect_many()


def _batches(texts, batch_size):
    if texts:
        return [texts]
    if sys.stdin.isatty():
        return ask_for_lines()
    # Detached, since Python closes sys.stdin at exit and would wait for the thread that reads it.
    return waiting_lines(sys.stdin.detach(), batch_size)  # type: ignore[union-attr]


def ask_for_lines() -> Iterator[list[str]]:
    """Yields one line at a time from a person; the prompt goes to stderr."""
    with contextlib.suppress(ImportError):  # Windows has no readline
        import readline  # noqa: F401  gives input() editing and a history

    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        try:
            yield [input()]
        except EOFError:
            print(file=sys.stderr)
            return


def waiting_lines(stream: BinaryIO, most: int) -> Iterator[list[str]]:
    """Yields the lines that wait in a stream.

    Args:
        stream: binary file, such as the buffer of `sys.stdin`.
        most: int, maximum lines per list.

    Yields:
        list of 1 to `most` str: the next line, once it is there, and those that wait behind it.

    Raises:
        ValueError, OSError: A line is not UTF-8 or cannot be read; those before it have been
            yielded.
    """
    lines: queue.Queue = queue.Queue(MAX_WAITING)

    def read():
        try:
            for line in decoded_lines(stream, "The input"):
                lines.put(line.rstrip("\r"))
            lines.put(None)
        except OSError as error:  # nohup opens an input that cannot be read
            problem = f"The input cannot be read ({error}); give TEXT, or open it (< FILE)."
            lines.put(OSError(problem))
        except Exception as error:
            lines.put(error)

    threading.Thread(target=read, daemon=True).start()
    end: Any = ""  # until it is not a line
    while isinstance(end, str):
        batch = []
        while isinstance(end := lines.get(), str):
            batch.append(end)
            if len(batch) == most or lines.empty():
                break
        if batch:
            yield batch
    if end is not None:
        raise end
