import keras
import numpy as np
import pytest

import oracle
from keras_transformer.losses import TokenCrossEntropy
from keras_transformer.metrics import Perplexity, TokenAccuracy

V = 7
LABELS = np.array([[4, 6, 3, 0, 0], [5, 3, 0, 0, 0], [1, 2, 4, 5, 3]], "int32")


@pytest.fixture(scope="module")
def logits(normal):
    return 3 * normal(*LABELS.shape, V)


def dense_nats(logits, labels):
    """-log p_label, (batch, length), in float64."""
    p = oracle.softmax(logits.astype("float64"))
    return -(np.eye(V)[labels] * np.log(p)).sum(axis=-1)


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
