import keras
import numpy as np
import pytest

import keras_transformer as kt
import oracle
from keras_transformer.optimizers import OPTIMIZERS
from keras_transformer.training import (
    WarmupSchedule,
    WSDSchedule,
    create_optimizer,
    paper_optimizer,
)

DECAYING = [name for name in OPTIMIZERS if name != "adam"]
LEARNS = dict(jit_compile=False, run_eagerly=True)  # sooner than a compilation
SIZES = dict(num_layers=1, d_model=8, num_heads=2, d_ff=12, max_length=6)


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


def test_wsd_is_a_line_up_then_constant_then_a_line_down_that_ends_with_the_training(numpy):
    schedule = WSDSchedule(0.5, warmup_steps=4, num_steps=12, decay_steps=5)
    rates = [numpy(schedule(done)) for done in range(14)]
    expected = [1 / 4, 2 / 4, 3 / 4, 1, 1, 1, 1, 1, 4 / 5, 3 / 5, 2 / 5, 1 / 5, 0, 0]
    np.testing.assert_allclose(rates, 0.5 * np.array(expected), rtol=1e-6)


def test_where_warm_up_and_decay_of_wsd_overlap_the_smaller_one_counts(numpy):
    schedule = WSDSchedule(1.0, warmup_steps=10, num_steps=4, decay_steps=4)
    rates = [numpy(schedule(done)) for done in range(4)]
    np.testing.assert_allclose(rates, [1 / 10, 2 / 10, 3 / 10, 1 / 4], rtol=1e-6)


@pytest.fixture(scope="module")
def model():
    model = kt.Transformer(9, **SIZES, logits_bias=True)
    for weight in model.weights:
        weight.assign(np.full(weight.shape, 2.0))
    return model


def after_an_update(model, optimizer, gradient):
    """The weights by their paths; the model keeps its own."""
    before = model.get_weights()
    optimizer.build(model.trainable_variables)
    optimizer.apply([keras.ops.full(v.shape, gradient) for v in model.trainable_variables])
    values = {v.path: keras.ops.convert_to_numpy(v) for v in model.trainable_variables}
    values = {path: value.copy() for path, value in values.items()}
    model.set_weights(before)
    return values


@pytest.mark.parametrize("name", DECAYING)
def test_kernels_alone_decay_by_the_learning_rate_times_the_weight_decay(model, name):
    decay = {"global_clipnorm": 1.0, "weight_decay": 0.5}
    values = after_an_update(model, create_optimizer(name, 0.1, **decay), gradient=0.0)
    assert sum(path.endswith("/kernel") for path in values) == 3 * 4 + 2 * 2
    for path, value in values.items():
        factor = 1 - 0.1 * 0.5 if path.endswith("/kernel") else 1.0
        np.testing.assert_allclose(value, 2.0 * factor, rtol=1e-6, err_msg=path)


def test_without_a_weight_decay_the_step_of_adamw_is_that_of_the_paper(model):
    values = [
        after_an_update(model, optimizer, gradient=3.0)
        for optimizer in (paper_optimizer(0.1), create_optimizer("adamw", 0.1, weight_decay=0.0))
    ]
    for path, value in values[0].items():
        np.testing.assert_allclose(values[1][path], value, rtol=1e-6, err_msg=path)
        assert (value < 1.95).all()


def test_adam_is_the_optimizer_of_the_paper_and_ignores_weight_decay():
    optimizer = create_optimizer("adam", 0.5, 0.3, name="adam")
    assert optimizer.get_config() == paper_optimizer(0.5, name="adam").get_config()


def test_muon_updates_all_but_the_kernels_of_blocks_by_adam(model):
    for each in (model, kt.TaggingModel(9, 8, 5, **SIZES)):
        variables, optimizer = each.trainable_variables, create_optimizer("muon", 0.1)
        optimizer.build(variables)
        pairs = zip(variables, optimizer.adam_velocities, strict=True)
        by_muon = {variable.path for variable, velocity in pairs if velocity is None}
        paths = {variable.path for variable in variables}
        kernels = {p for p in paths if "/block_1/" in p and p.endswith("/kernel")}
        assert kernels and by_muon == kernels


