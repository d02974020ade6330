import dataclasses

import keras
import pytest

from keras_transformer.generation.configuration import GenerationConfig, SamplingConfig
from keras_transformer.models import ClassificationModel, LanguageModel, TaggingModel, Transformer
from keras_transformer.models.configuration import DEPTHS, PRESETS, TransformerConfig

WORDS = dict(num_words=7, num_characters=6, num_labels=4)
MODELS = {
    Transformer: dict(source_vocabulary_size=11),
    LanguageModel: dict(vocabulary_size=11),
    TaggingModel: WORDS,
    ClassificationModel: WORDS,
}
SMALL = TransformerConfig(
    num_layers=1,
    d_model=8,
    num_heads=2,
    d_ff=5,
    dropout=0.2,
    attention_dropout=0.3,
    activation="gelu",
    norm_first=True,
    max_length=9,
    layer_norm_epsilon=0.1,
    logits_bias=True,
)


def test_the_presets_are_the_rows_of_table_3_and_two_smaller_ones():
    sizes = {
        name: (config.num_layers, config.d_model, config.num_heads, config.d_ff, config.dropout)
        for name, config in PRESETS.items()
    }
    assert sizes == {
        "tiny": (2, 64, 4, 128, 0.1),
        "mini": (3, 256, 4, 1024, 0.1),
        "base": (6, 512, 8, 2048, 0.1),
        "big": (6, 1024, 16, 4096, 0.3),
    }
    assert PRESETS["base"] == TransformerConfig()
    for config in PRESETS.values():  # all else as in the paper
        assert (config.activation, config.attention_dropout) == ("relu", 0.0)
        assert not (config.norm_first or config.max_length or config.rotary)


@pytest.mark.parametrize("config", [TransformerConfig(), GenerationConfig(), SamplingConfig()])
def test_a_configuration_is_replaced_and_never_changed(config):
    field, *_ = dataclasses.fields(config)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, field.name, 3)
    changed = config.replace(**{field.name: 3})
    assert type(changed) is type(config)
    assert dataclasses.asdict(changed) == {**dataclasses.asdict(config), field.name: 3}
    assert getattr(config, field.name) == field.default
    assert config.replace() == config


@pytest.mark.parametrize("config", [TransformerConfig(), GenerationConfig(), SamplingConfig()])
def test_replacing_what_does_not_exist_is_an_error_that_names_it_and_all_that_does(config):
    names = ", ".join(field.name for field in dataclasses.fields(config))
    message = rf"^Options are {names}; received unknown='num_layer, beam'\.$"
    with pytest.raises(ValueError, match=message):
        config.replace(num_layer=1, beam=2)


@pytest.mark.parametrize(
    "name", ["num_layers", "d_model", "num_heads", "d_ff", "max_length", *DEPTHS]
)
@pytest.mark.parametrize("size", [0, -2, 1.5, "2"])
def test_a_size_that_is_not_a_positive_integer_is_an_error_that_names_it(name, size):
    message = rf"^{name} must be an integer of at least 1; received {name}={size!r}\.$"
    for make in (TransformerConfig, SMALL.replace):
        with pytest.raises(ValueError, match=message):
            make(**{name: size})


@pytest.mark.parametrize("name", ["dropout", "attention_dropout"])
@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, float("nan"), float("inf"), "1", None])
def test_a_rate_outside_0_to_1_is_an_error_that_names_it(name, rate):
    message = rf"^{name} must be in \[0, 1\); received {name}={rate!r}"
    with pytest.raises(ValueError, match=message):
        TransformerConfig(**{name: rate})


@pytest.mark.parametrize("epsilon", [0, -1e-6, float("nan"), float("inf"), "x", None])
def test_an_epsilon_that_is_not_above_0_is_an_error(epsilon):
    with pytest.raises(ValueError, match="^layer_norm_epsilon must be a"):
        TransformerConfig(layer_norm_epsilon=epsilon)


def test_num_heads_must_divide_d_model():
    message = r"^num_heads must divide d_model; received num_heads=3, d_model=512\.$"
    with pytest.raises(ValueError, match=message):
        TransformerConfig(num_heads=3)


def test_positions_are_learned_or_rotary():
    message = r"^positions are learned \(max_length\) or rotary, not both; received max_length=9, "
    with pytest.raises(ValueError, match=message + r"rotary=True\.$"):
        TransformerConfig(max_length=9, rotary=True)


@pytest.mark.parametrize("cls, arguments", MODELS.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_a_model_has_its_configuration_and_saves_every_field_of_it(cls, arguments):
    model = cls(**arguments, config=SMALL)
    assert model.config == SMALL
    assert model.max_length == 9
    saved = model.get_config()
    assert {n: saved.get(n) for n in dataclasses.asdict(SMALL)} == dataclasses.asdict(SMALL)
    assert not saved.keys() & set(DEPTHS)  # which versions before them could not read
    own = {"name", "trainable", "dtype", "frozen", "quantized"}
    others = saved.keys() - dataclasses.asdict(SMALL).keys() - own
    assert (
        arguments.keys()
        <= others
        <= arguments.keys()
        | {
            "target_vocabulary_size",
            "max_characters",
            "word_stddev",
        }
    )


@pytest.mark.parametrize("cls, arguments", MODELS.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_options_replace_those_of_the_configuration(cls, arguments):
    model = cls(**arguments, config=SMALL, d_ff=6, max_length=None, name="a_name")
    assert model.config == SMALL.replace(d_ff=6, max_length=None)
    assert model.max_length is None
    assert model.name == "a_name"
    by_options = cls(**arguments, **dataclasses.asdict(SMALL))
    assert by_options.config == SMALL
    assert by_options.count_params() == cls(**arguments, config=SMALL).count_params()


def test_every_option_of_the_configuration_reaches_the_blocks():
    model = Transformer(11, config=SMALL)
    for stack in (model.encoder, model.decoder):
        assert len(stack.blocks) == SMALL.num_layers
        assert stack.norm_first
        for block in stack.blocks:
            assert (block.num_heads, block.d_ff) == (SMALL.num_heads, SMALL.d_ff)
            assert (block.dropout, block.attention_dropout) == (0.2, 0.3)
            assert block.activation is keras.activations.gelu
            assert not block.self_attention.rotary
    for block in Transformer(11, config=SMALL, max_length=None, rotary=True).decoder.blocks:
        assert block.self_attention.rotary and not block.cross_attention.rotary


@pytest.mark.parametrize(
    "depths, expected",
    [
        (dict(encoder_layers=3), (3, 2)),
        (dict(decoder_layers=1), (2, 1)),
        (dict(encoder_layers=1, decoder_layers=3), (1, 3)),
    ],
)
def test_each_stack_of_a_transformer_has_a_depth_of_its_own(depths, expected):
    model = Transformer(11, config=SMALL, num_layers=2, **depths)
    assert (len(model.encoder.blocks), len(model.decoder.blocks)) == expected
    assert {n: model.get_config()[n] for n in depths} == depths
    again = Transformer.from_config(model.get_config())
    assert again.config == model.config and again.count_params() == model.count_params()


@pytest.mark.parametrize("cls", [LanguageModel, TaggingModel, ClassificationModel])
def test_a_model_with_one_stack_has_one_depth(cls):
    with pytest.raises(ValueError, match="one stack has num_layers; received .*decoder_layers=1"):
        cls(**MODELS[cls], config=SMALL, decoder_layers=1)
