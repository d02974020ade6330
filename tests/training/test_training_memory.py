"""Needs of a training step: parameters and bytes by formula, blocks that are computed again."""

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
from keras_transformer import backend, training
from keras_transformer.training.estimates import (
    activations_in_bytes,
    memory_of_step,
    weights_in_bytes,
)

ROOT = pathlib.Path(__file__).parents[2]
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
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is that of /proc")
def test_each_tenth_of_a_long_run_has_batches_of_the_same_lengths(memory, monkeypatch):
    drawn, random_batch = [], memory.random_batch

    def recorded(*given):
        drawn.append(given[-1])
        return random_batch(*given)

    monkeypatch.setattr(memory, "random_batch", recorded)
    config = kt.TransformerConfig(**SMALL)
    found = memory.tenths_of_run(backend.name(), "float32", config, VOCABULARY, 2, 8, 80, True)
    assert len(found) == 10 and all(min(each) > 0 for each in found)
    lengths = np.sort(np.reshape(drawn, (10, 8)))
    np.testing.assert_array_equal(lengths, np.tile(np.arange(1, 9), (10, 1)))


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
    np.testing.assert_allclose(losses_again, losses, rtol=1e-5)
    for one, other in zip(again.get_weights(), kept.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert losses[0] != losses[1]


def test_a_model_is_not_rematerialized_as_a_whole():
    with pytest.raises(ValueError, match=r"received a keras.RematScope of the whole"):
        trained(keras.RematScope(mode="full"))


@pytest.mark.parametrize(
    "accumulate, ema",
    [pytest.param(False, False, marks=pytest.mark.slow), (True, True)],
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
    assert held + gradients == weights_in_bytes(parameters, accumulate, ema)


def test_the_formula_on_the_page_is_that_of_the_program(memory):
    page = (ROOT / "docs" / "memory.md").read_text("utf-8")
    config = kt.PRESETS["mini"]
    parameters = memory.parameters_of(config, 8000)
    assert f"({parameters:,} parameters)" in page
    for rows, again in itertools.product((64, 128), (False, True)):
        activations = activations_in_bytes(config, 8000, rows, 64, 64, again)
        expected = (weights_in_bytes(parameters) + activations) / 1e6
        assert f"| {rows} x 64 | {'yes' if again else 'no'} | {expected:,.0f} |" in page


def test_the_costs_on_the_page_are_those_of_the_program(memory, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "cost"])
    monkeypatch.setattr(memory, "report", lambda args, rows: None)
    program = importlib.import_module("benchmark")
    program.main()
    table = capsys.readouterr().out.strip()
    assert len(table.splitlines()) == 4
    assert table in (ROOT / "docs" / "memory.md").read_text("utf-8")


def compiled(model, **options):
    model.compile(kt.paper_optimizer(0.01, **options), kt.TokenCrossEntropy())
    return model


def test_the_memory_of_a_step_is_that_of_what_it_computes():
    model, config = kt.Transformer(VOCABULARY, **SMALL), kt.TransformerConfig(**SMALL)
    of_xla = 1.5 if backend.name() == "jax" else 1
    weights, shape = 16 * model.count_params(), (6, 4, 5)

    def expected(rows=6, weights=weights, **options):
        activations = activations_in_bytes(config, VOCABULARY, rows, 4, 5, **options)
        return pytest.approx(of_xla * (weights + activations), rel=1e-6)

    assert memory_of_step(compiled(model), shape) == expected()
    for two_passes in (training.RDrop, training.SimCut):
        assert memory_of_step(compiled(two_passes(model)), shape) == expected(12)
    assert memory_of_step(compiled(training.ChunkedLogits(model, 3)), shape) == expected(pieces=3)
    summed = compiled(model, gradient_accumulation_steps=2, use_ema=True)
    assert memory_of_step(summed, shape) == expected(weights=weights * 3 // 2)
    with keras.RematScope(mode="list_of_layers", layer_names=["block_1", "block_2"]):
        again = kt.Transformer(VOCABULARY, **SMALL)
    assert memory_of_step(compiled(again), shape) == expected(rematerialized=True)
    half = kt.Transformer(VOCABULARY, **SMALL, dtype="mixed_float16")
    half = compiled(half, gradient_accumulation_steps=2, use_ema=True)
    assert memory_of_step(half, shape) == expected(weights=weights * 3 // 2)
    model.encoder.trainable = False
    frozen = 12 * model.encoder.count_params()
    assert memory_of_step(compiled(model), shape) == expected(weights=weights - frozen)


@pytest.mark.parametrize("again", [False, True])
def test_each_block_of_a_stack_adds_the_same_memory(again):
    config, lengths = kt.TransformerConfig(**SMALL), (VOCABULARY, 6, 4, 5, again)

    def activations(encoder, decoder):
        depths = dict(encoder_layers=encoder, decoder_layers=decoder)
        return activations_in_bytes(config.replace(**depths), *lengths)

    base = activations(1, 1)
    of_encoder, of_decoder = activations(2, 1) - base, activations(1, 2) - base
    assert 0 < of_encoder < of_decoder  # of fewer tokens, and without cross-attention
    assert activations(4, 3) == base + 3 * of_encoder + 2 * of_decoder
    assert activations(2, 2) == activations_in_bytes(config, *lengths)


def test_a_language_model_has_no_source():
    model = compiled(kt.LanguageModel(VOCABULARY, **SMALL))
    whole = compiled(kt.Transformer(VOCABULARY, **SMALL))
    assert memory_of_step(model, (6, 5)) < memory_of_step(whole, (6, 4, 5))
    d, d_ff, heads = (SMALL[name] for name in ("d_model", "d_ff", "num_heads"))
    per_token = SMALL["num_layers"] * (9 * d + d_ff + 5 * heads) + 3 * VOCABULARY
    of_xla = 1.5 if backend.name() == "jax" else 1
    expected = of_xla * (16 * model.count_params() + 4 * 30 * per_token)
    assert memory_of_step(model, (6, 5)) == pytest.approx(expected, rel=1e-6)


def test_the_forecast_is_of_the_largest_batch():
    texts = [[7] * length for length in (3, 3, 20)]
    batches = kt.TranslationBatches(texts, texts, num_buckets=2, batch_size=2)
    model = compiled(kt.Transformer(40_000, **SMALL))
    sentence = training.forecast(model, batches)
    largest = max(batches.shapes, key=lambda shape: shape[0] * shape[2])
    assert sentence.startswith(f"A step of {' x '.join(map(str, largest))} takes about ")
    assert ("compiling 2 shapes about" in sentence) == (backend.name() == "jax")


@pytest.mark.skipif(backend.name() != "jax", reason="the other backends need no compilation")
def test_the_forecast_knows_that_a_gpu_compiles_longer(monkeypatch):
    batches = kt.TranslationBatches([[7] * 3] * 4, [[7] * 3] * 4)
    model = compiled(kt.Transformer(VOCABULARY, **SMALL))
    monkeypatch.setattr(backend, "on_accelerator", lambda: True)
    assert "compiling 1 shapes about 45 seconds" in training.forecast(model, batches)
