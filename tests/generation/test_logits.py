"""Decoding without loops and unwanted words equals a plain loop over tokens."""

import keras
import numpy as np
import pytest

import keras_transformer as kt
import reference_search
from keras_transformer import backend
from keras_transformer.generation import BeamSearch, GreedySearch
from keras_transformer.generation.configuration import LogitsConfig
from keras_transformer.generation.constraints import Constraints
from keras_transformer.generation.sampling import with_length
from keras_transformer.ids import END, PADDING, START
from scripted import Scripted

SIZE, LENGTH = 12, 40
MARGIN = 1e-4  # between any two numbers that are compared: float32 decides as float64 does
# The logits of the next token by position and last token: with a favorite that leads into loops.
RNG = np.random.default_rng(0)
TABLE = RNG.normal(0, 2, (1, SIZE, SIZE)) + RNG.normal(0, 0.3, (LENGTH, SIZE, SIZE))
TABLE[..., END] = RNG.normal(-4, 0.3, (LENGTH, SIZE))
TABLE[:, np.arange(SIZE), np.arange(SIZE) % 3 + 5] += 5
TABLE = TABLE.astype("float32")
OPTIONS = [
    dict(no_repeat_ngram_size=1),
    dict(no_repeat_ngram_size=2),
    dict(no_repeat_ngram_size=3),
    dict(repetition_penalty=1.7),
    dict(repetition_penalty=0.6),
    dict(suppress=[5]),
    dict(suppress=[7, (6, 6), (5, 7, 6)]),
    dict(no_repeat_ngram_size=2, repetition_penalty=1.3, suppress=[(8, 9), 10]),
]
PREFIXES = [(), (6,), (5, 6, 5, 6)]
QUICK, *SLOW = OPTIONS[::-1]
SLOW = [pytest.param(options, marks=pytest.mark.slow) for options in SLOW]
each_option = pytest.mark.parametrize("options", [QUICK, *SLOW], ids=str)


@pytest.fixture(scope="module")
def decoding():
    def next_logits(position, ids):
        table = keras.ops.take(keras.ops.convert_to_tensor(TABLE), position, axis=0)
        return keras.ops.take(table, ids, axis=0)

    return kt.Decoding(Scripted(next_logits))


def plain_logits(written, no_repeat_ngram_size=0, repetition_penalty=1.0, suppress=()):
    """The logits after the penalty, float64, and the set of unwanted tokens."""
    logits = TABLE[len(written), written[-1] if written else START].astype("float64")
    for token in set(written):
        positive = logits[token] > 0
        logits[token] *= 1 / repetition_penalty if positive else repetition_penalty
    sequences = [(each,) if isinstance(each, int) else each for each in suppress]
    size = no_repeat_ngram_size
    sequences += [written[n : n + size] for n in range(len(written) - size + 1) if size]
    unwanted = {
        sequence[-1]
        for sequence in sequences
        if written[len(written) - len(sequence) + 1 :] == sequence[:-1]
    }
    return logits, unwanted


def allowed_logits(written, position, prefix, options):
    """The same, -inf where a token may not be written; all may if none is left."""
    logits, unwanted = plain_logits(written, **options)
    may = [reference_search.allowed(token, position, 0, prefix) for token in range(SIZE)]
    wanted = [ok and token not in unwanted for token, ok in enumerate(may)]
    return np.where(wanted if any(wanted) else may, logits, -np.inf)


def plain_search(choose, prefix, options):
    """One answer, padded with 0."""
    written = ()
    for position in range(LENGTH):
        written += (choose(allowed_logits(written, position, prefix, options), position),)
        if written[-1] == END:
            break
    return [*written, *[PADDING] * (LENGTH - len(written))]


def most_probable(logits, position):
    second, first = np.sort(logits)[-2:]
    assert first - second > MARGIN
    return int(logits.argmax())


def drawn_by(seed):
    """A function that draws the next token by inverse transform sampling."""
    uniforms = np.random.default_rng(seed).random(LENGTH, "float32")

    def draw(logits, position):
        order = np.argsort(-logits)[: np.isfinite(logits).sum()]
        p = np.exp(logits[order] - logits.max())
        cumulative = np.cumsum(p / p.sum())
        assert np.abs(cumulative[:-1] - uniforms[position]).min(initial=1) > MARGIN / 10
        return int(order[(cumulative[:-1] <= uniforms[position]).sum()])

    return draw


def rows_of(prefixes):
    """The source and the prefixes of a batch."""
    longest = max(map(len, prefixes))
    rows = [[*prefix, *[PADDING] * (longest - len(prefix))] for prefix in prefixes]
    return np.full((len(prefixes), 1), END), np.array(rows, "int32")


@each_option
def test_greedy_decoding_equals_a_plain_loop(decoding, options):
    source_ids, prefix = rows_of(PREFIXES)
    found = decoding.greedy(source_ids, LENGTH, prefix=prefix, **options)
    expected = [plain_search(most_probable, each, options) for each in PREFIXES]
    assert found.tolist() == expected
    unprocessed = decoding.greedy(source_ids, LENGTH, prefix=prefix)
    assert unprocessed.tolist() == [plain_search(most_probable, each, {}) for each in PREFIXES]
    assert (found != unprocessed).any()


@each_option
def test_sampling_equals_a_plain_loop(decoding, options):
    source_ids, prefix = rows_of(PREFIXES * 2)
    seeds = range(len(source_ids))
    found = decoding.sample(source_ids, LENGTH, seeds, prefix=prefix, **options)
    for row, seed, each in zip(found.tolist(), seeds, PREFIXES * 2, strict=True):
        assert row == plain_search(drawn_by(seed), each, options)


