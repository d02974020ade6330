"""The records of a corpus: texts with their translation, tags or label, in splits."""

import collections
import itertools
import logging
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..checks import check_rates, unexpected
from ..tokenizers.normal_forms import normalized

Record = TypeVar("Record", bound=tuple)
RIGHT_FILE = "Check that this is the right file."
FEWEST_DISTINCT = 10  # texts that can be split without losing kinds of them


class Examples(NamedTuple):
    """Pairs of texts; item n of `target` translates item n of `source`.

    Args:
        source: List of str.
        target: List of str, as many.
    """

    source: list[str]
    target: list[str]


class TaggedSentences(NamedTuple):
    """Sentences as lists of words, with a tag for each word.

    Args:
        words: List of lists of str; item n contains the words of sentence n.
        tags: List of lists of str, each as long as its sentence.
    """

    words: list[list[str]]
    tags: list[list[str]]


class LabeledTexts(NamedTuple):
    """Texts with a class each; item n of `labels` is the class of text n.

    Args:
        texts: List of str.
        labels: List of str, as many.
    """

    texts: list[str]
    labels: list[str]


class Splits(NamedTuple):
    """Training, validation and test data.

    Args:
        train: Examples, TaggedSentences, LabeledTexts, or for plain text a list of str.
        valid: The same, or None.
        test: The same, or None.
    """

    train: Examples | TaggedSentences | LabeledTexts | list[str]
    valid: Examples | TaggedSentences | LabeledTexts | list[str] | None
    test: Examples | TaggedSentences | LabeledTexts | list[str] | None


def collect(record: Callable[[list, list], Record], rows: Iterable[tuple]) -> Record:
    """A record of two lists from pairs, e.g. `Examples` from (source, target)."""
    rows = list(rows)
    return record([first for first, _ in rows], [second for _, second in rows])


def collect_complete(
    record: Callable[[list, list], Record],
    rows: Iterable[tuple[str, ...]],
    name: str,
    drop: bool = True,
) -> Record:
    """A record of two lists without the pairs in which a text is blank; their number is logged.

    Args:
        record: type, `Examples` or `LabeledTexts`.
        rows: pairs of str.
        name: str, where they come from, for the log and the error.
        drop: bool; False: blank ones are kept and logged, as in test data, whose lines count.

    Raises:
        ValueError: No pair is complete.
    """
    rows = list(rows)
    complete = [row for row in rows if all(row)]
    blank = "source or target" if record is Examples else "text"
    if not complete:
        raise ValueError(
            f"{name}: expected at least one complete example, received {len(rows)} whose {blank} "
            "is blank. Check that this is the right file and column."
        )
    if len(complete) < len(rows):
        what, number = "dropped" if drop else "kept, and scored,", len(rows) - len(complete)
        logging.getLogger(__name__).warning(
            f"{name}: {what} {number} of {len(rows)} examples whose {blank} is blank."
        )
    return collect(record, complete if drop else rows)


def collect_texts(texts: Iterable[str], name: Any, kind: str = "texts") -> list[str]:
    """The texts without the blank ones, also of invisible characters; their number is logged.

    Args:
        texts: str.
        name: str or PathLike, where they come from, for the log and the error.
        kind: str, what they are there: "texts" or "lines".

    Raises:
        ValueError: All are blank.
    """
    texts = list(texts)
    found = [text for text in texts if normalized(text).strip()]
    if not found:
        raise unexpected(name, "one text per line", f"{len(texts)} blank {kind}", RIGHT_FILE)
    if len(found) < len(texts):
        dropped = f"dropped {len(texts) - len(found)} of {len(texts)} {kind}, blank"
        logging.getLogger(__name__).warning(f"{name}: {dropped}.")
    return found


def concatenate(parts: Sequence[Any]) -> Any:
    """All examples of several lists, or of several NamedTuples of lists, in order."""
    columns = zip(*map(_columns, parts), strict=True)
    return _like(parts[0], [list(itertools.chain.from_iterable(each)) for each in columns])


