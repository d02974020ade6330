import keras
import numpy as np
import pytest

import oracle
from keras_transformer import backend
from keras_transformer.layers.attention import (
    MultiHeadAttention,
    attention_scores,
    scaled_dot_product_attention,
)
from keras_transformer.layers.cache import Cache

T, F = True, False

# Two sentences of 5 and 3 source tokens, a target of 4: no length stands for another.
SOURCE_MASK = np.array([[[T, T, T, T, T]], [[T, T, T, F, F]]])
FULL_MASK = np.random.default_rng(9).random((2, 4, 5)) < 0.6
FULL_MASK[:, :, 0] |= ~FULL_MASK.any(axis=-1)  # every query may attend to something
MASKS = {"no_mask": None, "padding_mask": SOURCE_MASK, "full_mask": FULL_MASK, "2d": FULL_MASK[0]}


# Equation 1


def test_two_by_two_attention_by_hand(numpy):
    # d_k = 4, so the scores are halved: [log 3, 0] and [0, 0], that is weights 3:1 and 1:1.
    query = np.array([[2 * np.log(3), 0, 0, 0], [0, 0, 0, 0]], "float32")
    key = np.array([[1, 0, 0, 0], [0, 1, 0, 0]], "float32")
    value = np.array([[8, 0, 4], [0, 8, 4]], "float32")
    output, weights = numpy(scaled_dot_product_attention(query, key, value))
    np.testing.assert_allclose(weights, [[3 / 4, 1 / 4], [1 / 2, 1 / 2]], rtol=1e-6)
    np.testing.assert_allclose(output, [[6, 2, 4], [4, 4, 4]], rtol=1e-6)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_attention_equals_the_oracle(numpy, normal, mask):
    query, key, value = normal(2, 4, 6), normal(2, 5, 6, seed=1), normal(2, 5, 3, seed=2)
    output, weights = numpy(scaled_dot_product_attention(query, key, value, mask))
    expected_output, expected_weights = oracle.attention(query, key, value, mask)
    np.testing.assert_allclose(weights, expected_weights, atol=1e-5)
    np.testing.assert_allclose(output, expected_output, atol=1e-5)


def test_scores_are_divided_by_the_root_of_d_k(numpy):
    # Four equal features: the score 4 log 9 / sqrt(4) = 2 log 9 against 0, that is 81:1.
    query = np.full((1, 4), np.log(9), "float32")
    key = np.array([[1, 1, 1, 1], [0, 0, 0, 0]], "float32")
    _, weights = numpy(scaled_dot_product_attention(query, key, key))
    np.testing.assert_allclose(weights, [[81 / 82, 1 / 82]], rtol=1e-5)


def test_weights_sum_to_1_over_the_keys_and_not_over_the_queries(numpy, normal):
    _, weights = numpy(scaled_dot_product_attention(*(normal(3, 4, seed=s) for s in range(3))))
    np.testing.assert_allclose(weights.sum(axis=-1), np.ones(3), rtol=1e-6)
    assert np.abs(weights.sum(axis=-2) - 1).min() > 1e-2


def test_a_masked_key_gets_exactly_no_weight_and_the_rest_share_it(numpy, normal):
    query, value = np.zeros((2, 4), "float32"), np.array([[6], [100], [2]], "float32")
    mask = np.array([[T, F, T], [F, F, T]])
    output, weights = numpy(scaled_dot_product_attention(query, normal(3, 4), value, mask))
    np.testing.assert_array_equal(weights, [[0.5, 0, 0.5], [0, 0, 1]])
    np.testing.assert_array_equal(output, [[4], [2]])


def test_a_query_that_may_attend_to_nothing_gets_exact_zeros(numpy, normal):
    mask = np.array([[F, F, F], [T, T, F]])
    query, key, value = normal(2, 4), normal(3, 4, seed=1), normal(3, 5, seed=2)
    output, weights = numpy(scaled_dot_product_attention(query, key, value, mask))
    np.testing.assert_array_equal(weights[0], np.zeros(3))
    np.testing.assert_array_equal(output[0], np.zeros(5))
    np.testing.assert_allclose(
        output[1], oracle.attention(query, key, value, mask)[0][1], rtol=1e-4
    )


