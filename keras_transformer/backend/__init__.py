"""The one module that knows which backend runs: kernels, compilation, threads, determinism.

Elsewhere the code says what is computed. Here it says how TensorFlow, JAX and PyTorch do that best.
"""

import collections
import concurrent.futures
import contextlib
import contextvars
import ctypes
import functools
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from ..atomic import named
from ..checks import check_at_least, num_cores

_recording_lock = threading.Lock()  # PyTorch records one function at a time
_portable = contextvars.ContextVar("portable", default=False)

MOST_RECORDED = 256  # shapes per traced function; beyond them the oldest record is dropped


def name() -> str:
    """The running backend: "tensorflow", "jax" or "torch"."""
    return keras.backend.backend()


def on_accelerator() -> bool:
    """Whether the backend computes on a GPU or a TPU."""
    if name() == "tensorflow":
        import tensorflow as tf

        return bool(tf.config.list_physical_devices("GPU"))
    if name() == "jax":
        import jax

        return jax.default_backend() != "cpu"
    return _torch_device().type != "cpu"


def _torch_device():
    """Where Keras computes on PyTorch, which KERAS_TORCH_DEVICE can choose."""
    return ops.zeros(()).device


# Layers and operations


def num_rows(x: Any) -> int:
    """The first axis of a tensor, for `ops.reshape`: its size if that is known, else -1.

    With -1 alone TensorFlow would forget a size that it knows, which its loops do not allow.
    """
    return -1 if x.shape[0] is None else x.shape[0]


@keras.saving.register_keras_serializable(package="keras_transformer")
class Linear(keras.layers.Dense):
    """keras.layers.Dense, computed as one product of two matrices: one row per token.

    The gradient of the kernel sums over batch and length. XLA on a CPU is a quarter slower when
    these are two axes. PyTorch folds them itself.

    Args: those of `keras.layers.Dense`.

    Call arguments:
        inputs: float, (..., d).

    Returns:
        float, (..., units).
    """

    def call(self, inputs, training=None):
        if name() == "torch" or len(inputs.shape) != 3:
            return super().call(inputs, training=training)
        rows = super().call(ops.reshape(inputs, (-1, inputs.shape[-1])), training=training)
        return ops.reshape(rows, (num_rows(inputs), ops.shape(inputs)[1], self.units))

    def quantize(self, mode=None, type_check=True, config=None):
        super().quantize(mode, type_check=False, config=config)  # the same weights as a Dense


def has_fused_attention(dtype: str) -> bool:
    """Whether a kernel computes equation 1 faster than its two products and softmax do.

    TensorFlow has none. JAX's on a CPU cannot multiply float16.
    """
    if name() == "jax":
        return dtype != "float16" or on_accelerator()
    return name() == "torch"


def fused_attention(query, key, value, attention_mask=None, is_causal=False):
    """Equation 1 by the backend's kernel: the output of `scaled_dot_product_attention`.

    For a query that may attend to nothing the kernels return the mean of the values or NaN; here
    its output is zero, as in the formula.

    Args:
        query: float, (batch, num_heads, target length, d_k).
        key: float, (batch, num_heads, source length, d_k).
        value: float, (batch, num_heads, source length, d_k).
        attention_mask: bool, broadcastable to (batch, num_heads, target length, source length), of
            four axes; or None.
        is_causal: bool, whether to apply the look-ahead mask where there is no other.

    Returns:
        float, (batch, num_heads, target length, d_k).
    """
    heads_third = [ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value)]
    flash_attention = keras.config.is_flash_attention_enabled()  # None: where it can
    if attention_mask is None:
        output = ops.dot_product_attention(
            *heads_third, is_causal=is_causal, flash_attention=flash_attention
        )
        return ops.transpose(output, (0, 2, 1, 3))
    if name() == "jax" and on_accelerator():  # cuDNN wants the row of every query, even lengths
        lengths = query.shape[2], key.shape[2]
        attention_mask = ops.broadcast_to(attention_mask, (*attention_mask.shape[:2], *lengths))
        flash_attention = False if any(length % 2 for length in lengths) else flash_attention
    output = ops.dot_product_attention(
        *heads_third, mask=attention_mask, flash_attention=flash_attention
    )
    may_attend = ops.transpose(ops.any(attention_mask, axis=-1, keepdims=True), (0, 2, 1, 3))
    return ops.transpose(ops.where(may_attend, output, 0.0), (0, 2, 1, 3))


