import keras
import numpy as np
import pytest

import oracle
from keras_transformer.layers.attention import attention_scores
from keras_transformer.layers.blocks import (
    Decoder,
    DecoderBlock,
    Encoder,
    EncoderBlock,
)
from keras_transformer.layers.cache import Cache

T, F = True, False

# Two sentences of 5 and 3 source tokens; targets of 4, the second padded on the LEFT, where the
# look-ahead mask alone would let real tokens see it.
SOURCE_MASK = np.array([[[T, T, T, T, T]], [[T, T, T, F, F]]])
TARGET_MASK = np.array([[[T, T, T, T]], [[F, F, T, T]]])

NORM = pytest.mark.parametrize("norm_first", [False, True], ids=["post_norm", "pre_norm"])
MASKED = pytest.mark.parametrize("masked", [False, True], ids=["no_mask", "masked"])
MASKED_AND_NORM = pytest.mark.parametrize(
    "masked, norm_first",
    [
        (False, False),
        pytest.param(False, True, marks=pytest.mark.slow),
        (True, False),
        (True, True),
    ],
    ids=["no_mask-post_norm", "no_mask-pre_norm", "masked-post_norm", "masked-pre_norm"],
)
BLOCKS = {
    "encoder_block": (EncoderBlock, {}),
    "decoder_block": (DecoderBlock, {}),
    "encoder": (Encoder, {"num_layers": 2}),
    "decoder": (Decoder, {"num_layers": 2}),
}


@pytest.fixture(scope="module")
def build(randomize):
    """A block or stack of d_model 8, built for a memory of the same width."""

    def build(cls, **kwargs):
        layer = cls(num_heads=2, d_ff=16, **kwargs)
        shapes = [(None, None, 8)] * (2 if issubclass(cls, (DecoderBlock, Decoder)) else 1)
        layer.build(*shapes)
        return randomize(layer)

    return build


@NORM
@MASKED
def test_the_encoder_block_equals_the_oracle(numpy, normal, weights_of, build, norm_first, masked):
    layer, x, mask = build(EncoderBlock, norm_first=norm_first), normal(2, 5, 8), None
    if masked:
        mask = SOURCE_MASK
    expected = oracle.encoder_block(x, weights_of(layer), 2, mask, pre_norm=norm_first)
    np.testing.assert_allclose(numpy(layer(x, mask)), expected, atol=1e-5)


@NORM
@MASKED
def test_the_decoder_block_equals_the_oracle(numpy, normal, weights_of, build, norm_first, masked):
    layer = build(DecoderBlock, norm_first=norm_first)
    x, memory = normal(2, 4, 8), normal(2, 5, 8, seed=1)
    source_mask, target_mask = (SOURCE_MASK, TARGET_MASK) if masked else (None, None)
    output = layer(x, memory, cross_attention_mask=source_mask, attention_mask=target_mask)
    expected = oracle.decoder_block(
        x, memory, weights_of(layer), 2, source_mask, target_mask, pre_norm=norm_first
    )
    np.testing.assert_allclose(numpy(output), expected, atol=1e-5)


@MASKED_AND_NORM
def test_the_encoder_equals_the_oracle(numpy, normal, weights_of, build, norm_first, masked):
    layer = build(Encoder, num_layers=3, norm_first=norm_first)
    x, mask = normal(2, 5, 8), SOURCE_MASK if masked else None
    expected = oracle.encoder(x, weights_of(layer), 2, mask, pre_norm=norm_first)
    np.testing.assert_allclose(numpy(layer(x, mask)), expected, atol=1e-5)


@MASKED_AND_NORM
def test_the_decoder_equals_the_oracle(numpy, normal, weights_of, build, norm_first, masked):
    layer = build(Decoder, num_layers=3, norm_first=norm_first)
    x, memory = normal(2, 4, 8), normal(2, 5, 8, seed=1)
    source_mask, target_mask = (SOURCE_MASK, TARGET_MASK) if masked else (None, None)
    output = layer(x, memory, cross_attention_mask=source_mask, attention_mask=target_mask)
    expected = oracle.decoder(
        x, memory, weights_of(layer), 2, source_mask, target_mask, pre_norm=norm_first
    )
    np.testing.assert_allclose(numpy(output), expected, atol=1e-5)


