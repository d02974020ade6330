"""A trained model is trained further: in part, by low-rank updates, with old data mixed in."""

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import backend, data, training

pytestmark = pytest.mark.usefixtures("uncollected")
SIZES = dict(num_layers=2, d_model=8, num_heads=2, d_ff=16)
EAGERLY = dict(jit_compile=False, run_eagerly=True)  # sooner than a compilation
IDS = np.random.default_rng(0).integers(4, 12, (8, 5)).astype("int32")
INPUTS = {"source_ids": IDS, "target_ids": IDS}


def values(model):
    return {w.path: keras.ops.convert_to_numpy(w).copy() for w in model.weights}


def trained(model, epochs=1):
    """The paths of the weights that a few updates change."""
    before = values(model)
    model.compile(keras.optimizers.Adam(0.01), kt.TokenCrossEntropy(0.0), **EAGERLY)
    model.fit(INPUTS, IDS, epochs=epochs, verbose=0)
    return {path for path, value in values(model).items() if (value != before[path]).any()}


@pytest.mark.slow
def test_all_weights_are_trained_unless_some_are_frozen(randomize):
    model = randomize(kt.Transformer(12, **SIZES))
    keys = {path for path in values(model) if path.endswith("key/bias")}  # softmax ignores them
    assert trained(model, 2) >= values(model).keys() - keys


def test_a_frozen_layer_keeps_its_weights_and_all_others_change(randomize):
    model = randomize(kt.Transformer(12, **SIZES))
    frozen = "embedding", "encoder", "decoder/block_1"
    training.freeze(model, frozen)
    changed = trained(model, 2)
    assert changed and not any(path.startswith(f"{name}/") for path in changed for name in frozen)
    assert {path.split("/")[1] for path in changed} == {"block_2"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("embeddings", marks=pytest.mark.slow),
        "block_1",
        pytest.param("dropout", marks=pytest.mark.slow),
    ],
)
def test_a_layer_that_is_not_there_cannot_be_frozen(name):
    with pytest.raises(ValueError, match=f"one of embedding, encoder, decoder, .*block_1.*'{name}"):
        training.freeze(kt.Transformer(12, **SIZES), [name])


def test_a_model_is_not_frozen_as_a_whole():
    with pytest.raises(ValueError, match="must be left to be trained"):
        training.freeze(kt.LanguageModel(12, **SIZES), ["embedding", "decoder"])


@pytest.mark.parametrize("names", [["embedding", "encoder", "decoder"], ["encoder", "decodr"]])
def test_a_refused_freeze_freezes_nothing(names):
    model = kt.Transformer(12, **SIZES)
    number = len(model.trainable_variables)
    with pytest.raises(ValueError, match="A layer"):
        training.freeze(model, names)
    assert len(model.trainable_variables) == number
    training.freeze(model, ["embedding"])
    assert len(model.trainable_variables) == number - 1


def test_lora_changes_nothing_at_first_and_then_its_updates_alone(randomize, numpy):
    model = randomize(kt.Transformer(12, **SIZES))
    before = numpy(model(INPUTS))
    training.enable_lora(model, 2)
    np.testing.assert_allclose(numpy(model(INPUTS)), before, atol=1e-6)
    changed = trained(model, 2)
    assert {path.rsplit("/", 1)[1] for path in changed} == {"lora_kernel_a", "lora_kernel_b"}
    kernels = [path for path in values(model) if path.endswith("lora_kernel_b")]
    assert len(kernels) == 2 * 6 + 2 * 10 == len([p for p in changed if p.endswith("_b")])
    assert np.abs(numpy(model(INPUTS)) - before).max() > 1e-3


@pytest.mark.slow
def test_the_product_of_an_update_has_its_rank(randomize):
    model = randomize(kt.Transformer(12, **SIZES))
    training.enable_lora(model, 2)
    before = model.encoder.blocks[0].feed_forward.inner._kernel
    before = keras.ops.convert_to_numpy(before)
    trained(model, 3)
    after = keras.ops.convert_to_numpy(model.encoder.blocks[0].feed_forward.inner.kernel)
    assert np.linalg.matrix_rank(after - before, tol=1e-5) == 2


