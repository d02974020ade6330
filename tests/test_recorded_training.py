"""On PyTorch, `fit` repeats the operations of a recorded call: the same bits as layer by layer."""

import functools

import keras
import numpy as np
import pytest

from keras_transformer import backend, training
from keras_transformer.attention import MultiHeadAttention, attention_scores
from keras_transformer.blocks import Encoder
from keras_transformer.losses import TokenCrossEntropy
from keras_transformer.models import (
    ClassificationModel,
    FunctionalModel,
    LanguageModel,
    TaggingModel,
    TokenEmbedding,
    Transformer,
)
from keras_transformer.training import paper_optimizer

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="the other backends compile the whole step"
)

SIZES = dict(num_layers=2, d_model=8, num_heads=2, d_ff=16, dropout=0.2)
rng = np.random.default_rng(0)
TOKENS = rng.integers(4, 11, (3, 7)).astype("int32")
TOKENS[2, 4:] = 0
SOURCE = rng.integers(4, 11, (3, 5)).astype("int32")
SOURCE[1, 3:] = 0
PAIR = {"source_ids": SOURCE, "target_ids": TOKENS}
WORDS = {"word_ids": TOKENS, "character_ids": rng.integers(0, 9, (3, 7, 16)).astype("int32")}


def translation(**options):
    return Transformer(11, **{**SIZES, **options}), PAIR, TOKENS


def language(**options):
    return LanguageModel(11, **{**SIZES, **options}), {"token_ids": TOKENS}, TOKENS


def assembled(*more):
    ids, embedding = keras.Input((None,), dtype="int32"), TokenEmbedding(11, 8)
    x = Encoder(num_layers=2, num_heads=2, d_ff=16, dropout=0.2)(embedding(ids))
    for layer in more:
        x = layer(x)
    return FunctionalModel(ids, embedding(x, reverse=True)), TOKENS, TOKENS


MODELS = {
    "assembled": lambda: assembled(keras.layers.Dropout(0.5)),
    "post_norm": translation,
    "pre_norm_two_vocabularies": lambda: (
        Transformer(11, 13, **SIZES, norm_first=True),
        PAIR,
        TOKENS,
    ),
    "dropout_on_weights": lambda: translation(attention_dropout=0.3),
    "rotary": lambda: language(rotary=True),
    "learned_positions": lambda: language(max_length=9),
    "tagging": lambda: (TaggingModel(11, 9, 11, **SIZES), WORDS, TOKENS),
    "classification": lambda: (ClassificationModel(11, 9, 5, **SIZES), WORDS, np.array([4, 3, 1])),
    "bfloat16": lambda: translation(dtype="mixed_bfloat16"),
    "float16": lambda: translation(dtype="mixed_float16"),
}


@pytest.fixture
def train(monkeypatch):
    """Trains a model by steps of one batch each; returns losses and weights."""

    def train(made, recorded_at, steps=6, wrap=lambda model: model, change=None, **options):
        monkeypatch.setattr(backend, "RECORDED_AT", recorded_at)
        keras.utils.set_random_seed(1)
        model, inputs, labels = made()
        trained, losses = wrap(model), []
        trained.compile(paper_optimizer(0.01), TokenCrossEntropy(0.1), **options)
        for step in range(steps):
            if change and step == 3:
                change(model)
                trained.compile(paper_optimizer(0.01), TokenCrossEntropy(0.1), **options)
            losses.append(float(trained.train_on_batch(inputs, labels)))
        return losses, model.get_weights()

    return train


@pytest.fixture
def num_calls(monkeypatch):
    """How often an attention layer has been called."""
    called = []
    plain = MultiHeadAttention.call

    @functools.wraps(plain)
    def call(self, *args, **kwargs):
        called.append(self)
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(MultiHeadAttention, "call", call)
    return lambda: len(called)


def assert_same_bits(one, other):
    assert one[0] == other[0]
    for a, b in zip(one[1], other[1], strict=True):
        np.testing.assert_array_equal(a, b)


NEVER = 10**9


SLOW = "dropout_on_weights", "rotary", "bfloat16"  # as the others, but for one operation


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(made, id=name, marks=[pytest.mark.slow] * (name in SLOW))
        for name, made in MODELS.items()
    ],
)
def test_a_recorded_training_has_the_same_bits(train, num_calls, made):
    layer_by_layer = train(made, NEVER)
    called = num_calls()
    recorded = train(made, 2)
    assert num_calls() - called < called / 2  # in the constructor, one step, the recording
    assert_same_bits(recorded, layer_by_layer)
    assert layer_by_layer[0][-1] < layer_by_layer[0][0]


