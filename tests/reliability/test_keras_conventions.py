"""A model of this package is a keras.Model: what Keras offers for one works with it."""

import contextlib
import functools

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import backend, training

SIZES = dict(num_layers=1, d_model=8, num_heads=2, d_ff=8, dropout=0.0)
NAMES = ("source_ids", "target_ids")


def ids(seed):
    return np.random.default_rng(seed).integers(4, 12, (12, 5)).astype("int32")


INPUTS, LABELS = dict(zip(NAMES, (ids(0), ids(1)), strict=True)), ids(2)
WORDS = {"word_ids": ids(0), "character_ids": np.stack([ids(seed) for seed in (1, 2, 3)], axis=-1)}
KINDS = {  # a model, its inputs and labels
    "transformer": (lambda: kt.Transformer(12, **SIZES), INPUTS, LABELS),
    "language_model": (lambda: kt.LanguageModel(12, **SIZES), {"token_ids": ids(0)}, LABELS),
    "tagging_model": (lambda: kt.TaggingModel(12, 12, 12, 3, **SIZES), WORDS, LABELS),
    "classification_model": (
        lambda: kt.ClassificationModel(12, 12, 12, 3, **SIZES),
        WORDS,
        LABELS[:, 0],
    ),
}


def batches(inputs, labels):
    for start in range(0, 12, 4):
        yield {name: x[start : start + 4] for name, x in inputs.items()}, labels[start : start + 4]


@pytest.fixture
def model():
    keras.utils.set_random_seed(0)
    return kt.Transformer(12, **SIZES)


def compiled(model, **options):
    optimizer = options.pop("optimizer", None) or keras.optimizers.Adam(0.01)
    options.setdefault("run_eagerly", backend.name() == "tensorflow")  # a few steps: sooner done
    model.compile(optimizer, kt.TokenCrossEntropy(), metrics=[kt.TokenAccuracy()], **options)
    return model


class Batches(keras.utils.PyDataset):
    def __init__(self, *data):
        super().__init__()
        self.batches = list(batches(*data))

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


def dataset(*data):
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(data).batch(4)


def rows(inputs, labels):
    return [({name: x[n] for name, x in inputs.items()}, labels[n]) for n in range(12)]


def loader(*data):
    import torch

    return torch.utils.data.DataLoader(rows(*data), batch_size=4)


def grain_dataset(*data):
    import grain

    return grain.MapDataset.source(rows(*data)).batch(4).to_iter_dataset()


def tensors(*data):
    return tuple(map(backend.to_tensors, data))


SOURCES = {
    "arrays": (lambda *data: data, None),
    "tensors": (tensors, None),
    "generator": (batches, None),
    "py_dataset": (Batches, None),
    "tf_data": (dataset, "tensorflow"),
    "data_loader": (loader, "torch"),
    "grain": (grain_dataset, "grain"),
}
QUICK = {("transformer", "arrays"), ("transformer", "tf_data"), ("classification_model", "arrays")}
PAIRS = [
    pytest.param(kind, name, marks=[pytest.mark.slow] * ((kind, name) not in QUICK))
    for kind in KINDS
    for name in SOURCES
]


@pytest.fixture(scope="module")
def loss_by_batches():
    """A function: the mean loss of three updates of a model of a kind."""

    @functools.cache
    def loss(kind):
        keras.utils.set_random_seed(0)
        make_model, *data = KINDS[kind]
        model = compiled(make_model())
        return np.mean([float(model.train_on_batch(*batch)[0]) for batch in batches(*data)])

    return loss


