"""Several devices: rows of padding fill up a batch, and the losses are those of one device."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import backend
from keras_transformer.ids import PADDING

GENERATOR = np.random.default_rng(0)
IDS = [GENERATOR.integers(4, 30, GENERATOR.integers(0, 20)).tolist() for _ in range(200)]


@pytest.mark.parametrize("budget", [{}, {"batch_size": 7}, {"tokens_per_batch": 90}])
@pytest.mark.parametrize("multiple", [2, 3, 8])
def test_rows_are_a_multiple_of_the_devices_and_each_example_comes_once(budget, multiple):
    batches = kt.TranslationBatches(IDS, IDS, rows_multiple=multiple, num_buckets=3, **budget)
    found = []
    for inputs, labels in batches:
        assert len(labels) % multiple == 0 and labels.any()
        found += [row[row != PADDING][:-1].tolist() for row in labels if row.any()]
        is_real = labels.any(axis=1)
        assert not inputs["source_ids"][~is_real].any()
    assert sorted(found) == sorted(IDS)
    assert len(batches.shapes) > 1


def test_a_budget_holds_with_rows_in_multiples_where_it_can():
    batches = kt.TranslationBatches(IDS, IDS, rows_multiple=4, tokens_per_batch=200)
    assert max(labels.size for _, labels in batches) <= 200
    batches = kt.TranslationBatches(IDS, IDS, rows_multiple=4, batch_size=3)
    assert {len(labels) for _, labels in batches} == {4}


def test_more_devices_than_there_are_or_another_backend_is_an_error():
    backend.use_devices(1)
    message = "must be at most" if backend.name() == "jax" else "need JAX; received"
    with pytest.raises(ValueError, match=message):
        backend.use_devices(64)
    with pytest.raises(ValueError, match="devices must be an integer of at least 1"):
        backend.use_devices(0)


TRAINING = """
import json, sys
import keras, numpy as np
import keras_transformer as kt
from keras_transformer import backend
number, folder = int(sys.argv[1]), sys.argv[2]
backend.use_devices(number)
keras.utils.set_random_seed(0)
generator = np.random.default_rng(0)
ids = [generator.integers(4, 30, generator.integers(1, 9)).tolist() for _ in range(401)]
batches = kt.TranslationBatches(ids, ids, batch_size=8, num_buckets=2, rows_multiple=2)
assert len(batches) >= 50
model = kt.Transformer(30, num_layers=1, d_model=16, num_heads=2, d_ff=16, dropout=0.0)
model.compile(kt.paper_optimizer(0.01), kt.TokenCrossEntropy(0.1), metrics=[kt.Perplexity()])
losses = []
remember = keras.callbacks.LambdaCallback(
    on_train_batch_end=lambda n, logs: losses.append(dict(logs))
)
model.fit(batches, epochs=1, shuffle=False, verbose=0, callbacks=[remember])
spread = {len(v.value.sharding.device_set) for v in model.trainable_variables}
evaluated = model.evaluate(batches, verbose=0)
tokenizer = kt.train_tokenizer(["abcdefghijklmnopqrstuvwxyz"], model_type="char")
translator = kt.Translator(model, tokenizer)
translator.save(f"{folder}/{number}.keras")
texts = ["abc", "d", "efghij"]
print(json.dumps([losses, evaluated, list(spread), translator.translate(texts, beams=2)]))
"""


@pytest.mark.slow
@pytest.mark.skipif(backend.name() != "jax", reason="several devices in one process need JAX")
def test_two_devices_train_as_one_does(tmp_path):
    def trained(number):
        flags = "--xla_force_host_platform_device_count=2"
        result = subprocess.run(
            [sys.executable, "-c", TRAINING, str(number), str(tmp_path)],
            env={**os.environ, "XLA_FLAGS": flags},
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout.splitlines()[-1])

    (losses, evaluated, one, texts), (other, evaluated_by_two, two, texts_of_two) = map(
        trained, (1, 2)
    )
    assert one == [1] and two == [2]
    assert len(losses) == len(other) >= 50
    for name in ("loss", "perplexity"):
        values = [[logs[name] for logs in each] for each in (losses, other)]
        np.testing.assert_allclose(*values, rtol=1e-5)
        assert values[0][-1] < 0.9 * values[0][0]
    np.testing.assert_allclose(evaluated, evaluated_by_two, rtol=1e-5)
    assert texts == texts_of_two
    files = [kt.load(tmp_path / f"{number}.keras").model.get_weights() for number in (1, 2)]
    for weight, weight_of_two in zip(*files, strict=True):
        np.testing.assert_allclose(weight, weight_of_two, rtol=1e-3, atol=1e-5)
