"""Evaluation: exact match, BLEU and chrF; scores of labels and tags; intervals and calibration.

Shares (exact match, accuracy, precision, recall, F1, calibration error) are from 0 to 1; BLEU and
chrF are from 0 to 100, as sacreBLEU reports them.
"""

import collections
import itertools
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from .checks import check, check_at_least
from .data.records import text_key
from .tokenizers.words import split_words


class Score(NamedTuple):
    """A score and the settings that produced it: scores compare only where the settings agree.

    Args:
        value: Float from 0 to 100, higher is better.
        signature: str, sacreBLEU's: the metric, its settings and the version of the package.
        length_ratio: Float, of BLEU alone: words of all predictions / those of the references;
            below 1, it has a brevity penalty.
    """

    value: float
    signature: str
    length_ratio: float | None = None

    def __str__(self):
        return f"{self.value:.2f} ({self.signature})"


def exact_match(predictions: Iterable[str], references: Iterable[str]) -> float:
    """Share of the predictions that equal their reference, character for character.

    Args:
        predictions: List or other iterable of str, the model's outputs.
        references: List of str, one expected output per prediction.

    Returns:
        Float from 0 to 1.

    Raises:
        ValueError: If a list is empty, holds anything but str, or is longer than the other.
    """
    pairs = zip(*_checked_pairs(predictions=predictions, references=references), strict=True)
    return float(np.mean([prediction == reference for prediction, reference in pairs]))


def bleu(
    predictions: Iterable[str],
    references: Iterable[str],
    tokenize: str = "13a",
    lowercase: bool = False,
) -> Score:
    """Corpus BLEU: precision of the word n-grams, n = 1 to 4, with a brevity penalty.

    Computed by sacreBLEU on plain, detokenized text, so that the score is comparable with those of
    papers that state the same signature.

    Args:
        predictions: List or other iterable of str, the model's outputs.
        references: List of str, one translation per prediction.
        tokenize: str, sacreBLEU's tokenizer: "13a" (European languages), "zh" (Chinese), "intl",
            "char", "none" (split on spaces), ...
        lowercase: bool, whether to ignore case.

    Returns:
        `Score` with a value from 0 to 100.

    Raises:
        ValueError: If the lists do not pair up, or sacreBLEU has no tokenizer of that name.
        RuntimeError: If the tokenizer needs a missing package or download.

    Source:
        Papineni et al. (2002), "BLEU: a Method for Automatic Evaluation of Machine
        Translation"; Post (2018), "A Call for Clarity in Reporting BLEU Scores".
    """
    return _score(_bleu_metric(tokenize, lowercase), predictions, references)


def check_bleu_tokenizer(name: str) -> None:
    """Raises before training what `bleu` would raise after it.

    Args:
        name: str, the `tokenize` of `bleu`.

    Raises:
        ValueError: If sacreBLEU has no tokenizer of that name.
        RuntimeError: If the tokenizer needs a missing package or download.
    """
    _bleu_metric(name)


def chrf(predictions: Iterable[str], references: Iterable[str], lowercase: bool = False) -> Score:
    """Corpus chrF: F-score of the character n-grams, n = 1 to 6, with recall weighted by beta = 2.

    It needs no tokenizer, which makes it the more robust metric for Chinese and for morphologically
    rich languages.

    Args:
        predictions: List or other iterable of str, the model's outputs.
        references: List of str, one translation per prediction.
        lowercase: bool, whether to ignore case.

    Returns:
        `Score` with a value from 0 to 100.

    Raises:
        ValueError: If a list is empty, holds anything but str, or is longer than the other.

    Source:
        Popović (2015), "chrF: character n-gram F-score for automatic MT evaluation".
    """
    from sacrebleu.metrics import CHRF

    return _score(CHRF(lowercase=lowercase), predictions, references)


def sentence_chrf(
    predictions: Iterable[str], references: Iterable[str], lowercase: bool = False
) -> list[float]:
    """chrF of each sentence, to rank sentences; the mean of these is not the corpus chrF.

    Args:
        predictions: List or other iterable of str, the model's outputs.
        references: List of str, one translation per prediction.
        lowercase: bool, whether to ignore case.

    Returns:
        List of float from 0 to 100.

    Raises:
        ValueError: If a list is empty, holds anything but str, or is longer than the other.
    """
    from sacrebleu.metrics import CHRF

    score = CHRF(lowercase=lowercase).sentence_score
    pairs = zip(*_checked_pairs(predictions=predictions, references=references), strict=True)
    return [score(prediction, [reference]).score for prediction, reference in pairs]


