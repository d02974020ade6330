"""Programs that tests run: a file as a module, code on another backend; a full disk, a history."""

import contextlib
import csv
import importlib.util
import json
import os
import pathlib
import resource
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]


def module_of(path, name=None):
    """The module of a file, imported again."""
    spec = importlib.util.spec_from_file_location(name or pathlib.Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def on_backend(backend, code, question, folder):
    """Returns what code prints as JSON on another backend, with a question on its stdin."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    result = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(question),
        cwd=folder,
        env={**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": os.pathsep.join(paths)},
        text=True,
        capture_output=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def history_of(folder):
    """The rows of a run's history.csv, without the columns that measure its time."""
    with open(folder / "history.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    times = "tokens_per_second", "seconds"
    return [{name: x for name, x in row.items() if name not in times} for row in rows]


@contextlib.contextmanager
def largest_file(num_bytes):
    """No file may become larger, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
