"""A model that is called with a cache, a few tokens at a time, equals the model without one."""

import keras
import numpy as np
import pytest

from keras_transformer.layers.cache import Cache
from keras_transformer.models import LanguageModel, Transformer

SIZES = dict(num_layers=2, d_model=8, num_heads=2, d_ff=16)
SOURCE = np.array([[5, 6, 7, 3, 0], [8, 3, 0, 0, 0]])
TARGET = np.array([[2, 4, 9, 6, 5, 10], [2, 5, 8, 8, 10, 7]])
LENGTH = TARGET.shape[1]

# Each kind of positions and each place of the norm with and without an encoder: what differs
# between the two, attention to the memory, knows neither.
MODELS = {
    "encoder_decoder": (Transformer, {}),
    "encoder_decoder_learned_pre_norm": (Transformer, dict(max_length=LENGTH, norm_first=True)),
    "encoder_decoder_rotary": (Transformer, dict(rotary=True)),
    "decoder_only_learned": (LanguageModel, dict(max_length=LENGTH)),
    "decoder_only_pre_norm_rotary": (LanguageModel, dict(norm_first=True, rotary=True)),
}


class Reader:
    """A model, its memory of `SOURCE` if it has one, and a cache for what it reads."""

    def __init__(self, model, batch_size, num_slots):
        self.model = model
        self.memory, self.of_memory = None, {}
        if isinstance(model, Transformer):
            self.memory = model.encode(keras.ops.convert_to_tensor(SOURCE[:batch_size]))
            self.of_memory = model.cache_memory(self.memory)
        self.decoded = model.empty_cache(batch_size, num_slots)

    def whole(self, ids):
        """The logits of all tokens, without a cache; one or more rows of ids per source."""
        memory = self.memory
        if memory is not None:
            each = len(ids) // len(memory.states)
            memory = type(memory)(*(keras.ops.repeat(x, each, axis=0) for x in memory))
        return self.model.decode(keras.ops.convert_to_tensor(ids), memory)

    def read(self, ids, slot, positions, mask):
        """The logits of the next tokens, whose keys and values go to the slots from `slot` on."""
        cache = Cache(self.decoded, self.of_memory, slot, np.array(positions))
        ids = keras.ops.convert_to_tensor(ids)
        logits = self.model.decode(ids, self.memory, attention_mask=mask, cache=cache)
        self.decoded = cache.decoded
        return logits


SLOW = {"encoder_decoder_learned_pre_norm", "encoder_decoder_rotary"}
PARTS = {"1+1+3+1": [1, 1, 3, 1], "all": [LENGTH]}


