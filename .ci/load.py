"""Load on a server, by locust (`pip install locust`): each user translates one date after another.

  locust -f .ci/load.py --headless --host http://localhost:8000 --users 16

LOAD_TEXTS names a file whose lines are translated instead; LOAD_MODEL the model; LOAD_PER_REQUEST
is the number of texts that a request has (default: 1).
"""

import itertools
import os
import pathlib
import random

from locust import FastHttpUser, constant, task

from keras_transformer.data import dates

if "LOAD_TEXTS" in os.environ:
    TEXTS = pathlib.Path(os.environ["LOAD_TEXTS"]).read_text("utf-8").splitlines()
else:
    TEXTS = dates(num_train=2_000, num_valid=1, num_test=1, seed=0).train.source
PER_REQUEST = int(os.environ.get("LOAD_PER_REQUEST", 1))
USERS = itertools.count()


class Reader(FastHttpUser):
    """Sends one request at a time, and the next one when it is answered."""

    wait_time = constant(0)

    def on_start(self):
        self.random = random.Random(next(USERS))

    @task
    def translate(self):
        texts = self.random.choices(TEXTS, k=PER_REQUEST)
        question = {"model": os.environ.get("LOAD_MODEL"), "texts": texts}
        self.client.post("/api/translate", json=question)
