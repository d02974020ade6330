import keras
import numpy as np
import pytest

import oracle
from keras_transformer.layers.positions import (
    LearnedPositionalEncoding,
    PositionalEncoding,
    apply_rotary_embedding,
    sinusoids,
)
from keras_transformer.models.configuration import TransformerConfig
from keras_transformer.models.configured import positions_of

EPSILON = np.finfo("float32").eps


def test_the_first_positions_by_hand(numpy):
    # d_model 4: the first pair turns by 1 radian per position, the second by 1/10000^(2/4).
    expected = [
        [0, 1, 0, 1],
        [np.sin(1), np.cos(1), np.sin(0.01), np.cos(0.01)],
        [np.sin(2), np.cos(2), np.sin(0.02), np.cos(0.02)],
    ]
    np.testing.assert_allclose(numpy(sinusoids(3, 4)), expected, atol=1e-6)


@pytest.mark.parametrize("d_model", [8, 7, 1])
def test_sinusoids_are_interleaved_and_equal_the_oracle(numpy, d_model):
    expected = oracle.positional_encoding(50, d_model)
    np.testing.assert_allclose(numpy(sinusoids(50, d_model)), expected, atol=1e-5)


def test_a_late_position_is_as_exact_as_its_angle_in_float32(numpy):
    # An angle near 4,000 is rounded to 4,000 eps; a sine moves no more than its angle.
    table = numpy(sinusoids(4001, 8))
    np.testing.assert_allclose(table, oracle.positional_encoding(4001, 8), atol=4000 * 2 * EPSILON)


def test_the_encoding_is_added_to_the_input(numpy, normal):
    x = normal(2, 6, 8)
    expected = x + oracle.positional_encoding(6, 8)
    np.testing.assert_allclose(numpy(PositionalEncoding()(x)), expected, atol=1e-5)


def test_one_layer_serves_every_length(numpy, normal):
    layer = PositionalEncoding()
    for length in (3, 1, 300):
        zeros = np.zeros((1, length, 8), "float32")
        expected = oracle.positional_encoding(length, 8)
        np.testing.assert_allclose(numpy(layer(zeros))[0], expected, atol=300 * EPSILON)


@pytest.mark.parametrize("dtype, bits", [("bfloat16", 8), ("mixed_bfloat16", 8), ("float16", 11)])
def test_low_precision_keeps_1024_positions_apart(numpy, dtype, bits):
    # Positions counted in bfloat16 would collapse: it has no odd numbers above 256.
    zeros = np.zeros((1, 1024, 64), "float32")
    encoded = PositionalEncoding(dtype=dtype)(zeros)
    assert keras.backend.standardize_dtype(encoded.dtype) == dtype.removeprefix("mixed_")
    rows = numpy(encoded)[0]
    assert len(np.unique(rows, axis=0)) == 1024
    np.testing.assert_allclose(rows, oracle.positional_encoding(1024, 64), atol=2.0**-bits)


@pytest.fixture
def learned(normal):
    """4 learned positions of width 8: the rows of `normal(4, 8, seed=1)`."""
    layer = LearnedPositionalEncoding(max_length=4)
    layer.build((None, None, 8))
    layer.positions.assign(normal(4, 8, seed=1))
    return layer


def test_a_learned_position_is_added_to_each_input(numpy, normal, learned):
    for length in (4, 2):
        x = normal(3, length, 8)
        np.testing.assert_allclose(numpy(learned(x)), x + normal(4, 8, seed=1)[:length], atol=1e-6)


def test_learned_positions_start_different_and_are_trained(numpy):
    layer = LearnedPositionalEncoding(max_length=4)
    rows = numpy(layer(np.zeros((1, 4, 8), "float32")))[0]
    assert len(np.unique(rows, axis=0)) == 4
    assert [tuple(w.shape) for w in layer.trainable_weights] == [(4, 8)]


def test_sinusoids_have_no_weights():
    layer = PositionalEncoding()
    layer.build((None, None, 8))
    assert layer.weights == []


def test_tokens_may_stand_at_any_positions(numpy, normal, learned):
    x = normal(2, 3, 8)
    for positions in ([2, 0, 3], [1, 1, 1]):
        for layer, table in (
            (PositionalEncoding(), oracle.positional_encoding(4, 8)),
            (learned, normal(4, 8, seed=1)),
        ):
            output = numpy(layer(x, positions=np.array(positions)))
            np.testing.assert_allclose(output, x + table[positions], atol=1e-5)


