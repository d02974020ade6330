"""Every public layer and model keeps the conventions of Keras."""

import copy
import inspect
import pickle
from typing import NamedTuple

import keras
import numpy as np
import pytest
from keras import ops
from keras.src import testing

import keras_transformer as kt
from keras_transformer.layers import LogitsBias

POLICIES = ["float32", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16"]
BLOCK = dict(num_heads=2, d_ff=12, dropout=0.1, attention_dropout=0.1)


class Case(NamedTuple):
    """A layer, the shapes of its inputs by their names in `call`, and that of its output."""

    layer: type
    options: dict
    inputs: dict
    output: tuple

    def make(self, **options):
        return self.layer(**{**self.options, **options})

    def arrays(self, seed=0):
        """int32 ids, a mask in which something is masked, or floats."""
        rng = np.random.default_rng(seed)
        arrays = {}
        for name, shape in self.inputs.items():
            if name.endswith("ids") or self.layer is kt.TokenEmbedding:
                arrays[name] = rng.integers(0, 7, shape).astype("int32")
            elif name.endswith("mask"):
                arrays[name] = rng.integers(0, 2, shape).astype(bool)
            else:
                arrays[name] = rng.normal(size=shape).astype("float32")
        return arrays

    def shapes(self, shapes=None):
        """The shapes of the inputs, or others, by their names in `build`."""
        names = [f"{name}_shape" for name in self.inputs]
        return dict(zip(names, shapes or self.inputs.values(), strict=True))


def announced_shape(layer, shapes):
    """The result of `compute_output_shape`; as Keras does, it gets the shapes that it names."""
    names = inspect.signature(layer.compute_output_shape).parameters
    named = {name: shape for name, shape in shapes.items() if name in names}
    if len(named) < 2:
        return tuple(layer.compute_output_shape(next(iter(shapes.values()))))
    return layer.compute_output_shape(**named)


class AddNormOfTanh(kt.AddNorm):
    """`AddNorm` around one function: the harness calls a layer with tensors only."""

    def call(self, x):
        return super().call(x, sublayer=ops.tanh)


X, IDS = (2, 5, 8), (2, 5)
CASES = {
    "MultiHeadAttention": Case(
        kt.MultiHeadAttention, dict(num_heads=2, dropout=0.1), dict(query=X, value=(2, 6, 4)), X
    ),
    "MultiHeadAttention_rotary": Case(
        kt.MultiHeadAttention,
        dict(num_heads=3, key_dim=4, rotary=True),
        dict(query=X, value=(2, 6, 4), key=(2, 6, 3)),
        X,
    ),
    "FeedForward": Case(kt.FeedForward, dict(d_ff=12), dict(x=X), X),
    "AddNorm": Case(AddNormOfTanh, dict(dropout=0.1), dict(x=X), X),
    "AddNorm_pre_norm": Case(AddNormOfTanh, dict(dropout=0.1, norm_first=True), dict(x=X), X),
    "EncoderBlock": Case(kt.EncoderBlock, BLOCK, dict(x=X), X),
    "EncoderBlock_rotary": Case(
        kt.EncoderBlock,
        dict(**BLOCK, activation="gelu", norm_first=True, rotary=True),
        dict(x=X),
        X,
    ),
    "DecoderBlock": Case(kt.DecoderBlock, BLOCK, dict(x=X, memory=(2, 6, 4)), X),
    "Encoder": Case(kt.Encoder, dict(num_layers=2, **BLOCK), dict(x=X), X),
    "Encoder_pre_norm": Case(
        kt.Encoder, dict(num_layers=1, **BLOCK, norm_first=True), dict(x=X), X
    ),
    "Decoder": Case(kt.Decoder, dict(num_layers=1, **BLOCK), dict(x=X, memory=(2, 6, 4)), X),
    "PositionalEncoding": Case(kt.PositionalEncoding, {}, dict(x=X), X),
    "LearnedPositionalEncoding": Case(
        kt.LearnedPositionalEncoding, dict(max_length=5), dict(x=X), X
    ),
    "TokenEmbedding": Case(
        kt.TokenEmbedding, dict(vocabulary_size=7, d_model=8), dict(inputs=IDS), X
    ),
    "WordEmbedding": Case(
        kt.WordEmbedding,
        dict(num_words=7, num_characters=7, d_model=8),
        dict(word_ids=IDS, character_ids=(2, 5, 6)),
        X,
    ),
    "Pooling": Case(kt.Pooling, {}, dict(x=X, attention_mask=(2, 1, 5)), (2, 16)),
}


# The cases of the harness that are not slow tests.
QUICK = {"FeedForward", "AddNorm", "TokenEmbedding", "LearnedPositionalEncoding", "Pooling"}
# Of the blocks and stacks, EncoderBlock and Decoder are saved in the quick tests.
SLOW_FILES = {"DecoderBlock", "EncoderBlock_rotary", "Encoder", "Encoder_pre_norm"}
# The harness trains them inside Encoder and Decoder.
TRAINED_INSIDE = {"EncoderBlock", "DecoderBlock"}
# The harness calls every layer in float32 and in mixed float16.
OTHER_POLICIES = ["float16", "mixed_bfloat16"]
OF_EVERY_POLICY = {"DecoderBlock", "WordEmbedding", "Transformer"}


def with_policies(names, slow=()):
    """Each name with a policy of each kind; few, which hold one of each weight, with all."""
    return [
        pytest.param(
            name,
            policy,
            marks=[pytest.mark.slow] * (policy not in OTHER_POLICIES or name in slow),
        )
        for name in names
        for policy in (POLICIES if name in OF_EVERY_POLICY else OTHER_POLICIES)
    ]


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@keras.saving.register_keras_serializable(package="test_layer_contract")
class OneInput(keras.layers.Layer):
    """Hands a list of inputs to a layer that takes several: the harness trains no other."""

    def __init__(self, name_of_case, **kwargs):
        super().__init__(**kwargs)
        self.name_of_case = name_of_case
        self.layer = CASES[name_of_case].make(dtype=self.dtype_policy)

    def build(self, shapes):
        if not isinstance(self.layer, kt.Pooling):  # which has nothing to build
            self.layer.build(*shapes)

    def call(self, inputs):
        return self.layer(*inputs)

    def compute_output_shape(self, shapes):
        return announced_shape(self.layer, CASES[self.name_of_case].shapes(shapes))

    def get_config(self):
        return {**super().get_config(), "name_of_case": self.name_of_case}


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")  # the harness trains that way
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in CASES]
)
def test_a_layer_passes_the_harness_of_keras(name):
    case = CASES[name]
    arrays = [ops.convert_to_tensor(array) for array in case.arrays().values()]
    layer, options, inputs = case.layer, case.options, arrays[0]
    if len(arrays) > 1:
        layer, options, inputs = OneInput, dict(name_of_case=name), tuple(arrays)
    testing.TestCase().run_layer_test(
        layer,
        init_kwargs=options,
        input_data=inputs,
        expected_output_shape=case.output,
        expected_output_dtype="float32",
        run_training_check=name not in TRAINED_INSIDE,
        run_mixed_precision_check=True,
        custom_objects={layer.__name__: layer},
    )