@NORM
def test_a_rotary_encoder_that_may_not_look_ahead_equals_the_oracle(
    numpy, normal, weights_of, build, norm_first
):
    layer = build(Encoder, num_layers=2, norm_first=norm_first, rotary=True)
    x, causal = normal(2, 5, 8), oracle.look_ahead_mask(5)
    arguments = dict(pre_norm=norm_first, rotary=True)
    for mask in (None, SOURCE_MASK):
        both = causal if mask is None else causal & mask
        expected = oracle.encoder(x, weights_of(layer), 2, both, **arguments)
        output = numpy(layer(x, attention_mask=mask, use_causal_mask=True))
        np.testing.assert_allclose(output, expected, atol=1e-5)
    expected = oracle.encoder(x, weights_of(layer), 2, SOURCE_MASK, **arguments)
    np.testing.assert_allclose(numpy(layer(x, SOURCE_MASK)), expected, atol=1e-5)


def test_the_stack_normalizes_last_only_with_pre_norm(numpy, normal, build):
    x = normal(2, 5, 8)
    for norm_first in (False, True):
        layer = build(Encoder, num_layers=1, norm_first=norm_first)
        after_the_block = numpy(layer.blocks[0](x))
        difference = np.abs(numpy(layer(x)) - after_the_block).max()
        assert difference > 0.1 if norm_first else difference == 0


def inputs_of(layer, normal):
    """The target, and for a decoder the memory."""
    inputs = [normal(2, 4, 8), normal(2, 5, 8, seed=1)]
    return inputs if isinstance(layer, (DecoderBlock, Decoder)) else inputs[:1]


@pytest.mark.parametrize("cls, kwargs", BLOCKS.values(), ids=BLOCKS)
def test_asking_for_the_weights_changes_no_output(numpy, normal, build, recorded, cls, kwargs):
    layer = build(cls, **kwargs)
    inputs = inputs_of(layer, normal)
    output, scores = numpy(recorded(layer, *inputs))
    np.testing.assert_allclose(output, numpy(layer(*inputs)), atol=1e-5)
    assert len(scores) == len(inputs) * kwargs.get("num_layers", 1)
    for weights in scores.values():
        np.testing.assert_allclose(weights.sum(axis=-1), np.ones((2, 2, 4)), rtol=1e-5)


def test_the_decoder_gives_weights_by_path_that_see_no_future_and_no_padding(numpy, normal, build):
    layer = build(Decoder, num_layers=2, name="decoder")
    inputs = normal(2, 4, 8), normal(2, 5, 8, seed=1)
    scores = numpy(attention_scores(layer, *inputs, cross_attention_mask=SOURCE_MASK))
    causal = [[T, F, F, F], [T, T, F, F], [T, T, T, F], [T, T, T, T]]
    real = [[[[T, T, T, T, T]]], [[[T, T, T, F, F]]]]
    paths = []
    for block in ("decoder/block_1", "decoder/block_2"):
        paths += [f"{block}/self_attention", f"{block}/cross_attention"]
        of_self, of_memory = (scores[path] for path in paths[-2:])
        np.testing.assert_array_equal(of_self > 0, np.broadcast_to(causal, (2, 2, 4, 4)))
        np.testing.assert_array_equal(of_memory > 0, np.broadcast_to(real, (2, 2, 4, 5)))
    assert list(scores) == paths


