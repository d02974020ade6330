"""Folders of MarianMT models: what transformers loads, and what is read back, is the same model."""

import json

import numpy as np
import pytest
from keras import ops

import keras_transformer as kt
import reference_marian as reference
from keras_transformer import interchange

pytestmark = pytest.mark.slow  # transformers takes long to import

transformers = reference.transformers

SIZES = dict(num_layers=2, d_model=16, num_heads=2, d_ff=32)


def load(folder):
    """The model and the tokenizer of a folder, as their users load them."""
    model = transformers.MarianMTModel.from_pretrained(folder).eval()
    return model, transformers.MarianTokenizer.from_pretrained(folder)


@pytest.fixture(
    scope="module",
    params=[pytest.param(True, marks=pytest.mark.slow), False],
    ids=["any_order", "usual_order"],
)
def written(request, tmp_path_factory):
    """A model of theirs, imported, and exported."""
    folder = tmp_path_factory.mktemp("marian")
    reference.write_marian(folder, shuffle=request.param, updates=250)
    translator = interchange.from_marian(folder)
    exported = tmp_path_factory.mktemp("exported") / "model"
    interchange.export(translator, exported, "marian")
    return folder, translator, exported


def test_import_export_import_gives_the_same_bits(written):
    _, translator, exported = written
    again = interchange.from_marian(exported)
    for one, other in zip(translator.model.weights, again.model.weights, strict=True):
        arrays = (ops.convert_to_numpy(each) for each in (one, other))
        np.testing.assert_array_equal(*arrays, err_msg=one.path)
    for side in ("source_tokenizer", "target_tokenizer"):
        assert getattr(again, side).proto == getattr(translator, side).proto
    assert again.config == translator.config
    assert again.transformer.config == translator.transformer.config


def test_a_folder_whose_tokens_stand_in_the_usual_order_is_written_as_it_was(written):
    from safetensors.numpy import load_file

    folder, _, exported = written
    ids, ids_again = (json.loads((f / "vocab.json").read_text("utf-8")) for f in (folder, exported))
    one, other = (load_file(f / "model.safetensors") for f in (folder, exported))
    assert one.keys() == other.keys()
    usual = ids["</s>"] == 0
    for name in one:
        if usual or name not in ("model.shared.weight", "final_logits_bias"):
            rows = slice(len(ids)) if name == "model.shared.weight" else ...
            np.testing.assert_array_equal(one[name], other[name][rows], err_msg=name)
    if usual:
        assert list(ids.items()) == list(ids_again.items())
    for name in ("d_model", "encoder_layers", "activation_function", "scale_embedding", "dropout"):
        values = (
            json.loads((f / "config.json").read_text("utf-8"))[name] for f in (folder, exported)
        )
        assert len(set(values)) == 1 or name == "activation_function"


def test_transformers_loads_the_folder_and_translates_the_same(written):
    folder, translator, exported = written
    model, tokenizer = load(exported)
    texts = reference.texts(30)
    assert model.generation_config.num_beams == 6
    theirs, _ = reference.their_translations(model, tokenizer, texts, num_beams=1)
    assert theirs == [text.strip() for text in translator.translate(texts, beams=1)]
    assert reference.their_translations(*load(folder), texts, num_beams=1)[0] == theirs
    assert len(set(theirs)) > 10


@pytest.fixture
def own(dates_translator):
    """A model of this package over the vocabulary of the dates, with random weights."""

    def own(tokenizer=dates_translator.source_tokenizer, target_size=None, task=None, **options):
        size = tokenizer.vocabulary_size()
        model = kt.Transformer(size, target_size and size, **SIZES, **options)
        rng = np.random.default_rng(0)
        for weight in model.trainable_variables:
            value = ops.convert_to_numpy(ops.cast(weight, "float32"))
            weight.assign(value + rng.normal(0, 0.3, weight.shape))
        return kt.Translator(model, tokenizer, **task or {})

    return own


def greatest_difference(translator, folder):
    """Of the logits of a model of ours and of its folder, and their standard deviation."""
    model, tokenizer = load(folder)
    size = translator.transformer.target_vocabulary_size
    padding = tokenizer.pad_token_id
    rows = np.array([padding, 1, padding, 0, *range(2, size - 2)])
    rng = np.random.default_rng(1)
    source, target = (rng.integers(4, size, (6, length)).astype("int32") for length in (9, 7))
    source[:3, 5:] = 0
    target[:, 0] = 2
    ours = ops.convert_to_numpy(
        translator.transformer({"source_ids": source, "target_ids": target})
    )
    theirs = reference.their_logits(model, rows[source], rows[target])
    return np.abs(ours[..., 1:] - theirs[..., rows[1:]]).max(), ours.std()


