"""What the training scripts share: which option goes before which, and what is held out."""

import importlib
import pathlib
import sys
from typing import NamedTuple

import keras
import pytest

from keras_transformer.training import Run

RECIPES = {
    "toy": dict(output="runs/toy", batch_size=8, epochs=2, learning_rate=1e-3, warmup_steps=10),
    "wide": dict(output="runs/wide", preset="base", tokens_per_batch=512, d_ff=96, ema=0.9),
    "pre": dict(output="runs/pre", norm_first=True, rotary=True),
}


@pytest.fixture(scope="module")
def command_line():
    scripts = str(pathlib.Path(__file__).parents[1] / "scripts")
    sys.path.insert(0, scripts)
    try:
        yield importlib.import_module("command_line")
    finally:
        sys.path.remove(scripts)


@pytest.fixture
def parsed(command_line, monkeypatch):
    """The arguments that a script with all groups makes of a command line."""

    def parsed(*words):
        parser = command_line.new_parser("A test.", RECIPES, "toy", "runs/toy")
        command_line.add_vocabulary_options(command_line.add_model_options(parser))
        command_line.add_training_options(parser)
        monkeypatch.setattr(sys, "argv", ["train.py", *map(str, words)])
        return command_line.parse(parser, RECIPES, lambda args: "toy")

    return parsed


def test_the_command_line_goes_before_preset_recipe_and_its_preset(parsed):
    toy = parsed()
    assert (toy.recipe, toy.output, toy.batch_size) == ("toy", "runs/toy", 8)
    assert (toy.d_model, toy.label_smoothing) == (256, 0.1)  # small, and the option's own
    wide = parsed("--recipe", "wide", "--num-heads", "2")
    assert (wide.d_model, wide.d_ff, wide.num_heads, wide.ema) == (512, 96, 2, 0.9)
    tiny = parsed("--recipe", "wide", "--preset", "tiny", "--dropout", "0.5")
    assert (tiny.d_model, tiny.d_ff, tiny.dropout, tiny.tokens_per_batch) == (64, 128, 0.5, 512)


def test_what_a_recipe_turns_on_the_command_line_can_turn_off(parsed, command_line):
    for words, expected in (
        ([], (False, False)),
        (["--norm-first"], (True, False)),
        (["--recipe", "pre"], (True, True)),
        (["--recipe", "pre", "--no-norm-first"], (False, True)),
        (["--recipe", "pre", "--no-rotary"], (True, False)),
    ):
        sizes = command_line.sizes(parsed(*words))
        assert (sizes["norm_first"], sizes["rotary"]) == expected


def test_one_kind_of_batch_and_one_kind_of_mean_replaces_the_other(parsed, capsys):
    args = parsed("--recipe", "wide", "--batch-size", "4", "--average", "2")
    assert (args.batch_size, args.tokens_per_batch) == (4, None)
    assert (args.average, args.ema) == (2, None)
    with pytest.raises(SystemExit):
        parsed("--ema", "0.9", "--average", "2")
    assert "--ema or --average, not both" in capsys.readouterr().err


def test_of_a_resumed_run_only_the_epochs_may_change(parsed, tmp_path):
    begun = parsed("--output", tmp_path, "--learning-rate", "0.5", "--overwrite")
    Run(tmp_path).begin(vars(begun), data=[])
    resumed = parsed("--resume", "--output", tmp_path, "--epochs", "7")
    assert vars(resumed) == {**vars(begun), "resume": True, "epochs": 7}
    with pytest.raises(ValueError, match="keeps its settings.*leave out --d-model, --precision"):
        parsed("--resume", "--output", tmp_path, "--precision", "bfloat16", "--d-model", "2")


def test_a_rate_that_has_fallen_to_0_is_not_resumed(parsed, tmp_path):
    Run(tmp_path).begin(vars(parsed("--output", tmp_path, "--schedule", "cosine")), data=[])
    with pytest.raises(ValueError, match="the rate is 0 after the last epoch; leave out --epochs"):
        parsed("--resume", "--output", tmp_path, "--epochs", "7")


@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize("schedule, end", [("cosine", 0.0), ("paper", 0.5 * (10 / 40) ** 0.5)])
def test_the_rate_has_its_peak_after_the_warm_up_and_then_falls(
    command_line, parsed, numpy, schedule, end, accumulate
):
    words = ("--schedule", schedule, "--learning-rate", "0.5", "--accumulate", accumulate)
    optimizer = command_line.optimizer(parsed(*words), batches=40 * accumulate)
    rates = [float(numpy(optimizer._learning_rate(batch))) for batch in range(40 * accumulate + 1)]
    peak, warm = max(range(len(rates)), key=rates.__getitem__), 10 * accumulate
    assert rates[peak] == pytest.approx(0.5) and peak in (warm - 1, warm)  # the paper's 1 is 0
    assert rates[-2 if schedule == "paper" else -1] == pytest.approx(end, abs=1e-6)


def test_a_running_mean_reaches_as_far_back_with_several_batches_an_update(
    command_line, parsed, numpy
):
    weight, lags = keras.Variable([0.0]), []
    for accumulate in (1, 3):
        words = ("--ema", "0.9", "--learning-rate", "0.1", "--warmup-steps", "1")
        args = parsed(*words, "--accumulate", accumulate)
        optimizer = command_line.optimizer(args, batches=30 * accumulate)
        weight.assign([0.0])
        optimizer.build([weight])
        for _ in range(30 * accumulate):
            optimizer.apply([keras.ops.ones(1)])
        mean = optimizer._model_variables_moving_average[0]
        lags.append(float(numpy(mean - weight)[0]))
    # several batches an update: less than an update later
    assert lags[0] < lags[1] < 1.1 * lags[0]


class Words(NamedTuple):
    words: list
    tags: list


def test_one_in_fifty_is_held_out_of_lists_and_of_tuples_of_lists(command_line):
    numbers = list(range(120))
    train, valid = command_line.held_out(numbers)
    assert valid == [0, 50, 100] and sorted(train + valid) == numbers and train[0] == 1
    train, valid = command_line.held_out(Words(numbers, [str(n) for n in numbers]))
    assert valid == Words([0, 50, 100], ["0", "50", "100"])
    assert isinstance(train, Words) and train.tags == [str(n) for n in train.words]
    assert len(command_line.held_out(list(range(200_000)))[1]) == 1000


@pytest.mark.parametrize("number, received", [(0, "none"), (1, "one")])
def test_of_one_example_none_can_be_held_out(command_line, number, received):
    expected = f"two training lines, one of them .* received {received}. Give more, or --valid-text"
    with pytest.raises(ValueError, match=expected):
        command_line.held_out(["only"] * number, "lines", "--valid-text")
