import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops

import oracle
from keras_transformer import backend
from keras_transformer.backend import kernels
from keras_transformer.losses import TokenCrossEntropy, token_cross_entropy
from keras_transformer.metrics import Perplexity, TokenAccuracy

V = 7
LABELS = np.array([[4, 6, 3, 0, 0], [5, 3, 0, 0, 0], [1, 2, 4, 5, 3]], "int32")
SMOOTHING = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])


@pytest.fixture(scope="module")
def logits(normal):
    return 3 * normal(*LABELS.shape, V)


def dense_nats(logits, labels, smoothing=0.0):
    """-sum_k q_k log p_k with the distribution q written out, (batch, length), in float64."""
    q = (1 - smoothing) * np.eye(V)[labels] + smoothing / V
    p = oracle.softmax(logits.astype("float64"))
    return -(q * np.log(p)).sum(axis=-1)


def test_smoothed_cross_entropy_by_hand(numpy):
    # p = (1/2, 1/4, 1/4), label 1, smoothing 0.3: q = (0.1, 0.8, 0.1).
    logits = np.log(np.array([[[2.0, 1, 1]]], "float32"))
    expected = 0.1 * np.log(2) + 0.8 * np.log(4) + 0.1 * np.log(4)
    loss = TokenCrossEntropy(label_smoothing=0.3)(np.array([[1]]), logits)
    assert numpy(loss) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert numpy(TokenCrossEntropy()(np.array([[1]]), logits)) == pytest.approx(
        np.log(4), rel=1e-6, abs=1e-6
    )


