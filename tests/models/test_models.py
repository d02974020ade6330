import dataclasses
import functools
import inspect
import io
import json
import zipfile

import h5py
import keras
import numpy as np
import pytest

import oracle
from keras_transformer import backend, layers, losses, metrics, models, optimizers, training
from keras_transformer.generation import Decoding
from keras_transformer.layers import (
    TokenEmbedding,
    attention,
    blocks,
    feed_forward,
    masks,
    positions,
)
from keras_transformer.layers.attention import attention_scores
from keras_transformer.layers.blocks import DecoderBlock, EncoderBlock
from keras_transformer.layers.feed_forward import EPSILON
from keras_transformer.layers.positions import PositionalEncoding
from keras_transformer.losses import TokenCrossEntropy
from keras_transformer.metrics import Perplexity, TokenAccuracy
from keras_transformer.models import Transformer
from keras_transformer.models.configuration import DEPTHS, PRESETS
from keras_transformer.training import WarmupSchedule, paper_optimizer

SIZES = dict(num_layers=2, d_model=8, num_heads=2, d_ff=16)
SOURCE = np.array([[5, 6, 7, 3, 0], [8, 3, 0, 0, 0]])
TARGET = np.array([[2, 4, 9, 6], [2, 5, 0, 0]])
LABELS = np.array([[4, 9, 6, 3], [5, 3, 0, 0]])
IDS = {"source_ids": SOURCE, "target_ids": TARGET}

ONE_LAYER = {**SIZES, "num_layers": 1}
EAGERLY = not backend.prefers_jit()  # a few steps: on TensorFlow tracing would take longer

# The place of the norm does not change what a vocabulary does.
NORM_AND_VOCABULARIES = pytest.mark.parametrize(
    "norm_first, target_size", [(False, None), (True, 13)], ids=["post_norm_shared", "pre_norm_two"]
)


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


@NORM_AND_VOCABULARIES
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


@pytest.mark.parametrize(
    "norm_first",
    [pytest.param(False, marks=pytest.mark.slow), True],
    ids=["post_norm", "pre_norm"],
)
def test_rotary_positions_in_the_whole_transformer_equal_the_oracle(
    numpy, weights_of, transformer, norm_first
):
    model = transformer(rotary=True, norm_first=norm_first)
    arguments = dict(pre_norm=norm_first, rotary=True)
    expected = oracle.transformer(SOURCE, TARGET, weights_of(model), 2, **arguments)
    np.testing.assert_allclose(numpy(model(IDS))[TARGET > 0], expected[TARGET > 0], atol=1e-5)


@pytest.mark.parametrize("target_size", [pytest.param(None, marks=pytest.mark.slow), 13])
def test_an_epsilon_and_a_bias_of_the_logits_equal_the_oracle(
    numpy, weights_of, transformer, target_size
):
    model = transformer(target_size, norm_first=True, layer_norm_epsilon=0.3, logits_bias=True)
    arguments = dict(pre_norm=True, epsilon=0.3)
    weights = weights_of(model)
    expected = oracle.transformer(SOURCE, TARGET, weights, 2, **arguments)
    np.testing.assert_allclose(numpy(model(IDS))[TARGET > 0], expected[TARGET > 0], atol=1e-5)
    assert weights["logits_bias"].shape == (target_size or 11,)
    assert weights["logits_bias"].std() > 0.1


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


@pytest.mark.parametrize(
    "dtype", [pytest.param("mixed_float16", marks=pytest.mark.slow), "mixed_bfloat16"]
)
def test_logits_and_loss_are_finite_float32_in_low_precision(numpy, transformer, dtype):
    model = transformer(dtype=dtype, dropout=0.0)
    source = np.where([[True], [False]], SOURCE, 0)  # one sentence has no real token
    logits = model({"source_ids": source, "target_ids": TARGET})
    loss = TokenCrossEntropy(0.1)(LABELS, logits)
    embedding = model.target_embedding
    of_layer = embedding(keras.ops.ones((1, 2, 8), embedding.compute_dtype), reverse=True)
    for tensor in (logits, loss, of_layer):
        assert keras.backend.standardize_dtype(tensor.dtype) == "float32"
        assert np.all(np.isfinite(numpy(tensor)))
    exact = numpy(transformer(dropout=0.0)(IDS))[0]
    np.testing.assert_allclose(numpy(logits)[0], exact, atol=0.1 * np.abs(exact).max())


