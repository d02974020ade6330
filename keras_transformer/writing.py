"""Files that are whole or not there: written beside their place, then renamed."""

import contextlib
import os
import pathlib


@contextlib.contextmanager
def written_beside(path):
    """Yields the path to write to; what stands at `path` is replaced when the block has ended.

    A block that fails, or a process that is killed, leaves `path` as it was.

    Args:
        path: where the file belongs; its folder exists.
    """
    path = pathlib.Path(path)
    beside = path.with_name(f".unfinished.{path.name}")
    try:
        yield beside
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_text(path, text):
    """Writes a whole text file, in UTF-8."""
    with written_beside(path) as beside:
        beside.write_text(text, encoding="utf-8")
