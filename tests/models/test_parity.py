"""The same weights in KerasHub's layers and in torch.nn.Transformer give the same numbers."""

import keras
import numpy as np
import pytest

from keras_transformer.layers.blocks import Decoder, DecoderBlock, Encoder, EncoderBlock
from keras_transformer.layers.feed_forward import EPSILON

NORM = pytest.mark.parametrize("norm_first", [False, True], ids=["post_norm", "pre_norm"])
MASKED = pytest.mark.parametrize(
    "masked", [pytest.param(False, marks=pytest.mark.slow), True], ids=["no_mask", "masked"]
)

# Real tokens: 5 and 3 of the source, 4 and 2 of the target.
SOURCE_REAL = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)
TARGET_REAL = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], bool)


@pytest.fixture(scope="module")
def source(normal):
    return normal(2, 5, 8)


@pytest.fixture(scope="module")
def target(normal):
    return normal(2, 4, 8, seed=1)


def ours(cls, randomize, **kwargs):
    layer = cls(num_heads=2, d_ff=16, **kwargs)
    layer.build(*[(None, None, 8)] * (2 if issubclass(cls, (DecoderBlock, Decoder)) else 1))
    return randomize(layer)


def row(real):
    """(batch, length) -> our padding mask, (batch, 1, length)."""
    return real[:, np.newaxis]


# KerasHub


def in_keras_hub(block, weights, epsilon=EPSILON):
    """A KerasHub layer with the weights of ours; it holds one kernel a head: (d_model, 2, 4)."""
    import keras_hub

    is_decoder = "cross_attention" in weights
    layer = getattr(keras_hub.layers, "TransformerDecoder" if is_decoder else "TransformerEncoder")(
        16, 2, layer_norm_epsilon=epsilon, normalize_first=block.norm_first
    )
    layer.build(*[(None, None, 8)] * (2 if is_decoder else 1))
    values = {}
    for name in ("self_attention", "cross_attention")[: 1 + is_decoder]:
        theirs = name if is_decoder else "self_attention_layer"
        for part in ("query", "key", "value"):
            values[f"{theirs}/{part}/kernel"] = weights[name][part]["kernel"].reshape(8, 2, 4)
            values[f"{theirs}/{part}/bias"] = weights[name][part]["bias"].reshape(2, 4)
        values[f"{theirs}/attention_output/kernel"] = weights[name]["output"]["kernel"].reshape(
            2, 4, 8
        )
        values[f"{theirs}/attention_output/bias"] = weights[name]["output"]["bias"]
        norm = f"{name}_layer_norm"
        values |= {f"{norm}/{key}": array for key, array in weights[f"{name}_norm"].items()}
    for part, theirs in (("inner", "intermediate"), ("outer", "output")):
        for key, array in weights["feed_forward"][part].items():
            values[f"feedforward_{theirs}_dense/{key}"] = array
    for key, array in weights["feed_forward_norm"].items():
        values[f"feedforward_layer_norm/{key}"] = array
    assert len(values) == len(layer.weights)
    for weight in layer.weights:
        weight.assign(values[weight.path.split("/", 1)[1]].astype("float32"))
    return layer


@NORM
@MASKED
def test_the_encoder_block_equals_that_of_keras_hub(
    numpy, source, randomize, weights_of, norm_first, masked
):
    block = ours(EncoderBlock, randomize, norm_first=norm_first)
    peer = in_keras_hub(block, weights_of(block))
    output = numpy(block(source, row(SOURCE_REAL) if masked else None))
    expected = numpy(peer(source, padding_mask=SOURCE_REAL if masked else None))
    np.testing.assert_allclose(output, expected, atol=1e-4)


@NORM
@MASKED
def test_the_decoder_block_equals_that_of_keras_hub(
    numpy, source, target, randomize, weights_of, norm_first, masked
):
    block = ours(DecoderBlock, randomize, norm_first=norm_first)
    peer = in_keras_hub(block, weights_of(block))
    masks, their_masks = {}, {}
    if masked:
        masks = dict(cross_attention_mask=row(SOURCE_REAL), attention_mask=row(TARGET_REAL))
        their_masks = dict(encoder_padding_mask=SOURCE_REAL, decoder_padding_mask=TARGET_REAL)
    output, expected = numpy([block(target, source, **masks), peer(target, source, **their_masks)])
    np.testing.assert_allclose(output, expected, atol=1e-4)


