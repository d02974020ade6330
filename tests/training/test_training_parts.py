"""Loss, metrics, schedule and optimizer."""

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
from keras_transformer.losses import TokenCrossEntropy, token_cross_entropy
from keras_transformer.metrics import Perplexity, TokenAccuracy
from keras_transformer.training import WarmupSchedule, paper_optimizer

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


# Loss


def test_smoothed_cross_entropy_by_hand(numpy):
    # p = (1/2, 1/4, 1/4), label 1, smoothing 0.3: q = (0.1, 0.8, 0.1).
    logits = np.log(np.array([[[2.0, 1, 1]]], "float32"))
    expected = 0.1 * np.log(2) + 0.8 * np.log(4) + 0.1 * np.log(4)
    loss = TokenCrossEntropy(label_smoothing=0.3)(np.array([[1]]), logits)
    assert numpy(loss) == pytest.approx(expected, abs=1e-6)
    assert numpy(TokenCrossEntropy()(np.array([[1]]), logits)) == pytest.approx(np.log(4), abs=1e-6)


@SMOOTHING
def test_nats_of_every_token_equal_the_dense_formula(numpy, logits, smoothing):
    nats = numpy(token_cross_entropy(LABELS, logits, smoothing))
    # Sums of terms near 10: 1e-6 of the value is float32 itself.
    np.testing.assert_allclose(nats, dense_nats(logits, LABELS, smoothing), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("above", [0, 1e4])
def test_a_label_of_probability_0_in_float32_costs_its_distance(numpy, above):
    logits = np.array([[[200.0, 0, 200], [0, 200, 0]]], "float32") + above
    nats = numpy(token_cross_entropy(np.array([[1, 1]]), logits))
    np.testing.assert_allclose(nats, [[200 + np.log(2), 0]], rtol=1e-7, atol=0)


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
    assert loss == pytest.approx((np.log(4) + np.log(4) + np.log(2)) / 3, abs=1e-6)


@SMOOTHING
def test_more_padding_changes_no_loss(numpy, normal, logits, smoothing):
    loss = TokenCrossEntropy(smoothing)
    longer = np.concatenate([logits, 50 * normal(3, 4, V, seed=1)], axis=1)
    padded = np.pad(LABELS, [(0, 0), (0, 4)])
    expected = numpy(loss(LABELS, logits))
    assert numpy(loss(padded, longer)) == pytest.approx(expected, abs=1e-6)
    padded[0, 5] = 3
    assert abs(numpy(loss(padded, longer)) - expected) > 0.1


@pytest.mark.parametrize("computed_twice", [False, True], ids=["p_kept", "p_twice"])
@SMOOTHING
def test_the_gradient_is_p_minus_q_per_token_and_exactly_zero_at_padding(
    gradients, logits, smoothing, computed_twice, monkeypatch
):
    monkeypatch.setattr(backend, "fuses", lambda: computed_twice)
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


def test_a_sentence_of_weight_0_is_a_sentence_left_out(numpy, logits):
    loss = TokenCrossEntropy(0.1)
    weighted = numpy(loss(LABELS, logits, sample_weight=np.array([1.0, 0.0, 1.0])))
    assert weighted == pytest.approx(numpy(loss(LABELS[::2], logits[::2])), abs=1e-6)


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
    assert numpy(TokenCrossEntropy()(labels, logits)) == pytest.approx(expected, abs=1e-6)


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
    assert numpy(loss) == pytest.approx(np.log1p(2049 * np.exp(-20.0)), abs=1e-6)


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
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])}
    command = [sys.executable, "-c", ONE_STEP]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    one, two = ([float(x) for x in line.split()] for line in result.stdout.splitlines())
    assert two == pytest.approx(one, rel=1e-5) and one[0] != one[1]


# Metrics


def updated(metric, *updates):
    for update in updates:
        metric.update_state(*update)
    return metric.result()


def test_accuracy_by_hand(numpy):
    # Argmax 1, 2, 0 | 2, 1, 2; labels 1, 1, pad | 2, 1, pad: three hits of four real tokens.
    logits = np.eye(3, dtype="float32")[[[1, 2, 0], [2, 1, 2]]]
    labels = np.array([[1, 1, 0], [2, 1, 0]])
    assert numpy(updated(TokenAccuracy(), (labels, logits))) == 3 / 4


def test_a_tie_for_the_largest_logit_is_a_miss_and_so_is_nan(numpy):
    # Labels 1 and 2 share the largest with another; label 1 falls short; then NaNs; then a hit.
    rows = [[0, 5, 5], [7, 0, 7], [1, 0, 0], [np.nan, 1, 0], [0, np.nan, 0], [0, 2, 1]]
    labels = np.array([[1, 2, 1, 1, 1, 1]])
    accuracy = updated(TokenAccuracy(), (labels, np.array([rows], "float32")))
    assert numpy(accuracy) == pytest.approx(1 / 6)


