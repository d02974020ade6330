"""What an engine that computes ids needs beside its graphs: vocabularies and settings, as files."""

import dataclasses
import json
import pathlib
from typing import Any

from ..ids import END, PADDING, START, UNKNOWN
from ..tasks import Task, TextGenerator, Translator
from ..vocabulary import FIRST, MASK, WORD

SETTINGS = "settings.json"


def write_vocabularies(task: Task, folder: pathlib.Path) -> None:
    """Writes SentencePiece models, or the words and characters, and settings.json.

    Args:
        task: any task.
        folder: an existing folder.
    """
    special = dict(padding=PADDING, unknown=UNKNOWN)
    settings: dict[str, Any] = {"task": type(task).__name__}
    if isinstance(task, Translator):
        (folder / "source.spm").write_bytes(task.source_tokenizer.proto)
        (folder / "target.spm").write_bytes(task.target_tokenizer.proto)
        settings |= dict(normalization=task.normalization, lowercase=task.lowercase)
        settings |= dataclasses.asdict(task.config)
        settings |= dict(special_ids=dict(special, start=START, end=END))
    elif isinstance(task, TextGenerator):
        (folder / "vocabulary.spm").write_bytes(task.tokenizer.proto)
        settings |= dict(append_end=task.append_end, window=task.window)
        settings |= dict(special_ids=dict(special, start=START, end=END))
    else:
        vocabulary = task.vocabulary
        settings |= dict(
            labels=task.labels,  # in the order of the probabilities
            word_pattern=WORD.pattern,
            max_characters=vocabulary.max_characters,
            special_ids=dict(special, masked=MASK, first=FIRST),
            words=vocabulary.words,  # the first one has the id `first`
            characters=vocabulary.characters,
        )
    write_json(folder / SETTINGS, settings)


def write_json(path: pathlib.Path, value: dict[str, Any]) -> None:
    """Writes a JSON object in UTF-8."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
