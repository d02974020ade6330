import dataclasses
import inspect
import io
import json
import zipfile

import h5py
import keras
import numpy as np
import oracle
import pytest

from keras_transformer import attention, blocks, masks, models, positions, training
from keras_transformer.blocks import EPSILON, DecoderBlock, EncoderBlock
from keras_transformer.models import PRESETS, TokenEmbedding, Transformer, count_parameters
from keras_transformer.positions import PositionalEncoding
from keras_transformer.training import (
    Perplexity,
    TokenAccuracy,
    TokenCrossEntropy,
    WarmupSchedule,
    paper_optimizer,
)

SIZES = dict(num_layers=2, d_model=8, num_heads=2, d_ff=16)
SOURCE = np.array([[5, 6, 7, 3, 0], [8, 3, 0, 0, 0]])
TARGET = np.array([[2, 4, 9, 6], [2, 5, 0, 0]])
LABELS = np.array([[4, 9, 6, 3], [5, 3, 0, 0]])
IDS = {"source_ids": SOURCE, "target_ids": TARGET}

NORM = pytest.mark.parametrize("norm_first", [False, True], ids=["post_norm", "pre_norm"])
VOCABULARIES = pytest.mark.parametrize("target_size", [None, 13], ids=["shared", "separate"])


@pytest.fixture(scope="module")
def transformer(randomize):
    """A small Transformer of 11 source ids with random weights."""

    def transformer(target_size=None, **kwargs):
        return randomize(Transformer(11, target_size, **{**SIZES, **kwargs}))

    return transformer


@pytest.fixture(scope="module")
def shared(transformer):
    return transformer(dropout=0.0)


# Embedding and numbers


def test_embeddings_are_scaled_by_the_root_of_d_model_and_read_backwards_as_logits(numpy):
    layer = TokenEmbedding(vocabulary_size=2, d_model=4)
    layer.build()
    layer.set_weights([np.array([[1, 2, 3, 4], [5, 6, 7, 8]])])
    # The root of 4 doubles; the logits are dot products with the rows themselves.
    np.testing.assert_array_equal(
        numpy(layer(np.array([[1, 0]]))), [[[10, 12, 14, 16], [2, 4, 6, 8]]]
    )
    h = np.array([[[1, 0, 0, -1]]], "float32")
    np.testing.assert_array_equal(numpy(layer(h, reverse=True)), [[[1 - 4, 5 - 8]]])


@NORM
@VOCABULARIES
def test_the_logits_of_real_tokens_equal_the_oracle(
    numpy, weights_of, transformer, norm_first, target_size
):
    model = transformer(target_size, norm_first=norm_first)
    logits = numpy(model(IDS))
    expected = oracle.transformer(SOURCE, TARGET, weights_of(model), 2, pre_norm=norm_first)
    # The oracle masks the padding of the target; here it lies in the future of every real token.
    np.testing.assert_allclose(logits[TARGET > 0], expected[TARGET > 0], rtol=1e-5, atol=1e-5)
    assert logits.shape == (2, 4, target_size or 11)


def test_learned_positions_set_to_the_sinusoids_equal_the_oracle(numpy, weights_of, transformer):
    model = transformer(max_length=6)
    for side in (model.source_positions, model.target_positions):
        side.positions.assign(oracle.positional_encoding(6, 8))
    expected = oracle.transformer(SOURCE, TARGET, weights_of(model), 2)
    np.testing.assert_allclose(numpy(model(IDS))[TARGET > 0], expected[TARGET > 0], atol=1e-4)
    assert model.source_positions is not model.target_positions


@NORM
def test_rotary_positions_in_the_whole_transformer_equal_the_oracle(
    numpy, weights_of, transformer, norm_first
):
    model = transformer(rotary=True, norm_first=norm_first)
    arguments = dict(pre_norm=norm_first, rotary=True)
    expected = oracle.transformer(SOURCE, TARGET, weights_of(model), 2, **arguments)
    np.testing.assert_allclose(numpy(model(IDS))[TARGET > 0], expected[TARGET > 0], atol=1e-5)


