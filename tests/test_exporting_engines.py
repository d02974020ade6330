"""Every format, every task: run without Keras, the answers are those of the task itself."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import unicodedata

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import backend, exporting
from keras_transformer.byte_level import ByteLevelTokenizer, BytePairs
from keras_transformer.exporting import FORMATS
from keras_transformer.exporting.graphs import graphs_of

RUN = pathlib.Path(__file__).parents[1] / "scripts" / "run_exported.py"
NEEDS = {
    "saved_model": ["tensorflow_text"],
    "onnx": ["tf2onnx", "onnx", "onnxruntime"],
    "litert": ["ai_edge_litert"],
    "ctranslate2": ["ctranslate2"],
    "keras": [],
}
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
            exporting.export(task, folder, format, quantization)
            folders[key] = folder, task  # which keeps its id
        return folders[key][0]

    return exported


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    """A folder in which Keras and this package cannot be imported."""
    folder = tmp_path_factory.mktemp("hidden")
    for name in ("keras", "keras_transformer"):
        (folder / f"{name}.py").write_text(f"raise ImportError('{name} is hidden')")
    return folder


@pytest.fixture(scope="module")
def run_freshly(exported, hidden, tmp_path_factory):
    """The answers of an exported task in a process without Keras."""

    def run_freshly(task, format, texts, *options, quantization=None):
        folder = exported(task, format, quantization)
        answers = tmp_path_factory.mktemp("answers") / "answers.json"
        if format == "saved_model":  # tensorflow_text imports Keras
            (hidden / "keras.py").rename(hidden / "visible")
        try:
            done = subprocess.run(
                [sys.executable, RUN, folder, "--json", answers, *map(str, options)],
                input="\n".join(texts) + "\n",
                env={**os.environ, "PYTHONPATH": str(hidden), "PYTHONIOENCODING": "utf-8"},
                encoding="utf-8",
                capture_output=True,
            )
        finally:
            if format == "saved_model":
                (hidden / "visible").rename(hidden / "keras.py")
        assert done.returncode == 0, done.stderr
        return json.loads(answers.read_text())["answers"]

    return run_freshly


@pytest.fixture
def run_here(exported, monkeypatch):
    """The same within this process, which is quicker."""
    monkeypatch.syspath_prepend(str(RUN.parent))
    import run_exported

    def run_here(task, format, texts, quantization=None, **options):
        defaults = dict(beams=1, threads=1, max_tokens=20, step=False)
        options = argparse.Namespace(**{**defaults, **options})
        folder = exported(task, format, quantization)
        answer = run_exported.engine_of(folder)(folder, options)
        return json.loads(json.dumps(run_exported.answers_of(answer, texts)))

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


def restless_translator(tokenizer, restless, seed=3, **options):
    """Random weights: long answers, that differ from text to text."""
    model = {
        name: options.pop(name)
        for name in ("norm_first", "rotary", "max_length", "dtype", "activation")
        if name in options
    }
    size = tokenizer.vocabulary_size()
    sizes = dict(num_layers=2, d_model=16, num_heads=2, d_ff=32)
    model = restless(kt.Transformer(size, size, **sizes, **model), seed)
    make_end_likelier(model.target_embedding)
    return kt.Translator(model, tokenizer, **options)


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
]


# Within this process


@pytest.mark.parametrize("format", ["saved_model", "onnx", "litert"])
def test_a_tagger_tags_alike_in_every_engine(small_tasks, run_here, one_thread, format):
    tagger = small_tasks["tagger"]
    answers = run_here(tagger, format, SENTENCES)
    assert_same(answers, tagger.tag(SENTENCES))
    assert len({tag for words in answers for _, tag in words}) > 1


@pytest.mark.parametrize("format", ["saved_model", pytest.param("litert", marks=pytest.mark.slow)])
def test_lower_case_normal_forms_blank_lines_and_limits_are_those_of_the_task(
    german, run_here, one_thread, format
):
    for beams in (1, 3):
        answers = run_here(german, format, GERMAN, beams=beams)
        assert answers == german.translate(GERMAN, beams=beams)
    assert answers[5:8] == [""] * 3 and len(set(answers)) > 4
    lengths = {len(german.target_tokenizer.encode([answer])[0]) for answer in answers}
    assert len(lengths) > 2


def test_a_text_longer_than_the_positions_is_refused_by_a_saved_model(german, exported):
    tf = pytest.importorskip("tensorflow", reason="it writes them", exc_type=ImportError)
    folder = exported(german, "saved_model")
    translate = tf.saved_model.load(str(folder)).signatures["serving_default"]
    assert len(translate(texts=tf.constant(["ein"]))["translations"]) == 1
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 40 tokens"):
        translate(texts=tf.constant(["ein " * 50]))


@pytest.mark.parametrize(
    "format",
    ["saved_model", *(pytest.param(n, marks=pytest.mark.slow) for n in ("litert", "onnx"))],
)
def test_a_generator_continues_beyond_its_window(small_tasks, run_here, one_thread, format):
    generator = small_tasks["generator"]
    answers = run_here(generator, format, PROMPTS, max_tokens=15)
    assert answers == generator.generate(PROMPTS, max_tokens=15, temperature=0)
    assert generator.window == 8 and min(map(len, answers)) > 8


@pytest.fixture(scope="module")
def byte_level(restless):
    """A generator as those of GPT-2 are: their kind of tokenizer, of positions and of GELU."""
    tokenizers = pytest.importorskip("tokenizers", reason="this tokenizer is optional")
    tokens = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    pairs = BytePairs([*tokens, "th", "the", "Ġd"], [("t", "h"), ("th", "e"), ("Ġ", "d")])
    tokenizer = ByteLevelTokenizer.of_pairs(pairs)
    sizes = dict(num_layers=1, d_model=16, num_heads=2, d_ff=32, max_length=60)
    options = dict(norm_first=True, activation="gelu_tanh", logits_bias=True)
    model = restless(kt.LanguageModel(tokenizer.vocabulary_size(), **sizes, **options), 4)
    return kt.TextGenerator(model, tokenizer)


@pytest.mark.parametrize(
    "format",
    ["ctranslate2", *(pytest.param(n, marks=pytest.mark.slow) for n in ("litert", "onnx"))],
)
def test_a_generator_with_byte_level_bpe_continues_alike(byte_level, run_here, format):
    prompts = [*PROMPTS, "</s> 草地\n"]
    answers = run_here(byte_level, format, prompts, max_tokens=12)
    assert answers == byte_level.generate(prompts, max_tokens=12, temperature=0)
    written = {a.removeprefix(p) for a, p in zip(answers, prompts, strict=True)}
    assert len(written) == len(prompts)


def test_a_saved_model_cannot_read_texts_by_byte_level_bpe(byte_level, tmp_path):
    require("saved_model")
    with pytest.raises(ValueError, match="needs the vocabulary of a SentencePieceTokenizer; rec"):
        exporting.export(byte_level, tmp_path / "model", "saved_model")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("append_end", [True, False])
def test_a_generator_stops_at_its_end_if_it_has_one(small_tasks, restless, run_here, append_end):
    tokenizer = small_tasks["generator"].tokenizer
    sizes = dict(num_layers=1, d_model=8, num_heads=2, d_ff=16, max_length=24)
    language = restless(kt.LanguageModel(tokenizer.vocabulary_size(), **sizes))
    make_end_likelier(language.embedding)
    generator = kt.TextGenerator(language, tokenizer, append_end=append_end)
    answers = run_here(generator, "litert", PROMPTS, max_tokens=12)
    assert answers == generator.generate(PROMPTS, max_tokens=12, temperature=0)
    added = {len(answer) - len(prompt) for answer, prompt in zip(answers, PROMPTS, strict=True)}
    assert min(added) < 12 if append_end else added == {12}


@pytest.mark.parametrize("rotary", [False, True])
def test_ctranslate2_continues_a_prompt_alike(small_tasks, restless, run_here, rotary):
    tokenizer = small_tasks["generator"].tokenizer
    sizes = dict(num_layers=2, d_model=16, num_heads=2, d_ff=16, rotary=rotary, norm_first=rotary)
    language = restless(kt.LanguageModel(tokenizer.vocabulary_size(), **sizes))
    generator = kt.TextGenerator(language, tokenizer, append_end=False)
    answers = run_here(generator, "ctranslate2", PROMPTS, max_tokens=10)
    assert answers == generator.generate(PROMPTS, max_tokens=10, temperature=0)
    assert len(set("".join(answers))) > 5


@pytest.mark.parametrize("format", ["saved_model", "litert"])
def test_a_classifier_has_its_label_and_probabilities(small_tasks, run_here, one_thread, format):
    classifier = small_tasks["classifier"]
    answers = run_here(classifier, format, SENTENCES)
    assert_same(answers, classifier.classify(SENTENCES))
    assert len({p for _, p in answers}) > 3


def test_a_bfloat16_model_is_exported_in_float32(small_tasks, randomize, run_here):
    tagger = small_tasks["tagger"]
    config = tagger.model.get_config()
    halves = [
        type(tagger.model).from_config({**config, "dtype": dtype})
        for dtype in ("mixed_bfloat16", "float32")
    ]
    for model in halves:
        randomize(model, 5)
    half, whole = (kt.Tagger(model, tagger.vocabulary, tagger.labels) for model in halves)
    assert_same(run_here(half, "litert", SENTENCES), whole.tag(SENTENCES))


def test_a_graph_names_its_inputs_and_outputs(small_tasks, dates_translator):
    for task in (*small_tasks.values(), dates_translator):
        for name, graph in graphs_of(task).items():
            assert name.isidentifier() and all(key.isidentifier() for key in graph.inputs)


@pytest.mark.slow
def test_a_keras_file_in_8_bits_answers_alike_and_is_not_exported_again(
    small_tasks, exported, tmp_path
):
    tagger = small_tasks["tagger"]
    quantized = kt.load(exported(tagger, "keras", "int8") / "model.keras")
    assert set(quantized.model.get_config()["quantized"].values()) == {"int8"}
    assert not tagger.model.get_config()["quantized"]
    same = [
        one == other
        for one, other in zip(quantized.tag(SENTENCES), tagger.tag(SENTENCES), strict=True)
    ]
    assert sum(same) >= len(SENTENCES) - 1
    with pytest.raises(ValueError, match=r"before it was quantized.* quantized_layers=\d+"):
        exporting.export(quantized, tmp_path / "x", "keras")


@pytest.mark.slow
def test_a_keras_file_in_8_bits_is_smaller(dates_translator, dates, exported):
    path = exported(dates_translator, "keras", "int8") / "model.keras"
    dates_translator.save(path.with_name("whole.keras"))
    assert path.stat().st_size < 0.8 * path.with_name("whole.keras").stat().st_size
    texts = dates.test.source[:50]
    answers, expected = kt.load(path).translate(texts), dates_translator.translate(texts)
    assert sum(one == other for one, other in zip(answers, expected, strict=True)) >= 45


def test_another_backend_is_one_sentence(small_tasks, tmp_path, monkeypatch):
    monkeypatch.setattr(backend, "name", lambda: "torch")
    with pytest.raises(ValueError, match="KERAS_BACKEND=tensorflow, .*; received backend='torch'"):
        exporting.export(small_tasks["tagger"], tmp_path / "x", "onnx")


@pytest.mark.parametrize(
    "format, module", [("saved_model", "tensorflow_text"), ("onnx", "tf2onnx.convert")]
)
def test_a_missing_package_is_one_sentence(small_tasks, tmp_path, monkeypatch, format, module):
    require(format)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match="install it with pip install t"):
        exporting.export(small_tasks["tagger"], tmp_path / "x", format)
    assert not any(tmp_path.iterdir())


def test_an_export_that_fails_leaves_nothing(small_tasks, tmp_path, monkeypatch):
    from keras_transformer.exporting import litert

    def full(task, folder):
        raise OSError(28, "No space left on device")

    require("litert")
    monkeypatch.setattr(litert, "write_vocabularies", full)
    with pytest.raises(OSError, match="No space left on device: .*tagger"):
        exporting.export(small_tasks["tagger"], tmp_path / "tagger", "litert")
    assert not any(tmp_path.iterdir())


def test_a_full_disk_is_an_error_of_the_system_for_tensorflow_too(
    small_tasks, tmp_path, monkeypatch
):
    tf = pytest.importorskip("tensorflow", reason="it writes them", exc_type=ImportError)
    require("saved_model")

    def full(*args, **kwargs):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", full)
    with pytest.raises(OSError, match="No space left on device: .*tagger"):
        exporting.export(small_tasks["tagger"], tmp_path / "tagger", "saved_model")
    assert not any(tmp_path.iterdir())


# In a process without Keras


KINDS = [(name, kind) for name in NEEDS for kind in (None, *FORMATS[name].quantizations)]
KINDS = [(format, kind) for format, kind in KINDS if format != "keras"]


@pytest.mark.slow
@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("format, kind", KINDS)
def test_a_translator_without_keras_answers_alike(
    dates_translator, dates, run_freshly, format, kind, beams
):
    texts = [*dates.test.source, "", "  ", "May ☃ 5, 2020"]
    options = {"length_penalty": 0.0} if format == "ctranslate2" else {}
    expected = dates_translator.translate(texts, beams=beams, **options)
    answers = run_freshly(dates_translator, format, texts, "--beams", beams, quantization=kind)
    differ = sum(one != other for one, other in zip(answers, expected, strict=True))
    if kind is None and format != "ctranslate2":
        assert differ == 0
    # A model trained for seconds has close calls.
    assert differ <= (0.15 if kind and "int8" in kind else 0.05) * len(texts)
    assert answers[-3:-1] == ["", ""]


@pytest.mark.slow
@pytest.mark.parametrize("format, kind", KINDS)
def test_other_tasks_without_keras_answer_alike(small_tasks, run_freshly, format, kind):
    expected = {
        "tagger": (SENTENCES, small_tasks["tagger"].tag(SENTENCES)),
        "classifier": (SENTENCES, small_tasks["classifier"].classify(SENTENCES)),
        "filler": (MASKED, small_tasks["filler"].fill(MASKED)),
        "generator": (PROMPTS, small_tasks["generator"].generate(PROMPTS, 15, temperature=0)),
    }
    for name, (texts, answers) in expected.items():
        if format == "ctranslate2":
            if name != "generator":
                with pytest.raises(ValueError, match="can hold a Translator or TextGenerator"):
                    run_freshly(small_tasks[name], format, texts)
                continue
            answers = small_tasks[name].generate(texts, 3, temperature=0)
            texts, answers = texts[1:3], answers[1:3]  # as long as its window
        number = 3 if format == "ctranslate2" else 15
        options = ("--max-tokens", number)
        given = run_freshly(small_tasks[name], format, texts, *options, quantization=kind)
        if kind is None:
            assert_same(given, answers)
        else:
            assert len(given) == len(answers)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["saved_model", "onnx", "litert"])
@pytest.mark.parametrize("rotary", [False, True])
def test_every_option_of_a_translator_is_exported(german, restless, run_freshly, format, rotary):
    options = dict(rotary=True, activation="gelu") if rotary else dict(max_length=30)
    translator = restless_translator(german.source_tokenizer, restless, 16, **options)
    for beams in (1, 4):
        answers = run_freshly(translator, format, GERMAN, "--beams", beams)
        assert answers == translator.translate(GERMAN, beams=beams)
        assert len(set("".join(answers))) > 5


@pytest.mark.slow
def test_a_loop_outside_the_graph_answers_alike(dates_translator, dates, run_freshly):
    texts = [*dates.test.source[:50], "", " "]
    answers = run_freshly(dates_translator, "onnx", texts, "--step")
    assert answers == dates_translator.translate(texts)


@pytest.mark.slow
def test_the_matrix_of_formats_is_one_command(small_tasks, tmp_path):
    require("litert")
    small_tasks["tagger"].save(tmp_path / "model.keras")
    (tmp_path / "texts").write_text("The dog barks.\n\nIt's a small cat!\n")
    command = [sys.executable, RUN.parent / "benchmark.py", "export", tmp_path / "model.keras"]
    command += ["--texts", tmp_path / "texts", "--formats", "litert", "ctranslate2"]
    root = str(RUN.parents[1])
    done = subprocess.run(
        [*command, "--json", tmp_path / "rows.json"],
        env={**os.environ, "PYTHONPATH": root},
        encoding="utf-8",
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [(row["format"], row["kind"], row.get("equal")) for row in rows] == [
        ("ours", "float32", 3),
        ("litert", "float32", 3),
        ("litert", "float16", 3),
        ("litert", "int8", 3),
        ("ctranslate2", "float32", None),
    ]
    assert "can hold a Translator or TextGenerator" in rows[-1]["reason"]
    assert done.stdout.count("| Tagger") == len(rows)
