"""Several devices and several processes: one training, in which each of them has its own rows.

The loss, the metrics and the updates are those of the whole batch on one device: means over all of
its tokens. A mean of the devices' means would give the tokens of a device with few of them more
weight.

JAX computes a batch as one array, wherever its rows are. TensorFlow and PyTorch run the training
step once per device; there `global_mean`, `gather_tokens` and `SynchronizedGradients` combine the
results of the steps.
"""

import contextlib
import dataclasses
import functools
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

import keras
import numpy as np
from keras import ops

from ..checks import check, check_at_least
from . import platform
from .private import values_replaced

TIMEOUT = 600  # seconds until a process of PyTorch gives up waiting for another one

# Which axis of a kernel is split: columns first, then rows, so that the result between the two
# stays where it is (Shoeybi et al. 2019, section 3).
LAYOUT = {
    r".*(query|key|value|inner)/kernel": (None, "model"),
    r".*(query|key|value|inner)/bias": ("model",),
    r".*(output|outer)/kernel": ("model", None),
    r".*embeddings": ("model", None),
}


@dataclasses.dataclass(frozen=True)
class Process:
    """This process among all of them."""

    index: int = 0
    number: int = 1
    together: bool = False  # whether what it computes is part of a batch of all processes


_process = Process()
_left = contextlib.ExitStack()  # never closed: see `leave`


# What a training script calls


def use_devices(number: int, model_parallel: int = 1) -> None:
    """Splits every batch over several devices, those of all processes together.

    Each device has all of the weights, and an equal share of the rows of each batch, to which the
    batches of this package add rows of padding. Call it before a model and batches are made.

    On JAX, one process has all devices of its host. Several processes are told about each other by
    Keras's variables KERAS_DISTRIBUTION_JOB_ADDRESSES, KERAS_DISTRIBUTION_NUM_PROCESSES and
    KERAS_DISTRIBUTION_PROCESS_ID. On TensorFlow there is one process. On PyTorch there is one per
    device, started by torchrun.

    Args:
        number: int from 1, number of devices.
        model_parallel: int from 1, a divisor of `number`: over this number of neighboring devices
            the weights of attention, feed-forward network and vocabulary are split; JAX only.

    Raises:
        ValueError: There are other devices, or the backend cannot use them so.
    """
    check_at_least(1, devices=number, model_parallel=model_parallel)
    given = dict(devices=number, model_parallel=model_parallel)
    check(number % model_parallel == 0, "model_parallel must divide the devices", **given)
    splits = model_parallel == 1 or platform.name() == "jax"
    check(splits, "Splitting the weights needs JAX", backend=platform.name())
    use = {"jax": _use_jax, "tensorflow": _use_tensorflow, "torch": _use_torch}[platform.name()]
    use(number, model_parallel)


def check_update(clips: bool, accumulates: bool) -> None:
    """Refuses what an optimizer of Keras does to the gradients of each device, not to their sum.

    Args:
        clips: bool, whether gradients are clipped.
        accumulates: bool, whether there is one update per several batches.

    Raises:
        ValueError: `use_devices` has chosen several devices on TensorFlow, and either is true.
    """
    if platform.name() == "tensorflow" and num_shares() > 1:
        expected = (
            "On several devices of TensorFlow, Keras clips and accumulates the gradients of each "
            "device, not of the batch: use --clip-norm none --accumulate 1, or JAX or PyTorch"
        )
        check(not (clips or accumulates), expected, clips=clips, accumulates=accumulates)


def _use_jax(number, model_parallel):
    processes = int(os.environ.get("KERAS_DISTRIBUTION_NUM_PROCESSES", "1"))
    if processes > 1:
        keras.distribution.initialize()
        _join(int(os.environ["KERAS_DISTRIBUTION_PROCESS_ID"]), processes)
    elif number == 1:
        return
    devices = _found(keras.distribution.list_devices(), number, processes)
    own = {"auto_shard_dataset": False}  # each process gives its own rows
    if model_parallel == 1:
        distribution = keras.distribution.DataParallel(devices=devices, **own)
    else:
        expected = "Weights are split over the devices of one process"
        check(processes == 1, expected, model_parallel=model_parallel, processes=processes)
        shape = number // model_parallel, model_parallel
        mesh = keras.distribution.DeviceMesh(shape, ("batch", "model"), devices)
        layout = keras.distribution.LayoutMap(mesh)
        layout.update(LAYOUT)
        distribution = keras.distribution.ModelParallel(
            layout_map=layout, batch_dim_name="batch", **own
        )
    keras.distribution.set_distribution(distribution)


def _found(devices, number, processes=1):
    """The first `number` of the devices that the backend finds; of several processes all."""
    rule = f"at most {len(devices)}, the devices that {platform.name()} finds"
    if processes > 1:
        rule = f"{len(devices)}, the devices of all {processes} processes"
    fits = number == len(devices) or (processes == 1 and number < len(devices))
    check(fits, f"devices must be {rule}", devices=number)
    return devices[:number]


