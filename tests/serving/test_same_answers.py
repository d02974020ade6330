"""A server answers 1,000 texts per task as the task itself does, whatever batches they shared."""

import concurrent.futures
import random
import re
import threading

import numpy as np
import pytest
from keras import ops
from servers import client_of, wait_until

import keras_transformer as kt
from keras_transformer import data, interchange
from keras_transformer.data.lengths import pad
from keras_transformer.serving.batching import METHODS
from keras_transformer.tasks.word_tasks import label_probabilities

NUMBER, CLIENTS, MOST_TEXTS, MAX_BATCH = 1000, 32, 4, 16
# The rows and the padding of a batch change the order of float32 sums, and so the last digits.
CLOSE = 1e-4
MOST_TIES = 2  # of 1,000 sampled texts: two tokens, of some 10,000, that such digits decide between

pytestmark = pytest.mark.slow


@pytest.fixture
def served(monkeypatch):
    """The answers of a server to texts, and the number of each text in its request.

    Many clients ask at the same time for one to four texts each, in a random order. The first
    batch waits until a whole one has gathered behind it.
    """

    def served(task, texts, **options):
        chance, order = random.Random(0), list(range(len(texts)))
        chance.shuffle(order)
        requests = []
        while order:
            size = chance.randint(1, MOST_TEXTS)
            requests.append(order[:size])
            del order[:size]
        method = METHODS[type(task).__name__]
        plain, go, sizes = getattr(type(task), method), threading.Event(), []
        go.set()  # until programs are compiled

        def held(self, batch, **more):
            go.wait()
            sizes.append(len(batch))
            return plain(self, batch, **more)

        monkeypatch.setattr(type(task), method, held)
        with (
            client_of({"model": task}, max_batch=MAX_BATCH) as client,
            concurrent.futures.ThreadPoolExecutor(CLIENTS) as threads,
        ):
            go.clear()
            sizes.clear()

            def ask(numbers):
                question = {"texts": [texts[n] for n in numbers], **options}
                response = client.post(f"/api/{method}", json=question)
                assert response.status_code == 200, response.text
                return response.json()["answers"]

            def waiting():
                page = client.get("/metrics").text
                return float(re.search(r"waiting_texts\S+ (\S+)", page)[1])

            answers = threads.map(ask, requests)
            wait_until(lambda: waiting() >= MAX_BATCH)
            go.set()
            found = dict.fromkeys(range(len(texts)))
            for numbers, several in zip(requests, answers, strict=True):
                found |= dict(zip(numbers, several, strict=True))
        monkeypatch.undo()
        assert max(sizes) == MAX_BATCH and sum(sizes) == len(texts)
        places = {n: place for numbers in requests for place, n in enumerate(numbers)}
        return list(found.values()), [places[n] for n in range(len(texts))]

    return served


@pytest.fixture(scope="module")
def sentences():
    """Sentences of 1 to 30 words, many of them unknown."""
    chance = random.Random(1)
    words = "The dog barks a cat sees the It's small cats 3.5 ☃ and chases zebras .".split()
    return [
        " ".join(chance.choices(words, k=chance.choice([1, 2, 5, 12, 30]))) for _ in range(NUMBER)
    ]


def test_translations(served, dates_translator):
    texts = data.dates(num_train=1, num_valid=1, num_test=NUMBER - 2, seed=2).test.source
    texts = [*texts, "", " "]
    found, _ = served(dates_translator, texts)
    assert found == dates_translator.translate(texts)


def test_translations_by_ctranslate2(served):
    pytest.importorskip("ctranslate2")
    translator = kt.load("dates")
    texts = data.dates(num_train=1, num_valid=1, num_test=NUMBER, seed=4).test.source
    expected = translator.translate(texts)
    assert interchange.set_engine(translator, "ctranslate2") == "ctranslate2"
    found, _ = served(translator, texts)
    assert found == expected


def test_translations_by_beam_search(served, dates_translator):
    texts = data.dates(num_train=1, num_valid=1, num_test=200, seed=3).test.source
    found, _ = served(dates_translator, texts, beams=4, scores=True)
    expected = dates_translator.translate(texts, beams=4, return_scores=True)
    assert [each["text"] for each in found] == [each.text for each in expected]
    scores = [each.score for each in expected]
    np.testing.assert_allclose([each["score"] for each in found], scores, atol=CLOSE)


def test_tags(served, small_tasks, sentences):
    tagger = small_tasks["tagger"]
    found, _ = served(tagger, sentences)
    expected = tagger.tag(sentences)
    words, characters = tagger.vocabulary.encode([tagger.vocabulary.split(s) for s in sentences])
    inputs = {"word_ids": pad(words, NUMBER), "character_ids": pad(characters, NUMBER)}
    probabilities = ops.convert_to_numpy(label_probabilities(tagger.model, inputs))
    for tagged, pairs, rows in zip(found, expected, probabilities, strict=True):
        assert [each["word"] for each in tagged] == [word for word, _ in pairs]
        for each, (_, label), p in zip(tagged, pairs, rows, strict=False):
            this, other = (p[tagger.labels.index(name)] for name in (each["label"], label))
            assert this == pytest.approx(other, abs=CLOSE)


def test_classes(served, small_tasks, sentences):
    classifier = small_tasks["classifier"]
    found, _ = served(classifier, sentences)
    for each, p in zip(found, classifier.probabilities(sentences), strict=True):
        assert each["probability"] == pytest.approx(p.max(), abs=CLOSE)
        assert p[classifier.labels.index(each["label"])] == pytest.approx(p.max(), abs=CLOSE)


def test_masked_words(served, small_tasks, sentences):
    filler, chance = small_tasks["filler"], random.Random(2)
    texts = []
    for sentence in sentences:
        words = sentence.split()
        words.insert(chance.randrange(len(words) + 1), "[MASK]")
        texts.append(" ".join(words))
    found, _ = served(filler, texts, number=3)
    for predicted, of_words in zip(found, filler.fill(texts, number=1000), strict=True):
        p = {each.label: each.probability for each in of_words}
        best = [each.probability for each in of_words[:3]]
        assert [each["probability"] for each in predicted] == pytest.approx(best, abs=CLOSE)
        assert [p[each["word"]] for each in predicted] == pytest.approx(best, abs=CLOSE)


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_continuations(served, small_tasks, sentences, temperature):
    generator = small_tasks["generator"]
    options = dict(max_tokens=12, temperature=temperature, seed=5)
    found, places = served(generator, sentences, **options)
    expected = generator.generate(sentences, first=places, **options)
    assert len(set(expected)) > 0.5 * NUMBER
    differ = [(one, other) for one, other in zip(found, expected, strict=True) if one != other]
    assert len(differ) <= MOST_TIES, differ[:5]
