"""Files of the version 0.1.0 before its `format_version`, and of versions to come.

The models of `saved_by_0.1.0` are tiny and have random weights: their answers make no sense, but
another weight in another place would change them.
"""

import json
import pathlib
import zipfile

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.tasks.saved_files import FORMAT_VERSION

FOLDER = pathlib.Path(__file__).parents[1] / "saved_by_0.1.0"
EXPECTED = json.loads((FOLDER / "answers.json").read_text("utf-8"))
TEXTS = EXPECTED["texts"]
# 0.1.0 scored them unchanged. Now they are brought into the form of the training data, and the
# scores of "translator", which lowercases, are those that the code before gave in lower case.
TRANSLATIONS = ["A DOG.", "THE CAT BARKS", "", "IT", "DOG SEES"]

# Their kind of task has another file, whose copy also answers.
SIBLINGS = {"translator", "text_generator"}
QUICK = "translator_two_vocabularies"

every_file = pytest.mark.parametrize("name", sorted(EXPECTED["answers"]))


def load(path):
    return keras.saving.load_model(path)


def answers_of(task):
    """The answers of a task, probabilities included, as JSON has them."""
    match task:
        case kt.Translator():
            answers = task.translate(TEXTS)
        case kt.TextGenerator():
            answers = task.generate(["the ", "a c"], max_tokens=12, temperature=0)
        case kt.Tagger():
            answers = task.tag(TEXTS)
        case kt.Classifier():
            answers = task.classify(TEXTS)
        case kt.MaskFiller():
            predictions = task.fill(["The [MASK] barks."])
            answers = [[each.label for each in words] for words in predictions]
    return json.loads(json.dumps(answers))


def scores_of(task):
    if isinstance(task, kt.Translator):
        return task.score(TEXTS, TRANSLATIONS)
    return [score.nats for score in task.score(TEXTS)]


def assert_answers_as_before(task, name):
    answers = [answers_of(task), EXPECTED["answers"][name]]
    for now, before in zip(*map(keras.tree.flatten, answers), strict=True):
        assert now == (pytest.approx(before, abs=1e-4) if isinstance(before, float) else before)


def config_in(path):
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("config.json"))


def replace_in(path, member, content):
    """Rewrites one member of a .keras file."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    assert member in list(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, old in members.items():
            archive.writestr(name, content if name == member else old)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name != QUICK))
        for name in sorted(EXPECTED["answers"])
    ],
)
def test_a_file_of_0_1_0_answers_as_before_and_so_does_its_copy_of_today(name, tmp_path):
    old = FOLDER / f"{name}.keras"
    assert "format_version" not in config_in(old)["config"]
    task = load(old)
    assert_answers_as_before(task, name)
    if name in EXPECTED["scores"]:
        assert scores_of(task) == pytest.approx(EXPECTED["scores"][name], abs=2e-3)

    task.save(tmp_path / "new.keras")
    assert config_in(tmp_path / "new.keras")["config"]["format_version"] == FORMAT_VERSION == 3
    copy = load(tmp_path / "new.keras")
    assert copy.get_config() == task.get_config()
    for one, other in zip(copy.get_weights(), task.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    if name not in SIBLINGS:
        assert_answers_as_before(copy, name)


def test_the_settings_of_an_old_file_are_kept():
    translator, generator = (load(FOLDER / f"{n}.keras") for n in ("translator", "text_generator"))
    assert translator.config == kt.GenerationConfig(beams=2, length_penalty=0.8, batch_size=4)
    assert (translator.normalization, translator.lowercase) == ("NFC", True)
    assert translator.source_tokenizer is translator.target_tokenizer
    assert (generator.window, generator.append_end) == (16, False)
    for tokenizer in (translator.source_tokenizer, generator.tokenizer):
        assert type(tokenizer) is kt.SentencePieceTokenizer


@every_file
def test_a_file_of_a_newer_format_is_refused(name, tmp_path):
    path = tmp_path / "newer.keras"
    path.write_bytes((FOLDER / f"{name}.keras").read_bytes())
    config = config_in(path)
    config["config"]["format_version"] = FORMAT_VERSION + 1
    replace_in(path, "config.json", json.dumps(config))
    message = "expected format version 3 or below; received 4, .* Upgrade the package."
    with pytest.raises(ValueError, match=message):
        load(path)


def vocabulary_of(texts, path):
    """Bytes of a vocabulary, which a tokenizer saves."""
    kt.train_tokenizer(texts, model_type="char").save_assets(path)
    (file,) = path.iterdir()
    return file.read_bytes()


ONE, OTHER = "sentence_piece_tokenizer", "sentence_piece_tokenizer_1"


@pytest.mark.parametrize(
    "name, folder, asks",
    [
        pytest.param(
            "translator",
            ONE,
            [lambda task: task.translate(TEXTS), lambda task: task.score(TEXTS, TEXTS)],
            marks=pytest.mark.slow,
        ),
        (
            "translator_two_vocabularies",
            OTHER,
            [lambda task: task.translate(TEXTS), lambda task: list(task.stream("a"))],
        ),
        pytest.param(
            "text_generator",
            ONE,
            [lambda task: task.generate(TEXTS), lambda task: task.score(TEXTS)],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_vocabulary_that_does_not_fit_its_model_is_refused(name, folder, asks, tmp_path):
    path = tmp_path / "changed.keras"
    path.write_bytes((FOLDER / f"{name}.keras").read_bytes())
    (tmp_path / "assets").mkdir()
    vocabulary = vocabulary_of(["ab"], tmp_path / "assets")
    replace_in(path, f"assets/layers/{folder}/vocabulary.spm", vocabulary)
    task = load(path)
    message = "must have the .* ids of the model; received .*_size=6"
    for ask in asks:
        with pytest.raises(ValueError, match=message):
            ask(task)


def test_words_that_do_not_fit_their_model_are_refused(tmp_path):
    path = tmp_path / "changed.keras"
    path.write_bytes((FOLDER / "tagger.keras").read_bytes())
    config = config_in(path)
    words = config["config"]["vocabulary"]["config"]["words"]
    config["config"]["vocabulary"]["config"]["words"] = words[:-1]
    replace_in(path, "config.json", json.dumps(config))
    with pytest.raises(ValueError, match=f"num_words of the model must be {len(words) + 2}"):
        load(path)


def test_a_file_is_loaded_without_random_numbers_for_its_matrices(monkeypatch):
    drawn = []
    for initializer in (keras.initializers.GlorotUniform, keras.initializers.RandomNormal):
        draw = initializer.__call__

        def recorded(self, shape, *args, draw=draw, **kwargs):
            drawn.append(shape)
            return draw(self, shape, *args, **kwargs)

        monkeypatch.setattr(initializer, "__call__", recorded)
    translator = kt.load("dates")
    assert not drawn
    weights = translator.model.get_weights()
    again = translator.model.copy()
    assert {(63, 64), (64, 64), (64, 128)} <= set(drawn)
    for one, other in zip(weights, again.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    matrices = [each for each in weights if each.ndim == 2]
    assert matrices and all(np.std(each) > 0.01 for each in matrices)
