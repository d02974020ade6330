import json
import math
import sys
import tracemalloc

import numpy as np
import pytest

from keras_transformer import evaluation
from keras_transformer.evaluation import (
    Score,
    accuracy_interval,
    as_json,
    bleu,
    calibration,
    check_bleu_tokenizer,
    chrf,
    classification_scores,
    copy_rate,
    exact_match,
    loop_rate,
    sentence_chrf,
    tagging_scores,
)
from programs import module_of

METRICS = [exact_match, bleu, chrf]
RATES = [copy_rate, loop_rate]


def test_every_function_reads_iterators_once():
    predictions, references = ["a b c d", "e f g h"], ["a b c d", "e f g x"]
    for score in (*METRICS, *RATES, sentence_chrf):
        assert score(iter(predictions), (text for text in references)) == score(
            predictions, references
        )
        with pytest.raises(ValueError, match="predictions must be a list of str; received pred"):
            score(3, references)
    tags, words = [["A", "B"], ["A"]], [["x", "y"], ["z"]]
    expected = tagging_scores(tags, tags, words, {"x"})
    found = tagging_scores(*(map(iter, side) for side in (tags, tags, words)), iter(["x"]))
    assert found.tags == expected.tags and found.num_unseen == expected.num_unseen == 2
    assert all(type(score.count) is int for score in found.tags.values())
    one = calibration(iter([0.5, 0.9]), iter([True, False]), bins=1)
    assert one == calibration([0.5, 0.9], [True, False], bins=1)


def test_exact_match_is_the_share_of_equal_lines():
    assert exact_match(["2019-04-22", "2019-04-23"], ["2019-04-22", "2019-04-24"]) == 1 / 2


def test_exact_match_sees_case_and_spaces():
    assert exact_match(["May", " May", "may"], ["May", "May", "May"]) == 1 / 3


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_a_perfect_translation_scores_100_and_a_foreign_one_0(metric):
    reference = ["Two dogs run over the green grass ."]
    assert metric(reference, reference).value == pytest.approx(100)
    assert metric(["qqq"], reference).value == 0


def test_bleu_equals_the_formula_on_a_case_counted_by_hand():
    # 5 of 6 words, 3 of 5 pairs, 2 of 4 triples and 1 of 3 quadruples occur in the reference;
    # the lengths are equal, so there is no brevity penalty.
    score = bleu(["the cat sat on a mat"], ["the cat sat on the mat"])
    precisions = [5 / 6, 3 / 5, 2 / 4, 1 / 3]
    expected = 100 * math.exp(sum(math.log(p) for p in precisions) / 4)
    assert score.value == pytest.approx(expected)


def test_bleu_punishes_a_translation_that_stops_early():
    # All n-grams are right, but 5 words stand against 10: the brevity penalty is exp(1 - 10/5).
    score = bleu(["a b c d e"], ["a b c d e f g h i j"])
    assert score.value == pytest.approx(100 * math.exp(1 - 10 / 5))


def test_chrf_equals_the_formula_on_a_case_counted_by_hand():
    # One letter of two: precision 1/1, recall 1/2; no longer n-gram exists in the prediction.
    precision, recall, beta = 1, 1 / 2, 2
    expected = (1 + beta**2) * precision * recall / (beta**2 * precision + recall)
    assert chrf(["a"], ["ab"]).value == pytest.approx(100 * expected)


def test_each_prediction_is_compared_with_its_own_reference():
    lines = ["one two three four five", "six seven eight nine ten"]
    for metric in (bleu, chrf):
        assert metric(lines, lines).value == pytest.approx(100)
        assert metric(lines, lines[::-1]).value < 20
    assert exact_match(lines, lines[::-1]) == 0


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_lowercase_ignores_case_and_the_signature_says_so(metric):
    upper, lower = ["A DOG RUNS OVER GRASS"], ["a dog runs over grass"]
    assert metric(upper, lower).value < 20
    score = metric(upper, lower, lowercase=True)
    assert score.value == pytest.approx(100)
    assert "case:lc" in score.signature