def test_float16_is_trained_with_a_scaled_loss_also_when_only_the_model_asks_for_it():
    for dtype, scaled in (("mixed_float16", True), ("mixed_bfloat16", False), ("float32", False)):
        model = Transformer(11, **ONE_LAYER, dtype=dtype)
        model.compile(paper_optimizer(1e-3), TokenCrossEntropy())
        assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer) == scaled


@pytest.fixture
def products(monkeypatch):
    """The dtypes of both operands of each product whose result has 11 columns: the logits."""
    found = []
    product = keras.src.ops.matmul

    def recording(x, y):
        if y.shape[-1] == 11 and not getattr(y, "is_meta", False):  # PyTorch's, for shapes alone
            found.append(tuple(keras.backend.standardize_dtype(z.dtype) for z in (x, y)))
        return product(x, y)

    monkeypatch.setattr(keras.src.ops, "matmul", recording)
    return found


@pytest.fixture(scope="module")
def of_dtype():
    """A compiled model of each dtype, built once."""

    @functools.cache
    def of_dtype(dtype):
        model = Transformer(11, **ONE_LAYER, dtype=dtype)
        model.compile("sgd", TokenCrossEntropy(), run_eagerly=EAGERLY and dtype != "mixed_float16")
        return model

    return of_dtype


# Every mode in bfloat16; the other dtypes in one mode of each kind, float16 in a compiled step.
@pytest.mark.parametrize(
    "mode, dtype",
    [
        pytest.param("call", "mixed_bfloat16", marks=pytest.mark.slow),
        *((mode, "mixed_bfloat16") for mode in ("fit", "greedy")),
        *(
            pytest.param(mode, "mixed_bfloat16", marks=pytest.mark.slow)
            for mode in ("predict", "score", "beam_search")
        ),
        pytest.param("call", "mixed_float16", marks=pytest.mark.slow),
        pytest.param("fit", "mixed_float16", marks=pytest.mark.slow),
        pytest.param("call", "float32", marks=pytest.mark.slow),
        pytest.param("fit", "float32", marks=pytest.mark.slow),
        pytest.param("greedy", "float32", marks=pytest.mark.slow),
    ],
)
def test_the_logits_are_a_product_in_the_compute_dtype(products, of_dtype, mode, dtype):
    model = of_dtype(dtype)
    products.clear()
    if mode == "call":
        model(IDS)
    elif mode == "fit":
        model.fit(IDS, LABELS, verbose=0)
    elif mode == "predict":
        model.predict(IDS, verbose=0)
    elif mode == "score":
        Decoding(model).score(SOURCE, LABELS)
    else:
        getattr(Decoding(model), mode)(SOURCE, 3)
    low = dtype.removeprefix("mixed_")
    assert products and set(products) == {(low, low)}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_low_precision_is_trained_evaluated_and_decoded(numpy, dtype):
    model = Transformer(11, **ONE_LAYER, attention_dropout=0.1, dtype=dtype)
    model.compile(paper_optimizer(3e-2), TokenCrossEntropy(), run_eagerly=EAGERLY)
    model.optimizer.build(model.trainable_variables)
    before = model.evaluate(IDS, LABELS, verbose=0)
    model.fit(IDS, LABELS, epochs=4, verbose=0)
    assert model.evaluate(IDS, LABELS, verbose=0) < before - 0.2
    assert np.all(np.isfinite(model.predict(IDS, verbose=0)))
    assert Decoding(model).greedy(SOURCE, 3).shape == (2, 3)


# Assembly by hand