def test_a_peer_with_another_epsilon_is_not_equal(numpy, source, randomize, weights_of):
    # On small inputs, where epsilon counts: the comparison above can fail.
    block, small = ours(EncoderBlock, randomize, norm_first=True), 0.01 * source
    peer = in_keras_hub(block, weights_of(block), epsilon=1e-3)
    assert np.abs(numpy(block(small)) - numpy(peer(small))).max() > 1e-2


# torch.nn.Transformer


def in_torch(weights, norm_first):
    """torch.nn.Transformer with our weights: kernels transposed; Q, K and V stacked in one."""
    torch = pytest.importorskip("torch", reason="PyTorch is one of three optional backends")
    module = torch.nn.Transformer(
        d_model=8,
        nhead=2,
        num_encoder_layers=2,
        num_decoder_layers=2,
        dim_feedforward=16,
        dropout=0.0,
        activation="relu",
        layer_norm_eps=EPSILON,
        batch_first=True,
        norm_first=norm_first,
    )
    values = {}

    def put_norm(theirs, norm):
        values[f"{theirs}.weight"], values[f"{theirs}.bias"] = norm["gamma"], norm["beta"]

    def put_dense(theirs, dense):
        values[f"{theirs}.weight"], values[f"{theirs}.bias"] = dense["kernel"].T, dense["bias"]

    for side in ("encoder", "decoder"):
        sublayers = {"self_attention": "self_attn", "cross_attention": "multihead_attn"}
        if side == "encoder":
            del sublayers["cross_attention"]
        for i, block in enumerate(weights[side]["blocks"]):
            path = f"{side}.layers.{i}"
            for number, (name, theirs) in enumerate(sublayers.items(), start=1):
                q, k, v = (block[name][part] for part in ("query", "key", "value"))
                stacked = {key: np.concatenate([x[key] for x in (q, k, v)], -1) for key in q}
                values[f"{path}.{theirs}.in_proj_weight"] = stacked["kernel"].T
                values[f"{path}.{theirs}.in_proj_bias"] = stacked["bias"]
                put_dense(f"{path}.{theirs}.out_proj", block[name]["output"])
                put_norm(f"{path}.norm{number}", block[f"{name}_norm"])
            put_dense(f"{path}.linear1", block["feed_forward"]["inner"])
            put_dense(f"{path}.linear2", block["feed_forward"]["outer"])
            put_norm(f"{path}.norm{len(sublayers) + 1}", block["feed_forward_norm"])
        if norm_first:
            put_norm(f"{side}.norm", weights[side]["norm"])
        else:  # PyTorch normalizes once more at the end; the paper does not
            getattr(module, side).norm = None
    tensors = {name: torch.tensor(array, dtype=torch.float32) for name, array in values.items()}
    module.load_state_dict(tensors, strict=True)
    return torch, module


@NORM
@MASKED
def test_both_stacks_equal_torch_nn_transformer(
    numpy, source, target, randomize, weights_of, norm_first, masked
):
    encoder = ours(Encoder, randomize, num_layers=2, norm_first=norm_first)
    decoder = ours(Decoder, randomize, num_layers=2, norm_first=norm_first)
    weights = {"encoder": weights_of(encoder), "decoder": weights_of(decoder)}
    torch, module = in_torch(weights, norm_first)
    source_mask, target_mask, theirs = None, None, {}
    if masked:  # True forbids there, and allows here
        source_mask, target_mask = row(SOURCE_REAL), row(TARGET_REAL)
        source_padding, target_padding = (torch.tensor(~r) for r in (SOURCE_REAL, TARGET_REAL))
        theirs = dict(
            src_key_padding_mask=source_padding,
            memory_key_padding_mask=source_padding,
            tgt_key_padding_mask=target_padding,
        )
    memory = encoder(source, attention_mask=source_mask)
    output = decoder(
        keras.ops.convert_to_tensor(target),
        memory,
        cross_attention_mask=source_mask,
        attention_mask=target_mask,
    )
    future = torch.ones(4, 4, dtype=torch.bool).triu(1)
    with torch.no_grad(), torch.device("cpu"):
        expected = module(torch.tensor(source), torch.tensor(target), tgt_mask=future, **theirs)
    np.testing.assert_allclose(numpy(output), expected.numpy(), atol=1e-4)