def all_but(slow):
    """All models; the named ones are slow tests."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in slow)) for name in MODELS]


@pytest.fixture(scope="module", params=all_but(SLOW))
def model(request, randomize):
    kind, options = MODELS[request.param]
    return randomize(kind(11, **{**SIZES, **options}))


@pytest.fixture(params=[Transformer, LanguageModel], ids=["encoder_decoder", "decoder_only"])
def kind(request):
    return request.param


@pytest.fixture
def plain(kind, randomize):
    return randomize(kind(11, **SIZES))


def look_ahead(positions, num_slots):
    """(1, length, slots): the slots up to each position."""
    return (np.arange(num_slots) <= np.array(positions)[:, np.newaxis])[np.newaxis]


@pytest.mark.parametrize(
    "model, parts",
    [
        pytest.param(name, PARTS[parts], marks=[pytest.mark.slow] * slow, id=f"{name}-{parts}")
        for name in MODELS
        for parts, slow in (("1+1+3+1", name != "encoder_decoder"), ("all", name in SLOW))
    ],
    indirect=["model"],
    scope="module",  # that of the fixture
)
def test_reading_part_by_part_equals_the_whole_target(numpy, model, parts):
    reader = Reader(model, 2, num_slots=8)
    expected = numpy(reader.whole(TARGET))
    begin = 0
    for length in parts:
        positions = list(range(begin, begin + length))
        logits = reader.read(TARGET[:, positions], begin, positions, look_ahead(positions, 8))
        np.testing.assert_allclose(numpy(logits), expected[:, positions], atol=1e-4)
        begin += length
    assert begin == LENGTH


@pytest.mark.parametrize("model", all_but(SLOW | {"decoder_only_learned"}), indirect=True)
def test_hypotheses_side_by_side_read_their_own_ancestors_alone(numpy, model):
    # The token at position t of beam k stands in slot 3 t + k; it follows the token at position
    # t - 1 of any beam.
    beams, rng = 3, np.random.default_rng(5)
    ids = rng.integers(4, 11, (2, LENGTH, beams))
    reader = Reader(model, 2, num_slots=LENGTH * beams)
    histories = np.zeros((2, beams, 0), int)  # the slots of each hypothesis
    found, hypotheses = [], []
    for position in range(LENGTH):
        parents = rng.integers(0, beams, (2, beams, 1))
        own_slots = np.broadcast_to(
            position * beams + np.arange(beams)[:, np.newaxis], (2, beams, 1)
        )
        ancestors = np.take_along_axis(histories, parents, axis=1)
        histories = np.concatenate([ancestors, own_slots], axis=-1)
        mask = (histories[..., np.newaxis] == np.arange(LENGTH * beams)).any(axis=2)
        logits = reader.read(ids[:, position], position * beams, [position] * beams, mask)
        found.append(numpy(logits))
        tokens = np.take_along_axis(ids.reshape((2, 1, -1)), histories, axis=2)
        hypotheses.append(np.pad(tokens, [(0, 0), (0, 0), (0, LENGTH - position - 1)]))

    # The hypotheses of all positions at once: (2, positions, beams, length).
    whole = numpy(reader.whole(np.stack(hypotheses, axis=1).reshape((-1, LENGTH))))
    whole = whole.reshape((2, LENGTH, beams, LENGTH, -1))
    for position, logits in enumerate(found):
        np.testing.assert_allclose(logits, whole[:, position, :, position], atol=1e-4)
    assert len(np.unique(histories[0] % beams, axis=0)) == beams  # no two are the same beams


def test_a_token_that_the_mask_leaves_out_changes_nothing_and_one_that_it_allows_does(numpy, plain):
    mask = np.array([[[True, False, True, False]]])
    logits = []
    for ids in ([2, 4, 9], [2, 5, 9], [2, 5, 8]):
        reader = Reader(plain, 1, num_slots=4)
        reader.read([ids[:2]], 0, [0, 1], look_ahead([0, 1], 4))
        logits.append(numpy(reader.read([ids[2:]], 2, [2], mask)))
    np.testing.assert_array_equal(logits[0], logits[1])
    assert np.abs(logits[1] - logits[2]).max() > 0.1


def test_the_keys_and_values_of_the_memory_are_computed_once(numpy, randomize, monkeypatch):
    model = randomize(Transformer(11, **SIZES))
    reader = Reader(model, 2, num_slots=LENGTH)
    expected = numpy(reader.whole(TARGET))
    # From here on neither the memory is read nor a projection of it computed.
    reader.memory = reader.memory._replace(states=np.full((2, 5, 8), np.nan, "float32"))
    for block in model.decoder.blocks:
        for projection in (block.cross_attention.key, block.cross_attention.value):
            monkeypatch.setattr(projection, "call", None)
    for position in range(LENGTH):
        token = TARGET[:, position : position + 1]
        logits = reader.read(token, position, [position], look_ahead([position], LENGTH))
        np.testing.assert_allclose(numpy(logits)[:, 0], expected[:, position], atol=1e-4)


def test_a_cache_that_has_grown_holds_what_it_held(numpy, plain):
    reader = Reader(plain, 2, num_slots=3)
    expected = numpy(reader.whole(TARGET))
    reader.read(TARGET[:, :3], 0, [0, 1, 2], look_ahead([0, 1, 2], 3))
    reader.decoded = Cache.grow(reader.decoded, plain.empty_cache(2, LENGTH))
    positions = [3, 4, 5]
    logits = reader.read(TARGET[:, 3:], 3, positions, look_ahead(positions, LENGTH))
    np.testing.assert_allclose(numpy(logits), expected[:, 3:], atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_an_empty_cache_has_room_for_its_tokens_in_the_compute_dtype(kind, dtype):
    model = kind(11, **SIZES, dtype=dtype)
    decoded = model.empty_cache(3, 7)
    paths = [f"decoder/block_{number}/self_attention" for number in (1, 2)]
    assert list(decoded) == paths
    for keys, values in decoded.values():
        assert tuple(keys.shape) == (3, 2, 4, 7)
        assert tuple(values.shape) == (3, 2, 7, 4)
        for x in (keys, values):
            assert keras.backend.standardize_dtype(x.dtype) == dtype.removeprefix("mixed_")
            assert not keras.ops.convert_to_numpy(keras.ops.any(x != 0))