@SMOOTHING
def test_nats_of_every_token_equal_the_dense_formula(numpy, logits, smoothing):
    nats = numpy(token_cross_entropy(LABELS, logits, smoothing))
    # Sums of terms near 10: 1e-6 of the value is float32 itself.
    np.testing.assert_allclose(nats, dense_nats(logits, LABELS, smoothing), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("above", [0, 1e4])
@pytest.mark.parametrize("nats_of", [token_cross_entropy, backend.cross_entropy])
def test_a_label_of_probability_0_in_float32_costs_its_distance(numpy, nats_of, above):
    logits = np.array([[[200.0, 0, 200], [0, 200, 0]]], "float32") + above
    nats = numpy(nats_of(np.array([[1, 1]]), logits))
    np.testing.assert_allclose(nats, [[200 + np.log(2), 0]], rtol=1e-7, atol=0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_training_has_the_values_and_gradients_of_the_formula(
    numpy, normal, gradients, logits, smoothing, dtype, monkeypatch
):
    weights = normal(*LABELS.shape, seed=1)  # a gradient of its own per token
    low = numpy(ops.cast(logits, dtype)).astype("float64")
    q = (1 - smoothing) * np.eye(V)[LABELS] + smoothing / V
    by_logits = weights[..., None] * (oracle.softmax(low) - q)
    rounded = {"float32": 0, "float16": 2**-11, "bfloat16": 2**-8}[dtype]
    for nats_of, fuses in (
        (token_cross_entropy, False),
        (backend.cross_entropy, False),
        (backend.cross_entropy, True),
    ):
        monkeypatch.setattr(kernels, "fuses", lambda fuses=fuses: fuses)
        nats = nats_of(LABELS, ops.cast(logits, dtype), smoothing)
        assert keras.backend.standardize_dtype(nats.dtype) == "float32"
        expected = dense_nats(low, LABELS, smoothing)
        np.testing.assert_allclose(numpy(nats), expected, rtol=1e-6, atol=2e-6)

        def weighted(x, nats_of=nats_of):
            return ops.sum(ops.multiply(nats_of(LABELS, ops.cast(x, dtype), smoothing), weights))

        (gradient,) = gradients(weighted, logits)
        np.testing.assert_allclose(gradient, by_logits, rtol=rounded, atol=2e-6)


@SMOOTHING
def test_training_and_the_perplexity_compute_the_loss_that_keeps_half_of_the_memory(
    logits, smoothing, monkeypatch
):
    given = []
    monkeypatch.setattr(backend, "cross_entropy", lambda *args: given.append(args) or ops.zeros(3))
    TokenCrossEntropy(smoothing).call(LABELS, logits)
    Perplexity().values(LABELS, logits)
    assert [args[2:] for args in given] == [(smoothing,), ()]


@SMOOTHING
def test_the_loss_equals_the_oracle_and_not_the_mean_over_padding(numpy, logits, smoothing):
    loss = numpy(TokenCrossEntropy(smoothing)(LABELS, logits))
    expected = oracle.label_smoothed_cross_entropy(logits, LABELS, smoothing)
    assert loss == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert abs(loss - dense_nats(logits, LABELS, smoothing).mean()) > 0.01


def test_the_loss_is_the_mean_over_tokens_and_not_over_sentences(numpy):
    # Two tokens of probability 1/4 in one sentence, one of probability 1/2 in the other.
    logits = np.log(np.array([[[2, 1, 1], [2, 1, 1]], [[1, 2, 1], [9, 1, 1]]], "float32"))
    loss = numpy(TokenCrossEntropy()(np.array([[1, 2], [1, 0]]), logits))
    assert loss == pytest.approx((np.log(4) + np.log(4) + np.log(2)) / 3, rel=1e-6, abs=1e-6)


@SMOOTHING
def test_more_padding_changes_no_loss(numpy, normal, logits, smoothing):
    loss = TokenCrossEntropy(smoothing)
    longer = np.concatenate([logits, 50 * normal(3, 4, V, seed=1)], axis=1)
    padded = np.pad(LABELS, [(0, 0), (0, 4)])
    expected = numpy(loss(LABELS, logits))
    assert numpy(loss(padded, longer)) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    padded[0, 5] = 3
    assert abs(numpy(loss(padded, longer)) - expected) > 0.1


@pytest.mark.parametrize("computed_twice", [False, True], ids=["p_kept", "p_twice"])
@SMOOTHING
def test_the_gradient_is_p_minus_q_per_token_and_exactly_zero_at_padding(
    gradients, logits, smoothing, computed_twice, monkeypatch
):
    monkeypatch.setattr(kernels, "fuses", lambda: computed_twice)
    loss = TokenCrossEntropy(smoothing)
    (gradient,) = gradients(lambda logits: loss(LABELS, logits), logits)
    q = (1 - smoothing) * np.eye(V)[LABELS] + smoothing / V
    expected = (oracle.softmax(logits) - q) / (LABELS > 0).sum()
    np.testing.assert_array_equal(gradient[LABELS == 0], 0)
    np.testing.assert_allclose(gradient[LABELS > 0], expected[LABELS > 0], atol=1e-6)


def second_derivative(function, x, direction):
    """d/dx of the inner product of a direction with d function / dx."""
    x, direction = ops.convert_to_tensor(x), ops.convert_to_tensor(direction)
    if backend.name() == "jax":
        import jax

        return jax.grad(lambda x: ops.sum(jax.grad(function)(x) * direction))(x)
    if backend.name() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as outer, tf.GradientTape() as inner:
            outer.watch(x)
            inner.watch(x)
            y = function(x)
            along = ops.sum(inner.gradient(y, x) * direction)
        return outer.gradient(along, x)
    import torch

    (gradient,) = torch.autograd.grad(function(x.requires_grad_()), x, create_graph=True)
    return torch.autograd.grad(ops.sum(gradient * direction), x)[0]


def test_the_second_derivative_is_right_or_refused(numpy, normal, logits):
    direction, loss = normal(*logits.shape, seed=1), TokenCrossEntropy(0.1)
    weights = ops.convert_to_tensor((LABELS > 0) / (LABELS > 0).sum(), "float32")

    def plain(x):  # but for what is linear in the logits
        return ops.sum(ops.logsumexp(x, axis=-1) * weights)

    expected = numpy(second_derivative(plain, logits, direction))
    assert np.abs(expected).max() > 0.01
    if backend.name() == "torch":
        with pytest.raises(RuntimeError, match="no second derivative on PyTorch"):
            second_derivative(lambda x: loss(LABELS, x), logits, direction)
        return
    found = numpy(second_derivative(lambda x: loss(LABELS, x), logits, direction))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_batch_of_nothing_but_padding_costs_0_and_has_a_finite_gradient(numpy, gradients, logits):
    loss, nothing = TokenCrossEntropy(0.1), np.zeros_like(LABELS)
    assert numpy(loss(nothing, logits)) == 0
    (gradient,) = gradients(lambda logits: loss(nothing, logits), logits)
    np.testing.assert_array_equal(gradient, 0)


@pytest.mark.parametrize("shape", [(3,), (3, 1), (3, 5)], ids=str)
def test_a_weight_per_sentence_or_token_counts_in_sum_and_number(numpy, logits, shape):
    weights = np.random.default_rng(1).uniform(0.5, 2.0, shape)
    each = np.broadcast_to(weights.reshape(3, -1), LABELS.shape) * (LABELS > 0)
    expected = (dense_nats(logits, LABELS) * each).sum() / each.sum()
    loss = numpy(TokenCrossEntropy()(LABELS, logits, sample_weight=weights))
    assert loss == pytest.approx(expected, abs=1e-5)


def test_a_weight_per_text_may_be_a_column_as_in_keras(numpy):
    labels, weights = np.array([1, 3, 3, 2]), np.array([1.0, 0.0, 0.5, 2.0])
    logits = np.random.default_rng(1).normal(size=(4, 4)).astype("float32")
    keras_loss = keras.losses.SparseCategoricalCrossentropy(
        True, reduction="mean_with_sample_weight"
    )
    for each in (weights, weights[:, None]):
        loss = numpy(TokenCrossEntropy()(labels, logits, sample_weight=each))
        assert loss == pytest.approx(numpy(keras_loss(labels, logits, each)), rel=1e-6, abs=1e-6)
        metric = Perplexity()
        metric.update_state(labels, logits, sample_weight=each)
        assert numpy(metric.result()) == pytest.approx(np.exp(loss), abs=1e-5)


def test_a_sentence_of_weight_0_is_a_sentence_left_out(numpy, logits):
    loss = TokenCrossEntropy(0.1)
    weighted = numpy(loss(LABELS, logits, sample_weight=np.array([1.0, 0.0, 1.0])))
    assert weighted == pytest.approx(numpy(loss(LABELS[::2], logits[::2])), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_loss_of_low_precision_logits_is_taken_in_float32(numpy, dtype):
    # 5,000 equal logits: log 5,000 needs a sum that neither dtype can hold to 1e-5.
    logits = keras.ops.full((1, 1, 5000), 60.0, dtype)
    loss = TokenCrossEntropy(0.1)(np.array([[1]]), logits)
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"
    assert numpy(loss) == pytest.approx(np.log(5000), abs=1e-4)


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, 2.0])
def test_smoothing_outside_0_to_1_is_an_error(smoothing):
    with pytest.raises(ValueError, match=rf"label_smoothing must be in \[0, 1\); .*={smoothing}"):
        TokenCrossEntropy(smoothing)


def test_a_reduction_is_not_an_argument_because_the_loss_is_always_per_token():
    with pytest.raises(TypeError, match="reduction"):
        TokenCrossEntropy(reduction="sum")


def test_the_loss_comes_back_from_its_config(numpy, logits):
    loss = TokenCrossEntropy(0.3, name="nats")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert type(again) is TokenCrossEntropy and again.get_config() == loss.get_config()
    assert (again.name, again.label_smoothing) == ("nats", 0.3)
    assert numpy(again(LABELS, logits)) == numpy(loss(LABELS, logits))


def test_a_classifier_has_one_label_per_text(numpy, logits):
    # The third text has no label: it counts for nothing.
    labels, logits = np.array([4, 6, 0]), logits[:, 0]
    expected = dense_nats(logits, labels)[:2].mean()
    assert numpy(TokenCrossEntropy()(labels, logits)) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_labels_of_a_classifier_may_have_an_axis_of_1(numpy, logits):
    labels, of_texts, weights = np.array([4, 0, 6]), logits[:, 0], np.array([0.5, 2, 3], "float32")
    for make in (TokenCrossEntropy, TokenAccuracy, Perplexity):
        for weight in (None, weights, weights[:, None]):
            flat = make()(labels, of_texts, None if weight is None else weight.reshape(-1))
            column = make()(labels[:, None], of_texts, weight)
            assert numpy(column) == pytest.approx(float(numpy(flat)), rel=1e-6)


def test_labels_are_not_rounded_to_a_low_precision(numpy):
    # Neither float16 nor bfloat16 can represent 2049.
    logits = np.zeros((1, 1, 2050), "float32")
    logits[0, 0, 2049] = 20.0
    before = keras.config.floatx()
    keras.config.set_floatx("float16")
    try:
        loss = TokenCrossEntropy()(np.array([[2049]]), logits)
    finally:
        keras.config.set_floatx(before)
    assert numpy(loss) == pytest.approx(np.log1p(2049 * np.exp(-20.0)), rel=1e-6, abs=1e-6)


ONE_STEP = """
import tensorflow as tf

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import keras
import numpy as np
import keras_transformer as kt

ids = np.array([[1, 2, 3], [4, 5, 6], [2, 4, 6], [1, 3, 5]])
labels = np.array([[4, 6, 3], [5, 3, 0], [1, 2, 0], [6, 2, 1]])  # as many on each device
both = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
for scope in (tf.device("CPU:0"), both.scope()):
    keras.utils.set_random_seed(1)
    with scope:
        model = keras.Sequential([keras.layers.Embedding(7, 7), keras.layers.Dense(7)])
        model.build((4, 3))
        model.compile(keras.optimizers.SGD(0.5), kt.TokenCrossEntropy(0.1))
    history = model.fit(ids, labels, batch_size=4, epochs=2, shuffle=False, verbose=0).history
    print(*history["loss"], *(np.abs(weight).sum() for weight in model.get_weights()))
"""


@pytest.mark.slow
@pytest.mark.skipif(backend.name() != "tensorflow", reason="a strategy of TensorFlow")
def test_two_devices_report_the_loss_and_reach_the_weights_of_one():
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[1])}
    command = [sys.executable, "-c", ONE_STEP]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    one, two = ([float(x) for x in line.split()] for line in result.stdout.splitlines())
    assert two == pytest.approx(one, rel=1e-5) and one[0] != one[1]


def test_the_formula_is_finite_beside_a_token_that_cannot_be(numpy):
    logits = np.array([[[-np.inf, 1, 2], [-np.inf, 2, 1]]], "float32")
    expected = [[np.log(1 + np.e), np.log(1 + np.e)]]
    nats = numpy(token_cross_entropy(np.array([[1, 2]]), logits))
    np.testing.assert_allclose(nats, expected, rtol=1e-6)
