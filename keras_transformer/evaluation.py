"""How good a list of predictions is: exact match, BLEU and chrF.

`predictions` and `references` are lists of text; item n of one belongs to item n of the other.
"""

from typing import NamedTuple


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
