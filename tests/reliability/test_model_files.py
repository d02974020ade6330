"""Files of models that were damaged, altered or made to do harm: one sentence, and nothing is run.

Every mutation is drawn from a seed, so a failure names the number that repeats it.
"""

import importlib.util
import inspect
import io
import json
import os
import pathlib
import random
import sys
import time
import zipfile

import h5py
import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.models.configured import ConfiguredModel
from keras_transformer.tasks import Task, saved_files
from keras_transformer.tasks.saved_files import (
    CHECKSUMS,
    CONFIG,
    FORMAT_VERSION,
    METADATA,
    WEIGHTS,
    add_checksums,
)
from keras_transformer.tokenizers.base import Tokenizer
from keras_transformer.tokenizers.byte_level import ByteLevelTokenizer, BytePairs

OLD = pathlib.Path(__file__).parents[1] / "saved_by_0.1.0"
NAMES = ["translator_two_vocabularies", "text_generator", "tagger", "classifier", "mask_filler"]
MUTATIONS, SAMPLE = 2000, 200  # equal parts: in a part of 50 chance alone reached the bound
VALUES = [None, 0, -1, 1, 2, 7, 1e308, "x", "", [], {}, True, False, 2**40, "os.system"]
VALUES.append({"module": "keras.layers", "class_name": "Lambda", "config": {}})