@each_option
def test_beams_that_change_places_keep_their_own_tokens(decoding, options):
    """The tokens that a hypothesis must not repeat are those of its parents."""
    beams, length = 4, 12
    source_ids, prefix = rows_of(PREFIXES)
    search = dict(beams=beams, length_penalty=0.7, n_best=beams)
    found = decoding.beam_search(source_ids, length, prefix=prefix, **search, **options)
    for n, each in enumerate(PREFIXES):

        def log_probabilities(written, each=each):
            logits, _ = plain_logits(written, **options)
            allowed = allowed_logits(written, len(written), each, options)
            log_p = logits - np.log(np.exp(logits).sum())
            return np.where(np.isfinite(allowed), log_p, -1e9)

        trace = []
        search_one = reference_search.beam_search
        expected = search_one(log_probabilities, length, prefix=each, trace=trace, **search)
        for extensions, finished, bound in trace:
            ranked = [log_p for log_p, _ in extensions[: 2 * beams + 1] if log_p > -1e8]
            scores = sorted([*(score for score, _ in finished), bound])
            for compared in (ranked, scores):
                assert np.abs(np.diff(compared)).min(initial=1) > MARGIN
        ids = [[*ids, *[PADDING] * (length - len(ids))] for ids, _, _ in expected]
        assert found.ids[n].tolist() == ids
        np.testing.assert_allclose(found.scores[n], [s for _, s, _ in expected], atol=1e-3)


@pytest.mark.parametrize("size", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3))])
def test_no_answer_repeats_an_ngram(decoding, size):
    source_ids, _ = rows_of(PREFIXES)
    options = dict(no_repeat_ngram_size=size)
    length = 6 if size == 1 else LENGTH
    answers = [*decoding.greedy(source_ids, length, **options)]
    answers += [*decoding.sample(source_ids, length, range(3), **options)]
    answers += [
        *decoding.beam_search(source_ids, length, n_best=4, **options).ids.reshape(-1, length)
    ]
    for answer in answers:
        ids = answer[answer > 0].tolist()
        ngrams = list(zip(*(ids[n:] for n in range(size)), strict=False))
        assert len(set(ngrams)) == len(ngrams)


def test_a_token_is_written_where_no_other_is_left(decoding):
    """One token beside END, which comes too early: it is repeated, and END follows."""
    suppress = [token for token in range(4, SIZE) if token != 6] + [1]
    options = dict(no_repeat_ngram_size=1, suppress=suppress, min_length=3)
    (answer,) = decoding.greedy([[END]], 9, **options)
    assert answer.tolist()[0] == 6
    assert answer.tolist()[3:] == [END, *[PADDING] * 5]
    assert not {PADDING, START} & set(answer.tolist()[:4])


def test_a_penalty_is_a_number_for_one_program(decoding):
    calls = decoding.model.calls
    answers = []
    for penalty in (1.2, 3.0):
        before = len(calls)
        answers.append(decoding.greedy([[END]], 9, repetition_penalty=penalty).tolist())
        traced = len(calls) - before
    assert answers[0] != answers[1]
    if backend.name() == "jax":
        assert traced == 0


def test_without_options_the_program_has_no_more_operations(decoding, monkeypatch):
    """Nothing looks at the tokens before: the logits stay the very same objects."""
    from keras_transformer.generation import logits

    given, limits = object(), Constraints(None)
    read = []
    assert logits.processed(given, lambda: read.append(1), 0, limits, LogitsConfig()) == (
        given,
        given,
    )
    assert not read


@pytest.mark.parametrize("options", [QUICK, pytest.param(OPTIONS[2], marks=pytest.mark.slow)])
def test_a_graph_for_other_engines_has_the_options(decoding, options):
    if backend.name() != "tensorflow":
        pytest.skip("TensorFlow traces graphs for other engines")
    import tensorflow as tf

    for make in (GreedySearch, BeamSearch):
        config = LogitsConfig(**options)
        penalty = None if config.repetition_penalty == 1 else np.float32(config.repetition_penalty)

        @tf.function(input_signature=[tf.TensorSpec((None, None), "int32")])
        def searched(source_ids, make=make, config=config, penalty=penalty):
            limits = Constraints(9 + 0 * source_ids[:, 0], repetition_penalty=penalty)
            return decoding.graph(make(logits=config), source_ids, limits)

        with backend.portable():
            found = searched(np.full((2, 1), END, "int32"))
        ids = found.ids[:, 0] if make is BeamSearch else found
        expected = decoding.greedy([[END]] * 2, 9, **options)
        if make is BeamSearch:
            expected = decoding.beam_search([[END]] * 2, 9, **options).ids[:, 0]
        ids = with_length(np.array(ids), 9)
        assert ids.tolist() == expected.tolist()


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(no_repeat_ngram_size=-1), "no_repeat_ngram_size must be an integer of at least 0"),
        (dict(repetition_penalty=0.0), "repetition_penalty must be from 0.01 to 100; received"),
        (dict(repetition_penalty=np.nan), "repetition_penalty must be from 0.01 to 100; received"),
        (dict(suppress="ab"), "suppress must be a list of ids or lists of ids; received"),
        (dict(suppress=[()]), "suppress must have texts or ids, none empty; received"),
        (dict(ngram=2), "Options are no_repeat_ngram_size, repetition_penalty, suppress; received"),
    ],
)
def test_an_option_out_of_range_is_named(decoding, options, message):
    with pytest.raises(ValueError, match=message):
        decoding.greedy([[END]], 9, **options)
