"""Models whose layers were quantized or given LoRA after they were built."""

import keras
import numpy as np
import pytest

import keras_transformer as kt

pytestmark = pytest.mark.usefixtures("uncollected")
SIZES = dict(num_layers=1, d_model=8, num_heads=2, d_ff=16)
IDS = np.array([[4, 5, 6, 3], [7, 7, 3, 0]], "int32")
INPUTS = {
    "transformer": {"source_ids": IDS, "target_ids": IDS},
    "tagging_model": {"word_ids": IDS, "character_ids": np.tile(IDS[..., None], 3)},
}
MODELS = {
    "transformer": lambda: kt.Transformer(12, **SIZES),
    "tagging_model": lambda: kt.TaggingModel(12, 12, 4, 3, **SIZES),
}


def quantize(model, mode):
    with pytest.warns(UserWarning, match="does not have a `quantize`"):  # norms stay unchanged
        model.quantize(mode)


@pytest.mark.parametrize(
    "name, mode",
    [("transformer", "float8"), pytest.param("tagging_model", "int4", marks=pytest.mark.slow)],
)
def test_a_quantized_model_comes_back_with_the_same_logits(name, mode, randomize, numpy, tmp_path):
    model, inputs = randomize(MODELS[name]()), INPUTS[name]
    whole = numpy(model(inputs))
    quantize(model, mode)
    logits = numpy(model(inputs))
    assert np.abs(logits - whole).max() > 1e-4  # otherwise nothing was quantized
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(numpy(loaded(inputs)), logits)


def test_a_quantization_that_its_mode_does_not_tell_is_not_saved():
    model = MODELS["transformer"]()
    config = keras.quantizers.Int8QuantizationConfig(activation_quantizer=None)
    with pytest.warns(UserWarning, match="does not have a `quantize`"):
        model.quantize(config=config)
    with pytest.raises(ValueError, match="saved with the mode of its quantization alone: use"):
        model.get_config()


@pytest.mark.slow
def test_a_quantized_task_answers_with_its_new_weights_also_from_its_file(restless, tmp_path):
    tokenizer = kt.train_tokenizer(["abcdefgh"], model_type="char")
    size = tokenizer.vocabulary_size()
    model = restless(kt.LanguageModel(size, **SIZES, rotary=True))
    generator, texts = kt.TextGenerator(model, tokenizer), ["abc", "gg"]

    def answers(generator):
        return generator.generate(texts, max_tokens=6, temperature=0), generator.score(texts)

    before = answers(generator)
    quantize(model, "int8")
    quantized = answers(generator)
    assert quantized[1] != before[1]
    assert quantized == answers(kt.TextGenerator(model, tokenizer))
    generator.save(tmp_path / "generator.keras")
    assert answers(keras.saving.load_model(tmp_path / "generator.keras")) == quantized


@pytest.mark.slow
def test_decoding_hears_of_lora(randomize):
    model = randomize(kt.Transformer(12, **SIZES))
    decoding = kt.Decoding(model)
    before = decoding.score(IDS, IDS)
    decoding.beam_search(IDS, 6, beams=2)
    for layer in model._flatten_layers():
        if layer.name in ("query", "value", "inner"):
            layer.enable_lora(2)
    randomize(model, seed=1)  # Keras begins with a product of zero
    adapted, fresh = decoding.score(IDS, IDS), kt.Decoding(model)
    assert np.abs(adapted - before).max() > 1e-3
    np.testing.assert_array_equal(adapted, fresh.score(IDS, IDS))
    found, expected = (each.beam_search(IDS, 6, beams=2) for each in (decoding, fresh))
    np.testing.assert_array_equal(found.scores, expected.scores)
