"""A program: trains the same small model in several ways, one after the other, and prints JSON.

    python tests/trainings.py FOLDER '[{"name": "two", "devices": 2, "stop": 30}, ...]'

A way ends after "stop" updates: with an error, or with the death of the process "kill", whose
survivors leave logs.json. With "resume" it continues.
"""

import json
import os
import pathlib
import signal
import sys

import keras
import numpy as np

import keras_transformer as kt
from keras_transformer import training
from keras_transformer.backend import distribution

BATCHES = {"batch_size": 8, "num_buckets": 2, "rows_multiple": 2}
TEXTS = ["abc", "d", "efghij", "kl"]
LOGS = ("loss", "perplexity", "token_accuracy")
COMPARED = (*LOGS, *(f"val_{name}" for name in LOGS))


class Stop(keras.callbacks.Callback):
    """Remembers what each update logs, and ends the training after one of them."""

    def __init__(self, after, kill, folder):
        super().__init__()
        self.after, self.kill, self.folder, self.logs = after, kill, folder, []

    def on_train_batch_end(self, batch, logs=None):
        self.logs.append({name: float(logs[name]) for name in LOGS})
        if len(self.logs) == self.after:
            if self.kill is None:
                raise ArithmeticError("the power fails")
            if self.kill == distribution._process.index:
                os.kill(os.getpid(), signal.SIGKILL)
            pathlib.Path(self.folder, "logs.json").write_text(json.dumps(self.logs), "utf-8")


def examples(number, seed):
    generator = np.random.default_rng(seed)
    return [generator.integers(4, 30, generator.integers(1, 9)).tolist() for _ in range(number)]


def train(folder, name, devices, model_parallel=1, stop=None, kill=None, resume=False, **optimizer):
    distribution.use_devices(devices, model_parallel)
    keras.utils.set_random_seed(0)
    batches, valid = (
        kt.TranslationBatches(ids, ids, shuffle=shuffle, **BATCHES)
        for ids, shuffle in ((examples(420, 0), True), (examples(45, 1), False))
    )
    sizes = dict(num_layers=1, d_model=16, num_heads=2, d_ff=16)
    model = kt.Transformer(30, dropout=0.0, **sizes)
    model.compile(
        kt.paper_optimizer(0.01, **optimizer),
        kt.TokenCrossEntropy(0.1),
        metrics=[kt.Perplexity(), kt.TokenAccuracy()],
    )
    tokenizer = kt.train_tokenizer(["abcdefghijklmnopqrstuvwxyz"], model_type="char")
    translator = kt.Translator(model, tokenizer)
    run = training.Run(f"{folder}/{name}", resume=resume)
    run.begin({}, ["data"])
    of_run = run.callbacks(batches, checkpoint_every=20, patience=5)
    remembered, history = Stop(stop, kill, folder), {}
    try:
        for span in run.restore(model, 1):
            fitted = model.fit(
                distribution.own_rows(batches),
                validation_data=distribution.own_rows(valid),
                **span,
                shuffle=False,
                verbose=0,
                callbacks=[remembered, *of_run],
            )
            history |= {name: values[-1] for name, values in fitted.history.items()}
    except ArithmeticError:
        return {"logs": remembered.logs}
    run.finish(model)
    run.save(translator)
    result = {"logs": remembered.logs, "parts": parts(model), "num_batches": len(batches)}
    result["history"] = {name: value for name, value in history.items() if name in COMPARED}
    distribution.leave(model)
    result["evaluated"] = model.evaluate(valid, verbose=0, return_dict=True)
    result["texts"] = [translator.translate(TEXTS), translator.translate(TEXTS, beams=2)]
    return result


def parts(model):
    """On JAX: over how many devices any weight lies, and into how many parts it is split."""
    if keras.backend.backend() != "jax":
        return None
    values = [variable.value for variable in model.trainable_variables]
    sizes = [value.size // value.addressable_shards[0].data.size for value in values]
    return [max(len(value.sharding.device_set) for value in values), max(sizes)]


def main(folder, ways):
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        (cpu,) = tf.config.list_physical_devices("CPU")
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, two)
    try:
        results = [train(folder, **way) for way in json.loads(ways)]
    except (RuntimeError, ValueError) as error:
        distribution.end(distribution.lost_process(error) or f"another error: {error}")
    if distribution.is_first_process():
        print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
