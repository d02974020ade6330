"""Shared by the tests: a seed, random weights, attention weights, gradients, small tasks."""

import contextlib
import functools
import gc
import gzip
import importlib
import io
import os
import pathlib
import subprocess
import sys

with contextlib.suppress(ImportError):
    import torch  # (before TensorFlow: one process cannot load them the other way round)

import keras
import numpy as np
import pytest
from keras import ops
from keras.src.saving import serialization_lib

import keras_transformer as kt
from keras_transformer import backend, data
from keras_transformer.data import batches

full_xla = os.environ.get("KERAS_TRANSFORMER_FULL_XLA") == "1"
if backend.name() == "tensorflow" and not full_xla:
    import tensorflow as tf

    plain_function, last = tf.function, [(), None]

    def function(*args, jit_compile=None, **options):
        if jit_compile and args and args == last[0]:
            return last[1]  # `backend.jit` has just made it without XLA: the same here
        last[:] = args, plain_function(*args, **options)
        return last[1]

    tf.function = function
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


of_batches = batches.BucketedBatches.__init__.__kwdefaults__
num_buckets = of_batches["num_buckets"]
if backend.name() == "jax" and not full_xla:  # where each shape is compiled for seconds
    of_batches["num_buckets"] = 2

backend.leave_pipelines_untuned()  # each epoch of each test would wait

gc.freeze()  # the libraries' own objects: each collection would look through all of them


def process_wide():
    """Values that a test shares with all later ones of its process, by name."""
    state = os.environ._data.copy()  # os.environ.copy() decodes each variable: most of the time
    state.pop(b"PYTEST_CURRENT_TEST", None)
    state.pop(b"TORCHINDUCTOR_CACHE_DIR", None)  # of PyTorch, once transformers has imported it
    state["working directory"] = os.getcwd()
    state["errors of NumPy"] = np.geterr()
    state["floatx"] = keras.config.floatx()
    state["dtype policy"] = keras.config.dtype_policy().name
    state["distribution"] = keras.distribution.distribution()
    state["safe mode"] = serialization_lib.in_safe_mode()
    if backend.name() == "torch":
        state["gradients"] = torch.is_grad_enabled()
        state["dtype of PyTorch"] = torch.get_default_dtype()
    return state


@pytest.fixture(autouse=True)
def seed():
    """The same random numbers in each test, which leaves the process as it found it."""
    keras.utils.set_random_seed(0)
    before = process_wide()
    yield
    after = process_wide()
    names = {*before, *after} if before != after else ()
    changed = {n: (before.get(n), after.get(n)) for n in names if before.get(n) != after.get(n)}
    assert not changed, f"A test must leave the process as it found it; it changed {changed}."


@pytest.fixture
def uncollected(monkeypatch):
    """Keras searches for garbage once per layer that it quantizes, each time in all modules."""
    monkeypatch.setattr(gc, "collect", lambda *_: 0)


@pytest.fixture
def usual_number_of_shapes(monkeypatch):
    """That of users, for tests of the batches themselves."""
    monkeypatch.setitem(of_batches, "num_buckets", num_buckets)


@pytest.fixture(scope="session")
def normal():
    """Standard normal float32 of a shape; a different seed gives different numbers."""

    def normal(*shape, seed=0):
        return np.random.default_rng(seed).normal(size=shape).astype("float32")

    return normal


@pytest.fixture(scope="session")
def numpy():
    """Every tensor of a structure as a NumPy array; float32 stands for every float."""

    def array(x):
        is_float = keras.backend.is_float_dtype(keras.backend.standardize_dtype(x.dtype))
        return ops.convert_to_numpy(ops.cast(x, "float32") if is_float else x)

    return lambda structure: keras.tree.map_structure(array, structure)


@pytest.fixture(scope="session")
def same_dropout():
    """Sets the random state of layers, so that two calls drop the same."""

    def same_dropout(*layers):
        keras.utils.set_random_seed(0)  # PyTorch draws from its own generator,
        for layer in layers:  # the others from a state that the layer holds
            for variable in layer.variables:
                if variable.name == "seed_generator_state":
                    variable.assign(np.array([7, 0], "uint32"))

    return same_dropout


