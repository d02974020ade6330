"""The compiled beam search finds what a plain one finds, whatever else is in the batch."""

import collections
import functools
import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest

import keras_transformer as kt
import reference_search
from keras_transformer.generation import BeamSearch, Ensemble, Request
from keras_transformer.ids import END, PADDING
from reference_search import model_log_probabilities

VOCABULARY = 9
SIZES = dict(num_layers=1, d_model=8, num_heads=2, d_ff=16, dropout=0.0)
LONGEST = 8
PENALTIES = (0.0, 0.6, 1.5)
WIDTHS = [(1, 1), (2, 1), (3, 3), (4, 2), (5, 5)]  # beams, n_best
QUICK = {(1, 1), (3, 3)}
OTHER_WIDTHS = sorted({(b, n) for b in range(1, 6) for n in range(1, b + 1)} - set(WIDTHS))
TIE = 1e-4  # the compiled search is float32: closer numbers may change places


class Row(NamedTuple):
    """One sentence of a batch, and what restricts its answer."""

    source: tuple | None
    max_length: int
    min_length: int = 0
    prefix: tuple = ()


LIMITS = [
    dict(max_length=8),
    dict(max_length=3),
    dict(max_length=1),
    dict(max_length=8, min_length=3),
    dict(max_length=5, prefix=(5,)),
    dict(max_length=8, min_length=4, prefix=(7, 4)),
]
SOURCES = [(4, 5, END, PADDING, PADDING), (6, 8, 4, 5, END), (7, 7, END, PADDING, PADDING)]
PROMPTS = [(), (8,), (4, 6), (5, 7, 7)]
TRANSLATIONS = [Row(source, **limits) for limits in LIMITS for source in SOURCES]
CONTINUATIONS = [
    Row(None, max_length, min_length, prompt)
    for max_length, min_length in ((8, 0), (5, 0), (8, 5))
    for prompt in PROMPTS
] + [Row(None, 1), Row(None, 2, prefix=(4, 6))]


def with_random_weights(model, seed, norm=None):
    """Large enough for END to be likely and for hypotheses to compete."""
    rng = np.random.default_rng(seed)
    for weight in sorted(model.trainable_variables, key=lambda weight: weight.path):
        if len(weight.shape) == 2:
            weight.assign(rng.normal(0, 0.6, weight.shape))
    if norm is not None:  # with gamma = 1 and one embedding, the last id would be the next one
        norm.gamma.assign(2 * rng.normal(size=norm.gamma.shape))
    return model


@pytest.fixture(scope="module")
def encoder_decoder():
    return with_random_weights(kt.Transformer(VOCABULARY, **SIZES), seed=17)


@pytest.fixture(scope="module")
def ensemble(encoder_decoder):
    other = with_random_weights(kt.Transformer(VOCABULARY, **SIZES), seed=18)
    return Ensemble([encoder_decoder, other])


@pytest.fixture(scope="module")
def decoder_only():
    model = kt.LanguageModel(VOCABULARY, **SIZES, rotary=True)
    return with_random_weights(model, 11, model.decoder.blocks[-1].feed_forward_add_norm.norm)


def mean_log_probabilities(ensemble, source, length):
    """Of the mean of the probabilities of the models, each asked alone."""
    functions = [model_log_probabilities(model, source, length) for model in ensemble.models]
    return lambda ids: np.log(np.mean([np.exp(function(ids)) for function in functions], axis=0))


class Case(NamedTuple):
    """A model, the rows of one batch, and per row what the reference search asks of the model."""

    decoding: Any
    rows: list
    next_log_probabilities: list


@pytest.fixture(scope="module", params=["encoder_decoder", "decoder_only"])
def case(request):
    model = request.getfixturevalue(request.param)
    rows = CONTINUATIONS if request.param == "decoder_only" else TRANSLATIONS
    log_p = model_log_probabilities if request.param != "ensemble" else mean_log_probabilities
    functions = {
        source: functools.cache(log_p(model, source, LONGEST))
        for source in {row.source for row in rows}
    }
    return Case(kt.Decoding(model), rows, [functions[row.source] for row in rows])


def reference_results(case, beams, n_best, length_penalty):
    """Per row, what the reference search finds, and its trace."""
    results = []
    for row, next_log_probabilities in zip(case.rows, case.next_log_probabilities, strict=True):
        trace = []
        found = reference_search.beam_search(
            next_log_probabilities,
            row.max_length,
            beams,
            length_penalty,
            n_best,
            row.min_length,
            row.prefix,
            trace,
        )
        results.append((found, trace))
    return results


def search_all(decoding, rows, beams, n_best, length_penalty, at_a_time=None):
    """`Decoding.beam_search` of all rows at once, or of a few while the others wait."""
    longest_prefix = max(len(row.prefix) for row in rows)
    prefix = [row.prefix + (PADDING,) * (longest_prefix - len(row.prefix)) for row in rows]
    request = Request(
        BeamSearch(beams, length_penalty, n_best),
        None if rows[0].source is None else np.array([row.source for row in rows]),
        np.array([row.max_length for row in rows]),
        min_length=np.array([row.min_length for row in rows]),
        prefix=np.array(prefix, "int32").reshape(len(rows), longest_prefix),
        at_a_time=at_a_time,
    )
    return next(decoding.decode([request]))


def has_a_tie(trace, beams):
    """Whether two numbers of which one is chosen are too close."""
    for extensions, finished, bound in trace:
        log_p = [log_p for log_p, _ in extensions[: 2 * beams + 1]]
        scores = sorted([*(score for score, _ in finished), bound], reverse=True)
        if (np.abs(np.diff(log_p)) < TIE).any() or (np.abs(np.diff(scores)) < TIE).any():
            return True
    return False