def test_the_memory_of_encode_is_that_of_the_model(numpy, weights_of, shared):
    memory, mask = numpy(shared.encode(keras.ops.convert_to_tensor(SOURCE)))
    weights = weights_of(shared)
    x = oracle.embed(SOURCE, weights["source_embedding"])
    expected = oracle.encoder(x, weights["encoder"], 2, oracle.padding_mask(SOURCE))
    np.testing.assert_allclose(memory, expected, atol=1e-5)
    np.testing.assert_array_equal(mask, oracle.padding_mask(SOURCE))


def test_a_fresh_model_guesses_about_uniformly(numpy):
    model = Transformer(200, **SIZES)
    loss = numpy(TokenCrossEntropy()(LABELS, model(IDS)))
    assert np.log(200) - 0.5 < loss < np.log(200) + 1.5


def test_a_source_without_a_real_token_has_finite_logits(numpy, shared):
    logits = numpy(shared({"source_ids": np.zeros_like(SOURCE), "target_ids": TARGET}))
    assert np.all(np.isfinite(logits)) and np.std(logits) > 0.1


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_logits_and_loss_are_finite_float32_in_low_precision(numpy, transformer, dtype):
    model = transformer(dtype=dtype, dropout=0.0)
    source = np.where([[True], [False]], SOURCE, 0)  # one sentence has no real token
    logits = model({"source_ids": source, "target_ids": TARGET})
    loss = TokenCrossEntropy(0.1)(LABELS, logits)
    hidden = keras.ops.ones((1, 2, model.embed_target.output_dim), model.embed_target.compute_dtype)
    of_layer = model.embed_target(hidden, reverse=True)  # as decoding calls it
    for tensor in (logits, loss, of_layer):
        assert keras.backend.standardize_dtype(tensor.dtype) == "float32"
        assert np.all(np.isfinite(numpy(tensor)))
    exact = numpy(transformer(dropout=0.0)(IDS))[0]
    np.testing.assert_allclose(numpy(logits)[0], exact, atol=0.1 * np.abs(exact).max())


def test_float16_is_trained_with_a_scaled_loss_also_when_only_the_model_asks_for_it():
    for dtype, scaled in (("mixed_float16", True), ("mixed_bfloat16", False), ("float32", False)):
        model = Transformer(11, **SIZES, dtype=dtype)
        model.compile(paper_optimizer(1e-3), TokenCrossEntropy())
        assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer) == scaled


# Assembly by hand