SEVERAL_INPUTS = [name for name, case in CASES.items() if len(case.inputs) > 1]
SEVERAL_INPUTS.remove("Pooling")  # the harness makes no bool tensors


@pytest.mark.parametrize("name", SEVERAL_INPUTS)
def test_a_layer_of_several_inputs_passes_the_harness_by_their_names(name):
    case = CASES[name]
    dtypes = {f"{key}_shape": array.dtype.name for key, array in case.arrays().items()}
    testing.TestCase().run_layer_test(
        case.layer,
        init_kwargs=case.options,
        input_shape=case.shapes(),
        input_dtype=dtypes,
        expected_output_shape=case.output,
        expected_output_dtype="float32",
        run_training_check=False,  # see `OneInput`
        run_mixed_precision_check=True,
    )


def test_the_shape_that_a_layer_announces_is_the_one_it_computes(case):
    layer = case.make()
    assert tuple(layer(**case.arrays()).shape) == case.output
    assert announced_shape(layer, case.shapes()) == case.output
    batches = [(None, *shape[1:]) for shape in case.inputs.values()]
    assert announced_shape(layer, case.shapes(batches)) == (None, *case.output[1:])


@pytest.mark.parametrize("case, policy", with_policies(CASES), indirect=["case"])
def test_the_dtype_that_a_layer_announces_is_the_one_it_computes(case, policy):
    layer, arrays = case.make(dtype=policy), case.arrays()
    symbolic = {
        name: keras.KerasTensor(array.shape, dtype=array.dtype.name)
        for name, array in arrays.items()
    }
    announced = layer(**symbolic)
    computed = layer(**arrays)
    dtype = keras.backend.standardize_dtype(computed.dtype)
    assert announced.dtype == dtype == keras.dtype_policies.get(policy).compute_dtype
    assert tuple(announced.shape) == tuple(computed.shape) == case.output
    assert np.isfinite(ops.convert_to_numpy(ops.cast(computed, "float32"))).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_the_logits_of_an_embedding_are_announced_as_float32(policy):
    layer = kt.TokenEmbedding(7, 8, dtype=policy)
    layer.build(IDS)
    announced = layer(keras.KerasTensor(X, dtype="float32"), reverse=True)
    computed = layer(np.ones(X, "float32"), reverse=True)
    assert announced.dtype == keras.backend.standardize_dtype(computed.dtype) == "float32"
    assert tuple(announced.shape) == tuple(computed.shape) == (*IDS, 7)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_bias_of_logits_leaves_them_float32(policy):
    layer = LogitsBias(dtype=policy)
    announced = layer(keras.KerasTensor(X, dtype="float32"))
    assert tuple(announced.shape) == layer.compute_output_shape(X) == X
    layer.bias.assign(np.arange(8))
    logits = np.full(X, 1 + 2**-20, "float32")  # bfloat16 would round it
    computed = layer(ops.convert_to_tensor(logits))
    assert announced.dtype == keras.backend.standardize_dtype(computed.dtype) == "float32"
    np.testing.assert_array_equal(ops.convert_to_numpy(computed), logits + np.arange(8.0))