def test_dropout_acts_on_the_weights_of_the_mean_and_not_on_those_returned(numpy, normal):
    query, key, value = normal(2, 4), normal(3, 4, seed=1), normal(3, 5, seed=2)
    kept = np.array([[2, 0, 2], [0, 2, 0]], "float32")
    output, weights = numpy(
        scaled_dot_product_attention(
            query, key, value, dropout=lambda weights: keras.ops.multiply(weights, kept)
        )
    )
    _, expected_weights = oracle.attention(query, key, value)
    np.testing.assert_allclose(weights, expected_weights, atol=1e-6)
    np.testing.assert_allclose(output, (expected_weights * kept) @ value, atol=1e-5)


@pytest.mark.parametrize("dtype, bits", [("bfloat16", 8), ("float16", 11)])
def test_the_softmax_is_as_exact_in_low_precision_as_in_float32(numpy, dtype, bits):
    # Of 4,096 equal keys each gets 2^-12. A sum kept in bfloat16 would stop growing at 256.
    query = keras.ops.zeros((1, 4), dtype)
    key = value = keras.ops.ones((4096, 4), dtype)
    _, weights = scaled_dot_product_attention(query, key, value)
    assert keras.backend.standardize_dtype(weights.dtype) == dtype
    np.testing.assert_allclose(numpy(weights), np.full((1, 4096), 2.0**-12), rtol=2.0**-bits)


@pytest.mark.parametrize("dtype, bits", [("bfloat16", 8), ("float16", 11)])
def test_scores_are_divided_in_float32_before_they_are_compared(numpy, dtype, bits):
    # 100 and 101 are exact in both dtypes, but 57.7 and 58.3, a root of 3 smaller, are not.
    query = keras.ops.convert_to_tensor(np.array([[1, 0, 0]]), dtype)
    key = keras.ops.convert_to_tensor(np.array([[100, 0, 0], [101, 0, 0]]), dtype)
    _, weights = scaled_dot_product_attention(query, key, key)
    expected = oracle.softmax(np.array([[100, 101]]) / np.sqrt(3))
    np.testing.assert_allclose(numpy(weights), expected, rtol=2.0**-bits)


def test_large_scores_in_float16_overflow_nothing(numpy):
    query = keras.ops.full((1, 4), 30.0, "float16")
    key = keras.ops.convert_to_tensor(np.array([[30] * 4, [0] * 4, [-30] * 4]), "float16")
    mask = np.array([[F, T, T]])
    _, weights = scaled_dot_product_attention(query, key, key, mask)
    np.testing.assert_array_equal(numpy(weights), [[0, 1, 0]])


# Section 3.2.2


@pytest.fixture(scope="module")
def attention(randomize):
    """Two heads of width 4 over queries of width 8 and values of width 6."""
    layer = MultiHeadAttention(num_heads=2)
    layer.build((None, None, 8), (None, None, 6))
    return randomize(layer)


@pytest.fixture(scope="module")
def dropping(randomize):
    """The same weights, with dropout."""
    layer = MultiHeadAttention(num_heads=2, dropout=0.5)
    layer.build((None, None, 8), (None, None, 6))
    return randomize(layer)


def test_each_head_attends_with_its_own_slice(numpy):
    # The first head looks for equal first features, the second ignores its keys (weights 1:1).
    layer = MultiHeadAttention(num_heads=2)
    layer.build((None, None, 2), (None, None, 2))
    zero = np.zeros(2)
    layer.query.set_weights([np.diag([np.log(3), 0]), zero])
    layer.key.set_weights([np.eye(2), zero])
    layer.value.set_weights([np.eye(2), zero])
    layer.output_projection.set_weights([np.array([[0, 1], [1, 0]]), np.array([10, 20])])
    query = np.array([[[1, 1]]], "float32")
    value = np.array([[[1, 8], [0, 4]]], "float32")
    # Head 1: 3/4 * 1 + 1/4 * 0; head 2: (8 + 4) / 2; the output projection swaps them.
    output, weights = numpy(layer(query, value, return_attention_scores=True))
    np.testing.assert_allclose(output, [[[16, 20.75]]], rtol=1e-6)
    np.testing.assert_allclose(numpy(layer(query, value)), [[[16, 20.75]]], rtol=1e-6)
    np.testing.assert_allclose(weights, [[[[3 / 4, 1 / 4]], [[1 / 2, 1 / 2]]]], rtol=1e-6)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_both_paths_equal_the_oracle(numpy, normal, weights_of, attention, mask):
    query, value = normal(2, 4, 8), normal(2, 5, 6, seed=1)
    expected = oracle.multi_head_attention(query, value, weights_of(attention), 2, mask)
    fused = numpy(attention(query, value, attention_mask=mask))
    output, weights = numpy(
        attention(query, value, attention_mask=mask, return_attention_scores=True)
    )
    np.testing.assert_allclose(fused, expected, atol=1e-5)
    np.testing.assert_allclose(output, expected, atol=1e-5)
    allowed = np.ones((2, 4, 5), bool) if mask is None else np.broadcast_to(mask, (2, 4, 5))
    for head in range(2):
        np.testing.assert_array_equal(weights[:, head] > 0, allowed)
    np.testing.assert_allclose(weights.sum(axis=-1), np.ones((2, 2, 4)), rtol=1e-5)