def test_the_tokenizer_decides_what_a_word_is():
    prediction, reference = ["我们在学习机器翻译"], ["我们在学习机器人翻译"]
    assert bleu(prediction, reference, tokenize="none").value == 0
    score = bleu(prediction, reference, tokenize="zh")
    assert score.value > 50
    assert "tok:zh" in score.signature


def bleu_of_one_pair(tokenize):
    return bleu(["a"], ["a"], tokenize=tokenize)


@pytest.mark.parametrize("function", [bleu_of_one_pair, check_bleu_tokenizer])
def test_an_unknown_tokenizer_is_one_sentence_that_lists_the_known_ones(function):
    with pytest.raises(ValueError, match=r"one of .*13a.*zh.*received tokenize='klingon'\.$"):
        function("klingon")


@pytest.mark.parametrize("function", [bleu_of_one_pair, check_bleu_tokenizer])
@pytest.mark.parametrize("missing", [RuntimeError, ImportError, OSError])
def test_a_tokenizer_that_is_not_installed_is_one_sentence(monkeypatch, missing, function):
    from sacrebleu.metrics import BLEU

    def fail(*args, **kwargs):
        raise missing("\nplease install\nextra dependencies")

    monkeypatch.setattr(BLEU, "__init__", fail)
    with pytest.raises(RuntimeError, match=r"'ja-mecab' needs .*\(please install extra"):
        function("ja-mecab")


@pytest.mark.parametrize("name", ["13a", "zh", "intl", "char", "none"])
def test_a_tokenizer_that_bleu_can_use_passes_the_check(name):
    check_bleu_tokenizer(name)
    assert f"tok:{name}" in bleu_of_one_pair(name).signature


@pytest.mark.parametrize("metric", METRICS)
def test_lists_of_different_length_are_an_error_that_names_both(metric):
    with pytest.raises(ValueError, match=r"len\(predictions\)=2, len\(references\)=1"):
        metric(["a", "b"], ["a"])


@pytest.mark.parametrize("metric", METRICS)
def test_empty_lists_are_an_error_that_names_both(metric):
    with pytest.raises(ValueError, match=r"not empty; .*predictions\)=0, .*references\)=0"):
        metric([], [])


@pytest.mark.parametrize("metric", METRICS)
def test_a_lone_text_is_not_scored_letter_by_letter(metric):
    with pytest.raises(ValueError, match="references must be a list of str, not one str; received"):
        metric(["a", "b"], "ab")


@pytest.mark.parametrize("metric", METRICS)
def test_anything_but_text_is_an_error_that_names_its_place(metric):
    with pytest.raises(ValueError, match=r"predictions must be .*; received predictions\[1\]=None"):
        metric(["a", None], ["a", "b"])


@pytest.mark.parametrize("metric", METRICS)
def test_an_empty_prediction_scores_0(metric):
    score = metric([""], ["a dog"])
    assert (score.value if isinstance(score, Score) else score) == 0


def test_a_score_prints_its_number_and_its_signature():
    assert str(Score(27.3049, "BLEU|tok:13a")) == "27.30 (BLEU|tok:13a)"
    assert f"{bleu(['a b c d'], ['a b c d'])}".startswith("100.00 (BLEU|nrefs:1|case:mixed|")


def test_the_chrf_of_a_sentence_is_that_of_a_corpus_of_one():
    predictions, references = ["a cat sat", "dogs"], ["the cat sat", "two dogs"]
    expected = [chrf([p], [r]).value for p, r in zip(predictions, references, strict=True)]
    assert sentence_chrf(predictions, references) == pytest.approx(expected)
    assert expected[0] != expected[1]


# Tags

WORDS = [["the", "blick", "runs"], ["runs", "blomp"]]
EXPECTED = [["DET", "NOUN", "VERB"], ["NOUN", "ADJ"]]
PREDICTED = [["DET", "NOUN", "VERB"], ["VERB", "NOUN"]]