@NORM
@VOCABULARIES
def test_a_model_assembled_by_hand_equals_the_transformer(
    numpy, transformer, norm_first, target_size
):
    model = transformer(target_size, norm_first=norm_first)

    source_ids = keras.Input((None,), dtype="int32")
    target_ids = keras.Input((None,), dtype="int32")
    mask = masks.padding_mask(source_ids)
    embed_source = embed_target = TokenEmbedding(11, 8)
    if target_size:
        embed_target = TokenEmbedding(target_size, 8)
    encoder_blocks, decoder_blocks = (
        [block(2, 16, norm_first=norm_first) for _ in range(2)]
        for block in (EncoderBlock, DecoderBlock)
    )
    norms = [keras.layers.LayerNormalization(epsilon=EPSILON) for _ in range(2 * norm_first)]

    memory = PositionalEncoding()(embed_source(source_ids))
    for block in encoder_blocks:
        memory = block(memory, attention_mask=mask)
    memory = norms[0](memory) if norm_first else memory
    y = PositionalEncoding()(embed_target(target_ids))
    for block in decoder_blocks:
        y, _, weights = block(y, memory, cross_attention_mask=mask, return_attention_scores=True)
    y = norms[1](y) if norm_first else y
    logits = embed_target(y, reverse=True)
    by_hand = keras.Model([source_ids, target_ids], [logits, weights])

    pairs = [(embed_source, model.embed_source), (embed_target, model.embed_target)]
    pairs += zip(encoder_blocks, model.encoder.blocks)
    pairs += zip(decoder_blocks, model.decoder.blocks)
    pairs += zip(norms, [model.encoder.norm, model.decoder.norm] if norm_first else [])
    for ours, theirs in pairs:
        ours.set_weights(theirs.get_weights())

    assert logits.shape == (None, None, target_size or 11) and logits.dtype == "float32"
    assert weights.shape == (None, 2, None, None)
    assert by_hand.count_params() == model.count_params()
    found, weights = numpy(by_hand([SOURCE, TARGET]))
    np.testing.assert_allclose(found, numpy(model(IDS)), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(
        weights > 0, np.broadcast_to((SOURCE > 0)[:, np.newaxis, np.newaxis], (2, 2, 4, 5))
    )


def test_one_model_takes_every_length_and_names_its_inputs(numpy, weights_of, shared):
    assert {t.name: t.shape for t in shared.inputs} == {
        "source_ids": (None, None),
        "target_ids": (None, None),
    }
    assert shared.output_shape == (None, None, 11)
    assert shared.outputs[0].dtype == "float32"
    source = np.array([[9, 4, 6, 3], [7, 1, 3, 0]])
    target = np.array([[2, 7, 1, 8, 4], [2, 10, 5, 0, 0]])
    logits = numpy(shared({"source_ids": source, "target_ids": target}))
    expected = oracle.transformer(source, target, weights_of(shared), 2)
    np.testing.assert_allclose(logits[target > 0], expected[target > 0], rtol=1e-5, atol=1e-5)


# Configurations

ACTIVATED = dict(activation="gelu", dropout=0.2)
BLOCK = dict(num_heads=2, d_ff=5, attention_dropout=0.3, norm_first=True, rotary=True, **ACTIVATED)
MODEL = {**BLOCK, **dict(num_layers=1, d_model=8, max_length=9, dtype="mixed_bfloat16")}
del MODEL["rotary"]  # positions are learned or rotary
WORDS = dict(
    num_words=7, num_characters=6, num_labels=4, max_characters=5, word_stddev=0.5, **MODEL
)
NAMED = dict(name="a_name")
NON_DEFAULT = {
    attention.MultiHeadAttention: dict(num_heads=2, key_dim=4, dropout=0.2, rotary=True),
    blocks.FeedForward: dict(d_ff=5, **ACTIVATED),
    blocks.AddNorm: dict(dropout=0.2, norm_first=True),
    blocks.EncoderBlock: BLOCK,
    blocks.DecoderBlock: BLOCK,
    blocks.Encoder: dict(num_layers=3, **BLOCK),
    blocks.Decoder: dict(num_layers=3, **BLOCK),
    positions.PositionalEncoding: {},
    positions.LearnedPositionalEncoding: dict(max_length=9),
    positions.NoPositionalEncoding: {},
    models.TokenEmbedding: dict(vocabulary_size=11, d_model=8),
    models.WordEmbedding: dict(
        num_words=7, num_characters=6, d_model=8, character_width=3, kernel_size=2, stddev=0.5
    ),
    models.Pooling: {},
    models.Transformer: dict(source_vocabulary_size=11, target_vocabulary_size=13, **MODEL),
    models.LanguageModel: dict(vocabulary_size=11, **MODEL),
    models.TaggingModel: WORDS,
    models.ClassificationModel: WORDS,
    training.TokenCrossEntropy: dict(label_smoothing=0.2, **NAMED),
    training.TokenAccuracy: NAMED,
    training.Perplexity: NAMED,
    training.WarmupSchedule: dict(d_model=8, warmup_steps=7, scale=3.0),
}


def test_every_public_class_of_these_rooms_is_registered_and_has_a_case_below():
    rooms = (attention, blocks, masks, models, positions, training)
    saved_by_keras = (
        keras.layers.Layer,
        keras.losses.Loss,
        keras.metrics.Metric,
        keras.optimizers.schedules.LearningRateSchedule,
    )
    public = {
        value
        for room in rooms
        for name, value in vars(room).items()
        if inspect.isclass(value)
        and issubclass(value, saved_by_keras)
        and value.__module__.startswith(room.__name__)
        and not name.startswith("_")
    }
    assert public - {training.RDrop} == set(NON_DEFAULT)  # it holds a model: a test of its own
    for cls in public:
        assert keras.saving.get_registered_name(cls) == f"keras_transformer>{cls.__name__}"


@pytest.mark.parametrize(
    "cls, arguments", NON_DEFAULT.items(), ids=lambda x: getattr(x, "__name__", "")
)
def test_a_class_is_restored_from_its_config_with_every_argument(cls, arguments):
    if issubclass(cls, keras.layers.Layer):
        arguments = {"dtype": "mixed_bfloat16", "trainable": False, **arguments, **NAMED}
    config = cls(**arguments).get_config()

    inherited = cls.__init__ is keras.layers.Layer.__init__  # it has no argument of its own
    parameters = {} if inherited else inspect.signature(cls).parameters
    for parameter in parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD and parameter.name != "dtype":
            assert parameter.name in config
            if parameter.name == "rotary" and "max_length" in arguments:
                continue  # the test below
            assert arguments[parameter.name] != parameter.default, "the case proves nothing"
    for name, value in arguments.items():
        restored = config[name]
        if name == "dtype":
            restored = keras.dtype_policies.get(restored).name
        assert restored == value

    copy = cls.from_config(json.loads(json.dumps(config)))
    assert copy.get_config() == config
    serialised = json.loads(json.dumps(keras.saving.serialize_keras_object(copy)))
    again = keras.saving.deserialize_keras_object(serialised)
    assert type(again) is cls and again.get_config() == config


@pytest.mark.parametrize(
    "cls",
    [models.Transformer, models.LanguageModel, models.TaggingModel, models.ClassificationModel],
)
def test_rotary_positions_survive_the_config_and_exclude_learned_ones(cls):
    arguments = {**NON_DEFAULT[cls], "max_length": None, "rotary": True}
    model = cls.from_config(json.loads(json.dumps(cls(**arguments).get_config())))
    assert model.get_config()["rotary"]
    stack = model.decoder if cls in (models.Transformer, models.LanguageModel) else model.encoder
    assert stack.blocks[0].self_attention.rotary
    assert not any("positions" in weight.path for weight in model.weights)
    with pytest.raises(ValueError, match="learned .* or rotary, not both"):
        cls(**{**arguments, "max_length": 9})


def test_an_activation_of_ones_own_survives_the_config():
    @keras.saving.register_keras_serializable(package="tests")
    def cubed(x):
        return x**3

    for cls, kwargs in (
        (blocks.FeedForward, {}),
        (blocks.Encoder, dict(num_layers=1, num_heads=2)),
    ):
        layer = cls(d_ff=5, activation=cubed, **kwargs)
        copy = cls.from_config(json.loads(json.dumps(layer.get_config())))
        assert getattr(copy, "activation", None) is cubed or copy.blocks[0].activation is cubed


# Files


@pytest.mark.parametrize(
    "arguments",
    [
        dict(),
        dict(target_size=13, norm_first=True, max_length=5, activation="gelu"),
        dict(dtype="mixed_bfloat16", attention_dropout=0.1),
    ],
    ids=["default", "separate_pre_norm_learned_positions", "mixed_bfloat16"],
)
def test_a_saved_model_comes_back_with_the_same_logits_and_policy(
    numpy, transformer, tmp_path, arguments
):
    model = transformer(**arguments)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded) is Transformer
    assert loaded.get_config() == model.get_config()
    assert loaded.decoder.blocks[0].self_attention.dtype_policy.name == arguments.get(
        "dtype", "float32"
    )
    expected = numpy(model(IDS))
    np.testing.assert_allclose(numpy(loaded(IDS)), expected, rtol=1e-6, atol=1e-6)
    assert np.abs(numpy(Transformer(**model.get_config())(IDS)) - expected).max() > 0.1


