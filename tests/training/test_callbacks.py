"""Checkpoints and their mean, early stopping, scores and progress in the log."""

import shutil

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import backend, evaluation
from keras_transformer.training import (
    EpochCheckpoint,
    Progress,
    RDrop,
    ResumableCSVLogger,
    ResumableEarlyStopping,
    Run,
    TerminateOnNonFinite,
    ValidationScore,
    average_checkpoints,
    checkpoints,
    weight_files,
)


@pytest.fixture
def batches():
    ids = np.random.default_rng(0).integers(4, 11, (24, 5))
    return kt.TranslationBatches(ids, ids[:, ::-1], batch_size=8)


def embeddings():
    """A tiny model with dropout: the callbacks do not look inside."""
    names = "source_ids", "target_ids"
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in names}
    x = keras.layers.add([keras.layers.Embedding(11, 4)(ids) for ids in inputs.values()])
    return keras.Model(inputs, keras.layers.Dense(11)(keras.layers.Dropout(0.1)(x)))


def small_model(make=embeddings):
    model = make()
    eagerly = not backend.prefers_jit()  # a few steps: on TensorFlow tracing would take longer
    model.compile(kt.paper_optimizer(1e-2), kt.TokenCrossEntropy(), run_eagerly=eagerly)
    model.optimizer.build(model.trainable_variables)
    return model


def fitted(model, batches, folder, epochs, **kwargs):
    checkpoint = EpochCheckpoint(folder, batches, **kwargs)
    for span in checkpoint.restore(model, epochs):
        model.fit(batches, **span, shuffle=False, verbose=0, callbacks=[checkpoint])
    return checkpoint


# Errors

NEW = {"adam": (0.1, 0.1), "adamw": (0.1, 0.1), "lion": (0.01, 0.01), "muon": (0.05, 0.1)}


@pytest.mark.parametrize("scaled", [False, True], ids=["", "loss_scale"])
@pytest.mark.parametrize("name", NEW)
def test_an_error_names_the_norm_of_the_running_mean_of_the_gradients(name, scaled):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    optimizer = kt.training.create_optimizer(name, 0.001)
    optimizer.build(model.trainable_variables)
    optimizer.apply([keras.ops.full(v.shape, 4.0) for v in model.trainable_variables])
    model.compile(keras.optimizers.LossScaleOptimizer(optimizer) if scaled else optimizer, "mse")
    callback = TerminateOnNonFinite()
    callback.set_model(model)
    callback.on_epoch_begin(0)
    with pytest.raises(FloatingPointError, match="norm of the mean gradient ") as error:
        callback.on_train_batch_end(0, {"loss": float("nan")})
    of_kernel, of_bias = NEW[name]  # the weight of the newest gradient
    expected = 4.0 * (6 * of_kernel**2 + 3 * of_bias**2) ** 0.5
    found = str(error.value).split("gradient ")[1].split(")")[0]
    assert float(found) == pytest.approx(expected, rel=0.01)


# Checkpoints


def test_the_last_checkpoints_stay_and_no_unfinished_file(batches, tmp_path):
    checkpoint = fitted(small_model(), batches, tmp_path, epochs=4, keep=2)
    names = ["epoch-0003.weights.h5", "epoch-0004.weights.h5"]
    assert [path.name for path in checkpoint.paths] == names
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_weights_that_no_checkpoint_wrote_are_not_removed(batches, tmp_path):
    model = small_model()
    model.save_weights(tmp_path / "epoch-0001.weights.h5")  # as ModelCheckpoint names them
    before = (tmp_path / "epoch-0001.weights.h5").read_bytes()
    checkpoint = EpochCheckpoint(tmp_path, batches)
    checkpoint.set_model(model)
    for epoch in (1, 2, 3):
        checkpoint.on_epoch_end(epoch)
    assert [path.name[:10] for path in checkpoint.paths] == [f"epoch-000{n}" for n in (1, 3, 4)]
    assert checkpoint.paths[0].read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [
        *("city,people\nRome,3\n", "notes", "# a\n\n", ",a,b\n0,1,2\n", "\nmy notes\n", ",a\n"),
        *("12,13\n14,15\n", "epo\n0,1\n", "0,1\n\n2,3\n"),
    ],
)
def test_a_file_that_is_not_a_log_is_refused(tmp_path, content):
    path = tmp_path / "history.csv"
    path.write_text(content, "utf-8")
    with pytest.raises(ValueError, match="history.csv must be a log of epochs"):
        ResumableCSVLogger(path)
    assert path.read_text("utf-8") == content


