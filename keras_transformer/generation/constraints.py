"""The most probable tokens that are allowed at a position."""

from typing import NamedTuple

import numpy as np
from keras import ops

from .. import backend
from ..ids import END, PADDING, START

NEVER_WRITTEN = (PADDING, START)  # these ids are never a label
IMPOSSIBLE = -1e9  # log-probability of what is not allowed, finite so that sums stay finite


class Constraints(NamedTuple):
    """The constraints on an answer, one row per sentence.

    Args:
        max_length: int32, (batch,), the most tokens, END included; 0: a row that only fills the
            batch, for which nothing is decoded.
        min_length: int32, (batch,), the fewest tokens before END; None: 0.
        prefix: int32, (batch, length), what the answer begins with, padded with 0; None: nothing.
        repetition_penalty: float32, (batch,), see `LogitsConfig`; None: 1.
    """

    max_length: backend.Tensor
    min_length: backend.Tensor = None
    prefix: backend.Tensor = None
    repetition_penalty: backend.Tensor = None


def top_tokens(logits, k, position, constraints, normalizer=0.0):
    """The k most probable tokens that are allowed, over all hypotheses of a sentence.

    Of a large vocabulary it ranks only the k blocks with the largest maxima: no other block can
    hold one of the k best. XLA on a CPU is much faster so, also for k = 1.

    Args:
        logits: float32, (batch, hypotheses, vocabulary size).
        k: int, tokens per sentence.
        position: int, (batch,).
        constraints: `Constraints`.
        normalizer: float32, (batch, hypotheses), subtracted from the logits of each hypothesis.

    Returns:
        float32, (batch, k): logits - normalizer, falling; about -1e9 where not allowed.
        int32, (batch, k): hypothesis * vocabulary size + id.
    """
    hypotheses, size = logits.shape[1:]
    batch = ops.shape(logits)[0]
    k = min(k, hypotheses * size)
    normalizer = ops.broadcast_to(normalizer, (batch, hypotheses))
    block = next((b for b in range(100, 31, -1) if size % b == 0), size)
    if hypotheses * size < 4 * k * block or not backend.prefers_blockwise_top_k():
        allowed = constrain(logits, np.arange(size, dtype="int32"), position, constraints)
        allowed = allowed - ops.expand_dims(normalizer, -1)
        allowed = ops.reshape(allowed, (batch, hypotheses * size))
        return _largest(allowed) if k == 1 else _top_k(allowed, k)
    return _blockwise_top_tokens(logits, k, block, position, constraints, normalizer)


def _blockwise_top_tokens(logits, k, block, position, constraints, normalizer):
    """`top_tokens`, using the maximum of each block of `block` ids."""
    hypotheses, size = logits.shape[1:]
    batch, blocks = ops.shape(logits)[0], size // block
    ids = np.arange(size, dtype="int32").reshape(blocks, block)
    logits = ops.reshape(logits, (batch, hypotheses, blocks, block))
    if constraints.prefix is None:  # then all that is not allowed is in the first block
        allowed = constrain(logits[:, :, :1], ids[:1], position, constraints)
        maxima = ops.max(logits, axis=-1)
        maxima = ops.concatenate([ops.max(allowed, axis=-1), maxima[:, :, 1:]], axis=-1)
    else:
        maxima = ops.max(constrain(logits, ids, position, constraints), axis=-1)
    maxima = maxima - ops.expand_dims(normalizer, -1)
    _, best_blocks = _top_k(ops.reshape(maxima, (batch, hypotheses * blocks)), k)

    logits = ops.reshape(logits, (batch, hypotheses * blocks, block))
    logits = ops.take_along_axis(logits, ops.expand_dims(best_blocks, -1), axis=1)
    ids = ops.expand_dims(best_blocks % blocks * block, -1) + ids[0]
    normalizer = ops.take_along_axis(normalizer, best_blocks // blocks, axis=1)
    allowed = constrain(logits, ids, position, constraints) - ops.expand_dims(normalizer, -1)
    best, which = _top_k(ops.reshape(allowed, (batch, k * block)), k)
    chosen = ops.take_along_axis(best_blocks, which // block, axis=1)
    return best, chosen * block + which % block


def _largest(x):
    largest = ops.max(x, axis=-1, keepdims=True)
    is_largest = ops.cast(ops.equal(x, largest), "int32")
    # Of floats, Keras's argmax is slower, and on TensorFlow it has an op that no export knows.
    return largest, ops.argmax(is_largest, axis=-1, keepdims=True)


def _top_k(x, k):
    values, indices = ops.top_k(x, k)
    return values, ops.cast(indices, "int32")


def constrain(logits, ids, position, constraints):
    """The logits of `ids`, at -1e9 where one is not allowed at `position`.

    Args:
        logits: float32, (batch, ...).
        ids: int32, broadcastable to the logits.
        position: int, (batch,).
        constraints: `Constraints`.

    Returns:
        float32, as `logits`.
    """

    def per_sentence(x):
        return ops.reshape(x, (-1, *[1] * (len(logits.shape) - 1)))

    padding, start = (ops.equal(ids, each) for each in NEVER_WRITTEN)
    forbidden = padding | start
    if constraints.min_length is not None:
        too_short = per_sentence(position < constraints.min_length)
        forbidden = forbidden | (too_short & ops.equal(ids, END))
    if constraints.prefix is not None:
        forced = per_sentence(at_position(constraints.prefix, position))
        free = ops.equal(forced, PADDING)
        forbidden = ops.where(free, forbidden, ops.not_equal(forced, ids))  # even END, too early
    return ops.where(forbidden, IMPOSSIBLE, logits)


def at_position(x, position):
    """x[b, ..., position[b]].

    Args:
        x: (batch, ..., length).
        position: int, (batch,); where x ends before it, the result is 0.
    """
    position = ops.reshape(position, (-1, *[1] * (len(x.shape) - 1)))
    here = ops.equal(ops.arange(ops.shape(x)[-1], dtype="int32"), position)
    return ops.sum(ops.where(here, x, ops.zeros_like(x)), axis=-1)
