"""How the package writes and removes files, one rule for runs, corpora, exports and all outputs.

- A file or folder appears complete and on disk, or not at all; the old one stays until then.
- Only a missing or a regular file is replaced. A link is followed and stays, a pipe or a device is
  written to, a folder is refused. The new file has the permissions of the old one; another name of
  the old one (a hard link) keeps the old content.
- In a folder, only what the package can prove to have written is replaced or removed: the files
  that the manifest of an export lists (`atomic_folder`), or those of a run or corpus by the names
  that were free when it began (`OwnedFiles`). All other files stay; where they are in the way, the
  first one is named before any work.
- An output is neither an input nor another output (`check_files`), and it has a name: an empty one,
  as that of an unset variable, is not the current folder.
"""

import contextlib
import dataclasses
import errno
import glob
import hashlib
import itertools
import json
import os
import pathlib
import platform
import re
import shutil
import stat
import sys
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .checks import check

PathLike = str | os.PathLike

NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)  # of an OSError: no space, or a limit met
MANIFEST = ".keras_transformer.json"  # in an export, lists what else is in it
LOCK = ".lock"
_STARTED = time.time()  # of this process, nearly
_numbers = itertools.count(1)
_own: set[pathlib.Path] = set()  # the temporary paths of this process


# Writing: one file or one folder, complete or not at all


@contextlib.contextmanager
def atomic_write(path: PathLike) -> Iterator[pathlib.Path]:
    """Yields a temporary path to write to, which replaces `path` when the block has succeeded.

    If the block raises or the process is killed, `path` keeps its previous content. The new content
    is flushed to disk before it replaces the old one. A pipe or device receives it at the end.

    Args:
        path: Path of the file; its folder must exist.

    Raises:
        IsADirectoryError: It is a folder.
        PermissionError: It may not be written to.
    """
    path = named(path)
    with _naming(path):
        target = _target(path)
        if target is None:
            with tempfile.TemporaryDirectory(prefix="keras-transformer-") as folder:
                temporary = pathlib.Path(folder, path.name)
                yield temporary
                _copy_into(temporary, path)
            return
        temporary = _temporary(target)
        try:
            yield temporary
            _flush_to_disk(temporary)
            _replace(temporary, target)
        finally:
            _remove(temporary)


def write_text(path: PathLike, text: str) -> None:
    """Writes a text file atomically, in UTF-8; lone surrogates are escaped as JSON does."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


@contextlib.contextmanager
def atomic_folder(path: PathLike, overwrite: bool = False) -> Iterator[pathlib.Path]:
    """Yields an empty temporary folder, which becomes `path` when the block has succeeded.

    If the block raises, `path` stays as it was. If the process is killed, so it does, or the next
    call restores it. A manifest lists the files of the folder.

    Args:
        path: Path of the folder; folders above it are made.
        overwrite: bool, whether it may replace a folder that this function wrote, and that holds
            no other files.

    Raises:
        ValueError: See `check_folder`.
    """
    folder = check_folder(path, overwrite=overwrite)
    temporary, aside = _temporary(folder), _temporary(folder, ".replaced")
    missing = [parent for parent in folder.parents if not parent.exists()]
    try:
        with _naming(path):
            temporary.mkdir(parents=True)
            yield temporary
            content = {"written_by": "keras_transformer", "files": sorted(_names_in(temporary))}
            (temporary / MANIFEST).write_text(json.dumps(content, indent=2) + "\n", "utf-8")
            for name in _names_in(temporary):
                _flush_to_disk(temporary / name)
            if check_folder(path, overwrite=overwrite).exists():  # once more: that took a while
                _keep_permissions(folder, temporary)
                os.rename(folder, aside)
            try:
                os.rename(temporary, folder)
            except BaseException:
                if aside.exists():
                    os.rename(aside, folder)
                raise
            _flush_to_disk(folder.parent)
            _remove_export(aside)
    finally:
        _remove(temporary)
        _remove_each(os.rmdir, missing)  # innermost first; those that hold nothing


def rename_damaged(path: pathlib.Path) -> None:
    """Renames a file to damaged-NAME, or damaged-N-NAME, so that nothing is replaced."""
    names = (f"damaged-{number}{path.name}" for number in ("", *(f"{n}-" for n in range(2, 1000))))
    path.rename(next(p for p in map(path.with_name, names) if not os.path.lexists(p)))


@contextlib.contextmanager
def _naming(path):
    """Puts the path into errors without one: a full disk says so, but not where."""
    try:
        yield
    except OSError as error:
        if error.errno and not error.filename:
            error.filename = str(path)
        raise


def _target(path, option="The output"):
    """The regular or missing file behind a path, links followed; None: to be written in place."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return pathlib.Path(os.path.realpath(path))
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{option} must name a file; received the folder {path}.")
    if not os.access(path, os.W_OK) or stat.S_ISSOCK(mode):
        raise PermissionError(f"{option} must name a file that can be written; received {path}.")
    if not stat.S_ISREG(mode) or _descriptor(path) is not None or os.path.ismount(path):
        return None
    return pathlib.Path(os.path.realpath(path))


