"""What a training step needs: parameters and bytes by formula, blocks that are computed again."""

import contextlib
import importlib
import itertools
import math
import pathlib
import sys

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import backend

ROOT = pathlib.Path(__file__).parents[1]
SMALL = {"num_layers": 2, "d_model": 8, "num_heads": 2, "d_ff": 12}
VOCABULARY = 30


@pytest.fixture(scope="module")
def memory():
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        yield importlib.import_module("benchmarks.memory")
    finally:
        sys.path.remove(str(ROOT / "scripts"))


def trained(scope=None):
    """A model after two steps with dropout, and their losses."""
    keras.utils.set_random_seed(3)
    with scope or contextlib.nullcontext():
        model = kt.Transformer(VOCABULARY, **SMALL, dropout=0.3)
    model.compile(
        keras.optimizers.SGD(1.0),  # Adam would enlarge differences in rounding
        kt.TokenCrossEntropy(0.1),
        jit_compile=backend.prefers_jit(),
    )
    backend.seed_dropout(5)
    source, target, labels = np.random.default_rng(0).integers(4, VOCABULARY, (3, 4, 5))
    source[0, 3:] = labels[1, 2:] = kt.PADDING
    inputs = {"source_ids": source.astype("int32"), "target_ids": target.astype("int32")}
    losses = [model.train_on_batch(inputs, labels.astype("int32")) for _ in range(2)]
    return model, [float(loss) for loss in losses]


@pytest.mark.slow
def test_blocks_that_are_computed_again_train_as_blocks_that_are_kept(memory, monkeypatch):
    calls, remat = [], keras.remat
    monkeypatch.setattr(keras, "remat", lambda function: calls.append(1) or remat(function))
    kept, losses = trained()
    assert not calls
    config = kt.TransformerConfig(**SMALL)
    scope = keras.RematScope(mode="list_of_layers", layer_names=memory.blocks(config))
    again, losses_again = trained(scope)
    assert len(calls) >= 4  # blocks of the encoder and of the decoder
    np.testing.assert_allclose(losses_again, losses, rtol=1e-6)
    for one, other in zip(again.get_weights(), kept.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert losses[0] != losses[1]


def test_a_model_is_not_rematerialized_as_a_whole():
    with pytest.raises(ValueError, match=r"by their names; received .*mode='full'"):
        trained(keras.RematScope(mode="full"))


@pytest.mark.parametrize(
    "accumulate, ema",
    [(False, False), (True, True)],
)
def test_the_formula_counts_the_variables_of_model_and_optimizer(memory, accumulate, ema):
    model = kt.Transformer(VOCABULARY, **SMALL)
    steps = 2 if accumulate else None
    optimizer = kt.paper_optimizer(0.01, gradient_accumulation_steps=steps, use_ema=ema)
    optimizer.build(model.trainable_variables)
    parameters = memory.parameters_of(kt.TransformerConfig(**SMALL), VOCABULARY)
    assert parameters == model.count_params()
    held = sum(
        4 * math.prod(variable.shape)
        for variable in (*model.trainable_variables, *optimizer.variables)
        if len(variable.shape)
    )
    gradients = 4 * parameters
    assert held + gradients == memory.weights_in_bytes(parameters, accumulate, ema)


def test_the_formula_on_the_page_is_that_of_the_program(memory):
    page = (ROOT / "docs" / "memory.md").read_text("utf-8")
    config = kt.PRESETS["mini"]
    parameters = memory.parameters_of(config, 8000)
    assert f"({parameters:,} parameters)" in page
    for rows, again in itertools.product((64, 128), (False, True)):
        activations = memory.activations_in_bytes(config, 8000, rows, 64, 64, again)
        expected = (memory.weights_in_bytes(parameters) + activations) / 1e6
        assert f"| {rows} x 64 | {'yes' if again else 'no'} | {expected:,.0f} |" in page


def test_the_costs_on_the_page_are_those_of_the_program(memory, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "cost"])
    monkeypatch.setattr(memory, "report", lambda args, rows: None)
    program = importlib.import_module("benchmark")
    program.main()
    table = capsys.readouterr().out.strip()
    assert len(table.splitlines()) == 4
    assert table in (ROOT / "docs" / "memory.md").read_text("utf-8")
