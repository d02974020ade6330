import functools
import inspect
import itertools
import textwrap

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import backend
from keras_transformer.generation import (
    BeamSearch,
    GreedySearch,
    Request,
    Sampling,
    constraints,
    length_penalty,
)
from keras_transformer.generation import decoding as decoding_module
from keras_transformer.generation.constraints import IMPOSSIBLE, NEVER_WRITTEN
from scripted import Scripted

VOCABULARY = 23


def array(x):
    return keras.ops.convert_to_numpy(x)


OPTIONS = {
    "post_norm": dict(num_layers=1),
    "pre_norm": dict(
        num_layers=2, target_vocabulary_size=VOCABULARY, norm_first=True, max_length=40
    ),
}


@functools.cache
def decoding_of(name):
    """A `Decoding`, whose programs are compiled once for all tests."""
    keras.utils.set_random_seed(3)
    model = kt.Transformer(VOCABULARY, d_model=16, num_heads=2, d_ff=32, **OPTIONS[name])
    rng = np.random.default_rng(0)
    for weight in model.trainable_variables:
        if len(weight.shape) == 2:  # large enough for varied, confident answers
            weight.assign(rng.normal(0, 0.6, weight.shape))
    return kt.Decoding(model)


@pytest.fixture(params=["post_norm", pytest.param("pre_norm", marks=pytest.mark.slow)])
def decoding(request):
    """Of each architecture, for what depends on the model."""
    return decoding_of(request.param)


@pytest.fixture
def transformer(decoding):
    return decoding.model


@pytest.fixture
def post_norm():
    """For what depends on the search alone."""
    return decoding_of("post_norm")


def padded(rows, length=None):
    length = length or max(map(len, rows))
    return np.array([row + [kt.PADDING] * (length - len(row)) for row in rows], "int32")


def some_sources():
    rng = np.random.default_rng(1)
    return [[*rng.integers(4, VOCABULARY, n).tolist(), kt.END] for n in (1, 4, 2, 7, 5, 3)]


def teacher_forced(transformer, source_ids, target_ids):
    """Logits of the whole target at once, without any cache."""
    return array(transformer({"source_ids": source_ids, "target_ids": target_ids}))


def greedy_without_a_cache(transformer, sources, max_length):
    """The whole model, run again for every token; padded to one shape, which changes nothing."""
    source_ids = padded(sources)
    target_ids = np.full((len(sources), max_length), kt.PADDING, "int32")
    target_ids[:, 0] = kt.START
    answers = np.zeros((len(sources), max_length), "int32")
    for position in range(max_length):
        logits = teacher_forced(transformer, source_ids, target_ids)[:, position]
        logits[:, list(NEVER_WRITTEN)] = -np.inf
        ended = (answers == kt.END).any(axis=1)
        answers[:, position] = np.where(ended, kt.PADDING, logits.argmax(axis=-1))
        target_ids[:, position + 1 : position + 2] = answers[:, position, None]
    return answers


def test_cached_decoding_equals_uncached_at_every_position(transformer):
    source_ids = padded(some_sources())
    rng = np.random.default_rng(2)
    target_ids = rng.integers(4, VOCABULARY, (len(source_ids), 9)).astype("int32")
    uncached = teacher_forced(transformer, source_ids, target_ids)
    memory = transformer.encode(source_ids)
    of_memory = transformer.cache_memory(memory)
    decoded = transformer.empty_cache(len(source_ids), 9)
    for position in range(9):
        cache = kt.Cache(decoded, of_memory, slot=position, positions=np.array([position]))
        seen = np.arange(9).reshape(1, 1, 9) <= position
        ids = target_ids[:, position, None]
        logits = transformer.decode(ids, memory, attention_mask=seen, cache=cache)
        decoded = cache.decoded
        expected = uncached[:, position, None]
        atol = 3e-5 if backend.on_accelerator() else 1e-5  # 2e-5 on a GPU
        np.testing.assert_allclose(array(logits), expected, atol=atol, rtol=1e-5)


def test_greedy_is_the_most_probable_next_token_repeatedly(transformer, decoding):
    sources = some_sources()
    answers = decoding.greedy(padded(sources), 12)
    expected = greedy_without_a_cache(transformer, sources, 12)
    np.testing.assert_array_equal(answers, expected)
    assert len({tuple(row) for row in expected}) > 1  # a constant decoder would agree with itself


