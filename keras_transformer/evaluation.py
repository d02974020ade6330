"""How good predictions are: of texts, of tags; how sure the number is, and the model of itself.

`predictions` and `references` are lists of text; item n of one belongs to item n of the other.
"""

import math
from typing import NamedTuple

import numpy as np

from .arguments import check, check_at_least


class Score(NamedTuple):
    """A score and the settings that produced it; one without the other cannot be compared.

    Args:
        value: Float from 0 to 100, higher is better.
        signature: str, sacreBLEU's: the metric, its settings and the version of the package.
    """

    value: float
    signature: str

    def __str__(self):
        return f"{self.value:.2f} ({self.signature})"


def exact_match(predictions, references):
    """Share of the predictions that equal their reference, character for character.

    Args:
        predictions: List of str, what the model wrote.
        references: List of str, what it should have written; as many.

    Returns:
        Float from 0 to 1.

    Raises:
        ValueError: If a list is empty, holds anything but str, or is longer than the other.
    """
    _check_pairs(predictions, references)
    num_equal = sum(p == r for p, r in zip(predictions, references, strict=True))
    return num_equal / len(references)


def bleu(predictions, references, tokenize="13a", lowercase=False):
    """Corpus BLEU: the n-grams, n = 1 to 4, that a prediction shares with its reference.

    Computed by sacreBLEU on plain, detokenized text, so that the number can be compared with
    those of other papers that state the same signature.

    Args:
        predictions: List of str, what the model wrote.
        references: List of str, one translation a prediction.
        tokenize: str, how sacreBLEU splits text into words: "13a" (European languages, the
            usual one), "zh" (Chinese), "intl", "char", "none" (split on spaces), ...
        lowercase: bool, True to ignore upper and lower case.

    Returns:
        `Score` with a value from 0 to 100.

    Raises:
        ValueError: If the lists do not pair up, or sacreBLEU has no tokenizer of that name.
        RuntimeError: If that tokenizer needs a package or a download that is not there.

    Source:
        Papineni et al. (2002), "BLEU: a Method for Automatic Evaluation of Machine
        Translation"; Post (2018), "A Call for Clarity in Reporting BLEU Scores".
    """
    from sacrebleu.metrics import BLEU

    _check_pairs(predictions, references)
    if tokenize not in BLEU.TOKENIZERS:
        known = ", ".join(sorted(BLEU.TOKENIZERS))
        raise ValueError(
            f"tokenize must be one of sacreBLEU's tokenizers ({known}); "
            f"received tokenize={tokenize!r}."
        )
    try:
        metric = BLEU(tokenize=tokenize, lowercase=lowercase)
    except (ImportError, OSError, RuntimeError) as error:
        raise RuntimeError(
            f"sacreBLEU's tokenizer {tokenize!r} needs a package or a download that is not "
            f"there ({' '.join(str(error).split())}); install it or choose another tokenizer."
        ) from error
    return _score(metric, "BLEU", predictions, references)


def chrf(predictions, references, lowercase=False):
    """Corpus chrF: F-score of the character n-grams, n = 1 to 6, recall counted twice.

    It needs no tokenizer, which makes it the safer number for Chinese and for languages that
    build long words.

    Args:
        predictions: List of str, what the model wrote.
        references: List of str, one translation a prediction.
        lowercase: bool, True to ignore upper and lower case.

    Returns:
        `Score` with a value from 0 to 100.

    Raises:
        ValueError: If a list is empty, holds anything but str, or is longer than the other.

    Source:
        Popović (2015), "chrF: character n-gram F-score for automatic MT evaluation".
    """
    from sacrebleu.metrics import CHRF

    _check_pairs(predictions, references)
    return _score(CHRF(lowercase=lowercase), "chrF2", predictions, references)


def sentence_chrf(predictions, references, lowercase=False):
    """chrF of each sentence alone: to rank them, not to be averaged.

    Args: as `chrf`.

    Returns:
        List of float from 0 to 100.

    Raises: as `chrf`.
    """
    from sacrebleu.metrics import CHRF

    _check_pairs(predictions, references)
    metric = CHRF(lowercase=lowercase)
    pairs = zip(predictions, references, strict=True)
    return [metric.sentence_score(said, [reference]).score for said, reference in pairs]