def test_the_encoder_gives_weights_by_path_that_see_no_padding(numpy, normal, build):
    layer = build(Encoder, num_layers=2, name="encoder")
    scores = numpy(attention_scores(layer, normal(2, 5, 8), SOURCE_MASK))
    real = [[[[T, T, T, T, T]]], [[[T, T, T, F, F]]]]
    assert list(scores) == [f"encoder/block_{number}/self_attention" for number in (1, 2)]
    for weights in scores.values():
        np.testing.assert_array_equal(weights > 0, np.broadcast_to(real, (2, 2, 5, 5)))


@NORM
def test_a_sentence_without_a_real_token_has_finite_outputs_and_gradients(
    normal, gradients, build, norm_first
):
    nobody = np.array([[[T, T, T, T, T]], [[F, F, F, F, F]]])
    encoder = build(Encoder, num_layers=1, norm_first=norm_first)
    decoder = build(Decoder, num_layers=1, norm_first=norm_first, attention_dropout=0.5)

    def squares(source, target):
        memory = encoder(source, attention_mask=nobody)
        output = decoder(target, memory, cross_attention_mask=nobody)
        return keras.ops.sum(keras.ops.square(output))

    arrays = normal(2, 5, 8), normal(2, 4, 8, seed=1)
    of_source, *others = gradients(squares, *arrays, layers=[encoder, decoder])
    assert all(np.all(np.isfinite(gradient)) for gradient in (of_source, *others))
    # The empty sentence reaches its target's loss by no path at all.
    np.testing.assert_array_equal(of_source[1], 0)
    assert np.abs(of_source[0]).max() > 1e-4


ROTARY_AND_NORM = pytest.mark.parametrize(
    "rotary, norm_first",
    [
        (False, False),
        pytest.param(False, True, marks=pytest.mark.slow),
        pytest.param(True, False, marks=pytest.mark.slow),
        (True, True),
    ],
    ids=["-post_norm", "-pre_norm", "rotary-post_norm", "rotary-pre_norm"],
)


def read_one_by_one(layer, x, *memory, **masks):
    """The outputs for the tokens of x, each in a call of its own, with a cache of 6 slots."""
    decoded = Cache.empty([block.self_attention for block in layer.blocks], len(x), 6)
    of_memory = {}
    if memory:
        attentions = [block.cross_attention for block in layer.blocks]
        of_memory = Cache.of_memory(attentions, *memory)
    for position in range(x.shape[1]):
        token = keras.ops.convert_to_tensor(x[:, position : position + 1])
        cache = Cache(decoded, of_memory, slot=position, positions=np.array([position]))
        read = np.arange(6).reshape((1, 1, 6)) <= position
        yield layer(token, *memory, **masks, attention_mask=read, cache=cache)
        decoded = cache.decoded


@ROTARY_AND_NORM
def test_reading_a_token_at_a_time_equals_the_whole_causal_call(
    numpy, normal, build, norm_first, rotary
):
    layer = build(Encoder, num_layers=2, norm_first=norm_first, rotary=rotary)
    x = normal(2, 4, 8)
    expected = numpy(layer(x, use_causal_mask=True))
    outputs = read_one_by_one(layer, x, use_causal_mask=True)
    for position, output in enumerate(outputs):
        np.testing.assert_allclose(numpy(output), expected[:, position : position + 1], atol=1e-5)
    assert position == 3


@ROTARY_AND_NORM
def test_decoding_a_token_at_a_time_equals_the_whole_call(numpy, normal, build, norm_first, rotary):
    layer = build(Decoder, num_layers=2, norm_first=norm_first, rotary=rotary)
    x, memory = normal(2, 4, 8), keras.ops.convert_to_tensor(normal(2, 5, 8, seed=1))
    expected = numpy(layer(x, memory, cross_attention_mask=SOURCE_MASK))
    outputs = read_one_by_one(layer, x, memory, cross_attention_mask=SOURCE_MASK)
    for position, output in enumerate(outputs):
        np.testing.assert_allclose(numpy(output), expected[:, position : position + 1], atol=1e-5)
    assert position == 3