def assert_equal(found, n, hypotheses, n_best):
    """Row n of what a compiled search found is what the reference found, in its order."""
    width = found.ids.shape[-1]
    hypotheses = hypotheses + [((), -np.inf, False)] * (n_best - len(hypotheses))
    ids = [[*ids, *[PADDING] * (width - len(ids))] for ids, _, _ in hypotheses]
    assert found.ids[n].tolist() == ids
    scores = [score for _, score, _ in hypotheses]
    np.testing.assert_allclose(found.scores[n], scores, atol=1e-4)
    assert found.finished[n].tolist() == [finished for _, _, finished in hypotheses]


def check_equal(case, beams, n_best, length_penalty, at_a_time=None):
    results = reference_results(case, beams, n_best, length_penalty)
    found = search_all(case.decoding, case.rows, beams, n_best, length_penalty, at_a_time)
    compared = 0
    for n, (hypotheses, trace) in enumerate(results):
        if not has_a_tie(trace, beams):
            assert_equal(found, n, hypotheses, n_best)
            compared += 1
    assert compared >= 0.8 * len(results)


@pytest.mark.parametrize("length_penalty", PENALTIES)
@pytest.mark.parametrize(
    "beams, n_best",
    [pytest.param(*width, marks=[pytest.mark.slow] * (width not in QUICK)) for width in WIDTHS],
)
def test_a_compiled_search_equals_the_reference(case, beams, n_best, length_penalty):
    check_equal(case, beams, n_best, length_penalty)


@pytest.mark.parametrize("case", ["encoder_decoder"], indirect=True)
@pytest.mark.parametrize("beams, n_best", [(1, 1), (3, 3)])
def test_a_search_that_takes_the_row_of_another_equals_the_reference(case, beams, n_best):
    assert len(case.rows) == 18
    check_equal(case, beams, n_best, length_penalty=0.6, at_a_time=3)


@pytest.mark.parametrize("case", ["ensemble"], indirect=True)
@pytest.mark.parametrize(
    "beams, n_best, at_a_time",
    [(1, 1, None), pytest.param(3, 3, None, marks=pytest.mark.slow), (3, 3, 3)],
)
def test_a_search_with_an_ensemble_equals_the_reference(case, beams, n_best, at_a_time):
    check_equal(case, beams, n_best, length_penalty=0.6, at_a_time=at_a_time)


@pytest.mark.slow
@pytest.mark.parametrize("beams, n_best", OTHER_WIDTHS)
def test_a_compiled_search_equals_the_reference_for_every_n_best(case, beams, n_best):
    for length_penalty in PENALTIES:
        check_equal(case, beams, n_best, length_penalty)


def test_the_cases_tell_a_search_from_its_near_relations(case):
    """Each of these events changes what another search, nearly the same, would find."""
    events = collections.Counter()
    for (beams, n_best), length_penalty in itertools.product(WIDTHS, PENALTIES):
        results = reference_results(case, beams, n_best, length_penalty)
        last_step = max(len(trace) for _, trace in results)
        for hypotheses, trace in results:
            best = [finished[0] for _, finished, _ in trace if finished]
            ends = [[ids[-1] == END for _, ids in extensions] for extensions, _, _ in trace]
            kinds = {finished for _, _, finished in hypotheses}
            events["search continues after an end"] += len(best) > 1
            events["finished hypothesis overtaken"] += len(set(best)) > 1
            events["end below the first `beams`"] += any(any(e[beams : 2 * beams]) for e in ends)
            events["two ends in `beams + 1`"] += any(sum(e[: beams + 1]) > 1 for e in ends)
            events["cut off while others continue"] += False in kinds and len(trace) < last_step
            events["finished and cut off"] += len(kinds) == 2
            events["stopped before its limit"] += True in kinds and len(trace) < last_step
    assert len(events) == 7
    assert min(events.values()) >= 5, events


@pytest.mark.parametrize(
    "case",
    ["encoder_decoder", pytest.param("decoder_only", marks=pytest.mark.slow)],
    indirect=True,
)
def test_neighbors_and_rows_that_fill_the_batch_change_nothing(case):
    beams, n_best, length_penalty = 3, 3, 0.6
    filler = case.rows[0]._replace(max_length=0, min_length=0, prefix=())
    together = search_all(case.decoding, [*case.rows, filler], beams, n_best, length_penalty)
    for n, row in enumerate(case.rows):
        if n % 2 or not row.min_length:
            continue  # a search with and one without min_length are two programs
        alone = search_all(case.decoding, [row], beams, n_best, length_penalty)
        width = alone.ids.shape[-1]
        np.testing.assert_array_equal(together.ids[n, :, :width], alone.ids[0])
        np.testing.assert_allclose(together.scores[n], alone.scores[0], atol=1e-4)
    assert not together.ids[-1].any()
    assert not together.finished[-1].any()
    assert (together.scores[-1] == -np.inf).all()


@pytest.mark.slow
def test_a_search_past_its_first_cache_equals_the_reference(encoder_decoder):
    """The limit of one row is beyond the first cache; another row ended long before."""
    length, source, short = 40, SOURCES[0], SOURCES[1]
    function = functools.cache(model_log_probabilities(encoder_decoder, source, length))
    trace = []
    hypotheses = reference_search.beam_search(
        function, length, beams=3, n_best=3, min_length=length - 3, trace=trace
    )
    assert not has_a_tie(trace, beams=3)
    rows = [Row(source, length, length - 3), Row(short, 2)]
    found = search_all(kt.Decoding(encoder_decoder), rows, 3, 3, 0.6)
    assert_equal(found, 0, hypotheses, n_best=3)
