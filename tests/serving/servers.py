"""Applications to test, and a task whose answers wait until a test lets them go."""

import contextlib
import threading
import time

from fastapi.testclient import TestClient

from keras_transformer.serving.app import make_app
from keras_transformer.serving.configuration import Limits


@contextlib.contextmanager
def as_before(tasks):
    """Tasks of the whole session expect as many texts as before a server had them."""
    before = [(task, task._expects_many) for task in tasks if hasattr(task, "_expects_many")]
    try:
        yield
    finally:
        for task, many in before:
            task._expects_many = many


@contextlib.contextmanager
def client_of(models, api_key=None, origins=(), **limits):
    """A client of an application that is ready; it compiles programs when they are needed."""
    limits = Limits(**{"max_compiled": 1, "max_batch": 4, **limits})
    with as_before(models.values()):
        app = make_app(models, limits, api_key, origins)
        with TestClient(app) as client:
            wait_until(lambda: client.get("/ready").status_code == 200)
            yield client


def wait_until(holds):
    """Returns once a condition holds; what never does fails after ten minutes."""
    end = time.monotonic() + 600
    while not holds():
        assert time.monotonic() < end, "It does not hold after ten minutes."
        time.sleep(0.005)


class Classifier:
    """Answers each text with itself, once `go` is set; `seen` has its batches."""

    longest_input = 100
    expects_many = False

    def __init__(self):
        self.go, self.seen = threading.Event(), []
        self.go.set()

    def expect_many(self):
        self.expects_many = True

    def num_tokens(self, texts):
        return [len(text.split()) for text in texts]

    def classify(self, texts):
        self.seen.append(list(texts))
        self.go.wait()
        if "fail" in texts:
            raise RuntimeError(f"a bug that quotes {texts}")
        return [Answer(text) for text in texts]


class Answer(str):
    def _asdict(self):
        return {"label": str(self)}