@pytest.mark.parametrize("mask", [None, SOURCE_MASK, FULL_MASK], ids=["alone", "padding", "full"])
@pytest.mark.parametrize("lengths", [(4, 5), (5, 5)], ids=["T<S", "T=S"])
def test_the_causal_mask_is_kept_with_any_other_on_both_paths(
    numpy, normal, weights_of, attention, mask, lengths
):
    query_length, length = lengths
    query, value = normal(2, query_length, 8), normal(2, length, 6, seed=1)
    if mask is FULL_MASK and query_length == 5:
        mask = np.concatenate([mask, mask[:, :1]], axis=1)
    causal = np.tril(np.ones((query_length, length), bool))
    both = causal if mask is None else causal & mask
    expected = oracle.multi_head_attention(query, value, weights_of(attention), 2, both)
    arguments = dict(attention_mask=mask, use_causal_mask=True)
    fused = numpy(attention(query, value, **arguments))
    output, _ = numpy(attention(query, value, **arguments, return_attention_scores=True))
    np.testing.assert_allclose(fused, expected, atol=1e-5)
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_a_mask_may_differ_by_head(numpy, normal, weights_of, attention):
    query, value = normal(2, 4, 8), normal(2, 5, 6, seed=1)
    mask = np.stack([FULL_MASK, np.broadcast_to(SOURCE_MASK, (2, 4, 5))], axis=1)
    fused = numpy(attention(query, value, attention_mask=mask))
    output, weights = numpy(
        attention(query, value, attention_mask=mask, return_attention_scores=True)
    )
    np.testing.assert_array_equal(weights > 0, mask)
    np.testing.assert_allclose(fused, output, atol=1e-5)


def test_keys_may_differ_from_values(numpy, normal, weights_of, randomize):
    layer = MultiHeadAttention(num_heads=2)
    query, key, value = normal(2, 4, 8), normal(2, 5, 7, seed=1), normal(2, 5, 6, seed=2)
    layer.build(query.shape, value.shape, key.shape)
    w = weights_of(randomize(layer))
    heads = [
        oracle.attention(q, k, v)[0]
        for q, k, v in zip(
            np.split(oracle.dense(query, w["query"]), 2, axis=-1),
            np.split(oracle.dense(key, w["key"]), 2, axis=-1),
            np.split(oracle.dense(value, w["value"]), 2, axis=-1),
            strict=True,
        )
    ]
    expected = oracle.dense(np.concatenate(heads, axis=-1), w["output"])
    np.testing.assert_allclose(numpy(layer(query, value, key)), expected, atol=1e-5)
    output, _ = numpy(layer(query, value, key=key, return_attention_scores=True))
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_a_head_may_be_wider_than_its_share(numpy, normal, weights_of, randomize):
    layer = MultiHeadAttention(num_heads=3, key_dim=5)
    query = normal(2, 4, 8)
    layer.build(query.shape, query.shape)
    randomize(layer)
    expected = oracle.multi_head_attention(query, query, weights_of(layer), 3)
    np.testing.assert_allclose(numpy(layer(query, query)), expected, atol=1e-5)


