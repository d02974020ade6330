"""How the tests run: programs that are compiled fast and kept, one core per worker, their order."""

import importlib.metadata
import os
import time

import pytest


def jax_version():
    """(0, 10) for jaxlib 0.10.2; (0, 0) without it."""
    try:
        release = importlib.metadata.version("jaxlib").split(".")
    except importlib.metadata.PackageNotFoundError:
        return 0, 0
    return int(release[0]), int(release[1])


# Half of the time would go to compiling small programs, each for a few numbers. Tests keep them,
# compile them with few optimizations, and on TensorFlow run their graphs without XLA. With
# KERAS_TRANSFORMER_FULL_XLA=1 they are compiled as they are for users.
full_xla = os.environ.get("KERAS_TRANSFORMER_FULL_XLA") == "1"
programs = os.path.abspath(os.path.join(".pytest_cache", "full_xla" if full_xla else "fast_xla"))
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", os.path.join(programs, "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ.setdefault(
    "TF_XLA_FLAGS",
    "--tf_xla_persistent_cache_device_types=CPU --tf_xla_persistent_cache_directory="
    + os.path.join(programs, "tensorflow"),
)
if not full_xla:
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")
    flags = ["--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true"]
    if jax_version() < (0, 11):  # later ones end at a flag that they do not know
        flags += ["--xla_cpu_use_fusion_emitters=false"]  # alone a third to a half of the time
    os.environ.setdefault("XLA_FLAGS", " ".join(flags))
os.environ.setdefault("JAX_DEFAULT_MATMUL_PRECISION", "highest")  # on a GPU it would be TF32
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # as the scripts do when they are imported

if "PYTEST_XDIST_WORKER" in os.environ:  # a core per worker: more threads would only wait
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")


def pytest_configure(config):
    """Loads the fixtures, but not where -n starts workers: that process need not wait for Keras."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        for name in ("shared", "engines"):
            config.pluginmanager.import_plugin(name)


def pytest_collection_modifyitems(items):
    """The scripts first: the file that takes longest must not be the last one to begin.

    With KERAS_TRANSFORMER_FIRST=7 the eighth file comes first, and the files before it last.
    """
    files = sorted({item.path for item in items})
    names = [path.name for path in files]
    scripts = names.index("test_scripts.py") if "test_scripts.py" in names else 0
    first = int(os.environ.get("KERAS_TRANSFORMER_FIRST", scripts))
    items.sort(key=lambda item: (files.index(item.path) - first) % len(files))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """After KERAS_TRANSFORMER_UNTIL, in seconds since 1970, no test starts: the rest is skipped."""
    if time.time() > float(os.environ.get("KERAS_TRANSFORMER_UNTIL", "inf")):
        pytest.skip("the gate's time is over; a nightly job runs all tests (nightly.yml)")
