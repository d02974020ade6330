"""The model of the paper: an encoder, and a decoder that attends to it."""

import keras
from keras import ops

from ..blocks import Decoder, Encoder
from ..masks import padding_mask
from ..positions import positional_encoding
from .configured import ConfiguredModel, arguments_of, of_stack
from .embeddings import TokenEmbedding


@keras.saving.register_keras_serializable(package="keras_transformer")
class Transformer(ConfiguredModel):
    """The model of Figure 1 as a functional keras.Model: source and target ids to logits.

    Args:
        source_vocabulary_size: int.
        target_vocabulary_size: int; None: one vocabulary, and one embedding, for both sides.
        num_layers: int, N, in the encoder and again in the decoder.
        d_model: int, width of embeddings and sublayers.
        num_heads: int, h; it must divide d_model.
        d_ff: int, inner width of the feed-forward networks.
        dropout: float in [0, 1), on embeddings and sublayer outputs (section 5.4).
        attention_dropout: float in [0, 1), on attention weights.
        activation: name or function, in the feed-forward networks.
        norm_first: bool, False: post-norm as in the paper; True: pre-norm.
        max_length: int, number of learned positions; None: sinusoids, which have no limit.
        rotary: bool, True: no positions are added, self-attention turns queries and keys instead.

    Call arguments:
        inputs: dict of int tensors padded with 0 on the right:
            "source_ids": (batch, source length), ends in END;
            "target_ids": (batch, target length), the target shifted right: starts with START.

    Returns:
        float32, (batch, target length, target_vocabulary_size): logits of the next token.

    Raises:
        ValueError: num_heads does not divide d_model; or positions are both learned and rotary.

    Source: Vaswani et al. 2017, section 3.
    """

    def __init__(
        self,
        source_vocabulary_size,
        target_vocabulary_size=None,
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
        if target_vocabulary_size is None:
            embed_source = embed_target = TokenEmbedding(
                source_vocabulary_size, d_model, dtype=dtype, name="embedding"
            )
        else:
            embed_source, embed_target = (
                TokenEmbedding(size, d_model, dtype=dtype, name=f"{side}_embedding")
                for side, size in (
                    ("source", source_vocabulary_size),
                    ("target", target_vocabulary_size),
                )
            )
        source_positions, target_positions = (
            positional_encoding(max_length, rotary, dtype=dtype, name=f"{side}_positions")
            for side in ("source", "target")
        )
        encoder = Encoder(**of_stack(config), dtype=dtype, name="encoder")
        decoder = Decoder(**of_stack(config), dtype=dtype, name="decoder")

        source_ids = keras.Input((None,), dtype="int32", name="source_ids")
        target_ids = keras.Input((None,), dtype="int32", name="target_ids")
        source_mask = padding_mask(source_ids)

        x = source_positions(embed_source(source_ids))
        x = keras.layers.Dropout(dropout, dtype=dtype, name="source_dropout")(x)
        memory = encoder(x, attention_mask=source_mask)

        y = target_positions(embed_target(target_ids))
        y = keras.layers.Dropout(dropout, dtype=dtype, name="target_dropout")(y)
        y = decoder(y, memory, cross_attention_mask=source_mask)
        logits = embed_target(y, reverse=True)

        inputs = {"source_ids": source_ids, "target_ids": target_ids}
        super().__init__(inputs, logits, config, dtype, **kwargs)
        self.max_length = max_length
        self.source_vocabulary_size = source_vocabulary_size
        self.target_vocabulary_size = target_vocabulary_size or source_vocabulary_size
        self.embed_source, self.embed_target = embed_source, embed_target
        self.source_positions, self.target_positions = source_positions, target_positions
        self.encoder, self.decoder = encoder, decoder

    def teacher_forced(self, source_ids, target_ids):
        """Logits of the token after each of `target_ids`; see the call arguments."""
        return self({"source_ids": source_ids, "target_ids": target_ids})

    def encode(self, source_ids):
        """The memory of `source_ids` in inference: what every target token attends to.

        Args:
            source_ids: int, (batch, source length).

        Returns:
            memory: float, (batch, source length, d_model).
            mask: bool, (batch, 1, source length), its padding mask.
        """
        mask = padding_mask(source_ids)
        x = self.source_positions(self.embed_source(source_ids))
        return self.encoder(x, attention_mask=mask), mask

    def decoding_context(self, source_ids, max_length):
        """What stays the same from step to step of decoding.

        Args:
            source_ids: int, (batch, source length).
            max_length: int, the most tokens of an answer.

        Returns:
            positions: float, (max_length, d_model), of the target.
            projected: keys and values of the memory, see `Decoder.project`.
            mask: bool, (batch, 1, source length), the padding mask of the source.
        """
        memory, mask = self.encode(source_ids)
        positions = ops.cast(self.target_positions.table(max_length), memory.dtype)
        return positions, self.decoder.project(memory), mask

    def empty_past(self, batch_size, places):
        """A cache for `step`; see `Decoder.empty_past`."""
        return self.decoder.empty_past(batch_size, places)

    def step(self, ids, position, past, context, attention_mask):
        """Logits of the tokens that follow those at one position.

        Args:
            ids: int, (batch, beams), one token of each hypothesis.
            position: int scalar, theirs.
            past: from `empty_past`, or from the step before.
            context: from `decoding_context`.
            attention_mask: bool, (batch or 1, beams, places), True at the places in the cache
                that a hypothesis descends from; beam k writes place position * beams + k.

        Returns:
            logits: float32, (batch, beams, target vocabulary size).
            past: with the keys and values of `ids`.
        """
        positions, projected, mask = context
        x = ops.add(self.embed_target(ids), ops.take(positions, position, axis=0))
        x, past = self.decoder.step(x, position, past, attention_mask, projected, mask)
        return self.embed_target(x, reverse=True), past
