"""A label for each word, one for a whole text, and words for masks."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from .. import backend
from ..checks import TextError, check, check_at_least
from ..data.lengths import group_by_length, pad
from ..models.word_models import WordModel
from ..tokenizers.base import checked_texts
from ..tokenizers.words import FIRST, MASKED, WordVocabulary, checked_words
from .task import Task

# (here, so that vocabularies of words need no Keras)
keras.saving.register_keras_serializable(package="keras_transformer")(WordVocabulary)


class Prediction(NamedTuple):
    """A label and its probability.

    Args:
        label: str.
        probability: float in [0, 1], according to the model.
    """

    label: str
    probability: float


class WordTask(Task):
    """A `WordModel` with its vocabulary and its labels.

    Args:
        model: `WordModel`, of the kind that the subclass needs.
        vocabulary: `WordVocabulary` of the training data.
        labels: list of str. Label n has the id n + 1, since id 0 is padding.
        batch_size: int, maximum number of texts per batch.
        **kwargs: name of `keras.Model`.

    Call arguments: the arguments of `model`: ids in, logits out.

    Raises:
        ValueError: The model has another number of words, characters or labels.
    """

    parts = ("model", "vocabulary")
    settings: Sequence[str] = ("labels", "batch_size")

    def __init__(
        self,
        model: WordModel,
        vocabulary: WordVocabulary,
        labels: Sequence[str],
        batch_size: int = 64,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_at_least(1, batch_size=batch_size)
        config = model.get_config()
        for name, size in {**vocabulary.sizes, "num_labels": len(labels) + 1}.items():
            expected = f"{name} of the model must be {size} for this vocabulary and these labels"
            check(config.get(name) == size, expected, **{name: config.get(name)})
        self.model = model
        self.vocabulary = vocabulary
        self.labels = list(labels)
        self.batch_size = batch_size

    def split(self, text: str) -> list[str]:
        """The words of a text, each in the form of the vocabulary."""
        return self.vocabulary.split(text)

    def num_tokens(self, texts: Iterable[str]) -> list[int]:
        """The number of words of each text."""
        return [len(self.split(text)) for text in checked_texts(texts)]

    def _probabilities(self, sentences, read=lambda number, p: p):
        """The results of `read` for each list of words, given its number and probabilities.

        These are a NumPy array, (labels,) for a model of texts, and (words, labels) for one of
        words, where rows of padding may follow. Those of one batch are held at a time.
        """
        words, characters = self._encode(sentences)
        answers = [None] * len(words)
        lengths = [len(ids) for ids in words]
        batches = group_by_length(range(len(words)), lengths, self.batch_size, self.longest_input)
        model, programs = self.model, self._of_model(backend.Programs)
        few = self._are_few(sum(lengths))
        program = programs.get(
            "probabilities",
            lambda: backend.jit(lambda inputs: label_probabilities(model, inputs), programs),
        )
        for numbers, rows, length, _ in batches:
            inputs = {
                "word_ids": pad([words[n] for n in numbers], rows, length),
                "character_ids": pad([characters[n] for n in numbers], rows, length),
            }
            of_batch = ops.convert_to_numpy(program(backend.split_rows(inputs), few=few))
            for number, p in zip(numbers, of_batch, strict=False):
                answers[number] = read(number, p)
        return answers

    def _encode(self, sentences):
        """The ids of words and of characters of each list of words, checked."""
        words, characters = self.vocabulary.encode(sentences)
        self._check_lengths(words)
        return words, characters


@keras.saving.register_keras_serializable(package="keras_transformer")
class Tagger(WordTask):
    """A `TaggingModel` with its vocabulary and labels: `tag` labels each word.

        tagger.tag(["I saw a saw"])  # [[("I", "PRON"), ("saw", "VERB"), ...]]

    Args:
        model: `TaggingModel`.
        vocabulary: `WordVocabulary` of the training data.
        labels: list of str. Label n has the id n + 1, since id 0 is padding.
        batch_size: int, maximum number of texts per batch.
        **kwargs: name of `keras.Model`.

    Call arguments: the arguments of `model`: ids in, logits out.

    Raises:
        ValueError: The model has another number of words, characters or labels.
    """

    def tag(self, sentences: Iterable[str | Iterable[str]]) -> list[list[tuple[str, str]]]:
        """Labels each word.

        Args:
            sentences: list of sentences. Each is a list of words, or a str, which
                `WordVocabulary.split` splits.

        Returns:
            list of lists of (word, label), one per sentence. Words of a list are as given; those
            of a str are in the normal form of the vocabulary.

        Raises:
            ValueError: A sentence is neither, or longer than the model's learned positions.
        """
        if isinstance(sentences, Iterable) and not isinstance(sentences, (str, bytes)):
            split = self.vocabulary.split
            sentences = [split(s) if isinstance(s, str) else s for s in sentences]
        sentences = checked_words(sentences)

        def labeled(number, p):  # padding also has labels
            labels = [self.labels[best] for best in p.argmax(axis=-1)]
            return list(zip(sentences[number], labels, strict=False))

        return self._probabilities(sentences, labeled)


@keras.saving.register_keras_serializable(package="keras_transformer")
class Classifier(WordTask):
    """A `ClassificationModel` with its vocabulary and labels: `classify` labels each text.

        classifier.classify(["Not a good film."])  # [Prediction("negative", 0.98)]

    Args:
        model: `ClassificationModel`.
        vocabulary: `WordVocabulary` of the training data.
        labels: list of str. Label n has the id n + 1, since id 0 is padding.
        batch_size: int, maximum number of texts per batch.
        **kwargs: name of `keras.Model`.

    Call arguments: the arguments of `model`: ids in, logits out.

    Raises:
        ValueError: The model has another number of words, characters or labels.
    """

    def classify(self, texts: Iterable[str]) -> list[Prediction]:
        """Predicts the most probable label of each text.

        Args:
            texts: list of str.

        Returns:
            list of `Prediction`, one per text.

        Raises:
            ValueError: An item is not text, or longer than the model's learned positions.
        """
        predictions = []
        for p in self.probabilities(texts):
            best = int(p.argmax())
            predictions.append(Prediction(self.labels[best], float(p[best])))
        return predictions

    def probabilities(self, texts: Iterable[str]) -> np.ndarray:
        """Predicts the probability of every label.

        Args:
            texts: list of str.

        Returns:
            float32, (texts, labels), the labels in the order of `labels`.

        Raises:
            ValueError: An item is not text, or longer than the model's learned positions.
        """
        words = [self.vocabulary.split(text) for text in checked_texts(texts)]
        return np.array(self._probabilities(words), "float32").reshape(-1, len(self.labels))


@keras.saving.register_keras_serializable(package="keras_transformer")
class MaskFiller(WordTask):
    """A `TaggingModel` whose labels are the words themselves: `fill` replaces masks.

        filler.fill(["The [MASK] barks."])  # [[Prediction("dog", 0.41), ...]]

    A model of another task can begin with its weights: `WordModel.initialize_from`.

    Args:
        model: `TaggingModel` with a label for each word of the vocabulary, unknown and masked
            included.
        vocabulary: `WordVocabulary` of the training data.
        batch_size: int, maximum number of texts per batch.
        **kwargs: name of `keras.Model`.

    Call arguments: the arguments of `model`: ids in, logits out.

    Raises:
        ValueError: The model has another number of words, characters or labels.

    Source: Devlin et al. 2019, section 3.1.
    """

    settings = ("batch_size",)

    def __init__(
        self, model: WordModel, vocabulary: WordVocabulary, batch_size: int = 64, **kwargs: Any
    ):
        super().__init__(model, vocabulary, vocabulary.masked_labels, batch_size, **kwargs)

    def fill(self, texts: Iterable[str], number: int = 5) -> list[list[Prediction]]:
        """Predicts the masked word of each text.

        Args:
            texts: list of str, each with one [MASK].
            number: int from 1, number of predictions per text.

        Returns:
            list of lists of `Prediction`, one per text, most probable first.

        Raises:
            ValueError: A text has no [MASK] or several, is longer than the model's learned
                positions, or `number` is out of range.
        """
        check_at_least(1, number=number)
        sentences = [self._around_mask(*each) for each in enumerate(checked_texts(texts))]

        def filled(of_text, p):
            # Neither unknown nor masked is an answer.
            p = p[sentences[of_text].index(MASKED), FIRST - 1 :]
            best = np.argsort(-p)[:number]
            return [Prediction(self.vocabulary.words[n], float(p[n])) for n in best]

        return self._probabilities(sentences, filled)

    def split(self, text: str) -> list[str]:
        """The words of a text, each [MASK] among them."""
        before, *after = map(self.vocabulary.split, text.split(MASKED))
        return [*before, *(word for words in after for word in (MASKED, *words))]

    def _around_mask(self, number, text):
        """The words of a text with one [MASK]."""
        words = self.split(text)
        if (masks := words.count(MASKED)) != 1:
            raise TextError(number, f"must have one {MASKED}; received {masks} in {text!r:.60}.")
        return words


def label_probabilities(model: WordModel, inputs: dict) -> backend.Tensor:
    """The probability of each label.

    Args:
        model: `WordModel`.
        inputs: dict of int32 tensors, "word_ids" and "character_ids".

    Returns:
        float32 tensor, (batch, length, labels), or (batch, labels) for a model of texts.
    """
    logits = ops.cast(model(inputs, training=False), "float32")
    return ops.softmax(logits[..., 1:])  # padding is not a label