def test_lora_is_enabled_once_with_a_rank_from_1():
    model = kt.LanguageModel(12, **SIZES)
    with pytest.raises(ValueError, match="rank must be an integer of at least 1; received rank=0"):
        training.enable_lora(model, 0)
    training.enable_lora(model, 1)
    with pytest.raises(ValueError, match="once"):
        training.enable_lora(model, 1)
    with pytest.raises(ValueError, match="Save a model with LoRA and load it, .*layers_with_lora="):
        model.copy()
    with pytest.raises(ValueError, match="attention layers"):
        training.enable_lora(keras.Sequential([keras.layers.Dense(1)]), 1)


def test_lora_needs_a_layer_that_is_not_frozen():
    model = kt.Transformer(9, **SIZES)
    training.freeze(model, ["encoder", "decoder"])
    with pytest.raises(ValueError, match="A layer must be left to be trained; received frozen="):
        training.enable_lora(model, 2)


@pytest.mark.slow
def test_a_model_trained_with_lora_is_saved_as_an_ordinary_one(randomize, numpy, tmp_path):
    tokenizer = kt.train_tokenizer(["abcdefgh"], model_type="char")
    model = randomize(kt.Transformer(tokenizer.vocabulary_size(), **SIZES))
    training.enable_lora(model, 2)
    trained(model, 2)
    kt.Translator(model, tokenizer).save(tmp_path / "model.keras")
    loaded = kt.load(tmp_path / "model.keras").model
    np.testing.assert_allclose(numpy(loaded(INPUTS)), numpy(model(INPUTS)), atol=1e-5)
    assert not backend.layers_with_lora(loaded)
    assert len(loaded.trainable_variables) == len(loaded.weights)


class Batches(keras.utils.PyDataset):
    epoch, num_tokens = 0, 8

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return INPUTS, IDS


@pytest.mark.slow
@pytest.mark.parametrize("r_drop", [False, True])
def test_a_resumed_run_with_lora_equals_an_uninterrupted_one(r_drop, tmp_path):
    def run(folder, *goals):
        for goal in goals:  # each in a new process
            keras.utils.set_random_seed(1)
            model = kt.Transformer(12, **SIZES)
            training.enable_lora(model, 2)
            fitted = training.RDrop(model, 1.0) if r_drop else model
            fitted.compile(keras.optimizers.Adam(0.01), kt.TokenCrossEntropy(), **EAGERLY)
            checkpoint = training.EpochCheckpoint(tmp_path / folder, Batches())
            for span in checkpoint.restore(fitted, goal):
                fitted.fit(Batches(), **span, callbacks=[checkpoint], shuffle=False, verbose=0)
        return values(model)

    whole, halves = run("whole", 3), run("halves", 2, 3)
    updates = [path for path in whole if path.endswith("lora_kernel_b")]
    assert updates and all(np.abs(whole[path]).max() > 0 for path in updates)
    for path, value in whole.items():
        np.testing.assert_array_equal(halves[path], value, path)


