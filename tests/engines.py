"""Tasks in the formats of other engines, and what runs them; fixtures of two test files."""

import argparse
import json
import pathlib
import unicodedata

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import backend, interchange
from keras_transformer.interchange import FORMATS
from keras_transformer.models.configuration import DEPTHS

RUN = pathlib.Path(__file__).parents[1] / "scripts" / "run_exported.py"
NEEDS = {
    "saved_model": ["tensorflow_text"],
    "onnx": ["tf2onnx", "onnx", "onnxruntime"],
    "litert": ["ai_edge_litert"],
    "ctranslate2": ["ctranslate2"],
    "keras": [],
    "marian": ["transformers", "torch"],
    "web": ["tf2onnx", "onnx"],
}
ENGINES = ["saved_model", "onnx", "litert", "ctranslate2"]
NO_PENALTY = ("ctranslate2", "marian")  # their length penalty is another one
PROMPTS = ["the dog", "", "a", "It's a small cat! the dog", "☃ cat"]
SENTENCES = [
    "The dog barks.",
    "",
    "  ",
    "It's 3.5 a_b cats’ “dog”!?",
    "\tANTIDISESTABLISHMENTARIANISM z",
]
MASKED = ["The [MASK] barks.", "a [MASK]", "([MASK]) the dog sees a cat."]


def require(format):
    """Skips what this environment cannot write or run."""
    if FORMATS[format].backend not in (None, backend.name()):
        pytest.skip(f"TensorFlow writes {format}; the run of the tests on TensorFlow covers it")
    for module in NEEDS[format]:
        pytest.importorskip(module, reason="engines are optional", exc_type=ImportError)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The folder of a task in a format, written once."""
    folders = {}

    def exported(task, format, quantization=None):
        require(format)
        key = id(task), format, quantization
        if key not in folders:
            folder = tmp_path_factory.mktemp("exported") / format
            interchange.export(task, folder, format, quantization)
            folders[key] = folder, task  # which keeps its id
        return folders[key][0]

    return exported


@pytest.fixture
def run_here(exported, monkeypatch):
    """The same within this process, which is quicker."""
    monkeypatch.syspath_prepend(str(RUN.parent))
    import run_exported

    def run_here(task, format, texts, quantization=None, **options):
        defaults = dict(beams=1, threads=1, max_tokens=20, step=False)
        defaults |= dict(sentences="auto", placeholders=None)
        options = argparse.Namespace(**{**defaults, **options})
        folder = exported(task, format, quantization)
        answer = run_exported.engine_of(folder)(folder, options)(texts)
        return json.loads(json.dumps(answer))

    return run_here


@pytest.fixture
def one_thread(monkeypatch):
    """TensorFlow refuses another number of threads once it runs."""
    if backend.name() == "tensorflow":
        import tensorflow as tf

        for kind in ("inter", "intra"):
            name = f"set_{kind}_op_parallelism_threads"
            monkeypatch.setattr(tf.config.threading, name, lambda number: None)


def assert_same(given, expected):
    """Equal strings; equal probabilities up to the order of float32 sums."""
    assert len(given) == len(expected)
    for one, other in zip(given, json.loads(json.dumps(expected)), strict=True):
        if isinstance(one, list):
            assert_same(one, other)
        elif isinstance(one, float):
            assert one == pytest.approx(other, abs=1e-4)
        else:
            assert one == other


def assert_few_differ(translator, format, quantization, texts, answers, beams):
    """The same translations, but for close calls.

    A search without penalty has some, where a model was trained for seconds, and so have few bits.
    """
    options = {"length_penalty": 0.0} if format in NO_PENALTY else {}
    expected = translator.translate(texts, beams=beams, **options)
    differ = sum(one != other for one, other in zip(answers, expected, strict=True))
    if quantization is None and format not in NO_PENALTY:
        assert differ == 0
    assert differ <= 0.05 * len(texts)
    assert answers[-3:-1] == ["", ""]


def other_tasks(small_tasks, format):
    """Tasks other than translation: each with texts, the answers, and the number of new tokens."""
    ask = {
        "tagger": lambda task, texts: task.tag(texts),
        "classifier": lambda task, texts: task.classify(texts),
        "filler": lambda task, texts: task.fill(texts),
    }
    texts = {"tagger": SENTENCES, "classifier": SENTENCES, "filler": MASKED}
    if format != "ctranslate2":
        for name in ask:
            yield small_tasks[name], texts[name], ask[name](small_tasks[name], texts[name]), 1
    generator, number, prompts = small_tasks["generator"], 15, PROMPTS
    if format == "ctranslate2":
        number, prompts = 3, PROMPTS[1:3]  # as long as its window
    yield generator, prompts, generator.generate(prompts, number, temperature=0), number


def restless_translator(tokenizer, restless, seed=3, source_tokenizer=None, **options):
    """Random weights: long answers, that differ from text to text."""
    model = {
        name: options.pop(name)
        for name in ("norm_first", "rotary", "max_length", "dtype", "activation", *DEPTHS)
        if name in options
    }
    tokenizers = source_tokenizer or tokenizer, tokenizer
    vocabularies = [each.vocabulary_size() for each in tokenizers]
    sizes = dict(num_layers=2, d_model=16, num_heads=2, d_ff=32)
    model = restless(kt.Transformer(*vocabularies, **sizes, **model), seed)
    make_end_likelier(model.target_embedding)
    return kt.Translator(model, *tokenizers, **options)


def make_end_likelier(embedding, factor=3):
    """Answers of several lengths, that only the shortest length keeps from ending at once."""
    values = np.array(keras.ops.convert_to_numpy(embedding.embeddings))
    values[kt.END] *= factor
    embedding.embeddings.assign(values)


@pytest.fixture(scope="module")
def german(restless):
    """Lower case, compatibility forms, limits of length and three beams."""
    texts = ["ein Hund bellt", "Ärger über die Straße", "eine Katze sieht den Hund ﬁx"]
    tokenizer = kt.train_tokenizer(
        [unicodedata.normalize("NFKC", text.lower()) for text in texts], 60
    )
    options = dict(normalization="NFKC", lowercase=True, beams=3, length_penalty=1.2)
    options |= dict(min_length_ratio=0.5, max_length_ratio=1.3)
    return restless_translator(tokenizer, restless, **options, norm_first=True, max_length=40)


GERMAN = [
    "Ein Hund bellt",
    "EIN HUND",
    "a\u0308rger U\u0308BER",  # decomposed
    "ﬁx ein Ｈｕｎｄ",  # a ligature, full-width letters
    "ΣΑΣ İ ẞ ein",  # letters whose lower case depends on others
    "",
    " \t ",
    "\u3000\u2003\x1c\x85",
    "ein ☃ Hund",
    " die  Katze ",
    "ein™ Hund ℕ",  # compatibility forms with capitals
]
