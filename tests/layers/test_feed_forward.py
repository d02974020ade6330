import json
import math

import keras
import numpy as np
import pytest

import keras_transformer as kt
import oracle
from keras_transformer.layers.feed_forward import (
    EPSILON,
    AddNorm,
    FeedForward,
    gelu_tanh,
    get_activation,
    serialize_activation,
)

NORM = pytest.mark.parametrize("norm_first", [False, True], ids=["post_norm", "pre_norm"])


def test_feed_forward_by_hand(numpy):
    # x = 2: inner (3, -1), ReLU (3, 0), 2 * 3 + 5; x = -4: inner (-3, 5), 3 * 5 + 5.
    layer = FeedForward(2)
    layer.build((None, None, 1))
    layer.inner.set_weights([np.array([[1, -1]]), np.array([1, 1])])
    layer.outer.set_weights([np.array([[2], [3]]), np.array([5])])
    np.testing.assert_array_equal(numpy(layer(np.array([[[2.0], [-4]]]))), [[[11], [20]]])


def test_feed_forward_equals_the_oracle(numpy, normal, weights_of, randomize):
    layer, x = FeedForward(16), normal(2, 5, 8)
    layer.build(x.shape)
    expected = oracle.feed_forward(x, weights_of(randomize(layer)))
    np.testing.assert_allclose(numpy(layer(x)), expected, atol=1e-5)


def test_the_activation_of_the_feed_forward_network_can_be_chosen(numpy):
    layer = FeedForward(1, activation="tanh")
    layer.build((None, None, 1))
    layer.inner.set_weights([np.array([[1]]), np.array([0])])
    layer.outer.set_weights([np.array([[1]]), np.array([0])])
    np.testing.assert_allclose(numpy(layer(np.array([[[-2.0]]]))), [[[np.tanh(-2)]]], rtol=1e-5)


@NORM
def test_add_norm_equals_the_oracle_with_any_sublayer(numpy, normal, randomize, norm_first):
    layer, x = AddNorm(norm_first=norm_first), normal(2, 5, 8)
    layer.build(x.shape)
    randomize(layer)
    output = layer(x, sublayer=keras.ops.square)
    gamma, beta = (weight.astype("float64") for weight in layer.norm.get_weights())
    norm = {"gamma": gamma, "beta": beta}
    expected = oracle.residual(x, np.square, norm, pre_norm=norm_first)
    np.testing.assert_allclose(numpy(output), expected, atol=1e-5)


def test_the_residual_connection_carries_x_past_a_sublayer_that_returns_zeros(numpy, normal):
    x = normal(2, 5, 8)
    pre_norm, post_norm = AddNorm(norm_first=True), AddNorm()
    np.testing.assert_array_equal(numpy(pre_norm(x, sublayer=keras.ops.zeros_like)), x)
    normalized = oracle.layer_norm(x.astype("float64"), 1.0, 0.0)
    output = numpy(post_norm(x, sublayer=keras.ops.zeros_like))
    np.testing.assert_allclose(output, normalized, atol=1e-5)


def test_layer_norm_uses_the_epsilon_of_the_authors_and_not_that_of_keras(numpy):
    # Features of variance 1e-6: with epsilon 1e-6 they become +-1/sqrt(2), with 1e-3 +-0.03.
    x = np.array([[[1e-3, -1e-3]]], "float32")
    expected = 1e-3 / np.sqrt(1e-6 + EPSILON)
    assert EPSILON == 1e-6
    output = numpy(AddNorm()(x, sublayer=keras.ops.zeros_like))
    np.testing.assert_allclose(output[0, 0, 0], expected, rtol=1e-4)


@NORM
def test_dropout_acts_on_the_sublayer_and_never_on_x(numpy, norm_first):
    # The sublayer's output, 1, is dropped or doubled; x = 5 stands before and after.
    x = np.full((1, 1, 1000), 5, "float32")
    layer = AddNorm(dropout=0.5, norm_first=norm_first)
    values = numpy(layer(x, sublayer=keras.ops.ones_like, training=True))
    assert len(np.unique(np.round(values, 3))) == 2
    if norm_first:
        np.testing.assert_array_equal(np.unique(values), [5, 7])


def test_a_block_can_be_written_by_hand_before_anything_is_built(numpy, normal):
    x = keras.Input((None, 8))
    add_norm, double = AddNorm(norm_first=True), keras.layers.Rescaling(2.0)
    model = keras.Model(x, add_norm(x, sublayer=double))
    values = normal(2, 5, 8)
    expected = values + 2 * oracle.layer_norm(values.astype("float64"), 1.0, 0.0)
    np.testing.assert_allclose(numpy(model(values)), expected, atol=1e-5)
    assert len(model.weights) == 2


# Errors


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5])
def test_a_rate_outside_0_to_1_is_an_error(rate):
    with pytest.raises(ValueError, match=rf"dropout must be in \[0, 1\); .* dropout={rate}"):
        AddNorm(rate)


# Activations


def test_the_gelu_of_gpt2_is_its_formula(numpy):
    x = np.linspace(-4, 4, 101, dtype="float32")
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3.0)
    y = numpy(gelu_tanh(keras.ops.convert_to_tensor(x)))
    np.testing.assert_allclose(y, x / 2 * (1 + np.tanh(inner)), atol=1e-6)
    exact = numpy(get_activation("gelu")(keras.ops.convert_to_tensor(x)))
    assert 1e-4 < np.abs(y - exact).max() < 1e-3


@pytest.mark.parametrize("name", ["gelu_tanh", "gelu", "silu"])
def test_a_name_is_kept_in_every_configuration(name):
    assert serialize_activation(get_activation(name)) == name
    sizes = dict(num_layers=1, d_model=4, num_heads=2, d_ff=5)
    for activation in (name, get_activation(name)):
        model = kt.LanguageModel(11, **sizes, activation=activation)
        assert model.config.activation == name
    again = type(model).from_config(json.loads(json.dumps(model.get_config())))
    feed_forward = again.decoder.blocks[0].feed_forward
    assert feed_forward.activation is get_activation(name)
    assert feed_forward.get_config()["activation"] == name


def test_the_name_of_an_activation_is_that_of_keras():
    names = [
        name for name in vars(keras.activations) if name not in ("deserialize", "get", "serialize")
    ]
    functions = [keras.activations.get(name) for name in names if not name.startswith("_")]
    assert keras.activations.relu in functions
    for function in functions:
        assert serialize_activation(function) == keras.activations.serialize(function)


def test_a_function_with_the_name_of_one_of_keras_is_refused():
    def relu(x):
        return keras.ops.maximum(x, 0.1 * x)

    with pytest.raises(ValueError, match="Keras also has an activation relu: register yours"):
        kt.LanguageModel(11, num_layers=1, d_model=8, num_heads=2, d_ff=5, activation=relu)


def test_a_functional_model_refuses_a_sublayer_whose_weights_it_would_not_know():
    x = keras.Input((None, 8))
    for sublayer in (FeedForward(16), keras.layers.Dense(8)):
        with pytest.raises(
            ValueError, match="would not train or save the weights of a sublayer; call"
        ):
            AddNorm()(x, sublayer=sublayer)
    for sublayer in (keras.layers.Rescaling(2.0), lambda x: 2 * x):
        assert AddNorm()(x, sublayer=sublayer).shape == x.shape


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="gelu_tan"):
        get_activation("gelu_tan")
