"""The paper's operations as TensorFlow, JAX and PyTorch compute them best."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from ..checks import check
from .gradients import with_gradient
from .platform import Tensor, name, on_accelerator

_portable = contextvars.ContextVar("portable", default=False)
_replaced = contextvars.ContextVar("replaced", default=False)


@contextlib.contextmanager
def without_random_weights() -> Iterator[None]:
    """Within it, matrices begin with zeros: a file replaces them, and to draw them takes longer.

    JAX would compile a program for the random numbers of each shape.
    """
    token = _replaced.set(True)
    try:
        yield
    finally:
        _replaced.reset(token)


def _initialized(options):
    """The arguments of `add_weight`, with zeros for random numbers that a file replaces."""
    drawn = _replaced.get() and hasattr(options.get("initializer"), "seed")
    return options | {"initializer": "zeros"} if drawn else options


def shape_of(x: Tensor) -> tuple:
    """`ops.shape` for `ops.reshape`: a first axis whose size is unknown is -1, as ONNX needs it.

    With -1 alone TensorFlow would forget a size that it knows, which its loops do not allow.
    """
    return (-1 if x.shape[0] is None else x.shape[0], *ops.shape(x)[1:])


@keras.saving.register_keras_serializable(package="keras_transformer")
class Linear(keras.layers.Dense):
    """keras.layers.Dense, computed as one product of two matrices: one row per token.

    The gradient of the kernel sums over batch and length. XLA on a CPU is a quarter slower when
    these are two axes. PyTorch folds them itself.

    The arguments are those of `keras.layers.Dense`.

    Call arguments:
        inputs: float, (..., d).

    Returns:
        float, (..., units).
    """

    def add_weight(self, *args: Any, **options: Any):
        return super().add_weight(*args, **_initialized(options))

    def call(self, inputs, training=None):
        if name() == "torch" or len(inputs.shape) != 3:
            return super().call(inputs, training=training)
        rows = super().call(ops.reshape(inputs, (-1, inputs.shape[-1])), training=training)
        return ops.reshape(rows, (*shape_of(inputs)[:-1], self.units))

    def quantize(self, mode=None, type_check=True, config=None):
        super().quantize(mode, type_check=False, config=config)  # the same weights as a Dense


def look_up(matrix: Tensor, ids: Tensor, dtype: str) -> Tensor:
    """`ops.take(matrix, ids, axis=0)`, whose gradient is one tensor on every backend.

    TensorFlow would keep it as IndexedSlices: one slice for each occurrence of an id. Of these
    Keras's optimizers take the squares, and the norm, before they are summed.

    Args:
        matrix: float, (rows, width).
        ids: integers, of any shape and dtype.
        dtype: str, of the result.

    Returns:
        float, (*shape of the ids, width).
    """
    if not keras.backend.is_int_dtype(ids.dtype):
        ids = ops.cast(ids, "int32")
    # The gradient of TensorFlow's reshape sums the slices; otherwise this does nothing.
    return ops.cast(ops.take(ops.reshape(matrix, matrix.shape), ids, axis=0), dtype)


class Embedding(keras.layers.Embedding):
    """keras.layers.Embedding without a mask, by `look_up`.

    The arguments are those of `keras.layers.Embedding`.

    Call arguments:
        inputs: int, (batch, length), ids.

    Returns:
        float, (batch, length, output_dim).
    """

    def call(self, inputs):
        return look_up(self.embeddings, inputs, self.compute_dtype)


class ReversibleEmbedding(keras.layers.ReversibleEmbedding):
    """keras.layers.ReversibleEmbedding without a mask, by `look_up`.

    In reverse it is one product of two matrices: see `Linear`. That is computed in the compute
    dtype, to which Keras does not cast it.

    The arguments are those of `keras.layers.ReversibleEmbedding`.

    Call arguments:
        inputs: int, (batch, length), ids; in reverse float, (batch, length, output_dim).
        reverse: bool, True: logits instead of embeddings.

    Returns:
        float, (batch, length, output_dim); in reverse (batch, length, input_dim).
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.autocast = True

    def add_weight(self, *args: Any, **options: Any):
        return super().add_weight(*args, **_initialized(options))

    def call(self, inputs, reverse=False):
        if not reverse:
            return look_up(self.embeddings, inputs, self.compute_dtype)
        rows = super().call(ops.reshape(inputs, (-1, self.output_dim)), reverse=True)
        return ops.reshape(rows, (*shape_of(inputs)[:-1], self.input_dim))