def test_the_length_ratio_is_that_of_the_words_that_bleu_counts():
    texts = ["a b, c", "d"], ["a b c d", "e f"]
    assert bleu(*texts).length_ratio == 5 / 6
    assert bleu(*texts, tokenize="none").length_ratio == 4 / 6
    assert chrf(*texts).length_ratio is None


def test_a_copy_has_the_letters_of_its_source():
    sources = ["A dog.", "caf\u00e9", "a cat", "", " "]
    assert copy_rate(["a  DOG.", "cafe\u0301", "a cat.", "", " "], sources) == 2 / 5


@pytest.mark.parametrize(
    "prediction, source, loops",
    [
        ("the dog " + "and the " * 9, "der Hund und", True),
        ("ja " * 7, "yes", True),
        ("ja " * 5, "yes", False),  # two 4-grams
        ("ja " * 9, "yes " * 9, False),
        ("a b c d, a b c d, a b c d", "one two three", True),
        ("a b c d, a b c d", "one two three", False),
        ("\u5f88\u597d" * 5, "very good", True),  # a character is a word
        ("\u5f88\u597d\u5403", "very good", False),
        ("", "a a a a a a a", False),
    ],
)
def test_a_loop_is_a_4_gram_more_often_than_in_the_source(prediction, source, loops):
    assert loop_rate([prediction, "x"], [source, "x"]) == loops / 2


@pytest.mark.parametrize("rate", RATES)
def test_rates_of_lists_of_different_length_are_an_error(rate):
    with pytest.raises(ValueError, match="must be equally long and not empty"):
        rate(["a"], ["a", "b"])


def test_labels_are_counted_as_by_hand_and_a_rare_one_has_its_share_of_the_macro_f1():
    expected = ["spam", "ham", "ham", "ham", "ham", "ham"]
    scores = classification_scores(iter(["ham"] * 5 + ["spam"]), iter(expected))
    assert scores.accuracy == pytest.approx(4 / 6)
    assert list(scores.labels) == ["ham", "spam"]
    assert scores.labels["ham"] == (4 / 5, 4 / 5, pytest.approx(4 / 5), 5)
    assert scores.labels["spam"] == (0, 0, 0, 1)
    assert scores.macro_f1 == pytest.approx(2 / 5)
    np.testing.assert_array_equal(scores.confusion, [[4, 1], [1, 0]])
    perfect = classification_scores(expected, expected)
    assert (perfect.accuracy, perfect.macro_f1) == (1, 1)


@pytest.mark.parametrize(
    "sides, message",
    [
        (([], []), "equally long and not empty"),
        ((["a"], ["a", "b"]), "equally long and not empty"),
        ((["a"], [1]), r"expected must be a list of str; received expected\[0\]=1"),
        (("ab", ["a", "b"]), "predicted must be a list of str, not one str"),
    ],
)
def test_labels_that_do_not_pair_up_are_an_error(sides, message):
    with pytest.raises(ValueError, match=message):
        classification_scores(*sides)


def test_tags_are_counted_as_by_hand():
    scores = tagging_scores(PREDICTED, EXPECTED, WORDS, known={"the", "runs"})
    assert (scores.accuracy, scores.num_words) == (3 / 5, 5)
    assert (scores.unseen_accuracy, scores.num_unseen) == (1 / 2, 2)  # blick right, blomp wrong
    assert list(scores.tags) == ["ADJ", "DET", "NOUN", "VERB"]
    expected = [  # rows are what is right
        [0, 0, 1, 0],
        [0, 1, 0, 0],
        [0, 0, 1, 1],
        [0, 0, 0, 1],
    ]
    np.testing.assert_array_equal(scores.confusion, expected)
    assert scores.tags["DET"] == (1, 1, 1, 1)
    assert scores.tags["NOUN"] == (1 / 2, 1 / 2, 1 / 2, 2)
    assert scores.tags["VERB"] == (1 / 2, 1, pytest.approx(2 / 3), 1)
    precision, *rest = scores.tags["ADJ"]  # never given
    assert math.isnan(precision)
    assert rest == [0, 0, 1]