@NORM_AND_VOCABULARIES
def test_a_model_assembled_by_hand_equals_the_transformer(
    numpy, transformer, norm_first, target_size
):
    model = transformer(target_size, norm_first=norm_first)

    source_ids = keras.Input((None,), dtype="int32")
    target_ids = keras.Input((None,), dtype="int32")
    mask = masks.padding_mask(source_ids)
    source_embedding = target_embedding = TokenEmbedding(11, 8)
    if target_size:
        target_embedding = TokenEmbedding(target_size, 8)
    encoder_blocks, decoder_blocks = (
        [block(2, 16, norm_first=norm_first) for _ in range(2)]
        for block in (EncoderBlock, DecoderBlock)
    )
    norms = [keras.layers.LayerNormalization(epsilon=EPSILON) for _ in range(2 * norm_first)]

    memory = PositionalEncoding()(source_embedding(source_ids))
    for block in encoder_blocks:
        memory = block(memory, attention_mask=mask)
    memory = norms[0](memory) if norm_first else memory
    y = PositionalEncoding()(target_embedding(target_ids))
    for block in decoder_blocks:
        y = block(y, memory, cross_attention_mask=mask)
    y = norms[1](y) if norm_first else y
    logits = target_embedding(y, reverse=True)
    by_hand = keras.Model([source_ids, target_ids], logits)

    pairs = [(source_embedding, model.source_embedding), (target_embedding, model.target_embedding)]
    pairs += zip(encoder_blocks, model.encoder.blocks, strict=True)
    pairs += zip(decoder_blocks, model.decoder.blocks, strict=True)
    if norm_first:
        pairs += zip(norms, [model.encoder.norm, model.decoder.norm], strict=True)
    for ours, theirs in pairs:
        ours.set_weights(theirs.get_weights())

    assert logits.shape == (None, None, target_size or 11) and logits.dtype == "float32"
    assert by_hand.count_params() == model.count_params()
    found = numpy(by_hand([SOURCE, TARGET]))
    np.testing.assert_allclose(found, numpy(model(IDS)), rtol=1e-5, atol=1e-5)
    weights = attention_scores(by_hand, [SOURCE, TARGET])[decoder_blocks[-1].cross_attention.path]
    np.testing.assert_array_equal(
        numpy(weights) > 0, np.broadcast_to((SOURCE > 0)[:, np.newaxis, np.newaxis], (2, 2, 4, 5))
    )


def test_the_weights_of_a_model_come_by_path(numpy, recorded, shared):
    output, scores = numpy(recorded(shared, IDS))
    np.testing.assert_allclose(output, numpy(shared(IDS)), atol=1e-5)
    shapes = {f"encoder/block_{n}/self_attention": (2, 2, 5, 5) for n in (1, 2)}
    for number in (1, 2):
        shapes[f"decoder/block_{number}/self_attention"] = (2, 2, 4, 4)
        shapes[f"decoder/block_{number}/cross_attention"] = (2, 2, 4, 5)
    assert {path: weights.shape for path, weights in scores.items()} == shapes
    for path, weights in scores.items():
        if "decoder" not in path:
            weights = weights[:, :, :3]  # queries of real tokens of both sentences
        np.testing.assert_allclose(weights.sum(axis=-1), np.ones(weights.shape[:3]), rtol=1e-5)


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
PRE_NORM = dict(norm_first=True, layer_norm_epsilon=0.01)
BLOCK = dict(num_heads=2, d_ff=5, attention_dropout=0.3, rotary=True, **PRE_NORM, **ACTIVATED)
MODEL = dict(num_layers=1, d_model=8, max_length=9, logits_bias=True, dtype="mixed_bfloat16")
MODEL = {**BLOCK, **MODEL}
del MODEL["rotary"]  # positions are learned or rotary
WORDS = dict(
    num_words=7, num_characters=6, num_labels=4, max_characters=5, word_stddev=0.5, **MODEL
)
MODELS = {
    models.Transformer: dict(
        source_vocabulary_size=11,
        target_vocabulary_size=13,
        encoder_layers=2,
        decoder_layers=3,
        **MODEL,
    ),
    models.LanguageModel: dict(vocabulary_size=11, **MODEL),
    models.TaggingModel: WORDS,
    models.ClassificationModel: WORDS,
}
NAMED = dict(name="a_name")
NON_DEFAULT = {
    attention.MultiHeadAttention: dict(num_heads=2, key_dim=4, dropout=0.2, rotary=True),
    feed_forward.FeedForward: dict(d_ff=5, activation="gelu"),
    feed_forward.AddNorm: dict(dropout=0.2, **PRE_NORM),
    blocks.EncoderBlock: BLOCK,
    blocks.DecoderBlock: BLOCK,
    blocks.Encoder: dict(num_layers=3, **BLOCK),
    blocks.Decoder: dict(num_layers=3, **BLOCK),
    positions.PositionalEncoding: {},
    positions.LearnedPositionalEncoding: dict(max_length=9),
    layers.TokenEmbedding: dict(vocabulary_size=11, d_model=8),
    layers.LogitsBias: {},
    layers.Pooling: {},
    layers.WordEmbedding: dict(
        num_words=7, num_characters=6, d_model=8, character_width=3, kernel_size=2, stddev=0.5
    ),
    **MODELS,
    losses.TokenCrossEntropy: dict(label_smoothing=0.2, **NAMED),
    metrics.TokenAccuracy: NAMED,
    metrics.Perplexity: NAMED,
    training.WarmupSchedule: dict(d_model=8, warmup_steps=7, scale=3.0),
    training.WSDSchedule: dict(peak=0.5, warmup_steps=7, num_steps=90, decay_steps=9),
}