def test_an_answer_depends_on_nothing_but_its_own_source(decoding):
    sources = some_sources()
    together = decoding.greedy(padded(sources, 16), 12)
    alone = [decoding.greedy(padded([source], 8), 12)[0] for source in sources]
    np.testing.assert_array_equal(together, alone)


def test_nothing_follows_the_end(post_norm):
    for row in post_norm.greedy(padded(some_sources()), 40).tolist():
        if kt.END in row:
            assert set(row[row.index(kt.END) + 1 :]) <= {kt.PADDING}
        assert kt.START not in row


@pytest.mark.slow
def test_a_row_of_no_tokens_fills_the_batch_and_changes_no_other_row(post_norm):
    sources = some_sources()
    limits = np.array([12] * len(sources) + [0])
    with_filler = padded([*sources, []])
    answers = post_norm.greedy(with_filler, limits)
    assert not answers[-1].any()
    np.testing.assert_array_equal(answers[:-1], post_norm.greedy(padded(sources), limits[:-1]))
    seeds, prefix = range(len(limits)), padded([[]] * len(sources) + [[7, 9]])
    drawn = post_norm.sample(with_filler, limits, seeds, prefix=prefix)
    assert not drawn[-1].any()
    expected = post_norm.sample(padded(sources), limits[:-1], seeds[:-1])
    np.testing.assert_array_equal(drawn[:-1], expected)


def towards(token, size=VOCABULARY):
    """A model that always finds one token the most probable, by far, and others than END next."""
    peak = 50 * np.eye(size, dtype="float32")[token]
    peak[kt.END] += -50 * (token != kt.END)
    return Scripted(lambda position, ids: keras.ops.add(keras.ops.zeros((*ids.shape, size)), peak))


def test_the_loop_ends_when_every_sentence_has_ended():
    model = towards(kt.END)
    for answers in (
        kt.Decoding(model).greedy(padded([[5, 3]]), 400),
        kt.Decoding(model).beam_search(padded([[5, 3]]), 400, beams=2).ids[0],
    ):
        assert answers[0, 0] == kt.END and not answers[0, 1:].any()
    assert len(model.calls) < 12  # eager: one per step; traced: a loop's body once or twice


def test_an_answer_that_never_ends_has_the_length_allowed_to_each_sentence():
    limits = np.array([7, 45])
    answers = kt.Decoding(towards(9)).greedy(padded([[5, 3], [6, 3]]), limits)
    np.testing.assert_array_equal(answers, np.where(np.arange(45) < limits[:, None], 9, 0))
    found = kt.Decoding(towards(9)).beam_search(padded([[5, 3], [6, 3]]), limits, beams=3)
    np.testing.assert_array_equal(found.ids[:, 0], answers)
    assert not found.finished.any()  # marked


def test_a_compiled_loop_sees_weights_that_changed_since(transformer, decoding):
    source_ids = padded(some_sources())
    before = decoding.greedy(source_ids, 12)
    kernel = transformer.target_embedding.trainable_variables[0]
    value = array(kernel)
    try:
        kernel.assign(value[::-1])
        changed = decoding.greedy(source_ids, 12)
        expected = greedy_without_a_cache(transformer, some_sources(), 12)
        np.testing.assert_array_equal(changed, expected)
        assert (changed != before).any()
    finally:
        kernel.assign(value)
    np.testing.assert_array_equal(decoding.greedy(source_ids, 12), before)


def test_the_loop_of_the_documentation_writes_what_greedy_writes(post_norm):
    text = inspect.cleandoc(kt.Decoding.__doc__)
    loop = textwrap.dedent(text.split("`Transformer`:\n")[1].split("What it adds")[0])
    names = dict(model=post_norm.model, source_ids=padded(some_sources()), max_length=12)
    exec(loop, {**names, "kt": kt, "np": np, "ops": keras.ops}, variables := {})
    written = np.concatenate([array(ids) for ids in variables["answers"]], axis=1)
    answers = post_norm.greedy(names["source_ids"], 12)
    np.testing.assert_array_equal(np.where(answers > 0, written, 0), answers)
    assert len({tuple(row) for row in answers}) > 1