def copy_rate(predictions: Iterable[str], sources: Iterable[str]) -> float:
    """Share of the translations that equal their source but for case, blanks and Unicode form.

    Args:
        predictions: List or other iterable of str, the model's outputs; a blank one is not a copy.
        sources: List of str, one per translation.

    Returns:
        Float from 0 to 1.

    Raises:
        ValueError: If a list is empty, holds anything but str, or is longer than the other.
    """
    pairs = zip(*_checked_pairs(predictions=predictions, sources=sources), strict=True)
    return float(np.mean([text_key(p) == text_key(s) and bool(p.strip()) for p, s in pairs]))


def loop_rate(predictions: Iterable[str], sources: Iterable[str]) -> float:
    """Share of the translations that repeat themselves as a model in a loop does.

    In one of these, some 4-gram of words occurs at least twice more often than any 4-gram in its
    source; words are those of `split_words`, single characters in scripts without blanks.

    Args:
        predictions: List or other iterable of str, the model's outputs.
        sources: List of str, one per translation.

    Returns:
        Float from 0 to 1.

    Raises:
        ValueError: If a list is empty, holds anything but str, or is longer than the other.

    Source:
        Raunak et al. (2021), "The Curious Case of Hallucinations in Neural Machine Translation",
        with n = 4 and t = 2.
    """
    pairs = zip(*_checked_pairs(predictions=predictions, sources=sources), strict=True)
    return float(np.mean([_repetitions(p) - _repetitions(s) >= 2 for p, s in pairs]))


def _repetitions(text):
    """How often the most frequent 4-gram of words occurs."""
    words = split_words(text)
    ngrams = collections.Counter(zip(*(words[start:] for start in range(4)), strict=False))
    return max(ngrams.values(), default=1)


def _bleu_metric(tokenize, lowercase=False):
    from sacrebleu.metrics import BLEU

    known = ", ".join(sorted(BLEU.TOKENIZERS))
    rule = f"tokenize must be one of sacreBLEU's tokenizers ({known})"
    check(tokenize in BLEU.TOKENIZERS, rule, tokenize=tokenize)
    try:
        return BLEU(tokenize=tokenize, lowercase=lowercase)
    except (ImportError, OSError, RuntimeError) as error:
        raise RuntimeError(
            f"sacreBLEU's tokenizer {tokenize!r} needs a missing package or download "
            f"({' '.join(str(error).split())}); install it or choose another tokenizer."
        ) from error


def _score(metric, predictions, references):
    predictions, references = _checked_pairs(predictions=predictions, references=references)
    score = metric.corpus_score(predictions, [references])
    signature = f"{score.name}|{metric.get_signature()}"
    return Score(float(score.score), signature, getattr(score, "ratio", None))


def _checked_pairs(**sides):
    """Both as lists, iterators read once."""
    lists = {}
    for name, texts in sides.items():
        rule = f"{name} must be a list of str"
        # A lone str is a sequence of str too: it would be scored letter by letter.
        check(not isinstance(texts, str), f"{rule}, not one str", **{name: texts})
        check(isinstance(texts, Iterable), rule, **{name: texts})
        lists[name] = list(texts)
        for index, text in enumerate(lists[name]):
            check(isinstance(text, str), rule, **{f"{name}[{index}]": text})
    _check_lengths(**lists)
    return lists.values()


def _check_lengths(**lists):
    lengths = {f"len({name})": len(values) for name, values in lists.items()}
    rule = f"{', '.join(lists)} must be equally long and not empty"
    check(len(set(lengths.values())) == 1 and all(lengths.values()), rule, **lengths)


# Labels of texts, tags of words


class LabelScore(NamedTuple):
    """Precision and recall of one label.

    Args:
        precision: Float from 0 to 1, correct among the predicted; NaN if never predicted.
        recall: Float from 0 to 1, correct among the expected; NaN if never expected.
        f1: Float from 0 to 1, harmonic mean of both.
        count: int, texts or words whose expected label it is.
    """

    precision: float
    recall: float
    f1: float
    count: int  # type: ignore[assignment]  # tuple has a method of that name


