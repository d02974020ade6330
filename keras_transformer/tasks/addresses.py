"""Addresses of saved tasks: in a repository of the Hugging Face Hub, or on any server.

    hf://USER/MODEL  hf://USER/MODEL@REVISION  https://HOST/PATH/model.keras#sha256=HEX

A file is fetched into a cache: that of huggingface_hub (see its HF_HOME), or for `https://` the
folder keras_transformer in ~/.keras (or in KERAS_HOME, as for Keras). It appears there complete or
not at all, under a name that the server does not choose, and stays only if it is accepted.
"""

import contextlib
import hashlib
import http.client
import os
import pathlib
import re
import shutil
import urllib.request
from collections.abc import Iterator
from typing import Any

from .. import __version__
from ..atomic import atomic_write
from ..checks import check, first_line, imported
from . import pretrained

FILE = "model.keras"  # in a repository of the Hub
NAME = r"\w[\w.-]*"
HUB = re.compile(rf"hf://(?P<repo_id>{NAME}/{NAME})(@(?P<revision>{NAME}(/{NAME})*))?", re.ASCII)
URL = re.compile("(?P<url>https://[^#]+)#sha256=(?P<sha256>[0-9a-fA-F]{64})")
SECONDS = 60  # that a server may take for its next bytes

BY_CLASS = {  # of an exception of huggingface_hub; the first that fits
    "GatedRepoError": "its owner must grant you access; ask for it on its page, then log in "
    "(hf auth login)",
    "RepositoryNotFoundError": "there is no such repository, or it is private; check the name, or "
    "log in (hf auth login)",
    "RevisionNotFoundError": "there is no such revision; check what follows @",
    "LocalEntryNotFoundError": "it is not in the cache, and the Hub cannot be reached; check the "
    "network, HF_ENDPOINT and HF_HUB_OFFLINE",
    "EntryNotFoundError": f"the repository has no {FILE}; write one with keras-transformer push",
}
BY_STATUS: dict[Any, str] = {  # of the answer of the Hub
    401: "the Hub must know who you are; log in (hf auth login), or set HF_TOKEN",
    403: "your token does not permit this; log in with another one (hf auth login)",
    409: "the repository exists; choose another name, or pass overwrite=True",
}


class IntactFileError(ValueError):
    """A file whose fault it is not: it needs another version, one more package, or more memory."""


def is_address(path: str | os.PathLike) -> bool:
    """Whether it is an address and not the path of a file."""
    return "://" in str(path)


def local_name(path: str) -> str:
    """A path, or the last part of an address without revision, checksum and ".keras"."""
    if not is_address(path):
        return path
    return re.split("[@#?]", path)[0].rpartition("/")[2].removesuffix(".keras")


def model_name(path: str) -> str:
    """The name of a model: of its folder if its file is called model.keras, else of the file."""
    file = pathlib.Path(local_name(path)).resolve()
    return (file.parent.name if file.name == FILE else file.name).removesuffix(".keras")


@contextlib.contextmanager
def found(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yields the file of an address, of a model that comes with the package, or of a path.

    The file of an address leaves the cache if the block raises a ValueError, but not an
    `IntactFileError`.

    Args:
        path: an address, a name in `tasks.pretrained`, or a path, which need not exist.

    Raises:
        ValueError: It is not an address, or the file has another checksum.
        OSError: The file cannot be fetched.
        ImportError: huggingface_hub is not installed.
    """
    if not is_address(path):
        yield pretrained.find(path)
        return
    file = _fetch(str(path))
    try:
        yield file
    except IntactFileError:
        raise
    except ValueError:
        for each in (file.resolve(), file):  # the cache of huggingface_hub has links
            with contextlib.suppress(OSError):
                each.unlink(missing_ok=True)
        raise


def of_hub(address: str) -> dict[str, Any]:
    """The repository ("repo_id") and the revision of an address of the Hub.

    Raises:
        ValueError: It has another form.
    """
    expected = "An address is hf://USER/MODEL[@REVISION] or https://URL#sha256=HEX"
    return _parts(HUB, address, expected)


def _parts(pattern, address, expected):
    match = pattern.fullmatch(address)
    check(match, expected, address=address)
    return match.groupdict()


def library(address: str) -> Any:
    """huggingface_hub, which an address needs.

    Raises:
        ImportError: It is not installed.
    """
    return imported("huggingface_hub", address, '"keras3-transformer[hub]"')


@contextlib.contextmanager
def one_sentence(address: str) -> Iterator[None]:
    """Turns any exception of huggingface_hub into an OSError of one sentence."""
    from huggingface_hub import errors
    from huggingface_hub.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # not a line per attempt
    try:
        yield
    except Exception as error:  # of the library, of httpx, or of the system
        status = getattr(getattr(error, "response", None), "status_code", None)
        reasons = (reason for name, reason in BY_CLASS.items() if _is(error, errors, name))
        reason = next(reasons, BY_STATUS.get(status))
        raise OSError(f"{address}: {reason or _failed(error)}.") from error
    finally:
        logging.set_verbosity(verbosity)


def _is(error, errors, name):
    return isinstance(error, getattr(errors, name))


def _failed(error):
    return f"the transfer failed ({first_line(error)}); check address and network, and try again"


def _fetch(address):
    if address.startswith("https://"):
        return _fetch_url(address)
    target, hub = of_hub(address), library(address)
    with one_sentence(address):
        return pathlib.Path(hub.hf_hub_download(filename=FILE, **target))


def _fetch_url(address):
    expected = "An https address must end in #sha256= and the 64 digits that sha256sum prints"
    parts = _parts(URL, address, expected)
    url, sha256 = parts["url"], parts["sha256"].lower()
    folder = pathlib.Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser()
    path = folder / "keras_transformer" / f"{sha256}.keras"
    if not path.exists() or _sha256(path) != sha256:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            try:
                _download(url, temporary)
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise OSError(f"{url}: {_failed(error)}.") from error
            received = _sha256(temporary)
            expected = f"The file at {url} must have the SHA-256 of its address, {sha256}"
            check(received == sha256, expected, sha256=received)
    return path


def _download(url, path):
    headers = {"User-Agent": f"keras_transformer/{__version__}"}
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=SECONDS) as response, path.open("wb") as file:
        shutil.copyfileobj(response, file)
    size, expected = path.stat().st_size, response.headers["Content-Length"]
    if expected and size < int(expected):
        raise OSError(f"it ended after {size} of {expected} bytes")


def _sha256(path):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