def test_a_model_trained_here_translates_the_same_there(dates_translator, dates, tmp_path):
    interchange.export(dates_translator, tmp_path / "dates", "marian")
    texts = dates.test.source[:40]
    ours = dates_translator.translate(texts, beams=1)
    theirs, _ = reference.their_translations(*load(tmp_path / "dates"), texts, num_beams=1)
    assert theirs == ours and len(set(ours)) > 5
    difference, spread = greatest_difference(dates_translator, tmp_path / "dates")
    assert 0 < difference < 1e-3 * spread  # layer_norm_epsilon is 1e-6 here and 1e-5 there
    again = interchange.from_marian(tmp_path / "dates")
    assert again.translate(texts) == ours


@pytest.mark.parametrize("model_type", ["bpe", "unigram", "char", "byte"])
def test_every_kind_of_vocabulary_is_read_there_as_here(own, model_type, tmp_path):
    texts = reference.SOURCE.sentences(200)
    tokenizer = kt.train_tokenizer(texts, 300 if model_type != "byte" else None, model_type)
    translator = own(tokenizer)
    interchange.export(translator, tmp_path / "model", "marian")
    _, theirs = load(tmp_path / "model")
    texts = [*texts[:30], "ä 草地"]
    size = tokenizer.vocabulary_size()
    rows = [size - 2, 1, size - 2, 0, *range(2, size - 2)]
    ours = [[rows[i] for i in [*ids, 3]] for ids in tokenizer.encode(texts)]
    assert theirs(texts).input_ids == ours
    decoded = theirs.batch_decode(theirs(texts[:30]).input_ids, skip_special_tokens=True)
    assert decoded == texts[:30]
    assert interchange.from_marian(tmp_path / "model").source_tokenizer.encode(texts) == (
        tokenizer.encode(texts)
    )


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "tanh"])
@pytest.mark.parametrize("logits_bias", [False, True])
def test_with_their_epsilon_the_logits_are_the_same(own, activation, logits_bias, tmp_path):
    options = dict(activation=activation, logits_bias=logits_bias, layer_norm_epsilon=1e-5)
    translator = own(**options)
    interchange.export(translator, tmp_path / "model", "marian")
    difference, spread = greatest_difference(translator, tmp_path / "model")
    assert difference < 1e-4 and spread > 0.5


def test_a_shallower_decoder_is_written_and_read_again(own, tmp_path):
    translator = own(encoder_layers=3, decoder_layers=1, layer_norm_epsilon=1e-5)
    interchange.export(translator, tmp_path / "model", "marian")
    difference, spread = greatest_difference(translator, tmp_path / "model")
    assert difference < 1e-4 and spread > 0.5
    config = interchange.from_marian(tmp_path / "model").transformer.config
    assert (config.depth("encoder"), config.depth("decoder")) == (3, 1)


@pytest.mark.parametrize("format", ["saved_model", "onnx", "ctranslate2"])
def test_a_piece_of_the_other_language_has_its_id_in_every_engine(
    tmp_path, monkeypatch, one_thread, run_here, format
):
    (tmp_path / "model").mkdir()
    reference.write_marian(tmp_path / "model", updates=0)
    translator = interchange.from_marian(tmp_path / "model")
    read = translator.source_tokenizer
    texts = [*reference.texts(200), *reference.TARGET.sentences(100), "", "\x01", "a \x01"]
    alone = read._processor.encode(texts)
    other = [text for text, ids in zip(texts, alone, strict=True) if ids != read.encode([text])[0]]
    assert len(other) > 5 and alone[-2] == []
    asked = [*other[:40], "", "\x01", "a \x01"]
    assert run_here(translator, format, asked) == translator.translate(asked, beams=1)


def test_the_options_of_the_search_come_back(own, tmp_path):
    config = kt.GenerationConfig(3, no_repeat_ngram_size=2, repetition_penalty=1.5)
    interchange.export(own(task=dict(config=config)), tmp_path / "model", "marian")
    assert interchange.from_marian(tmp_path / "model").config == config


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(norm_first=True), "after each sublayer; .* received norm_first=True"),
        (dict(rotary=True), "sinusoids for positions; .* rotary=True"),
        (dict(max_length=50), "sinusoids for positions; .* max_length=50"),
        (dict(activation="elu"), "gelu, relu, silu, tanh; received activation='elu'"),
        (dict(target_size=True), "one vocabulary for both languages"),
        (dict(task=dict(lowercase=True)), "cannot lowercase"),
        (dict(task=dict(config=kt.GenerationConfig(min_length_ratio=0.8))), "options='min_length"),
    ],
)
def test_what_marian_cannot_express_is_refused(own, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        interchange.export(own(**options), tmp_path / "model", "marian")
    assert not any(tmp_path.iterdir())
