"""What every task is: text in, text out, one .keras file with all that this needs."""

import pathlib

import keras
import numpy as np

from ..arguments import check
from ..writing import written_beside


class Task(keras.Model):
    """A model with what turns text into its ids and its answers into text.

    A subclass names its `parts` (objects with a configuration of their own) and its `settings`
    (plain values); both are arguments of its constructor and attributes of the same names. Its
    ids in, logits out are those of `model`.
    """

    parts = ("model",)
    settings = ()

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.built = True  # the functional model is

    def call(self, inputs):
        return self.model(inputs)

    def save(self, filepath, overwrite=True, **kwargs):
        """As keras.Model.save, without the optimizer's state, and never half a file.

        To go on training, see `training.Checkpoint`.
        """
        if pathlib.Path(filepath).exists() and not overwrite:
            raise ValueError(f"{filepath} exists; choose another name, or pass overwrite=True.")
        optimizer = getattr(self.model, "optimizer", None)
        self.model.optimizer = None
        try:
            with written_beside(filepath) as beside:
                super().save(beside, **kwargs)
        finally:
            self.model.optimizer = optimizer

    @property
    def _limit(self):
        """The longest input, in tokens."""
        return self.model.max_length or np.inf

    def _check_lengths(self, sequences):
        for number, ids in enumerate(sequences, start=1):
            if len(ids) > self._limit:
                raise ValueError(
                    f"Text {number} has {len(ids)} tokens, but the model learned {self._limit} "
                    "positions; split the text, or train with sinusoids, which have no limit."
                )

    @staticmethod
    def _check_tokenizer(tokenizer, vocabulary_size):
        if tokenizer.proto is not None:  # of a saved task, it is read after this
            check(
                tokenizer.vocabulary_size() == vocabulary_size,
                f"The tokenizer must have the {vocabulary_size} ids of the model",
                vocabulary_size=tokenizer.vocabulary_size(),
            )

    def get_config(self):
        parts = {
            name: keras.saving.serialize_keras_object(getattr(self, name)) for name in self.parts
        }
        for part in parts.values():
            part.pop("compile_config", None)  # how it was trained is not how it is used
        return {"name": self.name, **parts, **{name: getattr(self, name) for name in self.settings}}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        if any("tokenizer" in name for name in cls.parts):
            import keras_hub  # noqa: F401  registers the tokenizer's class

        parts = {name: keras.saving.deserialize_keras_object(config[name]) for name in cls.parts}
        return cls(**{**config, **parts})