def test_rows_have_positions_of_their_own(numpy, normal, learned):
    x, positions = normal(2, 3, 8), np.array([[2, 0, 3], [1, 3, 1]])
    for layer in (PositionalEncoding(), learned):
        alone = [numpy(layer(x[n : n + 1], positions=positions[n])) for n in range(2)]
        np.testing.assert_allclose(
            numpy(layer(x, positions=positions)), np.concatenate(alone), atol=1e-6
        )


def test_an_input_longer_than_the_learned_positions_is_an_error_that_names_both_lengths(normal):
    layer = LearnedPositionalEncoding(max_length=4)
    with pytest.raises(ValueError, match="input must fit max_length=4: .*; received tokens=5"):
        layer(normal(1, 5, 8))


@pytest.mark.parametrize("max_length", [0, -1, 1.5])
def test_a_max_length_below_1_is_an_error(max_length):
    with pytest.raises(ValueError, match=f"at least 1; received max_length={max_length}"):
        LearnedPositionalEncoding(max_length)


# Rotary


def test_a_pair_is_rotated_by_one_radian_per_position(numpy):
    x = np.broadcast_to(np.array([1, 0], "float32"), (1, 1, 3, 2))
    expected = [[np.cos(p), np.sin(p)] for p in range(3)]
    np.testing.assert_allclose(numpy(apply_rotary_embedding(x))[0, 0], expected, atol=1e-6)


@pytest.mark.parametrize("shape", [(4, 6), (3, 4, 2), (2, 3, 4, 8)])
@pytest.mark.parametrize("positions", [None, [5, 0, 5, 300]], ids=["counted", "given"])
def test_rotating_equals_multiplying_complex_numbers(numpy, normal, shape, positions):
    x = normal(*shape)
    expected = oracle.apply_rotary_embedding(x.astype("float64"), positions)
    given = None if positions is None else np.array(positions)
    rotated = numpy(apply_rotary_embedding(x, given))
    np.testing.assert_allclose(rotated, expected, atol=1e-4)
    np.testing.assert_allclose(  # a rotation makes nothing longer
        np.linalg.norm(rotated, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-5
    )


def test_scores_of_rotated_vectors_depend_on_their_distance_alone(numpy, normal):
    q, k = normal(1, 8), normal(1, 8, seed=1)

    def score(query_position, key_position):
        query = apply_rotary_embedding(q, np.array([query_position]))
        key = apply_rotary_embedding(k, np.array([key_position]))
        return float(np.sum(numpy(query) * numpy(key)))

    for distance in (0, 3, -7):
        scores = [score(place + distance, place) for place in (7, 20, 500)]
        np.testing.assert_allclose(scores, scores[0], atol=1e-3)
    assert len({round(score(distance, 0), 2) for distance in range(6)}) == 6


@pytest.mark.parametrize("dtype, bits", [("bfloat16", 8), ("float16", 11)])
def test_angles_are_exact_in_low_precision(numpy, dtype, bits):
    # In bfloat16, 1001 would be 1000, another angle by one radian.
    positions = np.arange(1000, 1008)
    rotated = apply_rotary_embedding(keras.ops.ones((1, 1, 8, 8), dtype), positions)
    assert keras.backend.standardize_dtype(rotated.dtype) == dtype
    expected = oracle.apply_rotary_embedding(np.ones((1, 1, 8, 8)), positions)
    np.testing.assert_allclose(numpy(rotated), expected, atol=4 * 2.0**-bits)


# In models


def test_the_kind_of_positions_is_chosen_by_max_length_and_rotary():
    config = TransformerConfig()
    assert type(positions_of(config)) is PositionalEncoding
    learned = positions_of(config.replace(max_length=9), name="a_name")
    assert type(learned) is LearnedPositionalEncoding
    assert learned.max_length == 9 and learned.name == "a_name"
    assert positions_of(config.replace(rotary=True)) is None
    with pytest.raises(ValueError, match="not both; received max_length=9, rotary=True"):
        config.replace(max_length=9, rotary=True)


def test_positions_work_in_a_functional_model_of_unknown_length(numpy, normal, learned):
    for layer, table in (
        (PositionalEncoding(), numpy(sinusoids(4, 8))),
        (learned, normal(4, 8, seed=1)),
    ):
        x = keras.Input((None, 8))
        y = layer(x)
        assert y.shape == (None, None, 8)
        model = keras.Model(x, y)
        for length in (2, 4):
            x = normal(2, length, 8)
            np.testing.assert_allclose(numpy(model(x)), x + table[:length], atol=1e-6)