@pytest.mark.parametrize(
    "searches",
    [
        [BeamSearch(3, alpha, n_best=2) for alpha in (0.0, 0.6, 2.0)],
        [Sampling([n, 1], 1 + n, 4, 1 / (1 + n)) for n in range(3)],
    ],
    ids=["beams", "sampling"],
)
def test_a_search_with_other_parameters_is_the_same_program(searches):
    logits = np.linspace(-3, 3, VOCABULARY, dtype="float32")
    model = Scripted(lambda _, ids: keras.ops.add(keras.ops.zeros((*ids.shape, 23)), logits))
    decoding, calls, found = kt.Decoding(model), [], []
    for search in searches:
        (answers,) = decoding.decode([Request(search, padded([[5, 3], [6, 3]]), 9)])
        calls.append(len(model.calls))
        found.append(answers)
    assert calls[0] > 0 and len(set(calls)) == 1
    for one, other in itertools.pairwise(found):
        assert any((a != b).any() for a, b in zip(one, other, strict=True))  # but they count


# Beam search.


def requests_of(search, batches, size, seed=0):
    """Requests whose answers may have from 1 to 70 tokens."""
    rng = np.random.default_rng(seed)
    for number in range(batches):
        source_ids = rng.integers(kt.UNKNOWN, 7, (size, 5))
        limits = rng.choice([1, 3, 9, 15, 16, 17, 31, 33, 50, 70], size)
        given = dict(source_ids=source_ids, max_length=limits, min_length=limits // 2)
        if search == "greedy":
            prefix = np.where(source_ids == kt.START, 5, source_ids)[:, : number % 2]
            yield Request(GreedySearch(), **given, prefix=prefix)
        elif search == "sample":
            seeds = [(number, row) for row in range(size)]
            yield Request(Sampling(seeds, 1.3, top_k=4), **given)
        else:
            yield Request(BeamSearch(beams=3, n_best=2), **given)


@pytest.mark.parametrize("batches", [2, pytest.param(11, marks=pytest.mark.slow)])
@pytest.mark.parametrize("search", ["greedy", "sample", "beams"])
def test_requests_are_answered_as_each_alone(search, batches):
    decoding = kt.Decoding(tiny(seed=4))
    together = decoding.decode(requests_of(search, batches, size=4))
    for request, found in zip(requests_of(search, batches, 4), together, strict=True):
        (alone,) = decoding.decode([request])
        if search == "beams":
            np.testing.assert_allclose(found.scores, alone.scores, rtol=1e-5)
            np.testing.assert_array_equal(found.finished, alone.finished)
            found, alone = found.ids, alone.ids
        np.testing.assert_array_equal(found, alone)


def test_a_batch_is_continued_in_larger_caches_until_its_sentences_have_ended(monkeypatch):
    decoding = kt.Decoding(towards(9))
    caches, run = [], decoding_module._CompiledSearch.run

    def remembered(program, batch, stops):
        for state, answers in run(program, batch, stops):
            caches.append(program.search.length(state))
            yield state, answers

    monkeypatch.setattr(decoding_module._CompiledSearch, "run", remembered)
    for limits, expected in (
        ([32, 2, 16, 9], [32]),
        ([3, 5, 33, 1], [32, 64]),
        ([70, 5, 33, 1], [32, 64, 128]),
    ):
        caches.clear()
        answers = decoding.greedy(padded([[5, 3]] * 4), np.array(limits))
        written = np.arange(max(limits)) < np.array(limits)[:, None]
        np.testing.assert_array_equal(answers, np.where(written, 9, 0))
        assert caches == expected


def test_requests_are_read_a_few_ahead():
    decoding = kt.Decoding(towards(kt.END))
    read = []
    batch = dict(source_ids=padded([[5, 3]]), max_length=4)
    requests = (read.append(n) or Request(GreedySearch(), **batch) for n in range(100))
    assert next(decoding.decode(requests))[0, 0] == kt.END
    assert len(read) <= 4


def tiny(seed, **options):
    """A transformer over 3 tokens, END and the unknown one: few enough sequences to list."""
    keras.utils.set_random_seed(seed)
    model = kt.Transformer(7, num_layers=1, d_model=8, num_heads=2, d_ff=8, **options)
    rng = np.random.default_rng(seed)
    for weight in model.trainable_variables:
        if len(weight.shape) == 2:
            weight.assign(rng.normal(0, 0.7, weight.shape))
    return model


def every_answer(max_length):
    """All that may be written in at most `max_length` tokens, END included."""
    for length in range(max_length):
        for tokens in itertools.product((kt.UNKNOWN, 4, 5, 6), repeat=length):
            yield [*tokens, kt.END]


def log_probabilities(model, source, answers):
    """Of each answer to one source, by teacher forcing; padded to few shapes."""
    target = padded(answers, max(8, 40 * (max(map(len, answers)) > 8)))
    read = np.concatenate([np.full_like(target[:, :1], kt.START), target[:, :-1]], axis=1)
    source_ids = np.repeat(padded([source], 8), len(answers), axis=0)
    logits = teacher_forced(model, source_ids, read).astype("float64")
    log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    of_token = np.take_along_axis(log_p, target[..., None], axis=-1)[..., 0]
    return np.where(target == kt.PADDING, 0, of_token).sum(axis=1)


SOURCES = [[4, 5, 3], [6, 6, 4, 5, 3], [5, 3]]
MODELS = [
    dict(seed=0),
    pytest.param(dict(seed=1, norm_first=True), marks=pytest.mark.slow),
    pytest.param(dict(seed=2, max_length=8), marks=pytest.mark.slow),
    pytest.param(dict(seed=3), marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.parametrize("options", MODELS, ids=str)
def test_a_wide_beam_finds_what_exhaustive_search_finds(options):
    model, answers = tiny(**options), list(every_answer(4))
    decoding, lengths = kt.Decoding(model), np.array([len(answer) for answer in answers])
    log_p = [log_probabilities(model, source, answers) for source in SOURCES]
    for alpha in (0.0, 0.6, 2.0):
        found = decoding.beam_search(padded(SOURCES), 4, beams=160, length_penalty=alpha, n_best=5)
        for n, scores in enumerate(log_p / length_penalty(lengths, alpha)):
            best = np.argsort(-scores)[:5]
            assert [row[row > 0].tolist() for row in found.ids[n]] == [answers[i] for i in best]
            np.testing.assert_allclose(found.scores[n], scores[best], atol=1e-4)
            assert found.finished[n].all()


@pytest.mark.slow
@pytest.mark.parametrize("options", MODELS[:2], ids=str)
def test_a_wider_beam_never_finds_a_worse_answer_here_and_sometimes_a_better(options):
    decoding = kt.Decoding(tiny(**options))
    found = [decoding.beam_search(padded(SOURCES), 5, beams=k) for k in (1, 3, 100)]
    # An answer that was cut off is worse than any that was finished.
    scores = [np.where(each.finished, each.scores, -np.inf) for each in found]
    for narrow, wide in itertools.pairwise(scores):
        assert (wide >= narrow - 1e-5).all()
    assert (scores[-1] > scores[0]).any()


def test_one_beam_is_greedy_decoding(post_norm):
    source_ids = padded(some_sources())
    greedy = post_norm.greedy(source_ids, 40)
    found = post_norm.beam_search(source_ids, 40, beams=1)
    np.testing.assert_array_equal(found.ids[:, 0], greedy)
    np.testing.assert_array_equal(found.finished[:, 0], (greedy == kt.END).any(axis=1))


@pytest.mark.parametrize("beams, alpha", [(4, 0.6), pytest.param(5, 1.3, marks=pytest.mark.slow)])
def test_scores_are_the_log_probabilities_of_the_answers_over_their_penalty(
    transformer, decoding, beams, alpha
):
    sources = some_sources()
    found = decoding.beam_search(
        padded(sources), 40, beams=beams, length_penalty=alpha, n_best=beams
    )
    assert (np.diff(found.scores)[found.finished[:, 1:]] <= 0).all()
    for source, ids, scores in list(zip(sources, found.ids, found.scores, strict=True))[::2]:
        answers = [row[row > 0].tolist() for row in ids]
        assert len({tuple(answer) for answer in answers}) == beams  # none twice
        expected = log_probabilities(transformer, source, answers)
        expected /= [length_penalty(len(answer), alpha) for answer in answers]
        np.testing.assert_allclose(scores, expected, atol=1e-4)
    # `score` says the same of the best answers, all sources at once.
    best = found.ids[:, 0]
    penalties = length_penalty((best > 0).sum(axis=1), alpha)
    log_p = decoding.score(padded(sources), best).sum(axis=1)
    np.testing.assert_allclose(log_p / penalties, found.scores[:, 0], atol=1e-4)


def test_a_finished_hypothesis_is_not_pushed_out_by_one_that_was_extended():
    """Ending at once has probability 0.4; every longer answer has less than a tenth of that.

    A sampler that keeps the finished one among the live ones loses it as soon as enough
    extensions rank above it, or continues to extend it.
    """
    size = 6
    first = np.log([1e-9, 1e-9, 1e-9, 0.4, 0.3, 0.3]).astype("float32")
    later = np.log([1e-9, 1e-9, 1e-9, 0.04, 0.48, 0.48]).astype("float32")

    def next_logits(position, ids):
        ids = keras.ops.expand_dims(ids, -1)
        return keras.ops.where(ids == kt.START, first, later) + keras.ops.zeros(
            (*ids.shape[:2], size)
        )

    found = kt.Decoding(Scripted(next_logits)).beam_search(
        padded([[4, 3]]), 12, beams=2, length_penalty=0.0, n_best=2
    )
    assert found.ids[0, 0].tolist() == [kt.END] + [0] * 11
    np.testing.assert_allclose(found.scores[0, 0], np.log(0.4), atol=1e-5)


def test_many_poor_ends_do_not_stop_a_search_that_a_live_hypothesis_can_win():
    """Two of two beams have ended, improbably, before the probable answer does."""
    early = np.log([1e-9, 1e-9, 1e-9, 0.06, 0.93, 0.01]).astype("float32")
    late = np.log([1e-9, 1e-9, 1e-9, 0.98, 0.01, 0.01]).astype("float32")

    def next_logits(position, ids):
        logits = keras.ops.where(position < 2, early, late)
        return logits + keras.ops.zeros((*ids.shape, 6))

    found = kt.Decoding(Scripted(next_logits)).beam_search(
        padded([[4, 3]]), 9, beams=2, length_penalty=0.0
    )
    assert found.ids[0, 0, :4].tolist() == [4, 4, kt.END, 0]
    np.testing.assert_allclose(found.scores[0, 0], np.log(0.93 * 0.93 * 0.98), atol=1e-4)


def test_a_search_continues_while_a_live_hypothesis_can_still_win():
    """Ending at once is the best start, but two tokens, nearly sure, win by their length."""
    first = np.log([1e-9, 1e-9, 1e-9, 0.5, 0.49, 0.01]).astype("float32")
    then = np.log([1e-9, 1e-9, 1e-9, 0.98, 0.01, 0.01]).astype("float32")

    def next_logits(position, ids):
        ids = keras.ops.expand_dims(ids, -1)
        return keras.ops.where(ids == kt.START, first, then) + keras.ops.zeros((*ids.shape[:2], 6))

    def best(**search):
        found = kt.Decoding(Scripted(next_logits)).beam_search(padded([[4, 3]]), 9, **search)
        return found.ids[0, 0, :2].tolist()

    assert best(beams=2, length_penalty=0.0) == [kt.END, 0]
    assert best(beams=2, length_penalty=1.0) == [4, kt.END]
    assert best(beams=1, length_penalty=1.0) == [kt.END, 0]  # one beam is greedy


@pytest.mark.parametrize("forced", [True, False])
@pytest.mark.parametrize("size", [5, 40, 8000, 7919])  # fewer than k; few; in blocks; a prime
def test_the_best_tokens_are_found_by_blocks_too(size, forced):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3, 2, size)).astype("float32")
    logits[:, :, [*NEVER_WRITTEN, kt.END]] += 9  # the best are not allowed
    normalizer = rng.normal(size=(3, 2)).astype("float32")
    prefix = np.array([[0, 0, 0], [0, 0, size - 1], [0, 4, 0]], "int32") if forced else None
    allowed = constraints.Constraints(np.full(3, 9), np.array([9, 2, 2]), prefix)
    given = backend.to_tensors((logits, allowed, normalizer))
    best, which = map(array, constraints.top_tokens(given[0], 8, 2, *given[1:]))
    logits[:, :, list(NEVER_WRITTEN)] = IMPOSSIBLE
    logits[0, :, kt.END] = IMPOSSIBLE  # too short
    if forced:
        logits[1, :, :-1] = IMPOSSIBLE  # another token is forced
    expected = (logits - normalizer[..., None]).reshape(3, -1)
    order = np.argsort(-expected, axis=-1, kind="stable")[:, :8]
    ranked = np.take_along_axis(expected, order, axis=-1)
    np.testing.assert_allclose(best, ranked, rtol=1e-6)
    possible = ranked > IMPOSSIBLE / 2
    np.testing.assert_array_equal(which[possible], order[possible])
    assert kt.END in which[2]


@pytest.mark.slow
def test_neighbors_and_filler_change_no_search(post_norm):
    sources = some_sources()
    limits = np.array([40] * len(sources) + [0])
    together = post_norm.beam_search(padded([*sources, []], 16), limits, beams=3, n_best=3)
    for n, source in enumerate(sources):
        alone = post_norm.beam_search(padded([source], 8), 40, beams=3, n_best=3)
        np.testing.assert_array_equal(together.ids[n], alone.ids[0])
        np.testing.assert_allclose(together.scores[n], alone.scores[0], atol=1e-4)
    assert not together.ids[-1].any()
    assert not together.finished[-1].any()


@pytest.mark.slow
def test_a_cache_that_grew_changes_nothing(decoding, monkeypatch):
    source_ids = padded(some_sources())
    searches = [
        lambda: decoding.greedy(source_ids, 40),
        lambda: decoding.beam_search(source_ids, 40, beams=3).ids,
    ]
    whole = [search() for search in searches]
    assert any((ids[..., 32:] > 0).any() for ids in whole)  # past the first cache
    monkeypatch.setattr("keras_transformer.generation.decoding.FIRST_LENGTH", 40)
    for search, expected in zip(searches, whole, strict=True):
        np.testing.assert_array_equal(search(), expected)


def test_an_answer_has_its_own_minimum_of_tokens_before_the_end():
    decoding, least = kt.Decoding(towards(kt.END)), np.array([0, 1, 4])
    source_ids = padded([[5, 3], [6, 3], [7, 3]])
    for answers in (
        decoding.greedy(source_ids, 6, min_length=least),
        decoding.beam_search(source_ids, 6, beams=3, min_length=least).ids[:, 0],
    ):
        np.testing.assert_array_equal((answers == kt.END).argmax(axis=1), least)
        np.testing.assert_array_equal((answers > 0).sum(axis=1), least + 1)


def test_a_forbidden_end_never_counts_as_finished_however_wide_the_beam():
    """With four ids one may be written; the forbidden ones, END too, fill the rest of the beam."""
    first, then = np.array([[-1000, 0, -1000, -1000], [-1000, -1000, -1000, 0]], "float32")

    def next_logits(position, ids):
        logits = keras.ops.where(position < 1, first, then)
        return logits + keras.ops.zeros((*ids.shape, 4))

    found = kt.Decoding(Scripted(next_logits)).beam_search(
        padded([[1, 3]]), 2, beams=4, length_penalty=10, n_best=4, min_length=2
    )
    assert not found.finished.any() and found.ids[0, 0].tolist() == [1, 1]
    assert found.scores[0, 0] > -1000


def test_a_stream_is_read_on_in_larger_caches(monkeypatch):
    peaks = 9 * np.eye(VOCABULARY, dtype="float32")[4:11]

    def next_logits(position, ids):
        peak = keras.ops.take(peaks, position % 7, axis=0)
        return peak + keras.ops.zeros((*keras.ops.shape(ids), VOCABULARY))

    monkeypatch.setattr(decoding_module, "FIRST_LENGTH", 2)
    streamed = [int(ids[0]) for ids in kt.Decoding(Scripted(next_logits)).stream([[5, 3]], 11)]
    assert streamed == [4 + n % 7 for n in range(11)]


@pytest.mark.slow
def test_a_prefix_is_written_and_the_rest_is_the_best_after_it(transformer, decoding):
    sources = some_sources()
    source_ids = padded(sources)
    free = decoding.greedy(source_ids, 12)
    prefix = padded([[7, 9], [], [8], [7, 9, 10], [], [5]])
    greedy = decoding.greedy(source_ids, 12, prefix=prefix)
    given = prefix > 0
    np.testing.assert_array_equal(greedy[:, :3][given], prefix[given])
    np.testing.assert_array_equal(greedy[[1, 4]], free[[1, 4]])
    logits = teacher_forced(transformer, source_ids, np.insert(greedy[:, :-1], 0, kt.START, axis=1))
    logits[..., list(NEVER_WRITTEN)] = -np.inf
    follows = greedy[:, 3] > 0
    np.testing.assert_array_equal(greedy[follows, 3], logits[follows, 3].argmax(axis=-1))
    found = decoding.beam_search(source_ids, 12, beams=3, length_penalty=0.0, prefix=prefix)
    np.testing.assert_array_equal(found.ids[:, 0, :3][given], prefix[given])
    log_p = decoding.score(source_ids, found.ids[:, 0]).sum(axis=1)
    np.testing.assert_allclose(found.scores[:, 0], log_p, atol=1e-4)


@pytest.mark.parametrize(
    "search",
    [
        "stream",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("greedy", "sample", "beam_search")),
    ],
)
def test_a_prefix_longer_than_its_limit_is_refused_not_cut(post_norm, search):
    source_ids, prefix = padded(some_sources()[:2]), padded([[7, 9, 10], [8]])
    more = dict(seeds=[1, 2]) if search == "sample" else {}

    def call(max_length):
        return list(getattr(post_norm, search)(source_ids, max_length, prefix=prefix, **more))

    call(3)
    call([3, 1])
    for max_length in (2, [2, 5]):
        with pytest.raises(ValueError, match="prefix_length=3, max_length=2"):
            call(max_length)