@pytest.mark.parametrize("kind, name", PAIRS)
def test_fit_takes_every_source_of_data_and_learns_the_same(kind, name, loss_by_batches):
    make, package = SOURCES[name]
    if package:
        pytest.importorskip(package, exc_type=ImportError)
    expected = loss_by_batches(kind)
    make_model, *data = KINDS[kind]
    keras.utils.set_random_seed(0)
    model, source = compiled(make_model()), make(*data)
    data = {"x": source} if not isinstance(source, tuple) else {"x": source[0], "y": source[1]}
    options = {"batch_size": 4} if isinstance(source, tuple) else {}
    history = model.fit(**data, **options, shuffle=False, verbose=0).history
    assert history["loss"][0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_callbacks_of_keras(model, tmp_path):
    logs = []
    callbacks = [
        keras.callbacks.BackupAndRestore(tmp_path / "backup"),
        keras.callbacks.ModelCheckpoint(tmp_path / "model.keras"),
        keras.callbacks.EarlyStopping("loss", patience=2, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau("loss", patience=2),
        keras.callbacks.LearningRateScheduler(lambda epoch: 0.01 / (1 + epoch)),
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
        keras.callbacks.TerminateOnNaN(),
        keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, log: logs.append(log)),
    ]
    data = dict(x=INPUTS, y=LABELS, batch_size=4, verbose=0)
    history = compiled(model).fit(**data, epochs=2, callbacks=callbacks).history
    assert history["loss"] == [log["loss"] for log in logs] and np.isfinite(history["loss"]).all()
    assert history["learning_rate"] == pytest.approx([0.01, 0.005])
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 3
    loaded = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    expected, found = (each.predict(INPUTS, verbose=0) for each in (model, loaded))
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.slow
def test_a_moving_average_is_swapped_in(model):
    optimizer = keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9)
    callback = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    mean, swapped = [], []

    class ByHand(keras.callbacks.Callback):
        """Reads weights by `self.model`, which on JAX brings them up to date within `fit`."""

        def weights(self):
            variables = self.model.trainable_variables
            return [keras.ops.convert_to_numpy(each).copy() for each in variables]

        def on_train_batch_end(self, batch, logs=None):
            weights = self.weights()
            pairs = zip(mean or weights, weights, strict=True)  # Keras's mean starts after a step
            mean[:] = [0.9 * average + 0.1 * weight for average, weight in pairs]

        def on_epoch_end(self, epoch, logs=None):
            swapped[:] = self.weights()

    data = dict(x=INPUTS, y=LABELS, batch_size=4, verbose=0)
    compiled(model, optimizer=optimizer).fit(**data, callbacks=[callback, ByHand()])
    for found, expected in zip(swapped, mean, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(backend.name() == "torch", reason="Keras on PyTorch has one step per execution")
def test_several_steps_per_execution_learn_the_same(model):
    losses = []
    for steps in (1, 3):
        keras.utils.set_random_seed(0)
        model = kt.Transformer(12, **SIZES)
        compiled(model, steps_per_execution=steps, run_eagerly=False)
        fitted = model.fit(INPUTS, LABELS, batch_size=4, epochs=2, shuffle=False, verbose=0)
        losses.append(fitted.history["loss"])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


@pytest.mark.slow
def test_a_step_is_traced_once_for_each_shape_that_was_announced():
    """By XLA, that is on JAX; TensorFlow's graph has lengths as variables."""
    traced = []

    class Counted(kt.TokenCrossEntropy):
        def call(self, y_true, y_pred):
            traced.append(y_pred.shape)
            return super().call(y_true, y_pred)

    generator = np.random.default_rng(0)
    texts = [generator.integers(4, 12, length).tolist() for length in range(1, 40)]
    train, valid = (kt.TranslationBatches(t, t, num_buckets=3) for t in (texts, texts[:9]))
    assert len(train.shapes) == 3 and "3 shapes (XLA compiles each)" in train.summary()
    model = kt.Transformer(12, **SIZES)
    model.compile("adam", Counted(), jit_compile=backend.prefers_jit())
    model.fit(train, validation_data=valid, epochs=2, shuffle=False, verbose=0)
    programs = {"tensorflow": 2, "jax": len(train.shapes) + len(valid.shapes)}
    symbolic = int(backend.name() == "jax")  # Keras looks at the shapes of a first step
    if backend.name() in programs:  # PyTorch has no program
        assert programs[backend.name()] <= len(traced) <= programs[backend.name()] + symbolic


@pytest.mark.skipif(backend.name() != "jax", reason="JAX alone can forbid transfers")
def test_within_the_steps_nothing_moves_between_host_and_device_unasked(monkeypatch):
    import jax

    within = contextlib.ExitStack()

    class Forbidden(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            within.enter_context(jax.transfer_guard("disallow"))

        def on_train_batch_end(self, batch, logs=None):
            within.close()

    train = kt.TranslationBatches(*([row.tolist() for row in ids(seed)] for seed in (0, 1)))

    def fit():
        model = compiled(kt.Transformer(12, **SIZES))
        model.fit(train, shuffle=False, verbose=0)  # compiles
        callbacks = [Forbidden(), training.TerminateOnNonFinite(), training.Progress(train)]
        model.fit(train, shuffle=False, verbose=0, callbacks=callbacks)

    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    with within, pytest.raises(jax.errors.JaxRuntimeError, match="Disallowed host-to-device"):
        fit()
    # On a GPU, Keras puts each batch on the device while the one before is computed.
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    fit()


def test_accumulated_gradients_are_those_of_one_large_batch(model):
    weights = []
    for size, steps in ((12, None), (4, 3)):
        keras.utils.set_random_seed(0)
        model = kt.Transformer(12, **SIZES)
        optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=steps)
        compiled(model, optimizer=optimizer)
        model.fit(INPUTS, LABELS, batch_size=size, shuffle=False, verbose=0)
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(other, one, atol=1e-6)


def test_an_empty_batch_has_empty_logits(model, numpy):
    empty = {name: x[:0] for name, x in INPUTS.items()}
    assert numpy(model(empty)).shape == (0, 5, 12)
    if backend.name() != "jax":
        return  # TensorFlow's convolution, and Keras's maximum on PyTorch, take no empty batch
    words = kt.ClassificationModel(12, 12, 3, 4, **SIZES)
    inputs = {"word_ids": ids(0)[:0], "character_ids": np.zeros((0, 5, 4), "int32")}
    assert numpy(words(inputs)).shape == (0, 3)


def test_a_part_of_a_model_is_a_model_that_saves(model, tmp_path, numpy):
    part = keras.Model(model.inputs[0], model.get_layer("encoder").output)
    part.save(tmp_path / "part.keras")
    loaded = keras.saving.load_model(tmp_path / "part.keras")
    expected, found = (numpy(each(INPUTS["source_ids"])) for each in (part, loaded))
    np.testing.assert_array_equal(found, expected)


def test_the_summary_counts_every_weight(model):
    lines = []
    model.summary(print_fn=lambda line, **_: lines.append(line))
    assert f"{model.count_params():,}" in "".join(lines)


def test_keras_draws_a_model(model):
    drawn = keras.utils.model_to_dot(model, show_shapes=True, show_layer_names=True)
    text = drawn.to_string()
    for name in ("source_ids", "encoder", "decoder"):
        assert name in text


@pytest.mark.slow
def test_keras_exports_a_model(model, tmp_path, numpy):
    tf = pytest.importorskip("tensorflow", reason="it writes them", exc_type=ImportError)
    if backend.name() == "torch":
        pytest.skip("Keras on PyTorch writes a SavedModel through torch_xla alone")
    model.export(tmp_path / "served", format="tf_saved_model", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "served"))
    inputs = {name: x[:3, :4] for name, x in INPUTS.items()}
    np.testing.assert_allclose(served.serve(inputs).numpy(), numpy(model(inputs)), atol=1e-5)