@pytest.mark.parametrize("size", [3, 5000])
def test_constant_logits_score_0(numpy, size):
    logits = np.full((2, 3, size), 0.5, "float32")
    assert numpy(updated(TokenAccuracy(), (np.array([[1, 2, 0], [2, 1, 1]]), logits))) == 0


def test_accuracy_in_a_large_vocabulary_is_that_of_argmax(numpy, normal):
    logits = normal(4, 5, 3000)
    labels = logits.argmax(-1)
    labels[1] = labels[0]
    hits = (labels == logits.argmax(-1))[labels > 0]
    assert 0 < hits.mean() < 1
    assert numpy(updated(TokenAccuracy(), (labels, logits))) == pytest.approx(hits.mean())


def test_perplexity_by_hand(numpy):
    # Probabilities 1/4, 1/4 and 1/2: the geometric mean of 4, 4 and 2.
    logits = np.log(np.array([[[2, 1, 1], [2, 1, 1]], [[1, 2, 1], [9, 1, 1]]], "float32"))
    perplexity = numpy(updated(Perplexity(), (np.array([[1, 2], [1, 0]]), logits)))
    assert perplexity == pytest.approx((4 * 4 * 2) ** (1 / 3), rel=1e-6)


def test_perplexity_is_of_all_tokens_and_not_a_mean_of_batches(numpy, logits):
    # The first batch is cut to its longest sentence, so that the two differ in length too.
    short, long = (LABELS[:2, :3], logits[:2, :3]), (LABELS[2:], logits[2:])
    nats, real = dense_nats(logits, LABELS), LABELS > 0
    expected = np.exp(nats[real].mean())
    of_batches = [np.exp(nats[rows][real[rows]].mean()) for rows in (slice(0, 2), slice(2, 3))]
    assert abs(np.mean(of_batches) - expected) > 0.1
    assert numpy(updated(Perplexity(), short, long)) == pytest.approx(expected, rel=1e-5)


def test_a_uniform_guess_has_the_perplexity_of_the_vocabulary(numpy):
    perplexity = numpy(updated(Perplexity(), (LABELS, np.zeros((*LABELS.shape, V), "float32"))))
    assert perplexity == pytest.approx(V, rel=1e-6)


def test_accuracy_is_of_all_tokens_whatever_the_length_of_their_batch(numpy):
    # One hit of one token in a batch of 4 places, none of one in a batch of 1.
    hit = np.eye(3, dtype="float32")[[[1, 0, 0, 0]]], np.array([[1, 0, 0, 0]])
    miss = np.eye(3, dtype="float32")[[[2]]], np.array([[1]])
    accuracy = updated(TokenAccuracy(), hit[::-1], miss[::-1])
    assert numpy(accuracy) == 1 / 2


@pytest.mark.parametrize("metric", [TokenAccuracy, Perplexity])
def test_more_padding_changes_no_metric(numpy, normal, logits, metric):
    longer = np.concatenate([logits, normal(3, 4, V, seed=1)], axis=1)
    padded = np.pad(LABELS, [(0, 0), (0, 4)])
    expected = numpy(updated(metric(), (LABELS, logits)))
    assert numpy(updated(metric(), (padded, longer))) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("metric", [TokenAccuracy, Perplexity])
def test_a_sentence_of_weight_0_counts_in_no_metric(numpy, logits, metric):
    weighted = numpy(updated(metric(), (LABELS, logits, np.array([0.0, 1.0, 1.0]))))
    expected = numpy(updated(metric(), (LABELS[1:], logits[1:])))
    assert weighted == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("metric", [TokenAccuracy, Perplexity])
def test_a_metric_of_no_token_is_not_a_number(numpy, logits, metric):
    assert np.isnan(numpy(updated(metric(), (np.zeros_like(LABELS), logits))))


@pytest.mark.parametrize("metric", [TokenAccuracy, Perplexity])
def test_a_reset_metric_has_forgotten(numpy, logits, metric):
    metric = metric()
    updated(metric, (LABELS[:1], logits[:1]))
    metric.reset_state()
    expected = numpy(updated(type(metric)(), (LABELS[1:], logits[1:])))
    assert numpy(updated(metric, (LABELS[1:], logits[1:]))) == pytest.approx(expected, rel=1e-6)


class TwoBatches(keras.utils.PyDataset):
    """Two sentences of 5 places, then one of 7: unlike in size, length and share of padding."""

    ids = (
        np.array([[4, 6, 3, 0, 0], [5, 3, 0, 0, 0]], "int32"),
        np.array([[1, 2, 4, 5, 6, 3, 0]], "int32"),
    )

    def __len__(self):
        return 2

    def __getitem__(self, index):
        labels = self.ids[index]
        return (labels + 1) % V, labels