# What others derive from; what holds a model, and Linear, a Dense, have tests of their own.
WITHOUT_A_CASE = {
    blocks.Block,
    blocks.Stack,
    losses.TokenLoss,
    metrics.TokenMean,
    training.ChunkedLogits,
    training.RDrop,
    training.SimCut,
    backend.FunctionalModel,
    backend.Linear,
    backend.RematerializedLayer,
    backend.Embedding,
    backend.ReversibleEmbedding,
}


def test_every_public_class_of_these_modules_is_registered_and_has_a_case_below():
    modules = (backend, layers, losses, metrics, models, optimizers, training)
    saved_by_keras = (
        keras.layers.Layer,
        keras.losses.Loss,
        keras.metrics.Metric,
        keras.optimizers.schedules.LearningRateSchedule,
    )
    public = {
        value
        for module in modules
        for name, value in inspect.getmembers(module, inspect.isclass)
        if issubclass(value, saved_by_keras)
        and value.__module__.startswith(module.__name__)
        and not name.startswith("_")
    }
    assert public - WITHOUT_A_CASE == set(NON_DEFAULT)
    wrapped = training.ChunkedLogits, training.RDrop, training.SimCut
    for cls in {*NON_DEFAULT, *wrapped, backend.Linear, backend.FunctionalModel}:
        assert keras.saving.get_registered_name(cls) == f"keras_transformer>{cls.__name__}"


def test_a_file_of_a_functional_model_loads_and_is_trained_as_any_keras_model(tmp_path):
    ids, embedding = keras.Input((None,), dtype="int32"), layers.TokenEmbedding(11, 8)
    h = blocks.Encoder(num_layers=1, num_heads=2, d_ff=16)(embedding(ids))
    outputs = {"ids": embedding(h, reverse=True), "first": keras.layers.Dense(3)(h[:, 0])}
    model = backend.FunctionalModel(ids, outputs, name="two_heads")
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded) is type(model) and loaded.name == "two_heads"
    given = np.array([[4, 5, 6], [7, 8, 9]])
    expected = model.predict(given, verbose=0)
    keras.tree.map_structure(
        np.testing.assert_array_equal, loaded.predict(given, verbose=0), expected
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    loaded.compile(keras.optimizers.Adam(0.01), {"ids": loss, "first": loss})
    labels = {"ids": given, "first": np.array([1, 2])}
    history = loaded.fit(given, labels, epochs=30, verbose=0).history["loss"]
    assert history[-1] < history[0] / 2


def default_arguments(cls):
    """The arguments of a class, those that it hands on included, and their defaults."""
    if cls.__init__ is keras.layers.Layer.__init__:
        return {}
    parameters = dict(inspect.signature(cls).parameters)
    if issubclass(cls, blocks.Stack):
        parameters |= inspect.signature(cls.block).parameters
    defaults = {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
    }
    if cls in MODELS:
        defaults |= dataclasses.asdict(defaults.pop("config"))
    if cls in MODELS and cls is not models.Transformer:  # one stack
        defaults = {name: value for name, value in defaults.items() if name not in DEPTHS}
    for name in ("dtype", "name", "trainable"):
        defaults.pop(name, None)
    return defaults


@pytest.mark.parametrize(
    "cls, arguments", NON_DEFAULT.items(), ids=lambda x: getattr(x, "__name__", "")
)
def test_a_class_is_restored_from_its_config_with_every_argument(cls, arguments):
    if issubclass(cls, keras.layers.Layer):
        arguments = {"dtype": "mixed_bfloat16", "trainable": False, **arguments, **NAMED}
    config = cls(**arguments).get_config()

    for name, default in default_arguments(cls).items():
        assert name in config
        if name == "rotary" and "max_length" in arguments:
            continue  # the test below
        assert arguments[name] != default, "the case proves nothing"
    for name, value in arguments.items():
        restored = config[name]
        if name == "dtype":
            restored = keras.dtype_policies.get(restored).name
        assert restored == value

    copy = cls.from_config(json.loads(json.dumps(config)))
    assert copy.get_config() == config
    serialized = json.loads(json.dumps(keras.saving.serialize_keras_object(copy)))
    again = keras.saving.deserialize_keras_object(serialized)
    assert type(again) is cls and again.get_config() == config


@pytest.mark.parametrize(
    "cls",
    [
        pytest.param(cls, marks=[pytest.mark.slow] * (cls is not models.Transformer))
        for cls in MODELS
    ],
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

    def restored(layer):
        return type(layer).from_config(json.loads(json.dumps(layer.get_config())))

    stack = dict(num_layers=1, num_heads=2, d_ff=5, activation=cubed)
    assert restored(blocks.FeedForward(5, activation=cubed)).activation is cubed
    assert restored(blocks.Encoder(**stack)).blocks[0].activation is cubed
    model = restored(Transformer(11, d_model=8, **stack))
    assert model.decoder.blocks[0].feed_forward.activation is cubed


# Files


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(dict(), marks=pytest.mark.slow),
        dict(target_size=13, norm_first=True, max_length=5, activation="gelu"),
        pytest.param(dict(dtype="mixed_bfloat16", attention_dropout=0.1), marks=pytest.mark.slow),
    ],
    ids=["default", "separate_pre_norm_learned_positions", "mixed_bfloat16"],
)
def test_a_saved_model_comes_back_with_the_same_logits_and_policy(
    numpy, transformer, tmp_path, arguments
):
    model = transformer(**arguments, num_layers=1)
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
        weights = io.BytesIO(archive.read("model.weights.h5"))
    with h5py.File(weights, "r") as file:
        file.visititems(visit)
    return shapes