def test_dropout_drops_weights_in_training_only(numpy, normal, attention, dropping, same_dropout):
    query, value = normal(2, 4, 8), normal(2, 5, 6, seed=1)
    kept = numpy(attention(query, value))
    np.testing.assert_allclose(numpy(dropping(query, value)), kept, atol=1e-6)
    np.testing.assert_allclose(numpy(attention(query, value, training=True)), kept, atol=1e-6)
    same_dropout(dropping)
    once = numpy(dropping(query, value, training=True))
    again = numpy(dropping(query, value, training=True))
    same_dropout(dropping)
    output, weights = numpy(dropping(query, value, training=True, return_attention_scores=True))
    assert np.abs(once - kept).max() > 0.1 and np.abs(once - again).max() > 0.1
    np.testing.assert_allclose(output, once, atol=1e-6)
    # What is returned is the softmax, as in Keras, not what dropout left of it.
    np.testing.assert_allclose(weights.sum(axis=-1), np.ones((2, 2, 4)), rtol=1e-5)


# Rotary positions


@pytest.fixture(scope="module")
def rotary(randomize):
    layer = MultiHeadAttention(num_heads=2, rotary=True)
    layer.build((None, None, 8), (None, None, 6))
    return randomize(layer)


@pytest.mark.parametrize("mask", [None, SOURCE_MASK, FULL_MASK], ids=["alone", "padding", "full"])
@pytest.mark.parametrize("causal", [False, True], ids=["", "causal"])
def test_rotary_attention_equals_the_oracle_on_both_paths(
    numpy, normal, weights_of, rotary, mask, causal
):
    query, value = normal(2, 4, 8), normal(2, 5, 6, seed=1)
    both = np.tril(np.ones((4, 5), bool)) if causal else np.ones((4, 5), bool)
    both = both if mask is None else both & mask
    expected = oracle.multi_head_attention(query, value, weights_of(rotary), 2, both, rotary=True)
    arguments = dict(attention_mask=mask, use_causal_mask=causal)
    np.testing.assert_allclose(numpy(rotary(query, value, **arguments)), expected, atol=1e-5)
    output, _ = numpy(rotary(query, value, **arguments, return_attention_scores=True))
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_order_matters_to_rotary_attention_and_to_no_other(numpy, normal, attention, rotary):
    query, value = normal(2, 4, 8), normal(2, 5, 6, seed=1)
    for layer, matters in ((attention, False), (rotary, True)):
        difference = np.abs(numpy(layer(query, value)) - numpy(layer(query, value[:, ::-1])))
        assert (difference.max() > 0.01) == matters


def test_rotary_weights_depend_on_distances_and_not_on_places(numpy, normal, rotary):
    query, value = normal(2, 4, 8), keras.ops.convert_to_tensor(normal(2, 5, 6, seed=1))
    expected = numpy(rotary(query, value))

    def output(begin_of_query, begin_of_keys):
        keys, values = rotary.keys_and_values(value, positions=begin_of_keys + np.arange(5))
        memory = {rotary.path: (keras.ops.swapaxes(keys, -1, -2), values)}
        cache = Cache({}, memory, slot=0, positions=begin_of_query + np.arange(4))
        return numpy(rotary(query, value, cache=cache))

    for begin in (0, 11):
        np.testing.assert_allclose(output(begin, begin), expected, atol=1e-5)
    assert np.abs(output(0, 11) - expected).max() > 0.01


def test_rows_have_rotary_positions_of_their_own(numpy, normal, rotary):
    query, value = normal(2, 4, 8), keras.ops.convert_to_tensor(normal(2, 5, 6, seed=1))
    keys, values = rotary.keys_and_values(value)
    memory = {rotary.path: (keras.ops.swapaxes(keys, -1, -2), values)}
    positions = np.array([[0, 1, 2, 3], [9, 4, 5, 7]])

    def output(positions):
        return numpy(rotary(query, value, cache=Cache({}, memory, slot=0, positions=positions)))

    for row in range(2):
        np.testing.assert_allclose(output(positions)[row], output(positions[row])[row], atol=1e-5)
    assert np.abs(output(positions)[1] - output(positions[0])[1]).max() > 0.01


def test_a_rotary_head_of_odd_width_is_an_error(normal):
    x = normal(1, 2, 6)
    with pytest.raises(ValueError, match="width of a head must be even; received 3"):
        MultiHeadAttention(2, rotary=True)(x, x)


# A row in which nothing may be attended to