def _descriptor(path):
    """The number of the open file that a path such as /dev/stdout stands for; else None."""
    path = os.fspath(path)
    for _ in range(40):  # as many links as Linux follows
        folder = os.path.realpath(os.path.dirname(path) or ".")
        path = os.path.join(folder, os.path.basename(path))
        if folder == f"/proc/{os.getpid()}/fd":
            return int(os.path.basename(path))
        if not os.path.islink(path):
            break
        path = os.path.join(folder, os.readlink(path))
    return None


def _copy_into(temporary, path):
    """Writes a file into a pipe, a device or an open file, after what was printed before."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    number = _descriptor(path)
    output = path if number is None else os.dup(number)
    with open(temporary, "rb") as content, open(output, "wb") as file:
        shutil.copyfileobj(content, file)


def _replace(temporary, target):
    """Renames onto a missing or regular file alone, even if it has changed meanwhile."""
    for path in (temporary, target):
        if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
            raise FileExistsError(f"{target}: a regular file replaces a regular file alone.")
    _keep_permissions(target, temporary)
    os.replace(temporary, target)
    _flush_to_disk(target.parent)


def _keep_permissions(old, new):
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(old)
        with contextlib.suppress(OSError, AttributeError):  # the owner, if it may be given
            os.chown(new, status.st_uid, status.st_gid)
        os.chmod(new, stat.S_IMODE(status.st_mode))


def _flush_to_disk(path):
    """Flushes a file, or the names in a folder, where the system can."""
    try:
        # Windows flushes what is open for writing alone.
        descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:  # Windows opens no folders, and some network disks flush none
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EINVAL):
            raise


def temporary_folder(owner: object, parent: PathLike | None = None) -> pathlib.Path:
    """An empty folder that is removed with its owner, or at the end of the process.

    A process that was killed leaves its own; the next call removes it.

    Args:
        owner: object; the folder lives as long.
        parent: Path of the folder that holds it; None: that of temporary files.
    """
    folder = _temporary(pathlib.Path(parent or tempfile.gettempdir(), "keras-transformer"))
    folder.mkdir(mode=0o700)
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return folder


def _temporary(path, prefix=".unfinished"):
    """An unused path in the same folder; temporary files of dead processes are removed."""
    if prefix == ".unfinished":
        remove_unfinished(path)
    start, suffix = _start(path, prefix), "".join(path.suffixes[-2:])[-40:]  # names have a limit
    names = (path.with_name(f"{start}{os.getpid()}-{n}{suffix}") for n in _numbers)
    free = next(name for name in names if not os.path.lexists(name))
    _own.add(free)
    return free


def remove_unfinished(path: pathlib.Path) -> None:
    """Removes what dead processes have left of a file, and of those of the same numbered name."""
    for left in _left_behind(path, ".unfinished"):
        with contextlib.suppress(OSError):  # another user's, or another process removes it too
            _remove(left)


def _start(path, prefix):
    """How the names of temporary files for a path begin, on this computer."""
    name = re.sub(r"\d+", "0", path.name) if prefix == ".unfinished" else path.name
    name = os.fsencode(f"{platform.node()}/{name}")
    return f"{prefix}-{hashlib.blake2b(name, digest_size=8).hexdigest()}-"


def _left_behind(path, prefix):
    """The temporary files for a path whose process did not live to remove them."""
    start = _start(path, prefix)
    for left in path.parent.glob(f"{start}*"):
        number = left.name.removeprefix(start).partition("-")[0]
        if number.isdecimal() and (
            not _is_alive(int(number)) or _is_of_namesake(left, int(number))
        ):
            yield left


def _is_of_namesake(path, process):
    """Whether an earlier process of this one's number made it: in a container, all have one."""
    if process != os.getpid() or path in _own:
        return False
    with contextlib.suppress(OSError):
        return os.lstat(path).st_mtime < _STARTED
    return False