@pytest.mark.parametrize(
    "target_size",
    [pytest.param(None, marks=pytest.mark.slow), 13],
    ids=["shared", "separate"],
)
def test_every_weight_is_saved_once_the_tied_embedding_too(transformer, tmp_path, target_size):
    model = transformer(target_size)
    model.save(tmp_path / "model.keras")
    found = floats_in(tmp_path / "model.keras")
    assert sorted(found) == sorted(tuple(w.shape) for w in model.weights)
    assert sum(shape[0] in (11, 13) and len(shape) == 2 for shape in found) == (
        2 if target_size else 1
    )
    assert len({id(w) for w in model.weights}) == len(model.weights)


@pytest.mark.slow
def test_a_compiled_model_comes_back_compiled_in_the_middle_of_its_schedule(numpy, tmp_path):
    model = Transformer(11, **ONE_LAYER, dropout=0.0)
    model.compile(
        optimizer=paper_optimizer(WarmupSchedule(8, 10, scale=2.0)),
        loss=TokenCrossEntropy(0.1),
        metrics=[TokenAccuracy(), Perplexity()],
        run_eagerly=EAGERLY,
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


def number_of_parameters(vocabulary_size, num_layers, d_model, d_ff, **_):
    """Those of a post-norm `Transformer` with one vocabulary, by the formulas of the paper."""
    embedding = vocabulary_size * d_model  # also the output projection
    attention = 4 * (d_model**2 + d_model)  # queries, keys, values, output
    feed_forward = (d_model * d_ff + d_ff) + (d_ff * d_model + d_model)
    norm = 2 * d_model
    encoder_block = attention + feed_forward + 2 * norm
    decoder_block = 2 * attention + feed_forward + 3 * norm
    return embedding + num_layers * (encoder_block + decoder_block)


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
    assert model.count_params() == number_of_parameters(vocabulary_size, **sizes)


# Section 5.1: "about 37000 tokens"; table 3, last column.
@pytest.mark.parametrize(
    "name, number, millions", [("base", 63_082_496, 65), ("big", 214_245_376, 213)]
)
def test_base_and_big_have_the_papers_65_and_213_million_parameters_within_3_percent(
    name, number, millions
):
    assert number == number_of_parameters(37_000, **dataclasses.asdict(PRESETS[name]))
    assert abs(number / (millions * 1e6) - 1) < 0.03
    with keras.StatelessScope(initialize_variables=False):  # no weight gets a value
        assert Transformer(37_000, config=PRESETS[name]).count_params() == number


def test_a_shared_vocabulary_has_one_embedding_and_separate_ones_have_two(transformer):
    one, two = transformer(), transformer(13)
    assert one.source_embedding is one.target_embedding
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
    with pytest.raises(ValueError, match="input must fit max_length=4: .*; received tokens=5"):
        model(IDS)


@pytest.mark.parametrize("cls", MODELS)
@pytest.mark.parametrize("name", ["num_layer", "dropuot", "vocab_size"])
def test_an_option_that_does_not_exist_is_an_error_that_names_it(cls, name):
    with pytest.raises(ValueError, match=rf"Options are num_layers, .* received unknown='{name}'"):
        cls(**MODELS[cls], **{name: 1})


def test_the_weights_of_a_layer_assigned_to_a_finished_model_are_its_own():
    model = models.LanguageModel(vocabulary_size=11, **MODEL)
    num_weights = len(model.weights)
    model.adapter = keras.layers.Dense(3)
    model.adapter.build((None, 8))
    assert len(model.weights) == num_weights + 2
