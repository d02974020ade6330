"""Text in, text out: a model with its tokenizers and decoding defaults, saved as one .keras file."""

import os
import pathlib
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from . import tokenizers
from .generation import Decoding
from .tokenizers import END, PADDING, START


class Attention(NamedTuple):
    """Who looked where in one translation: what `plots.plot_attention` draws.

    Args:
        weights: NumPy float32, (layers, heads, target length, source length), cross-attention.
        source_tokens: list of str, what was attended to; ends in </s>.
        target_tokens: list of str, what was being written; ends in </s>.
    """

    weights: np.ndarray
    source_tokens: list
    target_tokens: list


@keras.saving.register_keras_serializable(package="keras_transformer")
class Translator(keras.Model):
    """A `Transformer` with its tokenizers: `translate` takes strings and returns strings.

        translator = keras.saving.load_model("dates.keras")
        translator.translate(["April 22, 2019"])  # ["2019-04-22"]

    Args:
        transformer: a `Transformer`.
        source_tokenizer: keras_hub SentencePieceTokenizer, see `learn_tokenizer`.
        target_tokenizer: the same; None: one tokenizer for both sides.
        batch_size: int, the most sentences decoded together.

    Call arguments: those of `Transformer`: ids in, logits out.

    Raises:
        ValueError: a tokenizer has more ids than the transformer.
    """

    def __init__(self, transformer, source_tokenizer, target_tokenizer=None, batch_size=64, **kwargs):
        super().__init__(**kwargs)
        self.transformer = transformer
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer or source_tokenizer
        self.batch_size = batch_size
        self._decoding = Decoding(transformer)
        self.built = True  # the functional transformer is

    def call(self, inputs):
        return self.transformer(inputs)

    def translate(self, texts):
        """Translates by greedy decoding.

        Args:
            texts: list of str. An empty or blank text translates to "". Characters that the
                vocabulary lacks are read as one unknown token.

        Returns:
            list of str, one a text, in the same order.

        Raises:
            ValueError: `texts` is not a list of strings, or a text has more tokens than the
                transformer has learned positions.
        """
        ids = self._encode(texts)
        answers = [""] * len(texts)
        written = sorted((i for i, text in enumerate(texts) if text.strip()), key=lambda i: len(ids[i]))
        for start in range(0, len(written), self.batch_size):
            batch = written[start : start + self.batch_size]
            rows = _next_size(len(batch), self.batch_size)
            source_ids = _padded([ids[i] for i in batch], rows, self.transformer.max_length)
            longest = self._max_target_length(source_ids.shape[1])
            answer_ids = self._decoding.greedy(source_ids, longest)
            # Each sentence has its own limit, so that its neighbours cannot lengthen its answer.
            answer_ids = [
                row[: self._max_target_length(len(ids[i]))] for i, row in zip(batch, answer_ids)
            ]
            for i, answer in zip(batch, tokenizers.decode(self.target_tokenizer, answer_ids)):
                answers[i] = answer
        return answers

    def attention(self, text, translation=None):
        """The cross-attention weights of every layer and head while writing a translation.

        Args:
            text: str, the source.
            translation: str; None: what `translate` says.

        Returns:
            `Attention`.
        """
        if translation is None:
            (translation,) = self.translate([text])
        (source,) = self._encode([text])
        (target,) = tokenizers.encode(self.target_tokenizer, [translation])
        memory, mask = self.transformer.encode(np.array([source]))
        y = self.transformer.embed_target(np.array([[START, *target]]))
        y = self.transformer.target_positions(y)
        _, _, weights = self.transformer.decoder(
            y, memory, cross_attention_mask=mask, return_attention_scores=True
        )
        return Attention(
            np.concatenate([ops.convert_to_numpy(ops.cast(w, "float32")) for w in weights]),
            tokenizers.token_strings(self.source_tokenizer, source),
            tokenizers.token_strings(self.target_tokenizer, [*target, END]),
        )

    def save(self, filepath, overwrite=True, **kwargs):
        """As keras.Model.save, without the optimizer's state, and never half a file.

        The file is written beside its place and then renamed. To go on training, see
        `training.Checkpoint`.
        """
        path = pathlib.Path(filepath)
        if path.exists() and not overwrite:
            raise ValueError(f"{path} exists; choose another name, or pass overwrite=True.")
        beside = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
        optimizer = getattr(self.transformer, "optimizer", None)
        self.transformer.optimizer = None
        try:
            super().save(beside, **kwargs)
            os.replace(beside, path)
        finally:
            self.transformer.optimizer = optimizer
            beside.unlink(missing_ok=True)

    def _encode(self, texts):
        sequences = [[*ids, END] for ids in tokenizers.encode(self.source_tokenizer, texts)]
        limit = self.transformer.max_length
        for number, ids in enumerate(sequences, start=1):
            if limit is not None and len(ids) > limit:
                raise ValueError(
                    f"Text {number} has {len(ids)} tokens, but the model learned {limit} positions; "
                    "split the text, or train with sinusoids, which have no limit."
                )
        return sequences

    def _max_target_length(self, source_length):
        """Tokens that an answer may have, END included: generous, but no endless loop."""
        limit = 2 * source_length + 16
        return limit if self.transformer.max_length is None else min(limit, self.transformer.max_length)

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        shared = self.target_tokenizer is self.source_tokenizer
        transformer = serialize(self.transformer)
        transformer.pop("compile_config", None)  # how it was trained is not how it is used
        return {
            "name": self.name,
            "transformer": transformer,
            "source_tokenizer": serialize(self.source_tokenizer),
            "target_tokenizer": None if shared else serialize(self.target_tokenizer),
            "batch_size": self.batch_size,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        import keras_hub  # noqa: F401  registers the tokenizer's class

        parts = ("transformer", "source_tokenizer", "target_tokenizer")
        loaded = {name: keras.saving.deserialize_keras_object(config[name]) for name in parts}
        return cls(**{**config, **loaded})


def _next_size(size, largest):
    """The next power of two, at most `largest`: few shapes, few compilations."""
    return min(1 << (size - 1).bit_length(), largest)


def _padded(sequences, rows, max_length):
    """(rows, length) int32: the length is 16, 32, 48, 64, 96, 128, 192, ..., at most `max_length`.

    Spare rows are padding.
    """
    longest = max(map(len, sequences))
    length = 16
    while length < longest:
        length += max(16, 1 << (length.bit_length() - 2))
    ids = np.full((rows, min(length, max_length or length)), PADDING, "int32")
    for row, sequence in zip(ids, sequences):
        row[: len(sequence)] = sequence
    return ids
