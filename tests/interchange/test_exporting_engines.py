"""Every format, every task: run within this process, the answers are those of the task itself."""

import logging
import os
import pathlib
import re
import sys
import threading

import numpy as np
import pytest
from keras import ops

import keras_transformer as kt
from engines import (
    ENGINES,
    GERMAN,
    PROMPTS,
    SENTENCES,
    assert_few_differ,
    assert_same,
    make_end_likelier,
    other_tasks,
    require,
    restless_translator,
)
from keras_transformer import backend, interchange
from keras_transformer.backend import private
from keras_transformer.interchange import FORMATS, onnx
from keras_transformer.interchange.graphs import graphs_of
from keras_transformer.interchange.tracing import quiet
from keras_transformer.tokenizers.byte_level import ByteLevelTokenizer, BytePairs

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize(
    "format",
    [*(pytest.param(n, marks=pytest.mark.slow) for n in ("saved_model", "onnx")), "litert"],
)
def test_a_tagger_gives_the_same_tags_in_every_engine(small_tasks, run_here, one_thread, format):
    tagger = small_tasks["tagger"]
    answers = run_here(tagger, format, SENTENCES)
    assert_same(answers, tagger.tag(SENTENCES))
    assert len({tag for words in answers for _, tag in words}) > 1


@pytest.mark.slow
@pytest.mark.parametrize("format", ["saved_model", "litert"])
def test_lower_case_normal_forms_blank_lines_and_limits_are_those_of_the_task(
    german, run_here, one_thread, format
):
    for beams in (1, 3):
        answers = run_here(german, format, GERMAN, beams=beams)
        assert answers == german.translate(GERMAN, beams=beams)
    assert answers[5:8] == [""] * 3 and len(set(answers)) > 4
    lengths = {len(german.target_tokenizer.encode([answer])[0]) for answer in answers}
    assert len(lengths) > 2


@pytest.mark.slow
@pytest.mark.parametrize("format, step", [("onnx", True), ("ctranslate2", False)])
def test_a_search_outside_the_graph_has_the_limits_of_the_task(german, run_here, format, step):
    texts = [*GERMAN, *(" ".join(["ein Hund"] * n) for n in range(1, 7))]
    answers = run_here(german, format, texts, step=step)
    assert answers == german.translate(texts, beams=1)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["saved_model", "litert", "onnx", "ctranslate2"])
def test_a_translator_with_a_shallow_decoder_answers_the_same(
    german, restless, run_here, one_thread, format
):
    depths = dict(encoder_layers=3, decoder_layers=1)
    translator = restless_translator(german.target_tokenizer, restless, **depths)
    answers = run_here(translator, format, GERMAN, step=format == "onnx")
    assert answers == translator.translate(GERMAN, beams=1) and len(set(answers)) > 4


@pytest.mark.slow
@pytest.mark.parametrize("format", ENGINES)
def test_options_against_loops_are_those_of_the_task(german, run_here, one_thread, format):
    changes = dict(no_repeat_ngram_size=2, repetition_penalty=1.2, suppress=["ein", 9])
    parts = german.transformer, german.source_tokenizer
    options = dict(normalization=german.normalization, lowercase=german.lowercase)
    translator = kt.Translator(*parts, config=german.config, **options, **changes)
    answers = run_here(translator, format, GERMAN)
    assert answers == translator.translate(GERMAN, beams=1) != german.translate(GERMAN, beams=1)
    if format != "ctranslate2":  # its beams have another distribution
        assert run_here(translator, format, GERMAN, beams=3) == translator.translate(GERMAN)


@pytest.mark.parametrize("format, option", [("web", "repetition_penalty"), ("marian", "suppress")])
def test_a_format_that_lacks_an_option_says_so(german, tmp_path, format, option):
    require(format)
    value = {"repetition_penalty": 1.2, "suppress": ["ein"]}[option]
    translator = kt.Translator(german.transformer, german.source_tokenizer, **{option: value})
    expected = f"{format} cannot hold these options of a translator; received options='{option}'"
    with pytest.raises(ValueError, match=expected):
        interchange.export(translator, tmp_path / "a", format)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["saved_model", "ctranslate2"])
