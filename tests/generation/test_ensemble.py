"""An ensemble predicts by the mean of the probabilities of its models."""

import keras
import numpy as np
import pytest

import keras_transformer as kt
import oracle
from keras_transformer.generation import Ensemble

SIZES = dict(num_layers=1, d_model=8, num_heads=2, d_ff=16)
INPUTS = {
    "source_ids": np.array([[5, 6, 7, 3, 0], [8, 3, 0, 0, 0]], "int32"),
    "target_ids": np.array([[2, 4, 9, 6], [2, 5, 8, 7]], "int32"),
}


@pytest.fixture(scope="module")
def models(randomize):
    """Two, of which one is larger."""
    other = kt.Transformer(11, 13, **SIZES | dict(num_layers=2, d_model=12, norm_first=True))
    return [randomize(kt.Transformer(11, 13, **SIZES), seed=1), randomize(other, seed=2)]


def logits(model):
    return keras.ops.convert_to_numpy(model(INPUTS))


def test_probabilities_are_the_mean_of_those_of_the_reference_implementation(models, weights_of):
    given = INPUTS["source_ids"], INPUTS["target_ids"]
    expected = [
        oracle.softmax(oracle.transformer(*given, weights_of(model), 2, pre_norm=norm_first))
        for model, norm_first in zip(models, (False, True), strict=True)
    ]
    found = oracle.softmax(logits(Ensemble(models)))
    np.testing.assert_allclose(found, np.mean(expected, axis=0), atol=1e-5)
    for alone in expected:
        assert np.abs(found - alone).max() > 0.1
    of_mean_logits = oracle.softmax(np.mean([logits(model) for model in models], axis=0))
    assert np.abs(found - of_mean_logits).max() > 0.1


def test_the_order_of_the_models_does_not_matter(models):
    np.testing.assert_allclose(logits(Ensemble(models)), logits(Ensemble(models[::-1])), atol=1e-5)


def test_logits_of_a_model_with_itself_are_its_own_not_only_their_softmax(models):
    ensemble = Ensemble([models[0], models[0], models[0]])
    np.testing.assert_allclose(logits(ensemble), logits(models[0]), atol=1e-5)
    assert ensemble.count_params() == models[0].count_params()


@pytest.mark.slow
def test_an_ensemble_of_ensembles_is_decoded(models):
    search = dict(source_ids=INPUTS["source_ids"], max_length=5)
    twice = kt.Decoding(Ensemble([Ensemble(models), Ensemble(models)]))
    assert twice.beam_search(**search).scores == pytest.approx(
        kt.Decoding(Ensemble(models)).beam_search(**search).scores, abs=1e-4
    )


def test_an_ensemble_reads_as_many_tokens_as_each_of_its_models():
    models = [kt.Transformer(11, **SIZES, max_length=length) for length in (None, 9, 7)]
    assert Ensemble(models).max_length == 7
    assert Ensemble([models[0]] * 2).max_length is None


def test_models_that_make_no_ensemble_are_one_sentence(models):
    with pytest.raises(ValueError, match="needs at least two models; received models=1"):
        Ensemble(models[:1])
    with pytest.raises(ValueError, match=r"same sizes; received sizes=\[\(11, 13\), \(11, 11\)\]"):
        Ensemble([models[0], kt.Transformer(11, **SIZES)])
