import math

import pytest

from keras_transformer.evaluation import Score, bleu, chrf, exact_match, sentence_chrf

METRICS = [exact_match, bleu, chrf]


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


def test_an_unknown_tokenizer_is_one_sentence_that_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"one of .*13a.*zh.*received tokenize='klingon'\.$"):
        bleu(["a"], ["a"], tokenize="klingon")


@pytest.mark.parametrize("missing", [RuntimeError, ImportError, OSError])
def test_a_tokenizer_that_is_not_installed_is_one_sentence(monkeypatch, missing):
    from sacrebleu.metrics import BLEU

    def fail(*args, **kwargs):
        raise missing("\nplease install\nextra dependencies")

    monkeypatch.setattr(BLEU, "__init__", fail)
    with pytest.raises(RuntimeError, match=r"'ja-mecab' needs .*\(please install extra"):
        bleu(["a"], ["a"], tokenize="ja-mecab")


@pytest.mark.parametrize("metric", METRICS)
def test_lists_of_different_length_are_an_error_that_names_both(metric):
    with pytest.raises(ValueError, match="received 2 predictions and 1 references"):
        metric(["a", "b"], ["a"])


@pytest.mark.parametrize("metric", METRICS)
def test_empty_lists_are_an_error_that_names_both(metric):
    with pytest.raises(ValueError, match="received 0 predictions and 0 references"):
        metric([], [])


@pytest.mark.parametrize("metric", METRICS)
def test_a_lone_text_is_not_scored_letter_by_letter(metric):
    with pytest.raises(ValueError, match="references must be a list of str; received one str"):
        metric(["a", "b"], "ab")


@pytest.mark.parametrize("metric", METRICS)
def test_anything_but_text_is_an_error_that_names_its_place(metric):
    with pytest.raises(ValueError, match="predictions .* received NoneType at index 1"):
        metric(["a", None], ["a", "b"])


@pytest.mark.parametrize("metric", METRICS)
def test_an_empty_prediction_scores_0(metric):
    score = metric([""], ["a dog"])
    assert (score.value if isinstance(score, Score) else score) == 0


def test_a_score_prints_its_number_and_its_signature():
    assert str(Score(27.3049, "BLEU|tok:13a")) == "27.30 (BLEU|tok:13a)"
    assert f"{bleu(['a b c d'], ['a b c d'])}".startswith("100.00 (BLEU|nrefs:1|case:mixed|")


def test_the_chrf_of_a_sentence_is_that_of_a_corpus_of_one():
    said, references = ["a cat sat", "dogs"], ["the cat sat", "two dogs"]
    expected = [chrf([s], [r]).value for s, r in zip(said, references, strict=True)]
    assert sentence_chrf(said, references) == pytest.approx(expected)
    assert expected[0] != expected[1]
