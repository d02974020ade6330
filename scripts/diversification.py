"""Data diversification: a model learns more from its pairs once other models have translated them.

A teacher learns from the pairs, and then translates the very sentences it has learnt from. What it
says is one more translation of each, and a plainer one than a person's. Teachers that go backward
give one more source for each target. Nothing is learnt from but the pairs.

Source: Nguyen et al. 2020, "Data Diversification", section 3.
"""

import json

import keras

from keras_transformer import corpora
from keras_transformer.writing import write_text


def diversified(pairs, number, translations):
    """The pairs, and after them those that teachers make of them, each once.

    Args:
        pairs: Examples.
        number: int, of teachers each way.
        translations: function of "forward" or "backward" and a number from 1: list of str, what
            that teacher makes of the sources, or of the targets, in their order.

    Returns:
        Examples.
    """
    made = {}  # keeps the order, as a set would not
    for n in range(1, number + 1):
        made |= dict.fromkeys(zip(pairs.source, translations("forward", n)))
        made |= dict.fromkeys(zip(translations("backward", n), pairs.target))
    known = set(zip(*pairs))
    new = [pair for pair in made if all(pair) and pair not in known]
    print(f"{len(pairs.source)} pairs, and {len(new)} more that teachers made of them.")
    sides = zip(*new) if new else ((), ())
    return corpora.Examples(*([*given, *more] for given, more in zip(pairs, sides)))


def write_translations(teacher, texts, path):
    """Writes what a Translator makes of many texts, a JSON list; shows how far it is."""
    said = []
    bar = keras.utils.Progbar(len(texts), unit_name="sentence")
    while len(said) < len(texts):
        said += teacher.translate(texts[len(said) : len(said) + 2048])
        bar.update(len(said))
    write_text(path, json.dumps(said, ensure_ascii=False))


def read_translations(path):
    """The list that `write_translations` left."""
    return json.loads(path.read_text("utf-8"))