@pytest.mark.parametrize(
    "kind",
    [
        "int8",
        "bfloat16",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("int4", "embeddings")),
    ],
)
def test_a_checkpoint_has_every_weight_of_a_layer_with_lora(kind, randomize, numpy, tmp_path):
    dtype = {"dtype": "bfloat16"} if kind == "bfloat16" else {}
    model = randomize(kt.LanguageModel(12, **SIZES, **dtype))
    if kind.startswith("int"):
        with pytest.warns(UserWarning, match="does not have a `quantize`"):
            model.quantize(kind)
    if kind == "embeddings":
        model.embedding.enable_lora(2)
    else:
        training.enable_lora(model, 2)
    for layer in backend.layers_with_lora(model):
        for weight in layer.weights:
            if "lora" in weight.name:
                weight.assign(0.5 * keras.random.normal(weight.shape, seed=1))
    model.compile(keras.optimizers.Adam(), kt.TokenCrossEntropy(), jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    before, logits = [numpy(weight) for weight in model.weights], numpy(model(IDS))
    checkpoint = training.EpochCheckpoint(tmp_path, Batches())
    checkpoint.set_model(model)
    checkpoint.on_epoch_end(0)
    for weight in model.weights:
        weight.assign(0 * weight)
    for _ in checkpoint.restore(model, 2):
        pass
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(numpy(weight), value, weight.path)
    np.testing.assert_array_equal(numpy(model(IDS)), logits)


def test_a_bfloat16_weight_that_is_not_a_number_is_found(tmp_path):
    model = kt.LanguageModel(12, **SIZES, dtype="bfloat16")
    weight = model.weights[0]
    weight.assign(keras.ops.full(weight.shape, float("nan")))
    path = tmp_path / "x.weights.h5"
    model.save_weights(path)
    training.weight_files.add_checksum(path, {})
    with pytest.raises(FloatingPointError, match="became infinite or not a number"):
        training.weight_files.check_weights(path)


def test_checkpoints_of_updates_are_averaged_as_their_kernels(randomize, tmp_path):
    model = randomize(kt.LanguageModel(12, **SIZES))
    training.enable_lora(model, 1)
    model.compile(keras.optimizers.Adam(), kt.TokenCrossEntropy(), jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    kernel, kernels = model.decoder.blocks[0].feed_forward.inner, []
    for seed in (1, 2):
        randomize(model, seed=seed)
        kernels.append(keras.ops.convert_to_numpy(kernel.kernel))
        model.save_weights(tmp_path / f"{seed}.weights.h5")
    training.average_checkpoints(model, sorted(tmp_path.iterdir()))
    mean = keras.ops.convert_to_numpy(kernel.kernel)
    np.testing.assert_allclose(mean, np.mean(kernels, axis=0), atol=1e-5)
    assert np.abs(kernels[0] - kernels[1]).max() > 0.1
    with pytest.warns(UserWarning, match="does not have a `quantize`"):
        model.quantize("int8")
    with pytest.raises(ValueError, match="A quantized model has no mean"):
        training.average_checkpoints(model, sorted(tmp_path.iterdir()))


# A copy to be trained further


@pytest.mark.slow
def test_a_copy_has_the_same_weights_other_dropout_and_nothing_frozen(randomize, numpy):
    model = randomize(kt.Transformer(12, 13, **SIZES, dropout=0.3))
    model.encoder.trainable = False
    copy = model.copy(dropout=0.1)
    np.testing.assert_array_equal(numpy(copy(INPUTS)), numpy(model(INPUTS)))
    assert copy.config == model.config.replace(dropout=0.1)
    assert len(copy.trainable_variables) == len(copy.weights) > len(model.trainable_variables)
    trained(copy)
    assert np.abs(numpy(copy(INPUTS)) - numpy(model(INPUTS))).max() > 1e-4  # a copy, not a view


@pytest.mark.slow
def test_a_quantized_model_has_no_copy():
    model = kt.LanguageModel(12, **SIZES)
    with pytest.warns(UserWarning, match="does not have a `quantize`"):
        model.quantize("int8")
    with pytest.raises(ValueError, match="quantized model cannot be trained"):
        model.copy()


@pytest.mark.parametrize(
    "kind", ["transformer", pytest.param("language_model", marks=pytest.mark.slow)]
)
def test_a_word_model_can_begin_with_the_encoder_of_another_task(kind, randomize, numpy):
    others = {
        "transformer": lambda: kt.Transformer(12, **SIZES),
        "language_model": lambda: kt.LanguageModel(12, **SIZES),
    }
    other = randomize(others[kind]())
    tagger = kt.TaggingModel(12, 12, 4, 3, **SIZES)
    embedding = numpy(tagger.embedding.words.embeddings)
    tagger.initialize_from(other)
    blocks = other.encoder if kind == "transformer" else other.decoder
    for mine, theirs in zip(tagger.encoder.weights, blocks.weights, strict=True):
        np.testing.assert_array_equal(numpy(mine), numpy(theirs))
    np.testing.assert_array_equal(numpy(tagger.embedding.words.embeddings), embedding)
    with pytest.raises(ValueError, match="d_ff must be that of the model to initialize from, 16"):
        kt.TaggingModel(12, 12, 4, 3, **{**SIZES, "d_ff": 8}).initialize_from(other)


def test_a_model_with_lora_or_quantized_provides_and_takes_no_weights(randomize, numpy):
    plain = randomize(kt.TaggingModel(12, 12, 4, 3, **SIZES))
    before = plain.get_weights()
    with_lora, quantized = (kt.TaggingModel(12, 12, 4, 3, **SIZES) for _ in range(2))
    training.enable_lora(with_lora, 2)
    quantized.quantize("int8")
    blocks = kt.LanguageModel(12, **SIZES)
    training.enable_lora(blocks, 2)
    for other, message in (
        (with_lora, "Save a model with LoRA and load it"),
        (blocks, "Save a model with LoRA and load it"),
        (quantized, "A quantized model cannot be trained"),
    ):
        with pytest.raises(ValueError, match=message):
            plain.initialize_from(other)
    for other in (with_lora, quantized):
        with pytest.raises(ValueError, match="LoRA|quantized"):
            other.initialize_from(plain)
    for old, new in zip(before, plain.get_weights(), strict=True):
        np.testing.assert_array_equal(numpy(new), numpy(old))


def test_labels_are_taken_over_on_request_only(randomize, numpy):
    one = randomize(kt.TaggingModel(12, 12, 4, 3, **SIZES))
    for labels in (True, False):
        other = kt.TaggingModel(12, 12, 4, 3, **SIZES)
        other.initialize_from(one, labels=labels)
        same = (numpy(other.labels.kernel) == numpy(one.labels.kernel)).all()
        assert same == labels


# Data


def test_a_share_of_old_examples_is_mixed_in_without_repetition():
    new = data.Examples([f"n{n}" for n in range(60)], [f"N{n}" for n in range(60)])
    old = data.Examples([f"o{n}" for n in range(50)], [f"O{n}" for n in range(50)])
    mixed = data.mix(new, old, share=0.25, seed=3)
    assert mixed.source[:60] == new.source and len(mixed.source) == 80
    assert len(set(mixed.source)) == 80 and set(mixed.source[60:]) < set(old.source)
    assert [text.upper() for text in mixed.source] == mixed.target
    assert mixed == data.mix(new, old, 0.25, 3) != data.mix(new, old, 0.25, 4)
    assert data.mix(new, old, 0.0) == new
    assert len(data.mix(new, old, 0.9).source) == 110  # all there are
    assert set(data.mix(list("ab"), list("cdef"), 0.5)[2:]) < set("cdef")
    with pytest.raises(ValueError, match="share must be in"):
        data.mix(new, old, 1.0)


def test_the_share_of_unknown_characters_counts_those_without_an_id():
    tokenizer = kt.train_tokenizer(["abc abc"], model_type="char")
    assert tokenizer.unknown_share(["abc", "cab"]) == 0
    assert tokenizer.unknown_share(["axyc"]) == 0.5
    assert tokenizer.unknown_share([]) == 0
    assert kt.train_tokenizer(["abc"], model_type="byte").unknown_share(["xy"]) == 0


def test_the_share_of_unknown_words_ignores_their_case():
    vocabulary = kt.WordVocabulary.learn([["The", "cat"]])
    assert vocabulary.unknown_share([["the", "Cat", "sat", "down"]]) == 0.5