def floats_in(path):
    """The shape of every array of floats in a .keras file."""
    shapes = []

    def visit(_, item):
        if isinstance(item, h5py.Dataset) and np.issubdtype(item.dtype, np.floating):
            shapes.append(item.shape)

    with zipfile.ZipFile(path) as archive:
        with h5py.File(io.BytesIO(archive.read("model.weights.h5")), "r") as file:
            file.visititems(visit)
    return shapes


@VOCABULARIES
def test_every_weight_is_saved_once_the_tied_embedding_too(transformer, tmp_path, target_size):
    model = transformer(target_size)
    model.save(tmp_path / "model.keras")
    found = floats_in(tmp_path / "model.keras")
    assert sorted(found) == sorted(tuple(w.shape) for w in model.weights)
    assert sum(shape[0] in (11, 13) and len(shape) == 2 for shape in found) == (
        2 if target_size else 1
    )
    assert len({id(w) for w in model.weights}) == len(model.weights)


def test_a_compiled_model_comes_back_compiled_in_the_middle_of_its_schedule(numpy, tmp_path):
    model = Transformer(11, **{**SIZES, "num_layers": 1}, dropout=0.0)
    model.compile(
        optimizer=paper_optimizer(WarmupSchedule(8, 10, scale=2.0)),
        loss=TokenCrossEntropy(0.1),
        metrics=[TokenAccuracy(), Perplexity()],
    )
    model.train_on_batch(IDS, LABELS)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")

    assert loaded.compiled
    assert loaded.loss.get_config() == model.loss.get_config()
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    # One step is done, so that the next rate is that of step 2 of equation 3, still in warmup.
    rate = 2.0 * 8**-0.5 * 2 * 10**-1.5
    assert numpy(loaded.optimizer.learning_rate) == pytest.approx(rate, rel=1e-5)
    for saved in (lambda m: m.weights, lambda m: m.optimizer.variables):
        for theirs, ours in zip(saved(model), saved(loaded), strict=True):
            np.testing.assert_array_equal(numpy(ours), numpy(theirs))
    report = loaded.test_on_batch(IDS, LABELS, return_dict=True)
    logits = numpy(loaded(IDS))
    assert report["loss"] == pytest.approx(
        oracle.label_smoothed_cross_entropy(logits, LABELS, 0.1), rel=1e-5
    )
    assert report["perplexity"] == pytest.approx(
        np.exp(oracle.label_smoothed_cross_entropy(logits, LABELS)), rel=1e-5
    )
    hits = logits.argmax(axis=-1)[LABELS > 0] == LABELS[LABELS > 0]
    assert report["token_accuracy"] == pytest.approx(hits.mean())


