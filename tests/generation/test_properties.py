"""Properties that hold at every level, from one layer to the model, in every mode of each.

Every level is a function of ids, so that one test serves all: a target that attends to itself
and to a source of another length.
"""

import itertools

import keras
import numpy as np
import pytest

from keras_transformer.layers.attention import MultiHeadAttention
from keras_transformer.layers.blocks import Decoder, DecoderBlock, Encoder, EncoderBlock
from keras_transformer.layers.masks import padding_mask
from keras_transformer.models import Transformer

SOURCE = np.array([[5, 6, 7, 3, 0], [8, 3, 0, 0, 0]])
TARGET = np.array([[2, 4, 9, 6], [2, 5, 0, 0]])

DROPOUT = {"": 0.0, "dropout": 0.1}
TRAINING = {"inference": False, "training": True}
ASK = {"": False, "weights": True}
DTYPES = ["float32", "mixed_bfloat16"]
TOLERANCE = {"float32": 1e-5, "mixed_bfloat16": 0.06}

MODES = list(itertools.product(DTYPES, DROPOUT, TRAINING, ASK))
# Every second mode is a case of the layer: each three choices still meet. Above the layer a level
# has one half of those or the other: each choice is there, and each dtype in both modes of dropout.
HALF = [m for m in MODES if bool(m[1]) ^ TRAINING[m[2]] ^ ASK[m[3]] ^ (m[0] == "float32")]
QUARTERS = [[m for m in HALF if bool(m[1]) ^ ASK[m[3]] == odd] for odd in (False, True)]
CASES = [("layer", *mode) for mode in HALF]
for number, level in enumerate(("block", "stack", "model", "reloaded_model")):
    CASES += [(level, *mode) for mode in QUARTERS[number in (0, 3)]]
NOTHING_DROPPED = [case for case in CASES if not (case[2] and case[3] == "training")]
ASKING = [case for case in CASES if case[4]]


def named(case):
    return "-".join(part for part in case if part)


def each_once_quickly(cases):
    """The first case of each level, not of the reloaded model; the others are slow tests."""
    seen, marked = {"reloaded_model"}, []
    for case in cases:
        slow = [pytest.mark.slow] if case[0] in seen else []
        marked.append(pytest.param(case, id=named(case), marks=slow))
        seen.add(case[0])
    return marked


def paths_with(scores, name):
    """The weights of the attention layers of that name in a decoder."""
    return [weights for path, weights in scores.items() if "encoder" not in path and name in path]


class OfVectors:
    """A layer, a block or a stack of each side, over fixed embeddings."""

    def __init__(self, level, dtype, dropout, randomize, recorded):
        rates = dict(dropout=dropout, dtype=dtype)
        if level == "layer":
            self.sides = MultiHeadAttention(2, **rates), MultiHeadAttention(2, **rates)
            self.forward = self.attend
        else:
            sizes = dict(num_heads=2, d_ff=16, attention_dropout=dropout, **rates)
            if level == "block":
                kinds = EncoderBlock, DecoderBlock
            else:
                kinds, sizes["num_layers"] = (Encoder, Decoder), 2
            self.sides = [
                kind(**sizes, name=name)
                for kind, name in zip(kinds, ("encoder", "decoder"), strict=True)
            ]
            self.forward = self.encode_and_decode
        self.recorded = recorded
        self.table = np.random.default_rng(1).normal(size=(12, 8)).astype("float32")
        self.layers = self.sides
        self(SOURCE, TARGET)  # builds
        for layer in self.sides:
            randomize(layer)

    def __call__(self, source, target, at_padding=0.0, ask=False, training=False):
        table = np.concatenate([np.full((1, 8), at_padding, "float32"), self.table])
        return self.forward(table[source], table[target], padding_mask(source), ask, training)

    def attend(self, source, target, mask, ask, training):
        over_itself, over_source = self.sides
        mode = dict(return_attention_scores=ask, training=training)
        h = over_itself(target, target, use_causal_mask=True, **mode)
        h, *of_self = h if ask else [h]
        y = over_source(h, source, attention_mask=mask, **mode)
        y, *of_source = y if ask else [y]
        return y, of_self, of_source

    def encode_and_decode(self, source, target, mask, ask, training):
        encoder, decoder = self.sides
        memory, _ = self.called(encoder, ask, source, attention_mask=mask, training=training)
        mode = dict(cross_attention_mask=mask, training=training)
        y, scores = self.called(decoder, ask, target, memory, **mode)
        return y, paths_with(scores, "self_attention"), paths_with(scores, "cross_attention")

    def called(self, layer, ask, *args, **kwargs):
        return self.recorded(layer, *args, **kwargs) if ask else (layer(*args, **kwargs), {})


