"""Logits in pieces: the same training as with all logits at once."""

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import backend
from keras_transformer.training import ChunkedLogits

VOCABULARY, SIZES = 30, {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 12}
SOURCE, TARGET, LABELS = np.random.default_rng(0).integers(4, VOCABULARY, (3, 5, 3), "int32")
LABELS[0, 1:] = LABELS[2] = kt.PADDING
SENTENCE_WEIGHTS = np.array([1.0, 0.5, 2.0, 0.0, 3.0], "float32")


def transformer(**options):
    keras.utils.set_random_seed(3)
    model = kt.Transformer(VOCABULARY, **SIZES, **options)
    return model, {"source_ids": SOURCE, "target_ids": TARGET}


def language_model(**options):
    keras.utils.set_random_seed(3)
    return kt.LanguageModel(VOCABULARY, **SIZES, **options), {"token_ids": TARGET[:1]}


def compiled(model, smoothing=0.1):
    model.compile(
        keras.optimizers.SGD(1.0),  # Adam would enlarge differences in rounding
        kt.TokenCrossEntropy(smoothing),
        metrics=[kt.TokenAccuracy(), kt.Perplexity()],
        jit_compile=backend.prefers_jit(),
    )
    backend.seed_dropout(5)
    return model


def trained(model, inputs):
    """The logs of two updates and an evaluation."""
    rows = len(next(iter(inputs.values())))
    labels, weights = LABELS[:rows], SENTENCE_WEIGHTS[:rows]
    logs = [model.train_on_batch(inputs, labels, weights, return_dict=True) for _ in range(2)]
    logs.append(model.evaluate(inputs, labels, batch_size=5, verbose=0, return_dict=True))
    return [{name: float(value) for name, value in each.items()} for each in logs]


@pytest.mark.parametrize(
    "make, options, pieces",
    [
        # 15 tokens: one is missing in the last piece
        pytest.param(transformer, {"dropout": 0.3}, 4, marks=pytest.mark.slow),
        (language_model, {"dropout": 0.0, "logits_bias": True}, 4),  # more pieces than tokens
        pytest.param(transformer, {"dropout": 0.0}, 1, marks=pytest.mark.slow),
    ],
)
def test_losses_metrics_and_updates_are_those_of_all_logits_at_once(make, options, pieces):
    model, inputs = make(**options)
    expected = trained(compiled(model), inputs)
    assert expected[1]["loss"] < expected[0]["loss"]
    other, _ = make(**options)
    found = trained(compiled(ChunkedLogits(other, pieces)), inputs)
    for one, row in zip(found, expected, strict=True):
        assert one == pytest.approx(row, rel=1e-5)
    for one, weight in zip(other.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(one, weight, atol=1e-5)


def test_no_more_than_a_piece_is_computed_at_a_time_and_that_twice(monkeypatch):
    model, inputs = language_model(dropout=0.0)[0], {"token_ids": TARGET}
    pieces, shapes, logits = compiled(ChunkedLogits(model, 4)), [], model.logits

    def recorded(states):
        shapes.append(tuple(states.shape[:-1]))
        return logits(states)

    monkeypatch.setattr(model, "logits", recorded, raising=True)
    pieces.train_on_batch(inputs, LABELS)
    if backend.name() == "torch":
        shapes.clear()  # Keras has also built the metrics
        pieces.train_on_batch(inputs, LABELS)
    assert set(shapes) == {(1, 4)}
    if backend.name() == "torch":  # elsewhere they are traced
        assert len(shapes) == 2 * 4


@pytest.mark.slow
def test_it_is_saved_with_its_model(tmp_path):
    model, inputs = transformer(dropout=0.0)
    ChunkedLogits(model, 4).save(tmp_path / "pieces.keras")
    loaded = keras.saving.load_model(tmp_path / "pieces.keras", compile=False)
    assert loaded.pieces == 4
    expected, found = (compiled(ChunkedLogits(one, 4)) for one in (model, loaded.transformer))
    assert found.evaluate(inputs, LABELS, verbose=0) == pytest.approx(
        expected.evaluate(inputs, LABELS, verbose=0)
    )


@pytest.mark.once
def test_a_file_may_have_its_old_name():
    serialized = keras.saving.serialize_keras_object(ChunkedLogits(transformer()[0], 3))
    serialized["class_name"] = "LogitsInPieces"
    serialized["registered_name"] = "keras_transformer>LogitsInPieces"
    assert keras.saving.deserialize_keras_object(serialized).pieces == 3


def test_another_loss_or_metric_is_refused():
    model = ChunkedLogits(transformer()[0])
    with pytest.raises(ValueError, match="pieces must be an integer of at least 1"):
        ChunkedLogits(transformer()[0], 0)
    with pytest.raises(ValueError, match="need a TokenLoss .* received given='mse'"):
        model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="need a TokenMean .* received given='accuracy'"):
        model.compile("sgd", kt.TokenCrossEntropy(), ["accuracy"])
    with pytest.raises(ValueError, match="have no weighted metrics"):
        model.compile("sgd", kt.TokenCrossEntropy(), weighted_metrics=[kt.Perplexity()])
    model.compile("sgd", kt.TokenCrossEntropy(), metrics=None)