def fuses() -> bool:
    """Whether elementwise operations are cheaper done again than their result kept: on JAX."""
    return name() == "jax"


def known_int(x) -> int | None:
    """An int scalar as a Python int; None where it is traced, or a tensor of PyTorch."""
    if isinstance(x, (int, np.integer, np.ndarray)):
        return int(x)
    if name() == "tensorflow":
        import tensorflow as tf

        x = tf.get_static_value(x)
    elif name() == "jax":
        import jax

        x = None if isinstance(x, jax.core.Tracer) else x
    return None if x is None or name() == "torch" else int(x)


def slot_indices(first, number: int):
    """The slots `first`, ..., `first + number - 1` of a cache, as `write_slots` takes them.

    Args:
        first: int scalar, Python or tensor.
        number: int from 1.
    """
    if name() == "torch":
        return ops.cast(first + ops.arange(number, dtype="int32"), "int64")
    return first


def write_slots(cache, new, slots, axis: int):
    """`cache` with `new` in consecutive slots of one axis.

    On PyTorch it is written in place: a copy of the whole cache would cost more than the step.
    Where it is traced for other engines, a cache that ends before these slots grows by them.

    Args:
        cache: float, any shape.
        new: float, the same shape except for `axis`.
        slots: from `slot_indices`.
        axis: int from 0, the axis that counts slots.

    Returns:
        float, the shape of `cache`.
    """
    if name() == "torch":
        return cache.index_copy_(axis, slots, new)
    if _portable.get():
        everything = [slice(None)] * axis
        before = cache[(*everything, slice(None, slots))]
        after = cache[(*everything, slice(slots + new.shape[axis], None))]
        return ops.concatenate([before, new, after], axis)
    start = [0] * len(cache.shape)
    start[axis] = slots
    return ops.slice_update(cache, start, new)


def subtract_at(x, columns, values):
    """x less one value per row, at one column of it. On PyTorch x itself is changed.

    Args:
        x: float, (rows, width).
        columns: int, (rows, 1).
        values: float, (rows, 1).

    Returns:
        float, (rows, width).
    """
    if name() == "torch":
        return x.scatter_add_(-1, columns.long(), -values)
    if fuses():
        here = ops.equal(ops.arange(x.shape[-1], dtype=columns.dtype), columns)
        return ops.where(here, x - values, x)
    rows = ops.expand_dims(ops.arange(ops.shape(x)[0], dtype=columns.dtype), -1)
    indices = ops.concatenate([rows, columns], axis=-1)
    return ops.scatter_update(x, indices, -ops.squeeze(values, -1), reduction="add")


def with_gradient(function: Callable, gradient: Callable) -> Callable:
    """A function with a custom gradient, computed from the tensors that it asks to keep.

    `ops.custom_gradient` keeps whatever the gradient mentions: on PyTorch out of the sight of
    rematerialization. And JAX lets it mention nothing that is being traced. Of what is kept PyTorch
    knows no gradient, so that it refuses a second derivative.

    Args:
        function: from a float tensor and constants to a tensor, and a tuple of tensors to keep.
        gradient: from the gradient by the result, and the kept tensors, to that by the first
            argument.

    Returns:
        A function with the arguments of `function`, to its first result.
    """
    if name() == "torch":
        return functools.partial(_with_gradient_on_torch().apply, function, gradient)
    if name() == "jax":
        import jax

        def differentiable(x, *constants):
            def backward(kept, upstream):
                return gradient(upstream, *kept), *[None] * len(constants)

            result = jax.custom_vjp(lambda *args: function(*args)[0])
            result.defvjp(function, backward)
            return result(x, *constants)

        return differentiable

    import tensorflow as tf

    @tf.custom_gradient
    def traced(x, *constants):
        result, kept = function(x, *constants)
        return result, lambda upstream: (gradient(upstream, *kept), *[None] * len(constants))

    return traced


