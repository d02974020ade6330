"""R-Drop: the divergence of two passes, and training that lowers it."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_transformer as kt
import oracle
from keras_transformer import backend
from keras_transformer.training import RDrop, symmetric_kl_divergence

EAGERLY = not backend.prefers_jit()  # a few steps: on TensorFlow tracing would take longer
SMALL = dict(num_layers=1, d_model=16, num_heads=2, d_ff=32)


def divergence(logits):
    """(KL(p || q) + KL(q || p)) / 2, from the definition of KL, in float64."""
    p, q = oracle.softmax(np.asarray(logits, "float64"))
    one = (p * np.log(p / q)).sum(-1)
    other = (q * np.log(q / p)).sum(-1)
    return (one + other) / 2


@pytest.fixture
def pairs(dates):
    tokenizer = kt.train_tokenizer(dates.train.source + dates.train.target, model_type="char")
    ids = [tokenizer.encode(side[:512]) for side in dates.train]
    return tokenizer.vocabulary_size(), kt.TranslationBatches(*ids, num_buckets=1, shuffle=False)


def next_characters(size, dropout):
    """The least model that learns this task a little: it sees the last character alone."""
    names = "source_ids", "target_ids"
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in names}
    source, target = (keras.layers.Embedding(size, 16)(ids) for ids in inputs.values())
    source = keras.layers.GlobalAveragePooling1D(keepdims=True)(source)
    hidden = keras.layers.Dropout(dropout)(target + source)
    return keras.Model(inputs, keras.layers.Dense(size)(hidden))


def compiled(model, rate=3e-3, **kwargs):
    loss, metrics = kt.TokenCrossEntropy(0.1), [kt.TokenAccuracy(), kt.Perplexity()]
    model.compile(keras.optimizers.Adam(rate), loss, metrics=metrics, **kwargs)
    model.optimizer.build(model.trainable_variables)  # or TensorFlow traces a step twice
    return model


def test_the_divergence_by_hand(numpy):
    # p = (1/2, 1/2), q = (3/4, 1/4): the mean of both directions is log(3) / 8.
    logits = np.log([[[[0.5, 0.5]]], [[[0.75, 0.25]]]]).astype("float32")
    assert numpy(symmetric_kl_divergence(logits)).item() == pytest.approx(np.log(3) / 8, rel=1e-5)


def test_the_divergence_equals_its_definition_and_is_0_for_equal_passes(numpy, normal):
    logits = 3 * normal(2, 4, 5, 7)
    np.testing.assert_allclose(
        numpy(symmetric_kl_divergence(logits)), divergence(logits), rtol=1e-4
    )
    same = np.stack([logits[0], logits[0]])
    np.testing.assert_allclose(numpy(symmetric_kl_divergence(same)), 0, atol=1e-6)


def test_the_gradient_is_that_of_small_differences(gradients, normal):
    logits, weights = normal(2, 2, 3, 5), normal(2, 3, seed=1)

    def weighted(x):
        return ops.sum(ops.multiply(symmetric_kl_divergence(x), weights))

    (found,) = gradients(weighted, logits)
    expected = oracle.numerical_gradient(lambda x: (divergence(x) * weights).sum(), logits)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_without_dropout_a_step_is_that_of_the_model_alone(pairs):
    size, batches = pairs
    alone = kt.Transformer(size, dropout=0.0, **SMALL)
    inside = kt.Transformer(size, dropout=0.0, **SMALL)
    inside.set_weights(alone.get_weights())
    for model in (alone, RDrop(inside, alpha=5.0)):
        model.compile(keras.optimizers.SGD(0.5), kt.TokenCrossEntropy(0.1), run_eagerly=EAGERLY)
        for index in range(3):
            model.train_on_batch(*batches[index])
    for one, other in zip(alone.get_weights(), inside.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


def test_the_loss_is_the_mean_of_both_passes_and_half_alpha_times_their_divergence(pairs, numpy):
    size, batches = pairs
    model = compiled(RDrop(kt.Transformer(size, dropout=0.4, **SMALL), alpha=3.0))
    inputs, labels = batches[0]
    logits = model({name: ops.convert_to_tensor(x) for name, x in inputs.items()}, training=True)
    assert logits.shape == (2, *labels.shape, size)
    found = model.compute_loss(inputs, ops.convert_to_tensor(labels), logits, training=True)
    logits = numpy(logits)
    assert np.abs(logits[0] - logits[1]).max() > 0.1, "both passes dropped the same"
    real = labels > 0
    passes = [oracle.label_smoothed_cross_entropy(each, labels, 0.1) for each in logits]
    expected = np.mean(passes) + 3.0 / 2 * divergence(logits)[real].mean()
    assert numpy(found) == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_a_classifier_with_one_label_a_text_is_trained_with_it_too(numpy):
    generator = np.random.default_rng(3)
    inputs = {
        "word_ids": generator.integers(1, 20, (64, 6)).astype("int32"),
        "character_ids": generator.integers(1, 9, (64, 6, 4)).astype("int32"),
    }
    labels = 1 + inputs["word_ids"].max(axis=1) // 18  # 1, or 2 where one of the last words is
    classifier = kt.ClassificationModel(20, 9, 3, max_characters=4, dropout=0.2, **SMALL)
    model = compiled(RDrop(classifier, alpha=2.0), rate=1e-2)
    tensors = {name: ops.convert_to_tensor(ids) for name, ids in inputs.items()}
    logits = model(tensors, training=True)
    assert logits.shape == (2, 64, 3)
    found = model.compute_loss(inputs, ops.convert_to_tensor(labels), logits, training=True)
    logits = numpy(logits)
    passes = [oracle.label_smoothed_cross_entropy(each, labels, 0.1) for each in logits]
    expected = np.mean(passes) + 2.0 / 2 * divergence(logits).mean()
    assert numpy(found) == pytest.approx(expected, rel=1e-4)
    model.fit(inputs, labels, epochs=30, verbose=0)
    assert model.evaluate(inputs, labels, verbose=0, return_dict=True)["token_accuracy"] > 0.9


@pytest.mark.slow
def test_evaluation_is_that_of_the_model_without_dropout(pairs):
    size, batches = pairs
    transformer = kt.Transformer(size, dropout=0.4, **SMALL)
    reports = [
        compiled(model, run_eagerly=EAGERLY).evaluate(*batches[0], return_dict=True, verbose=0)
        for model in (transformer, RDrop(transformer))
    ]
    assert reports[0] == pytest.approx(reports[1], rel=1e-5)


@pytest.mark.slow
def test_training_with_it_makes_two_passes_agree(pairs, numpy):
    size, batches = pairs
    inputs, labels = batches[0]
    inputs = {name: ops.convert_to_tensor(x) for name, x in inputs.items()}
    apart, perplexity = {}, {}
    for alpha in (0.0, 5.0):
        keras.utils.set_random_seed(1)
        model = compiled(RDrop(next_characters(size, dropout=0.5), alpha), rate=2e-2)
        history = model.fit(batches, epochs=12, shuffle=False, verbose=0).history
        perplexity[alpha] = history["perplexity"]
        logits = numpy(model(inputs, training=True))
        apart[alpha] = divergence(logits)[labels > 0].mean()
    assert perplexity[0.0][-1] < perplexity[0.0][0] / 2
    assert apart[5.0] < apart[0.0] / 2


@pytest.mark.parametrize(
    "dtype", ["float32", pytest.param("mixed_bfloat16", marks=pytest.mark.slow)]
)
def test_it_comes_back_from_its_config(dtype):
    model = RDrop(kt.Transformer(9, dtype=dtype, **SMALL), alpha=2.0, name="r")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(model))
    assert type(again) is RDrop and again.get_config() == model.get_config()
    assert again.alpha == 2.0 and again.dtype_policy.name == dtype
    config = model.get_config()
    assert [RDrop.from_config(config).alpha for _ in range(2)] == [2.0, 2.0]  # it is not consumed


def test_a_negative_alpha_is_an_error():
    model = RDrop(kt.Transformer(9, **SMALL))
    with pytest.raises(ValueError, match="alpha must be at least 0; received alpha=-1"):
        RDrop(model.transformer, alpha=-1)
