import keras
import numpy as np
import pytest

import keras_transformer as kt
import oracle
from keras_transformer.backend import prefers_jit

SIZES = dict(num_layers=1, d_model=8, num_heads=2, d_ff=16, dropout=0.0, max_characters=4)
WORDS = np.array([[5, 6, 1, 8], [9, 3, 0, 0]])
CHARACTERS = np.array(
    [
        [[3, 4, 5, 0], [4, 4, 0, 0], [6, 7, 8, 9], [5, 0, 0, 0]],
        [[9, 3, 0, 0], [8, 8, 8, 0], [0, 0, 0, 0], [0, 0, 0, 0]],
    ]
)
MODELS = {"tagging": kt.TaggingModel, "classification": kt.ClassificationModel}
BOTH = pytest.mark.parametrize("cls", MODELS.values(), ids=MODELS)


@pytest.fixture(scope="module")
def build(randomize):
    """A model of 10 words, 10 characters and 5 labels with random weights."""
    return lambda cls, seed=0, **kwargs: randomize(cls(10, 10, 5, **{**SIZES, **kwargs}), seed)


def logits_of(model, words=WORDS, characters=CHARACTERS):
    inputs = {"word_ids": np.array(words, "int32"), "character_ids": np.array(characters, "int32")}
    return keras.ops.convert_to_numpy(model(inputs))


def embedded(words, characters, weights):
    """Word vectors * sqrt(d) + the maximum of a convolution over the characters, by hand."""
    kernel, bias = weights["spelling"]["kernel"], weights["spelling"]["bias"]  # (5, width, d)
    around = np.pad(weights["characters"][characters], ((0, 0), (0, 0), (2, 2), (0, 0)))
    spelled = [
        np.einsum("bnkc,kcd->bnd", around[:, :, i : i + 5], kernel) + bias
        for i in range(characters.shape[2])
    ]
    words = weights["words"][words]
    return words * np.sqrt(words.shape[-1]) + np.max(spelled, axis=0)


def encoded(weights, rotary=False, pre_norm=False):
    x = embedded(WORDS, CHARACTERS, weights)
    if not rotary:
        x = x + oracle.positional_encoding(4, 8)
    mask = oracle.padding_mask(WORDS)
    return oracle.encoder(x, weights["encoder"], 2, mask, pre_norm=pre_norm, rotary=rotary)


# Logits


@pytest.mark.parametrize("kind", [{}, dict(rotary=True, norm_first=True)], ids=["", "rotary"])
def test_the_logits_of_words_equal_the_oracle(weights_of, build, kind):
    model = build(kt.TaggingModel, **kind)
    weights = weights_of(model)
    h = encoded(weights, rotary=bool(kind), pre_norm=bool(kind))
    expected = oracle.dense(h, weights["labels"])
    np.testing.assert_allclose(
        logits_of(model)[WORDS > 0], expected[WORDS > 0], rtol=1e-4, atol=1e-4
    )


def test_the_logits_of_a_text_equal_the_oracle(weights_of, build):
    model = build(kt.ClassificationModel)
    weights = weights_of(model)
    texts = [row[words > 0] for row, words in zip(encoded(weights), WORDS, strict=True)]
    pooled = np.stack([np.concatenate([h.mean(axis=0), h.max(axis=0)]) for h in texts])
    expected = oracle.dense(pooled, weights["labels"])
    np.testing.assert_allclose(logits_of(model), expected, rtol=1e-4, atol=1e-4)


@BOTH
def test_padding_changes_no_logit_and_a_neighbor_does(build, cls):
    model = build(cls)
    expected = logits_of(model)
    words = np.pad(WORDS, ((0, 2), (0, 3)))  # two rows and three words more
    characters = np.pad(CHARACTERS, ((0, 2), (0, 3), (0, 0)))
    found = logits_of(model, words, characters)
    assert np.isfinite(found).all()
    if cls is kt.TaggingModel:
        found, expected = found[:2, :4][WORDS > 0], expected[WORDS > 0]
    np.testing.assert_allclose(found[: len(expected)], expected, atol=1e-5)
    other = np.where(WORDS == 8, 7, WORDS)  # the last word of the first text
    difference = np.abs(logits_of(model, other) - logits_of(model))
    difference = difference[:, :3] if cls is kt.TaggingModel else difference
    assert difference[0].max() > 1e-3 and difference[1].max() == 0


