import time

import pytest
from fastapi.testclient import TestClient

from keras_transformer.serving.app import make_app


def wait_until_ready(client):
    while client.get("/ready").status_code != 200:
        time.sleep(0.02)
    return client


@pytest.fixture(scope="module")
def client(dates_translator, small_tasks):
    with TestClient(make_app({"dates": dates_translator, **small_tasks})) as client:
        yield wait_until_ready(client)


def test_answers_are_those_of_the_task(client, dates, dates_translator):
    texts = [pair[0] for pair in dates.test[:20]]
    answer = client.post("/api/translate", json={"texts": texts})
    assert answer.json() == {"model": "dates", "answers": dates_translator.translate(texts)}


def test_models_are_listed_with_their_sizes(client):
    models = {model["name"]: model for model in client.get("/api/models").json()}
    assert models["dates"]["task"] == "Translator" and models["dates"]["heads"] == 4
    assert models["tagger"]["labels"] == ["NOUN", "VERB", "OTHER"]
