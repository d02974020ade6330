import keras
import numpy as np
import pytest

import keras_transformer as kt
import oracle

SENTENCES = [
    ["The", "dog", "barks", "."],
    ["zebra"],
    [],
    ["a", "small", "cat", "Sees", "It's", "a", "dog", "and", "another", "cat"] * 3,
    ["DOG", "dog"],
    ["the", "cat"],
]
TEXTS = [" ".join(words) for words in SENTENCES]
MASKED = ["The [MASK] barks.", "[MASK]", "a cat sees the dog, a dog sees the [MASK]!"]


@pytest.fixture(scope="module")
def tagger(small_tasks):
    return small_tasks["tagger"]


@pytest.fixture(scope="module")
def classifier(small_tasks):
    return small_tasks["classifier"]


@pytest.fixture(scope="module")
def filler(small_tasks):
    return small_tasks["filler"]


def logits_of(task, words):
    """Of one sentence alone, without padding; one length for all would hide mistakes."""
    (ids,), (characters,) = task.vocabulary.encode([words])
    logits = task.model({"word_ids": ids[None], "character_ids": characters[None]})
    return keras.ops.convert_to_numpy(logits)[0].astype("float64")


# Answers


def test_each_word_has_the_most_probable_of_the_labels(tagger):
    answers = tagger.tag(SENTENCES)
    for words, answer in zip(SENTENCES, answers, strict=True):
        best = logits_of(tagger, words)[:, 1:].argmax(axis=-1) if words else []
        labels = [tagger.labels[label] for label in best]
        assert answer == list(zip(words, labels, strict=True))
    assert len({label for answer in answers for _, label in answer}) > 1


def test_a_mask_is_one_word(tagger, filler):
    assert filler.num_tokens(MASKED) == [4, 1, 12]
    assert tagger.num_tokens(["The dog barks.", "", "It's"]) == [4, 0, 1]


def test_generators_of_sentences_and_of_words_are_read_once_as_lists(tagger, classifier, filler):
    assert tagger.tag(iter(word) for word in map(iter, SENTENCES)) == tagger.tag(SENTENCES)
    assert tagger.tag([(word for word in SENTENCES[0])]) == tagger.tag(SENTENCES[:1])
    assert classifier.classify(iter(TEXTS)) == classifier.classify(TEXTS)
    assert classifier.probabilities(iter(TEXTS)).shape == (6, 2)
    assert filler.fill(iter(MASKED)) == filler.fill(MASKED)


def test_text_and_lists_of_words_get_the_same_tags(tagger):
    assert tagger.tag(TEXTS) == tagger.tag(SENTENCES)
    mixed = [TEXTS[0], SENTENCES[1], TEXTS[2]]
    assert tagger.tag(mixed) == tagger.tag(SENTENCES[:3])


def test_a_text_has_the_most_probable_label_with_its_probability(classifier):
    texts = [text for text in TEXTS if text]
    probabilities = classifier.probabilities(texts)
    assert probabilities.shape == (5, 2) and probabilities.dtype == np.float32
    for text, p, answer in zip(texts, probabilities, classifier.classify(texts), strict=True):
        expected = oracle.softmax(logits_of(classifier, text.split())[1:])
        np.testing.assert_allclose(p, expected, atol=1e-5)
        best = int(expected.argmax())
        assert answer.label == classifier.labels[best]
        assert answer.probability == pytest.approx(expected[best], abs=1e-5)
    assert probabilities.std(axis=0).max() > 0.001


def test_a_mask_is_filled_with_the_most_probable_words(filler):
    for text, answer in zip(MASKED, filler.fill(MASKED, number=3), strict=True):
        before, after = text.split("[MASK]")
        words = [*kt.split_words(before), "[MASK]", *kt.split_words(after)]
        logits = logits_of(filler, words)[words.index("[MASK]")]
        p = oracle.softmax(logits[1:])[2:]  # of all but padding; unknown and masked are not words
        best = np.argsort(-p)[:3]
        assert [label for label, _ in answer] == [filler.vocabulary.words[n] for n in best]
        np.testing.assert_allclose([each.probability for each in answer], p[best], atol=1e-5)
    assert len(filler.fill(MASKED)[0]) == 5
    assert len(filler.fill(MASKED, number=999)[0]) == len(filler.vocabulary.words)


def test_answers_keep_their_order_and_depend_on_no_neighbor(tagger, classifier, filler):
    by_ones = [
        type(task)(task.model, task.vocabulary, task.labels, batch_size=1)
        for task in (tagger, classifier)
    ]
    assert by_ones[0].tag(SENTENCES) == tagger.tag(SENTENCES)
    assert tagger.tag(SENTENCES[::-1]) == tagger.tag(SENTENCES)[::-1]
    one, all_at_once = by_ones[1].probabilities(TEXTS), classifier.probabilities(TEXTS)
    np.testing.assert_allclose(one, all_at_once, atol=1e-5)
    np.testing.assert_allclose(classifier.probabilities(TEXTS[::-1]), one[::-1], atol=1e-5)
    together = filler.fill(MASKED)
    for text, answer in zip(MASKED, together, strict=True):
        (alone,) = filler.fill([text])
        assert [label for label, _ in alone] == [label for label, _ in answer]