# Tags


class TagScore(NamedTuple):
    """How well one tag is found.

    Args:
        precision: Float, share of the words given this tag that have it; NaN if none was.
        recall: Float, share of the words with this tag that were given it; NaN if none has it.
        f1: Float, harmonic mean of both: 2 hits / (given + count).
        count: int, the words that have it.
    """

    precision: float
    recall: float
    f1: float
    count: int


class TaggingScores(NamedTuple):
    """What `tagging_scores` counts.

    Args:
        accuracy: Float from 0 to 1, over all words.
        unseen_accuracy: Float, over the words not known; NaN if there are none.
        num_words: int.
        num_unseen: int.
        tags: Dict from each tag, in alphabetical order, to its `TagScore`.
        confusion: int array (expected, predicted), words counted, in the order of `tags`.
    """

    accuracy: float
    unseen_accuracy: float
    num_words: int
    num_unseen: int
    tags: dict[str, TagScore]
    confusion: np.ndarray


def tagging_scores(predicted, expected, words, known):
    """Accuracy over all words and over unseen ones, each tag's F1, and what is taken for what.

    Args:
        predicted: List of lists of str, the tags given, one list a sentence.
        expected: List of lists of str, the tags that are right.
        words: List of lists of str, the sentences.
        known: Set of str, the words that the model was trained on; the others are unseen.

    Returns:
        `TaggingScores`.

    Raises:
        ValueError: If there is no word, or a list is longer than its partners.
    """
    if not len(predicted) == len(expected) == len(words):
        raise ValueError(
            "predicted, expected and words must hold the same sentences; "
            f"received {len(predicted)}, {len(expected)} and {len(words)}."
        )
    for number, sentence in enumerate(zip(predicted, expected, words, strict=True)):
        if len(set(map(len, sentence))) > 1:
            sizes = " and ".join(map(str, map(len, sentence)))
            raise ValueError(
                "predicted, expected and words must hold an item for each word; "
                f"received {sizes} of them in sentence {number}: {' '.join(sentence[2])!r:.60}."
            )
    given, right, words = (
        [item for sentence in side for item in sentence] for side in (predicted, expected, words)
    )
    if not words:
        raise ValueError("words must hold at least one word; received none.")
    labels = sorted({*given, *right})
    index = {label: number for number, label in enumerate(labels)}
    confusion = np.zeros((len(labels), len(labels)), dtype="int64")
    np.add.at(confusion, ([index[tag] for tag in right], [index[tag] for tag in given]), 1)
    unseen = [tag == true for tag, true, word in zip(given, right, words) if word not in known]
    hits, num_given, counts = np.diag(confusion), confusion.sum(axis=0), confusion.sum(axis=1)
    tags = {
        label: TagScore(
            _share(hit, of), _share(hit, count), _share(2 * hit, of + count), int(count)
        )
        for label, hit, of, count in zip(labels, hits, num_given, counts, strict=True)
    }
    return TaggingScores(
        accuracy=_share(hits.sum(), len(words)),
        unseen_accuracy=_share(sum(unseen), len(unseen)),
        num_words=len(words),
        num_unseen=len(unseen),
        tags=tags,
        confusion=confusion,
    )


def _share(part, whole):
    return float(part / whole) if whole else math.nan


# How sure


class Interval(NamedTuple):
    """The shares, from `low` to `high`, that what was counted agrees with."""

    low: float
    high: float