def _use_tensorflow(number, model_parallel):
    import tensorflow as tf

    if number == tf.distribute.get_strategy().num_replicas_in_sync:
        return  # a second strategy over the same devices would confuse TensorFlow's collectives
    several = os.environ.get("TF_CONFIG")  # MultiWorkerMirroredStrategy, which Keras 3 cannot run
    check(
        several is None,
        "Keras runs TensorFlow on one host; several hosts need JAX or PyTorch",
        TF_CONFIG=several,
    )
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    devices = _found(tf.config.list_logical_devices(kind), number)
    strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
    tf.distribute.experimental_set_strategy(strategy)


def _use_torch(number, model_parallel):
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    expected = f"On PyTorch, devices must be the number of processes of torchrun, {launched}"
    check(number == launched, expected, devices=number)
    if number == 1:
        return
    import datetime

    import torch

    kind = "gloo"
    if torch.cuda.is_available():
        kind = "nccl"
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group(kind, timeout=datetime.timedelta(seconds=TIMEOUT))
    _join(torch.distributed.get_rank(), number)


def _join(index, number):
    global _process
    _process = Process(index, number, together=True)


# Processes


def num_shares() -> int:
    """int from 1, the parts that the rows of a batch are split into: one per replica of the model.

    They are those of `use_devices`, of `keras.distribution.set_distribution`, or of the strategy of
    TensorFlow in whose scope it is called.
    """
    if platform.name() == "tensorflow":
        import tensorflow as tf

        return tf.distribute.get_strategy().num_replicas_in_sync
    distribution = keras.distribution.distribution()
    if distribution is None:
        return _process.number if _process.together else 1
    return distribution.num_model_replicas


def is_first_process() -> bool:
    """Whether this process is the one that writes files; the only one, unless there are several."""
    return _process.index == 0


def own_rows(batches: Any) -> Any:
    """Batches for `fit` and `evaluate` in which each process has an equal share of the rows.

    Args:
        batches: `TranslationBatches`, or another keras.utils.PyDataset.

    Returns:
        The same with one process; else a keras.utils.PyDataset.
    """
    return _OwnRows(batches) if _process.together else batches


class _OwnRows(keras.utils.PyDataset):
    """The rows of this process, of each batch."""

    def __init__(self, batches):
        super().__init__(workers=1)
        self.batches = batches

    @property
    def num_batches(self):
        return self.batches.num_batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return keras.tree.map_structure(self._own, self.batches[index])

    def _own(self, rows):
        share, rest = divmod(len(rows), _process.number)
        expected = f"The rows of a batch must be a multiple of the {_process.number} processes"
        check(not rest, expected, rows=len(rows))
        return rows[_process.index * share : (_process.index + 1) * share]

    def on_epoch_begin(self):
        self.batches.on_epoch_begin()

    def on_epoch_end(self):
        self.batches.on_epoch_end()


def wait_for_all() -> None:
    """Returns when all processes have called it: what the first one has written is there."""
    gather(np.zeros(1, "float32"))


def gather(array: Any) -> Any:
    """The arrays of all processes, along a new first axis; with one process, `array` itself.

    Args:
        array: NumPy, of the same shape and dtype in all processes; None stays None.
    """
    if array is None or not _process.together:
        return array
    if platform.name() == "jax":
        return _gather_on_jax(array)
    return ops.convert_to_numpy(_all_gather(ops.convert_to_tensor(array)))


def _gather_on_jax(array):
    import jax

    rows, replicate = _replication_on_jax()
    parts = jax.make_array_from_process_local_data(rows, np.asarray(array)[None])
    return np.asarray(replicate(parts))


@functools.cache
def _replication_on_jax():
    """How rows are split over the processes, and the program that gives all of them to each."""
    import jax

    devices = np.array(jax.devices()).reshape(jax.process_count(), -1)
    mesh = jax.sharding.Mesh(devices, ("process", "device"))
    rows, whole = (
        jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
        for axes in (["process"], [])
    )
    return rows, jax.jit(lambda x: x, out_shardings=whole)


def own(gathered: Any) -> Any:
    """The part of this process in what `gather` returned."""
    return gathered[_process.index] if gathered is not None and _process.together else gathered


def of_first_process(number: float) -> float:
    """The number of the first process, so that all of them decide the same."""
    return float(gather(np.float32(number))[0]) if _process.together else number


def own_seed(seed: int) -> int:
    """A seed for what each process of PyTorch draws for its own rows, such as dropout."""
    return seed + _process.index * 2**32


def any_process(condition: bool) -> bool:
    """Whether a condition holds in one of the processes."""
    return bool(gather(np.float32(condition)).any()) if _process.together else condition


@contextlib.contextmanager
def alone(model: keras.Model) -> Iterator[None]:
    """Within it, this process uses or saves a model by itself, whatever the other ones do.

    JAX holds a weight as one array of all processes, which one of them can neither read nor
    compute with; but each of them has all of its values.

    Args:
        model: keras.Model that is trained on several devices; with one process nothing changes.
    """
    global _process
    if not _process.together:
        yield
        return
    before, _process = _process, dataclasses.replace(_process, together=False)
    try:
        with _on_own_device(model) if platform.name() == "jax" else contextlib.nullcontext():
            yield
    finally:
        _process = before


