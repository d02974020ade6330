"""On PyTorch, every step of `fit` calls every layer: nothing of an earlier step is repeated."""

import random

import keras
import numpy as np
import pytest
from keras import ops

import keras_transformer as kt
from keras_transformer import backend, training

pytestmark = [
    pytest.mark.skipif(
        keras.backend.backend() != "torch", reason="the other backends compile the whole step"
    ),
    pytest.mark.usefixtures("uncollected"),
]
FEW, MANY = 24, 200  # steps
SIZES = dict(num_layers=1, d_model=16, num_heads=2, d_ff=24, dropout=0.1)
rng = np.random.default_rng(0)
TOKENS = rng.integers(4, 11, (4, 6)).astype("int32")
TOKENS[2, 4:] = 0
WORDS = {"word_ids": TOKENS, "character_ids": rng.integers(0, 9, (4, 6, 16)).astype("int32")}


def language(**options):
    return kt.LanguageModel(11, **{**SIZES, **options})


def translation():
    return kt.Transformer(11, **SIZES, attention_dropout=0.2, norm_first=True)


def nested():
    ids = keras.Input((None,), dtype="int32", name="token_ids")
    return keras.Model({"token_ids": ids}, language()({"token_ids": ids}))


def quantized(mode, rank=None):
    model = language()
    with pytest.warns(UserWarning, match="does not have a `quantize`"):
        model.quantize(mode)
    if rank:
        training.enable_lora(model, rank)
    return model


def with_lora():
    model = language()
    training.enable_lora(model, 2)
    return model


def rematerialized():
    with keras.RematScope(mode="list_of_layers", layer_names=["block_1"]):
        return language()


class StraightThrough(keras.layers.Layer):
    """Rounds; its gradient is that of the identity."""

    def call(self, x):
        @ops.custom_gradient
        def rounded(x):
            return ops.round(8 * x) / 8, lambda *_, upstream: upstream

        return rounded(x)


class Scale(keras.layers.Layer):
    """Divides by a scale that has no gradient."""

    def call(self, x):
        import torch

        with torch.no_grad():
            scale = ops.mean(x**2)
        return x / (1 + scale)


class LayerDrop(keras.layers.Layer):
    """Drops by Python's random numbers."""

    def call(self, x, training=None):
        return x if training and random.random() < 0.5 else 1.5 * x


def assembled(layer):
    ids, embedding = keras.Input((None,), dtype="int32"), kt.TokenEmbedding(11, 16)
    x = kt.Encoder(num_layers=1, num_heads=2, d_ff=16)(embedding(ids))
    return keras.Model(ids, embedding(layer(x), reverse=True))


def noise():
    generator = keras.random.SeedGenerator(1)
    return keras.layers.Lambda(lambda x: x + 0.1 * keras.random.normal(x.shape, seed=generator))


def tagging():
    return kt.TaggingModel(11, 9, 11, **SIZES)


IDS = {"token_ids": TOKENS}
CASES = {
    "language": (language, IDS),
    "translation": (translation, {"source_ids": TOKENS, "target_ids": TOKENS}),
    "tagging": (tagging, WORDS),
    "classification": (lambda: kt.ClassificationModel(11, 9, 5, **SIZES), WORDS),
    "nested": (nested, IDS),
    "r_drop": (lambda: training.RDrop(language()), IDS),
    "simcut": (lambda: training.SimCut(language(), cutoff=0.3), IDS),
    "pieces": (lambda: training.ChunkedLogits(language(), pieces=3), IDS),
    "lora": (with_lora, IDS),
    "int8_lora": (lambda: quantized("int8", 2), IDS),
    "int4_lora": (lambda: quantized("int4", 2), IDS),
    "float8": (lambda: quantized("float8"), IDS),
    "remat": (rematerialized, IDS),
    "straight_through": (lambda: assembled(StraightThrough()), TOKENS),
    "no_grad": (lambda: assembled(Scale()), TOKENS),
    "layer_drop": (lambda: assembled(LayerDrop()), TOKENS),
    "noise": (lambda: assembled(noise()), TOKENS),
}
QUICK = "nested", "int8_lora", "straight_through", "no_grad", "layer_drop"


def compiled(make):
    keras.utils.set_random_seed(1)
    model = make()
    model.compile(keras.optimizers.Adam(0.01), kt.TokenCrossEntropy(0.1), jit_compile=False)
    return model


def without_dropout(model):
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0


def by_hand(model, inputs, labels, steps):
    """The losses of `steps` steps, spelled out with PyTorch; before the last two, dropout ends."""
    import torch

    losses = []
    for step in range(steps):
        if step == steps - 2:
            without_dropout(model)
        variables = model.trainable_variables
        for variable in variables:  # `model.zero_grad()` would leave out those of LoRA
            variable.value.grad = None
        outputs = model(inputs, training=True)
        loss = model.compute_loss(inputs, labels, outputs)
        loss.backward()
        with torch.no_grad():
            model.optimizer.apply([variable.value.grad for variable in variables], variables)
        losses.append(loss.item())
    return losses


def by_keras(model, inputs, labels, steps):
    """Those of Keras's own step, which `fit` also takes."""
    losses = []
    for step in range(steps):
        if step == steps - 2:
            without_dropout(model)
        losses.append(float(model.train_on_batch(inputs, labels)))
    return losses


@pytest.mark.parametrize(
    "name, steps",
    [
        *((name, FEW) for name in QUICK),
        *(pytest.param(name, MANY, marks=pytest.mark.slow) for name in CASES),
    ],
)
def test_a_step_of_fit_is_a_call_of_each_layer_a_gradient_and_an_update(name, steps):
    make, inputs = CASES[name]
    labels = np.array([4, 3, 1, 2]) if name == "classification" else TOKENS
    expected = by_hand(compiled(make), backend.to_tensors(inputs), labels, steps)
    found = by_keras(compiled(make), inputs, labels, steps)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.isfinite(found).all() and found[-1] < found[0]