def test_a_prefix_as_long_as_its_limit_is_the_answer(post_norm):
    source_ids, prefix = padded(some_sources()[:2]), padded([[7, 9, 10], [8]])
    limits = np.array([3, 1])
    np.testing.assert_array_equal(post_norm.greedy(source_ids, limits, prefix=prefix), prefix)
    found = post_norm.beam_search(source_ids, limits, beams=3, n_best=2, prefix=prefix)
    np.testing.assert_array_equal(found.ids[:, 0], prefix)
    assert not found.finished.any()
    assert not found.ids[:, 1].any()  # nothing else could be written
    assert (found.scores[:, 1] == -np.inf).all()


def test_a_limit_beyond_the_learned_positions_is_refused():
    model = kt.Transformer(9, num_layers=1, d_model=8, num_heads=2, d_ff=8, max_length=6)
    decoding, source_ids = kt.Decoding(model), padded([[4, 5, 3]])
    assert decoding.greedy(source_ids, 6).shape == (1, 6)
    for search in (decoding.greedy, decoding.beam_search):
        with pytest.raises(ValueError, match="at most the 6 positions learned; .* max_length=7"):
            search(source_ids, 7)


# Sampling.

P = np.array([0.3, 0.02, 0.25, 0.2, 0.13, 0.1])  # of UNKNOWN, END and four tokens


