"""Paragraphs: their sentences are translated in one call, and what must stay comes back whole."""

import collections
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

from ..checks import TextError
from ..data.placeholders import MASKS, find_placeholders, mask, split_placeholders, unmask
from ..data.sentences import cut_at_clauses, join_sentences, split_sentences


def translate_paragraphs(
    texts: Sequence[str],
    translate: Callable[[list[str]], list],
    empty: list,
    *,
    split: Sequence[bool],
    fits: Callable[[str], bool],
    pattern: re.Pattern | None = None,
    masked: bool = False,
) -> list:
    """Translates texts sentence by sentence, with their placeholders verbatim.

    A sentence that loses or repeats a placeholder is translated once more, in the pieces around its
    placeholders; how many were is logged as a warning.

    Args:
        texts: list of str.
        translate: function of sentences to a list of n `Hypothesis` each.
        empty: list of n `Hypothesis`, what it returns for an empty text.
        split: list of bool, whether to split each text.
        fits: function of a sentence, whether the model can read it; otherwise it is cut.
        pattern: of the placeholders; None: everything is translated.
        masked: bool, whether the model knows `MASKS`, which then stand for the placeholders.

    Returns:
        list of lists of n `Hypothesis`, per text. The n-th translation of a text joins the n-th of
        its sentences, its score is the sum of theirs, and `finished` is False if it is for one of
        them, or if one was cut.
    """
    layouts, cut = [], set()
    for number, text in enumerate(texts):
        parts = split_sentences(text, pattern) if split[number] else ["", text, ""]
        if split[number]:
            for at in reversed(range(1, len(parts), 2)):
                pieces = cut_at_clauses(parts[at], fits)
                parts[at : at + 1] = pieces
                if len(pieces) > 1:
                    cut.add(number)
        layouts.append(parts)
    sentences = [sentence for parts in layouts for sentence in parts[1::2]]
    try:
        if pattern is None:
            answers = translate(sentences)
        else:
            answers = _with_placeholders(sentences, translate, empty, pattern, masked)
    except TextError as error:
        owners = [number for number, parts in enumerate(layouts) for _ in parts[1::2]]
        owner = owners[error.number]
        raise TextError(owner, error.problem, error.name, error.side) from None
    results = _join(layouts, answers, empty)
    for number in cut:
        results[number] = [each._replace(finished=False) for each in results[number]]
    return results


def _with_placeholders(sentences, translate, empty, pattern, masked):
    """The translations of sentences, in all of which the placeholders are verbatim."""
    layouts = [split_placeholders(sentence, pattern) for sentence in sentences]
    # Without words around them nothing is translated.
    asked = [
        (mask(sentence, pattern) if masked else sentence) if parts[1:] else ""
        for sentence, parts in zip(sentences, layouts, strict=True)
    ]
    answers, damaged = translate(asked), {}
    for number, sentence in enumerate(sentences):
        placeholders = find_placeholders(sentence, pattern)
        known = placeholders if masked else []
        answers[number] = [each._replace(text=unmask(each.text, known)) for each in answers[number]]
        lost = [not _keeps(each.text, placeholders, pattern) for each in answers[number]]
        if placeholders and any(lost):
            damaged[number] = lost
    layouts = [layouts[number] for number in damaged]
    pieces = [piece for parts in layouts for piece in parts[1::2]]
    again = _join(layouts, translate(pieces) if pieces else [], empty)
    for (number, lost), others in zip(damaged.items(), again, strict=True):
        rows = zip(answers[number], others, lost, strict=True)
        answers[number] = [other if is_lost else each for each, other, is_lost in rows]
    if count := sum(len(parts) > 1 for parts in layouts):
        logging.getLogger(__name__).warning(
            "Of %d sentences %d were translated in pieces, for their placeholders to be kept.",
            len(sentences),
            count,
        )
    return answers


def _keeps(translation, placeholders, pattern):
    """Whether a translation has each placeholder as often as its source, and no other mask."""
    found = collections.Counter(find_placeholders(translation, pattern))
    expected = collections.Counter(placeholders)
    as_often = all(found[each] == number for each, number in expected.items())
    return as_often and not set(MASKS) & (found.keys() - expected.keys())


def _join(layouts, answers, empty):
    """The n-best translations of each layout, from those of all their sentences in order."""
    answers = iter(answers)
    results = []
    for parts in layouts:
        found = [next(answers) for _ in parts[1::2]]
        results.append([_joined(parts, of_rank) for of_rank in zip(empty, *found, strict=True)])
    return results


def _joined(parts, hypotheses: Any):
    """One hypothesis from an empty one and those of all sentences."""
    empty, *found = hypotheses
    scores = [each.score for each in found]
    return empty._replace(
        text=join_sentences(parts, [each.text for each in found]),
        score=None if None in scores else sum(scores, 0.0),
        finished=all(each.finished for each in found),
    )
