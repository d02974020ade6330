"""A decoder-only model: the Transformer's decoder with nobody to listen to but itself."""

import keras
from keras import ops

from ..blocks import Encoder
from ..positions import positional_encoding
from .configured import ConfiguredModel, arguments_of, of_stack
from .embeddings import TokenEmbedding


@keras.saving.register_keras_serializable(package="keras_transformer")
class LanguageModel(ConfiguredModel):
    """P(next token | tokens so far): self-attention with the look-ahead mask, no cross-attention.

    Without cross-attention a decoder block is an encoder block that may not look ahead.

    Args:
        vocabulary_size: int.
        num_layers: int, N.
        d_model: int, width of embeddings and sublayers.
        num_heads: int, h; it must divide d_model.
        d_ff: int, inner width of the feed-forward networks.
        dropout: float in [0, 1), on embeddings and sublayer outputs.
        attention_dropout: float in [0, 1), on attention weights.
        activation: name or function, in the feed-forward networks.
        norm_first: bool, False: post-norm as in the paper; True: pre-norm, as GPT-2.
        max_length: int, number of learned positions; None: sinusoids, which have no limit.
        rotary: bool, True: no positions are added, attention turns queries and keys instead.

    Call arguments:
        inputs: dict with "token_ids": int, (batch, length), padded with 0 on the right; they start
            with START.

    Returns:
        float32, (batch, length, vocabulary_size): logits of the next token.

    Raises:
        ValueError: num_heads does not divide d_model; or positions are both learned and rotary.

    Source: Radford et al. 2018 and 2019 (GPT); Liu et al. 2018.
    """

    def __init__(
        self,
        vocabulary_size,
        num_layers=6,
        d_model=512,
        num_heads=8,
        d_ff=2048,
        dropout=0.1,
        attention_dropout=0.0,
        activation="relu",
        norm_first=False,
        max_length=None,
        rotary=False,
        dtype=None,
        **kwargs,
    ):
        config = arguments_of(locals())
        dtype = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        embed = TokenEmbedding(vocabulary_size, d_model, dtype=dtype, name="embedding")
        positions = positional_encoding(max_length, rotary, dtype=dtype, name="positions")
        decoder = Encoder(**of_stack(config), dtype=dtype, name="decoder")

        token_ids = keras.Input((None,), dtype="int32", name="token_ids")
        x = positions(embed(token_ids))
        x = keras.layers.Dropout(dropout, dtype=dtype, name="dropout")(x)
        x = decoder(x, use_causal_mask=True)
        logits = embed(x, reverse=True)

        super().__init__({"token_ids": token_ids}, logits, config, dtype, **kwargs)
        self.max_length = max_length
        self.target_vocabulary_size = vocabulary_size
        self.embed, self.positions, self.decoder = embed, positions, decoder

    def teacher_forced(self, source_ids, target_ids):
        """Logits of the token after each of `target_ids`; there is no source."""
        return self({"token_ids": target_ids})

    def decoding_context(self, source_ids, max_length):
        """What stays the same from step to step: the positions, (max_length, d_model)."""
        return ops.cast(self.positions.table(max_length), self.compute_dtype)

    def empty_past(self, batch_size, places):
        """A cache for `step`; see `Encoder.empty_past`."""
        return self.decoder.empty_past(batch_size, places)

    def step(self, ids, position, past, context, attention_mask):
        """Logits of the tokens that follow those at one position; see `Transformer.step`."""
        x = ops.add(self.embed(ids), ops.take(context, position, axis=0))
        x, past = self.decoder.step(x, position, past, attention_mask)
        return self.embed(x, reverse=True), past