def test_attention_weights_are_announced_as_they_are_computed():
    layer, arrays = kt.MultiHeadAttention(2), dict(query=np.ones(X), value=np.ones((2, 6, 8)))
    symbolic = {name: keras.KerasTensor(array.shape) for name, array in arrays.items()}
    announced = layer(**symbolic, return_attention_scores=True)
    computed = layer(**arrays, return_attention_scores=True)
    for shown, found in zip(announced, computed, strict=True):
        assert tuple(shown.shape) == tuple(found.shape)
        assert shown.dtype == keras.backend.standardize_dtype(found.dtype)


def test_a_layer_with_a_policy_object_is_serialized_and_comes_back(case):
    layer = case.make(dtype=keras.DTypePolicy("mixed_bfloat16"), name="layer")
    with keras.saving.custom_object_scope({"AddNormOfTanh": AddNormOfTanh}):
        revived = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert type(revived) is case.layer
    assert revived.get_config() == layer.get_config()
    assert revived.dtype_policy.name == "mixed_bfloat16"


@pytest.mark.parametrize(
    "case",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW_FILES)) for name in CASES],
    indirect=True,
)
def test_a_layer_outlives_a_file(case, tmp_path):
    """In a functional model, with a policy object, weights included."""
    policy = keras.DTypePolicy("mixed_bfloat16")
    inputs = {
        name: keras.Input(array.shape[1:], dtype=array.dtype.name, name=name)
        for name, array in case.arrays().items()
    }
    model = keras.Model(inputs, case.make(dtype=policy, name="layer")(**inputs))
    path = tmp_path / "layer.keras"
    model.save(path)
    loaded = keras.saving.load_model(path, {"AddNormOfTanh": AddNormOfTanh})
    assert loaded.get_layer("layer").dtype_policy.name == policy.name
    assert_same_outputs(loaded, model, case.arrays(), atol=0)


def assert_same_outputs(one, other, arrays, atol=1e-6):
    one, other = (ops.cast(model(arrays), "float32") for model in (one, other))
    one, other = map(ops.convert_to_numpy, (one, other))
    np.testing.assert_allclose(one, other, atol=atol, rtol=0)
    assert one.std() > 0.01


def test_a_block_is_applied_to_every_time_step():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 5, 8)).astype("float32")
    block = kt.EncoderBlock(num_heads=2, d_ff=12)
    steps = ops.convert_to_numpy(keras.layers.TimeDistributed(block)(x))
    for step in range(3):
        expected = ops.convert_to_numpy(block(x[:, step]))
        np.testing.assert_allclose(steps[:, step], expected, atol=1e-5)


# Models

SIZES = dict(num_layers=1, d_model=8, num_heads=2, d_ff=12, dropout=0.1)
WORDS = dict(num_words=7, num_characters=7, num_labels=3, max_characters=6)


def word_ids():
    return CASES["WordEmbedding"].arrays()


def token_ids(*names):
    rng = np.random.default_rng(0)
    return {name: rng.integers(1, 7, IDS).astype("int32") for name in names}


