import json

import keras
import numpy as np
import pytest

import keras_transformer as kt
import oracle
from keras_transformer.generation.constraints import NEVER_WRITTEN

VOCABULARY = 13
SIZES = dict(num_layers=1, d_model=8, num_heads=2, d_ff=16, dropout=0.0)
KINDS = {
    "sinusoids": {},
    "learned": dict(max_length=10, norm_first=True),
    "rotary": dict(rotary=True, num_layers=2),
}
IDS = np.array([[2, 5, 6, 7, 4, 9], [2, 8, 12, 0, 0, 0]], "int32")
PROMPTS = [[], [5], [6, 11, 8], [12, 4]]


@pytest.fixture(
    scope="module",
    params=[pytest.param(kind, marks=[pytest.mark.slow] * (kind == "learned")) for kind in KINDS],
)
def model(request, restless):
    return restless(kt.LanguageModel(VOCABULARY, **{**SIZES, **KINDS[request.param]}))


quickly_with_rotary = pytest.mark.parametrize(
    "model",
    [pytest.param(kind, marks=[pytest.mark.slow] * (kind != "rotary")) for kind in KINDS],
    indirect=True,
)


@pytest.fixture(scope="module")
def decoding(model):
    return kt.Decoding(model)


def logits_of(model, ids):
    return keras.ops.convert_to_numpy(model({"token_ids": np.asarray(ids, "int32")}))


def padded(rows, length):
    return np.array([row + [kt.PADDING] * (length - len(row)) for row in rows], "int32")


def greedy_without_a_cache(logits, prompts, length, never=NEVER_WRITTEN):
    """A whole call for every token: `logits` of ids that begin with START."""
    written = [list(prompt) for prompt in prompts]
    while any(len(row) < length and kt.END not in row for row in written):
        found = logits(padded([[kt.START, *row[: length - 1]] for row in written], length))
        found[..., list(never)] = -np.inf
        for row, of_row in zip(written, found, strict=True):
            if len(row) < length and kt.END not in row:
                row.append(int(of_row[len(row)].argmax()))
    return padded(written, length)


# Logits


@pytest.mark.parametrize("norm_first", [False, True], ids=["post_norm", "pre_norm"])
@pytest.mark.parametrize("rotary", [False, True], ids=["sinusoids", "rotary"])
def test_the_logits_equal_the_oracle(numpy, weights_of, randomize, norm_first, rotary):
    sizes = {**SIZES, "num_layers": 2}
    model = randomize(kt.LanguageModel(11, **sizes, norm_first=norm_first, rotary=rotary))
    ids = np.array([[2, 5, 6, 7, 4], [2, 8, 10, 0, 0]])
    expected = oracle.language_model(ids, weights_of(model), 2, pre_norm=norm_first, rotary=rotary)
    np.testing.assert_allclose(logits_of(model, ids), expected, rtol=1e-5, atol=1e-5)


def test_a_token_changes_no_earlier_logit_and_every_later_one(model):
    other = IDS.copy()
    other[:, 2] = 10
    difference = np.abs(logits_of(model, IDS) - logits_of(model, other)).max(axis=-1)
    assert difference[:, :2].max() == 0
    assert difference[:, 2:].min() > 1e-3


def test_padding_on_the_right_changes_no_logit(model):
    together = logits_of(model, np.pad(IDS, ((0, 0), (0, 3))))
    for row, of_row in zip(IDS, together, strict=True):
        real = row[row > 0]
        np.testing.assert_allclose(of_row[: len(real)], logits_of(model, [real])[0], 1e-5, 1e-5)


def test_logits_are_finite_float32_in_low_precision():
    model = kt.LanguageModel(VOCABULARY, **SIZES, rotary=True, dtype="mixed_bfloat16")
    logits = model({"token_ids": IDS})
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    assert np.isfinite(keras.ops.convert_to_numpy(logits)).all()
    assert model.decoder.blocks[0].compute_dtype == "bfloat16"


# Decoding


