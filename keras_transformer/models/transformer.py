"""The model of the paper: an encoder, and a decoder that attends to its output."""

from typing import Any, NamedTuple

import keras

from ..backend import Tensor
from ..layers.blocks import Decoder, Encoder
from ..layers.cache import Cache
from ..layers.embeddings import TokenEmbedding
from ..layers.masks import padding_mask
from .configuration import BASE, TransformerConfig
from .configured import DecoderModel, logits_bias_of, policy_of, positions_of, split_options


class Memory(NamedTuple):
    """The encoder's output, to which the decoder attends.

    Args:
        states: float, (batch, source length, d_model).
        mask: bool, (batch, 1, source length), the padding mask of the source.
    """

    states: Tensor
    mask: Tensor


@keras.saving.register_keras_serializable(package="keras_transformer")
class Transformer(DecoderModel):
    """The model of Figure 1 as a functional keras.Model: source and target ids to logits.

        Transformer(8000, config=PRESETS["mini"])
        Transformer(8000, num_layers=3, d_model=256, num_heads=4, d_ff=1024)

    Args:
        source_vocabulary_size: int.
        target_vocabulary_size: int; None: one vocabulary, and one embedding, for both sides.
        config: `TransformerConfig`; the default is the paper's base model.
        dtype: name or keras.DTypePolicy of all layers; None: the global policy.
        **options: fields of `TransformerConfig` that replace those of `config`; and name and
            trainable of keras.Model.

    Call arguments:
        inputs: dict of int tensors padded with 0 on the right:
            "source_ids": (batch, source length), ends in END;
            "target_ids": (batch, target length), the target shifted right: starts with START.

    Returns:
        float32, (batch, target length, target_vocabulary_size): logits of the next token.

    Raises:
        ValueError: an option does not exist or is out of range.

    Source: Vaswani et al. 2017, section 3.
    """

    def __init__(
        self,
        source_vocabulary_size: int,
        target_vocabulary_size: int | None = None,
        config: TransformerConfig = BASE,
        dtype: Any = None,
        **options: Any,
    ):
        config, kwargs = split_options(config, options)
        arguments = dict(
            source_vocabulary_size=source_vocabulary_size,
            target_vocabulary_size=target_vocabulary_size,
        )
        dtype = policy_of(dtype)
        self._make_embeddings(source_vocabulary_size, target_vocabulary_size, config, dtype)
        self.encoder = Encoder(**config.block_options("encoder"), dtype=dtype, name="encoder")
        self.decoder = Decoder(**config.block_options("decoder"), dtype=dtype, name="decoder")
        self.logits_bias = logits_bias_of(config, dtype=dtype, name="logits_bias")

        source_ids = keras.Input((None,), dtype="int32", name="source_ids")
        target_ids = keras.Input((None,), dtype="int32", name="target_ids")
        logits = self.decode(target_ids, self.encode(source_ids))

        inputs = {"source_ids": source_ids, "target_ids": target_ids}
        super().__init__(inputs, logits, arguments, config, dtype, **kwargs)
        self.source_vocabulary_size = source_vocabulary_size
        self.target_vocabulary_size = target_vocabulary_size or source_vocabulary_size

    def _make_embeddings(self, source_size, target_size, config, dtype):
        def embedding(size, name):
            return TokenEmbedding(size, config.d_model, dtype=dtype, name=name)

        if target_size is None:
            self.source_embedding = self.target_embedding = embedding(source_size, "embedding")
        else:
            self.source_embedding = embedding(source_size, "source_embedding")
            self.target_embedding = embedding(target_size, "target_embedding")
        self.source_positions = positions_of(config, dtype=dtype, name="source_positions")
        self.target_positions = positions_of(config, dtype=dtype, name="target_positions")
        rate = config.dropout
        self.source_dropout = keras.layers.Dropout(rate, dtype=dtype, name="source_dropout")
        self.target_dropout = keras.layers.Dropout(rate, dtype=dtype, name="target_dropout")

    def encode(self, source_ids: Tensor) -> Memory:
        """Encodes the source: the memory to which every target token attends.

        Args:
            source_ids: int, (batch, source length), padded with 0.
        """
        mask = padding_mask(source_ids)
        x = self.source_embedding(source_ids)
        if self.source_positions:
            x = self.source_positions(x)
        return Memory(self.encoder(self.source_dropout(x), attention_mask=mask), mask)

    def decode(
        self,
        target_ids: Tensor,
        memory: Memory,
        attention_mask: Tensor = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Logits of the token after each of `target_ids`.

        Args:
            target_ids: int, (batch, target length), the target shifted right; with a cache, the
                next tokens only, one per hypothesis.
            memory: from `encode`.
            attention_mask: bool, with a cache: (batch or 1, target length, slots), the slots that
                each token attends to.
            cache: `Cache`, keys and values of earlier tokens and of the memory.

        Returns:
            float32, (batch, target length, target vocabulary size).
        """
        y = self.target_embedding(target_ids)
        if self.target_positions:
            y = self.target_positions(y, positions=None if cache is None else cache.positions)
        y = self.decoder(
            self.target_dropout(y),
            memory.states,
            cross_attention_mask=memory.mask,
            attention_mask=attention_mask,
            cache=cache,
        )
        return self.logits(y)

    def cache_memory(self, memory: Memory) -> dict:
        """Keys and values of the memory, computed once; see `Cache.of_memory`."""
        attentions = [block.cross_attention for block in self.decoder.blocks]
        return Cache.of_memory(attentions, memory.states)
