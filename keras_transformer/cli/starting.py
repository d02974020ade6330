"""The start of a command: Keras by itself, and the programs of JAX that an earlier command kept."""

import contextlib
import gc
import os
import pathlib
import sys
import warnings

import platformdirs

VARIABLE = "KERAS_TRANSFORMER_CACHE"
MOST_BYTES = 2**28  # of the programs in the folder; the least recently used ones are removed
# What Keras imports wherever it is installed, for functions that no command calls.
UNUSED = ("IPython", "huggingface_hub", "jax", "matplotlib", "pandas", "sklearn")


def import_keras() -> None:
    """Imports Keras without libraries that take longer than Keras itself; later imports find them.

    A Keras that needs one of them is imported with all of them. Python does not search the modules
    for garbage meanwhile, nor ever after: that takes a fifth of the time of the import.
    """
    if "keras" in sys.modules:
        return
    collects = gc.isenabled()
    gc.disable()
    backend = os.environ.get("KERAS_BACKEND")
    hidden = [name for name in UNUSED if name not in sys.modules and name != backend]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        import keras  # noqa: F401
    except ImportError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "keras"]:
            del sys.modules[name]
    finally:
        for name in hidden:
            del sys.modules[name]
        gc.freeze()
        if collects:
            gc.enable()


def keep_programs() -> None:
    """Lets JAX keep what this process compiles, in the user's folder for caches.

    The variable KERAS_TRANSFORMER_CACHE names another folder for caches; where it is empty, or
    JAX's own variable is set, nothing changes. The settings are variables of the environment, so
    that a command that needs no JAX does not import it. A program that cannot be read is compiled
    again.
    """
    other = os.environ.get(VARIABLE)
    if other == "" or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    own = other and pathlib.Path(other, "keras_transformer")  # other programs have jax there
    folder = own or platformdirs.user_cache_dir("keras_transformer", False)
    programs = pathlib.Path(folder, "jax").absolute()
    if programs.exists() and not _is_private(programs):
        return
    # JAX would keep nothing more where the file with the time of a program is missing.
    for program in programs.glob("*-cache"):
        if not program.with_name(f"{program.name.removesuffix('-cache')}-atime").exists():
            with contextlib.suppress(OSError):
                program.unlink()
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(programs)
    os.environ["JAX_COMPILATION_CACHE_MAX_SIZE"] = str(MOST_BYTES)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"] = "none"  # they would have no limit


def _is_private(folder):
    """Whether a folder may hold what this process runs: nobody else can write to it."""
    found = folder.stat()
    of_user = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return folder.is_dir() and of_user and not found.st_mode & 0o002 and os.access(folder, os.W_OK)