@quickly_with_rotary
def test_cached_generation_after_prompts_of_any_length_equals_whole_calls(model, decoding):
    given = dict(source_ids=None, max_length=10, prefix=padded(PROMPTS, 3))
    answers = decoding.greedy(**given, min_length=10)  # no END: more is written
    never = (*NEVER_WRITTEN, kt.END)
    expected = greedy_without_a_cache(lambda ids: logits_of(model, ids), PROMPTS, 10, never)
    np.testing.assert_array_equal(answers, expected)
    assert len({tuple(row) for row in answers}) == 4
    for number, prompt in enumerate(PROMPTS):
        assert answers[number, : len(prompt)].tolist() == prompt
    of_one = decoding.sample(**given, min_length=10, seeds=range(4), top_k=1)
    np.testing.assert_array_equal(of_one, answers)


def test_a_score_is_the_log_softmax_of_the_logits(model, decoding):
    target = np.array([[5, 6, 7, 3], [8, 3, 0, 0]])
    read = np.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=kt.START)
    p = oracle.softmax(logits_of(model, read).astype("float64"))
    expected = np.log(np.take_along_axis(p, target[..., None], axis=-1)[..., 0]) * (target > 0)
    np.testing.assert_allclose(decoding.score(None, target), expected, rtol=1e-4, atol=1e-5)


def test_what_a_beam_writes_after_a_prompt_is_as_probable_as_it_says(restless):
    decoding = kt.Decoding(restless(kt.LanguageModel(VOCABULARY, **SIZES, rotary=True)))
    prompt = np.array([[5], [8]])
    found = decoding.beam_search(None, 6, beams=3, length_penalty=0.0, n_best=3, prefix=prompt)
    for row in range(2):
        assert (found.ids[row, :, 0] == prompt[row]).all()
        assert len(np.unique(found.ids[row], axis=0)) == 3
        scores = decoding.score(None, found.ids[row]).sum(axis=-1)
        np.testing.assert_allclose(found.scores[row], scores, rtol=1e-4)


@quickly_with_rotary
def test_what_is_drawn_depends_on_the_prompt_and_the_seed_of_its_row_alone(decoding):
    def draw(prompts, seeds):
        prefix = padded(prompts, 3)
        return decoding.sample(None, 9, seeds=seeds, temperature=2.0, prefix=prefix).tolist()

    together = draw([[5], [5], [6, 11, 8]], [1, 2, 3])
    assert together[0] != together[1]
    assert draw([[6, 11, 8], [], [5]], [3, 7, 1])[::2] == [together[2], together[0]]


@pytest.mark.slow
def test_a_model_without_a_source_takes_the_batch_from_limits_or_prompts(model, decoding):
    free = decoding.greedy(None, 8)
    assert free.shape == (1, 8)
    several = decoding.greedy(None, [8, 3, 0])
    np.testing.assert_array_equal(several, free * (np.arange(8) < [[8], [3], [0]]))
    prompted = decoding.greedy(None, 8, prefix=[[0], [5]])
    np.testing.assert_array_equal(prompted[0], free[0])
    assert prompted[1, 0] == 5


@pytest.mark.slow
def test_cached_translation_with_rotary_positions_equals_whole_calls(randomize):
    sizes = {**SIZES, "num_layers": 2}
    model = randomize(kt.Transformer(VOCABULARY, **sizes, rotary=True), seed=37)
    source = np.array([[5, 6, 7, 3], [8, 3, 0, 0], [9, 9, 3, 0]])

    def logits(ids):
        return keras.ops.convert_to_numpy(model({"source_ids": source, "target_ids": ids}))

    expected = greedy_without_a_cache(logits, [[], [], []], 8)
    np.testing.assert_array_equal(kt.Decoding(model).greedy(source, 8), expected)
    assert len({tuple(row) for row in expected}) == 3


# Files


@quickly_with_rotary
def test_a_saved_model_comes_back_with_the_same_logits(model, tmp_path):
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded) is kt.LanguageModel
    assert json.dumps(loaded.get_config()) == json.dumps(model.get_config())
    np.testing.assert_allclose(logits_of(loaded, IDS), logits_of(model, IDS), atol=1e-6)