def test_an_unknown_word_is_known_by_its_spelling(build):
    embed = build(kt.TaggingModel).embedding
    spellings = np.array([[[3, 4, 5, 0], [4, 3, 5, 0], [3, 4, 5, 0]]])
    one, other, same = keras.ops.convert_to_numpy(embed(np.array([[1, 1, 1]]), spellings))[0]
    assert np.abs(one - other).max() > 0.1
    np.testing.assert_allclose(one, same, atol=1e-6)


@BOTH
def test_the_initial_word_vectors_have_the_given_standard_deviation(cls):
    for kwargs, stddev in (({}, 1.0), (dict(word_stddev=0.1), 0.1)):
        model = cls(1000, 10, 5, **SIZES, **kwargs)
        for each in (model, cls.from_config(model.get_config())):
            vectors = keras.ops.convert_to_numpy(each.embedding.words(np.arange(1000)[None]))
            assert vectors.std() == pytest.approx(stddev, rel=0.05)
    with pytest.raises(ValueError, match="stddev must be above 0; received stddev=0"):
        cls(1000, 10, 5, **SIZES, word_stddev=0)


@BOTH
def test_low_precision_gives_finite_float32_logits(build, cls):
    model = build(cls, dtype="mixed_bfloat16")
    words = np.stack([*WORDS, np.zeros(4, int)])  # an empty text too
    logits = logits_of(model, words, np.stack([*CHARACTERS, np.zeros((4, 4), int)]))
    assert logits.dtype == np.float32 and np.isfinite(logits).all()
    assert model.encoder.compute_dtype == "bfloat16"
    real = WORDS > 0 if cls is kt.TaggingModel else slice(None)
    exact = logits_of(build(cls))[real]
    np.testing.assert_allclose(logits[:2][real], exact, atol=0.1 * np.abs(exact).max())


@BOTH
def test_an_option_that_does_not_exist_is_named(cls):
    with pytest.raises(ValueError, match="Options are num_layers, .*; received unknown='dropuot'"):
        cls(10, 10, 5, **{**SIZES, "dropuot": 0.1})


# Another model's weights


