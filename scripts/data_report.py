"""Reports of the training scripts on their data: unknown text, leaks between splits, new labels."""

import collections
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from keras_transformer import data
from keras_transformer.checks import check


class DataReport:
    """Properties of the data that raise or lower a score on validation or test data.

    It prints which share of each split the vocabulary lacks, how many validation and test texts are
    also in the training data, and which of their labels are not. Prepared corpora hold ids and are
    not searched for these texts.

    Args:
        splits: `Splits`; the training data is a list of corpora if it was prepared.
        unknown: function from the data of one split to shares by what they are of: {"words": 0.1}.
        labels: list of str, those of the model; None: the data has none.

    Attributes:
        scores: dict, the same for scores.json; "also_in_training" is None for prepared corpora.

    Raises:
        ValueError: The model has no label of the validation or of the test data.
    """

    def __init__(
        self,
        splits: data.Splits,
        unknown: Callable[[Any], dict[str, float]],
        labels: Sequence[str] | None = None,
    ):
        evaluated = {"validation": splits.valid, "test": splits.test}
        evaluated = {name: each for name, each in evaluated.items() if each}
        shared, named = None, evaluated
        if not isinstance(splits.train[0], data.Corpus):
            named = {"training": splits.train} | evaluated
            known = data.text_keys(splits.train)
            shared = {name: data.num_shared(each, known) for name, each in evaluated.items()}
            sizes = _size(splits.train), _size(splits.valid)
            if sizes[0] < sizes[1]:
                print(
                    f"{sizes[0]} training texts, but {sizes[1]} for validation: are they swapped?"
                )
        shares = {name: unknown(each) for name, each in named.items()}
        for what in shares["validation"]:
            listed = (f"{of[what]:.2%} of the {name} data" for name, of in shares.items())
            print(f"Unknown {what}: {', '.join(listed)}.")
        self.scores: dict[str, Any] = {"unknown": shares, "also_in_training": shared}
        if labels is not None:
            counts = {name: _label_counts(each) for name, each in evaluated.items()}
            self.scores["new_labels"] = {n: _new(n, each, labels) for n, each in counts.items()}
            _print_similar({*labels, *itertools.chain.from_iterable(counts.values())})
        for name in evaluated:
            if note := self.note(name):
                print(f"The {name} data{note}.")

    def note(self, split: str) -> str:
        """A remark for the score of a split, in parentheses; empty if there is nothing to say."""
        shares = self.scores["unknown"][split]
        parts = [
            f"{share:.2%} of its {what} are unknown" for what, share in shares.items() if share
        ]
        if number := (self.scores["also_in_training"] or {}).get(split):
            parts.append(f"{number} of its texts are also in the training data")
        if new := self.scores.get("new_labels", {}).get(split):
            listed = ", ".join(f"{label} ({count})" for label, count in new.items())
            parts.append(f"the training data lacks these of its labels: {listed:.200}")
        return f" ({'; '.join(parts)})" if parts else ""


def _size(examples):
    return len(examples[0] if isinstance(examples, tuple) else examples)


def _label_counts(examples):
    labels = examples[1]
    nested = bool(labels) and isinstance(labels[0], list)
    return collections.Counter(itertools.chain.from_iterable(labels) if nested else labels)


def _new(split, counts, labels):
    """The labels that the model lacks, with their numbers."""
    new = {label: count for label, count in counts.items() if label not in labels}
    check(
        len(new) < len(counts),
        f"The {split} data must have labels that the training data has",
        labels=_listed(counts),
        known=_listed(labels),
    )
    return new


def _listed(labels):
    listed = ", ".join(labels)
    return listed if len(listed) <= 100 else f"{len(labels)} of them, {listed:.80}..."


def _print_similar(labels):
    groups = collections.defaultdict(list)
    for label in sorted(labels):
        groups[data.text_key(label)].append(label)
    for group in groups.values():
        if len(group) > 1:
            names = ", ".join(map(repr, group))
            print(f"Labels that differ in case, blanks or Unicode form alone: {names}.")
