"""SimCut: which tokens are cut off, the divergence, the loss, and training with both."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

import keras_transformer as kt
import oracle
from keras_transformer.ids import END, START
from keras_transformer.training import SimCut, kl_divergence
from keras_transformer.training.simcut import TokenCutoff

SMALL = dict(num_layers=1, d_model=8, num_heads=2, d_ff=16, dropout=0.0)
SOURCE = np.array([[5, 6, 7, 3, 0], [8, 3, 0, 0, 0]], "int32")
TARGET = np.array([[2, 4, 9, 6], [2, 5, 0, 0]], "int32")
LABELS = np.array([[4, 9, 6, 3], [5, 3, 0, 0]], "int32")
IDS = {"source_ids": SOURCE, "target_ids": TARGET}
# 0 where a token is drawn to be cut off, by the length of the rows; of both passes.
DRAWN = {
    5: np.array([[0, 1, 0, 1, 1], [0, 1, 1, 1, 1], [1, 0, 0, 0, 1], [0, 0, 1, 1, 0]], "float32"),
    4: np.array([[1, 0, 0, 1], [1, 1, 1, 1], [0, 1, 0, 1], [0, 1, 1, 0]], "float32"),
}
ALL = 1 - 1e-7  # the largest rate, of which float32 makes 1


def divergence(logits):
    """KL(p || q), from its definition, in float64."""
    p, q = oracle.softmax(np.asarray(logits, "float64"))
    return (p * np.log(p / q)).sum(-1)


def tensors(inputs):
    return {name: ops.convert_to_tensor(ids) for name, ids in inputs.items()}


def loss_of(model, inputs, labels, logits, **kwargs):
    model.compile(keras.optimizers.SGD(), kt.TokenCrossEntropy(0.1))
    return model.compute_loss(inputs, ops.convert_to_tensor(labels), logits, **kwargs)


def test_the_divergence_by_hand(numpy):
    # p = (1/2, 1/2), q = (3/4, 1/4): log(2/3) / 2 + log(2) / 2; the other way it is 0.131.
    logits = np.log([[[[0.5, 0.5]]], [[[0.75, 0.25]]]]).astype("float32")
    assert numpy(kl_divergence(logits)).item() == pytest.approx(np.log(4 / 3) / 2, rel=1e-5)


def test_the_gradient_goes_through_both_passes(gradients, normal):
    logits, weights = normal(2, 2, 3, 5), normal(2, 3, seed=1)

    def weighted(x):
        return ops.sum(ops.multiply(kl_divergence(x), weights))

    (found,) = gradients(weighted, logits)
    expected = oracle.numerical_gradient(lambda x: (divergence(x) * weights).sum(), logits)
    assert all(np.abs(each).max() > 0.1 for each in expected)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_given_share_of_the_second_half_is_cut_off_whole_each_time(numpy, normal):
    ids = np.random.default_rng(1).integers(4, 9, (200, 50)).astype("int32")
    ids[:, 0], ids[:, -1] = START, END
    x, layer = normal(200, 50, 3), TokenCutoff(0.3, kept=(START, END))
    found, again = (numpy(layer(ops.convert_to_tensor(x), ids)) for _ in range(2))
    cut = (found == 0).all(-1)
    np.testing.assert_array_equal(found, np.where(cut[..., None], 0, x))  # whole, not scaled
    assert not cut[:100].any() and not cut[:, [0, -1]].any()
    assert cut[100:, 1:-1].mean() == pytest.approx(0.3, abs=0.03)
    assert 0.3 < ((again == 0).all(-1) != cut)[100:, 1:-1].mean() < 0.54  # 2 x 0.3 x 0.7
    half = layer(ops.cast(x, "bfloat16"), ids)
    assert keras.backend.standardize_dtype(half.dtype) == "bfloat16"


@pytest.mark.parametrize(
    "target_size, weighted", [(None, True), pytest.param(13, False, marks=pytest.mark.slow)]
)
def test_passes_and_loss_equal_the_oracle(
    monkeypatch, randomize, weights_of, numpy, target_size, weighted
):
    model = SimCut(randomize(kt.Transformer(11, target_size, **SMALL)), alpha=2.0)
    monkeypatch.setattr(
        keras.random, "dropout", lambda x, rate, seed: ops.convert_to_tensor(DRAWN[x.shape[1]])
    )
    logits = model(tensors(IDS), training=True)

    weights = weights_of(model.transformer)
    sides = "source_embedding", "target_embedding"
    sizes = {side: len(weights[side]) for side in sides}
    zeros = {side: np.vstack([weights[side], np.zeros((1, 8))]) for side in sides}
    cut = [
        np.where((DRAWN[ids.shape[1]][2:] == 0) & (ids > END), sizes[side], ids)
        for ids, side in zip((SOURCE, TARGET), sides, strict=True)
    ]
    assert [(ids >= 11).sum() for ids in cut] == [3, 1]
    expected = np.stack(
        [
            oracle.transformer(SOURCE, TARGET, weights, 2),
            oracle.transformer(*cut, weights | zeros, 2)[..., :-1],
        ]
    )
    np.testing.assert_allclose(numpy(logits)[:, LABELS > 0], expected[:, LABELS > 0], atol=1e-4)

    importance = np.array([[1, 0, 3, 0.5], [2, 0, 9, 9]]) if weighted else np.ones((2, 4))
    total = 0.0
    for row, column in np.argwhere(LABELS > 0):
        at = slice(row, row + 1), slice(column, column + 1)
        nats = oracle.label_smoothed_cross_entropy(expected[0][at], LABELS[at], 0.1)
        nats += 2.0 * divergence(expected[:, row, column])
        total += importance[row, column] * nats
    sample_weight = ops.convert_to_tensor(importance.astype("float32")) if weighted else None
    found = loss_of(model, IDS, LABELS, logits, sample_weight=sample_weight)
    real = importance[LABELS > 0].sum()
    assert numpy(found) == pytest.approx(total / real, rel=1e-4)


def test_without_cutoff_and_dropout_the_loss_is_the_cross_entropy_alone(randomize, numpy):
    transformer = randomize(kt.Transformer(11, **SMALL))
    model = SimCut(transformer, cutoff=0.0)
    logits = model(tensors(IDS), training=True)
    np.testing.assert_allclose(numpy(kl_divergence(logits)), 0, atol=1e-5)
    alone = kt.TokenCrossEntropy(0.1)(LABELS, transformer(IDS))
    assert numpy(loss_of(model, IDS, LABELS, logits)) == pytest.approx(numpy(alone), rel=1e-5)


def words(seed):
    generator = np.random.default_rng(seed)
    word_ids = generator.integers(1, 20, (2, 6)).astype("int32")
    word_ids[1, 4:] = 0
    characters = generator.integers(1, 9, (2, 6, 4)).astype("int32")
    return {"word_ids": word_ids, "character_ids": characters}


def subwords(*names):
    def subwords(seed):
        ids = np.random.default_rng(seed).integers(4, 20, (2, 6)).astype("int32")
        ids[:, 0], ids[1, 4:] = START, 0
        return dict.fromkeys(names, ids)

    return subwords


OF_WORDS = dict(num_words=20, num_characters=9, num_labels=5, max_characters=4, **SMALL)
MODELS = {
    "translation": (
        functools.partial(kt.Transformer, 20, **SMALL),
        subwords("source_ids", "target_ids"),
    ),
    "language": (functools.partial(kt.LanguageModel, 20, **SMALL), subwords("token_ids")),
    "tagging": (functools.partial(kt.TaggingModel, **OF_WORDS), words),
    "classification": (functools.partial(kt.ClassificationModel, **OF_WORDS), words),
}
OTHERS = "language", "classification"


@pytest.mark.parametrize(
    "name", ["translation", "tagging", *(pytest.param(n, marks=pytest.mark.slow) for n in OTHERS)]
)
def test_with_all_tokens_cut_off_the_second_pass_knows_their_number_alone(name, randomize, numpy):
    make, inputs_of = MODELS[name]
    transformer = randomize(make())
    change = {}
    for rate in (0.0, ALL):
        model = SimCut(transformer, cutoff=rate)
        one, other = (numpy(model(tensors(inputs_of(seed)), training=True)) for seed in (1, 2))
        one, other = (x[:, [0]] for x in (one, other))  # a row without padding
        change[rate] = [np.abs(a - b).max() for a, b in zip(one, other, strict=True)]
        assert np.isfinite([one, other]).all()
    assert min(change[0.0]) > 0.1 and change[ALL][0] > 0.1
    assert change[ALL][1] == pytest.approx(0, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, dtype",
    [
        *((name, "float32") for name in MODELS),
        ("language", "mixed_bfloat16"),
        ("language", "mixed_float16"),
    ],
)
def test_every_model_is_trained_with_it(name, dtype):
    make, inputs_of = MODELS[name]
    keras.utils.set_random_seed(1)
    model, inputs = SimCut(make(dtype=dtype), cutoff=0.2), inputs_of(1)
    ids = inputs.get("word_ids", inputs.get("target_ids", inputs.get("token_ids")))
    labels = {"tagging": (ids > 0) * (ids % 4 + 1), "classification": ids[:, 1] % 4 + 1}
    labels, metrics = labels.get(name, ids), [kt.TokenAccuracy()]
    model.compile(keras.optimizers.Adam(0.01), kt.TokenCrossEntropy(), metrics=metrics)
    rows = [model.evaluate(inputs, labels, verbose=0, return_dict=True)]
    model.fit(inputs, labels, epochs=40, batch_size=2, verbose=0)
    rows.append(model.evaluate(inputs, labels, verbose=0, return_dict=True))
    assert rows[1]["loss"] < 0.8 * rows[0]["loss"]
    assert 0 <= rows[0]["token_accuracy"] <= rows[1]["token_accuracy"] <= 1


def test_evaluation_is_that_of_the_model_even_of_one_that_was_compiled_before():
    transformer, reports = kt.Transformer(11, **SMALL | {"dropout": 0.4}), []
    transformer.compile(keras.optimizers.Adam(), lambda y_true, y_pred: 0.0)
    for model in (SimCut(transformer, cutoff=0.9), transformer):
        model.compile(loss=kt.TokenCrossEntropy(0.1), run_eagerly=True)
        reports.append(model.evaluate(IDS, LABELS, return_dict=True, verbose=0))
    assert reports[0] == pytest.approx(reports[1], rel=1e-5)


@pytest.mark.parametrize(
    "dtype", ["float32", pytest.param("mixed_bfloat16", marks=pytest.mark.slow)]
)
def test_it_comes_back_from_its_file(dtype, tmp_path, numpy):
    model = SimCut(kt.Transformer(11, dtype=dtype, **SMALL), alpha=2.0, cutoff=0.1, name="s")
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert type(again) is SimCut and again.get_config() == model.get_config()
    assert (again.alpha, again.cutoff, again.dtype_policy.name) == (2.0, 0.1, dtype)
    np.testing.assert_array_equal(numpy(again(IDS)), numpy(model(IDS)))
    assert len(model.weights) == len(model.transformer.weights)


def test_what_cannot_be_trained_with_it_is_one_sentence():
    transformer = kt.Transformer(9, **SMALL)
    with pytest.raises(ValueError, match="alpha must be at least 0; received alpha=-1"):
        SimCut(transformer, alpha=-1)
    with pytest.raises(ValueError, match=r"cutoff must be in \[0, 1\); received cutoff=1"):
        SimCut(transformer, cutoff=1)
    ids = keras.Input((None,), dtype="int32")
    other = keras.Model(ids, keras.layers.Embedding(9, 9)(ids), name="other")
    with pytest.raises(ValueError, match="needs a TokenEmbedding or a WordEmbedding.*'other'"):
        SimCut(other)