def drawn(number=4000, **options):
    """How often each of 8 ids is the first of an answer."""
    logits = np.log(np.insert(P, [0, 1], 1e-9)).astype("float32")
    model = Scripted(lambda position, ids: keras.ops.add(keras.ops.zeros((*ids.shape, 8)), logits))
    source_ids = np.full((number, 1), 4)
    answers = kt.Decoding(model).sample(source_ids, 1, seeds=range(number), **options)
    return np.bincount(answers[:, 0], minlength=8)[[1, 3, 4, 5, 6, 7]]


@pytest.mark.parametrize(
    "options, expected",
    [
        (dict(), P),
        pytest.param(dict(temperature=0.5), P**2, marks=pytest.mark.slow),
        pytest.param(dict(temperature=2.0), P**0.5, marks=pytest.mark.slow),
        (dict(top_k=2), P * [1, 0, 1, 0, 0, 0]),
        (dict(top_p=0.7), P * [1, 0, 1, 1, 0, 0]),  # 0.3 + 0.25 are not enough
        (dict(temperature=1e-37), P * [1, 0, 0, 0, 0, 0]),  # the quotients overflow
        (dict(top_p=1e-37), P * [1, 0, 0, 0, 0, 0]),
        pytest.param(
            dict(top_k=3, top_p=0.5, temperature=2.0),
            P**0.5 * [1, 0, 1, 0, 0, 0],
            marks=pytest.mark.slow,
        ),
        pytest.param(dict(top_p=0.1), P * [1, 0, 0, 0, 0, 0], marks=pytest.mark.slow),  # never none
    ],
    ids=str,
)
def test_frequencies_are_those_of_the_distribution(options, expected):
    counts, expected = drawn(**options), expected / np.sum(expected)
    assert not counts[expected == 0].any()
    possible = expected > 0
    expected = expected[possible] * counts.sum()
    chi_square = ((counts[possible] - expected) ** 2 / expected).sum()
    assert chi_square < 22  # 5 degrees of freedom: one in two thousand; the seeds are fixed