PATHS = {
    "fused": (0.0, False),
    "weights": (0.0, True),
    "dropout_in_training": (0.5, False),
    "dropout_and_weights": (0.5, True),
}
EMPTY_ROWS = np.array([[[T, T, T, T, T]] * 4, [[F] * 5, [T] * 5, [T, F, F, F, F], [F] * 5]])
EMPTY_SENTENCE = np.array([[[T, T, T, F, F]], [[F, F, F, F, F]]])


def only_output(output):
    return output[0] if isinstance(output, (tuple, list)) else output


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("mask", [EMPTY_ROWS, EMPTY_SENTENCE], ids=["rows", "sentence"])
@pytest.mark.parametrize("path", PATHS)
def test_a_row_that_may_attend_to_nothing_gives_exact_zeros(numpy, normal, dtype, mask, path):
    dropout, ask = PATHS[path]
    layer = MultiHeadAttention(2, dropout=dropout, dtype=dtype)
    query, value = normal(2, 4, 8), normal(2, 5, 6, seed=1)
    # The output projection starts without bias, so zeros stay zeros.
    output = layer(
        query, value, attention_mask=mask, return_attention_scores=ask, training=dropout > 0
    )
    output = numpy(only_output(output))
    empty = ~np.broadcast_to(mask, (2, 4, 5)).any(axis=-1)
    np.testing.assert_array_equal(output[empty], 0)
    assert np.all(np.isfinite(output))
    assert np.abs(output[~empty]).max(axis=-1).min() > 1e-3 or dropout


@pytest.mark.parametrize("causal", [False, True], ids=["", "causal"])
@pytest.mark.parametrize("path", PATHS)
def test_a_row_that_may_attend_to_nothing_has_a_finite_gradient(
    normal, gradients, randomize, path, causal
):
    dropout, ask = PATHS[path]
    layer = MultiHeadAttention(2, dropout=dropout)
    query, value = normal(2, 4, 8), normal(2, 5, 6, seed=1)
    layer.build(query.shape, value.shape)
    randomize(layer)

    def squares(query, value):
        output = layer(
            query,
            value,
            attention_mask=EMPTY_ROWS,
            use_causal_mask=causal,
            return_attention_scores=ask,
        )
        return keras.ops.sum(only_output(output) ** 2)

    of_query, of_value, *of_weights = gradients(squares, query, value, layers=[layer])
    for gradient in (of_query, of_value, *of_weights):
        assert np.all(np.isfinite(gradient))
    empty = ~EMPTY_ROWS.any(axis=-1)
    np.testing.assert_array_equal(of_query[empty], 0)
    assert np.abs(of_query[0, 1:]).max() > 1e-4 and np.abs(of_value).max() > 1e-4


