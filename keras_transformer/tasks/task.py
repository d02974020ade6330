"""Base classes of the tasks: text in, text out, and one .keras file with all that this needs."""

import itertools
import pathlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras

from .. import backend
from ..atomic import atomic_write, named
from ..checks import TextError, check
from ..data.lengths import LONGEST, check_lengths, group_by_length, pad
from ..generation import Decoding
from ..generation.configuration import UNCHANGED, check_list
from ..tokenizers.base import Tokenizer, checked_texts
from ..tokenizers.normal_forms import normalized
from ..tokenizers.sentencepiece import SentencePieceTokenizer
from . import addresses, sharing
from .saved_files import FORMAT_VERSION, add_checksums, check_version

REPLACEMENT_CHARACTER = "\N{REPLACEMENT CHARACTER}"  # half a character decodes to it


class Task(keras.Model):
    """A model with its vocabulary: text in, text out.

    A subclass names its `parts` (objects with a configuration of their own) and its `settings`
    (plain values). Both are arguments of its constructor and attributes of the same names.

    Call arguments: the arguments of `model`: ids in, logits out.
    """

    parts: Sequence[str] = ("model",)
    settings: Sequence[str] = ()

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.built = True  # the functional model is
        self._expects_many = False

    def call(self, inputs):
        return self.model(inputs)

    def save(self, filepath: str | pathlib.Path, overwrite: bool = True, **kwargs: Any) -> None:
        """Saves the task like `keras.Model.save`, but atomically and without optimizer state.

        The file holds checksums, which `keras_transformer.check_file` and `load` compare.

        To resume training, see `training.EpochCheckpoint`.

        Args:
            filepath: str or pathlib.Path, ends in ".keras"; or "hf://USER/MODEL", see
                `tasks.sharing.push`.
            overwrite: bool, whether an existing file or repository is replaced.
            **kwargs: of `keras.Model.save`, but for `zipped`: a task is one file; or of
                `tasks.sharing.push`.

        Raises:
            ValueError: The file exists and `overwrite` is False, its name does not end in ".keras",
                or `zipped` is False.
            OSError: It cannot be written or uploaded.
        """
        if addresses.is_address(filepath):
            with tempfile.TemporaryDirectory() as folder:
                self.save(file := pathlib.Path(folder, addresses.FILE))
                sharing.push(file, str(filepath), overwrite=overwrite, **kwargs)
            return
        path = named(filepath, "The file of a task")
        check(path.suffix == ".keras", "The file of a task must end in .keras", filepath=str(path))
        zipped = kwargs.pop("zipped", None)
        check(zipped in (None, True), "A task is one file, so leave out zipped", zipped=zipped)
        if path.exists() and not overwrite:
            raise ValueError(f"{filepath} exists; choose another name, or pass overwrite=True.")
        with atomic_write(path) as temporary:
            # A twin: the task does not change, since other threads may use it.
            model = backend.twin(self.model, optimizer=None)
            parts = {name: model for name in self.parts if getattr(self, name) is self.model}
            keras.Model.save(backend.twin(self, **parts), temporary, **kwargs)
            add_checksums(temporary)

    def get_config(self) -> dict[str, Any]:
        config = {"name": self.name, "format_version": FORMAT_VERSION}
        for name in self.parts:
            config[name] = keras.saving.serialize_keras_object(getattr(self, name))
            config[name].pop("compile_config", None)
        for name in self.settings:
            config[name] = getattr(self, name)
        return config

    def get_compile_config(self) -> None:
        """None: a task does not store training options."""

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "Task":
        config = dict(config)
        if check_version(config) == 1:
            config = _from_version_1(config)
        config.pop("format_version", None)
        for name in cls.parts:
            config[name] = keras.saving.deserialize_keras_object(config[name])
        return cls(**config)

    def _of_model(self, kind):
        """A `Decoding` or `Programs` of the model, which may have been replaced."""
        found = getattr(self, "_made_of_model", None)
        if found is None or found.model is not self.model:
            found = self._made_of_model = kind(self.model)
        return found

    def decode_with(self, decoding: Decoding | None) -> None:
        """Decodes with another `Decoding` of the same model, until that is replaced.

        Args:
            decoding: `Decoding`; None: its own.
        """
        self._made_of_model = decoding

    def expect_many(self) -> None:
        """Says that many more texts will follow, in one call after the other.

        TensorFlow then compiles with XLA, and PyTorch records a decoding step, although the texts
        of a call are few: what takes longer at first is faster later. A call with many texts does
        so by itself.
        """
        self._expects_many = True

    def _are_few(self, tokens):
        """Whether the texts of a call are few, by their tokens times the beams; see `Request`.

        That depends on nothing that was asked before: the same call has the same answer.
        """
        return not self._expects_many and backend.are_few(tokens)

    @property
    def longest_input(self) -> int:
        """int, the maximum length of an input, in tokens."""
        return self.model.max_length or LONGEST

    def _check_lengths(self, sequences, name="Text"):
        """Refuses sequences that are longer than the model can read."""
        learned = self.model.max_length is not None
        reason = "the number of learned positions" if learned else "since attention needs memory"
        lengths = [len(ids) for ids in sequences]
        check_lengths(lengths, self.longest_input, name, f"tokens, {reason}", "Split it.")

    def check_texts(self, texts: Any) -> None:
        """Refuses texts that the task could not answer, without answering any.

        Args:
            texts: list of str; for a `Tagger`, `Classifier` or `MaskFiller` of lists of words.

        Raises:
            ValueError: An item is not a text, or longer than the model can read.
        """
        self._encode(texts)

    def _encode(self, texts):
        """The ids of each text, checked."""
        raise NotImplementedError

    @staticmethod
    def _check_tokenizer(tokenizer, vocabulary_size):
        """Refuses a tokenizer that does not belong to its model.

        The vocabulary of a task that is being loaded comes after its constructor has run, so tasks
        check again when they encode.
        """
        if tokenizer.serialized is not None:
            expected = f"The tokenizer must have the {vocabulary_size} ids of the model"
            size = tokenizer.vocabulary_size()
            check(size == vocabulary_size, expected, vocabulary_size=size)


