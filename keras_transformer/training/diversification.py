"""Data diversification: training data plus the translations that other models make of it.

A teacher learns from the pairs and then translates the very sentences it has learned from: one
more translation of each, plainer than a human one. Teachers of the backward direction add one more
source per target. No data but the pairs themselves is used.

Source: Nguyen et al. 2020, "Data Diversification", section 3.
"""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import keras

from ..atomic import write_text
from ..backend import distribution
from ..data import Examples

CHUNK = 2048  # sentences between two updates of the progress bar


def diversify(
    pairs: Examples,
    num_teachers: int,
    folder: pathlib.Path,
    train_teacher: Callable[[str, int, pathlib.Path], Any],
) -> Examples:
    """The pairs, followed by those that teachers make of them.

    Each teacher has a subfolder. Its translations are written there, so that a resumed run trains
    only the teachers that are missing.

    Args:
        pairs: Examples to learn from.
        num_teachers: int, number of teachers per direction.
        folder: pathlib.Path of the folder of the teachers.
        train_teacher: function of "forward" or "backward", a number from 1 and the folder of that
            teacher; returns a `Translator` trained on the pairs, swapped for "backward".

    Returns:
        Examples.
    """

    def translations(direction, number):
        path = folder / f"{direction}-{number}" / "translations.json"
        if not distribution.of_first_process(path.exists()):
            print(f"Training teacher {direction}-{number}, which then translates its own data.")
            texts = pairs.source if direction == "forward" else pairs.target
            teacher = train_teacher(direction, number, path.parent)
            with distribution.alone(teacher.model):
                translated = translate_with_progress(teacher, texts)
            if distribution.is_first_process():
                write_text(path, json.dumps(translated, ensure_ascii=False))
            distribution.wait_for_all()
        return json.loads(path.read_text("utf-8"))

    return add_translations(pairs, num_teachers, translations)


def add_translations(
    pairs: Examples, num_teachers: int, translations: Callable[[str, int], list[str]]
) -> Examples:
    """The pairs, followed by those with a teacher's translation on one side, each once.

    Args:
        pairs: Examples.
        num_teachers: int, number of teachers per direction.
        translations: function of "forward" or "backward" and a number from 1: list of str, that
            teacher's translations of the sources, or of the targets, in their order.

    Returns:
        Examples.
    """
    made = {}  # a dict keeps the order, a set would not
    for number in range(1, num_teachers + 1):
        made |= dict.fromkeys(zip(pairs.source, translations("forward", number), strict=True))
        made |= dict.fromkeys(zip(translations("backward", number), pairs.target, strict=True))
    known = set(zip(*pairs, strict=True))
    new = [pair for pair in made if all(pair) and pair not in known]
    print(f"{len(pairs.source)} pairs and {len(new)} new ones with translations of teachers.")
    return Examples(
        [*pairs.source, *(source for source, _ in new)],
        [*pairs.target, *(target for _, target in new)],
    )


def translate_with_progress(translator: Any, texts: list[str]) -> list[str]:
    """`translator.translate(texts)` with a progress bar."""
    bar = keras.utils.Progbar(len(texts), unit_name="sentence")
    translations = []
    for start in range(0, len(texts), CHUNK):
        translations += translator.translate(texts[start : start + CHUNK])
        bar.update(len(translations))
    return translations