def has_fused_attention(dtype: str) -> bool:
    """Whether a kernel computes equation 1 faster than its two products and softmax do.

    TensorFlow has no such kernel; JAX's CPU kernel does not support float16.
    """
    if name() == "jax":
        return dtype != "float16" or on_accelerator()
    return name() == "torch"


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor = None,
    is_causal: bool = False,
) -> Tensor:
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
    flash = keras.config.is_flash_attention_enabled()  # None: where it can
    masked = attention_mask is not None
    if masked and name() == "jax" and on_accelerator():
        lengths = query.shape[2], key.shape[2]  # cuDNN wants the row of every query, even lengths
        attention_mask = ops.broadcast_to(attention_mask, (*attention_mask.shape[:2], *lengths))
        flash = False if any(length % 2 for length in lengths) else flash
    options = dict(mask=attention_mask, is_causal=is_causal and not masked, flash_attention=flash)
    output = ops.dot_product_attention(*heads_third, **options)
    if masked:
        may_attend = ops.transpose(ops.any(attention_mask, axis=-1, keepdims=True), (0, 2, 1, 3))
        output = ops.where(may_attend, output, 0.0)
    return ops.transpose(output, (0, 2, 1, 3))


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


def slot_indices(first, number: int, num_slots: int | None = None):
    """The slots `first`, ..., `first + number - 1` of a cache, as `write_slots` takes them.

    Args:
        first: int scalar, Python or tensor.
        number: int from 1.
        num_slots: int, of the cache; None: unknown.

    Raises:
        ValueError: The cache has no such slots, where the value of `first` is known: XLA would
            overwrite others without a word.
    """
    known = known_int(first)
    if known is not None and num_slots is not None:
        holds = 0 <= known <= num_slots - number
        check(holds, f"A cache of {num_slots} slots must fit the tokens", slot=known, tokens=number)
    first = first if known is None else known
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


def cross_entropy(labels: Tensor, logits: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """The loss of `losses.token_cross_entropy`, with its gradient spelled out: p - q.

    Writing an array as large as the logits costs more than any sum over it, so there are only two:
    p and the gradient. Neither log p nor a one-hot matrix is built.

    Args:
        labels: int, (batch, length), or (batch,) of a classifier.
        logits: float, (..., vocabulary size), one axis more than `labels`.
        label_smoothing: float in [0, 1).

    Returns:
        float32, the shape of `labels`, nats.
    """
    on_label, on_each = 1 - label_smoothing, label_smoothing / logits.shape[-1]  # q in two parts
    shape = ops.shape(labels)
    labels = ops.reshape(labels, (-1, 1))

    def nats(logits, labels):
        largest = ops.max(logits, axis=-1, keepdims=True)
        from_largest, kept = _nats_of_largest(logits, largest)
        from_label = largest - ops.take_along_axis(logits, labels, axis=-1)
        result = from_largest + on_label * from_label
        if label_smoothing:
            from_each = logits.shape[-1] * largest - ops.sum(logits, axis=-1, keepdims=True)
            result = result + on_each * from_each
        return result, (labels, *kept)

    def gradient(upstream, labels, *kept):
        p_minus_q = _probabilities(*kept) - on_each  # new: PyTorch changes it in place below
        p_minus_q *= upstream
        return subtract_at(p_minus_q, labels, on_label * upstream)

    logits = ops.reshape(ops.cast(logits, "float32"), (-1, logits.shape[-1]))
    return ops.reshape(with_gradient(nats, gradient)(logits, labels), shape)


def _nats_of_largest(logits, largest):
    """-log p of the largest logit, and what `_probabilities` needs for p.

    A compiler that fuses operations computes p again for the gradient, and never writes it.
    """
    if fuses():
        nats = ops.log(ops.sum(ops.exp(logits - largest), axis=-1, keepdims=True))
        return nats, (logits, largest + nats)
    p = ops.softmax(logits, axis=-1)
    return -ops.log(ops.max(p, axis=-1, keepdims=True)), (p,)


def _probabilities(p_or_logits, log_of_sum=None):
    """p = softmax(logits), or exp(logits - log sum exp(logits))."""
    return p_or_logits if log_of_sum is None else ops.exp(p_or_logits - log_of_sum)


def fuses() -> bool:
    """Whether elementwise operations are cheaper done again than their result kept: on JAX."""
    return name() == "jax"


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


def prefers_blockwise_top_k() -> bool:
    """Whether top_k is faster over the maxima of blocks first: with XLA on a CPU it is."""
    return name() != "torch" and not _portable.get() and not on_accelerator()


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
