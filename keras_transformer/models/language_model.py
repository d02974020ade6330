"""A decoder-only model: every token attends to those before it."""

from typing import Any

import keras

from ..backend import Tensor
from ..layers.blocks import Encoder
from ..layers.cache import Cache
from ..layers.embeddings import TokenEmbedding
from .configuration import BASE, TransformerConfig
from .configured import DecoderModel, logits_bias_of, policy_of, positions_of, split_options


@keras.saving.register_keras_serializable(package="keras_transformer")
class LanguageModel(DecoderModel):
    """P(next token | tokens so far): self-attention with the look-ahead mask, no cross-attention.

    Without cross-attention a decoder block is an encoder block with the look-ahead mask.

    Args:
        vocabulary_size: int.
        config: `TransformerConfig`; the default has the sizes of the paper's base model.
        dtype: name or keras.DTypePolicy of all layers; None: the global policy.
        **options: fields of `TransformerConfig` that replace those of `config`; and name and
            trainable of keras.Model.

    Call arguments:
        inputs: dict with "token_ids": int, (batch, length), padded with 0 on the right; they start
            with START.

    Returns:
        float32, (batch, length, vocabulary_size): logits of the next token.

    Raises:
        ValueError: an option does not exist or is out of range.

    Source: Radford et al. 2018 and 2019 (GPT); Liu et al. 2018.
    """

    def __init__(
        self,
        vocabulary_size: int,
        config: TransformerConfig = BASE,
        dtype: Any = None,
        **options: Any,
    ):
        config, kwargs = split_options(config, options)
        dtype = policy_of(dtype)
        self.embedding = self.target_embedding = TokenEmbedding(
            vocabulary_size, config.d_model, dtype=dtype, name="embedding"
        )
        self.positions = positions_of(config, dtype=dtype, name="positions")
        self.dropout = keras.layers.Dropout(config.dropout, dtype=dtype, name="dropout")
        self.decoder = Encoder(**config.block_options(), dtype=dtype, name="decoder")
        self.logits_bias = logits_bias_of(config, dtype=dtype, name="logits_bias")

        token_ids = keras.Input((None,), dtype="int32", name="token_ids")
        logits = self.decode(token_ids)

        arguments = dict(vocabulary_size=vocabulary_size)
        super().__init__({"token_ids": token_ids}, logits, arguments, config, dtype, **kwargs)
        self.target_vocabulary_size = vocabulary_size

    def decode(
        self,
        token_ids: Tensor,
        memory: None = None,
        attention_mask: Tensor = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Logits of the token after each of `token_ids`.

        Args:
            token_ids: int, (batch, length); with a cache, the next tokens only.
            memory: None; a language model has no source.
            attention_mask: bool, with a cache: (batch or 1, length, slots), the slots that each
                token attends to.
            cache: `Cache`, keys and values of earlier tokens.

        Returns:
            float32, (batch, length, vocabulary_size).
        """
        x = self.embedding(token_ids)
        if self.positions:
            x = self.positions(x, positions=None if cache is None else cache.positions)
        x = self.decoder(
            self.dropout(x), attention_mask=attention_mask, use_causal_mask=True, cache=cache
        )
        return self.logits(x)
