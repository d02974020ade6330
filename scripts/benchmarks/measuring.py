"""Shared parts of the benchmarks: sizes, a fair race, the circumstances of a measurement."""

import argparse
import concurrent.futures
import datetime
import importlib
import json
import math
import multiprocessing
import os
import pathlib
import platform
import re
import shlex
import sys
import time

import keras
import numpy as np

from keras_transformer import evaluation
from keras_transformer.atomic import write_text
from keras_transformer.backend import num_cores

SIZES = {
    "num_layers": "blocks in the encoder, and again in the decoder",
    "d_model": "width of embeddings and sublayers",
    "num_heads": "attention heads",
    "d_ff": "inner width of the feed-forward networks",
}
INPUTS = ("source_ids", "target_ids")


def id_inputs():
    return {name: keras.Input((None,), dtype="int32", name=name) for name in INPUTS}


def add_sizes(add, config=None):
    """Options for the sizes of a `TransformerConfig`; without one, the default is the preset's."""
    for name, text in SIZES.items():
        default = "the preset's" if config is None else getattr(config, name)
        option = f"--{name.replace('_', '-')}"
        add(option, type=int, metavar="N", help=f"{text} (default: {default})")


def add_keep_memory(add, whose=""):
    """An option for `backend.keep_freed_memory`."""
    kept = f"keep freed memory in the process, as the training scripts do{whose}"
    add("--keep-memory", action="store_true", help=kept)


def add_separate(add):
    """An option for `measure_separately`."""
    separate = "processes per contender; 0: one process for all contenders (default: 0)"
    add("--separate", type=int, default=0, metavar="N", help=separate)


OF_OURS_ALONE = "; with --separate, in processes of ours and limit alone"


def measure_separately(measure, args):
    """Yields `measure(args, [name])` of each contender in `args.separate` new processes, in turn.

    The setting of --keep-memory is the process's, and a user of another library has none of it.
    """
    for _ in range(args.separate):
        for name in args.contenders:
            kept = args.keep_memory and name.startswith(("ours", "limit"))
            of_name = argparse.Namespace(**vars(args) | {"keep_memory": kept})
            context = multiprocessing.get_context("spawn")
            with concurrent.futures.ProcessPoolExecutor(1, context) as process:
                yield process.submit(measure, of_name, [name]).result()


def sizes_given(args):
    """The sizes on the command line, as changes of a `TransformerConfig`."""
    return {name: value for name in SIZES if (value := getattr(args, name)) is not None}


def stack_of(config, vocabulary_size):
    return (
        f"{config.num_layers} + {config.num_layers} layers, d_model {config.d_model}, "
        f"{config.num_heads} heads, d_ff {config.d_ff}, vocabulary {vocabulary_size:,}"
    )


def race(steps, rounds):
    """Seconds of every step, (rounds, steps): in each round one of each in turn."""
    seconds = np.empty((rounds, len(steps)))
    for round_number, column in np.ndindex(seconds.shape):
        start = time.perf_counter()
        steps[column]()
        seconds[round_number, column] = time.perf_counter() - start
    return seconds


def check_quiet():
    """Prints how much two threads speed up a product of NumPy; returns that ratio.

    It is near 2 where two cores are idle. Where other processes use them it is lower, and the
    measurement that follows means little.
    """
    from threadpoolctl import threadpool_limits

    a = np.random.default_rng(0).normal(size=(1536, 1536)).astype("float32")

    def seconds(threads):
        with threadpool_limits(threads, "blas"):
            return np.median(race([lambda: a @ a], 7)[2:])

    ratio = seconds(1) / seconds(2)
    print(
        f"Machine check: a float32 product of NumPy is {ratio:.2f} times as fast on two threads as "
        "on one (near 2 on a quiet machine).",
        file=sys.stderr,
    )
    return ratio


def usage():
    """Counters of the system for this process; None on Windows, which has no such counters."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF)


def peak_memory():
    """The peak memory of this process in MB; NaN on Windows."""
    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, kilobytes on Linux
    return counted.ru_maxrss / unit if (counted := usage()) else math.nan


def page_faults():
    """How many pages of memory the system has given to this process; NaN on Windows."""
    return counted.ru_minflt if (counted := usage()) else math.nan


def report(args, rows, **circumstances):
    """Where, with what and when the rows were measured: a line after the table, and the JSON."""
    backend = keras.backend.backend()
    # Contenders may have had processes of their own.
    used = *sys.modules, *(name.replace("-", "_") for name in getattr(args, "contenders", ()))
    packages = ("keras", "keras_hub", "ctranslate2", backend)
    packages = [name for name in packages if any(each.startswith(name) for each in used)]
    versions = {name: importlib.import_module(name).__version__ for name in packages}
    where = {
        "hardware": hardware(),
        "versions": {"python": platform.python_version(), **versions},
        "date": datetime.date.today().isoformat(),
        "command": f"KERAS_BACKEND={backend} python {shlex.join(sys.argv)}",
        **circumstances,
    }
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items())
    print(f"\n{where['hardware']}; {versions}; {where['date']}; `{where['command']}`")
    if args.json:
        content = evaluation.as_json({**where, "rows": rows})
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
        write_text(args.json, f"{text}\n")


def hardware():
    """The accelerators that the backend uses, or else the processor."""
    names = accelerators()
    if names:
        return f"{len(names)} x {names[0]}"
    name = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        cpuinfo = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
        name = re.search(r"model name\s*: (.*)|$", cpuinfo)[1] or name
    return f"{name}, {num_cores()} cores"


def accelerators():
    """The names of the accelerators that the backend uses."""
    if keras.backend.backend() == "jax":
        import jax

        return [device.device_kind for device in jax.devices() if device.platform != "cpu"]
    if keras.backend.backend() == "torch":
        import torch

        return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    from tensorflow import config

    details = map(config.experimental.get_device_details, config.list_physical_devices("GPU"))
    return [detail.get("device_name", "GPU") for detail in details]