# Sizes


@pytest.mark.parametrize(
    "vocabulary_size, sizes",
    [
        (11, dict(num_layers=1, d_model=8, d_ff=16)),
        (29, dict(num_layers=3, d_model=12, d_ff=7)),
    ],
    ids=["one", "three"],
)
def test_the_formula_counts_the_parameters_of_the_model(vocabulary_size, sizes):
    model = Transformer(vocabulary_size, **{"num_heads": 2, **sizes})
    assert model.count_params() == count_parameters(vocabulary_size, **sizes)


def test_base_and_big_have_the_papers_65_and_213_million_parameters_within_3_percent():
    # Section 5.1: "about 37000 tokens"; table 3, last column.
    base, big = (
        count_parameters(37_000, **dataclasses.asdict(PRESETS[name])) for name in ("base", "big")
    )
    assert abs(base / 65e6 - 1) < 0.03 and abs(big / 213e6 - 1) < 0.03
    assert f"{base:,}" in count_parameters.__doc__ and f"{big:,}" in count_parameters.__doc__


def test_base_is_as_large_as_its_formula_says():
    model = Transformer(37_000, **dataclasses.asdict(PRESETS["base"]))
    assert model.count_params() == count_parameters(37_000, **dataclasses.asdict(PRESETS["base"]))


def test_the_presets_are_the_rows_of_table_3():
    assert PRESETS["base"] == models.Preset(6, 512, 8, 2048, 0.1)
    assert PRESETS["big"] == models.Preset(6, 1024, 16, 4096, 0.3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        PRESETS["base"].dropout = 0.0


def test_a_shared_vocabulary_has_one_embedding_and_separate_ones_have_two(transformer):
    one, two = transformer(), transformer(13)
    assert one.embed_source is one.embed_target
    assert two.count_params() - one.count_params() == 13 * 8


# Errors


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(num_heads=3), r"num_heads must divide d_model; received num_heads=3, d_model=8\."),
        (dict(num_heads=0), r"num_heads must be an integer of at least 1; received num_heads=0\."),
        (
            dict(num_layers=0),
            r"num_layers must be an integer of at least 1; received num_layers=0\.",
        ),
        (
            dict(max_length=0),
            r"max_length must be an integer of at least 1; received max_length=0\.",
        ),
        (dict(dropout=1.0), r"dropout must be in \[0, 1\); received dropout=1\.0\."),
        (dict(attention_dropout=-1), r"attention_dropout must be in \[0, 1\); received .*=-1\."),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_an_impossible_size_is_an_error_that_names_it(arguments, message):
    with pytest.raises(ValueError, match=message):
        Transformer(11, **{**SIZES, **arguments})


def test_an_input_longer_than_the_learned_positions_is_an_error_that_names_both(transformer):
    model = transformer(max_length=4)
    with pytest.raises(ValueError, match="has 5 tokens, but max_length=4 positions were"):
        model(IDS)