def leave(model: keras.Model) -> None:
    """From here to its end, this process uses a model by itself; see `alone`."""
    _left.enter_context(alone(model))


@contextlib.contextmanager
def _on_own_device(model):
    """Weights on one device of this process, and functions of Keras compiled for it."""
    distribution = keras.distribution.distribution()
    functions = ("train_function", "test_function", "predict_function")
    compiled = {name: getattr(model, name) for name in functions}
    optimizer = getattr(model, "optimizer", None)
    variables = [*model.variables, *(optimizer.variables if optimizer else ())]
    variables += getattr(model, "metrics_variables", [])
    variables = [*{id(variable): variable for variable in variables}.values()]
    keras.distribution.set_distribution(None)
    vars(model).update(dict.fromkeys(functions))
    try:
        with values_replaced(variables, [_on_own_devices(v.value) for v in variables]):
            yield
    finally:
        keras.distribution.set_distribution(distribution)
        vars(model).update(compiled)


def _on_own_devices(value):
    """A copy of an array that all processes have, on this one's first device."""
    return value if value.is_fully_addressable else ops.convert_to_tensor(np.asarray(value))


# Within a training step


def global_mean(mean: Any, weights: Any) -> Any:
    """The mean over the tokens of all devices, from that over the tokens of this one.

    TensorFlow and PyTorch sum the gradients over the devices, so that of each device is that of
    its own part of the sum.

    Args:
        mean: float scalar, as Keras's reduction returns it: on TensorFlow divided by the number of
            devices.
        weights: float, the weights of the tokens of this device.

    Returns:
        float scalar; with one device `mean` itself. On PyTorch the same on all devices; on
        TensorFlow one summand, which Keras adds to the others.
    """
    if platform.name() == "tensorflow":
        import tensorflow as tf

        context = tf.distribute.get_replica_context()
        if context is None or context.num_replicas_in_sync == 1:
            return mean
        tokens = ops.sum(weights)
        total = context.all_reduce("SUM", tokens)
        return mean * ops.divide_no_nan(tokens * context.num_replicas_in_sync, total)
    if platform.name() != "torch" or not _process.together:
        return mean
    tokens = ops.sum(weights)
    own_part = mean * ops.divide_no_nan(tokens, _all_reduce(tokens))
    # The value of the sum, and the gradient of the part.
    return _all_reduce(own_part) + (own_part - own_part.detach())


def gather_tokens(*values: Any) -> tuple:
    """On PyTorch, the values of the tokens of all processes, for metrics; else `values` themselves.

    On JAX these are of all devices. TensorFlow adds what its devices have counted when it reads a
    metric at the end of an epoch; until then the progress bar shows the mean of theirs.

    Args:
        *values: of the same shape, (tokens,), in all processes.

    Returns:
        Tuple of float32, (all tokens,).
    """
    if platform.name() != "torch" or not _process.together:
        return values
    return tuple(ops.ravel(_all_gather(ops.cast(value, "float32"))) for value in values)


class SynchronizedGradients(keras.callbacks.Callback):
    """On PyTorch, replaces each gradient by its sum over all processes, when it is computed.

    Keras's `fit` does not synchronize gradients with torch.distributed. With `TokenCrossEntropy`,
    whose gradients are parts of a sum, every process makes the updates of the whole batch.
    Elsewhere, and with one process, it does nothing.
    """

    def on_train_begin(self, logs=None):
        self._hooks = []
        if platform.name() == "torch" and _process.together:
            for variable in self.model.trainable_variables:
                hook = variable.value.register_post_accumulate_grad_hook(_sum_gradient)
                self._hooks.append(hook)

    def on_train_end(self, logs=None):
        for hook in self._hooks:
            hook.remove()


def _sum_gradient(parameter):
    parameter.grad = _all_reduce(parameter.grad)


def _all_reduce(tensor):
    import torch

    total = tensor.detach().clone()
    torch.distributed.all_reduce(total)
    return total


def _all_gather(tensor):
    import torch

    tensor = tensor.detach().contiguous()
    parts = [torch.empty_like(tensor) for _ in range(_process.number)]
    torch.distributed.all_gather(parts, tensor)
    return torch.stack(parts)


# A process that is lost

LOST_SIGNS = re.compile("gloo|nccl|coordination service|distributed service", re.IGNORECASE)
LOST = (
    "Another process of this training ended or did not answer ({reason}). Start all of them again "
    "with --resume: training continues after the last checkpoint."
)


def end(sentence: str) -> NoReturn:
    """Ends this process at once: an orderly end would wait for the one that is lost."""
    print(sentence, file=sys.stderr, flush=True)
    os._exit(1)


def lost_process(error: BaseException) -> str | None:
    """The sentence for an error by which a process learns that another one has ended.

    Args:
        error: what `fit` or a function of this module raised.

    Returns:
        str; None for any other error.
    """
    text = str(error)
    is_lost = isinstance(error, (RuntimeError, ValueError)) and LOST_SIGNS.search(text)
    if not (_process.together and is_lost):
        return None
    return LOST.format(reason=text.splitlines()[0].strip())
