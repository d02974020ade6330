"""What the benchmarks share: our model, a fair race, and the circumstances of a measurement."""

import datetime
import json
import os
import platform
import re
import shlex
import sys
import time

import keras
import numpy as np

from keras_transformer.models import Transformer

SIZES = {
    "num_layers": (None, "N, in the encoder and again in the decoder; default: the preset's"),
    "d_model": (None, "width; default: the preset's"),
    "num_heads": (None, "h; default: the preset's"),
    "d_ff": (None, "width inside the feed-forward networks; default: the preset's"),
    "vocabulary_size": (8000, "ids, shared by both sides; default: 8000"),
    "batch_size": (64, "sentence pairs; default: 64"),
    "length": (32, "tokens a side, none of them padding; default: 32"),
    "rounds": (20, "timed steps of each contender; default: 20"),
    "warmup": (3, "untimed steps of each contender before; default: 3"),
    "seed": (0, "of weights, ids and dropout; default: 0"),
}


INPUTS = ("source_ids", "target_ids")


def id_inputs():
    return {name: keras.Input((None,), dtype="int32", name=name) for name in INPUTS}


def ours(sizes, **options):
    return Transformer(
        sizes.vocabulary_size,
        num_layers=sizes.num_layers,
        d_model=sizes.d_model,
        num_heads=sizes.num_heads,
        d_ff=sizes.d_ff,
        dropout=sizes.dropout,
        **options,
    )


def race(steps, rounds):
    """Seconds of every step, (rounds, steps): one of each in turn, again and again."""
    seconds = np.empty((rounds, len(steps)))
    for round_number, column in np.ndindex(seconds.shape):
        start = time.perf_counter()
        steps[column]()
        seconds[round_number, column] = time.perf_counter() - start
    return seconds


def stack_of(args):
    stack = f"{args.num_layers} + {args.num_layers} layers, d_model {args.d_model}"
    return f"{stack}, {args.num_heads} heads, d_ff {args.d_ff}, vocabulary {args.vocabulary_size:,}"


def report(args, rows):
    """Where, with what and when the rows were measured: a line after the table, and the JSON."""
    backend = keras.backend.backend()
    modules = {name: sys.modules.get(name) for name in ("keras", "keras_hub", backend)}
    versions = {name: module.__version__ for name, module in modules.items() if module}
    where = dict(
        hardware=hardware(),
        versions={"python": platform.python_version(), **versions},
        date=datetime.date.today().isoformat(),
        command=f"KERAS_BACKEND={backend} python {shlex.join(sys.argv)}",
    )
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items())
    print(f"\n{where['hardware']}; {versions}; {where['date']}; `{where['command']}`")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({**where, "rows": rows}, file, indent=2)


def hardware():
    """The accelerators that the backend uses, or else the processor, in words."""
    if keras.backend.backend() == "jax":
        import jax

        names = [device.device_kind for device in jax.devices() if device.platform != "cpu"]
    elif keras.backend.backend() == "torch":
        import torch

        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    else:
        from tensorflow import config

        details = map(config.experimental.get_device_details, config.list_physical_devices("GPU"))
        names = [detail.get("device_name", "GPU") for detail in details]
    if names:
        return f"{len(names)} x {names[0]}"
    name = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = re.search(r"model name\s*: (.*)|$", file.read())[1] or name
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores"