@pytest.fixture(scope="session")
def randomize():
    """Gives every weight random values, biases and norms too: zeros and ones hide mistakes."""

    def randomize(layer, seed=0):
        rng = np.random.default_rng(seed)
        for weight in layer.weights:
            values = rng.normal(size=weight.shape)
            if weight.name == "kernel":
                values = values / np.sqrt(weight.shape[0])
            if weight.name in ("gamma", "beta", "bias"):
                values = values / 4 + (weight.name == "gamma")
            weight.assign(values.astype("float32"))
        return layer

    return randomize


@pytest.fixture(scope="session")
def recorded():
    """Calls a layer by `attention_scores`: its output in that very call, and the weights."""

    def recorded(layer, *args, **kwargs):
        plain_call, outputs = layer.call, []

        @functools.wraps(plain_call)
        def call(*args, **kwargs):
            outputs.append(plain_call(*args, **kwargs))
            return outputs[-1]

        layer.call = call
        try:
            scores = kt.attention_scores(layer, *args, **kwargs)
        finally:
            del layer.call
        return outputs[-1], scores

    return recorded


@pytest.fixture(scope="session")
def weights_of():
    """The weights of a built layer or model in the structure that tests/oracle.py documents."""

    def array(variable):
        return ops.convert_to_numpy(variable).astype("float64")

    def dense(layer):
        return {"kernel": array(layer.kernel), "bias": array(layer.bias)}

    def norm(layer):
        return {"gamma": array(layer.gamma), "beta": array(layer.beta)}

    def attention(layer):
        return {
            "query": dense(layer.query),
            "key": dense(layer.key),
            "value": dense(layer.value),
            "output": dense(layer.output_projection),
        }

    def feed_forward(layer):
        return {"inner": dense(layer.inner), "outer": dense(layer.outer)}

    def block(layer):
        weights = {
            "self_attention": attention(layer.self_attention),
            "self_attention_norm": norm(layer.self_attention_add_norm.norm),
            "feed_forward": feed_forward(layer.feed_forward),
            "feed_forward_norm": norm(layer.feed_forward_add_norm.norm),
        }
        if hasattr(layer, "cross_attention"):
            weights["cross_attention"] = attention(layer.cross_attention)
            weights["cross_attention_norm"] = norm(layer.cross_attention_add_norm.norm)
        return weights

    def stack(layer):
        weights = {"blocks": [block(b) for b in layer.blocks]}
        return {**weights, "norm": norm(layer.norm)} if layer.norm_first else weights

    def logits_bias(model):
        return {"logits_bias": array(model.logits_bias.bias)} if model.logits_bias else {}

    def transformer(model):
        return {
            "source_embedding": array(model.source_embedding.embeddings),
            "target_embedding": array(model.target_embedding.embeddings),
            "encoder": stack(model.encoder),
            "decoder": stack(model.decoder),
            **logits_bias(model),
        }

    def language_model(model):
        embedding = array(model.embedding.embeddings)
        return {
            "embedding": embedding,
            "decoder": stack(model.decoder),
            **logits_bias(model),
        }

    def word_model(model):
        return {
            "words": array(model.embedding.words.embeddings),
            "characters": array(model.embedding.characters.embeddings),
            "spelling": dense(model.embedding.spelling),
            "encoder": stack(model.encoder),
            "labels": dense(model.get_layer("labels")),
        }

    of_type = {
        "MultiHeadAttention": attention,
        "FeedForward": feed_forward,
        "EncoderBlock": block,
        "DecoderBlock": block,
        "Encoder": stack,
        "Decoder": stack,
        "Transformer": transformer,
        "LanguageModel": language_model,
        "TaggingModel": word_model,
        "ClassificationModel": word_model,
    }
    return lambda layer: of_type[type(layer).__name__](layer)


class Differentiable(keras.Model):
    """A scalar function of trainable arrays: one step of SGD at rate 1 subtracts its gradient."""

    def __init__(self, function, arrays, layers):
        super().__init__()
        self.function, self.of = function, layers
        self.arrays = [
            self.add_weight(
                shape=a.shape, initializer=lambda shape, dtype=None, a=a: a, name=f"a{i}"
            )
            for i, a in enumerate(arrays)
        ]

    def call(self, inputs):
        return self.function(*(ops.convert_to_tensor(a) for a in self.arrays))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return y_pred