class OfIds:
    """The model."""

    def __init__(self, model, recorded):
        self.model, self.recorded = model, recorded
        self.layers = [model]

    def __call__(self, source, target, at_padding=0.0, ask=False, training=False):
        for embedding in (self.model.source_embedding, self.model.target_embedding):
            rows = keras.ops.convert_to_numpy(embedding.embeddings).copy()
            rows[0] = at_padding
            embedding.embeddings.assign(rows)
        inputs, scores = {"source_ids": source, "target_ids": target}, {}
        if ask:
            output, scores = self.recorded(self.model, inputs, training=training)
        else:
            output = self.model(inputs, training=training)
        of_self, of_source = (paths_with(scores, f"{kind}_attention") for kind in ("self", "cross"))
        return output[..., 1:], of_self, of_source  # logit 0 reads the vector of padding itself


@pytest.fixture(scope="module")
def level_of(randomize, recorded, tmp_path_factory):
    """Each level once for all its modes."""
    built = {}

    def build(level, dtype, dropout):
        if level == "model":
            sizes = dict(num_layers=1, d_model=8, num_heads=2, d_ff=16)
            rates = dict(dropout=dropout, attention_dropout=dropout)
            return OfIds(randomize(Transformer(11, 13, **sizes, **rates, dtype=dtype)), recorded)
        if level == "reloaded_model":
            path = tmp_path_factory.mktemp("model") / "model.keras"
            level_of("model", dtype, dropout).model.save(path)
            return OfIds(keras.saving.load_model(path), recorded)
        return OfVectors(level, dtype, dropout, randomize, recorded)

    def level_of(*key):
        if key not in built:
            built[key] = build(*key)
        return built[key]

    return level_of


@pytest.fixture(scope="module")
def subject(request, level_of, numpy, same_dropout):
    """A case of CASES as a function of ids; two calls drop the same."""
    level, dtype, dropout, training, ask = request.param
    function = level_of(level, dtype, DROPOUT[dropout])

    def outputs_and_weights(source, target, at_padding=0.0):
        same_dropout(*function.layers)
        return numpy(
            function(source, target, at_padding, ask=ASK[ask], training=TRAINING[training])
        )

    def subject(*arguments, **kwargs):
        return outputs_and_weights(*arguments, **kwargs)[0]

    subject.tolerance = TOLERANCE[dtype]
    subject.before, subject.of_self, subject.of_source = outputs_and_weights(SOURCE, TARGET)
    return subject


def of_cases(cases):
    return pytest.mark.parametrize("subject", each_once_quickly(cases), indirect=True)


every_case = of_cases(CASES)


def assert_same(subject, after, before):
    np.testing.assert_allclose(after, before, rtol=0, atol=subject.tolerance)


def assert_changed(after, before):
    """Every position of every sentence has changed, by more than any tolerance."""
    assert np.abs(after - before).max(axis=-1).min() > max(TOLERANCE.values())


@pytest.mark.slow
@every_case
def test_a_future_target_token_changes_its_own_output_and_no_earlier_one(subject):
    changed = TARGET.copy()
    changed[0, 2] = 10
    before, after = subject.before, subject(SOURCE, changed)
    assert_same(subject, after[0, :2], before[0, :2])
    assert_changed(after[:1, 2], before[:1, 2])


