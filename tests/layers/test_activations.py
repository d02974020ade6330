import json
import math

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.layers import activations


def test_the_gelu_of_gpt2_is_its_formula(numpy):
    x = np.linspace(-4, 4, 101, dtype="float32")
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3.0)
    y = numpy(activations.gelu_tanh(keras.ops.convert_to_tensor(x)))
    np.testing.assert_allclose(y, x / 2 * (1 + np.tanh(inner)), atol=1e-6)
    exact = numpy(activations.get("gelu")(keras.ops.convert_to_tensor(x)))
    assert 1e-4 < np.abs(y - exact).max() < 1e-3


@pytest.mark.parametrize("name", ["gelu_tanh", "gelu", "silu"])
def test_a_name_is_kept_in_every_configuration(name):
    assert activations.serialize(activations.get(name)) == name
    sizes = dict(num_layers=1, d_model=4, num_heads=2, d_ff=5)
    for activation in (name, activations.get(name)):
        model = kt.LanguageModel(11, **sizes, activation=activation)
        assert model.config.activation == name
    again = type(model).from_config(json.loads(json.dumps(model.get_config())))
    feed_forward = again.decoder.blocks[0].feed_forward
    assert feed_forward.activation is activations.get(name)
    assert feed_forward.get_config()["activation"] == name


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="gelu_tan"):
        activations.get("gelu_tan")