def test_each_shape_is_recorded_and_the_moment_does_not_matter(train, num_calls):
    def of_two_lengths(model):
        longer = {"token_ids": np.pad(TOKENS, [(0, 0), (0, 2)])}
        model.train_on_batch(longer, np.pad(TOKENS, [(0, 0), (0, 2)]))

    runs = [train(language, at, change=of_two_lengths) for at in (1, 2, 4, NEVER)]
    for run in runs[:-1]:
        assert_same_bits(run, runs[-1])


@pytest.mark.parametrize(
    "change",
    [
        lambda model: training.enable_lora(model, 2),
        lambda model: training.freeze(model, ["encoder"]),
    ],
    ids=["lora", "frozen"],
)
def test_what_changes_between_two_trainings_changes_the_recorded_one(train, change):
    recorded, layer_by_layer = (train(translation, at, change=change) for at in (1, NEVER))
    assert_same_bits(recorded, layer_by_layer)


def test_r_drop_has_the_same_bits(train):
    recorded, layer_by_layer = (train(translation, at, wrap=training.RDrop) for at in (2, NEVER))
    assert_same_bits(recorded, layer_by_layer)


def test_run_eagerly_calls_every_layer(train, num_calls):
    train(language, 1, run_eagerly=True)
    assert num_calls() == 7 * SIZES["num_layers"]  # with that of the constructor


def test_rematerialized_blocks_are_not_recorded(train, num_calls):
    def rematerialized():
        with keras.RematScope(mode="list_of_layers", layer_names=["block_1", "block_2"]):
            return language()

    train(rematerialized, 1)
    assert num_calls() >= 7 * SIZES["num_layers"]


class AddsALoss(keras.layers.Layer):
    def call(self, x):
        self.add_loss(keras.ops.mean(x**2))
        return x


class AsksForAValue(keras.layers.Layer):
    def call(self, x):
        return x * 2 if not isinstance(x, keras.KerasTensor) and keras.ops.max(x) > 1 else x


DOES_MORE = {
    "own_state": keras.layers.BatchNormalization,
    "own_seed": functools.partial(keras.layers.Dropout, 0.5, seed=3),
    "own_shape": functools.partial(keras.layers.Dropout, 0.5, noise_shape=(None, 1, 8)),
    "own_noise": functools.partial(keras.layers.GaussianNoise, 0.5),
    "regularizes": functools.partial(keras.layers.ActivityRegularization, 0.1),
    "adds_a_loss": AddsALoss,
    "asks_for_a_value": AsksForAValue,
}


@pytest.mark.parametrize("layer", DOES_MORE.values(), ids=DOES_MORE)
def test_a_model_with_a_layer_that_does_more_is_not_recorded(train, num_calls, layer):
    recorded_at = 2 if layer in (AddsALoss, AsksForAValue) else 1
    runs = [train(lambda: assembled(layer()), at) for at in (recorded_at, NEVER)]
    assert_same_bits(*runs)
    assert num_calls() >= 2 * 7 * SIZES["num_layers"]


def test_masks_of_keras_are_kept(train):
    def masked():
        ids = keras.Input((None,), dtype="int32")
        x = keras.layers.Embedding(11, 8, mask_zero=True)(ids)
        labels = np.full_like(TOKENS, 3)  # where the input is padding, too: the mask excludes it
        return FunctionalModel(ids, keras.layers.Dense(11)(x)), TOKENS, labels

    assert_same_bits(*[train(masked, at) for at in (2, NEVER)])


@pytest.mark.parametrize("wrap", [lambda model: model, training.RDrop], ids=["plain", "r_drop"])
def test_what_is_changed_on_a_layer_holds_after_the_next_compile(train, wrap):
    def without_dropout(model):
        for layer in model._flatten_layers():
            if isinstance(layer, keras.layers.Dropout):
                layer.rate = 0.0

    options = dict(wrap=wrap, change=without_dropout)
    recorded, layer_by_layer = (train(language, at, **options) for at in (1, NEVER))
    assert_same_bits(recorded, layer_by_layer)


def test_r_drop_that_runs_eagerly_calls_every_layer(train, num_calls):
    train(language, 1, wrap=training.RDrop, run_eagerly=True)
    assert num_calls() >= 7 * SIZES["num_layers"]


def test_attention_scores_of_a_recorded_model_are_there(train, monkeypatch):
    monkeypatch.setattr(backend, "RECORDED_AT", 1)
    model, inputs, labels = language()
    model.compile(paper_optimizer(0.01), TokenCrossEntropy())
    model.train_on_batch(inputs, labels)
    scores = attention_scores(model, inputs, training=True)
    assert [score.shape for score in scores.values()] == [(3, 2, 7, 7)] * 2