def test_each_side_has_its_own_vocabulary(german, restless, run_here, one_thread, format):
    chinese = kt.train_tokenizer(["狗叫了，猫看见狗。", "他昨天买了一本书。"], 60)
    target = german.target_tokenizer
    translator = restless_translator(target, restless, 5, source_tokenizer=chinese)
    texts = ["狗叫了。", "猫看见书。", "", "他买了狗。"]
    expected = translator.translate(texts, beams=1)
    assert run_here(translator, format, texts) == expected
    assert len(set(expected)) > 2
    if format == "saved_model":  # models of one process also have one
        assert run_here(german, format, GERMAN) == german.translate(GERMAN, beams=1)


@pytest.mark.slow
def test_a_text_longer_than_the_positions_is_refused_by_a_saved_model(german, exported):
    tf = pytest.importorskip("tensorflow", reason="it writes them", exc_type=ImportError)
    folder = exported(german, "saved_model")
    translate = tf.saved_model.load(str(folder)).signatures["serving_default"]
    assert len(translate(texts=tf.constant(["ein"]))["translations"]) == 1
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 40 tokens"):
        translate(texts=tf.constant(["ein " * 50]))


@pytest.mark.slow
@pytest.mark.parametrize("format", ["saved_model", "litert", "onnx"])
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
    ["ctranslate2", *(pytest.param(each, marks=pytest.mark.slow) for each in ("litert", "onnx"))],
)
def test_a_generator_with_byte_level_bpe_gives_the_same_continuations(byte_level, run_here, format):
    prompts = [*PROMPTS, "</s> 草地\n"]
    expected = byte_level.generate(prompts, max_tokens=12, temperature=0)
    for _ in range(6):  # memory of an engine's first call holds what was freed before
        answers = run_here(byte_level, format, prompts, max_tokens=12)
        assert answers == expected
    written = {a.removeprefix(p) for a, p in zip(answers, prompts, strict=True)}
    assert len(written) == len(prompts)


@pytest.mark.parametrize("format", ["ctranslate2", pytest.param("litert", marks=pytest.mark.slow)])
def test_a_translator_with_byte_level_bpe_answers_the_same(byte_level, restless, run_here, format):
    tokenizer = byte_level.tokenizer
    translator = restless_translator(tokenizer, restless, max_length_ratio=0.2)
    texts = ["the day", "草地", "", "été"]
    answers = run_here(translator, format, texts)
    assert answers == translator.translate(texts) and len(set(answers)) > 2


def test_a_saved_model_cannot_read_texts_by_byte_level_bpe(byte_level, tmp_path):
    require("saved_model")
    with pytest.raises(ValueError, match="needs the vocabulary of a SentencePieceTokenizer; rec"):
        interchange.export(byte_level, tmp_path / "model", "saved_model")
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("rotary", [False, True])
def test_ctranslate2_gives_the_same_continuation(small_tasks, restless, run_here, rotary):
    tokenizer = small_tasks["generator"].tokenizer
    sizes = dict(num_layers=2, d_model=16, num_heads=2, d_ff=16, rotary=rotary, norm_first=rotary)
    language = restless(kt.LanguageModel(tokenizer.vocabulary_size(), **sizes))
    generator = kt.TextGenerator(language, tokenizer, append_end=False)
    answers = run_here(generator, "ctranslate2", PROMPTS, max_tokens=10)
    assert answers == generator.generate(PROMPTS, max_tokens=10, temperature=0)
    assert len(set("".join(answers))) > 5


@pytest.mark.slow
@pytest.mark.parametrize("format", ["saved_model", "litert"])
def test_a_classifier_has_its_label_and_probabilities(small_tasks, run_here, one_thread, format):
    classifier = small_tasks["classifier"]
    answers = run_here(classifier, format, SENTENCES)
    assert_same(answers, classifier.classify(SENTENCES))
    assert len({p for _, p in answers}) > 3


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_graph_names_its_inputs(small_tasks, dates_translator):
    for task in (*small_tasks.values(), dates_translator):
        for name, graph in graphs_of(task).items():
            assert name.isidentifier() and graph.inputs
            assert all(key.isidentifier() for key in graph.inputs)


