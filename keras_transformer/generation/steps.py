"""What all searches share: the best tokens within bounds, and a program for each shape."""

import functools
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from ..tokenizers import END, PADDING, START

NEVER = (PADDING, START)  # these ids are never a label, so they are never an answer
IMPOSSIBLE = -1e9  # log-probability of what may not be, finite so that sums and gradients stay so


class Bounds(NamedTuple):
    """What restricts an answer, one row a sentence; None where nothing does.

    Args:
        longest: int32, (batch,), the most tokens, END included.
        shortest: int32, (batch,), the fewest tokens before END.
        prefix: int32, (batch, length), what an answer begins with, padded with 0.
    """

    longest: Any
    shortest: Any = None
    prefix: Any = None


def best_tokens(logits, k, position, bounds, less=0.0):
    """The k most probable tokens that the bounds allow; all where k is larger.

    Of a large vocabulary it ranks only the k blocks with the largest maxima: no other block can
    hold one of the k best. XLA on a CPU is much faster so, for k = 1 too; PyTorch is not.

    Args:
        logits: float32, (batch, hypotheses, vocabulary size).
        k: int, how many for each sentence.
        position: int scalar.
        bounds: `Bounds`.
        less: float32, (batch, hypotheses), to be subtracted from the logits of each hypothesis.

    Returns:
        float32, (batch, k): logits - less, falling; about -1e9 where not allowed.
        int32, (batch, k): which; hypothesis * vocabulary size + id.
    """
    batch, hypotheses, size = logits.shape
    k, ids = min(k, hypotheses * size), np.arange(size, dtype="int32")
    less = ops.broadcast_to(less, (batch, hypotheses))
    block = next((b for b in range(100, 31, -1) if size % b == 0), size)
    if hypotheses * size < 4 * k * block or keras.backend.backend() == "torch":
        logits = allowed(logits, ids, position, bounds) - ops.expand_dims(less, -1)
        best, which = ops.top_k(ops.reshape(logits, (batch, -1)), k)
        return best, ops.cast(which, "int32")
    blocks = size // block
    logits = ops.reshape(logits, (batch, hypotheses, blocks, block))
    maxima = ops.max(allowed(logits, ids.reshape(blocks, block), position, bounds), axis=-1)
    maxima = ops.reshape(maxima - ops.expand_dims(less, -1), (batch, -1))
    chosen = ops.cast(ops.top_k(maxima, k)[1], "int32")  # blocks
    ids = ops.expand_dims(chosen % blocks * block, -1) + ids[:block]
    logits = ops.reshape(logits, (batch, -1, block))
    logits = ops.take_along_axis(logits, ops.expand_dims(chosen, -1), axis=1)
    less = ops.expand_dims(ops.take_along_axis(less, chosen // blocks, axis=1), -1)
    logits = allowed(logits, ids, position, bounds) - less
    best, which = ops.top_k(ops.reshape(logits, (batch, k * block)), k)
    which = ops.cast(which, "int32")
    return best, ops.take_along_axis(chosen, which // block, axis=1) * block + which % block


def allowed(logits, ids, position, bounds):
    """The logits of `ids`, (batch, ...), at -1e9 where the bounds forbid one at `position`."""

    def of_sentence(x):
        return ops.reshape(x, (-1, *[1] * (len(logits.shape) - 1)))

    never = [ops.equal(ids, each) for each in NEVER]
    if bounds.shortest is not None:
        too_short = of_sentence(position < bounds.shortest)
        never.append(ops.logical_and(too_short, ops.equal(ids, END)))
    if bounds.prefix is not None:
        forced = of_sentence(ops.take(bounds.prefix, position, axis=1))
        another = ops.logical_and(ops.not_equal(forced, PADDING), ops.not_equal(forced, ids))
        never.append(another)
    return ops.where(functools.reduce(ops.logical_or, never), IMPOSSIBLE, logits)


def compiled(function, model, *static):
    """`function` as one XLA program a shape, reading the weights of `model` anew each call.

    Its positional arguments are structures of tensors; those named in `static` are plain values.
    PyTorch runs it as it is, in inference mode; see `recorded`.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=True)
    if backend == "jax":
        import jax

        variables = functools.cache(lambda: list(model.variables))  # a walk through all layers

        def stateless(values, *args, **kwargs):
            with keras.StatelessScope(state_mapping=zip(variables(), values)):
                return function(*args, **kwargs)

        program = jax.jit(stateless, static_argnames=static)
        return lambda *args, **kwargs: program([v.value for v in variables()], *args, **kwargs)

    import torch

    return torch.inference_mode()(function)


def recorded(function):
    """On PyTorch, the tensor operations of `function`, recorded once for each shape of its input.

    A step is some hundred small operations: the Python of Keras around them takes several times as
    long as they do. torch.compile, a third faster still, takes half a minute for each shape. XLA
    needs none of this: elsewhere this is `function` itself. Weights are read where they lie.
    Arguments are as in `compiled`, all keyword arguments being plain values.
    """
    if keras.backend.backend() != "torch":
        return function
    from torch.fx.experimental.proxy_tensor import make_fx

    programs = {}

    def run(*args, **static):
        shapes = [x if x is None else (x.shape, x.dtype) for x in keras.tree.flatten(args)]
        key = tuple(shapes), tuple(static.items())
        if key not in programs:
            programs[key] = make_fx(lambda *args: function(*args, **static))(*args)
            for node in programs[key].graph.nodes:
                node.meta.clear()  # the stack that led to each: far larger than the program
        return programs[key](*args)

    return run


def tensors(structure):
    """A structure of arrays as tensors; None stays None."""
    convert = ops.convert_to_tensor
    return keras.tree.map_structure(lambda x: None if x is None else convert(x), structure)


def padded_to(ids, length):
    """The last axis cut or padded with 0 to `length`."""
    ids = ids[..., :length]
    return np.pad(ids, [(0, 0)] * (ids.ndim - 1) + [(0, length - ids.shape[-1])])
