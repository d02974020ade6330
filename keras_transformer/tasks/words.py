"""A label for every word, one for a text, and words for masks."""

from typing import NamedTuple

import keras
import numpy as np

from ..arguments import check_at_least
from ..tokenizers import checked_texts
from ..words import FIRST, MASKED, checked_words, split_words
from .shapes import by_length, padded
from .task import Task


class Label(NamedTuple):
    """What a model says, and how sure it is.

    Args:
        label: str.
        probability: float from 0 to 1.
    """

    label: str
    probability: float


class WordTask(Task):
    """A `WordModel` with its vocabulary and its labels.

    Args:
        model: as the subclass says.
        vocabulary: `WordVocabulary`, that of the training data.
        labels: List of str; number n has the id n + 1, for 0 is padding.
        batch_size: int, the most texts read together.

    Call arguments: those of `model`: ids in, logits out.

    Raises:
        ValueError: The model has another number of words or labels.
    """

    parts = ("model", "vocabulary")
    settings = ("labels", "batch_size")

    def __init__(self, model, vocabulary, labels, batch_size=64, **kwargs):
        super().__init__(**kwargs)
        check_at_least(1, batch_size=batch_size)
        config = model.get_config()
        theirs = vocabulary.num_words, vocabulary.num_characters, vocabulary.max_characters
        mine = tuple(config[n] for n in ("num_words", "num_characters", "max_characters"))
        if mine != theirs or config["num_labels"] != len(labels) + 1:
            raise ValueError(
                "The model must have the vocabulary's words, characters and longest word, and a "
                f"label id more than labels; received {mine} and {config['num_labels']} for "
                f"{theirs} and {len(labels)} labels. Use what it was trained with."
            )
        self.model, self.vocabulary = model, vocabulary
        self.labels, self.batch_size = list(labels), batch_size

    def _probabilities(self, sentences):
        """Softmax over the labels, a NumPy array (words, labels) or (labels,) for each sentence."""
        words, characters = self.vocabulary.encode(sentences)
        self._check_lengths(words)
        answers = [None] * len(words)
        lengths = [len(ids) for ids in words]
        every = range(len(words))
        for numbers, rows, length in by_length(every, lengths, self.batch_size, self._limit):
            ids, spelled = (
                padded([side[n] for n in numbers], rows, length) for side in (words, characters)
            )
            logits = self.model.predict_on_batch({"word_ids": ids, "character_ids": spelled})
            p = np.exp(logits[..., 1:] - logits[..., 1:].max(axis=-1, keepdims=True))
            p /= p.sum(axis=-1, keepdims=True)
            for number, each in zip(numbers, p):
                answers[number] = each if each.ndim == 1 else each[: lengths[number]]
        return answers

    def _best(self, probabilities):
        best = int(probabilities.argmax())
        return Label(self.labels[best], float(probabilities[best]))


@keras.saving.register_keras_serializable(package="keras_transformer")
class Tagger(WordTask):
    """A `TaggingModel` with its vocabulary and labels: `tag` takes text and returns labels.

        tagger.tag(["I saw a saw"])  # [[("I", "PRON"), ("saw", "VERB"), ...]]

    Args: as `WordTask`.
    """

    def tag(self, sentences):
        """A label for every word.

        Args:
            sentences: list; each a list of words, or a str, which `split_words` splits.

        Returns:
            list of lists of (word, label), one a sentence.

        Raises:
            ValueError: A sentence is neither, or longer than the model's learned positions.
        """
        if isinstance(sentences, str):
            raise ValueError(
                "Expected a list of texts or of lists of words; received one str. Put it in a "
                "list: [text]."
            )
        sentences = [split_words(s) if isinstance(s, str) else s for s in sentences]
        answers = self._probabilities(checked_words(sentences))
        return [
            [(word, self.labels[best]) for word, best in zip(words, p.argmax(axis=-1))]
            for words, p in zip(sentences, answers)
        ]


@keras.saving.register_keras_serializable(package="keras_transformer")
class Classifier(WordTask):
    """A `ClassificationModel` with its vocabulary and labels: `classify` takes text.

        classifier.classify(["Not a good film."])  # [Label("negative", 0.98)]

    Args: as `WordTask`.
    """

    def classify(self, texts):
        """The most probable label of each text.

        Args:
            texts: list of str.

        Returns:
            list of `Label`.

        Raises:
            ValueError: An item is not text, or longer than the model's learned positions.
        """
        return [self._best(p) for p in self.probabilities(texts)]

    def probabilities(self, texts):
        """Of each label, in the order of `labels`: NumPy float32, (texts, labels)."""
        words = [split_words(text) for text in checked_texts(texts)]
        return np.array(self._probabilities(words), "float32").reshape(-1, len(self.labels))


@keras.saving.register_keras_serializable(package="keras_transformer")
class MaskFiller(WordTask):
    """A `TaggingModel` whose labels are the words: it fills in what is masked.

    What it learnt, a `Tagger` or a `Classifier` starts from: `WordModel.start_from`.

        filler.fill(["The [MASK] barks."])  # [[Label("dog", 0.41), ...]]

    Args:
        model: `TaggingModel` with a label for every word id.
        vocabulary: `WordVocabulary`.
        batch_size: int, the most texts read together.

    Source: Devlin et al. 2019, section 3.1.
    """

    settings = ("batch_size",)

    def __init__(self, model, vocabulary, batch_size=64, **kwargs):
        special = [None] * (FIRST - 1)  # unknown and masked are never what is missing
        super().__init__(model, vocabulary, special + vocabulary.words, batch_size, **kwargs)

    def fill(self, texts, number=5):
        """The most probable words for the one [MASK] of each text.

        Args:
            texts: list of str, each with one [MASK].
            number: int from 1, how many words.

        Returns:
            list of lists of `Label`, most probable first.

        Raises:
            ValueError: A text has no [MASK], or several; or number is out of range.
        """
        check_at_least(1, number=number)
        sentences = []
        for n, text in enumerate(checked_texts(texts)):
            before, *after = text.split(MASKED)
            if len(after) != 1:
                raise ValueError(
                    f"Text {n} must have one {MASKED}; received {len(after)} in {text!r:.60}."
                )
            sentences.append([*split_words(before), MASKED, *split_words(after[0])])
        answers = []
        for words, p in zip(sentences, self._probabilities(sentences)):
            p = p[words.index(MASKED), FIRST - 1 :]
            best = np.argsort(-p)[:number]
            answers.append([Label(self.vocabulary.words[n], float(p[n])) for n in best])
        return answers
