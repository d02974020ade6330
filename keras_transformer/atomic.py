"""Atomic writes: a file appears complete or not at all."""

import contextlib
import os
import pathlib
from collections.abc import Iterator


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yields a temporary path to write to, which replaces `path` when the block has succeeded.

    If the block raises or the process is killed, `path` keeps its previous content.

    Args:
        path: Path of the file; its folder must exist.
    """
    path = pathlib.Path(path)
    temporary = path.with_name(f".unfinished.{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes a text file atomically, in UTF-8."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