def accuracy_interval(hits, total):
    """The true accuracies, of 95 % confidence, behind `hits` right answers out of `total`.

    (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n), which stays within 0 to 1 and has a width
    even where all answers are right.

    Args:
        hits: int, right answers.
        total: int from 1, all answers.

    Returns:
        `Interval` of floats from 0 to 1.

    Raises:
        ValueError: If there are no answers, or more hits than answers.

    Source: Wilson (1927), "Probable Inference, the Law of Succession, and Statistical Inference".
    """
    check_at_least(1, total=total)
    check_at_least(0, hits=hits)
    check(hits <= total, "hits must be at most total", hits=hits, total=total)
    z, share = 1.959963984540054, hits / total  # 97.5 % of a normal distribution lie below z
    centre = share + z**2 / (2 * total)
    margin = z * math.sqrt(share * (1 - share) / total + z**2 / (4 * total**2))
    low, high = ((centre + sign * margin) / (1 + z**2 / total) for sign in (-1, 1))
    return Interval(max(0.0, low), min(1.0, high))


class Bin(NamedTuple):
    """The predictions whose probability lies above `low` and at most at `high`.

    Args:
        low, high: Floats from 0 to 1.
        confidence: Float, their mean probability; NaN if there are none.
        accuracy: Float, the share of them that is right; NaN if there are none.
        count: int.
    """

    low: float
    high: float
    confidence: float
    accuracy: float
    count: int


class Calibration(NamedTuple):
    """Whether a model is right as often as it says.

    Args:
        error: Float from 0 to 1, the mean of |accuracy - confidence| over all predictions.
        table: List of `Bin`.
    """

    error: float
    table: list[Bin]


def calibration(probabilities, hits, bins=10):
    """How often a model is right where it claims a probability: a table, and the mean distance.

    ECE = Σ_m |B_m| / n · |accuracy(B_m) - confidence(B_m)| over bins of equal width.

    Args:
        probabilities: Floats from 0 to 1, what the model gave its own prediction.
        hits: As many bools, whether the prediction is right.
        bins: int from 1.

    Returns:
        `Calibration`.

    Raises:
        ValueError: If the lists are empty or do not pair up, or a probability is none.

    Source: Guo et al. (2017), "On Calibration of Modern Neural Networks", equations 2 and 3.
    """
    check_at_least(1, bins=bins)
    probabilities, hits = np.asarray(probabilities, "float64"), np.asarray(hits, "float64")
    if probabilities.ndim != 1 or probabilities.shape != hits.shape or not hits.size:
        raise ValueError(
            "probabilities and hits must be lists, equally long and not empty; "
            f"received shapes {probabilities.shape} and {hits.shape}."
        )
    if not (probabilities.min() >= 0 and probabilities.max() <= 1 + 1e-6):  # NaN fails it too
        raise ValueError(
            "probabilities must lie in 0 to 1, as after a softmax; received values from "
            f"{probabilities.min():.3g} to {probabilities.max():.3g}."
        )
    check(np.isin(hits, (0, 1)).all(), "hits must be bool", hits=hits[:5].tolist())
    edges = np.arange(bins + 1) / bins
    places = np.digitize(probabilities, edges[1:-1], right=True)
    table, error = [], 0.0
    for place, (low, high) in enumerate(zip(edges[:-1], edges[1:], strict=True)):
        mine = places == place
        count = int(mine.sum())
        confidence, accuracy = (
            _share(probabilities[mine].sum(), count),
            _share(hits[mine].sum(), count),
        )
        table.append(Bin(float(low), float(high), confidence, accuracy, count))
        error += count / hits.size * abs(accuracy - confidence) if count else 0.0
    return Calibration(float(error), table)


def _score(metric, name, predictions, references):
    value = metric.corpus_score(list(predictions), [list(references)]).score
    return Score(float(value), f"{name}|{metric.get_signature()}")


def _check_pairs(predictions, references):
    for name, texts in (("predictions", predictions), ("references", references)):
        # A lone str is a sequence of str too: it would be scored letter by letter.
        if isinstance(texts, str):
            raise ValueError(f"{name} must be a list of str; received one str: put it in a list.")
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise ValueError(
                    f"{name} must be a list of str; received {type(text).__name__} "
                    f"at index {index}."
                )
    if len(predictions) != len(references) or not len(predictions):
        raise ValueError(
            "predictions and references must be equally long and not empty; "
            f"received {len(predictions)} predictions and {len(references)} references."
        )
