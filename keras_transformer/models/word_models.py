"""An encoder over words: a label for every word, or one for the text."""

import dataclasses
from typing import Any

import keras
from keras import ops

from ..backend import Tensor
from ..checks import check, check_at_least
from ..layers.blocks import Encoder
from ..layers.embeddings import Pooling, WordEmbedding
from ..layers.masks import padding_mask
from .configuration import TransformerConfig
from .configured import ConfiguredModel, policy_of, positions_of, split_options

SMALL_ENCODER = TransformerConfig(num_layers=2, d_model=128, num_heads=4, d_ff=256)

# What may differ between a model and the one it is initialized from.
MAY_DIFFER = {
    "name", "trainable", "frozen", "dtype", "num_labels", "dropout", "attention_dropout",
    "word_stddev",
}  # fmt: skip


class WordModel(ConfiguredModel):
    """Words and their characters through an encoder; a subclass pools its output.

    Args:
        num_words: int, number of word ids, see `WordVocabulary`.
        num_characters: int, number of character ids.
        num_labels: int, number of label ids, padding (0) included.
        max_characters: int, number of characters read per word.
        word_stddev: float above 0, standard deviation of the initial word vectors, see
            `WordEmbedding`.
        config: `TransformerConfig`; the default is 2 layers of width 128.
        dtype: name or keras.DTypePolicy of all layers; None: the global policy.
        **options: fields of `TransformerConfig` that replace those of `config`; and name and
            trainable of keras.Model.

    Call arguments:
        inputs: dict of int tensors padded with 0 on the right: "word_ids": (batch, length);
            "character_ids": (batch, length, max_characters).

    Raises:
        ValueError: an option does not exist or is out of range.
    """

    def __init__(
        self,
        num_words: int,
        num_characters: int,
        num_labels: int,
        max_characters: int = 16,
        word_stddev: float = 1.0,
        config: TransformerConfig = SMALL_ENCODER,
        dtype: Any = None,
        **options: Any,
    ):
        check_at_least(2, num_labels=num_labels)
        check_at_least(1, max_characters=max_characters)
        config, kwargs = split_options(config, options)
        dtype = policy_of(dtype)
        sizes = num_words, num_characters, config.d_model
        self.embedding = WordEmbedding(*sizes, stddev=word_stddev, dtype=dtype, name="embedding")
        self.positions = positions_of(config, dtype=dtype, name="positions")
        self.encoder = Encoder(**config.block_options(), dtype=dtype, name="encoder")
        options = dict(rate=config.dropout, dtype=dtype)
        dropout = keras.layers.Dropout(**options, name="dropout")
        label_dropout = keras.layers.Dropout(**options, name="label_dropout")
        self.labels = keras.layers.Dense(num_labels, dtype=dtype, name="labels")

        word_ids = keras.Input((None,), dtype="int32", name="word_ids")
        character_ids = keras.Input((None, max_characters), dtype="int32", name="character_ids")
        mask = padding_mask(word_ids)
        x = self.embedding(word_ids, character_ids)
        x = self.positions(x) if self.positions else x
        x = self.encoder(dropout(x), attention_mask=mask)
        x = self.pool(x, mask, dtype)
        logits = ops.cast(self.labels(label_dropout(x)), "float32")

        inputs = {"word_ids": word_ids, "character_ids": character_ids}
        arguments = dict(
            num_words=num_words,
            num_characters=num_characters,
            num_labels=num_labels,
            max_characters=max_characters,
            word_stddev=word_stddev,
        )
        super().__init__(inputs, logits, arguments, config, dtype, **kwargs)

    def pool(self, x: Tensor, mask: Tensor, dtype: Any) -> Tensor:
        """The vectors that get labels: here those of the words, (batch, length, d_model)."""
        return x

    def initialize_from(self, other: ConfiguredModel, labels: bool = False) -> None:
        """Takes over the weights of a model of the same sizes.

        Args:
            other: a `WordModel`, for instance one trained to fill in masked words, provides its
                embedding, positions and encoder; a `Transformer` or a `LanguageModel`, whose
                embedding is one of subwords, its encoder or its blocks alone.
            labels: bool, whether to also take over the layer that predicts the labels.

        Raises:
            ValueError: it differs in more than labels, dropout and precision, or one of both is
                quantized or has LoRA.
        """
        for model in (self, other):
            model.check_plain()
        own, given = (
            {**model.get_config(), **dataclasses.asdict(model.config.of_encoder())}
            for model in (self, other)
        )
        same_words = isinstance(other, WordModel)
        names = own.keys() if same_words else dataclasses.asdict(self.config).keys()
        for name in names - MAY_DIFFER:
            expected = f"{name} must be that of the model to initialize from, {given.get(name)!r}"
            check(own[name] == given.get(name), expected, **{name: own[name]})
        if not same_words:
            encoder = other.encoder if hasattr(other, "encoder") else other.decoder
            self.encoder.set_weights(encoder.get_weights())
            return
        for name in ("embedding", "positions", "encoder", *(["labels"] if labels else [])):
            if getattr(self, name) is not None:
                getattr(self, name).set_weights(getattr(other, name).get_weights())


@keras.saving.register_keras_serializable(package="keras_transformer")
class TaggingModel(WordModel):
    """A label for every word.

    With the words themselves as labels it is BERT's masked language model: see `mask_words`.

    Args:
        num_words: int, number of word ids, see `WordVocabulary`.
        num_characters: int, number of character ids.
        num_labels: int, number of label ids, padding (0) included.
        max_characters: int, number of characters read per word.
        word_stddev: float above 0, standard deviation of the initial word vectors, see
            `WordEmbedding`.
        config: `TransformerConfig`; the default is 2 layers of width 128.
        dtype: name or keras.DTypePolicy of all layers; None: the global policy.
        **options: fields of `TransformerConfig` that replace those of `config`; and name and
            trainable of keras.Model.

    Call arguments:
        inputs: dict of int tensors padded with 0 on the right: "word_ids": (batch, length);
            "character_ids": (batch, length, max_characters).

    Returns:
        float32, (batch, length, num_labels): logits.

    Source: Vaswani et al. 2017, section 3.1; Devlin et al. 2019, sections 3.1 and 5.3.
    """


@keras.saving.register_keras_serializable(package="keras_transformer")
class ClassificationModel(WordModel):
    """One label for a text, read from the mean and the maximum of its words.

    Args:
        num_words: int, number of word ids, see `WordVocabulary`.
        num_characters: int, number of character ids.
        num_labels: int, number of label ids, padding (0) included.
        max_characters: int, number of characters read per word.
        word_stddev: float above 0, standard deviation of the initial word vectors, see
            `WordEmbedding`.
        config: `TransformerConfig`; the default is 2 layers of width 128.
        dtype: name or keras.DTypePolicy of all layers; None: the global policy.
        **options: fields of `TransformerConfig` that replace those of `config`; and name and
            trainable of keras.Model.

    Call arguments:
        inputs: dict of int tensors padded with 0 on the right: "word_ids": (batch, length);
            "character_ids": (batch, length, max_characters).

    Returns:
        float32, (batch, num_labels): logits.

    Source: Vaswani et al. 2017, section 3.1; Conneau et al. 2017, section 3.2 (pooling).
    """

    def pool(self, x: Tensor, mask: Tensor, dtype: Any) -> Tensor:
        """Mean and maximum of the words, (batch, 2 * d_model)."""
        return Pooling(dtype=dtype, name="pooling")(x, attention_mask=mask)
