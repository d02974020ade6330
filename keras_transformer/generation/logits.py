"""Logits that depend on the tokens written before: against loops and unwanted words."""

import numpy as np
from keras import ops

from ..ids import PADDING
from .configuration import UNCHANGED
from .constraints import IMPOSSIBLE, at_position, constrain


def processed(logits, written, position, constraints, config):
    """The logits as `LogitsConfig` says; where it changes nothing, without any operation.

    Args:
        logits: float32, (batch, hypotheses, vocabulary size).
        written: function that returns int32, (batch, hypotheses, length), the tokens of the
            hypotheses before `position`, padded with 0.
        position: int, (batch,).
        constraints: `Constraints`, with the penalty.
        config: `LogitsConfig`.

    Returns:
        float32, (batch, hypotheses, vocabulary size), penalized: their softmax is the distribution.
        float32, (batch, hypotheses, vocabulary size), the same, -1e9 where not allowed.
    """
    if config == UNCHANGED and constraints.repetition_penalty is None:
        return logits, logits
    written, size = written(), logits.shape[-1]
    if constraints.repetition_penalty is not None:
        penalty = ops.reshape(constraints.repetition_penalty, (-1, 1, 1))
        lower = ops.where(logits > 0, logits / penalty, logits * penalty)
        logits = ops.where(_contained(written, size), lower, logits)
    if config == UNCHANGED:
        return logits, logits
    unwanted = _contained(_unwanted(written, position, config), size)
    others = ops.where(unwanted, IMPOSSIBLE, logits)
    # A prefix is written in any case, and so is a token if no other one is left.
    allowed = constrain(others, np.arange(size, dtype="int32"), position, constraints)
    is_left = ops.any(allowed > IMPOSSIBLE / 2, axis=-1, keepdims=True)
    return logits, ops.where(is_left, others, logits)


def _unwanted(written, position, config):
    """int32, (batch, hypotheses, number): ids that must not follow, padded with 0."""
    sequences, size = config.suppress, config.no_repeat_ngram_size
    width = max(size, *map(len, sequences), 1) - 1
    padded = ops.pad(written, ((0, 0), (0, 0), (width, 0)))
    found = []
    if size:
        repeated = ops.not_equal(written, PADDING)
        for back in range(1, size):
            last = at_position(padded, position + width - back)
            earlier = padded[..., width - back : -back]  # the token `back` before each one
            repeated = repeated & ops.equal(earlier, ops.expand_dims(last, -1))
        found.append(ops.where(repeated, written, PADDING))
    if sequences:
        # Rows from the last id to the first; PADDING: any token.
        rows = [(*ids[::-1], *[PADDING] * (width + 1 - len(ids))) for ids in sequences]
        table = np.array(rows, "int32")
        matches = ops.ones_like(written[..., :1], "bool")
        for back in range(1, width + 1):
            last = at_position(padded, position + width - back)
            fits = ops.equal(ops.expand_dims(last, -1), table[:, back])
            matches = matches & ops.logical_or(fits, table[:, back] == PADDING)
        found.append(ops.where(matches, table[:, 0], PADDING))
    return ops.concatenate(found, axis=-1)


def _contained(ids, size):
    """bool, (batch, hypotheses, size): which ids but PADDING are among those of a hypothesis."""
    batch, hypotheses, number = ops.shape(ids)
    rows = ops.expand_dims(ops.arange(batch * hypotheses, dtype="int32") * size, 1)
    places = ops.reshape(rows + ops.reshape(ids, (-1, number)), (-1, 1))
    table = ops.zeros((batch * hypotheses * size,), "int32")
    table = ops.scatter_update(table, places, ops.ones_like(places[:, 0]))
    table = ops.reshape(table > 0, (batch, hypotheses, size))
    return ops.logical_and(table, np.arange(size) != PADDING)
