import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import interchange
from keras_transformer.interchange import graphs
from keras_transformer.interchange.vocabularies import settings_of

ctranslate2 = pytest.importorskip("ctranslate2", reason="the engine to compare with is optional")

SIZES = dict(num_layers=2, d_model=16, num_heads=2, d_ff=32)


def engine(translator, folder, **options):
    interchange.export(translator, folder, "ctranslate2")
    return ctranslate2.Translator(str(folder), compute_type="float32", **options)


def tokens(tokenizer, texts):
    return [tokenizer.tokens(ids) for ids in tokenizer.encode(texts)]


def by_engine(translator, folder, texts, beams):
    """The translations of CTranslate2, without a length penalty: its penalty is not ours."""
    target = translator.target_tokenizer
    ids = {token: n for n, token in enumerate(target.get_vocabulary())}
    ct2, rows = engine(translator, folder), []
    for source in tokens(translator.source_tokenizer, texts):
        limit = 2 * (len(source) + 1) + 16  # ours
        search = dict(beam_size=beams, length_penalty=0, max_decoding_length=limit)
        (found,) = ct2.translate_batch([source], **search)
        rows.append([ids[token] for token in found.hypotheses[0]])
    return target.decode(rows)


def share_that_agrees(translator, folder, texts, beams):
    """Of texts, after it is checked that no difference is more than a tie."""
    theirs = by_engine(translator, folder, texts, beams)
    ours = translator.translate(texts, beams=beams, length_penalty=0.0)
    differ = [pair for pair in zip(texts, ours, theirs, strict=True) if pair[1] != pair[2]]
    for text, our, their in differ:
        one, other = translator.score([text, text], [our, their], length_penalty=0.0)
        assert one == pytest.approx(other, abs=1e-3), (text, our, their)
    return 1 - len(differ) / len(texts)


@pytest.mark.slow
@pytest.mark.parametrize("beams", [1, 4])
def test_an_independent_engine_says_the_same(dates_translator, dates, beams, tmp_path):
    texts = dates.test.source[:100]
    assert share_that_agrees(dates_translator, tmp_path / "dates", texts, beams) >= 0.99


@pytest.fixture
def restless_translator(dates_translator):
    """A translator whose weights are far from zero and one."""

    def restless_translator(**options):
        tokenizer = dates_translator.source_tokenizer
        size = tokenizer.vocabulary_size()
        model = kt.Transformer(size, size, **SIZES, **options)
        rng = np.random.default_rng(0)
        for weight in model.trainable_variables:
            value = keras.ops.convert_to_numpy(keras.ops.cast(weight, "float32"))
            weight.assign(value + rng.normal(0, 0.3, weight.shape))
        return kt.Translator(model, tokenizer)

    return restless_translator


def engine_scores(translator, dates, folder):
    """Log-probabilities of twenty translations by CTranslate2."""
    scored = engine(translator, folder).score_batch(
        tokens(translator.source_tokenizer, dates.test.source[:20]),
        tokens(translator.target_tokenizer, dates.test.target[:20]),
    )
    return [sum(each.log_probs) for each in scored]


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["relu", "silu", "tanh", "sigmoid"])
def test_activations_have_other_names_there(restless_translator, dates, tmp_path, activation):
    translator = restless_translator(activation=activation)
    expected = translator.score(dates.test.source[:20], dates.test.target[:20], length_penalty=0.0)
    scores = engine_scores(translator, dates, tmp_path / activation)
    np.testing.assert_allclose(scores, expected, rtol=1e-4)


@pytest.mark.slow
def test_the_two_kinds_of_gelu_are_not_confused(restless_translator, dates, tmp_path):
    tanh = restless_translator(activation="gelu_tanh")
    exact = kt.Translator(tanh.transformer.copy(activation="gelu"), tanh.source_tokenizer)
    pairs = dates.test.source[:20], dates.test.target[:20]
    ours = np.array([each.score(*pairs, length_penalty=0.0) for each in (tanh, exact)])
    theirs = [engine_scores(each, dates, tmp_path / each.name) for each in (tanh, exact)]
    assert np.abs(theirs - ours).max() < 0.2 * np.abs(ours[0] - ours[1]).max()


