"""Cores, threads, memory and random numbers of this process.

Importing this module does not import Keras.
"""

import collections
import concurrent.futures
import contextvars
import ctypes
import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ..checks import check_at_least
from .platform import name, on_accelerator, torch_device


def num_cores() -> int:
    """The cores that this process may use, or, where the system does not report them, all."""
    if hasattr(os, "sched_getaffinity"):  # neither on macOS nor on Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def set_num_threads(number: int) -> None:
    """Sets the threads of one operation, on TensorFlow and PyTorch; JAX has no such setting.

    Splitting the operations of a small model costs more than it gains. Call it before the first
    operation.

    Args:
        number: int from 1.
    """
    check_at_least(1, number=number)
    if name() == "tensorflow":
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(number)
    if name() == "torch":
        import torch

        torch.set_num_threads(number)


def map_batches(function: Callable, batches: Iterable) -> Iterator[Any]:
    """`function` of each batch, in their order; with XLA on a CPU, of two batches at a time.

    Most operations of decoding are too small for two threads: one batch alone leaves a core idle.
    On PyTorch decoding is a loop in Python, of which one thread runs at a time.

    Args:
        function: it decodes a batch; two threads call it.
        batches: iterable, read by the caller's thread.

    Yields:
        What the function returns, one batch after the other.
    """
    batches = iter(batches)
    first = list(itertools.islice(batches, 2))
    batches = itertools.chain(first, batches)
    if len(first) < 2 or not _has_idle_cores():
        yield from map(function, batches)
        return
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        waiting: collections.deque = collections.deque()
        for batch in batches:
            if len(waiting) == 3:  # two are decoded, and one is ready
                yield waiting.popleft().result()
            context = contextvars.copy_context()
            waiting.append(threads.submit(context.run, function, batch))
        while waiting:
            yield waiting.popleft().result()


def _has_idle_cores():
    """Whether one batch leaves cores idle, which a thread that knows no scope of Keras may use."""
    import keras

    if num_cores() == 1 or on_accelerator() or keras.distribution.distribution() is not None:
        return False
    if name() == "tensorflow":
        import tensorflow as tf

        several = tf.config.threading.get_intra_op_parallelism_threads() != 1
        return several and not tf.distribute.has_strategy()
    return name() == "jax"


def prefers_continuous_batches() -> bool:
    """Whether a sentence that has ended should give its row to another: with XLA on a CPU.

    On PyTorch the Python of doing so costs more than the rows it saves. A GPU would start some
    dozens of small kernels per sentence, and several devices would each have rows of their own.
    """
    import keras

    if name() == "torch":
        return False
    return not (on_accelerator() or keras.distribution.distribution())


def speed_up_training() -> None:
    """Calls `keep_freed_memory` and `leave_pipelines_untuned`, as the training scripts do.

    It is for the whole process, and comes before the first operation.
    """
    keep_freed_memory()
    leave_pipelines_untuned()


def keep_freed_memory() -> None:
    """Lets this process keep the memory that it frees, for the arrays of its next steps.

    Otherwise the C library returns each array of many MB to the system, and requests the next one
    page by page, filled with zeros, at every training step on a CPU. The process stays as large as
    its peak. TensorFlow has an allocator of its own for that, the one of its GPUs. The rest needs
    Linux with glibc; elsewhere nothing happens. Call it before the first operation.

    Source: mallopt(3), M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_TOP_PAD and M_ARENA_MAX.
    """
    if name() == "tensorflow":
        os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")
        os.environ.setdefault("TF_CPU_BFC_MEM_LIMIT_IN_MB", str(2**24))  # as much as there is
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        for parameter in (-1, -3):
            libc.mallopt(parameter, 2**31 - 1)  # bytes, the largest int of C
        libc.mallopt(-2, 2**27)  # more than a heap of other threads: none is returned whole
        if name() == "jax":  # which frees in other threads; TensorFlow's would wait for each other
            libc.mallopt(-8, 1)


@functools.cache
def leave_pipelines_untuned() -> None:
    """Turns off the tuning of Keras's input pipelines of this process; on TensorFlow alone.

    A thread tunes them. It sleeps between its rounds, each time twice as long, up to a minute.
    Keras drops the iterator of an epoch, which waits until the thread is awake: TensorFlow (2.21)
    wakes it to end it before it can see that it is to end. So epochs of 11 s took 20, those of 41 s
    took 82. There is nothing to tune but the number of batches that are ready.

    Call it before `fit`. It changes how three data adapters of Keras make a tf.data.Dataset, of
    batches, arrays or a generator.
    """
    if name() != "tensorflow":
        return
    import tensorflow as tf

    from .private import data_adapters

    options = tf.data.Options()
    options.autotune.enabled = False

    def untuned(get_tf_dataset):
        return lambda adapter: get_tf_dataset(adapter).with_options(options)

    for adapter in data_adapters():
        adapter.get_tf_dataset = untuned(adapter.get_tf_dataset)


def make_deterministic() -> None:
    """Asks for operations that return the same bits at every run, at some cost.

    It comes before the first operation, since JAX and cuBLAS read their settings only once.
    """
    if name() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()
    elif name() == "torch":
        import torch

        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # PyTorch asks for it
        torch.use_deterministic_algorithms(True)
    else:  # on a CPU they are deterministic anyway
        import keras

        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_deterministic_ops=true".lstrip()
        keras.config.disable_flash_attention()  # with it XLA does not compile cuDNN's


def seed_dropout(seed: int) -> None:
    """Seeds PyTorch's own generator, which its dropout uses; the other backends hold a state."""
    if name() == "torch":
        import torch

        torch.manual_seed(seed)


def dropout_state() -> np.ndarray | None:
    """The state of PyTorch's own generator, uint8; None elsewhere: there the layers hold it."""
    return _generator()[0]().numpy() if name() == "torch" else None


def set_dropout_state(state: np.ndarray) -> None:
    """Sets what `dropout_state` returned, on PyTorch.

    The state of another kind of device is ignored: there, other numbers were drawn anyway.
    """
    import torch

    get_state, set_state = _generator()
    if len(state) == len(get_state()):
        set_state(torch.from_numpy(np.array(state)))


def _generator():
    """The functions that get and set the state of the device on which Keras computes."""
    import torch

    device = torch_device()
    module = torch if device.type == "cpu" else torch.get_device_module(device)
    if device.type in ("cpu", "mps"):  # there is one of these; each GPU has its own state
        return module.get_rng_state, module.set_rng_state
    of_device = functools.partial(module.get_rng_state, device)
    return of_device, functools.partial(module.set_rng_state, device=device)
