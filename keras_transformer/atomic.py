"""Atomic writes: a file or folder appears complete and on disk, or not at all."""

import contextlib
import errno
import os
import pathlib
import shutil
from collections.abc import Iterator

NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)  # of an OSError: no space, or a limit met


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yields a temporary path to write to, which replaces `path` when the block has succeeded.

    If the block raises or the process is killed, `path` keeps its previous content. The new content
    is flushed to disk before it replaces the old one.

    Args:
        path: Path of the file; its folder must exist.
    """
    path = pathlib.Path(path)
    temporary = path.with_name(f".unfinished.{path.name}")
    try:
        with _naming(path):
            yield temporary
            _flush_to_disk(temporary)
            os.replace(temporary, path)
            _flush_to_disk(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes a text file atomically, in UTF-8."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yields an empty temporary folder, which replaces `path` when the block has succeeded.

    If the block raises, `path` keeps its previous content.

    Args:
        path: Path of the folder; folders above it are made.
    """
    path = pathlib.Path(path)
    temporary = path.with_name(f".unfinished.{path.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        with _naming(path):
            temporary.mkdir(parents=True)
            yield temporary
            for file in temporary.rglob("*"):
                _flush_to_disk(file)
            if path.is_dir():
                shutil.rmtree(path)
            os.replace(temporary, path)
            _flush_to_disk(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_space(path: str | os.PathLike, num_bytes: int, number: int = 1) -> None:
    """Refuses files for which there is no room, before a library begins to write them.

    HDF5 ends the process when a disk is full.

    Args:
        path: Path of the file to write.
        num_bytes: Its size, or a little more.
        number: Number of files of this size beside each other.

    Raises:
        OSError: There is less space, or a limit for the size of a file is lower.
    """
    path = pathlib.Path(path)
    probes = [path.with_name(f".unfinished.{n}.{path.name}") for n in range(number)]
    try:
        for probe in probes:
            with open(probe, "wb") as file:
                if hasattr(os, "posix_fallocate"):  # not on macOS and Windows
                    os.posix_fallocate(file.fileno(), 0, num_bytes)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        free = os.statvfs(path.parent)
        raise OSError(
            f"There is no room for {path}: it needs {number * num_bytes / 1e6:.1f} MB, "
            f"{free.f_bavail * free.f_frsize / 1e6:.1f} MB are free ({os.strerror(error.errno)}). "
            "Files written before it are complete; make room, then resume."
        ) from error
    finally:
        for probe in probes:
            probe.unlink(missing_ok=True)


@contextlib.contextmanager
def _naming(path):
    """Puts the path into errors without one: a full disk says so, but not where."""
    try:
        yield
    except OSError as error:
        if error.errno and not error.filename:
            error.filename = str(path)
        raise


def _flush_to_disk(path):
    """Flushes a file, or the names in a folder; Windows opens no folders."""
    with contextlib.suppress(PermissionError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