def test_a_long_word_is_not_an_array_of_long_words():
    words = [["x" * 10**6, *map(str, range(100))]]
    tags = [["X", *["Y"] * 100]]
    tracemalloc.start()
    try:
        scores = tagging_scores(tags, tags, words, known=words[0][1:])
        assert tracemalloc.get_traced_memory()[1] < 10**8
    finally:
        tracemalloc.stop()
    assert scores.num_unseen == 1 and scores.unseen_accuracy == 1


def test_a_tag_that_no_word_has_lowers_nothing_but_its_own_precision():
    scores = tagging_scores([["X", "DET"]], [["DET", "DET"]], [["a", "b"]], {"a", "b"})
    assert scores.tags["X"].precision == 0
    assert math.isnan(scores.tags["X"].recall)
    assert scores.tags["DET"][:2] == (1, 1 / 2)
    assert math.isnan(scores.unseen_accuracy)
    assert scores.num_unseen == 0


@pytest.mark.parametrize(
    "sides, message",
    [
        (([["A"]], [["A"]], []), r"predicted\)=1, len\(expected\)=1, len\(words\)=0"),
        (
            ([["A"], ["A"]], [["A"]] * 2, [["a"], ["a", "b"]]),
            r"sentence 1 .* received lengths=\[1, 1, 2\], words='a b'",
        ),
        (([[]], [[]], [[]]), "at least one word; received num_words=0"),
    ],
)
def test_tags_that_do_not_pair_up_with_words_are_an_error(sides, message):
    with pytest.raises(ValueError, match=message):
        tagging_scores(*sides, known=set())


# Intervals and calibration


def test_the_interval_solves_the_equation_it_comes_from():
    # Wilson's bounds are the p for which |hits/n - p| = z sqrt(p (1 - p) / n).
    for hits, total in ((8, 10), (50, 100), (1, 3)):
        for p in accuracy_interval(hits, total):
            distance = abs(hits / total - p) / math.sqrt(p * (1 - p) / total)
            assert distance == pytest.approx(1.959964, abs=1e-6)


def test_the_interval_of_no_mistake_in_ten_is_that_worked_out_by_hand():
    # share = 1: center and margin are 1 + z²/20 and z²/20, so the lower bound is 1 / (1 + z²/10).
    z_squared = 3.8414588
    low, high = accuracy_interval(10, 10)
    assert (low, high) == pytest.approx((1 / (1 + z_squared / 10), 1))
    assert accuracy_interval(0, 10) == pytest.approx((0, 1 - low))  # the mirror image


def test_nineteen_of_twenty_intervals_hold_the_truth():
    hits = np.random.default_rng(0).binomial(200, 0.9, size=2_000)
    intervals = {n: accuracy_interval(n, 200) for n in set(hits.tolist())}
    low, high = np.array([intervals[n] for n in hits.tolist()]).T
    assert 0.93 < np.mean((low <= 0.9) & (high >= 0.9)) < 0.97


@pytest.mark.parametrize(
    "counts, message",
    [
        ((3, 2), "hits must be at most total; received hits=3, total=2"),
        ((0, 0), "total must be an integer of at least 1; received total=0"),
        ((-1, 2), "hits must be an integer of at least 0"),
    ],
)
def test_an_interval_of_impossible_counts_is_an_error(counts, message):
    with pytest.raises(ValueError, match=message):
        accuracy_interval(*counts)


def test_calibration_is_the_mean_gap_of_the_bins_weighed_by_hand():
    # Up to 1/2: claimed 0.4 and 0.5, one of two right, gap 0.05.  Above: claimed 0.9, 0.9 and
    # 1.0 (a mean of 2.8 / 3), two of three right, gap 0.8 / 3.
    result = calibration([0.9, 0.4, 1.0, 0.5, 0.9], [True, False, True, True, False], bins=2)
    assert result.table[0] == (0, 0.5, pytest.approx(0.45), 1 / 2, 2)
    assert result.table[1] == (0.5, 1, pytest.approx(2.8 / 3), pytest.approx(2 / 3), 3)
    assert result.error == pytest.approx(2 / 5 * 0.05 + 3 / 5 * 0.8 / 3)