def _is_alive(process):
    try:
        if os.name != "nt":  # there, signal 0 is Control-C
            os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def _remove(path):
    """Removes a temporary file or folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# Refusing, before the work, what could not be written after it


def named(path: PathLike, what: str = "The output") -> pathlib.Path:
    """The path, unless it is empty: `pathlib.Path("")` is the current folder.

    Raises:
        ValueError: It is empty, as that of an unset variable is.
    """
    check(os.fspath(path), f"{what} must have a name", path=os.fspath(path))
    return pathlib.Path(path)


def check_files(
    outputs: Mapping[str, PathLike | None], inputs: Mapping[str, PathLike | None] | None = None
) -> None:
    """Refuses, before the work, files that could not be written after it, or must not be.

    Args:
        outputs: the files to write, by the names of their options; None: not given.
        inputs: the files to read, by the names of theirs; "-" is the standard input.

    Raises:
        ValueError: Two are one file, whatever they are called, or one has no name.
        OSError: A file could not be written.
    """
    known = {_identity(path): name for name, path in (inputs or {}).items() if path}
    for option, path in outputs.items():
        if path is None:
            continue
        path = named(path, option)
        target, identity = _target(path, option), _identity(path)
        if target is not None and not target.parent.is_dir():
            parent = target.parent if path.is_symlink() else path.parent
            raise FileNotFoundError(
                f"{option} must name a file in an existing folder; there is no {parent}."
            )
        if target is not None and not os.access(target.parent, os.W_OK):
            raise PermissionError(
                f"{option} must name a file in a writable folder; received {path}."
            )
        if identity and identity in known:
            raise ValueError(
                f"{option} must be another file than {known[identity]}; received {path} for both."
            )
        known[identity] = option


def check_folder(
    path: PathLike,
    option: str = "folder",
    overwrite: bool = False,
    inputs: Iterable[PathLike] = (),
) -> pathlib.Path:
    """Refuses, before the work, a folder that `atomic_folder` could not write, or must not.

    Args:
        path: the folder.
        option: str, what to choose instead, for the sentence.
        overwrite: bool, whether it may be replaced.
        inputs: files to read, which must not be in it.

    Returns:
        pathlib.Path, links followed.

    Raises:
        ValueError: It exists and is neither empty nor to be replaced, holds a file that is not of
            an earlier export, an input, or the current folder, or has no name.
        NotADirectoryError, PermissionError: It cannot be written.
    """
    given, folder = named(path, option), pathlib.Path(os.path.realpath(path))
    _restore(folder)
    here = pathlib.Path(os.path.realpath("."))
    if folder in (here, *here.parents) or os.path.ismount(folder):
        raise ValueError(
            f"{given} cannot be replaced as a whole: it is or holds the current folder, or is a "
            f"mounted disk. Choose another {option}, such as {given / 'export'}."
        )
    _check_writable(folder.parent, given, f"{option} needs a folder")
    if not os.path.lexists(folder):
        return folder
    if not folder.is_dir():
        raise NotADirectoryError(f"{given} is a file; choose another {option}.")
    if any(os.scandir(folder)) and not overwrite:
        how = "--overwrite" if option.startswith("--") else "overwrite=True"
        raise ValueError(f"{given} exists; choose another {option}, or pass {how}.")
    listed = _listed(folder)
    foreign = next((name for name in _names_in(folder) if name not in listed), None)
    if foreign is not None:
        raise ValueError(
            f"{given} holds {foreign}, which does not belong to an export and would be removed. "
            f"Choose another {option}, or an empty folder."
        )
    for each in inputs:
        if folder in pathlib.Path(os.path.realpath(each)).parents:
            raise ValueError(f"{given} holds the input {each}. Choose another {option}.")
    return folder


def check_space(path: PathLike, num_bytes: int, number: int = 1) -> None:
    """Refuses files for which there is no room, before a library begins to write them.

    HDF5 ends the process when a disk is full.

    Args:
        path: Path of the file to write.
        num_bytes: Its size, or a little more.
        number: Number of files of this size at the same time.

    Raises:
        OSError: There is less space, or a limit for the size of a file is lower.
    """
    path = pathlib.Path(os.path.realpath(path))
    with contextlib.ExitStack() as probes:
        try:
            for _ in range(number):
                probe = probes.enter_context(tempfile.TemporaryFile(dir=path.parent))
                if hasattr(os, "posix_fallocate"):  # not on macOS and Windows
                    os.posix_fallocate(probe.fileno(), 0, num_bytes)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            free = os.statvfs(path.parent)
            raise OSError(
                f"There is no room for {path}: it needs {number * num_bytes / 1e6:.1f} MB, "
                f"{free.f_bavail * free.f_frsize / 1e6:.1f} MB are free "
                f"({os.strerror(error.errno)}). Files written before it are complete; make room, "
                "then resume."
            ) from error


def _check_writable(folder, given, needs):
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; {needs}. Choose another.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{folder} is not writable; choose another folder than {given}.")


def _identity(path) -> Any:
    """Equal for two names of one file, which may be missing; None for a pipe or a device."""
    try:
        status = os.fstat(0) if os.fspath(path) == "-" else os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


# Exports: a manifest lists the files of a folder


def _restore(folder):
    """Ends what a killed `atomic_folder` began: without a new folder, the old one comes back."""
    for left in _left_behind(folder, ".replaced"):
        if os.path.lexists(folder):
            _remove_export(left)
        else:
            os.rename(left, folder)


def _names_in(folder):
    """The names of all that is in a folder, at any depth; links are not followed."""
    for root, folders, files in os.walk(folder):
        for name in sorted([*folders, *files]):
            yield pathlib.Path(root, name).relative_to(folder).as_posix()


def _listed(folder):
    """The names in a folder that its manifest lists, and the manifest's own; else none."""
    content = _json(folder / MANIFEST)
    names = content.get("files")
    if content.get("written_by") != "keras_transformer" or not isinstance(names, list):
        return []
    known = {MANIFEST, *map(str, names)}
    return [name for name in _names_in(folder) if name in known]