def test_evaluate_reports_totals_over_batches_with_different_padding(numpy):
    # A bigram model: one embedding is all its logits, so that every number is seen by hand.
    model = keras.Sequential([keras.Input((None,), dtype="int32"), keras.layers.Embedding(V, V)])
    table = np.random.default_rng(0).normal(size=(V, V)).astype("float32")
    model.set_weights([table])
    model.compile(loss=TokenCrossEntropy(0.1), metrics=[TokenAccuracy(), Perplexity()])
    report = model.evaluate(TwoBatches(), return_dict=True, verbose=0)

    batches = [(table[(labels + 1) % V], labels) for labels in TwoBatches.ids]
    nats = np.concatenate([dense_nats(z, labels)[labels > 0] for z, labels in batches])
    hits = np.concatenate([(z.argmax(-1) == labels)[labels > 0] for z, labels in batches])
    losses = [oracle.label_smoothed_cross_entropy(z, labels, 0.1) for z, labels in batches]
    assert len(nats) == 5 + 6
    assert report["perplexity"] == pytest.approx(np.exp(nats.mean()), rel=1e-5)
    assert report["token_accuracy"] == pytest.approx(hits.mean(), rel=1e-6)
    # Keras averages the loss over batches by their number of sentences, 2 and 1.
    assert report["loss"] == pytest.approx((2 * losses[0] + 1 * losses[1]) / 3, rel=1e-5)


# Schedule and optimizer


def equation_3(step, d_model, warmup_steps):
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def test_the_schedule_is_equation_3_with_the_first_step_number_1(numpy):
    schedule = WarmupSchedule(d_model=512, warmup_steps=4000)
    for done in (0, 1, 2, 1999, 3998, 3999, 4000, 100_000):
        expected = equation_3(done + 1, 512, 4000)
        assert numpy(schedule(done)) == pytest.approx(expected, rel=1e-5)
        assert expected == pytest.approx(oracle.learning_rate(done + 1, 512, 4000))


def test_the_schedule_climbs_in_a_line_to_warmup_and_falls_as_the_root(numpy):
    schedule = WarmupSchedule(d_model=64, warmup_steps=100)
    peak = 1 / np.sqrt(64 * 100)
    rates = [numpy(schedule(step - 1)) for step in (1, 50, 99, 100, 101, 400)]
    expected = np.array([1 / 100, 1 / 2, 99 / 100, 1, np.sqrt(100 / 101), 1 / 2]) * peak
    np.testing.assert_allclose(rates, expected, rtol=1e-5)
    assert np.argmax(rates) == 3


def test_the_schedule_takes_what_an_optimizer_counts_with(numpy):
    schedule = WarmupSchedule(8, 10)
    counter = keras.Variable(0, dtype="int32", trainable=False)
    first = equation_3(1, 8, 10)
    for step in (0, 0.0, np.int64(0), counter, keras.ops.convert_to_tensor(0)):
        assert numpy(schedule(step)) == pytest.approx(first, rel=1e-5)
    optimizer = paper_optimizer(schedule)
    optimizer.build([keras.Variable(np.ones(2, "float32"))])
    assert numpy(optimizer.learning_rate) == pytest.approx(first, rel=1e-5)


def test_scale_multiplies_the_schedule_and_a_peak_names_it(numpy):
    scaled = WarmupSchedule(8, 10, scale=3.0)
    assert numpy(scaled(5)) == pytest.approx(3 * equation_3(6, 8, 10), rel=1e-5)
    named = WarmupSchedule.with_peak(0.25, 10)
    assert numpy(named(9)) == pytest.approx(0.25, rel=1e-5)
    assert numpy(named(39)) == pytest.approx(0.25 * np.sqrt(10 / 40), rel=1e-5)


@pytest.mark.parametrize("warmup_steps", [0, -5])
def test_warmup_below_one_step_is_an_error(warmup_steps):
    with pytest.raises(ValueError, match=f"at least 1; received .*{warmup_steps}"):
        WarmupSchedule(8, warmup_steps)


def test_the_optimizer_is_adam_as_in_section_5_3():
    optimizer = paper_optimizer(0.5, clipnorm=1.0)
    assert isinstance(optimizer, keras.optimizers.Adam)
    config = optimizer.get_config()
    assert (config["beta_1"], config["beta_2"], config["epsilon"]) == (0.9, 0.98, 1e-9)
    assert config["learning_rate"] == pytest.approx(0.5) and config["clipnorm"] == 1.0