@pytest.mark.slow
@pytest.mark.parametrize("make", [embeddings, lambda: RDrop(embeddings())], ids=["plain", "r_drop"])
def test_the_mean_is_that_of_the_weights_of_the_epochs(batches, tmp_path, make):
    seen = []

    class Remember(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append([keras.ops.convert_to_numpy(v) for v in self.model.trainable_variables])

    model = small_model(make)
    checkpoint = EpochCheckpoint(tmp_path, batches, keep=3)
    checkpoint.restore(model, epochs=4)
    callbacks = [checkpoint, Remember()]
    model.fit(batches, epochs=4, shuffle=False, verbose=0, callbacks=callbacks)
    average_checkpoints(model, checkpoint.paths)
    assert len(checkpoint.paths) == 3
    for variable, *last in zip(model.trainable_variables, *seen[1:], strict=True):
        assert np.abs(last[0] - last[2]).max() > 1e-4
        expected = np.mean(last, axis=0, dtype="float64")
        np.testing.assert_allclose(keras.ops.convert_to_numpy(variable), expected, atol=1e-6)


def test_a_checkpoint_that_cannot_be_opened_is_not_damaged(batches, tmp_path, monkeypatch):
    checkpoint = fitted(small_model(), batches, tmp_path, epochs=1)
    (path,) = checkpoint.paths

    def refuse(file, *args, **kwargs):
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr(weight_files, "open", refuse, raising=False)
    with pytest.raises(PermissionError, match=path.name):
        EpochCheckpoint(tmp_path, batches)
    assert path.exists()


def test_what_a_kill_left_of_an_earlier_epoch_goes_at_the_end_of_the_next(batches, tmp_path):
    (path,) = fitted(small_model(), batches, tmp_path, epochs=1).paths
    shutil.copy(path, tmp_path / "epoch-0000-batch-0000002.weights.h5")  # when that had ended
    fitted(small_model(), batches, tmp_path, epochs=2)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["epoch-0001.weights.h5", "epoch-0002.weights.h5"]


def test_a_resumed_run_needs_room_for_the_checkpoints_that_are_missing(
    batches, tmp_path, monkeypatch
):
    asked = []
    monkeypatch.setattr(checkpoints, "check_space", lambda *args: asked.append(args[2:]))
    for epochs in (1, 4):
        fitted(small_model(), batches, tmp_path, epochs, keep=2)
    next(EpochCheckpoint(tmp_path, batches, keep=2).restore(small_model(), 5))
    assert [number for (number,) in filter(None, asked)] == [3, 2, 1]


def test_the_mean_is_over_all_checkpoints_that_are_given(tmp_path):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    for value in (1.0, 2.0, 6.0):
        model.set_weights([np.full((1, 1), value), np.array([value])])
        model.save_weights(tmp_path / f"{value}.weights.h5")
    average_checkpoints(model, tmp_path.iterdir())
    np.testing.assert_allclose(np.concatenate(model.get_weights(), None), 3)


def test_it_saves_within_an_epoch_whenever_a_multiple_was_passed(tmp_path, batches):
    checkpoint, saved = EpochCheckpoint(tmp_path, batches, every=4), []
    checkpoint.save_within = lambda epoch, batch: saved.append(batch + 1)
    checkpoint._epoch, checkpoint._done = 0, 0
    for batch in (2, 5, 8, 11, 14, 15):  # as with steps_per_execution=3
        checkpoint.on_train_batch_end(batch)
    assert saved == [6, 9, 12, 16]


def test_after_the_rest_of_an_epoch_training_continues_from_its_weights_not_their_average(
    batches, tmp_path
):
    def averaged():
        model = small_model()
        optimizer = keras.optimizers.Adam(0.1, use_ema=True, ema_momentum=0.9)
        model.compile(optimizer, kt.TokenCrossEntropy(), run_eagerly=not backend.prefers_jit())
        return model

    class Interrupt(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            checkpoint.save_within(0, batch)
            raise KeyboardInterrupt

    checkpoint, model = EpochCheckpoint(tmp_path, batches), averaged()
    span = next(checkpoint.restore(model, 2))
    with pytest.raises(KeyboardInterrupt):
        model.fit(batches, **span, shuffle=False, verbose=0, callbacks=[checkpoint, Interrupt()])
    model, checkpoint = averaged(), EpochCheckpoint(tmp_path, batches)
    spans = checkpoint.restore(model, 2)
    model.fit(batches, **next(spans), shuffle=False, verbose=0, callbacks=[checkpoint])
    average = model.get_weights()
    next(spans)
    now, saved = model.get_weights(), averaged()
    saved.optimizer.build(saved.trainable_variables)
    saved.load_weights(tmp_path / "epoch-0001.weights.h5")
    for one, other in zip(now, saved.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert any((one != other).any() for one, other in zip(now, average, strict=True))


def test_the_mean_of_no_checkpoint_is_an_error():
    with pytest.raises(
        ValueError, match=r"at least one checkpoint to average; received paths=\[\]"
    ):
        average_checkpoints(small_model(), [])


@pytest.mark.slow
def test_a_run_that_keeps_three_checkpoints_resumes_from_the_last(batches, tmp_path):
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


def test_rows_of_a_killed_epoch_are_dropped_and_the_others_are_known(tmp_path):
    path = tmp_path / "history.csv"
    path.write_text("epoch,loss\n0,3.0\n1,2.0\n2,1.0\n")
    log = ResumableCSVLogger(path, initial_epoch=2)
    assert log.past == [{"epoch": "0", "loss": "3.0"}, {"epoch": "1", "loss": "2.0"}]
    assert path.read_text() == "epoch,loss\n0,3.0\n1,2.0\n"
    assert ResumableCSVLogger(tmp_path / "new.csv").past == []


def test_a_log_keeps_its_columns_where_a_resumed_run_logs_more(tmp_path):
    path = tmp_path / "history.csv"
    path.write_text("epoch,loss,val_loss\n0,3.0,4.0\n", "utf-8")
    log = ResumableCSVLogger(path, initial_epoch=1)
    log.set_model(keras.Sequential())
    log.on_train_begin()
    log.on_epoch_end(1, {"loss": 2.0, "seconds": 9.0, "val_loss": 3.0})
    log.on_train_end()
    assert path.read_text("utf-8") == "epoch,loss,val_loss\n0,3.0,4.0\n1,2.0,3.0\n"


@pytest.mark.parametrize(
    "content",
    ["", "\n", "0,3.0\n", "7,3.0\n8,2.0\n", "epo"],
    ids=["empty", "blank", "headless", "headless after 7 epochs", "cut short"],
)
def test_a_log_without_a_header_is_not_a_log(tmp_path, content):
    # An empty file is what keras.callbacks.CSVLogger leaves of a run killed in its first epoch.
    path = tmp_path / "history.csv"
    path.write_text(content, "utf-8")
    log = ResumableCSVLogger(path, initial_epoch=1)
    assert log.past == []
    log.set_model(keras.Sequential())
    log.on_train_begin()
    log.on_epoch_end(1, {"loss": 2.0, "val_loss": 3.0})
    log.on_train_end()
    assert path.read_text("utf-8").splitlines() == ["epoch,loss,val_loss", "1,2.0,3.0"]


@pytest.mark.parametrize("cut", ["1", "\0\0\0\0", "\0,\0"])
def test_a_row_that_a_crash_of_the_machine_cut_short_is_dropped(tmp_path, cut):
    path, rows = tmp_path / "history.csv", "".join(f"{n},1.5\n" for n in range(12))
    path.write_text(f"epoch,loss\n{rows}{cut}", "utf-8")
    assert len(ResumableCSVLogger(path, 12).past) == 12
    assert path.read_text("utf-8") == f"epoch,loss\n{rows}"


def test_a_row_that_a_kill_cut_short_is_dropped(tmp_path):
    path = tmp_path / "history.csv"
    path.write_text("epoch,loss,val_loss\n0,3.0,2.0\n1,2.", "utf-8")
    assert [row["val_loss"] for row in ResumableCSVLogger(path, initial_epoch=1).past] == ["2.0"]
    assert path.read_text("utf-8") == "epoch,loss,val_loss\n0,3.0,2.0\n"


def test_the_score_of_the_same_sentences_is_logged_after_every_epoch(dates, randomize):
    tokenizer = kt.train_tokenizer(dates.test.source + dates.test.target, model_type="char")
    size = tokenizer.vocabulary_size()
    model = kt.Transformer(size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    translator = kt.Translator(randomize(model), tokenizer)
    seen = []

    def score(translations, references):
        seen.append((translations, references))
        return evaluation.Score(12.5, "of the test")

    callback = ValidationScore(translator, dates.test, score, number=3, name="val_x")
    logs = {}
    callback.on_epoch_end(0, logs)
    callback.on_epoch_end(1, {})
    chosen = [0, 66, 133]  # of 200
    assert logs == {"val_x": 12.5} and seen[0] == seen[1]
    assert seen[0][1] == [dates.test.target[i] for i in chosen]
    assert seen[0][0] == translator.translate([dates.test.source[i] for i in chosen])
    assert len(set(seen[0][0])) == 3


def test_a_score_that_fails_does_not_cost_the_epoch(batches, tmp_path):
    class Failing:
        def translate(self, texts):
            raise MemoryError("too long")

    score = ValidationScore(Failing(), kt.data.Examples(["a"], ["b"]), None)
    checkpoint = EpochCheckpoint(tmp_path, batches)
    model, log = small_model(), ResumableCSVLogger(tmp_path / "history.csv")
    for epochs in (1, 2):  # at the end of training, and as the next epoch begins
        with pytest.raises(MemoryError, match="too long"):
            model.fit(batches, epochs=epochs, shuffle=False, verbose=0,
                      callbacks=[score, log, checkpoint])  # fmt: skip
        assert checkpoint.finished_epochs == 1


def test_progress_counts_real_tokens_and_the_minutes_of_all_epochs(batches, monkeypatch):
    clock = iter([100.0, 102.0, 104.0, 106.0])
    progress = Progress(batches)
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    progress.set_params({"epochs": 5, "steps": 3})
    progress.on_epoch_begin(1)
    logs = {}
    progress.on_train_batch_end(0, logs)
    # 24 sentences of 5 ids and END in 3 batches; 2 seconds each; 2 here and 9 later are left.
    assert logs == pytest.approx({"tokens_per_second": 24.0, "minutes_left": 11 * 2 / 60})
    logs = {}
    progress.on_epoch_end(1, logs)
    assert logs == {"tokens_per_second": 24.0, "seconds": 6.0}


def test_progress_of_a_rest_of_an_epoch_counts_that_rest(batches, monkeypatch):
    clock = iter([100.0, 102.0])
    progress = Progress(batches)
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    progress.set_params({"epochs": 5, "steps": 2})  # resumed after one of three batches
    progress.on_epoch_begin(4)
    logs = {}
    progress.on_train_batch_end(0, logs)
    assert logs["minutes_left"] == pytest.approx(2 / 60)
    progress.on_epoch_end(4, logs)
    assert logs["seconds"] == pytest.approx(3 * 2)  # of the whole epoch, as fast as this rest


# Early stopping


def stopped_after(values, first_epoch=0, **kwargs):
    """The number of epochs trained when the log shows these values, and the callback."""
    callback = ResumableEarlyStopping("x", **kwargs)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.stop_training = False
    callback.set_model(model)
    for epoch, value in enumerate(values, start=first_epoch):
        callback.on_epoch_end(epoch, {"x": value})
        if model.stop_training:
            break
    return epoch + 1, callback


def rows(values, key="x"):
    """The log of the first epochs as a CSV file returns it."""
    return [{"epoch": str(epoch), key: str(value)} for epoch, value in enumerate(values)]


def test_training_stops_after_the_given_number_of_epochs_without_improvement():
    assert stopped_after([5, 4, 4.5, 3, 3.5, 3, 9, 1], patience=3)[0] == 7
    assert stopped_after([1, 2, 1.5, 3, 2, 2.5, 9], patience=2, mode="max")[0] == 6
    assert stopped_after([5, 4, 3, 2, 1], patience=1)[0] == 5
    assert not stopped_after([5, 4, 3, 2, 1], patience=1)[1].stopped


def test_the_best_epoch_is_the_first_of_equals_and_never_one_without_a_number():
    assert stopped_after([5, 4, 4.5, 3, 3.5, 3, 9], patience=9)[1].best_epoch == 3
    assert stopped_after([1, 3, 2, 3], patience=9, mode="max")[1].best_epoch == 1
    for mode in ("min", "max"):
        _, callback = stopped_after([np.nan, 2.0, np.nan], patience=2, mode=mode)
        assert callback.best_epoch == 1 and not callback.stopped
    assert ResumableEarlyStopping("x", 1).best_epoch is None


def test_a_resumed_run_remembers_how_long_it_has_waited():
    values = [5, 4, 4.5, 3, 3.5, 3, 9, 1]
    for finished in range(1, 7):
        past = rows(values[:finished])
        epochs, callback = stopped_after(values[finished:], finished, patience=3, past=past)
        assert epochs == 7 and callback.stopped and callback.best_epoch == 3
    assert ResumableEarlyStopping("x", 3, past=rows(values[:7])).stopped


@pytest.mark.slow
def test_the_checkpoint_of_the_best_epoch_stays_until_there_is_a_better_one(batches, tmp_path):
    values = iter([5, 4, 4.5, 4.2, 3, 3.5])
    stopping = ResumableEarlyStopping("x", patience=9)
    checkpoint = EpochCheckpoint(tmp_path, batches, early_stopping=stopping)
    assert checkpoint.best_path is None
    numbers, best = [], []

    class Log(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["x"] = next(values)

    class Look(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            numbers.append([int(path.name[6:10]) for path in checkpoint.paths])
            best.append(int(checkpoint.best_path.name[6:10]))

    model = small_model()
    model.fit(batches, epochs=6, shuffle=False, verbose=0,
              callbacks=[Log(), stopping, checkpoint, Look()])  # fmt: skip
    assert numbers == [[1], [1, 2], [2, 3], [2, 3, 4], [4, 5], [5, 6]]
    assert best == [1, 2, 2, 2, 5, 5]


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(patience=0), "patience must be an integer of at least 1; received patience=0"),
        (dict(patience=1, mode="best"), "mode must be min or max; received mode='best'"),
    ],
)
def test_a_rule_that_cannot_be_is_an_error(options, message):
    with pytest.raises(ValueError, match=message):
        ResumableEarlyStopping("loss", **options)


def test_early_stopping_without_validation_data_is_refused_after_the_first_epoch(batches):
    model = small_model()
    model.compile("sgd", kt.TokenCrossEntropy())
    with pytest.raises(ValueError, match="loss, or fit must be given validation_data; .*val_loss"):
        model.fit(batches, verbose=0, callbacks=[ResumableEarlyStopping("val_loss", 2)])
    assert int(model.optimizer.iterations) == len(batches)


def test_a_number_that_another_callback_logs_may_be_monitored(batches):
    def log(epoch, logs):
        logs["val_x"] = 1.0

    stopping = ResumableEarlyStopping("val_x", 2)
    small_model().fit(batches, verbose=0, shuffle=False, callbacks=[
        keras.callbacks.LambdaCallback(on_epoch_end=log), stopping])  # fmt: skip
    assert stopping.best_epoch == 0


def test_a_monitor_that_does_not_exist_is_named_once_the_checkpoint_is_written(tmp_path, batches):
    run = Run(tmp_path)
    run.begin({}, ["a"])
    callbacks, model = run.callbacks(batches, patience=2, monitor="val_x"), small_model()
    (span,) = run.restore(model, 3)
    with pytest.raises(ValueError, match="monitor must be one of loss.*received monitor='val_x'"):
        model.fit(batches, **span, verbose=0, shuffle=False, callbacks=callbacks)
    assert len(list((tmp_path / "checkpoint").iterdir())) == 1