@pytest.fixture(scope="session")
def gradients():
    """d function / d each array, and then each trainable weight of `layers`, in training.

    `keras.ops` has no gradient; a training step of SGD is one on every backend.
    """

    def gradients(function, *arrays, layers=()):
        model = Differentiable(function, [ops.convert_to_tensor(a) for a in arrays], list(layers))
        model.compile(keras.optimizers.SGD(1.0), loss="mse", run_eagerly=True)
        before = [ops.convert_to_numpy(v) for v in model.trainable_variables]
        before = [b.copy() for b in before]
        model.train_on_batch(np.zeros((1, 1)), np.zeros((1, 1)))
        differences = []
        for variable, value in zip(model.trainable_variables, before, strict=True):
            differences.append(value - ops.convert_to_numpy(variable))
            variable.assign(value)
        return differences

    return gradients


@pytest.fixture(scope="session")
def restless(randomize):
    """Gives a language model random weights with which it does not repeat its last token for ever.

    Its embedding is also its output projection: with a last norm of one sign, the likeliest next
    token would be the last one.
    """

    def restless(model, seed=3):
        stack = randomize(model, seed).decoder
        norm = stack.norm if stack.norm_first else stack.blocks[-1].feed_forward_add_norm.norm
        width = norm.gamma.shape[0]
        norm.gamma.assign(2 * np.random.default_rng(seed + 1).normal(size=width).astype("float32"))
        return model

    return restless


@pytest.fixture(scope="session")
def small_tasks(randomize, restless):
    """A task of each kind but `Translator`, with random weights, so that answers differ."""
    texts = ["The dog barks.", "a cat sees the dog", "It's a small cat!", "the dog sees a cat"]
    tokenizer = kt.train_tokenizer(texts, model_type="char")
    vocabulary = kt.WordVocabulary.learn([kt.split_words(text) for text in texts])
    sizes = dict(num_layers=1, d_model=8, num_heads=2, d_ff=16)
    language = restless(kt.LanguageModel(tokenizer.vocabulary_size(), **sizes, rotary=True))
    ids = vocabulary.num_words, vocabulary.num_characters
    tagging, filling = (randomize(kt.TaggingModel(*ids, n, **sizes)) for n in (4, ids[0]))
    classifying = randomize(kt.ClassificationModel(*ids, 3, **sizes))
    return {
        "generator": kt.TextGenerator(language, tokenizer, window=8, append_end=False),
        "tagger": kt.Tagger(tagging, vocabulary, ["NOUN", "VERB", "OTHER"], batch_size=4),
        "classifier": kt.Classifier(classifying, vocabulary, ["yes", "no"], batch_size=4),
        "filler": kt.MaskFiller(filling, vocabulary, batch_size=4),
    }


@pytest.fixture(scope="session")
def dates():
    return data.dates(num_train=2_000, num_valid=10, num_test=200, seed=1)


@pytest.fixture(scope="session")
def dates_translator():
    """The model that comes with the package."""
    return kt.load("dates")


@pytest.fixture
def run_main(monkeypatch, capsys):
    """Calls the `main` of a program with a standard input: what a process of its own would give."""

    def run_main(main, command, stdin=b""):
        monkeypatch.setattr(
            sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin)), "utf-8")
        )
        capsys.readouterr()
        code = None
        try:
            main()
        except SystemExit as end:
            code = end.code
        stdout, stderr = capsys.readouterr()
        if isinstance(code, str):
            code, stderr = 1, stderr + code
        return subprocess.CompletedProcess(command, code or 0, stdout, stderr)

    return run_main


def restore_determinism(patch):
    """Takes back the variables that a script with --deterministic sets in this process."""
    for name, value in (("XLA_FLAGS", ""), ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")):
        patch.setenv(name, os.environ.get(name, value))


@pytest.fixture
def inside(monkeypatch, run_main):
    """Runs the command line of a script in this process: starting another would take seconds."""
    monkeypatch.syspath_prepend(str(pathlib.Path(__file__).parents[1] / "scripts"))
    monkeypatch.setattr(backend, "set_num_threads", lambda number: None)  # too late for that
    monkeypatch.setattr(backend, "speed_up_training", lambda: None)  # for the whole process
    restore_determinism(monkeypatch)

    def call(command, stdin=b""):
        _, script, *arguments = (str(part) for part in command)
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        name = pathlib.Path(script).stem
        return run_main(lambda: importlib.import_module(name).main(), command, stdin)

    return call


@pytest.fixture
def write(tmp_path):
    """A function that writes str or bytes into a file and returns its path."""

    def write(name, content, compress=False):
        content = content if isinstance(content, bytes) else content.encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(content) if compress else content)
        return path

    return write
