"""Vocabulary and settings files for engines that work on ids."""

import json
import pathlib
from typing import Any

from ..ids import END, PADDING, START, UNKNOWN
from ..tasks import Task, TextGenerator, Translator
from ..tokenizers.base import Tokenizer
from ..tokenizers.normal_forms import INVISIBLE
from ..tokenizers.sentencepiece import SentencePieceTokenizer
from ..tokenizers.words import FIRST, MASK, SEGMENTATIONS, WordVocabulary

SETTINGS = "settings.json"


def write_vocabularies(task: Task, folder: pathlib.Path) -> None:
    """Writes the vocabularies of tokenizers, or the words and characters, and settings.json.

    Those of SentencePiece are vocabulary.spm, or source.spm and target.spm; those of byte-level BPE
    are tokenizer.json, or source.json and target.json.

    Args:
        task: any task.
        folder: an existing folder.
    """
    if isinstance(task, Translator):
        for side in ("source", "target"):
            tokenizer = getattr(task, f"{side}_tokenizer")
            suffix = pathlib.PurePath(tokenizer.vocabulary_file).suffix
            (folder / f"{side}{suffix}").write_bytes(tokenizer.serialized)
    elif isinstance(task, TextGenerator):
        task.tokenizer.save_assets(str(folder))
    write_json(folder / SETTINGS, settings_of(task))


def settings_of(task: Task) -> dict[str, Any]:
    """The content of settings.json: the form of texts, special ids and options.

    Args:
        task: any task.
    """
    special = dict(padding=PADDING, unknown=UNKNOWN)
    settings: dict[str, Any] = {"task": type(task).__name__}
    if isinstance(task, Translator):
        settings |= dict(text_form(task), **training_data_of(task), lowercase=task.lowercase)
        settings |= dict(task.config.to_dict(), longest_input=task.longest_input)
        settings |= dict(special_ids=dict(special, start=START, end=END))
    elif isinstance(task, TextGenerator):
        settings |= dict(text_form(task), append_end=task.append_end, window=task.window)
        settings |= dict(special_ids=dict(special, start=START, end=END))
    else:
        vocabulary = task.vocabulary
        settings |= dict(
            labels=task.labels,  # in the order of the probabilities
            **text_form(vocabulary),
            word_pattern=SEGMENTATIONS[vocabulary.segmentation].portable,
            max_characters=vocabulary.max_characters,
            special_ids=dict(special, masked=MASK, first=FIRST),
            words=vocabulary.words,  # the first one has the id `first`
            characters=vocabulary.characters,
        )
    return settings


def text_form(task: Task | WordVocabulary) -> dict[str, str | None]:
    """The form of every text: a normal form, and a pattern of the characters to be removed."""
    form = task.normalization
    return dict(normalization=form, invisible=INVISIBLE if form else None)


def training_data_of(translator: Translator) -> dict[str, Any]:
    """The properties of the training data on which the reading of texts depends."""
    known = dict(
        directions=list(translator.directions),
        placeholders=list(translator.placeholders),
        trained_length=translator.trained_length,
    )
    return {name: value for name, value in known.items() if value}


def sentencepiece_model(tokenizer: Tokenizer, engine: str) -> bytes:
    """The SentencePiece model of a tokenizer, for an engine that reads no other vocabulary.

    Raises:
        ValueError: The tokenizer is of another kind.
    """
    if not isinstance(tokenizer, SentencePieceTokenizer):
        raise ValueError(
            f"{engine} needs the vocabulary of a SentencePieceTokenizer; received a "
            f"{type(tokenizer).__name__}. Choose a format that takes ids, such as onnx."
        )
    return tokenizer.serialized


def write_json(path: pathlib.Path, value: dict[str, Any]) -> None:
    """Writes a JSON object in UTF-8."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
