import keras
import numpy as np
import pytest

import oracle
from keras_transformer.training import WarmupSchedule, paper_optimizer


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