@pytest.mark.parametrize(
    "dtype", ["mixed_bfloat16", pytest.param("mixed_float16", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("cls, kwargs", BLOCKS.values(), ids=BLOCKS)
def test_low_precision_computes_low_keeps_variables_high_and_stays_close(
    numpy, normal, build, cls, kwargs, dtype
):
    layers = [build(cls, dtype=policy, **kwargs) for policy in ("float32", dtype)]
    expected, output = (layer(*inputs_of(layer, normal)) for layer in layers)
    assert keras.backend.standardize_dtype(output.dtype) == dtype.removeprefix("mixed_")
    assert {keras.backend.standardize_dtype(w.dtype) for w in layers[1].weights} == {"float32"}
    assert {child.compute_dtype for child in layers[1]._flatten_layers()} == {
        layers[1].compute_dtype
    }
    np.testing.assert_allclose(numpy(output), numpy(expected), atol=0.15)


def test_a_functional_model_of_unknown_lengths_states_the_shapes_that_come_out(numpy, normal):
    source, target = keras.Input((None, 8)), keras.Input((None, 8))
    mask = keras.Input((1, None), dtype="bool")
    sizes = dict(num_layers=2, num_heads=2, d_ff=16)
    memory = Encoder(**sizes)(source, attention_mask=mask)
    output = Decoder(**sizes)(target, memory, cross_attention_mask=mask)
    assert memory.shape == output.shape == (None, None, 8)
    model = keras.Model([source, target, mask], [memory, output])
    arrays = normal(2, 5, 8), normal(2, 4, 8, seed=1), SOURCE_MASK
    assert [x.shape for x in numpy(model(arrays))] == [(2, 5, 8), (2, 4, 8)]
    weights = [w.shape for w in numpy(attention_scores(model, arrays)).values()]
    assert weights == [(2, 2, 5, 5)] * 2 + [(2, 2, 4, 4), (2, 2, 4, 5)] * 2


def test_a_functional_model_of_known_lengths_states_target_by_source():
    source, target = keras.Input((5, 8)), keras.Input((4, 8))
    assert EncoderBlock(2, 16)(source).shape == (None, 5, 8)
    assert DecoderBlock(2, 16)(target, source).shape == (None, 4, 8)


def test_a_memory_of_another_width_is_attended_to(numpy, normal, weights_of, randomize):
    layer, x, memory = DecoderBlock(2, 16), normal(2, 4, 8), normal(2, 5, 6, seed=1)
    layer.build(x.shape, memory.shape)
    expected = oracle.decoder_block(x, memory, weights_of(randomize(layer)), 2)
    np.testing.assert_allclose(numpy(layer(x, memory)), expected, atol=1e-5)


# Errors


@pytest.mark.parametrize("cls, kwargs", BLOCKS.values(), ids=BLOCKS)
def test_num_heads_that_does_not_divide_d_model_is_an_error_that_names_both(cls, kwargs):
    layer = cls(num_heads=3, d_ff=16, **kwargs)
    shapes = [(None, None, 8)] * (2 if issubclass(cls, (DecoderBlock, Decoder)) else 1)
    with pytest.raises(ValueError, match=r"divide d_model; received num_heads=3, d_model=8\."):
        layer.build(*shapes)


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5])
@pytest.mark.parametrize("name", ["dropout", "attention_dropout"])
@pytest.mark.parametrize("cls, kwargs", BLOCKS.values(), ids=BLOCKS)
def test_a_rate_outside_0_to_1_is_an_error_by_name_before_building(cls, kwargs, name, rate):
    with pytest.raises(ValueError, match=rf"^{name} must be in \[0, 1\); received {name}={rate}"):
        cls(num_heads=2, d_ff=16, **kwargs, **{name: rate})


@pytest.mark.parametrize("cls, kwargs", BLOCKS.values(), ids=BLOCKS)
def test_an_option_that_does_not_exist_is_an_error_that_names_it(cls, kwargs):
    with pytest.raises((TypeError, ValueError), match="dropuot"):
        cls(num_heads=2, d_ff=16, **kwargs, dropuot=0.1)