class ClassificationScores(NamedTuple):
    """Result of `classification_scores`.

    Args:
        accuracy: Float from 0 to 1.
        macro_f1: Float from 0 to 1, mean F1 of the labels: a rare one counts as much as others.
        labels: Dict from each label, in alphabetical order, to its `LabelScore`.
        confusion: int array (expected, predicted), counts, in the order of `labels`.
    """

    accuracy: float
    macro_f1: float
    labels: dict[str, LabelScore]
    confusion: np.ndarray


def classification_scores(
    predicted: Iterable[str], expected: Iterable[str]
) -> ClassificationScores:
    """Accuracy, scores of each label, and the confusion matrix, computed by scikit-learn.

    Args:
        predicted: List or other iterable of str, the predicted labels.
        expected: List of str, the correct label for each.

    Returns:
        `ClassificationScores`.

    Raises:
        ValueError: If a list is empty, holds anything but str, or is longer than the other.
    """
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    predicted, expected = _checked_pairs(predicted=predicted, expected=expected)
    labels = sorted({*predicted, *expected})
    columns = precision_recall_fscore_support(
        expected, predicted, labels=labels, zero_division=np.nan
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    confusion = confusion_matrix(expected, predicted, labels=labels)
    return ClassificationScores(
        accuracy=float(confusion.trace() / len(expected)),
        macro_f1=float(columns[2].mean()),
        labels={
            label: LabelScore(precision, recall, f1, int(count))
            for label, (precision, recall, f1, count) in zip(labels, rows, strict=True)
        },
        confusion=confusion,
    )


class TaggingScores(NamedTuple):
    """Result of `tagging_scores`.

    Args:
        accuracy: Float from 0 to 1, over all words.
        unseen_accuracy: Float from 0 to 1, over the words not in `known`; NaN if there are no
            such words.
        num_words: int.
        num_unseen: int.
        tags: Dict from each tag, in alphabetical order, to its `LabelScore`.
        confusion: int array (expected, predicted), word counts, in the order of `tags`.
    """

    accuracy: float
    unseen_accuracy: float
    num_words: int
    num_unseen: int
    tags: dict[str, LabelScore]
    confusion: np.ndarray


def tagging_scores(
    predicted: Iterable[Iterable[str]],
    expected: Iterable[Iterable[str]],
    words: Iterable[Iterable[str]],
    known: Iterable[str],
) -> TaggingScores:
    """Accuracy over all and over unseen words, scores of each tag, and the confusion matrix.

    Args:
        predicted: List of lists of str, the predicted tags of each sentence.
        expected: List of lists of str, the correct tags of each sentence.
        words: List of lists of str, the words of each sentence.
        known: Set of str, the words of the training set; all others are unseen.

    Returns:
        `TaggingScores`.

    Raises:
        ValueError: If there are no words, or the lists do not pair up.
    """
    sides = [[list(sentence) for sentence in side] for side in (predicted, expected, words)]
    known = set(known)
    _check_sentences(*sides)
    predicted, expected, words = ([*itertools.chain.from_iterable(side)] for side in sides)
    scores = classification_scores(predicted, expected)
    hits = np.array([p == e for p, e in zip(predicted, expected, strict=True)])
    unseen = np.array([word not in known for word in words])
    return TaggingScores(
        accuracy=scores.accuracy,
        unseen_accuracy=float(hits[unseen].mean()) if unseen.any() else math.nan,
        num_words=len(words),
        num_unseen=int(unseen.sum()),
        tags=scores.labels,
        confusion=scores.confusion,
    )


def _check_sentences(predicted, expected, words):
    _check_lengths(predicted=predicted, expected=expected, words=words)
    for number, sentence in enumerate(zip(predicted, expected, words, strict=True)):
        lengths = [len(items) for items in sentence]
        rule = f"sentence {number} must have one predicted and one expected tag per word"
        text = " ".join(sentence[2])[:60]
        check(len(set(lengths)) == 1, rule, lengths=lengths, words=text)
    num_words = sum(map(len, words))
    check(num_words > 0, "words must hold at least one word", num_words=num_words)


# Intervals and calibration


class Interval(NamedTuple):
    """An interval from `low` to `high`."""

    low: float
    high: float


def accuracy_interval(hits: int, total: int) -> Interval:
    """Wilson's 95 % confidence interval of an accuracy.

    (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n) with p = hits / total, n = total and
    z = 1.96; it stays within 0 to 1 and has a width even where all answers are correct.

    Args:
        hits: int, number of correct answers.
        total: int of at least 1, number of answers.

    Returns:
        `Interval` of floats from 0 to 1.

    Raises:
        ValueError: If there are no answers, or more hits than answers.

    Source: Wilson (1927), "Probable Inference, the Law of Succession, and Statistical Inference".
    """
    from scipy.stats import binomtest

    check_at_least(1, total=total)
    check_at_least(0, hits=hits)
    check(hits <= total, "hits must be at most total", hits=hits, total=total)
    low, high = binomtest(hits, total).proportion_ci(confidence_level=0.95, method="wilson")
    return Interval(float(low), float(high))


class Bin(NamedTuple):
    """The predictions with a probability above `low` and of at most `high`.

    Args:
        low, high: Floats from 0 to 1.
        confidence: Float from 0 to 1, their mean probability; NaN if the bin is empty.
        accuracy: Float from 0 to 1, the share of correct ones; NaN if the bin is empty.
        count: int, number of predictions.
    """

    low: float
    high: float
    confidence: float
    accuracy: float
    count: int  # type: ignore[assignment]  # tuple has a method of that name


class Calibration(NamedTuple):
    """Result of `calibration`.

    Args:
        error: Float from 0 to 1, the expected calibration error.
        table: List of `Bin`.
    """

    error: float
    table: list[Bin]


def calibration(
    probabilities: Iterable[float], hits: Iterable[bool], bins: int = 10
) -> Calibration:
    """Confidence and accuracy per bin of probability, and the expected calibration error.

    ECE = Σ_m |B_m| / n · |accuracy(B_m) - confidence(B_m)| over bins B_m of equal width.

    Args:
        probabilities: Floats from 0 to 1, the probability of each predicted label.
        hits: Bools, whether each prediction is correct.
        bins: int of at least 1, number of bins.

    Returns:
        `Calibration`.

    Raises:
        ValueError: If the lists are empty or do not pair up, or a value lies outside 0 to 1.

    Source: Guo et al. (2017), "On Calibration of Modern Neural Networks", equations 2 and 3.
    """
    check_at_least(1, bins=bins)
    probabilities, hits = (
        np.asarray(values if hasattr(values, "__len__") else list(values), "float64")
        for values in (probabilities, hits)
    )
    shapes = [probabilities.shape, hits.shape]
    rule = "probabilities and hits must be one-dimensional, equally long and not empty"
    check(hits.size > 0 and shapes == [(hits.size,)] * 2, rule, shapes=shapes)
    low, high = float(probabilities.min()), float(probabilities.max())  # both are NaN if one is
    rule = "probabilities must lie in 0 to 1, as after a softmax"
    check(low >= 0 and high <= 1 + 1e-6, rule, min=low, max=high)
    check(np.isin(hits, (0, 1)).all(), "hits must be bool", hits=hits[:5].tolist())

    # sklearn.calibration.calibration_curve has the same bins, but returns neither counts nor edges.
    edges = np.arange(bins + 1) / bins
    bin_of = np.digitize(probabilities, edges[1:-1], right=True)
    counts = np.bincount(bin_of, minlength=bins)
    with np.errstate(invalid="ignore"):  # an empty bin has no mean: 0 / 0 is NaN
        confidence = np.bincount(bin_of, weights=probabilities, minlength=bins) / counts
        accuracy = np.bincount(bin_of, weights=hits, minlength=bins) / counts
    gaps = np.nan_to_num(np.abs(accuracy - confidence))
    columns = (edges[:-1], edges[1:], confidence, accuracy, counts)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return Calibration(float(counts @ gaps / hits.size), [Bin(*row) for row in rows])


def perplexity(nats: float, tokens: int) -> float:
    """exp(nats / tokens); infinite where a float cannot hold it."""
    with np.errstate(over="ignore"):
        return float(np.exp(nats / tokens))


def as_json(record: Any) -> Any:
    """A record as dicts, lists and numbers that `json.dumps(..., allow_nan=False)` accepts.

    Args:
        record: A record of this module, or dicts, lists, tuples, arrays and numbers that hold
            records at any depth.

    Returns:
        The same with named tuples as dicts, arrays as lists, and `None` for each NaN or infinity.
    """
    if hasattr(record, "_asdict"):
        record = record._asdict()
    if isinstance(record, (np.ndarray, np.generic)):
        record = record.tolist()
    if isinstance(record, dict):
        return {key: as_json(value) for key, value in record.items()}
    if isinstance(record, (list, tuple)):
        return [as_json(value) for value in record]
    if isinstance(record, float) and not math.isfinite(record):
        return None
    return record