def mix(examples: Any, others: Any, share: float, seed: int = 0) -> Any:
    """Adds a sample of other examples, such as those a model was trained on before.

    Args:
        examples: list, or NamedTuple of lists of one length.
        others: the same; they are drawn without replacement.
        share: float in [0, 1), the fraction of the result that `others` provide, or less if they
            are too few.
        seed: int from 0. The same seed and examples give the same sample.

    Returns:
        The examples, then the sample; of the type of `examples`.

    Raises:
        ValueError: `share` is out of range.
    """
    check_rates(share=share)
    columns, more = _columns(examples), _columns(others)
    number = min(round(len(columns[0]) * share / (1 - share)), len(more[0]))
    chosen = np.random.default_rng(seed).choice(len(more[0]), number, replace=False)
    mixed = [
        [*column, *(other[n] for n in chosen)] for column, other in zip(columns, more, strict=True)
    ]
    return _like(examples, mixed)


def train_valid_split(
    examples: Any, what: str = "examples", option: str = "validation data"
) -> tuple[Any, Any]:
    """Splits off validation data: 2 % of the distinct texts, or fewer: about 1,000.

    All examples of a text are on the same side (see `text_key`); of pairs the source is that text.
    Where no text repeats, or fewer than ten are distinct, every 50th example is for validation.

    Args:
        examples: list, or NamedTuple of lists of one length.
        what: str, what the examples are, for the log and the error.
        option: str, what else would provide validation data, for the error.

    Returns:
        Training examples, validation examples; of the type of `examples`.

    Raises:
        ValueError: There are fewer than two examples.
    """
    columns = _columns(examples)
    number = len(columns[0])
    if number < 2:
        raise ValueError(
            f"Expected at least two training {what}, one of them for validation; received "
            f"{number}. Provide more, or {option}."
        )
    texts = [text_key(text) for text in columns[0]]
    if len(set(texts)) < FEWEST_DISTINCT:  # a side without any of their labels, say, helps nobody
        texts = list(range(number))
    counts = collections.Counter(texts)
    keys = list(counts)
    step = max(50, len(keys) // 1000)
    most = max(1, number // 50)  # examples of one text: a frequent one is trained on
    chosen = set()
    for start in range(0, len(keys), step):
        block = keys[start : start + step]
        rare = (key for key in block if counts[key] <= most)
        chosen.add(next(rare, min(block, key=counts.__getitem__)))
    is_valid = [text in chosen for text in texts]
    if len(keys) < number:
        logging.getLogger(__name__).warning(
            f"Of {number} {what}, {len(keys)} are distinct: {len(chosen)} of them, {sum(is_valid)} "
            f"{what}, are validation data, of which the training data has none."
        )

    def part(valid):
        kept = [[x for x, v in zip(c, is_valid, strict=True) if v == valid] for c in columns]
        return _like(examples, kept)

    return part(False), part(True)


def num_shared(examples: Any, keys: Set[Any]) -> int:
    """The number of examples whose text is also among others.

    Args:
        examples: list, or NamedTuple of lists, of which the first one counts.
        keys: set, `text_keys` of the others.
    """
    return sum(text_key(text) in keys for text in _columns(examples)[0])


def text_keys(examples: Any) -> set[Any]:
    """The keys of the texts of a list, or of the first list of a NamedTuple; see `text_key`."""
    return set(map(text_key, _columns(examples)[0]))


def text_key(item: Any) -> Any:
    """A key that texts share if only case, blanks and Unicode form differ.

    Args:
        item: str, or a list of words, whose key is a tuple; others are their own key.
    """
    if isinstance(item, (list, tuple)):
        return tuple(map(text_key, item))
    if not isinstance(item, str):
        return item
    item = normalized(item, "NFKC").replace("\u200b", "").replace("\ufeff", "")
    return " ".join(item.split()).casefold()


def _columns(examples):
    return examples if isinstance(examples, tuple) else (examples,)


def _like(examples, columns):
    """The columns as a record of the same type, or as the one list."""
    return type(examples)(*columns) if isinstance(examples, tuple) else columns[0]
