"""Checkpoints and their mean, early stopping, scores and progress in the log."""

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import evaluation
from keras_transformer.training import (
    Checkpoint,
    EarlyStopping,
    Progress,
    RDrop,
    TrainingLog,
    ValidationScore,
    average_checkpoints,
)
from keras_transformer.writing import write_text, written_beside


@pytest.fixture
def batches():
    ids = np.random.default_rng(0).integers(4, 11, (24, 5))
    return kt.TranslationBatches(ids, ids[:, ::-1], batch_size=8)


def small_model(wrap=lambda model: model):
    transformer = kt.Transformer(11, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    model = wrap(transformer)
    model.compile(kt.paper_optimizer(1e-2), kt.TokenCrossEntropy())
    model.optimizer.build(model.trainable_variables)  # or TensorFlow traces a step twice
    return model


def fitted(model, batches, folder, epochs, **kwargs):
    checkpoint = Checkpoint(folder, batches, **kwargs)
    first = checkpoint.restore(model)
    model.fit(batches, epochs=epochs, initial_epoch=first, shuffle=False, verbose=0,
              callbacks=[checkpoint])  # fmt: skip
    return checkpoint


# Checkpoints


def test_the_last_checkpoints_stay_and_no_unfinished_file(batches, tmp_path):
    checkpoint = fitted(small_model(), batches, tmp_path, epochs=4, keep=2)
    names = ["epoch-0003.weights.h5", "epoch-0004.weights.h5"]
    assert [path.name for path in checkpoint.paths] == names
    assert sorted(path.name for path in tmp_path.iterdir()) == names


@pytest.mark.parametrize("wrap", [lambda model: model, RDrop], ids=["plain", "r_drop"])
def test_the_mean_is_that_of_the_weights_of_the_epochs(batches, tmp_path, wrap):
    seen = []

    class Remember(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append([keras.ops.convert_to_numpy(v) for v in self.model.trainable_variables])

    model = small_model(wrap)
    checkpoint = Checkpoint(tmp_path, batches, keep=3)
    checkpoint.restore(model)
    callbacks = [checkpoint, Remember()]
    model.fit(batches, epochs=4, shuffle=False, verbose=0, callbacks=callbacks)
    average_checkpoints(model, checkpoint.paths)
    assert len(checkpoint.paths) == 3
    for variable, *last in zip(model.trainable_variables, *seen[1:], strict=True):
        assert np.abs(last[0] - last[2]).max() > 1e-4
        expected = np.mean(last, axis=0, dtype="float64")
        np.testing.assert_allclose(keras.ops.convert_to_numpy(variable), expected, atol=1e-6)


def test_of_no_checkpoint_there_is_no_mean():
    with pytest.raises(ValueError, match="at least one checkpoint to average; received none"):
        average_checkpoints(small_model(), [])


def test_a_run_that_keeps_three_goes_on_from_the_last(batches, tmp_path):
    whole = small_model()
    start = whole.get_weights()
    fitted(whole, batches, tmp_path / "whole", epochs=3, keep=3)
    for epochs in (2, 3):
        model = small_model()
        model.set_weights(start)
        fitted(model, batches, tmp_path / "parts", epochs=epochs, keep=3)
    for one, other in zip(whole.trainable_variables, model.trainable_variables, strict=True):
        one, other = (keras.ops.convert_to_numpy(v) for v in (one, other))
        np.testing.assert_allclose(one, other, atol=1e-6)


# The log


def test_rows_of_a_killed_epoch_are_dropped_and_the_others_are_told(tmp_path):
    path = tmp_path / "history.csv"
    path.write_text("epoch,loss\n0,3.0\n1,2.0\n2,1.0\n")
    log = TrainingLog(path, initial_epoch=2)
    assert log.past == [{"epoch": "0", "loss": "3.0"}, {"epoch": "1", "loss": "2.0"}]
    assert path.read_text() == "epoch,loss\n0,3.0\n1,2.0\n"
    assert TrainingLog(tmp_path / "new.csv").past == []


def test_the_score_of_the_same_sentences_is_logged_after_every_epoch(dates, dates_translator):
    said = []

    def score(translations, references):
        said.append((translations, references))
        return evaluation.Score(12.5, "of the test")

    callback = ValidationScore(dates_translator, dates.test, score, number=3, name="val_x")
    logs = {}
    callback.on_epoch_end(0, logs)
    callback.on_epoch_end(1, {})
    spread = [0, 66, 132]  # of 200
    assert logs == {"val_x": 12.5} and said[0] == said[1]
    assert said[0][1] == [dates.test.target[i] for i in spread]
    assert said[0][0] == dates_translator.translate([dates.test.source[i] for i in spread])


def test_progress_counts_real_tokens_and_the_minutes_of_all_epochs(batches, monkeypatch):
    clock = iter([100.0, 102.0, 104.0, 106.0])
    progress = Progress(batches)
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    progress.set_params({"epochs": 5})
    progress.on_epoch_begin(1)
    logs = {}
    progress.on_train_batch_end(0, logs)
    # 24 sentences of 5 ids and END in 3 batches; 2 seconds each; 2 here and 9 later are left.
    assert logs == pytest.approx({"tokens_per_second": 24.0, "minutes_left": 11 * 2 / 60})
    logs = {}
    progress.on_epoch_end(1, logs)
    assert logs == {"tokens_per_second": 24.0}


# Early stopping


def stopped_after(values, **kwargs):
    """The number of epochs trained when the log shows these values, and the callback."""
    callback = EarlyStopping("x", **kwargs)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.stop_training = False
    callback.set_model(model)
    for epoch, value in enumerate(values):
        callback.on_epoch_end(epoch, {"x": value})
        if model.stop_training:
            break
    return epoch + 1, callback


def test_training_ends_when_nothing_became_better_for_so_many_epochs():
    assert stopped_after([5, 4, 4.5, 3, 3.5, 3, 9, 1], patience=3)[0] == 7
    assert stopped_after([1, 2, 1.5, 3, 2, 2.5, 9], patience=2, mode="max")[0] == 6
    assert stopped_after([5, 4, 3, 2, 1], patience=1) [0] == 5  # fmt: skip
    assert not stopped_after([5, 4, 3, 2, 1], patience=1)[1].ended


def test_a_resumed_run_remembers_how_long_it_has_waited():
    values = [5, 4, 4.5, 3, 3.5, 3, 9, 1]
    for finished in range(1, 7):
        past = [{"x": str(value)} for value in values[:finished]]
        done, callback = stopped_after(values[finished:], patience=3, past=past)
        assert finished + done == 7 and callback.ended
    assert EarlyStopping("x", 3, past=[{"x": str(value)} for value in values[:7]]).ended


def test_a_run_that_ended_trains_no_further_batch(batches):
    model = small_model()
    callback = EarlyStopping("loss", 1, past=[{"loss": 1}, {"loss": 2}])
    before = model.get_weights()
    finished = 2
    epochs = finished if callback.ended else 9
    model.fit(batches, epochs=epochs, initial_epoch=finished, shuffle=False, verbose=0,
              callbacks=[callback])  # fmt: skip
    for one, other in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(patience=0), "patience must be an integer of at least 1; received patience=0"),
        (dict(patience=1, mode="best"), "mode must be min or max; received mode='best'"),
    ],
)
def test_a_rule_that_cannot_be_is_an_error(options, message):
    with pytest.raises(ValueError, match=message):
        EarlyStopping("loss", **options)


# Files


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "x.txt"
    write_text(path, "one")
    with pytest.raises(RuntimeError), written_beside(path) as beside:
        beside.write_text("half of t")
        raise RuntimeError
    assert path.read_text() == "one" and list(tmp_path.iterdir()) == [path]
    write_text(path, "two")
    assert path.read_text() == "two" and list(tmp_path.iterdir()) == [path]