def test_nothing_to_read_is_answered_too(tagger, classifier, filler):
    assert tagger.tag([]) == classifier.classify([]) == filler.fill([]) == []
    assert classifier.probabilities([]).shape == (0, 2)
    assert tagger.tag(["", []]) == [[], []]
    empty = oracle.softmax(classifier.model.get_layer("labels").get_weights()[1][1:])
    np.testing.assert_allclose(classifier.probabilities(["", " "]), [empty] * 2, atol=1e-5)


# Files


@pytest.mark.parametrize(
    "name, ask",
    [
        ("tagger", lambda task: task.tag(SENTENCES)),
        ("classifier", lambda task: task.classify(TEXTS)),
        ("filler", lambda task: task.fill(MASKED)),
    ],
)
def test_a_saved_task_comes_back_with_the_same_answers(small_tasks, tmp_path, name, ask):
    task = small_tasks[name]
    task.save(tmp_path / "task.keras")
    loaded = keras.saving.load_model(tmp_path / "task.keras")
    assert type(loaded) is type(task)
    assert (loaded.labels, loaded.batch_size) == (task.labels, 4)
    assert loaded.vocabulary.get_config() == task.vocabulary.get_config()
    flat = [keras.tree.flatten(ask(each)) for each in (task, loaded)]
    for before, after in zip(*flat, strict=True):
        assert after == (before if isinstance(before, str) else pytest.approx(before, abs=1e-6))


# Errors


@pytest.mark.parametrize(
    "name, ask, message",
    [
        ("tagger", lambda t: t.tag([["a"], ["b", 7]]), "list of words; item 1 is"),
        ("tagger", lambda t: t.tag([["a"], None]), "list of words; item 1 is None"),
        ("tagger", lambda t: t.tag([7]), "list of words; item 0 is 7"),
        ("tagger", lambda t: t.tag([b"dog"]), "list of words; item 0 is b'dog'"),
        ("tagger", lambda t: t.tag("the dog"), "list of sentences; received one str"),
        ("tagger", lambda t: t.tag(None), "list of sentences; received one NoneType"),
        ("tagger", lambda t: t.tag(7), "list of sentences; received one int"),
        ("classifier", lambda t: t.classify("text"), "list of texts; received one str"),
        ("classifier", lambda t: t.classify(None), "list of texts; received one NoneType"),
        ("classifier", lambda t: t.probabilities(7), "list of texts; received one int"),
        ("classifier", lambda t: t.classify(["a", None]), "item 1 is of type NoneType"),
        ("filler", lambda t: t.fill("[MASK]"), "list of texts; received one str"),
        ("filler", lambda t: t.fill(None), "list of texts; received one NoneType"),
        ("filler", lambda t: t.fill(["a", "b"]), r"Text 0 must have one \[MASK\]; received 0 in"),
        ("filler", lambda t: t.fill(["[MASK]", "[MASK] [MASK]"]), "Text 1 .* received 2 in"),
        ("filler", lambda t: t.fill(["[MASK]"], number=0), "number must .* of at least 1"),
        ("filler", lambda t: t.fill(["[MASK]"], number=1.5), "number must .* received number=1.5"),
    ],
)
def test_an_argument_out_of_range_is_named(small_tasks, name, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(small_tasks[name])


def test_a_model_of_other_words_or_labels_is_refused(tagger):
    other = kt.WordVocabulary.learn([["a", "b"]])
    message = "num_words of the model must be 5 for this vocabulary .*; received num_words=1"
    with pytest.raises(ValueError, match=message):
        kt.Tagger(tagger.model, other, tagger.labels)
    config = {**tagger.vocabulary.get_config(), "max_characters": 9}
    message = "max_characters of the model must be 9 .*; received max_characters=16"
    with pytest.raises(ValueError, match=message):
        kt.Tagger(tagger.model, kt.WordVocabulary(**config), tagger.labels)
    message = "num_labels of the model must be 3 .*these labels; received num_labels=4"
    with pytest.raises(ValueError, match=message):
        kt.Tagger(tagger.model, tagger.vocabulary, ["A", "B"])
    with pytest.raises(ValueError, match="batch_size must be an integer of at least 1"):
        kt.Tagger(tagger.model, tagger.vocabulary, tagger.labels, batch_size=0)


def test_a_text_longer_than_the_learned_positions_is_named(tagger):
    ids = tagger.vocabulary.num_words, tagger.vocabulary.num_characters
    model = kt.TaggingModel(*ids, 4, num_layers=1, d_model=8, num_heads=1, d_ff=8, max_length=3)
    limited = kt.Tagger(model, tagger.vocabulary, tagger.labels)
    assert len(limited.tag(["The dog barks"])[0]) == 3
    with pytest.raises(ValueError, match="Text 1 must have at most 3 tokens, .*; received 4"):
        limited.tag(["dog", "The dog barks."])
