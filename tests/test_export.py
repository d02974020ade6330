import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import export

ctranslate2 = pytest.importorskip("ctranslate2", reason="the engine to compare with is optional")


def engine(translator, folder, **options):
    export.to_ctranslate2(translator, folder)
    return ctranslate2.Translator(str(folder), compute_type="float32", **options)


def tokens(translator, texts):
    ids = kt.encode(translator.source_tokenizer, texts)
    return [kt.tokenizers.token_strings(translator.source_tokenizer, row) for row in ids]


def by_engine(translator, folder, texts, beams):
    """What CTranslate2 says; without a length penalty, since it has another one than ours."""
    target = translator.target_tokenizer
    vocabulary = kt.tokenizers.token_strings(target, range(target.vocabulary_size()))
    number = {token: n for n, token in enumerate(vocabulary)}
    ct2, rows = engine(translator, folder), []
    for source in tokens(translator, texts):
        limit = 2 * (len(source) + 1) + 16  # ours
        search = dict(beam_size=beams, length_penalty=0, max_decoding_length=limit)
        (found,) = ct2.translate_batch([source], **search)
        rows.append([number[token] for token in found.hypotheses[0]])
    return kt.decode(target, rows)


def share_that_agrees(translator, folder, texts, beams):
    """Of texts, after it is checked that no difference is more than a tie."""
    theirs = by_engine(translator, folder, texts, beams)
    ours = translator.translate(texts, beams=beams, length_penalty=0.0)
    differ = [pair for pair in zip(texts, ours, theirs, strict=True) if pair[1] != pair[2]]
    for text, our, their in differ:
        one, other = translator.score([text, text], [our, their], 0.0)
        assert one == pytest.approx(other, abs=1e-3), (text, our, their)
    return 1 - len(differ) / len(texts)


@pytest.mark.parametrize("beams", [1, 4])
def test_an_independent_engine_says_the_same(dates_translator, dates, beams, tmp_path):
    texts = dates.test.source
    assert share_that_agrees(dates_translator, tmp_path / "dates", texts, beams) >= 0.99


@pytest.mark.parametrize(
    "options", [dict(norm_first=True), dict(max_length=60), dict(activation="gelu")], ids=str
)
def test_every_option_of_the_model_is_carried_over(dates_translator, dates, options, tmp_path):
    tokenizer = dates_translator.source_tokenizer
    size = tokenizer.vocabulary_size()
    model = kt.Transformer(size, size, num_layers=2, d_model=16, num_heads=2, d_ff=32, **options)
    rng = np.random.default_rng(0)
    for weight in model.trainable_variables:
        weight.assign(keras.ops.convert_to_numpy(weight) + rng.normal(0, 0.3, weight.shape))
    translator = kt.Translator(model, tokenizer)
    texts = dates.test.source[:20]
    targets = dates.test.target[:20]
    ids = kt.encode(tokenizer, targets)
    scored = engine(translator, tmp_path / "model").score_batch(
        tokens(translator, texts), [kt.tokenizers.token_strings(tokenizer, row) for row in ids]
    )
    expected = translator.score(texts, targets, length_penalty=0.0)
    np.testing.assert_allclose([sum(each.log_probs) for each in scored], expected, rtol=1e-4)
    assert np.std(expected) > 1


def test_an_activation_that_the_engine_lacks_is_named(dates_translator, tmp_path):
    tokenizer = dates_translator.source_tokenizer
    model = kt.Transformer(
        tokenizer.vocabulary_size(), num_layers=1, d_model=8, num_heads=1, d_ff=8, activation="elu"
    )
    with pytest.raises(ValueError, match="no activation 'elu'"):
        export.to_ctranslate2(kt.Translator(model, tokenizer), tmp_path / "model")
    assert not any(tmp_path.iterdir())


def test_a_folder_that_exists_is_replaced_only_if_asked(dates_translator, tmp_path):
    kept = tmp_path / "model" / "kept"
    kept.parent.mkdir()
    kept.write_text("mine")
    with pytest.raises(ValueError, match="exists"):
        export.to_ctranslate2(dates_translator, tmp_path / "model")
    assert kept.read_text() == "mine"
    export.to_ctranslate2(dates_translator, tmp_path / "model", overwrite=True)
    assert not kept.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