MODELS = {
    "Transformer": (kt.Transformer, dict(source_vocabulary_size=7), ["source_ids", "target_ids"]),
    "Transformer_separate": (
        kt.Transformer,
        dict(source_vocabulary_size=7, target_vocabulary_size=9, max_length=5, norm_first=True),
        ["source_ids", "target_ids"],
    ),
    "LanguageModel": (kt.LanguageModel, dict(vocabulary_size=7, rotary=True), ["token_ids"]),
    "TaggingModel": (kt.TaggingModel, WORDS, None),
    "ClassificationModel": (kt.ClassificationModel, WORDS, None),
}


def quickly(*quick):
    """All models; those that are not named are slow tests."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in quick)) for name in MODELS]


@pytest.fixture(params=quickly("Transformer"))
def make_model(request):
    model, options, _ = MODELS[request.param]
    return lambda **more: model(**options, **SIZES, **more)


@pytest.fixture(scope="module")
def built():
    """The models with their default options, by name: each is built once."""
    return {}


@pytest.fixture
def model(request, built, make_model):
    name = request.node.callspec.params["make_model"]
    if name not in built:
        built[name] = make_model()
    return built[name]


@pytest.fixture
def arrays(request):
    _, _, names = MODELS[request.node.callspec.params["make_model"]]
    return token_ids(*names) if names else word_ids()


def test_a_clone_computes_the_same_with_weights_of_its_own(model, arrays):
    clone = keras.models.clone_model(model)  # of a subclass Keras makes a plain functional model
    assert not {id(weight) for weight in clone.weights} & {id(weight) for weight in model.weights}
    assert [weight.path for weight in clone.weights] == [weight.path for weight in model.weights]
    assert (clone.get_weights()[0] != model.get_weights()[0]).any()
    clone.set_weights(model.get_weights())
    assert_same_outputs(clone, model, arrays)


def test_a_copy_is_the_same_model(model, arrays):
    twin = copy.deepcopy(model)
    assert type(twin) is type(model)
    assert twin.get_config() == model.get_config()
    assert_same_outputs(twin, model, arrays)


@pytest.mark.parametrize(
    "make_model, policy",
    with_policies(MODELS, slow=MODELS.keys() - {"Transformer", "ClassificationModel"}),
    indirect=["make_model"],
)
def test_logits_are_announced_and_computed_as_float32(make_model, arrays, policy):
    model = make_model(dtype=policy)
    logits = model(arrays)
    assert model.output.dtype == keras.backend.standardize_dtype(logits.dtype) == "float32"
    assert len(model.output.shape) == len(logits.shape)
    assert np.isfinite(ops.convert_to_numpy(logits)).all()
    assert model.compute_dtype == keras.dtype_policies.get(policy).compute_dtype


def test_a_model_with_a_policy_object_and_a_frozen_stack_outlives_a_file(
    make_model, arrays, tmp_path
):
    model = make_model(dtype=keras.DTypePolicy("mixed_bfloat16"))
    stack = model.decoder if isinstance(model, kt.LanguageModel) else model.encoder
    stack.trainable = False
    trainable = [weight.path for weight in model.trainable_weights]
    assert 0 < len(trainable) < len(model.weights)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.dtype_policy.name == "mixed_bfloat16"
    assert loaded.get_config() == model.get_config()
    assert_same_outputs(loaded, model, arrays, atol=0)
    assert [weight.path for weight in loaded.trainable_weights] == trainable


@pytest.mark.parametrize("make_model", quickly("Transformer", "TaggingModel"), indirect=True)
def test_a_pickled_model_is_the_same_and_a_frozen_layer_stays_frozen(make_model, arrays):
    model = make_model()
    stack = model.decoder if isinstance(model, kt.LanguageModel) else model.encoder
    stack.trainable = False
    trainable = [weight.path for weight in model.trainable_weights]
    assert 0 < len(trainable) < len(model.weights)
    twin = pickle.loads(pickle.dumps(model))
    assert type(twin) is type(model)
    assert twin.get_config() == model.get_config()
    assert_same_outputs(twin, model, arrays)
    assert [weight.path for weight in twin.trainable_weights] == trainable


def test_one_frozen_layer_deep_inside_stays_frozen_and_can_be_freed(tmp_path):
    model = kt.Transformer(7, **SIZES)
    model.decoder.blocks[0].feed_forward.trainable = False
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    frozen = {weight.path for weight in loaded.non_trainable_weights}
    assert frozen == {weight.path for weight in model.decoder.blocks[0].feed_forward.weights}
    loaded.decoder.blocks[0].feed_forward.trainable = True
    assert not loaded.non_trainable_weights