@every_case
def test_what_stands_at_padding_changes_nothing_and_a_token_there_does(subject):
    before = subject.before
    assert_same(subject, subject(SOURCE, TARGET, at_padding=3.0)[TARGET > 0], before[TARGET > 0])
    no_longer_padded = np.where(SOURCE == 0, 9, SOURCE)
    assert_changed(subject(no_longer_padded, TARGET), before)


@every_case
def test_a_neighbor_in_the_batch_changes_nothing_but_itself(subject):
    source, target = SOURCE.copy(), TARGET.copy()
    source[1], target[1] = [4, 9, 10, 7, 3], [2, 8, 7, 10]
    before, after = subject.before, subject(source, target)
    assert_same(subject, after[0], before[0])
    assert_changed(after[1:, 1:], before[1:, 1:])


@of_cases(NOTHING_DROPPED)
def test_more_padding_changes_nothing(subject):
    longer = subject(np.pad(SOURCE, [(0, 0), (0, 2)]), np.pad(TARGET, [(0, 0), (0, 3)]))[:, :4]
    assert_same(subject, longer[TARGET > 0], subject.before[TARGET > 0])


@of_cases(ASKING)
def test_the_weights_are_exactly_zero_at_the_future_and_at_the_padding_of_the_source(subject):
    assert len(subject.of_self) == len(subject.of_source) > 0
    causal = np.broadcast_to(np.tril(np.ones((4, 4), bool)), (2, 2, 4, 4))
    real = np.broadcast_to((SOURCE > 0)[:, np.newaxis, np.newaxis], (2, 2, 4, 5))
    for weights in subject.of_self:
        np.testing.assert_array_equal(weights > 0, causal)
    for weights in subject.of_source:
        np.testing.assert_array_equal(weights > 0, real)


# Order: attention itself cannot tell it, so only positions can.

ORDER = [3, 0, 4, 1, 2]  # nothing stays in its place, and padding comes to stand inside
SIDES = [
    ("layer", "float32", ""),
    ("layer", "mixed_bfloat16", "weights"),
    ("block", "float32", "weights"),
    ("block", "mixed_bfloat16", ""),
    ("stack", "float32", ""),
    ("stack", "mixed_bfloat16", "weights"),
]


@pytest.mark.parametrize("level, dtype, ask", SIDES, ids=map(named, SIDES))
def test_permuting_the_source_without_positions_permutes_the_output(
    numpy, normal, level_of, recorded, level, dtype, ask
):
    encoder = level_of(level, dtype, 0.0).sides[0]
    x, mask = normal(2, 5, 8), padding_mask(SOURCE)

    def output(x, mask):
        if level == "layer":
            y = encoder(x, x, attention_mask=mask, return_attention_scores=ASK[ask])
            return numpy(y[0] if ASK[ask] else y)
        if ASK[ask]:
            return numpy(recorded(encoder, x, attention_mask=mask)[0])
        return numpy(encoder(x, attention_mask=mask))

    before, after = output(x, mask), output(x[:, ORDER], numpy(mask)[..., ORDER])
    np.testing.assert_allclose(after, before[:, ORDER], rtol=0, atol=TOLERANCE[dtype])
    assert_changed(after, before)


@pytest.mark.parametrize("level", ["model", pytest.param("reloaded_model", marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_decoder_cannot_tell_the_order_of_the_memory_but_positions_tell_that_of_the_source(
    numpy, level_of, level, dtype
):
    model = level_of(level, dtype, 0.0).model
    memory, mask = numpy(model.encode(keras.ops.convert_to_tensor(SOURCE)))
    y = model.target_embedding(TARGET)
    before = numpy(model.decoder(y, memory, cross_attention_mask=mask))
    after = numpy(model.decoder(y, memory[:, ORDER], cross_attention_mask=mask[..., ORDER]))
    np.testing.assert_allclose(after, before, rtol=0, atol=TOLERANCE[dtype])
    permuted, _ = numpy(model.encode(keras.ops.convert_to_tensor(SOURCE[:, ORDER])))
    assert_changed(permuted[:1], memory[:1, ORDER])