def _remove_export(folder):
    """Removes what the manifest of a folder lists, and the folder unless it holds more."""
    listed = _listed(folder)
    _remove_owned(folder, listed, listed, [MANIFEST])


# Runs and corpora: a marker, written where their names were free


@dataclasses.dataclass(frozen=True)
class OwnedFiles:
    """The files that a run or a corpus may have in its folder, which may also hold others.

    The proof: a marker is written into a folder that holds none of these names; from then on
    they are the run's or the corpus's. Overwriting sets the old files aside, in a folder
    .replaced-N, until new ones are complete.

    Args:
        kind: str, "run" or "corpus", for messages.
        markers: names of JSON files, one of which makes a folder a run or a corpus.
        keys: what such a file has, so that it is not one of another program.
        patterns: the other names, relative, as `glob` takes them.
        last: the name whose file is written when the others are complete.
    """

    kind: str
    markers: tuple[str, ...]
    keys: tuple[str, ...]
    patterns: tuple[str, ...]
    last: str

    def are_in(self, folder: pathlib.Path) -> bool:
        """Whether a folder holds such a run or corpus, by a marker that is not damaged."""
        return any(set(self.keys) <= _json(folder / name).keys() for name in self.markers)

    def names_in(self, folder: pathlib.Path) -> list[str]:
        """The names in a folder that are a run's or corpus's, markers first."""
        names = list(self.markers)
        for pattern in self.patterns:
            first, *others = pathlib.PurePath(pattern).parts
            if others and os.path.lexists(folder / first) and not (folder / first).is_dir():
                names.append(first)  # where a folder is needed
            found = glob.glob(pattern, root_dir=folder, recursive=True, include_hidden=True)
            names += sorted(found)
        return [name for name in dict.fromkeys(names) if os.path.lexists(folder / name)]

    def check(self, folder: PathLike) -> pathlib.Path:
        """Refuses a folder that cannot be written, or in which files of others are in the way.

        Returns:
            pathlib.Path of the folder.

        Raises:
            FileExistsError: A file has a name of a run, and no marker proves that it is the run's.
            NotADirectoryError, PermissionError: The folder cannot be written.
            ValueError: It has no name.
        """
        given, folder = named(folder, "The folder"), pathlib.Path(os.path.realpath(folder))
        check(folder != folder.parent, "The folder must not be the root", folder=str(given))
        _check_writable(folder, given, f"the {self.kind} needs a folder")
        owned = self.are_in(folder) or self._interrupted(folder) is not None
        foreign = None if owned else next(iter(self.names_in(folder)), None)
        with contextlib.suppress(FileNotFoundError):
            lock = os.lstat(folder / LOCK)  # emptied when opened; some disks need text in it
            if not stat.S_ISREG(lock.st_mode) or (lock.st_size and not owned):
                foreign = LOCK
        if foreign:
            raise FileExistsError(
                f"{given} holds {foreign}, which does not belong to a {self.kind} and would be "
                "replaced by one. Choose another --output, or an empty folder."
            )
        return given

    def lock(self, folder: pathlib.Path, is_singleton: bool = False) -> Any:
        """Makes a folder and keeps other processes out of it, until the lock or this process ends.

        Args:
            folder: Path of the folder.
            is_singleton: bool, whether this process may lock it several times.

        Returns:
            The lock, a context manager.

        Raises:
            BlockingIOError: Another process has locked it.
        """
        import filelock

        os.makedirs(os.path.realpath(folder), exist_ok=True)
        lock = filelock.FileLock(folder / LOCK, timeout=0, is_singleton=is_singleton)
        try:
            return lock.acquire()
        except filelock.Timeout as error:
            raise BlockingIOError(
                f"Another process writes the {self.kind} in {folder}; wait for it, or choose "
                "another folder."
            ) from error

    def check_inputs(self, folder: PathLike, inputs: Iterable[PathLike]) -> None:
        """Refuses inputs among the files that would be replaced.

        Raises:
            ValueError: One is.
        """
        folder = pathlib.Path(folder)
        ours = {_identity(folder / name) for name in self.names_in(folder)}
        for path in inputs:
            check(
                _identity(path) not in ours,
                f"An input must not be a file of the {self.kind} that {folder} holds, which is "
                "replaced; choose another --output",
                input=str(path),
            )

    def set_aside(self, folder: pathlib.Path) -> None:
        """Moves the files of a run to a folder .replaced-N in it; those of an unfinished one go.

        A kill at any moment leaves the old run, or a folder that `check` accepts for a new one.

        Raises:
            FileExistsError: A file lies behind a link; nothing is moved.
        """
        names = self.names_in(folder)
        for parent in _parents(names):
            if (folder / parent).is_symlink():
                raise FileExistsError(
                    f"The files of {folder} behind the link {parent} are kept. Remove the link, or "
                    "choose another --output."
                )
        moving = self._interrupted(folder)
        if moving is None:
            if not names:
                return
            ends = [path.name.rpartition("-")[2] for path in folder.glob(".repl*-*")]
            number = 1 + max((int(end) for end in ends if end.isdecimal()), default=0)
            moving = folder / f".replacing-{number}"
        moving.mkdir(exist_ok=True)
        for name in names:  # the markers first
            (moving / name).parent.mkdir(parents=True, exist_ok=True)
            os.rename(folder / name, moving / name)
        _remove_each(os.rmdir, (folder / parent for parent in _parents(names)))
        aside = moving.with_name(moving.name.replace("replacing", "replaced"))
        os.rename(moving, aside)
        if os.path.lexists(aside / self.last):
            self.remove_replaced(folder, but=aside)
        else:
            self._remove(aside)

    def remove_replaced(self, folder: pathlib.Path, but: pathlib.Path | None = None) -> None:
        """Removes what `set_aside` has kept, since something newer is complete."""
        for aside in folder.glob(".replaced-[0-9]*"):
            if aside != but and not aside.is_symlink() and self.are_in(aside):
                self._remove(aside)

    def _remove(self, folder):
        names = self.names_in(folder)
        _remove_owned(folder, names, _parents(names), self.markers)

    def _interrupted(self, folder):
        """Where an interrupted `set_aside` was moving files; None if no move was interrupted."""
        found = sorted(folder.glob(".replacing-[0-9]*"))
        return next((p for p in found if not p.is_symlink() and self.are_in(p)), None)


def _json(path):
    """The object in a JSON file; an empty one if there is no such file or object."""
    try:
        content = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _parents(names):
    """The folders of files with relative names, the inner ones first."""
    parents = {parent for name in names for parent in pathlib.PurePath(name).parents if parent.name}
    return sorted(parents, reverse=True)


def _remove_owned(folder, names, folders, markers):
    """Removes files of a folder and what they leave empty; last what proves whose they are."""
    others = [folder / name for name in names if name not in markers]
    _remove_each(os.unlink, others)
    _remove_each(os.rmdir, (folder / each for each in sorted(folders, reverse=True)))
    _remove_each(os.unlink, (folder / name for name in markers if name in names))
    _remove_each(os.rmdir, [folder])


def _remove_each(remove, paths):
    """Removes what can be: not a folder that holds more, or what another process removes too."""
    for path in paths:
        with contextlib.suppress(OSError):
            remove(path)