def test_a_step_of_muon_moves_a_kernel_in_all_directions_by_the_same_length(model, numpy):
    generator, optimizer = np.random.default_rng(0), create_optimizer("muon", 0.1, 0.0)
    weight = model.encoder.blocks[0].feed_forward.inner.kernel
    before = numpy(weight).copy()
    optimizer.build([weight])
    optimizer.apply([keras.ops.convert_to_tensor(generator.normal(size=(8, 12)), "float32")])
    lengths = np.linalg.svd(numpy(weight) - before, compute_uv=False)
    weight.assign(before)
    # 0.2 sqrt(12) times 0.7 to 1.2, to which five steps of Newton and Schulz bring a length.
    assert (lengths > 0.1 * 0.2 * 12**0.5 * 0.6).all()
    assert (lengths < 0.1 * 0.2 * 12**0.5 * 1.3).all()


def with_two_vocabularies():
    ids = {"source_ids": [[5, 5, 5, 6, 5, 3]], "target_ids": [[2, 5, 5, 4, 5]]}
    return kt.Transformer(9, 8, **SIZES, dropout=0.0), ids, [[5, 5, 4, 5, 3]]


def with_learned_positions():
    x, positions = keras.Input((3, 8)), keras.Input((3,), dtype="int32")
    y = keras.layers.Dense(6)(kt.LearnedPositionalEncoding(4)(x, positions=positions))
    inputs = {"x": np.random.default_rng(0).normal(size=(1, 3, 8)), "positions": [[2, 2, 1]]}
    return keras.Model({"x": x, "positions": positions}, y), inputs, [[5, 4, 3]]


def with_words_and_characters():
    ids = {"word_ids": [[5, 5, 6]], "character_ids": [[[4, 4, 5], [4, 4, 5], [4, 0, 0]]]}
    return kt.TaggingModel(9, 8, 5, **SIZES, dropout=0.0, max_characters=3), ids, [[1, 1, 2]]


@pytest.mark.parametrize(
    "make", [with_two_vocabularies, with_words_and_characters, with_learned_positions]
)
def test_an_id_that_occurs_more_than_once_has_one_gradient(make, numpy):
    model, inputs, labels = make()
    inputs = {name: np.array(values) for name, values in inputs.items()}
    before = [numpy(variable).copy() for variable in model.trainable_variables]

    def update(optimizer):
        for variable, value in zip(model.trainable_variables, before, strict=True):
            variable.assign(value)
        model.compile(optimizer, kt.TokenCrossEntropy(0.0), **LEARNS)
        model.train_on_batch(inputs, np.array(labels))
        return [b - numpy(v) for b, v in zip(before, model.trainable_variables, strict=True)]

    gradients = update(keras.optimizers.SGD(1.0))
    adam = keras.optimizers.Adam(0.1, beta_2=0.9)
    update(adam)
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        velocity = numpy(adam._velocities[adam._get_variable_index(variable)])
        np.testing.assert_allclose(velocity, 0.1 * gradient**2, 2e-3, 1e-9, err_msg=variable.path)
    clipped = update(keras.optimizers.SGD(1.0, global_clipnorm=0.01))
    assert np.sqrt(sum(np.sum(step**2) for step in clipped)) == pytest.approx(0.01, rel=1e-3)


def test_an_optimizer_that_does_not_exist_is_an_error_that_names_those_that_do():
    with pytest.raises(ValueError, match="one of adam, adamw, lion, muon; received optimizer='sg"):
        create_optimizer("sgd", 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_optimizer_learns_in_each_precision(name, dtype):
    keras.utils.set_random_seed(0)
    model = kt.LanguageModel(9, **SIZES, dropout=0.0, dtype=dtype)
    rate = 0.003 if name == "lion" else 0.01
    model.compile(create_optimizer(name, rate), kt.TokenCrossEntropy(), **LEARNS)
    ids = np.random.default_rng(0).integers(4, 9, (8, 5)).astype("int32")
    losses = model.fit({"token_ids": ids}, ids, epochs=40, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