def test_an_edge_belongs_to_the_bin_below_it_and_an_empty_bin_weighs_nothing():
    edges = [number / 10 for number in range(11)]
    assert [part.count for part in calibration(edges, [1] * 11).table] == [2] + [1] * 9
    result = calibration([1.0, 1.0], [1, 1])
    assert result.error == 0
    assert math.isnan(result.table[0].accuracy)


@pytest.mark.parametrize(
    "probabilities, hits, message",
    [
        ([0.5], [1, 0], r"equally long .*received shapes=\[\(1,\), \(2,\)\]"),
        ([[0.5, 0.5]], [1], r"one-dimensional.*\[\(1, 2\), \(1,\)\]"),
        ([], [], "not empty"),
        ([0.5, 3.0], [1, 0], "in 0 to 1, as after a softmax; received min=0.5, max=3.0"),
        ([-0.5, 0.5], [1, 0], "in 0 to 1"),
        ([0.5, math.nan], [1, 1], "in 0 to 1"),
        ([0.5], [2], "hits must be bool"),
    ],
)
def test_what_is_not_a_probability_or_a_hit_is_an_error(probabilities, hits, message):
    with pytest.raises(ValueError, match=message):
        calibration(probabilities, hits)


def test_the_bins_are_those_of_scikit_learn():
    from sklearn.calibration import calibration_curve

    rng = np.random.default_rng(0)
    probabilities = rng.uniform(0.4, 1, size=500)  # the lower bins stay empty
    hits = rng.uniform(size=500) < probabilities
    filled = [part for part in calibration(probabilities, hits).table if part.count]
    accuracy, confidence = calibration_curve(hits, probabilities, n_bins=10)
    np.testing.assert_allclose([part.accuracy for part in filled], accuracy)
    np.testing.assert_allclose([part.confidence for part in filled], confidence)


# JSON and imports


def test_scores_without_an_unseen_word_or_a_predicted_tag_are_strict_json():
    scores = tagging_scores([["DET", "DET"]], [["DET", "ADJ"]], [["a", "b"]], known={"a", "b"})
    text = json.dumps(as_json({"split": "test", **scores._asdict()}), allow_nan=False)
    assert json.loads(text) == {
        "split": "test",
        "accuracy": 1 / 2,
        "unseen_accuracy": None,
        "num_words": 2,
        "num_unseen": 0,
        "tags": {
            "ADJ": {"precision": None, "recall": 0, "f1": 0, "count": 1},
            "DET": {"precision": 1 / 2, "recall": 1, "f1": pytest.approx(2 / 3), "count": 1},
        },
        "confusion": [[0, 1], [0, 1]],
    }


def test_records_keep_their_names_in_json_and_what_is_not_finite_is_null():
    empty = {"low": 0, "high": 0.5, "confidence": None, "accuracy": None, "count": 0}
    full = {"low": 0.5, "high": 1, "confidence": 1, "accuracy": 1, "count": 1}
    assert as_json(calibration([1.0], [True], bins=2)) == {"error": 0, "table": [empty, full]}
    mixed = (math.nan, {"a": [np.float32("inf"), np.int64(2)], "b": np.array([[0.5, math.nan]])})
    assert as_json(mixed) == [None, {"a": [None, 2], "b": [[0.5, None]]}]
    json.dumps(as_json(mixed), allow_nan=False)


def test_the_module_can_be_imported_before_the_libraries_it_calls(monkeypatch):
    for library in ("sacrebleu", "scipy", "sklearn"):
        monkeypatch.setitem(sys.modules, library, None)
    module = module_of(evaluation.__file__, "keras_transformer.again")
    assert module.exact_match(["a"], ["a"]) == 1
