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


def look_ahead_mask(length):
    """True at position j for position i when j <= i: nobody attends to the future.

    Args:
        length: int, number of tokens.

    Returns:
        bool, (length, length), lower triangle with its diagonal True.

    Source: Vaswani et al. 2017, section 3.2.3.
    """
    position = ops.arange(length)
    return ops.expand_dims(position, 1) >= ops.expand_dims(position, 0)