OPTIONS = {
    "learned_pre_norm": dict(norm_first=True, max_length=60, activation="gelu"),
    "rotary": dict(rotary=True),
    "unequal_depth": dict(encoder_layers=3, decoder_layers=1),
    "epsilon_bias": dict(layer_norm_epsilon=0.3, logits_bias=True),
}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(options, marks=[pytest.mark.slow] * (name != "rotary"))
        for name, options in OPTIONS.items()
    ],
    ids=OPTIONS,
)
def test_every_option_of_the_model_is_carried_over(restless_translator, dates, options, tmp_path):
    # Log-probabilities: one option lost would change every one of them.
    translator = restless_translator(**options)
    if options.get("logits_bias"):
        bias = translator.transformer.logits_bias.bias
        never = np.isin(np.arange(bias.shape[0]), (kt.PADDING, kt.START))  # what the engine is told
        bias.assign(np.where(never, -1e9, keras.ops.convert_to_numpy(bias)))
    expected = translator.score(dates.test.source[:20], dates.test.target[:20], length_penalty=0.0)
    scores = engine_scores(translator, dates, tmp_path / "model")
    np.testing.assert_allclose(scores, expected, rtol=1e-4)
    assert np.std(expected) > 1


@pytest.mark.parametrize(
    "dtype", ["mixed_bfloat16", pytest.param("bfloat16", marks=pytest.mark.slow)]
)
def test_a_bfloat16_model_is_exported_with_its_weights_in_float32(
    restless_translator, dates, dtype, tmp_path
):
    translator = restless_translator(dtype=dtype)
    same = restless_translator()
    for weight, value in zip(same.model.weights, translator.model.weights, strict=True):
        weight.assign(keras.ops.cast(value, "float32"))
    scores = engine_scores(translator, dates, tmp_path / dtype)
    np.testing.assert_allclose(scores, engine_scores(same, dates, tmp_path / "float32"), rtol=1e-5)
    assert np.std(scores) > 1


@pytest.mark.slow
def test_a_copy_in_float32_has_all_settings(restless_translator):
    settings = dict(directions=("en-de",), trained_length=20, placeholders=("url",))
    half = restless_translator(dtype="mixed_bfloat16")
    same = kt.Translator(half.model.copy(dtype="float32"), half.source_tokenizer)
    for name, value in settings.items():
        setattr(half, name, value)
    half.config = half.config.replace(beams=3)
    copied = graphs.in_float32(half)
    assert settings_of(copied) == settings_of(half)
    assert {name: getattr(copied, name) for name in settings} == settings
    assert copied.model.dtype_policy.name == "float32"
    assert half.model.dtype_policy.name == "mixed_bfloat16"
    texts = ["2019", "May 3"]
    same_texts = copied.tagged(texts, "de")
    assert copied.translate(texts, to="de") == same.translate(same_texts, beams=3)


@pytest.mark.parametrize("format", ["safetensors", "ctranslate2"])
def test_the_updates_of_lora_are_in_the_export(restless_translator, format, tmp_path):
    translator = restless_translator(norm_first=False, layer_norm_epsilon=1e-5)
    interchange.export(translator, tmp_path / "before", format)
    kt.training.enable_lora(translator.model, 2)
    generator = np.random.default_rng(0)
    for weight in translator.model.weights:
        if "lora" in weight.path:
            weight.assign(generator.normal(size=weight.shape))
    translator.save(tmp_path / "model.keras")
    merged = kt.load(tmp_path / "model.keras")
    for number, each in enumerate((translator, merged)):
        interchange.export(each, tmp_path / f"{number}", format)
    files = [path for path in (tmp_path / "0").iterdir() if path.suffix in (".bin", ".safetensors")]
    assert files
    for path in files:
        content = path.read_bytes()
        assert content == (tmp_path / "1" / path.name).read_bytes()
        assert content != (tmp_path / "before" / path.name).read_bytes()


def test_an_activation_that_the_engine_lacks_is_named(restless_translator, tmp_path):
    with pytest.raises(ValueError, match="relu.* received activation='elu'"):
        interchange.export(restless_translator(activation="elu"), tmp_path / "model", "ctranslate2")
    assert not any(tmp_path.iterdir())


def test_a_folder_that_exists_is_replaced_only_if_asked(dates_translator, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    interchange.export(dates_translator, folder, "ctranslate2")  # into an empty one
    with pytest.raises(ValueError, match="exists"):
        interchange.export(dates_translator, folder, "marian")
    interchange.export(dates_translator, folder, "safetensors", overwrite=True)
    assert not (folder / "model.bin").exists() and (folder / "model.safetensors").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    (folder / "kept").write_text("mine")
    with pytest.raises(ValueError, match="holds kept, which does not belong to an export"):
        interchange.export(dates_translator, folder, "ctranslate2", overwrite=True)
    assert (folder / "kept").read_text() == "mine" and (folder / "model.safetensors").exists()