@functools.cache
def _with_gradient_on_torch():
    """One class for all functions: making one takes longer than a small operation."""
    import torch

    class NotDifferentiable(torch.autograd.Function):
        @staticmethod
        def forward(context, gradient, result):  # the result depends on what it is a gradient by
            return gradient.view_as(gradient)

        @staticmethod
        def backward(context, upstream):
            raise RuntimeError(
                "The loss has no second derivative on PyTorch; use TensorFlow or JAX, or a loss of "
                "keras.losses."
            )

    class WithGradient(torch.autograd.Function):
        @staticmethod
        def forward(context, function, gradient, x, *constants):
            result, kept = function(x, *constants)
            context.save_for_backward(result, *kept)
            context.gradient, context.num_constants = gradient, len(constants)
            return result

        @staticmethod
        def backward(context, upstream):
            result, *kept = context.saved_tensors
            by_x = context.gradient(upstream, *kept)
            if torch.is_grad_enabled():  # create_graph=True
                by_x = NotDifferentiable.apply(by_x, result)
            return None, None, by_x, *[None] * context.num_constants

    return WithGradient


def prefers_blockwise_top_k() -> bool:
    """Whether top_k is faster over the maxima of blocks first: with XLA on a CPU it is."""
    return name() != "torch" and not _portable.get() and not on_accelerator()


# Compilation


def prefers_jit() -> bool:
    """Whether `compile(jit_compile=...)` makes a training step faster.

    JAX always compiles. XLA on TensorFlow helps on a GPU. On a CPU a step is as fast without it
    where freed memory is kept; it would compile each shape, and it knows nothing of several
    devices. torch.compile takes long for each shape everywhere.
    """
    if name() == "tensorflow":
        import tensorflow as tf

        several = tf.distribute.get_strategy().num_replicas_in_sync > 1
        return on_accelerator() and not several
    return name() == "jax"


def jit(function: Callable, model: keras.Model, *static: str) -> Callable:
    """`function` as one XLA program per shape; the weights of `model` are read at each call.

    On PyTorch it runs uncompiled, in inference mode; see `trace`.

    Args:
        function: its positional arguments are structures of tensors.
        model: keras.Model whose weights it reads.
        *static: names of keyword arguments that are plain values, not tensors.

    Returns:
        A function with the same arguments.
    """
    if name() == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=True, autograph=False, reduce_retracing=True)
    if name() == "jax":
        import jax

        variables = functools.cache(lambda: list(model.variables))  # a walk through all layers

        def stateless(values, *args, **kwargs):
            with keras.StatelessScope(state_mapping=zip(variables(), values, strict=True)):
                return function(*args, **kwargs)

        program = jax.jit(stateless, static_argnames=static)
        return lambda *args, **kwargs: program([v.value for v in variables()], *args, **kwargs)

    import torch

    return torch.inference_mode()(function)


def trace(function: Callable) -> Callable:
    """On PyTorch, the tensor operations of `function`, recorded once per shape of its input.

    A decoding step is some hundred small operations, and the Python of Keras around them takes
    several times as long as they do. torch.compile, a third faster still, takes half a minute per
    shape. XLA needs none of this: elsewhere this is `function` itself. Weights are read in place.

    A record holds neither gradients nor random numbers: it is for inference alone. Where PyTorch
    lacks the private modules that record, `function` itself is called, which is slower.

    Args:
        function: its arguments are structures of tensors.

    Returns:
        A function with the same arguments.
    """
    if name() != "torch":
        return function
    programs: dict = {}

    def run(*args):
        shapes = (x if x is None else (x.shape, x.dtype) for x in keras.tree.flatten(args))
        key = (*map(type, args), *shapes)
        program = programs.get(key)
        if program is None:
            with _recording_lock:
                program = programs.get(key) or _recorded(function, args)
                programs[key] = program
                if len(programs) > MOST_RECORDED:
                    del programs[next(iter(programs))]
        return program(*args)

    return run


def _recorded(function, args):
    """The operations of `function` on such arguments, as a torch.fx.GraphModule."""
    import torch

    try:
        from torch._guards import TracingContext, tracing
        from torch._subclasses import FakeTensorMode
        from torch.fx.experimental.proxy_tensor import make_fx
        from torch.utils._python_dispatch import _disable_current_modes
    except ImportError as error:
        _say_once(
            f"Decoding is slower: PyTorch {torch.__version__} has no recorder of steps ({error})."
        )
        return function

    # Copies, because a tensor that is given twice would be recorded as one argument.
    copies = keras.tree.map_structure(lambda x: x if x is None else x.clone(), args)
    # With no context, PyTorch makes a mode for the shape of every result: half of the time.
    with torch.no_grad(), tracing(TracingContext(FakeTensorMode())):
        program = make_fx(_without_conversions(function, _disable_current_modes))(*copies)
    for node in program.graph.nodes:
        node.meta.clear()  # the stack trace of each: far larger than the program
    return program


