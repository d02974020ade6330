"""An encoder over words: a label for every word, or one for the text."""

import keras
from keras import ops

from ..arguments import check, check_at_least
from ..blocks import Encoder
from ..masks import padding_mask
from ..positions import positional_encoding
from .configured import ConfiguredModel, arguments_of, of_stack
from .embeddings import WordEmbedding

# What may differ between a model and the one it starts from.
FREE = {"name", "trainable", "dtype", "num_labels", "dropout", "attention_dropout", "word_stddev"}


class WordModel(ConfiguredModel):
    """Words and their characters through an encoder; what follows it is the subclass's `head`.

    Args:
        num_words: int, number of word ids, see `WordVocabulary`.
        num_characters: int, number of character ids.
        num_labels: int, number of label ids; they begin at 1, for 0 is padding, and count it.
        max_characters: int, how many of a word's characters are read.
        num_layers: int, N.
        d_model: int, width of embeddings and sublayers.
        num_heads: int, h; it must divide d_model.
        d_ff: int, inner width of the feed-forward networks.
        dropout: float in [0, 1), on embeddings, sublayer outputs and before the labels.
        attention_dropout: float in [0, 1), on attention weights.
        activation: name or function, in the feed-forward networks.
        norm_first: bool, False: post-norm as in the paper; True: pre-norm.
        max_length: int, number of learned positions; None: sinusoids, which have no limit.
        rotary: bool, True: no positions are added, attention turns queries and keys instead.
        word_stddev: float above 0, standard deviation of the words' vectors as training begins,
            see `WordEmbedding`.

    Call arguments:
        inputs: dict of int tensors padded with 0 on the right: "word_ids": (batch, length);
            "character_ids": (batch, length, max_characters).

    Raises:
        ValueError: num_heads does not divide d_model; or positions are both learned and rotary.
    """

    def __init__(
        self,
        num_words,
        num_characters,
        num_labels,
        max_characters=16,
        num_layers=2,
        d_model=128,
        num_heads=4,
        d_ff=256,
        dropout=0.1,
        attention_dropout=0.0,
        activation="relu",
        norm_first=False,
        max_length=None,
        rotary=False,
        word_stddev=1.0,
        dtype=None,
        **kwargs,
    ):
        config = arguments_of(locals())
        check_at_least(2, num_labels=num_labels)
        dtype = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        sizes = num_words, num_characters, d_model
        embed = WordEmbedding(*sizes, stddev=word_stddev, dtype=dtype, name="embedding")
        positions = positional_encoding(max_length, rotary, dtype=dtype, name="positions")
        encoder = Encoder(**of_stack(config), dtype=dtype, name="encoder")

        word_ids = keras.Input((None,), dtype="int32", name="word_ids")
        character_ids = keras.Input((None, max_characters), dtype="int32", name="character_ids")
        mask = padding_mask(word_ids)
        x = positions(embed(word_ids, character_ids))
        x = keras.layers.Dropout(dropout, dtype=dtype, name="dropout")(x)
        x = encoder(x, attention_mask=mask)
        x = self.head(x, mask, dtype)
        x = keras.layers.Dropout(dropout, dtype=dtype, name="label_dropout")(x)
        logits = keras.layers.Dense(num_labels, dtype=dtype, name="labels")(x)
        logits = ops.cast(logits, "float32")

        inputs = {"word_ids": word_ids, "character_ids": character_ids}
        super().__init__(inputs, logits, config, dtype, **kwargs)
        self.max_length = max_length
        self.embed, self.positions, self.encoder = embed, positions, encoder

    def head(self, x, mask, dtype):
        """What the labels are read from: here each word, (batch, length, d_model)."""
        return x

    def start_from(self, other):
        """Takes over the embedding and the encoder of another `WordModel` of the same sizes.

        Args:
            other: `WordModel`, for instance one trained to fill in masked words.

        Raises:
            ValueError: it differs in more than labels, dropout and precision.
        """
        here, there = self.get_config(), other.get_config()
        for name in here.keys() - FREE:
            check(
                here[name] == there.get(name),
                f"{name} must be that of the model to start from, {there.get(name)!r}",
                **{name: here[name]},
            )
        layers = zip(*((m.embed, m.positions, m.encoder) for m in (self, other)))
        for own, their in (
            (v, w) for mine, its in layers for v, w in zip(mine.weights, its.weights)
        ):
            own.assign(ops.convert_to_numpy(their).copy())  # JAX gives a buffer to one owner only


@keras.saving.register_keras_serializable(package="keras_transformer")
class TaggingModel(WordModel):
    """A label for every word.

    With the words themselves as labels it is BERT's masked language model: see `mask_words`.

    Args, call arguments: those of `WordModel`.

    Returns:
        float32, (batch, length, num_labels): logits.

    Source: Vaswani et al. 2017, section 3.1; Devlin et al. 2019, sections 3.1 and 5.3.
    """


@keras.saving.register_keras_serializable(package="keras_transformer")
class ClassificationModel(WordModel):
    """One label for a text, read from the mean and the maximum of its words.

    Args, call arguments: those of `WordModel`.

    Returns:
        float32, (batch, num_labels): logits.

    Source: Vaswani et al. 2017, section 3.1; Conneau et al. 2017, section 3.2 (pooling).
    """

    def head(self, x, mask, dtype):
        return Pooling(dtype=dtype, name="pooling")(x, attention_mask=mask)


@keras.saving.register_keras_serializable(package="keras_transformer")
class Pooling(keras.layers.Layer):
    """Mean and maximum over the words that are there, side by side; zeros where none is.

    Call arguments:
        x: float, (batch, length, d_model).
        attention_mask: bool, (batch, 1, length), True = a word.

    Returns:
        float, (batch, 2 * d_model).
    """

    def call(self, x, attention_mask):
        there = ops.swapaxes(attention_mask, 1, 2)  # (batch, length, 1)
        x = ops.cast(x, "float32")
        number = ops.maximum(ops.sum(ops.cast(there, "float32"), axis=1), 1.0)
        mean = ops.sum(ops.where(there, x, 0.0), axis=1) / number
        largest = ops.max(ops.where(there, x, -1e9), axis=1)
        largest = ops.where(ops.any(there, axis=1), largest, 0.0)
        return ops.cast(ops.concatenate([mean, largest], axis=-1), self.compute_dtype)

    def compute_output_shape(self, x_shape, attention_mask_shape=None):
        return (x_shape[0], 2 * x_shape[-1])