def byte_level_generator():
    """A text generator with the other kind of tokenizer."""
    import tokenizers

    tokens = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer = ByteLevelTokenizer.of_pairs(BytePairs([*tokens, "th"], [("t", "h")]))
    sizes = dict(num_layers=1, d_model=4, num_heads=2, d_ff=8, activation="gelu_tanh")
    model = kt.LanguageModel(tokenizer.vocabulary_size(), **sizes, logits_bias=True)
    return kt.TextGenerator(model, tokenizer)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The bytes of one file of each task, as it is saved today."""
    folder = tmp_path_factory.mktemp("files")
    contents = {}
    if importlib.util.find_spec("tokenizers"):
        byte_level_generator().save(folder / "model.keras")
        contents["byte_level_generator"] = (folder / "model.keras").read_bytes()
    for name in NAMES:
        kt.load(OLD / f"{name}.keras").save(folder / f"{name}.keras")
        contents[name] = (folder / f"{name}.keras").read_bytes()
    return contents


def members_of(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(members, compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def resealed(path, members):
    """Writes members with checksums that fit them, as somebody who means harm would."""
    members = {name: content for name, content in members.items() if name != CHECKSUMS}
    path.write_bytes(packed(members))
    add_checksums(path)
    return path


def config_of(members):
    return json.loads(members[CONFIG])


def places(value, path=()):
    """The path of every value within a JSON value."""
    if path:
        yield path
    if isinstance(value, list):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places(each, (*path, key))


def replaced(value, path, new):
    """A JSON value with another value at a path."""
    value = json.loads(json.dumps(value))
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return value


def mutated(content, files, rng):
    """One of the files of `files`, damaged or altered in one way."""
    members = members_of(content)
    some = rng.choice(list(members))
    match rng.randrange(8):
        case 0:
            damaged = bytearray(content)
            for _ in range(rng.choice([1, 1, 8])):
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            return bytes(damaged)
        case 1:
            return content[: rng.randrange(len(content))]
        case 2:  # the directory of the archive
            damaged = bytearray(content)
            damaged[len(damaged) - 1 - rng.randrange(600)] = rng.randrange(256)
            return bytes(damaged)
        case 3:
            del members[some]
        case 4:
            other = rng.choice(list(members))
            members[some], members[other] = members[other], members[some]
        case 5:
            members[some] = members[some][: rng.randrange(len(members[some]))]
        case 6:
            name = rng.choice([CONFIG, CONFIG, METADATA])
            config = json.loads(members[name])
            path = rng.choice(list(places(config)))
            members[name] = json.dumps(replaced(config, path, rng.choice(VALUES))).encode()
        case 7:
            others = members_of(files[rng.choice(list(files))])
            name = rng.choice(list(others))
            members[name] = others[name]
    return packed(members)


def assert_one_sentence(error, path):
    message = str(error)
    assert type(error) is ValueError and str(path) in message, message
    assert "\n" not in message and message.endswith(".") and len(message) < 500, message


@pytest.mark.parametrize(
    "first",
    [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(SAMPLE, MUTATIONS, SAMPLE))],
)
def test_a_mutated_file_is_refused_in_one_sentence_or_is_the_same(files, tmp_path, first):
    path = tmp_path / "model.keras"
    refused = 0
    for number in range(first, min(first + SAMPLE, MUTATIONS)):
        rng = random.Random(number)
        original = files[rng.choice(list(files))]
        content = mutated(original, files, rng)
        path.write_bytes(content)
        try:
            kt.check_file(path)
        except Exception as error:
            assert_one_sentence(error, path)
            refused += 1
        else:
            assert members_of(content) == members_of(original), f"mutation {number}"
    assert refused > 0.8 * (number - first)
    assert [each.name for each in tmp_path.iterdir()] == ["model.keras"]


def test_a_repacked_file_is_the_same(files, tmp_path):
    path = tmp_path / "model.keras"
    path.write_bytes(packed(members_of(files["tagger"]), zipfile.ZIP_DEFLATED))
    path.write_bytes(path.read_bytes())
    texts = ["The dog sees a cat."]
    assert kt.load(path).tag(texts) == kt.load(OLD / "tagger.keras").tag(texts)


@pytest.mark.parametrize("number", range(7))
def test_values_that_cannot_be_are_refused_under_fitting_checksums_too(files, tmp_path, number):
    """Weights, vocabulary and sizes must agree, whatever the checksums say."""
    changes = [
        ("num_layers", -1, "num_layers must be an integer of at least 1"),
        ("d_model", 2**40, "its weights are fewer than its configuration needs"),
        ("decoder_layers", 2**40, "its weights are fewer than its configuration needs"),
        ("dropout", 2.0, "dropout must be in"),
        ("num_labels", 9, "expected num_labels=4"),
        ("num_words", 15, "expected num_words=16"),
        ("num_heads", "two", "num_heads must be an integer"),
    ]
    name, value, message = changes[number]
    members = members_of(files["tagger"])
    path = ("config", "model", "config", name)
    members[CONFIG] = json.dumps(replaced(config_of(members), path, value)).encode()
    with pytest.raises(ValueError, match=message):
        kt.check_file(resealed(tmp_path / "model.keras", members))


def test_weights_of_another_shape_are_refused(files, tmp_path):
    members = members_of(files["tagger"])
    path = ("config", "model", "config", "d_ff")
    members[CONFIG] = json.dumps(replaced(config_of(members), path, 13)).encode()
    with pytest.raises(ValueError, match="model.keras cannot be loaded: "):
        kt.load(resealed(tmp_path / "model.keras", members))


@pytest.mark.parametrize(
    "serialized",
    [
        {"module": "keras.layers", "class_name": "Lambda", "config": {}, "registered_name": None},
        {"module": "harmful", "class_name": "Harm", "config": {}, "registered_name": "Harm"},
        {"module": "harmful", "class_name": "Harm", "config": {}, "registered_name": None},
        {"module": "builtins", "class_name": "eval", "config": "1", "registered_name": None},
        {"class_name": "__lambda__", "config": {"value": "4wEAAAAA"}},
        {"class_name": "function", "module": "os", "config": "system", "registered_name": "system"},
        {"module": "keras.utils", "class_name": "get_file", "config": {}, "registered_name": None},
        {
            "class_name": "__lambda__",
            "config": {},
            "registered_name": "keras_transformer>gelu_tanh",
        },
        {
            "class_name": "__typespec__",
            "config": [],
            "registered_name": "keras_transformer>Encoder",
        },
        {
            "class_name": "Lambda",
            "module": "keras.layers",
            "registered_name": "keras_transformer>Tagger",
        },
        {"module": "keras.src.layers", "class_name": "DTypePolicy", "config": {}},
        {"module": "keras.dtype_policies", "class_name": "deserialize", "config": {}},
    ],
    ids=lambda serialized: f"{serialized.get('module')}.{serialized['class_name']}",
)
def test_what_a_file_names_is_neither_imported_nor_run(files, tmp_path, serialized, monkeypatch):
    (tmp_path / "harmful.py").write_text(f"open({str(tmp_path / 'done')!r}, 'w')")
    monkeypatch.syspath_prepend(str(tmp_path))
    members = members_of(files["tagger"])
    path = ("config", "model", "config", "activation")
    members[CONFIG] = json.dumps(replaced(config_of(members), path, serialized)).encode()
    path = resealed(tmp_path / "model.keras", members)
    for door in (kt.check_file, kt.load):
        with pytest.raises(ValueError, match="it names .*; expected classes of this package"):
            door(path)
    assert "harmful" not in sys.modules and not (tmp_path / "done").exists()


def test_the_arguments_of_compile_in_a_file_are_ignored(files, tmp_path, monkeypatch):
    (tmp_path / "harmful.py").write_text(f"open({str(tmp_path / 'done')!r}, 'w')")
    monkeypatch.syspath_prepend(str(tmp_path))
    members = members_of(files["tagger"])
    harm = {"module": "harmful", "class_name": "Harm", "config": {}, "registered_name": None}
    compiled = {**config_of(members), "compile_config": {"optimizer": harm, "loss": harm}}
    members[CONFIG] = json.dumps(compiled).encode()
    assert kt.load(resealed(tmp_path / "model.keras", members)).tag(["a dog"])
    assert "harmful" not in sys.modules and not (tmp_path / "done").exists()


def public_classes():
    """All classes of the public Keras API that are made from a configuration."""
    modules = [
        (f"{module.__name__}.{name}", each)
        for module in (keras, *submodules(keras))
        for name, each in vars(module).items()
        if hasattr(each, "from_config")
    ]
    return sorted(dict(modules))


def submodules(module):
    for name, each in vars(module).items():
        public = name not in ("src", "_tf_keras")
        if public and inspect.ismodule(each) and each.__name__ == f"{module.__name__}.{name}":
            yield from (each, *submodules(each))


PLACES = ["activation", "dtype", "name", "d_model", "quantized", "frozen", "logits_bias"]


@pytest.mark.once
def test_a_file_names_no_class_of_keras_but_dtype_policies(files, tmp_path):
    classes = [each for each in public_classes() if "DTypePolicy" not in each]
    assert len(classes) > 300
    members, rng = members_of(files["tagger"]), random.Random(0)
    for number, name in enumerate(classes):
        module, class_name = name.rsplit(".", 1)
        object = {"module": module, "class_name": class_name, "config": {}}
        object["registered_name"] = rng.choice([None, class_name])
        path = ("config", "model", "config", PLACES[number % len(PLACES)])
        config = replaced(config_of(members), path, object)
        with pytest.raises(ValueError, match=f"it names {name}"):
            saved_files._check_task(config, FORMAT_VERSION)
    members[CONFIG] = json.dumps(config).encode()
    for door in (kt.check_file, kt.load):
        with pytest.raises(ValueError, match=f"it names {name}"):
            door(resealed(tmp_path / "model.keras", members))


def names_of(*kinds):
    """The registered classes of the package of these kinds."""
    registered = keras.saving.get_custom_objects().items()
    ours = {name: each for name, each in registered if name.startswith("keras_transformer>")}
    return sorted(
        each.__name__
        for name, each in ours.items()
        if isinstance(each, type) and issubclass(each, kinds)
    )


@pytest.mark.once
def test_a_file_may_name_every_class_of_the_package_that_a_task_has():
    assert names_of(Task) == sorted(saved_files.TASKS)
    models = set(names_of(ConfiguredModel)) - {"ChunkedLogits", "RDrop", "SimCut"}
    assert models == set(saved_files.MODELS)
    assert names_of(Tokenizer, kt.WordVocabulary) == sorted(saved_files.VOCABULARIES)
    allowed = {
        (name, version)
        for name in ("SentencePieceTokenizer", "Tagger")
        for version in (1, 2, FORMAT_VERSION)
        if saved_files._is_allowed(
            {"class_name": name, "registered_name": f"keras_hub>{name}"}, version
        )
    }
    assert allowed == {("SentencePieceTokenizer", 1)}
    for name, each in vars(keras.dtype_policies).items():
        if isinstance(each, type):
            policy = {"module": "keras.dtype_policies", "class_name": name}
            assert saved_files._is_allowed(policy, FORMAT_VERSION)
    tasks = (kt.Classifier, kt.MaskFiller, kt.Tagger, kt.TextGenerator, kt.Translator)
    assert {part for task in tasks for part in task.parts} == set(saved_files.PARTS)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_a_quantized_file_names_only_dtype_policies_that_are_allowed(tmp_path, mode):
    tagger = kt.load(OLD / "tagger.keras")
    tagger.model.quantize(mode)
    tagger.save(tmp_path / "model.keras")
    assert kt.check_file(tmp_path / "model.keras").quantization == [mode]


def test_a_task_is_loaded_in_safe_mode_whatever_the_process_allows(files, tmp_path, monkeypatch):
    path = tmp_path / "model.keras"
    members = members_of(files["tagger"])
    harmful = {"class_name": "__lambda__", "config": {"value": "4wEAAAAA"}}
    path_in_config = ("config", "model", "config", "activation")
    members[CONFIG] = json.dumps(replaced(config_of(members), path_in_config, harmful)).encode()
    resealed(path, members)
    summary = kt.check_file(OLD / "tagger.keras")
    monkeypatch.setattr(saved_files, "_checked", lambda path: summary)  # as if it had passed
    keras.config.enable_unsafe_deserialization()
    try:
        with pytest.raises(ValueError, match="disallowed by default"):
            kt.load(path)
        path.write_bytes(files["tagger"])
        assert kt.load(path).tag(["a dog"])
    finally:
        keras.src.backend.common.global_state.set_global_attribute("safe_mode_saving", None)


def test_a_task_that_was_compiled_is_saved_and_loaded(tmp_path):
    tagger = kt.load(OLD / "tagger.keras")
    tagger.compile(
        keras.optimizers.Adam(kt.WarmupSchedule.with_peak(1e-3, 10)),
        kt.TokenCrossEntropy(),
        [keras.metrics.SparseCategoricalAccuracy(), keras.metrics.mean_absolute_error],
    )
    tagger.save(tmp_path / "model.keras")
    assert kt.load(tmp_path / "model.keras").tag(["a dog"]) == tagger.tag(["a dog"])


@pytest.mark.parametrize(
    "name", ["../escaped", "/tmp/escaped", "assets/../../escaped", "a\\b", "x"]
)
def test_a_member_that_leaves_the_archive_or_has_no_place_is_refused(files, tmp_path, name):
    members = {**members_of(files["tagger"]), name: b"x"}
    folder = tmp_path / "inner"
    folder.mkdir()
    with pytest.raises(ValueError, match="has no place in a task"):
        kt.load(resealed(folder / "model.keras", members))
    assert [each.name for each in tmp_path.iterdir()] == ["inner"]


def test_a_bomb_is_refused_before_it_is_unpacked(files, tmp_path):
    members = members_of(files["text_generator"])
    (name,) = (name for name in members if name.startswith("assets/"))
    members[name] = bytes(10**8)
    path = tmp_path / "model.keras"
    path.write_bytes(packed(members, zipfile.ZIP_DEFLATED))
    start = time.thread_time()
    with pytest.raises(ValueError, match="is too large"):
        kt.check_file(path)
    assert time.thread_time() - start < 5


@pytest.mark.parametrize("kind", ["of another size", "of the other kind", "none"])
def test_a_vocabulary_of_bytes_that_does_not_fit_is_refused(files, tmp_path, kind):
    if "byte_level_generator" not in files:
        pytest.skip("this tokenizer is optional")
    members = members_of(files["byte_level_generator"])
    (name,) = (name for name in members if name.startswith("assets/"))
    description = json.loads(members[name])
    if kind == "of another size":
        del description["model"]["vocab"]["th"]
        description["model"]["merges"] = []
        members[name] = json.dumps(description).encode()
    else:
        del members[name]
    if kind == "of the other kind":
        others = members_of(files["text_generator"])
        (other,) = (other for other in others if other.startswith("assets/"))
        members[other] = others[other]
    path = resealed(tmp_path / "model.keras", members)
    with pytest.raises(ValueError, match=r"expected vocabularies of \[261\] ids"):
        kt.check_file(path)


def test_weights_may_not_be_a_link_to_another_file(files, tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = np.zeros(3)
    members = members_of(files["tagger"])
    weights = io.BytesIO(members[WEIGHTS])
    with h5py.File(weights, "r+") as file:
        file["stolen"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/x")
    members[WEIGHTS] = weights.getvalue()
    with pytest.raises(ValueError, match="its weights at stolen are a link"):
        kt.check_file(resealed(tmp_path / "model.keras", members))


def test_a_file_without_its_checksums_is_refused_unless_its_format_had_none(files, tmp_path):
    members = members_of(files["classifier"])
    del members[CHECKSUMS]
    path = tmp_path / "model.keras"
    path.write_bytes(packed(members))
    with pytest.raises(ValueError, match="it lacks seal.json"):
        kt.check_file(path)
    assert not kt.check_file(OLD / "classifier.keras").sealed


def test_a_summary_says_what_a_file_holds(files, tmp_path):
    path = tmp_path / "model.keras"
    path.write_bytes(files["translator_two_vocabularies"])
    summary = kt.check_file(path)
    translator = kt.load(path)
    assert (summary.task, summary.model) == ("Translator", "Transformer")
    assert summary.config == translator.transformer.config
    assert summary.vocabulary == {
        "source_vocabulary_size": translator.source_tokenizer.vocabulary_size(),
        "target_vocabulary_size": translator.target_tokenizer.vocabulary_size(),
    }
    assert summary.parameters == translator.transformer.count_params()
    assert summary.format_version == FORMAT_VERSION and summary.sealed
    expected = {"keras": keras.__version__, "keras_transformer": kt.__version__}
    assert summary.versions == expected and summary.quantization == []


def test_a_summary_has_a_line_per_value(dates_translator, small_tasks, tmp_path):
    tagger = small_tasks["tagger"]
    labels = ["NOUN", "a\nb", "|"]
    kt.Tagger(tagger.model, tagger.vocabulary, labels).save(tmp_path / "tagger.keras")
    lines = kt.check_file(tmp_path / "tagger.keras").lines()
    assert "labels=NOUN, a\\nb, |" in lines["settings"]
    translator = kt.Translator(
        dates_translator.model, dates_translator.source_tokenizer, suppress=["a", 5]
    )
    translator.save(tmp_path / "translator.keras")
    lines = kt.check_file(tmp_path / "translator.keras").lines()
    assert "suppress=a, 5" in lines["settings"]
    assert all(len(text.splitlines()) == 1 for text in lines.values())


def test_the_check_makes_no_model_and_no_weights(files, tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("the check computes")

    monkeypatch.setattr(keras.Model, "__init__", refuse)
    monkeypatch.setattr(keras.Layer, "add_weight", refuse)
    path = tmp_path / "model.keras"
    for content in files.values():
        path.write_bytes(content)
        kt.check_file(path)
    with pytest.raises(ValueError, match="the check computes"):  # loading does
        kt.load(path)


def test_other_things_than_files_of_tasks_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no model at .*nowhere.keras"):
        kt.load(tmp_path / "nowhere.keras")
    with pytest.raises(ValueError, match="received the folder .* Try .*model.keras"):
        kt.load(tmp_path)
    os.mkfifo(tmp_path / "pipe.keras")
    with pytest.raises(ValueError, match="received .*pipe.keras, a pipe or a device. Name a reg"):
        kt.load(tmp_path / "pipe.keras")
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save(tmp_path / "x.keras")
    with pytest.raises(ValueError, match="it holds keras.Sequential; expected a task"):
        kt.load(tmp_path / "x.keras")