def test_both_paths_have_the_same_gradient(normal, gradients, attention):
    def squares(ask):
        return lambda query, value: keras.ops.sum(
            only_output(
                attention(query, value, attention_mask=FULL_MASK, return_attention_scores=ask)
            )
            ** 2
        )

    query, value = normal(2, 4, 8), normal(2, 5, 6, seed=1)
    fused = gradients(squares(False), query, value)
    plain = gradients(squares(True), query, value)
    for a, b in zip(fused, plain, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
        assert np.abs(a).max() > 0.1


# Sizes, shapes, caches


def test_the_parameters_of_the_paper_are_66048_at_d_model_128():
    layer = MultiHeadAttention(num_heads=8)
    layer.build((None, None, 128), (None, None, 128))
    assert layer.count_params() == 4 * (128**2 + 128) == 66_048


def test_a_functional_model_of_unknown_lengths_states_the_shapes_that_come_out(numpy, normal):
    query, value = keras.Input((None, 8)), keras.Input((None, 6))
    mask = keras.Input((1, None), dtype="bool")
    layer = MultiHeadAttention(num_heads=2)
    output, weights = layer(query, value, attention_mask=mask, return_attention_scores=True)
    assert output.shape == (None, None, 8)
    assert weights.shape == (None, 2, None, None)
    model = keras.Model([query, value, mask], [output, weights])
    arrays = normal(2, 4, 8), normal(2, 5, 6, seed=1)
    expected = numpy(layer(*arrays, attention_mask=SOURCE_MASK, return_attention_scores=True))
    for got, wanted in zip(numpy(model([*arrays, SOURCE_MASK])), expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-6)


@pytest.mark.parametrize("causal", [False, True], ids=["", "causal"])
def test_a_functional_model_of_known_lengths_states_target_by_source(causal):
    layer = MultiHeadAttention(num_heads=2)
    arguments = dict(use_causal_mask=causal, return_attention_scores=True)
    output, weights = layer(keras.Input((4, 8)), keras.Input((5, 6)), **arguments)
    assert output.shape == (None, 4, 8)
    assert weights.shape == (None, 2, 4, 5)


def test_attention_to_the_keys_and_values_of_a_cache_equals_the_call(numpy, normal, attention):
    query, value = normal(2, 4, 8), keras.ops.convert_to_tensor(normal(2, 5, 6, seed=1))
    memory = Cache.of_memory([attention], value)
    for mask in (None, SOURCE_MASK):
        cache = Cache({}, memory, slot=0, positions=np.arange(4))
        cached = attention(query, value, attention_mask=mask, cache=cache)
        expected = attention(query, value, attention_mask=mask)
        np.testing.assert_allclose(numpy(cached), numpy(expected), atol=1e-5)


POLICIES = ["float32", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16"]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_dtypes_that_are_announced_are_those_computed(policy):
    layer = MultiHeadAttention(num_heads=2, dtype=policy)
    for ask in (False, True):
        symbolic = layer(keras.Input((4, 8)), keras.Input((5, 6)), return_attention_scores=ask)
        computed = layer(np.ones((2, 4, 8)), np.ones((2, 5, 6)), return_attention_scores=ask)
        for announced, found in zip(
            keras.tree.flatten(symbolic), keras.tree.flatten(computed), strict=True
        ):
            assert announced.dtype == keras.backend.standardize_dtype(found.dtype)
            assert announced.dtype == policy.removeprefix("mixed_")


# The weights inside other layers


class TwoAttentions(keras.layers.Layer):
    """The second attention, and then the first; it may fail between them."""

    def build(self, x_shape):
        self.first = MultiHeadAttention(2, name="first")
        self.second = MultiHeadAttention(2, name="second")
        self.first.build(x_shape, x_shape)
        self.second.build(x_shape, x_shape)

    def call(self, x, attention_mask=None, fails=False):
        x = self.second(x, x, attention_mask=attention_mask)
        if fails:
            raise RuntimeError("between the two")
        return self.first(x, x)


def test_the_weights_of_every_attention_in_a_layer_come_by_path_in_the_order_of_the_calls(
    numpy, normal, recorded
):
    x, layer = normal(2, 5, 8), TwoAttentions(name="both")
    layer.build(x.shape)
    before = numpy(layer(x, attention_mask=SOURCE_MASK))
    output, scores = recorded(layer, x, attention_mask=SOURCE_MASK)
    np.testing.assert_allclose(numpy(output), before, atol=1e-5)
    assert list(scores) == [layer.second.path, layer.first.path] == ["both/second", "both/first"]
    y, of_second = layer.second(x, x, attention_mask=SOURCE_MASK, return_attention_scores=True)
    _, of_first = layer.first(y, y, return_attention_scores=True)
    np.testing.assert_array_equal(numpy(scores["both/second"]), numpy(of_second))
    np.testing.assert_array_equal(numpy(scores["both/first"]), numpy(of_first))


def test_each_call_of_a_shared_layer_has_its_weights(numpy, normal):
    shared, x = MultiHeadAttention(2, name="shared"), normal(2, 5, 8)
    shared.build(x.shape, x.shape)
    both = attention_scores(lambda x: shared(shared(x, x), x), x)
    assert list(both) == [shared.path, f"{shared.path}#2"]
    _, first = shared(x, x, return_attention_scores=True)
    _, second = shared(shared(x, x), x, return_attention_scores=True)
    for found, expected in zip(both.values(), (first, second), strict=True):
        np.testing.assert_allclose(numpy(found), numpy(expected), atol=1e-6)


def test_a_mask_may_be_given_by_its_place_in_a_functional_model(numpy, normal):
    x, mask = normal(2, 5, 8), np.tri(5, dtype=bool)[None]
    inputs = keras.Input((None, 8)), keras.Input((None, None), dtype="bool")
    layer = MultiHeadAttention(2)
    model = keras.Model(inputs, layer(inputs[0], inputs[0], None, inputs[1]))
    expected = numpy(layer(x, x, use_causal_mask=True))
    np.testing.assert_allclose(numpy(model([x, np.tile(mask, (2, 1, 1))])), expected, atol=1e-5)


def test_the_weights_of_an_attention_itself_are_those_it_returns(numpy, normal, attention):
    query, value = normal(2, 4, 8), normal(2, 5, 6, seed=1)
    _, weights = attention(query, value, return_attention_scores=True)
    scores = attention_scores(attention, query, value)
    assert list(scores) == [attention.path]
    np.testing.assert_array_equal(numpy(scores[attention.path]), numpy(weights))


def test_after_the_weights_were_returned_a_layer_is_as_before(numpy, normal):
    x, layer = normal(2, 5, 8), TwoAttentions()
    layer.build(x.shape)
    before = numpy(layer(x))
    attention_scores(layer, x)
    with pytest.raises(RuntimeError, match="between the two"):
        attention_scores(layer, x, fails=True)
    np.testing.assert_array_equal(numpy(layer(x)), before)
    assert "call" not in {*vars(layer.first), *vars(layer.second)}


# Errors


def test_num_heads_that_does_not_divide_the_width_is_an_error_that_names_both(normal):
    x = normal(1, 2, 8)
    with pytest.raises(ValueError, match=r"divide d_model; received num_heads=3, d_model=8\."):
        MultiHeadAttention(3)(x, x)


@pytest.mark.parametrize("ask", [False, True], ids=["", "weights"])
def test_key_and_value_of_different_lengths_are_an_error_that_names_both(normal, ask):
    query, value, key = normal(2, 4, 8), normal(2, 5, 8), normal(2, 6, 8)
    message = r"key and value must have the same length; received lengths=\[5, 6\]\."
    layer = MultiHeadAttention(2)
    layer(query, value, key=value)
    with pytest.raises(ValueError, match=message):
        layer(query, value, key=key, return_attention_scores=ask)


@pytest.mark.parametrize("dropout", [-0.1, 1.0, 1.5])
def test_dropout_outside_0_to_1_is_an_error(dropout):
    with pytest.raises(ValueError, match=rf"dropout must be in \[0, 1\); .* dropout={dropout}"):
        MultiHeadAttention(2, dropout=dropout)


def test_an_observer_may_scale_heads_and_reads_their_weights(normal, numpy):
    x, layer = normal(2, 3, 12), MultiHeadAttention(3, name="observed")
    layer.build(x.shape, x.shape)
    layer.set_weights([normal(*w.shape) for w in layer.get_weights()])
    before, weights = numpy(layer(x, x, return_attention_scores=True))
    factors, seen = np.array([1, 0, 0.5], "float32"), {}

    def scale(path, heads, weights):
        seen[path] = weights
        return keras.ops.multiply(heads, factors.reshape(1, 3, 1, 1))

    with backend.observed_heads(scale):
        scaled = numpy(layer(x, x))
    np.testing.assert_allclose(numpy(seen["observed"]), weights, atol=1e-6)
    kernel = numpy(layer.output_projection.kernel)
    layer.output_projection.kernel.assign(kernel * np.repeat(factors, 4).reshape(-1, 1))
    np.testing.assert_allclose(scaled, numpy(layer(x, x)), atol=1e-5)
    assert np.abs(scaled - before).max() > 0.01


def test_an_observer_may_reveal_what_the_look_ahead_mask_hides(normal, numpy):
    x, layer = normal(2, 4, 12), MultiHeadAttention(3)
    layer.build(x.shape, x.shape)
    layer.set_weights([normal(*w.shape) for w in layer.get_weights()])
    real = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], bool)  # the rest is padding
    with backend.observed_heads(lambda path, heads, weights: heads, real[:, None, None]):
        revealed = numpy(layer(x, x, use_causal_mask=True))
        elsewhere = numpy(layer(x, x, attention_mask=real[:, None]))
    mask = real[:, None] | np.tri(4, dtype=bool)
    np.testing.assert_allclose(revealed, numpy(layer(x, x, attention_mask=mask)), atol=1e-5)
    np.testing.assert_allclose(
        elsewhere, numpy(layer(x, x, attention_mask=real[:, None])), atol=1e-5
    )
    assert np.abs(revealed - numpy(layer(x, x, use_causal_mask=True))).max() > 0.01
