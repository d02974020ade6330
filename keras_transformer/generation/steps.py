"""What all searches share: the bounds of an answer, a loop, and a program for each shape."""

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


def allowed(logits, position, bounds):
    """The logits, (batch, hypotheses, vocabulary size), at -1e9 where the bounds forbid an id."""
    ids = np.arange(logits.shape[-1])
    logits = ops.add(logits, np.where(np.isin(ids, NEVER), IMPOSSIBLE, 0).astype("float32"))
    if bounds.shortest is not None:
        too_short = ops.reshape(position < bounds.shortest, (-1, 1, 1))
        logits = ops.where(ops.logical_and(too_short, ids == END), IMPOSSIBLE, logits)
    if bounds.prefix is not None:
        forced = ops.slice(bounds.prefix, (0, position), (bounds.prefix.shape[0], 1))
        forced = ops.expand_dims(forced, -1)
        free = ops.logical_or(ops.equal(forced, PADDING), ops.equal(forced, ids.astype("int32")))
        logits = ops.where(free, logits, IMPOSSIBLE)
    return logits


def until_ended(state, stop, advance):
    """Repeats `advance` up to position `stop`, or until all sentences have ended.

    Args:
        state: NamedTuple of tensors, with a `position` and, for each sentence, whether it `ended`.
        stop: int32 scalar.
        advance: function from a state to the next.
    """
    kind = type(state)

    def unfinished(*state):
        state = kind(*state)
        return ops.logical_and(state.position < stop, ops.logical_not(ops.all(state.ended)))

    return kind(*ops.while_loop(unfinished, lambda *state: advance(kind(*state)), tuple(state)))


def compiled(function, model, *static):
    """`function` as one program a shape, reading the weights of `model` anew each call.

    It is an XLA program on TensorFlow and JAX, and eager under inference mode on PyTorch. Its
    positional arguments are structures of tensors; those named in `static` are plain values.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=True)
    if backend == "jax":
        import jax

        def stateless(values, *args, **kwargs):
            with keras.StatelessScope(state_mapping=zip(model.variables, values)):
                return function(*args, **kwargs)

        program = jax.jit(stateless, static_argnames=static)
        return lambda *args, **kwargs: program([v.value for v in model.variables], *args, **kwargs)

    import torch

    return torch.inference_mode()(function)


def tensors(structure):
    """A structure of arrays as tensors; None stays None."""
    convert = ops.convert_to_tensor
    return keras.tree.map_structure(lambda x: None if x is None else convert(x), structure)


def padded_to(ids, length):
    """The last axis cut or padded with 0 to `length`."""
    ids = ids[..., :length]
    return np.pad(ids, [(0, 0)] * (ids.ndim - 1) + [(0, length - ids.shape[-1])])