def test_a_model_is_initialized_from_the_embedding_and_encoder_of_another(build):
    filling, tagging = build(kt.TaggingModel), build(kt.ClassificationModel, seed=1)
    labels = tagging.get_layer("labels").get_weights()
    expected = [layer.get_weights() for layer in (filling.embedding, filling.encoder)]
    tagging.initialize_from(filling)
    for layer, weights in zip((tagging.embedding, tagging.encoder), expected, strict=True):
        for mine, theirs in zip(layer.get_weights(), weights, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    for mine, before in zip(tagging.get_layer("labels").get_weights(), labels, strict=True):
        np.testing.assert_array_equal(mine, before)
    filling.embedding.words.embeddings.assign(np.zeros((10, 8)))  # a copy, not the same
    assert np.abs(tagging.embedding.words.get_weights()[0]).max() > 0.1


def test_a_model_is_initialized_from_the_encoder_of_a_deeper_or_shallower_decoder(build):
    sizes = {name: value for name, value in SIZES.items() if name != "max_characters"}
    other = kt.Transformer(9, **sizes | dict(num_layers=3, encoder_layers=2, decoder_layers=1))
    tagging = build(kt.TaggingModel, num_layers=2)
    tagging.initialize_from(other)
    for mine, theirs in zip(
        tagging.encoder.get_weights(), other.encoder.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)
    with pytest.raises(ValueError, match="num_layers must be that of the model .*, 2; received"):
        build(kt.TaggingModel, num_layers=3).initialize_from(other)


@pytest.mark.parametrize(
    "other, message",
    [
        (dict(d_ff=8), "d_ff must be that of the model to initialize from, 8; received d_ff=16"),
        (dict(num_layers=2), "num_layers must be that of the model to initialize from, 2"),
        (dict(rotary=True), "rotary must be that of the model to initialize from, True"),
        (dict(max_length=9), "max_length must be that of the model to initialize from, 9"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_taken(build, other, message):
    model = build(kt.TaggingModel)
    before = model.get_weights()
    with pytest.raises(ValueError, match=message):
        model.initialize_from(build(kt.TaggingModel, seed=1, **other))
    for mine, own in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(mine, own)


# Training


@pytest.mark.parametrize("labels", [[1, 3, 0], [[1, 3], [2, 0], [0, 0]]], ids=["texts", "words"])
def test_loss_and_metrics_of_labels_by_hand(numpy, normal, labels):
    labels = np.array(labels, "int32")
    logits = normal(*labels.shape, 4)
    real = labels > 0
    p = oracle.softmax(logits.astype("float64"))[real]
    nats = -np.log(p[np.arange(real.sum()), labels[real]])
    assert numpy(kt.TokenCrossEntropy()(labels, logits)) == pytest.approx(nats.mean(), rel=1e-5)
    perplexity, accuracy = kt.Perplexity(), kt.TokenAccuracy()
    for rows in (slice(0, 1), slice(1, None)):  # in two batches
        for metric in (perplexity, accuracy):
            metric.update_state(labels[rows], logits[rows])
    assert numpy(perplexity.result()) == pytest.approx(np.exp(nats.mean()), rel=1e-5)
    hits = (logits.argmax(axis=-1) == labels)[real].mean()
    assert numpy(accuracy.result()) == pytest.approx(hits, rel=1e-6)


def trained(model, vocabulary, sentences, labels, epochs):
    words, characters = vocabulary.encode(sentences)
    words = kt.word_dropout(words)
    batches = kt.WordBatches(words, characters, labels, batch_size=64, num_buckets=1)
    model.compile(keras.optimizers.Adam(0.01), kt.TokenCrossEntropy(), jit_compile=prefers_jit())
    model.fit(batches, epochs=epochs, shuffle=False, verbose=0)


def made_up(generator, number):
    """Words of random letters that end in -ing (label 1) or -ed (label 2)."""
    kinds = generator.integers(1, 3, number)
    stems = ["".join(generator.choice(list("abcdegin"), 3)) for _ in kinds]
    return [stem + ("ing", "ed")[kind - 1] for stem, kind in zip(stems, kinds, strict=True)], kinds


@pytest.mark.slow
def test_it_learns_to_tag_words_never_seen_by_their_endings():
    generator = np.random.default_rng(0)
    examples = [made_up(generator, 5) for _ in range(256)]
    sentences, labels = zip(*examples, strict=True)
    vocabulary = kt.WordVocabulary.learn(sentences, max_characters=6)
    model = kt.TaggingModel(
        vocabulary.num_words,
        vocabulary.num_characters,
        num_labels=3,
        max_characters=6,
        num_layers=1,
        d_model=8,
        num_heads=2,
        d_ff=8,
    )
    trained(model, vocabulary, sentences, labels, epochs=15)
    tagger = kt.Tagger(model, vocabulary, ["ing", "ed"])
    new = ["zzzing", "qqed", "oouing", "wvwed"]  # of letters never seen
    assert tagger.tag([new]) == [list(zip(new, ["ing", "ed"] * 2, strict=True))]


@pytest.mark.slow
def test_it_learns_to_tell_texts_apart_by_the_order_of_their_words():
    generator = np.random.default_rng(0)
    labels = generator.integers(1, 3, 512).tolist()
    sentences = []
    for label in labels:
        words = generator.choice(list("xyz"), 6).tolist()
        first, second = sorted(generator.choice(6, 2, replace=False))
        words[first], words[second] = "ab" if label == 1 else "ba"
        sentences.append(words)
    vocabulary = kt.WordVocabulary.learn(sentences, max_characters=2)
    ids = vocabulary.num_words, vocabulary.num_characters
    sizes = dict(num_layers=1, d_model=16, num_heads=2, d_ff=16, dropout=0.0)
    model = kt.ClassificationModel(*ids, num_labels=3, max_characters=2, **sizes)
    trained(model, vocabulary, sentences[:448], labels[:448], epochs=25)
    classifier = kt.Classifier(model, vocabulary, ["ab", "ba"])
    probabilities = classifier.probabilities([" ".join(words) for words in sentences[448:]])
    assert (probabilities.argmax(axis=1) + 1 == labels[448:]).mean() > 0.9