@pytest.mark.slow
@pytest.mark.parametrize(
    "format, rotary", [("saved_model", True), ("onnx", True), ("litert", False)]
)
def test_every_option_of_a_translator_is_exported(
    german, restless, run_here, one_thread, format, rotary
):
    options = dict(rotary=True, activation="gelu") if rotary else dict(max_length=30)
    translator = restless_translator(german.source_tokenizer, restless, 16, **options)
    answers = run_here(translator, format, GERMAN, beams=4)
    assert answers == translator.translate(GERMAN, beams=4)
    assert len(set("".join(answers))) > 5


@pytest.mark.slow
@pytest.mark.skipif(backend.name() != "tensorflow", reason="a SavedModel is of TensorFlow")
def test_the_examples_of_the_documentation_run(tmp_path, monkeypatch, capsys):
    for package in ("tensorflow_text", "onnxruntime", "ai_edge_litert", "ctranslate2"):
        pytest.importorskip(package, reason="engines are optional")
    monkeypatch.chdir(tmp_path)
    translator, names, ids = kt.load("zh-en"), {"keras_transformer": kt}, []
    for format in ("saved_model", "onnx", "litert", "ctranslate2"):
        interchange.export(translator, f"en-de-{format}", format)
    page = (ROOT / "docs" / "exporting.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    for code in blocks:
        exec(code.replace("A dog is running.", "他昨天买了一本书。"), names)
        ids.append(names.get("ids"))
    _, _, of_onnx, of_litert, _ = ids
    assert of_onnx == of_litert and 3 in of_onnx
    assert len(capsys.readouterr().out.splitlines()) == 3


KINDS = [(format, kind) for format in ENGINES for kind in FORMATS[format].quantizations]


@pytest.mark.slow
@pytest.mark.parametrize("format, kind", KINDS)
def test_a_quantized_translator_gives_the_same_answers(dates, run_here, one_thread, format, kind):
    translator = kt.load("dates")  # a model trained for seconds has close calls at every step
    texts = [*dates.test.source[:100], "", "  ", "May ☃ 5, 2020"]
    answers = run_here(translator, format, texts, kind, beams=4)
    assert_few_differ(translator, format, kind, texts, answers, beams=4)


@pytest.mark.slow
@pytest.mark.parametrize("format, kind", KINDS)
def test_other_quantized_tasks_have_as_many_answers(small_tasks, run_here, format, kind):
    for task, texts, expected, max_tokens in other_tasks(small_tasks, format):
        answers = run_here(task, format, texts, kind, max_tokens=max_tokens)
        assert len(answers) == len(expected)


@pytest.mark.parametrize("name", ["tagger", "classifier", "filler"])
def test_ctranslate2_holds_what_decodes(small_tasks, tmp_path, name):
    with pytest.raises(ValueError, match="can hold a Translator or TextGenerator"):
        interchange.export(small_tasks[name], tmp_path / "x", "ctranslate2")


@pytest.mark.slow
def test_a_keras_file_in_8_bits_gives_the_same_answers_and_is_not_exported_again(
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
    with pytest.raises(ValueError, match=r"without quantization.* quantized_layers=\d+"):
        interchange.export(quantized, tmp_path / "x", "keras")


@pytest.mark.slow
def test_a_keras_file_in_8_bits_is_smaller(dates_translator, exported):
    path = exported(dates_translator, "keras", "int8") / "model.keras"
    dates_translator.save(path.with_name("whole.keras"))
    assert path.stat().st_size < 0.8 * path.with_name("whole.keras").stat().st_size


def test_a_keras_file_in_16_bits_is_half_as_large_and_computes_in_32(small_tasks, exported):
    tagger = small_tasks["tagger"]
    path = exported(tagger, "keras", "float16") / "model.keras"
    tagger.save(path.with_name("whole.keras"))
    assert path.stat().st_size < 0.6 * path.with_name("whole.keras").stat().st_size
    loaded = kt.load(path)
    for half, whole in zip(loaded.model.weights, tagger.model.weights, strict=True):
        assert half.dtype == whole.dtype
        expected = ops.convert_to_numpy(whole)
        if "float" in half.dtype:
            expected = expected.astype("float16")
        np.testing.assert_array_equal(ops.convert_to_numpy(half), expected)
    tags = [[tag for _, tag in words] for words in loaded.tag(SENTENCES)]
    assert tags == [[tag for _, tag in words] for words in tagger.tag(SENTENCES)]


def test_weights_beyond_float16_are_one_sentence(small_tasks, tmp_path, randomize):
    tagger = small_tasks["tagger"]
    model = randomize(kt.TaggingModel.from_config(tagger.model.get_config()))
    model.weights[0].assign(np.full(model.weights[0].shape, 1e5, "float32"))
    large = kt.Tagger(model, tagger.vocabulary, tagger.labels)
    with pytest.raises(ValueError, match="float16 must hold all weights; received weights="):
        interchange.export(large, tmp_path / "x", "keras", "float16")
    assert not any(tmp_path.iterdir())


def test_another_backend_is_one_sentence(small_tasks, tmp_path, monkeypatch):
    monkeypatch.setattr(backend, "name", lambda: "torch")
    with pytest.raises(ValueError, match="KERAS_BACKEND=tensorflow; .*; received backend='torch'"):
        interchange.export(small_tasks["tagger"], tmp_path / "x", "onnx")


@pytest.mark.parametrize(
    "format, module", [("saved_model", "tensorflow_text"), ("onnx", "tf2onnx.convert")]
)
def test_a_missing_package_is_one_sentence(small_tasks, tmp_path, monkeypatch, format, module):
    require(format)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match="install it with pip install t"):
        interchange.export(small_tasks["tagger"], tmp_path / "x", format)
    assert not any(tmp_path.iterdir())


def test_without_the_converter_to_constants_an_export_answers_the_same(
    small_tasks, run_here, one_thread, monkeypatch
):
    require("litert")
    tagger = backend.twin(small_tasks["tagger"])  # which has not been exported before
    lookup, missing = private.attribute, "convert_variables_to_constants_v2"

    def hidden(owner, name, effect):
        return None if name == missing else lookup(owner, name, effect)

    monkeypatch.setattr(private, "attribute", hidden)
    assert_same(run_here(tagger, "litert", SENTENCES), tagger.tag(SENTENCES))


@pytest.mark.once
def test_importing_a_converter_leaves_the_environment_unchanged(monkeypatch):
    monkeypatch.setenv("OF_A_TEST", "1")
    before = dict(os.environ)

    def imported(name, *purpose):
        os.environ.update(TF_CPP_MIN_LOG_LEVEL="9", OF_A_CONVERTER="1")
        del os.environ["OF_A_TEST"]
        raise ImportError(name)

    monkeypatch.setattr(onnx, "imported", imported)
    with pytest.raises(ImportError, match="tf2onnx"):
        onnx.write_graphs({}, None)
    assert dict(os.environ) == before


@pytest.mark.once
def test_of_what_is_written_during_a_conversion_only_its_warnings_are_dropped(capfd, caplog):
    def of_another_thread():
        logging.warning("of another thread")
        os.write(2, b"written by another thread\n")

    with quiet():
        os.write(2, b"W0000 00:00:17.8 10812 converter.cc:364] Ignored output_format.\n")
        os.write(2, b"normalizer.cc(51) LOG(INFO) use identity normalization.\n")
        os.write(2, b"E0000 00:00:17.8 10812 converter.cc:52] failed\n")
        logging.warning("of the conversion")
        logging.getLogger("a.library").warning("of the conversion, by a logger of its own")
        logging.error("an error")
        print("printed")
        thread = threading.Thread(target=of_another_thread)
        thread.start()
        thread.join()
    logging.warning("afterwards")
    os.write(2, b"written afterwards\n")
    lines = capfd.readouterr()
    assert lines.out == "printed\n"
    written = ["E0000 00:00:17.8 10812 converter.cc:52] failed", "written by another thread"]
    assert lines.err.splitlines() == [*written, "written afterwards"]
    assert caplog.messages == ["an error", "of another thread", "afterwards"]


def test_an_export_that_fails_leaves_nothing(small_tasks, tmp_path, monkeypatch):
    from keras_transformer.interchange import litert

    def full(task, folder):
        raise OSError(28, "No space left on device")

    require("litert")
    monkeypatch.setattr(litert, "write_vocabularies", full)
    with pytest.raises(OSError, match="No space left on device: .*tagger"):
        interchange.export(small_tasks["tagger"], tmp_path / "tagger", "litert")
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
        interchange.export(small_tasks["tagger"], tmp_path / "tagger", "saved_model")
    assert not any(tmp_path.iterdir())
