"""Sizes that go together, and how many parameters they make."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Preset:
    """One row of Table 3: the sizes of a Transformer, but for its vocabulary.

    Args:
        num_layers: int, N, in the encoder and again in the decoder.
        d_model: int, width of embeddings and sublayers.
        num_heads: int, h.
        d_ff: int, inner width of the feed-forward networks.
        dropout: float in [0, 1), P_drop.
    """

    num_layers: int
    d_model: int
    num_heads: int
    d_ff: int
    dropout: float


PRESETS = {
    "tiny": Preset(num_layers=2, d_model=64, num_heads=4, d_ff=128, dropout=0.1),  # dates
    "small": Preset(num_layers=3, d_model=256, num_heads=4, d_ff=1024, dropout=0.1),  # 30,000 pairs
    "base": Preset(num_layers=6, d_model=512, num_heads=8, d_ff=2048, dropout=0.1),  # Table 3
    "big": Preset(num_layers=6, d_model=1024, num_heads=16, d_ff=4096, dropout=0.3),  # Table 3
}


def count_parameters(vocabulary_size, num_layers, d_model, d_ff, **_):
    """The trainable parameters of a post-norm `Transformer` with one shared vocabulary.

        V d                            one embedding, which is the output projection too
        4 (d^2 + d)                    an attention: queries, keys, values, output
        2 d d_ff + d_ff + d            a feed-forward network
        2 d                            a LayerNorm

    An encoder block has one attention, one feed-forward network and two LayerNorms; a decoder
    block has two, one and three.

    Args:
        vocabulary_size, num_layers, d_model, d_ff: int, as in `Transformer` and `Preset`.

    Returns:
        int. base with 37,000 ids: 63,082,496 beside the paper's "65 million"; big: 214,245,376
        beside "213 million". Neither the paper nor its code says how many ids there were.
    """
    attention = 4 * (d_model**2 + d_model)
    feed_forward = 2 * d_model * d_ff + d_ff + d_model
    norm = 2 * d_model
    encoder_block = attention + feed_forward + 2 * norm
    decoder_block = 2 * attention + feed_forward + 3 * norm
    return vocabulary_size * d_model + num_layers * (encoder_block + decoder_block)