class WritingTask(Task):
    """A task that writes text: with a `Decoding` of its model, and texts in a normal form.

    A subclass has the attribute `normalization`, and `lowercase` if its texts are lowercased.
    """

    lowercase = False

    @property
    def _decoding(self):
        return self._of_model(Decoding)

    def _answers(self, requests):
        """Decodes pairs of any key and a `Request`, and yields each key with the answers."""
        keys, ahead = itertools.tee(requests)
        answers = self._decoding.decode(request for _, request in ahead)
        return ((key, found) for (key, _), found in zip(keys, answers, strict=True))

    def _logits(self, tokenizer, suppress=(), **options):
        """`LogitsConfig` of its fields, in which texts become their ids."""
        check_list("suppress", "texts or ids", suppress, (str, int))
        texts = [each for each in suppress if isinstance(each, str)]
        try:
            ids = iter(tokenizer.encode(self.normalized(texts)))
        except TextError as error:  # of none of the texts to answer, whose numbers others have
            raise ValueError(f"suppress: {error}") from None
        ids = [next(ids) if isinstance(each, str) else each for each in suppress]
        return UNCHANGED.replace(suppress=ids, **options)

    def normalized(self, texts: Iterable[str]) -> list[str]:
        """Texts in the form of the training data, as a tokenizer expects them.

        The methods that answer or score texts do this themselves.

        Args:
            texts: list of str.

        Returns:
            list of str: in the form `normalization`, in lower case if `lowercase`.

        Raises:
            ValueError: An item is not text.
        """
        form = self.normalization, self.lowercase
        return [normalized(text, *form) for text in checked_texts(texts)]

    def _log_probabilities(self, targets, sources, batch_size, tokens_per_batch=None):
        """Scores given ids, in batches of similar lengths.

        Args:
            targets: lists of ids.
            sources: lists of ids, one per target; None: a model without a source.
            batch_size, tokens_per_batch: limits of a batch, see `GenerationConfig`.

        Yields:
            The number of each target, in the order of their lengths.
            float32, (length,): nats, which 0 may follow.
        """
        columns = [targets] if sources is None else [sources, targets]
        lengths = [max(map(len, row)) for row in zip(*columns, strict=True)]

        def score(batch):
            numbers, rows, length, _ = batch
            padded = [pad([column[n] for n in numbers], rows, length) for column in columns]
            source_ids = None if sources is None else padded[0]
            return zip(numbers, self._decoding.score(source_ids, padded[-1], few), strict=False)

        few = self._are_few(sum(lengths))
        sizes = batch_size, self.longest_input, tokens_per_batch
        batches = group_by_length(range(len(targets)), lengths, *sizes)
        for scored in backend.map_batches(score, batches):
            yield from scored


def whole_characters(
    stream: Iterable[int], tokenizer: Tokenizer, ids: Iterable[int] = ()
) -> Iterator[str]:
    """The text of an answer that is being written, whole characters at a time.

    Args:
        stream: ints, its ids.
        tokenizer: `Tokenizer`.
        ids: list of int that precede the answer.
    """
    ids = list(ids)
    (written,) = (now,) = tokenizer.decode([ids])
    for next_id in stream:
        ids.append(next_id)
        (now,) = tokenizer.decode([ids])
        if not now.endswith(REPLACEMENT_CHARACTER):
            yield now[len(written) :]
            written = now
    yield now[len(written) :]


def _from_version_1(config):
    """The config of a task saved before format version 2.

    Its tokenizers were KerasHub's, whose vocabulary is the same asset as ours, and `append_end` was
    called `ends`.
    """
    converted = {}
    for name, part in config.items():
        if isinstance(part, dict) and part["class_name"] == "SentencePieceTokenizer":
            tokenizer = SentencePieceTokenizer(name=part["config"]["name"])
            part = keras.saving.serialize_keras_object(tokenizer)
        converted["append_end" if name == "ends" else name] = part
    return converted