@functools.cache
def _say_once(sentence):
    print(sentence, file=sys.stderr)


def _without_conversions(function, disable_modes):
    """`function` without conversions that change nothing: half of the operations of Keras."""
    import torch

    class SkipConversions(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if func in (torch.Tensor.to, torch.Tensor.contiguous):
                with disable_modes():
                    result = func(*args, **kwargs)
                if result is args[0]:
                    return result
            return func(*args, **kwargs)

    def run(*args):
        with SkipConversions():
            return function(*args)

    return run


@contextlib.contextmanager
def portable() -> Iterator[None]:
    """Within it, functions are traced to operations that engines without XLA also have.

    TensorFlow alone is traced so.
    """
    token = _portable.set(True)
    try:
        yield
    finally:
        _portable.reset(token)


def to_tensors(structure: Any) -> Any:
    """A structure of arrays as tensors of the backend; None stays None."""
    convert = ops.convert_to_tensor
    return keras.tree.map_structure(lambda x: None if x is None else convert(x), structure)


def to_arguments(structure: Any) -> Any:
    """NumPy arrays as what a function compiled by `jit` takes: tensors; None stays None.

    On JAX it takes the arrays themselves, in a tenth of the time that tensors would need.

    Args:
        structure: NumPy arrays or scalars, or None, in tuples.

    Returns:
        The same structure.
    """
    return structure if name() == "jax" else to_tensors(structure)


def split_rows(structure: Any) -> Any:
    """`to_arguments`; on JAX with several devices, their rows are split over the devices.

    Rows that are no multiple of the devices are computed on all of them.

    Args:
        structure: arrays with one row per example, or None.
    """
    structure = to_arguments(structure)
    distribution = keras.distribution.distribution() if name() == "jax" else None
    if distribution is None:
        return structure
    import jax

    def split(x):
        if x is None or x.shape[0] % distribution.num_model_replicas:
            return x
        return jax.device_put(x, distribution.get_data_layout(x.shape).backend_layout)

    return keras.tree.map_structure(split, structure)


def rematerialize(layer: keras.layers.Layer, function: Callable, *args: Any, **kwargs: Any) -> Any:
    """`function`, which calls a layer, computed once more in the backward pass instead of kept.

    keras.remat alone cannot do it: it computes again outside of Keras's call, where dropout is
    off, or with other random numbers, and JAX takes flags for tensors. Here what is computed again
    depends on tensors alone, the states of the dropouts included.

    Args:
        layer: built keras.layers.Layer; each of its dropouts is called once.
        function: its result depends on the weights of `layer` and its arguments.
        *args, **kwargs: its arguments.
    """
    values = [_present_value(variable) for variable in layer.variables]
    output = _computed_again(layer.variables, values, function, args, kwargs)
    for inner in layer._flatten_layers():
        if isinstance(inner, keras.layers.Dropout) and inner.rate > 0:
            inner.seed_generator.next()  # as it has done within the scope
    return output


def one_by_one(variables: list, function: Callable, *arrays: Any) -> Any:
    """`function` of the rows of arrays, one after the other: only one is in memory.

    In the backward pass it is computed once more.

    Args:
        variables: list of variables, the weights that the result of `function` depends on.
        function: from a row of each array to a list of tensors.
        *arrays: tensors with as many rows.

    Returns:
        List of tensors, each with as many rows.
    """
    values = [_present_value(variable) for variable in variables]
    if name() == "jax":  # of operations without a loop, XLA would keep all results
        return ops.map(lambda row: _computed_again(variables, values, function, row, {}), arrays)
    results: list[list] = []
    for row in zip(*(ops.unstack(x) for x in arrays), strict=True):
        if results and name() == "tensorflow":  # which would compute all at once
            results[-1][0], *values = _in_turn(results[-1][0], *values)
        results.append(list(_computed_again(variables, values, function, row, {})))
    return [ops.stack(rows) for rows in zip(*results, strict=True)]


def _in_turn(result, *values):
    """The identity, but the values only once the result is known; in the gradient, reversed."""
    import tensorflow as tf

    @tf.custom_gradient
    def identity(result, *values):
        with tf.control_dependencies([result]):
            later = [tf.identity(value) for value in values]

        def gradient(by_result, *by_values):
            with tf.control_dependencies(by_values):
                return tf.identity(by_result), *by_values

        return (tf.identity(result), *later), gradient

    return identity(result, *values)


def _computed_again(variables, values, function, args, kwargs):
    """`function(*args, **kwargs)`, which reads variables, once more in the backward pass."""
    structure = (args, kwargs), values
    values = keras.tree.flatten(structure)
    places = [place for place, value in enumerate(values) if _is_float(value)]

    def compute(*floats):  # what else there is, masks and random states, has no gradient
        given = list(values)
        for place, value in zip(places, floats, strict=True):
            given[place] = value
        (args, kwargs), states = keras.tree.pack_sequence_as(structure, given)
        with keras.StatelessScope(list(zip(variables, states, strict=True))):
            return function(*args, **kwargs)

    return keras.remat(compute)(*(values[place] for place in places))


def _present_value(variable):
    """The value of a variable as a tensor, which on TensorFlow a variable is itself."""
    if name() == "tensorflow":
        import tensorflow as tf

        return tf.identity(variable.value)
    return variable.value


def _is_float(value):
    return ops.is_tensor(value) and keras.backend.is_float_dtype(value.dtype)


# Threads, memory, and random numbers


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
    if num_cores() == 1 or on_accelerator() or keras.distribution.distribution() is not None:
        return False
    if name() == "tensorflow":
        import tensorflow as tf

        several = tf.config.threading.get_intra_op_parallelism_threads() != 1
        return several and not tf.distribute.has_strategy()
    return name() == "jax"


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


def _leave_pipelines_untuned():
    """Keras's pipelines of batches, arrays or a generator, on TensorFlow, without their tuning.

    A thread tunes them. It sleeps between its rounds, each time twice as long, up to a minute.
    Keras drops the iterator of an epoch, which waits until the thread is awake: TensorFlow (2.21)
    wakes it to end it before it can see that it is to end. So epochs of 11 s took 20, those of 41 s
    took 82. There is nothing to tune but the number of batches that are ready.
    """
    import tensorflow as tf

    try:
        from keras.src.trainers.data_adapters import (
            ArrayDataAdapter,
            GeneratorDataAdapter,
            PyDatasetAdapter,
        )
    except ImportError:  # of a Keras that has others: epochs wait
        return
    options = tf.data.Options()
    options.autotune.enabled = False

    def untuned(get_tf_dataset):
        return lambda adapter: get_tf_dataset(adapter).with_options(options)

    for adapter in (ArrayDataAdapter, GeneratorDataAdapter, PyDatasetAdapter):
        adapter.get_tf_dataset = untuned(adapter.get_tf_dataset)


if name() == "tensorflow":
    _leave_pipelines_untuned()


def keep_programs(folder: str | os.PathLike) -> None:
    """Keeps compiled programs in a folder: a later process loads them instead of compiling them.

    JAX alone does so. Call it before the first operation.

    Args:
        folder: path; it is made when the first program is kept.

    Raises:
        ValueError: On TensorFlow and PyTorch; or the folder has no name.
        NotADirectoryError: It is a file.
    """
    named(folder, "The folder for compiled programs")
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise NotADirectoryError(f"{folder} is a file; name a folder for compiled programs.")
    if name() != "jax":
        raise ValueError(
            f"Compiled programs are kept on JAX alone; the backend is {name()}. Leave out the "
            "folder, or set KERAS_BACKEND=jax."
        )
    import jax

    jax.config.update("jax_compilation_cache_dir", os.path.abspath(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def safe_mode() -> contextlib.AbstractContextManager:
    """Within it, Keras loads no code, whatever `keras.config.enable_unsafe_deserialization` says.

    A Keras without its private scope does as that function says.
    """
    try:
        from keras.src.saving.serialization_lib import SafeModeScope
    except ImportError:
        return contextlib.nullcontext()
    return SafeModeScope(True)


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
    return _torch_generator().get_state().numpy() if name() == "torch" else None


def set_dropout_state(state: np.ndarray) -> None:
    """Sets what `dropout_state` returned, on PyTorch.

    The state of another kind of device is ignored: there, other numbers were drawn anyway.
    """
    import torch

    generator = _torch_generator()
    if len(state) == len(generator.get_state()):
        generator.set_state(torch.from_numpy(np.array(state)))


def _torch_generator():
    """The one of the device on which Keras computes: a GPU has its own."""
    import torch

    device = _torch_device()
    if device.type == "cuda":
        return torch.cuda.default_generators[device.index]
    if device.type == "mps":
        return torch.mps._get_default_mps_generator()
    return torch.default_generator
