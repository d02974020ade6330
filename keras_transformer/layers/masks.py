"""Attention masks. One polarity everywhere: bool, True = may be attended to."""

from keras import ops

from ..backend import Tensor
from ..ids import PADDING


def padding_mask(ids: Tensor) -> Tensor:
    """True at real tokens, so that nothing attends to padding.

    Args:
        ids: int, (batch, length), padded with 0.

    Returns:
        bool, (batch, 1, length): the same row of keys for every query.

    Source: Vaswani et al. 2017 leave it implicit; every implementation needs it.
    """
    return ops.expand_dims(ops.not_equal(ids, PADDING), axis=1)


def look_ahead_mask(length: int, key_length: int | None = None) -> Tensor:
    """True at position j for position i when j <= i: nothing attends to the future.

    Args:
        length: int, number of queries.
        key_length: int, number of keys; None: `length`.

    Returns:
        bool, (length, key_length), lower triangle with its diagonal True.

    Source: Vaswani et al. 2017, section 3.2.3.
    """
    query_position = ops.arange(length)
    key_position = ops.arange(length if key_length is None else key_length)
    return ops.expand_dims(query_position, 1) >= ops.expand_dims(key_position, 0)


def add_look_ahead(attention_mask: Tensor | None, length: int, key_length: int) -> Tensor:
    """The mask, if any, and the look-ahead mask: True where both are.

    Args:
        attention_mask: bool, broadcastable to (..., length, key_length); or None.
        length: int, number of queries.
        key_length: int, number of keys.

    Returns:
        bool, (..., length, key_length).
    """
    mask = look_ahead_mask(length, key_length)
    return mask if attention_mask is None else ops.logical_and(attention_mask, mask)


def per_head(attention_mask: Tensor | None) -> Tensor | None:
    """The mask with an axis for the heads: (batch, 1, length, key_length).

    Args:
        attention_mask: bool, (batch, length, key_length), (length, key_length), with the axis of
            the heads already there, or None.

    Returns:
        bool, four axes; or None.
    """
    if attention_mask is None or len(attention_mask.shape) == 4:
        return attention_mask
    return ops.expand_dims(attention_mask, axis=1 if len(attention_mask.shape) == 3 else (0, 1))
