"""Functional assemblies of the blocks. Text never enters here: ids in, logits out."""

import dataclasses
import functools

import keras
from keras import ops

from .attention import by_rows
from .blocks import Decoder, Encoder
from .masks import padding_mask
from .positions import LearnedPositionalEncoding, PositionalEncoding


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


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenEmbedding(keras.layers.ReversibleEmbedding):
    """E[ids] * sqrt(d_model); in reverse, the logits h E^T. One matrix for both.

    Args:
        vocabulary_size: int, number of ids.
        d_model: int, width.

    Call arguments:
        inputs: int, (batch, length), ids; in reverse float, (batch, length, d_model).
        reverse: bool, True: logits instead of embeddings.

    Returns:
        float, (batch, length, d_model); in reverse float32, (batch, length, vocabulary_size).

    Source: Vaswani et al. 2017, section 3.4; Press and Wolf 2017.
    """

    def __init__(self, vocabulary_size, d_model, **kwargs):
        # Standard deviation 1 after the scaling, and logits of the order of 1 at the start.
        kwargs.setdefault(
            "embeddings_initializer", keras.initializers.RandomNormal(0.0, d_model**-0.5)
        )
        super().__init__(vocabulary_size, d_model, **kwargs)

    def call(self, inputs, reverse=False):
        if reverse:
            logits = by_rows(functools.partial(super().call, reverse=True), inputs)
            return ops.cast(logits, "float32")
        return ops.multiply(super().call(inputs), self.output_dim**0.5)

    def compute_output_spec(self, inputs, reverse=False):
        spec = super().compute_output_spec(inputs, reverse)
        return keras.KerasTensor(spec.shape, dtype="float32") if reverse else spec

    def get_config(self):
        config = super().get_config()
        config["vocabulary_size"] = config.pop("input_dim")
        config["d_model"] = config.pop("output_dim")
        return config


@keras.saving.register_keras_serializable(package="keras_transformer")
class Transformer(keras.Model):
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

    Call arguments:
        inputs: dict of int tensors padded with 0 on the right:
            "source_ids": (batch, source length), ends in END;
            "target_ids": (batch, target length), the target shifted right: starts with START.

    Returns:
        float32, (batch, target length, target_vocabulary_size): logits of the next token.

    Raises:
        ValueError: num_heads does not divide d_model.

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
        dtype=None,
        **kwargs,
    ):
        dtype = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        stack = dict(
            num_layers=num_layers,
            num_heads=num_heads,
            d_ff=d_ff,
            dropout=dropout,
            attention_dropout=attention_dropout,
            activation=activation,
            norm_first=norm_first,
            dtype=dtype,
        )
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

        def positions(side):
            name = f"{side}_positions"
            if max_length is None:
                return PositionalEncoding(dtype=dtype, name=name)
            return LearnedPositionalEncoding(max_length, dtype=dtype, name=name)

        source_positions, target_positions = positions("source"), positions("target")
        encoder, decoder = Encoder(**stack, name="encoder"), Decoder(**stack, name="decoder")

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
        super().__init__(inputs=inputs, outputs=logits, **kwargs)
        self._config = dict(
            source_vocabulary_size=source_vocabulary_size,
            target_vocabulary_size=target_vocabulary_size,
            num_layers=num_layers,
            d_model=d_model,
            num_heads=num_heads,
            d_ff=d_ff,
            dropout=dropout,
            attention_dropout=attention_dropout,
            activation=keras.activations.serialize(keras.activations.get(activation)),
            norm_first=norm_first,
            max_length=max_length,
        )
        self.dtype_policy = dtype  # float16 is trained with a scaled loss only if the model says so
        self.max_length = max_length
        self.source_vocabulary_size = source_vocabulary_size
        self.target_vocabulary_size = target_vocabulary_size or source_vocabulary_size
        self.embed_source, self.embed_target = embed_source, embed_target
        self.source_positions, self.target_positions = source_positions, target_positions
        self.encoder, self.decoder = encoder, decoder

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
        x, past = self.decoder.step(x, position, past, projected, attention_mask, mask)
        return self.embed_target(x, reverse=True), past

    def get_config(self):
        policy = keras.dtype_policies.serialize(self.dtype_policy)
        return {"name": self.name, "trainable": self.trainable, "dtype": policy, **self._config}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**config)


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
