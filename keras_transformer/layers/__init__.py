"""The paper's layers, from masks to stacks of blocks."""

from .attention import MultiHeadAttention, attention_scores, scaled_dot_product_attention
from .blocks import Decoder, DecoderBlock, Encoder, EncoderBlock
from .cache import Cache
from .embeddings import LogitsBias, Pooling, TokenEmbedding, WordEmbedding
from .feed_forward import AddNorm, FeedForward
from .masks import look_ahead_mask, padding_mask
from .positions import (
    LearnedPositionalEncoding,
    PositionalEncoding,
    apply_rotary_embedding,
    sinusoids,
)
