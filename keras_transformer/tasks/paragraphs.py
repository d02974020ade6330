"""Paragraphs: their sentences are translated in one call, and what must stay comes back whole.

It needs no Keras, since scripts/run_exported.py reads texts with it.
"""

import collections
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..checks import TextError
from ..data.placeholders import MASKS, Patterns, find_placeholders, mask, split_placeholders, unmask
from ..data.sentences import EDGES, cut_at_clauses, join_sentences, split_sentences


class Reading(NamedTuple):
    """How texts are read: in sentences, and with placeholders.

    Args:
        num_tokens: function of a list of str to the tokens of each, END included.
        longest: int, tokens that the model can read; a sentence of more is cut.
        when: str, one of `WHEN_TO_SPLIT`.
        trained_length: int, "auto" splits texts of more tokens; None: it splits none.
        pattern: of the placeholders; None: everything is translated.
        masked: bool, whether the model knows `MASKS`, which then stand for the placeholders.
    """

    num_tokens: Callable[[Sequence[str]], list[int]]
    longest: float
    when: str = "auto"
    trained_length: int | None = None
    pattern: Patterns | None = None
    masked: bool = False

    def layouts(self, texts: Sequence[str]) -> tuple[list[list[str]], set[int]]:
        """The sentences of texts.

        Args:
            texts: list of str.

        Returns:
            list of list of str, each in the form of `split_sentences`.
            set of int, the texts of which a sentence was cut.
        """
        split = [self.when == "always"] * len(texts)
        if self.when == "auto" and self.trained_length is not None:
            rows = zip(texts, self.num_tokens(texts), strict=True)
            split = [
                n > self.trained_length or bool(text.strip() and EDGES.search(text))
                for text, n in rows
            ]
        layouts, cut = [["", text, ""] for text in texts], set()
        for number in (number for number, each in enumerate(split) if each):
            whole = split_sentences(texts[number], self.pattern)
            parts = layouts[number] = whole[:1]
            for sentence, gap in zip(whole[1::2], whole[2::2], strict=True):
                parts += [*cut_at_clauses(sentence, self._fits, self.pattern), gap]
            if len(parts) > len(whole):
                cut.add(number)
        return layouts, cut

    def _fits(self, sentence):
        return self.num_tokens([sentence])[0] <= self.longest


def translate_paragraphs(
    texts: Sequence[str],
    translate: Callable[[list[str], list[tuple[int, ...]]], list],
    empty: list,
    reading: Reading,
) -> list:
    """Translates texts sentence by sentence, with their placeholders verbatim.

    A sentence that loses or repeats a placeholder is translated once more, in the pieces around its
    placeholders; how many were is logged as a warning.

    Args:
        texts: list of str.
        translate: function of sentences, and of the place of each, to a list of n `Hypothesis`
            each. The first sentence of text 3 has the place (3,), its others (3, 1), (3, 2), ...,
            and the pieces of one (3, 2, 1), (3, 2, 2), ...
        empty: list of n `Hypothesis`, what it returns for an empty text.
        reading: `Reading`.

    Returns:
        list of lists of n `Hypothesis`, per text. The n-th translation of a text joins the n-th of
        its sentences, its score is the sum of theirs, and `finished` is False if it is for one of
        them, or if one was cut.
    """
    layouts, cut = reading.layouts(texts)
    sentences = [sentence for parts in layouts for sentence in parts[1::2]]
    places = [
        (number, n) if n else (number,)
        for number, parts in enumerate(layouts)
        for n in range(len(parts) // 2)
    ]

    def answers_of(sentences, places):
        try:
            return translate(sentences, places)
        except TextError as error:
            number = places[error.number][0]
            raise TextError(number, error.problem, error.name, error.side) from None

    if reading.pattern is None:
        answers = answers_of(sentences, places)
    else:
        answers = _with_placeholders(sentences, places, answers_of, empty, reading)
    results = _join(layouts, answers, empty)
    for number in cut:
        results[number] = [each._replace(finished=False) for each in results[number]]
    return results


def _with_placeholders(sentences, places, translate, empty, reading):
    """The translations of sentences, in all of which the placeholders are verbatim."""
    pattern, masked = reading.pattern, reading.masked
    layouts = [split_placeholders(sentence, pattern) for sentence in sentences]
    # Without words around them nothing is translated.
    asked = [
        (mask(sentence, pattern) if masked else sentence) if parts[1:] else ""
        for sentence, parts in zip(sentences, layouts, strict=True)
    ]
    answers, damaged = translate(asked, places), {}
    for number, sentence in enumerate(sentences):
        placeholders = find_placeholders(sentence, pattern)
        known = placeholders if masked else []
        answers[number] = [each._replace(text=unmask(each.text, known)) for each in answers[number]]
        lost = [not _keeps(each.text, placeholders, pattern) for each in answers[number]]
        if sentence.strip() and not layouts[number][1:]:
            damaged[number] = [True] * len(lost)  # the sentence itself
        elif placeholders and any(lost):
            damaged[number] = lost
    layouts = [layouts[number] for number in damaged]
    pieces = [piece for parts in layouts for piece in parts[1::2]]
    of_pieces = [
        (*places[number], 0, n) if len(places[number]) == 1 else (*places[number], n)
        for number, parts in zip(damaged, layouts, strict=True)
        for n in range(1, len(parts) // 2 + 1)
    ]
    again = _join(layouts, translate(pieces, of_pieces) if pieces else [], empty)
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
        if parts[::2] == ["", ""]:  # a text that is one sentence
            results += found
            continue
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
