"""Where the time of a training step goes, operation by operation."""

import collections
import pathlib
import re
import tempfile

import keras_transformer as kt
from keras_transformer import backend

from .measuring import (
    add_keep_memory,
    check_quiet,
    page_faults,
    race,
    report,
    sizes_given,
    stack_of,
)
from .training import add_step, keras_step, ours, random_batch, set_up

PROFILE_HELP = """\
Where the time of a training step goes, as the backend's own profiler records it: PyTorch's, and on
TensorFlow and JAX that of XLA, which JAX reads (also install it).

Each row is a kind of operation, with its milliseconds per step and its share of all operations,
forward and backward, Adam included. A step has two threads or more, so that the sum may be longer
than the step; a profiled step is slower than another one. `products` are the operations that
multiply matrices: the least that a step of these sizes needs. New pages are memory that a step
requests from the system, which --keep-memory avoids.
"""
PRODUCTS = {
    "tensorflow": (
        *("MatMul", "_FusedMatMul", "BatchMatMulV2"),
        *("_MklMatMul", "_MklNativeFusedMatMul", "_MklBatchMatMulV2"),  # by oneDNN
    ),
    "jax": ("dot", "ynn_fusion", "onednn_matmul"),  # by XLA itself, XNNPACK's successor, oneDNN
    "torch": ("aten::mm", "aten::addmm", "aten::bmm", "aten::_scaled_dot_product"),
}


def profiled_by_torch(step, rounds):
    """Seconds of each operation in all rounds."""
    from torch.profiler import ProfilerActivity, profile

    gpu = backend.on_accelerator()
    activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * gpu]
    with profile(activities=activities) as profiler:
        for _ in range(rounds):
            step()
    where = "self_device_time_total" if gpu else "self_cpu_time_total"
    operations = [event for event in profiler.key_averages() if event.key.startswith("aten::")]
    return {event.key: getattr(event, where) / 1e6 for event in operations}


def profiled_by_xla(step, rounds):
    """Seconds of each operation in all rounds."""
    from jax.profiler import ProfileData, start_trace, stop_trace

    start, stop = start_trace, stop_trace
    is_tensorflow = backend.name() == "tensorflow"
    if is_tensorflow:
        import tensorflow as tf

        start, stop = tf.profiler.experimental.start, tf.profiler.experimental.stop
    seconds = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        start(folder)
        for _ in range(rounds):
            step()
        stop()
        (path,) = pathlib.Path(folder).rglob("*.xplane.pb")
        data = ProfileData.from_file(str(path))
    # The threads that compute; TensorFlow writes "name of the operation:its kind".
    threads = re.compile("tf_Compute" if is_tensorflow else "tf_XLA|Stream")
    kind = re.compile(r"[^:]+:(\w+)$" if is_tensorflow else r"([a-z_-]+)(\.\d+)*$")
    for plane in data.planes:
        for line in plane.lines:
            for event in line.events if threads.match(line.name) else ():
                if match := kind.match(event.name):
                    seconds[match[1]] += event.duration_ns / 1e9
    return seconds


def profile(args):
    set_up(args)
    config = kt.PRESETS[args.preset].replace(**sizes_given(args))
    quiet, name = check_quiet(), backend.name()
    batch = random_batch(args, args.length)
    loss = kt.TokenCrossEntropy(label_smoothing=0.1)
    jit_compile = False if name == "tensorflow" else "auto"
    step = keras_step(ours(config, args.vocabulary_size), batch, loss, None, jit_compile)
    race([step], 3)
    before = page_faults()
    seconds_per_step = float(race([step], args.rounds).mean())
    pages_per_step = (page_faults() - before) / args.rounds
    by_profiler = profiled_by_torch if name == "torch" else profiled_by_xla
    kinds = {kind: s / args.rounds for kind, s in by_profiler(step, args.rounds).items()}
    total = sum(kinds.values())
    products = sum(s for kind, s in kinds.items() if kind.startswith(PRODUCTS[name]))
    rows = sorted(kinds.items(), key=lambda row: -row[1])[: args.top]
    rows = [("products", products), *rows]

    batches = f"batch {args.batch_size} x {args.length}, dropout {config.dropout:g}"
    print(f"Operations of a training step, {stack_of(config, args.vocabulary_size)}, {batches}")
    print(f"Without the profiler: {seconds_per_step:.3f} s per step,", end=" ")
    print(f"{pages_per_step:,.0f} new pages of memory\n")
    print("| operation | ms per step | share |\n|---|---|---|")
    for kind, seconds in rows:
        print(f"| {kind} | {1000 * seconds:.1f} | {seconds / total:.1%} |")
    rows = [{"operation": kind, "seconds": s, "share": s / total} for kind, s in rows]
    of_step = dict(seconds_per_step=seconds_per_step, pages_per_step=pages_per_step)
    report(args, rows, **of_step, two_threads_over_one=quiet)


def add_command(commands, formatter):
    one_line = "where the time of a training step goes"
    command = commands.add_parser("profile", help=one_line, description=PROFILE_HELP, **formatter)
    add = command.add_argument
    add_step(add)
    add_keep_memory(add)
    add("--rounds", type=int, default=5, metavar="N", help="profiled steps (default: 5)")
    add("--top", type=int, default=15, metavar="N", help="operations to print (default: 15)")
    command.set_defaults(run=profile)
