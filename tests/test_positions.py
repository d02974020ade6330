import keras
import numpy as np
import oracle
import pytest

from keras_transformer.positions import (
    LearnedPositionalEncoding,
    NoPositionalEncoding,
    PositionalEncoding,
    positional_encoding,
    rotated,
    sinusoids,
)

EPSILON = np.finfo("float32").eps


def test_the_first_positions_by_hand(numpy):
    # d_model 4: the first pair turns by 1 radian a position, the second by 1/10000^(2/4).
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


def test_a_learned_position_is_added_to_each_input(numpy, normal):
    layer = LearnedPositionalEncoding(max_length=4)
    layer.build((None, None, 8))
    layer.positions.assign(normal(4, 8, seed=1))
    for length in (4, 2):
        x = normal(3, length, 8)
        np.testing.assert_allclose(numpy(layer(x)), x + normal(4, 8, seed=1)[:length], atol=1e-6)


def test_learned_positions_start_different_and_are_trained(numpy):
    layer = LearnedPositionalEncoding(max_length=4)
    rows = numpy(layer(np.zeros((1, 4, 8), "float32")))[0]
    assert len(np.unique(rows, axis=0)) == 4
    assert [tuple(w.shape) for w in layer.trainable_weights] == [(4, 8)]


def test_sinusoids_have_no_weights():
    layer = PositionalEncoding()
    layer.build((None, None, 8))
    assert layer.weights == []


def test_an_input_longer_than_the_learned_positions_is_an_error_that_names_both_lengths(normal):
    layer = LearnedPositionalEncoding(max_length=4)
    with pytest.raises(ValueError, match=r"input has 5 tokens, but max_length=4 positions"):
        layer(normal(1, 5, 8))


@pytest.mark.parametrize("max_length", [0, -1])
def test_a_max_length_below_1_is_an_error(max_length):
    with pytest.raises(ValueError, match=f"at least 1; received max_length={max_length}"):
        LearnedPositionalEncoding(max_length)


# Rotary


def test_a_pair_is_turned_by_one_radian_a_position(numpy):
    x = np.broadcast_to(np.array([1, 0], "float32"), (1, 3, 1, 2))
    expected = [[np.cos(p), np.sin(p)] for p in range(3)]
    np.testing.assert_allclose(numpy(rotated(x))[0, :, 0], expected, atol=1e-6)


@pytest.mark.parametrize("d", [2, 8])
@pytest.mark.parametrize("positions", [None, [5, 0, 5, 300]], ids=["counted", "given"])
def test_turning_equals_multiplying_complex_numbers(numpy, normal, d, positions):
    x = normal(2, 4, 3, d)
    expected = oracle.rotated(np.swapaxes(x.astype("float64"), 1, 2), positions)
    given = None if positions is None else np.array(positions)
    np.testing.assert_allclose(numpy(rotated(x, given)), np.swapaxes(expected, 1, 2), atol=1e-4)
    np.testing.assert_allclose(  # a turn makes nothing longer
        np.linalg.norm(numpy(rotated(x, given)), axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-5
    )


def test_scores_of_turned_vectors_depend_on_their_distance_alone(numpy, normal):
    q, k = normal(1, 1, 1, 8), normal(1, 1, 1, 8, seed=1)

    def score(query_position, key_position):
        turned = numpy(
            (rotated(q, np.array([query_position])), rotated(k, np.array([key_position])))
        )
        return float(np.sum(turned[0] * turned[1]))

    for distance in (0, 3, -7):
        scores = [score(place + distance, place) for place in (7, 20, 500)]
        np.testing.assert_allclose(scores, scores[0], atol=1e-3)
    assert len({round(score(distance, 0), 2) for distance in range(6)}) == 6


@pytest.mark.parametrize("dtype, bits", [("bfloat16", 8), ("float16", 11)])
def test_angles_are_exact_in_low_precision(numpy, dtype, bits):
    # In bfloat16, 1001 would be 1000, another angle by one radian.
    positions = np.arange(1000, 1008)
    x = keras.ops.ones((1, 8, 1, 8), dtype)
    turned = rotated(x, positions)
    assert keras.backend.standardize_dtype(turned.dtype) == dtype
    expected = oracle.rotated(np.ones((1, 1, 8, 8)), positions)
    np.testing.assert_allclose(numpy(turned)[0, :, 0], expected[0, 0], atol=4 * 2.0**-bits)


def test_the_kind_of_positions_is_chosen_by_max_length_and_rotary(numpy, normal):
    kinds = [positional_encoding(), positional_encoding(9), positional_encoding(rotary=True)]
    expected = [PositionalEncoding, LearnedPositionalEncoding, NoPositionalEncoding]
    assert [type(kind) for kind in kinds] == expected
    x = normal(2, 3, 8)
    np.testing.assert_array_equal(numpy(kinds[2](x)), x)
    with pytest.raises(ValueError, match="not both; received max_length=9, rotary=True"):
        positional_encoding(9, rotary=True)


@pytest.mark.parametrize(
    "layer", [PositionalEncoding(), LearnedPositionalEncoding(9), NoPositionalEncoding()]
)
def test_positions_work_in_a_functional_model_of_unknown_length(numpy, normal, layer):
    x = keras.Input((None, 8))
    y = layer(x)
    assert y.shape == (None, None, 8)
    model = keras.Model(x, y)
    for length in (3, 5):
        x = normal(2, length, 8)
        np.testing.assert_allclose(numpy(model(x)), x + numpy(layer.table(length)), atol=1e-6)
