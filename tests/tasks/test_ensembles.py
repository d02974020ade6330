"""Translators that decode together."""

import pytest

import keras_transformer as kt
from keras_transformer.interchange import export, set_engine

ensemble = kt.Translator.ensemble
SIZES = dict(num_layers=1, d_model=16, num_heads=2, d_ff=16)


@pytest.fixture(scope="module")
def pair(randomize):
    """Two translators of one vocabulary that learned from equal texts separately."""
    texts = ["ein hund bellt", "eine katze sieht den hund"]

    def translator(seed):
        tokenizer = kt.train_tokenizer(texts, 40)
        model = kt.Transformer(tokenizer.vocabulary_size(), **SIZES)
        return kt.Translator(randomize(model, seed), tokenizer, lowercase=True, beams=seed)

    return [translator(seed) for seed in (2, 3)]


@pytest.mark.parametrize(
    "options",
    [
        dict(beams=2, repetition_penalty=1.05),
        pytest.param(dict(beams=1), marks=pytest.mark.slow),
        pytest.param(dict(beams=4, n_best=4), marks=pytest.mark.slow),
    ],
)
def test_a_translator_with_itself_gives_its_own_translations_and_scores(
    dates_translator, dates, options
):
    twice, texts = ensemble([dates_translator] * 2), dates.test.source[:8]
    options = dict(n_best=1) | options
    expected = dates_translator.translate(texts, return_scores=True, **options)
    found = twice.translate(texts, return_scores=True, **options)
    for own, both in zip(expected, found, strict=True):
        assert both[0].text == own[0].text
        assert [each.score for each in both] == pytest.approx([x.score for x in own], abs=1e-3)


@pytest.mark.slow
def test_given_texts_and_streams_of_a_translator_with_itself_are_its_own(dates_translator, dates):
    twice, (texts, targets) = ensemble([dates_translator] * 2), (x[:8] for x in dates.test)
    expected = dates_translator.score(texts, targets)
    assert twice.score(texts, targets) == pytest.approx(expected, abs=1e-4)
    assert "".join(twice.stream(texts[0])) == dates_translator.translate(texts[:1], beams=1)[0]


def test_the_settings_of_an_ensemble_are_those_of_the_first_which_stays_as_it_was(pair):
    first, model = pair[0], pair[0].model
    both = ensemble(pair)
    assert both.config.beams == 2 and both.lowercase
    assert first.model is model and both.model.models == [model, pair[1].model]
    text = ["Ein Hund bellt"]
    (alone,) = first.score(text, text)
    assert both.score(text, text)[0] != pytest.approx(alone, abs=0.01)
    assert first.score(text, text)[0] == pytest.approx(alone, abs=1e-5)


@pytest.mark.parametrize(
    "other, message",
    [
        (lambda t: t.transformer, "Number 2 of an ensemble must be a Translator; received"),
        (
            lambda t: kt.Translator(
                kt.Transformer(9, **SIZES), kt.train_tokenizer(["ab ba"], 9), lowercase=True
            ),
            "Translator 2 of an ensemble must have the source_tokenizer of the first",
        ),
        (
            lambda t: kt.Translator(t.transformer, t.source_tokenizer),
            "must have the lowercase of the first; received lowercase=False",
        ),
    ],
)
def test_what_reads_other_ids_is_one_sentence(pair, other, message):
    with pytest.raises(ValueError, match=message):
        ensemble([pair[0], other(pair[0])])


def test_an_ensemble_has_no_file_no_export_no_other_engine_and_no_maps(pair, tmp_path):
    both, message = ensemble(pair), "Keras alone decodes an ensemble: save or export each"
    with pytest.raises(ValueError, match=message):
        both.save(tmp_path / "both.keras")
    with pytest.raises(ValueError, match=message):
        export(both, tmp_path / "both", "safetensors")
    assert not list(tmp_path.iterdir())
    assert set_engine(both, "auto") == "keras"
    with pytest.raises(ValueError, match="Attention maps show one model; received model='Ensem"):
        both.attention("ein hund")
