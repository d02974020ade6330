"""Training data plus the translations that other models make of it, or of other text.

A teacher of data diversification learns from the pairs and then translates the very sentences it
has learned from: one more translation of each, plainer than a human one. Teachers of the backward
direction add one more source per target. No data but the pairs themselves is used. Distillation
adds the translations of a trained model, or of an ensemble; back-translation adds text of the
target language, with sources that a model of the backward direction writes.

Source: Nguyen et al. 2020, "Data Diversification", section 3; Kim and Rush 2016, section 3.2
    (sequence-level distillation); Sennrich et al. 2016, section 3.2 (back-translation).
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
        def teacher():
            print(f"Training teacher {direction}-{number}, which then translates its own data.")
            return train_teacher(direction, number, path.parent)

        path = folder / f"{direction}-{number}" / "translations.json"
        texts = pairs.source if direction == "forward" else pairs.target
        return saved_translations(path, texts, teacher)

    return add_translations(pairs, num_teachers, translations)


def saved_translations(
    path: pathlib.Path, texts: list[str], find_translator: Callable[[], Any]
) -> list[str]:
    """The translations in a file, which is written first if it is missing.

    Args:
        path: pathlib.Path of the file, JSON.
        texts: list of str to translate.
        find_translator: function that returns the `Translator`, called if the file is missing.

    Returns:
        list of str.
    """
    if not distribution.of_first_process(path.exists()):
        translator = find_translator()
        with distribution.alone(translator.model):
            translated = translate_with_progress(translator, texts)
        if distribution.is_first_process():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps(translated, ensure_ascii=False))
        distribution.wait_for_all()
    return json.loads(path.read_text("utf-8"))


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
    sources, targets = [], []
    for number in range(1, num_teachers + 1):
        targets += [*translations("forward", number), *pairs.target]
        sources += [*pairs.source, *translations("backward", number)]
    return add_pairs(pairs, Examples(sources, targets))


def add_pairs(pairs: Examples, others: Examples) -> Examples:
    """The pairs, followed by the complete ones of others that are not among them, each once.

    Args:
        pairs, others: Examples.

    Returns:
        Examples.
    """
    known = set(zip(*pairs, strict=True))
    made = dict.fromkeys(zip(*others, strict=True))  # a dict keeps the order, a set would not
    new = [pair for pair in made if all(pair) and pair not in known]
    print(f"{len(pairs.source)} pairs and {len(new)} new ones with translations of models.")
    return Examples(
        [*pairs.source, *(source for source, _ in new)],
        [*pairs.target, *(target for _, target in new)],
    )


def translate_with_progress(translator: Any, texts: list[str]) -> list[str]:
    """`translator.translate(texts)` with a progress bar."""
    if len(texts) > CHUNK:
        translator.expect_many()
    bar = keras.utils.Progbar(len(texts), unit_name="sentence")
    translations = []
    for start in range(0, len(texts), CHUNK):
        translations += translator.translate(texts[start : start + CHUNK])
        bar.update(len(translations))
    return translations
