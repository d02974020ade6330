"""Who may attend to whom. One polarity everywhere: bool, True = may be attended to."""

from keras import ops

from .tokenizers import PADDING


def padding_mask(ids):
    """True at real tokens, so that nobody attends to padding.

    Args:
        ids: int, (batch, length), padded with 0.

    Returns:
        bool, (batch, 1, length): the same row of keys for every query.

    Source: Vaswani et al. 2017 leave it implicit; every implementation needs it.
    """
    return ops.expand_dims(ops.not_equal(ids, PADDING), axis=1)


def look_ahead_mask(length, key_length=None):
    """True at position j for position i when j <= i: nobody attends to the future.

    Args:
        length: int, number of tokens that attend.
        key_length: int, number of tokens they attend to; None: `length`.

    Returns:
        bool, (length, key_length), lower triangle with its diagonal True.

    Source: Vaswani et al. 2017, section 3.2.3.
    """
    query_position = ops.arange(length)
    key_position = ops.arange(length if key_length is None else key_length)
    return ops.expand_dims(query_position, 1) >= ops.expand_dims(key_position, 0)
