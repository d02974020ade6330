"""Embeddings of tokens and words, the bias of the logits, and pooling: both ends of a model."""

from typing import Any

import keras
from keras import ops

from ..backend import Embedding, ReversibleEmbedding, Tensor
from ..checks import check_above_0, check_at_least


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenEmbedding(ReversibleEmbedding):
    """E[ids] * sqrt(d_model); in reverse, the logits h E^T. One matrix for both.

    Args:
        vocabulary_size: int, number of ids.
        d_model: int, width.

    Call arguments:
        inputs: int, (batch, length), ids; in reverse float, (batch, length, d_model).
        reverse: bool, True: logits instead of embeddings.

    Returns:
        float, (batch, length, d_model); in reverse float32, (batch, length, vocabulary_size).

    Raises:
        ValueError: a size is not a positive integer.

    Source: Vaswani et al. 2017, section 3.4; Press and Wolf 2017.
    """

    def __init__(self, vocabulary_size: int, d_model: int, **kwargs: Any):
        check_at_least(1, vocabulary_size=vocabulary_size, d_model=d_model)
        # Standard deviation 1 after the scaling, and logits of the order of 1 at the start.
        kwargs.setdefault(
            "embeddings_initializer", keras.initializers.RandomNormal(0.0, d_model**-0.5)
        )
        super().__init__(vocabulary_size, d_model, **kwargs)

    def call(self, inputs: Tensor, reverse: bool = False):
        if reverse:
            return ops.cast(super().call(inputs, reverse=True), "float32")
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
class LogitsBias(keras.layers.Layer):
    """h E^T + b: one number per id, which models of other toolkits add to their logits.

    Call arguments:
        logits: float, (batch, length, vocabulary_size).

    Returns:
        float32, (batch, length, vocabulary_size).

    Departs: the paper's pre-softmax transformation has no bias; Marian's has one.
    """

    def __init__(self, **kwargs: Any):
        super().__init__(autocast=False, **kwargs)  # logits stay float32

    def build(self, logits_shape):
        self.bias = self.add_weight(shape=(logits_shape[-1],), initializer="zeros", name="bias")

    def call(self, logits: Tensor):
        return ops.cast(logits, "float32") + ops.cast(self.bias, "float32")

    def compute_output_shape(self, logits_shape):
        return logits_shape

    def compute_output_spec(self, logits):
        return keras.KerasTensor(logits.shape, dtype="float32")

    def get_config(self):
        return super().get_config()  # Keras derives none for a layer with a DTypePolicy


@keras.saving.register_keras_serializable(package="keras_transformer")
class WordEmbedding(keras.layers.Layer):
    """E[word] * sqrt(d_model) + max over positions of Conv(C[characters]).

    The first part knows the words of the training data; the second reads prefixes, suffixes and
    capitals of any word, so that one never seen has a vector too.

    Args:
        num_words: int, number of word ids.
        num_characters: int, number of character ids.
        d_model: int, width.
        character_width: int, width of one character's vector.
        kernel_size: int, how many neighboring characters are read together.
        stddev: float above 0, standard deviation of the initial word vectors. The vector of a word
            seen once or twice hardly changes; if it is small, the spelling decides.

    Call arguments:
        word_ids: int, (batch, length).
        character_ids: int, (batch, length, characters), padded with 0.

    Returns:
        float, (batch, length, d_model).

    Source: Santos and Zadrozny 2014; Ma and Hovy 2016 (a convolution over the characters).
    """

    def __init__(
        self,
        num_words: int,
        num_characters: int,
        d_model: int,
        character_width: int = 32,
        kernel_size: int = 5,
        stddev: float = 1.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_at_least(1, num_words=num_words, num_characters=num_characters, d_model=d_model)
        check_at_least(1, character_width=character_width, kernel_size=kernel_size)
        check_above_0(stddev=stddev)
        self.num_words, self.num_characters = num_words, num_characters
        self.d_model = d_model
        self.character_width, self.kernel_size = character_width, kernel_size
        self.stddev = stddev

    def build(self, word_ids_shape, character_ids_shape):
        dtype = self.dtype_policy
        begin = keras.initializers.RandomNormal(0.0, self.stddev * self.d_model**-0.5)
        self.words = TokenEmbedding(
            self.num_words, self.d_model, embeddings_initializer=begin, dtype=dtype, name="words"
        )
        self.characters = Embedding(
            self.num_characters, self.character_width, dtype=dtype, name="characters"
        )
        self.spelling = keras.layers.Conv1D(
            self.d_model, self.kernel_size, padding="same", dtype=dtype, name="spelling"
        )
        self.words.build(word_ids_shape)
        self.characters.build((None, None))
        self.spelling.build((None, None, self.character_width))

    def call(self, word_ids: Tensor, character_ids: Tensor):
        length, characters = ops.shape(character_ids)[1:]
        spelled = self.characters(ops.reshape(character_ids, (-1, characters)))
        spelled = ops.max(self.spelling(spelled), axis=1)  # (batch * length, d_model)
        return self.words(word_ids) + ops.reshape(spelled, (-1, length, self.d_model))

    def compute_output_shape(self, word_ids_shape, character_ids_shape):
        return (*word_ids_shape, self.d_model)

    def get_config(self):
        return {
            **super().get_config(),
            "num_words": self.num_words,
            "num_characters": self.num_characters,
            "d_model": self.d_model,
            "character_width": self.character_width,
            "kernel_size": self.kernel_size,
            "stddev": self.stddev,
        }


@keras.saving.register_keras_serializable(package="keras_transformer")
class Pooling(keras.layers.Layer):
    """Mean and maximum over the words that are there, side by side; zeros where none is.

    Call arguments:
        x: float, (batch, length, d_model).
        attention_mask: bool, (batch, 1, length), True = a word.

    Returns:
        float, (batch, 2 * d_model).
    """

    def call(self, x: Tensor, attention_mask: Tensor):
        there = ops.swapaxes(attention_mask, 1, 2)  # (batch, length, 1)
        x = ops.cast(x, "float32")
        number = ops.maximum(ops.sum(ops.cast(there, "float32"), axis=1), 1.0)
        mean = ops.sum(ops.where(there, x, 0.0), axis=1) / number
        largest = ops.max(ops.where(there, x, -1e9), axis=1)
        largest = ops.where(ops.any(there, axis=1), largest, 0.0)
        return ops.cast(ops.concatenate([mean, largest], axis=-1), self.compute_dtype)

    def compute_output_shape(self, x_shape, attention_mask_shape=None):
        return (x_shape[0], 2 * x_shape[-1])

    def get_config(self):
        return super().get_config()  # Keras derives none for a layer with a DTypePolicy