def test_the_same_seed_draws_the_same_and_another_something_else(post_norm):
    sources = some_sources()

    def draw(seeds, sources=sources):
        return post_norm.sample(padded(sources, 8), 20, seeds)

    first = draw([1, 2, 3, 4, 5, 6])
    np.testing.assert_array_equal(draw([1, 2, 3, 4, 5, 6]), first)
    assert (draw([1, 2, 3, 4, 5, 7])[:-1] == first[:-1]).all()
    assert (draw([1, 2, 3, 4, 5, 7])[-1] != first[-1]).any()
    np.testing.assert_array_equal(
        draw([3], sources[2:3])[0], first[2]
    )  # whatever the other rows are


@pytest.mark.slow
def test_a_stream_yields_what_the_whole_search_returns(post_norm):
    source_ids = padded(some_sources())
    streamed = np.stack(list(post_norm.stream(source_ids, 40)), axis=1)
    np.testing.assert_array_equal(
        streamed, post_norm.greedy(source_ids, 40)[:, : streamed.shape[1]]
    )
    seeds = range(len(source_ids))
    streamed = np.stack(list(post_norm.stream(source_ids, 40, search=Sampling(seeds))), axis=1)
    expected = post_norm.sample(source_ids, 40, seeds)
    np.testing.assert_array_equal(streamed, expected[:, : streamed.shape[1]])


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda d, s: d.beam_search(s, 9, beams=0),
            "beams must be an integer of at least 1; received beams=0",
        ),
        (lambda d, s: d.beam_search(s, 9, beams=2, n_best=3), "n_best must be from 1 to beams"),
        (lambda d, s: d.beam_search(s, 9, length_penalty=-1), "length_penalty must be at least 0"),
        (lambda d, s: d.beam_search(s, 9, n_best=0), "n_best must be an integer of at least 1"),
        (lambda d, s: d.greedy(s, 0), "max_length must be at least 1; received max_length=0"),
        (lambda d, s: d.greedy(s, [9, 9, 9, 9, 9, -1]), "max_length must be at least"),
        (lambda d, s: d.greedy(s[0], 9), "source_ids must be"),
        (lambda d, s: d.greedy(s[:0], 9), "source_ids must be"),
        (
            lambda d, s: d.greedy(s + VOCABULARY, 9),
            r"source_ids must be from 0 to 22; received \d+ in row 0",
        ),
        (lambda d, s: d.greedy(s - 1, 9), "received -1 in row 0"),
        (lambda d, s: d.greedy(s, 9, prefix=s + VOCABULARY), "prefix must be from 0 to 22"),
        (lambda d, s: d.greedy(s, 9, prefix=s[:2]), "prefix must have one row per answer"),
        (lambda d, s: d.greedy(s, [9] * 4), "max_length must be an int, or one per row"),
        (lambda d, s: d.greedy(s, 9, min_length=[1] * 4), "min_length must be an int, or one per"),
        (lambda d, s: d.greedy(s, 9, min_length=-1), "min_length must be at least 0"),
        (lambda d, s: d.sample(s, 9, [1]), "seeds must be one per row"),
        (lambda d, s: d.sample(s, 9, range(6), temperature=0), "temperature must be above 0"),
        (lambda d, s: d.sample(s, 9, range(6), top_k=0), "top_k must be an integer of at least 1"),
        (lambda d, s: d.sample(s, 9, range(6), top_p=1.5), "top_p must be above 0 and at most 1"),
    ],
)
def test_a_number_out_of_range_is_named(post_norm, call, message):
    with pytest.raises(ValueError, match=message):
        call(post_norm, padded(some_sources()))


@pytest.mark.slow
def test_the_graph_of_a_search_has_its_own_parameters(post_norm):
    if backend.name() != "tensorflow":
        pytest.skip("TensorFlow traces graphs for other engines")
    import tensorflow as tf

    scores = []
    with backend.portable():
        for alpha in (0.0, 2.0):

            @tf.function(input_signature=[tf.TensorSpec((None, None), "int32")])
            def searched(source_ids, alpha=alpha):
                rows = tf.ones_like(source_ids[:, 0])
                limits = constraints.Constraints(6 * rows, 0 * rows)
                return post_norm.graph(BeamSearch(2, alpha), source_ids, limits).scores

            scores.append(array(searched(padded(some_sources())[:2])))
    assert np.abs(scores[0] - scores[1]).min() > 1e-3
