"""train_translation.py: whole runs within this process, killed ones in processes of their own."""

import collections
import contextlib
import importlib
import io
import json
import logging
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import cli as console
from keras_transformer import data
from keras_transformer.training import Run, add_translations
from programs import history_of
from shared import restore_determinism

ROOT = pathlib.Path(__file__).parents[2]
TRAIN = [sys.executable, ROOT / "scripts" / "train_translation.py"]
TINY = ["--num-layers", "1", "--d-model", "32", "--num-heads", "2", "--d-ff", "64"]

try:
    import tensorboard
    import tensorflow

    HAS_TENSORBOARD = bool(tensorboard and tensorflow)
except ImportError:
    HAS_TENSORBOARD = False


def run(command):
    """The command in this process, as by `inside`, which fixtures of a module cannot use."""
    _, script, *arguments = (str(part) for part in command)
    stdout, stderr, code = io.StringIO(), io.StringIO(), 0
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        restore_determinism(patch)
        patch.syspath_prepend(str(ROOT / "scripts"))
        patch.setattr(sys, "argv", [script, *arguments])
        # pytest has handlers of its own, so that Python's for warnings writes nothing.
        patch.setattr(logging.getLogger("keras_transformer"), "handlers", [logging.lastResort])
        try:
            importlib.import_module(pathlib.Path(script).stem).main()
        except SystemExit as end:
            code = end.code
    assert not code, code
    return subprocess.CompletedProcess(command, 0, stdout.getvalue(), stderr.getvalue())


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A small TSV of short dates: one shape to compile, so that a run takes seconds."""
    path = tmp_path_factory.mktemp("data") / "pairs.tsv"
    train = data.dates(num_train=1600, num_valid=1, num_test=1, seed=2).train
    rows = zip(train.source, train.target, strict=True)
    short = [f"{source}\t{target}\n" for source, target in rows if 8 <= len(source) < 12]
    path.write_text("".join(short[:200]), encoding="utf-8")
    return path


def options(pairs, output, epochs="3"):
    small = [*TINY, "--dropout", "0.1", "--no-norm-first", "--vocabulary", "char"]
    small += ["--vocabulary-size", "None", "--batch-size", "32", "--epochs", epochs, "--beams", "1"]
    small += ["--warmup-steps", "10", "--average", "0", "--deterministic"]
    return ["--pairs", pairs, "--output", output, *small]


@pytest.fixture(scope="module")
def finished(pairs, tmp_path_factory):
    """A run that nobody killed."""
    output = tmp_path_factory.mktemp("runs") / "whole"
    return output, run([*TRAIN, *options(pairs, output)]).stdout


def weights_of(output):
    return keras.saving.load_model(output / "model.keras").get_weights()


@pytest.mark.slow
def test_a_run_leaves_model_history_settings_scores_and_pictures(finished):
    output, printed = finished
    names = {path.name for path in output.iterdir()}
    pictures = {"learning_curve.png", "attention.png"}
    assert pictures | {"model.keras", "history.csv", "settings.json", "scores.json"} <= names
    for picture in pictures:
        assert (output / picture).read_bytes().startswith(b"\x89PNG")
    settings = json.loads((output / "settings.json").read_text("utf-8"))
    assert settings["arguments"]["seed"] == 0 and settings["versions"]["keras"] == keras.__version__
    assert keras.backend.backend() in settings["command"]
    scores = json.loads((output / "scores.json").read_text("utf-8"))
    assert scores["split"] == "validation" and "tok:13a" in scores["signature"]
    history = history_of(output)
    assert [int(row["epoch"]) for row in history] == [0, 1, 2]
    assert float(history[-1]["val_perplexity"]) < float(history[0]["val_perplexity"])
    for shown in ("tokens_per_second", "token_accuracy", "reference", "shapes (XLA compiles each)"):
        assert shown in printed


@pytest.mark.slow
def test_a_run_killed_at_any_time_and_resumed_ends_with_the_same_bits(finished, pairs, tmp_path):
    whole, _ = finished
    output = tmp_path / "killed"
    chance = random.Random(5)

    def started(*arguments, **kwargs):
        command = [str(part) for part in (*TRAIN, *arguments)]
        return subprocess.Popen(command, cwd=ROOT, text=True, **kwargs)

    silent = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # The power fails in the first epoch, perhaps before it, and in a later one.
    resume = ["--resume", "--output", output]
    for moment, seconds in (("settings.json", 3), ("checkpoint/epoch-000[2-9]*", 0.3)):
        again = (output / "settings.json").exists()
        process = started(*(resume if again else options(pairs, output)), **silent)
        while not list(output.glob(moment)):
            assert process.poll() is None, "the run ended before it was killed"
            time.sleep(0.005)
        time.sleep(chance.uniform(0, seconds))
        process.send_signal(signal.SIGKILL)
        process.wait()
    process = started(*resume, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    for resumed, uninterrupted in zip(weights_of(output), weights_of(whole), strict=True):
        np.testing.assert_array_equal(resumed, uninterrupted)
    assert history_of(output) == history_of(whole)


@pytest.fixture(scope="module")
def regularized(pairs, tmp_path_factory):
    """A run with what helps on small data, from JSON Lines."""
    folder = tmp_path_factory.mktemp("regularized")
    lines = [line.split("\t") for line in pairs.read_text("utf-8").splitlines()]
    rows = [json.dumps({"from": source.upper(), "to": target}) for source, target in lines]
    (folder / "pairs.jsonl").write_text("\n".join([*rows, rows[0]]), encoding="utf-8")
    files = ["--pairs", folder / "pairs.jsonl", "--sides", "from", "to", "--lowercase", "--unique"]
    model = ["--recipe", "small", *TINY, "--vocabulary-size", "100"]
    rate = ["--schedule", "cosine", "--warmup-steps", "10", "--clip-norm", "1"]
    helps = ["--r-drop", "5", "--subword-alpha", "0.1", "--attention-dropout", "0.1"]
    helps += ["--length-penalty", "1.1", "--diversify", "0"]
    stop = ["--bleu-sentences", "4", "--patience", "2", "--average", "2", "--beams", "2"]
    few = ["--epochs", "2", "--tokens-per-batch", "600", "--output", folder / "run"]
    log = ["--tensorboard"] if HAS_TENSORBOARD else []
    return folder / "run", run([*TRAIN, *files, *model, *rate, *helps, *stop, *few, *log])


@pytest.mark.slow
def test_a_run_with_all_that_helps_on_small_data(regularized):
    output, result = regularized
    history = history_of(output)
    assert float(history[-1]["val_perplexity"]) < float(history[0]["val_perplexity"])
    assert all(0 <= float(row["val_bleu"]) <= 100 for row in history)
    assert "1 repeated" in result.stderr and "minutes_left" in result.stdout
    settings = json.loads((output / "settings.json").read_text("utf-8"))["arguments"]
    assert (settings["num_layers"], settings["d_model"]) == (1, 32)
    assert (settings["dropout"], settings["vocabulary"]) == (0.3, "bpe")  # of the recipe
    assert settings["r_drop"] == 5 and settings["epochs"] == 2
    translator = keras.saving.load_model(output / "model.keras")
    assert translator.lowercase
    assert (translator.config.beams, translator.config.length_penalty) == (2, 1.1)
    assert translator.model.config.norm_first


@pytest.fixture(scope="module")
def diversified(pairs, tmp_path_factory):
    """A run that also learns from two teachers; nobody killed it."""
    output = tmp_path_factory.mktemp("diversified") / "whole"
    few = ["--diversify", "1", "--seed", "3"]
    return output, run([*TRAIN, *options(pairs, output, epochs="2"), *few]).stdout


@pytest.mark.slow
def test_teachers_of_both_directions_are_trained_and_their_translations_added(diversified, pairs):
    output, printed = diversified
    table = [line.split("\t") for line in pairs.read_text("utf-8").splitlines()]
    forward, backward = (output / "teachers" / name for name in ("forward-1", "backward-1"))
    for folder in (forward, backward):
        settings = json.loads((folder / "settings.json").read_text("utf-8"))["arguments"]
        assert (settings["seed"], settings["diversify"]) == (4, 0)
        translations = json.loads((folder / "translations.json").read_text("utf-8"))
        translator = keras.saving.load_model(folder / "model.keras")
        train, _ = data.train_valid_split(data.read_pairs(pairs))
        texts = train.source if folder == forward else train.target
        assert len(translations) == len(texts)
        assert translations[:8] == translator.translate(texts[:8])
    (line,) = [line for line in printed.splitlines() if "with translations of models" in line]
    old, new = (int(word) for word in line.split() if word.isdecimal())
    assert old == len(table) - len(table[::50]) and 0 < new <= 2 * old


@pytest.mark.slow
@pytest.mark.parametrize(
    "killed", [["teachers/backward-1", "."], ["."]], ids=["in_a_teacher", "after_them"]
)
def test_a_diversified_run_continues_where_it_was_killed(diversified, killed, tmp_path):
    whole, _ = diversified
    output = tmp_path / "killed"
    shutil.copytree(whole, output)
    for name in killed:  # as in the first epoch of the first of them
        shutil.rmtree(output / name / "checkpoint")
        (output / name / "history.csv").write_text("")
        for file in ("model.keras", "translations.json"):
            (output / name / file).unlink(missing_ok=True)
    result = run([*TRAIN, "--resume", "--output", output])
    in_teacher = "teachers/backward-1" in killed
    assert ("Training teacher backward-1" in result.stdout) == in_teacher
    assert "Training teacher forward-1" not in result.stdout
    for name in killed:
        assert history_of(output / name) == history_of(whole / name)
        both = zip(weights_of(output / name), weights_of(whole / name), strict=True)
        for resumed, uninterrupted in both:
            np.testing.assert_array_equal(resumed, uninterrupted)


def test_teachers_add_a_second_target_or_a_second_source_once():
    pairs = data.Examples(["a dog", "a cat", "a fox"], ["ein Hund", "eine Katze", "ein Fuchs"])
    translations = {
        ("forward", 1): ["ein Tier", "eine Katze", ""],  # new, known, none
        ("backward", 1): ["one dog", "a cat", "a fox"],
        ("forward", 2): ["ein Tier", "die Katze", "ein Fuchs"],
        ("backward", 2): ["a dog", "one cat", "one fox"],
    }
    made = add_translations(pairs, 2, lambda direction, number: translations[direction, number])
    assert list(zip(*made, strict=True)) == [
        *zip(*pairs, strict=True),
        ("a dog", "ein Tier"),
        ("one dog", "ein Hund"),
        ("a cat", "die Katze"),
        ("one cat", "eine Katze"),
        ("one fox", "ein Fuchs"),
    ]
    assert add_translations(pairs, 1, lambda name, _: pairs[name == "forward"]) == pairs


def test_teachers_read_no_test_data(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    script = importlib.import_module("train_translation")
    read = []

    def teach(examples, number, folder, train_teacher):
        for direction in ("forward", "backward"):
            with pytest.raises(KeyboardInterrupt):
                train_teacher(direction, number, folder)

    def prepare(options, splits, tokenizers):
        read.append(splits)
        raise KeyboardInterrupt

    monkeypatch.setattr(script.training, "diversify", teach)
    monkeypatch.setattr(script, "prepare", prepare)
    options = script.TRANSLATION["small"].replace(output=str(tmp_path))
    pairs = data.Examples(["a"], ["A"])
    run = Run(tmp_path)
    script.diversify(options, run, data.Splits(pairs, pairs, pairs), [None, None])
    assert read == [(pairs, pairs, None), (pairs[::-1], pairs[::-1], None)]


def test_a_teacher_translates_with_the_engine_of_the_run_and_learns_without(monkeypatch, tmp_path):
    pytest.importorskip("ctranslate2", reason="engines are optional")
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    script = importlib.import_module("train_translation")
    kinds, teacher, pairs = [], kt.load("dates"), data.Examples(["a"], ["A"])

    def teach(examples, number, folder, train_teacher):
        assert train_teacher("forward", 1, folder / "forward-1") is teacher
        kinds.append(type(teacher._decoding).__name__)

    monkeypatch.setattr(script.training, "diversify", teach)
    monkeypatch.setattr(script, "prepare", lambda *_: (teacher, pairs, pairs))
    monkeypatch.setattr(script, "fit", lambda *_: kinds.append(type(teacher._decoding).__name__))
    options = script.TRANSLATION["small"].replace(output=str(tmp_path), engine="ctranslate2")
    script.diversify(options, Run(tmp_path), data.Splits(pairs, pairs, pairs), [None, None])
    assert kinds == ["Decoding", "CTranslate2Decoding"]


class Scripted:
    """A translator whose translations are known; it counts the texts that it translates."""

    model = None

    def __init__(self, translations):
        self.translations, self.number = translations, 0

    def translate(self, texts):
        self.number += len(texts)
        return [self.translations[text] for text in texts]


def test_models_add_targets_to_the_sources_and_tagged_sources_to_other_text(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    script = importlib.import_module("train_translation")
    pairs = data.Examples(["a dog", "a cat", "a fox"], ["ein Hund", "eine Katze", "ein Fuchs"])
    texts = ["ein Uhu", "ein Hund", "ein Ei"]
    models = {
        "distill_from": Scripted({"a dog": "der Hund", "a cat": "eine Katze", "a fox": ""}),
        "back_translator": Scripted({"ein Uhu": "an owl", "ein Hund": "a dog", "ein Ei": ""}),
    }
    given = {"distill_from": ("x",), "monolingual": ("y",), "back_translator": ("z",)}
    options = script.TRANSLATION["quick"].replace(output=str(tmp_path), **given)

    run, splits = Run(tmp_path), data.Splits(pairs, pairs, None)

    def learned(options, teachers):
        found = script.learn_from_models(options, run, splits, None, texts, teachers)
        assert not teachers  # they need no memory any more
        return list(zip(*found, strict=True))

    expected = [*zip(*pairs, strict=True), ("a dog", "der Hund"), ("an owl", "ein Uhu")]
    assert learned(options, dict(models)) == expected
    assert learned(options, {}) == expected  # from the files of the run
    assert [model.number for model in models.values()] == [3, 3]
    tagged = options.replace(back_tag="<BT>", lowercase=True)
    expected[-1] = ("<bt> an owl", "ein Uhu")
    assert learned(tagged, {}) == [*expected, ("<bt> a dog", "ein Hund")]


def test_what_models_write_and_the_model_cannot_read_is_dropped(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    script = importlib.import_module("train_translation")
    pairs = data.Examples(["abc", "abcd"], ["cba", "dcba"])
    tokenizers = [kt.train_tokenizer(["abcd"], model_type="char")] * 2
    model = Scripted({"abc": "abcdabcd", "abcd": "abcdabc"})
    options = script.TRANSLATION["dates"].replace(
        output=str(tmp_path), distill_from=("x",), max_length=8, rotary=False
    )
    splits = data.Splits(pairs, pairs, None)
    given = options, Run(tmp_path), splits, tokenizers, None, {"distill_from": model}
    assert script.learn_from_models(*given) == (["abc", "abcd", "abcd"], ["cba", "dcba", "abcdabc"])
    assert "Dropped 1 of them, of more than 8 tokens." in capsys.readouterr().out


@pytest.mark.slow
def test_a_model_that_learns_from_another_begins_with_its_own_weights(finished, pairs, tmp_path):
    model = finished[0] / "model.keras"
    few = ["--learning-rate", "1e-12", "--epochs", "1", "--batch-size", "32"]
    few += ["--init-from", model, "--distill-from", model]
    run([*TRAIN, "--pairs", pairs, "--output", tmp_path / "run", *few])
    for one, other in zip(weights_of(tmp_path / "run"), weights_of(finished[0]), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_teachers_are_loaded_unless_the_run_has_their_translations(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    script = importlib.import_module("train_translation")
    made = data.dates(num_train=20, num_valid=2, num_test=1)
    given = {"distill_from": ("dates", "dates"), "back_translator": ("dates",)}
    options = script.TRANSLATION["quick"].replace(monolingual=("-",), **given)
    run = Run(tmp_path)
    teachers = script.load_teachers(options, run, made, ["2019-04-22"])
    assert list(teachers) == ["distill_from", "back_translator"]
    assert len(teachers["distill_from"].transformer.models) == 2
    path = script.translations_file(run, "distill_from")
    path.parent.mkdir(parents=True)
    path.write_text("[]")  # of an earlier run, which this one replaces
    assert len(script.load_teachers(options, run, made, ["2019-04-22"])) == 2
    run.resume = True
    assert list(script.load_teachers(options, run, made, ["2019-04-22"])) == ["back_translator"]


@pytest.mark.slow
def test_a_distilled_and_back_translated_run_continues_without_its_teachers(
    finished, pairs, tmp_path
):
    rows = [line.split("\t") for line in pairs.read_text("utf-8").splitlines()]
    text, backward = tmp_path / "targets.txt", tmp_path / "backward"
    text.write_text("".join(f"{target}\n" for _, target in rows[::-1]), "utf-8")
    run([*TRAIN, *options(pairs, backward, epochs="1"), "--sides", "2", "1"])
    teachers = []
    for name, folder in (("1", finished[0]), ("2", finished[0]), ("back", backward)):
        teachers.append(tmp_path / f"{name}.keras")
        shutil.copyfile(folder / "model.keras", teachers[-1])
    given = ["--distill-from", *teachers[:2], "--monolingual", text, "--back-tag", "<bt>"]
    given += ["--back-translator", teachers[2]]
    whole, output = tmp_path / "whole", tmp_path / "killed"
    printed = run([*TRAIN, *options(pairs, whole, epochs="2"), *given]).stdout
    assert printed.count("with translations of models") == 2
    translator = keras.saving.load_model(whole / "model.keras")
    reader = translator.source_tokenizer
    assert "<bt>" in reader.tokens(reader.encode(["<bt> 3"])[0])
    single = keras.saving.load_model(teachers[0])
    train, _ = data.train_valid_split(data.read_pairs(pairs))
    made = json.loads((whole / "teachers/distill-from/translations.json").read_text("utf-8"))
    assert made[:8] == single.translate(train.source[:8]) and len(made) == len(train.source)
    shutil.copytree(whole, output)
    shutil.rmtree(output / "checkpoint")  # as in the first epoch
    (output / "history.csv").write_text("")
    (output / "model.keras").unlink()
    for path in teachers:
        path.unlink()
    run([*TRAIN, "--resume", "--output", output])
    assert history_of(output) == history_of(whole)
    for resumed, uninterrupted in zip(weights_of(output), weights_of(whole), strict=True):
        np.testing.assert_array_equal(resumed, uninterrupted)


def test_few_pairs_are_told_of_the_recipe_for_them(inside, directions, capsys):
    script = importlib.import_module("train_translation")
    splits = script.load(directions, [])
    tokenizers = script.find_tokenizers(directions, splits.train, None)
    for recipe, size, told in (("quick", 4, True), ("few", 4, False), ("quick", 2, False)):
        options = directions.replace(recipe=recipe, batch_size=size)
        _, train, _ = script.prepare(options, splits, tokenizers)
        script.advise(options, train)
        printed = capsys.readouterr().out
        assert (printed == "") == (not told)
    assert len(train) > 30


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TENSORBOARD, reason="TensorBoard is not installed")
def test_tensorboard_logs_are_written(regularized):
    events = [path.parent.name for path in regularized[0].glob("tensorboard/*/events*")]
    assert sorted(events) == ["train", "validation"]


@pytest.mark.skipif(HAS_TENSORBOARD, reason="TensorBoard is installed")
def test_a_missing_tensorboard_is_known_before_training(inside, tmp_path):
    result = inside([*TRAIN, "--output", tmp_path / "run", "--tensorboard"])
    last = result.stderr.strip().splitlines()[-1]
    assert result.returncode == 1 and last.startswith("--tensorboard needs TensorFlow")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_mean_of_the_last_checkpoints_can_be_taken_again(regularized):
    output, _ = regularized
    console.main(["average", str(output)])
    same = keras.saving.load_model(output / "average-2.keras").get_weights()
    for one, other in zip(same, weights_of(output), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)


@pytest.fixture
def started(inside, tmp_path):
    """The folder of a run that was started and has no epoch yet."""
    output = tmp_path / "started"
    recipes = importlib.import_module("recipes").TRANSLATION
    started = recipes["dates"].replace(recipe="dates", output=str(output))
    Run(output).begin(started.flat(), data=[])
    return output


def test_a_folder_that_contains_a_run_is_not_overwritten(inside, started):
    before = (started / "settings.json").read_bytes()
    result = inside([*TRAIN, "--output", started])
    assert result.returncode == 1 and "--resume" in result.stderr and "--overwrite" in result.stderr
    assert (started / "settings.json").read_bytes() == before


def test_a_resumed_run_keeps_its_settings(inside, started):
    result = inside([*TRAIN, "--resume", "--output", started, "--learning-rate", "1"])
    assert result.returncode == 1 and "leave out --learning-rate" in result.stderr


def test_there_is_no_run_to_resume_in_an_empty_folder(inside, tmp_path):
    result = inside([*TRAIN, "--resume", "--output", tmp_path])
    assert result.returncode == 1 and "no run to resume" in result.stderr


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["--source", "nowhere.en", "--target", "nowhere.de"], "nowhere.en"),
        (["--source", "nowhere.en"], "--source and --target go together"),
        (["--pairs", "x", "--valid-target", "x"], "x: no such file"),
        (["--pairs", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
        (["--dataset", "tfds:no_such_set"], "no_such_set: "),
        (["--valid-pairs", "nowhere.tsv"], "No training data: give --source and --target"),
        (["--diversify", "-1"], "diversify must be an integer of at least 0"),
        (["--monolingual", "x"], "--monolingual needs --back-translator"),
        (["--back-tag", "<bt>"], "--back-tag would not be used: it needs --monolingual"),
        (["--distill-from", "nowhere.keras"], "nowhere.keras"),
        (["--tokenize", "nonsense"], "tokenize must be one of sacreBLEU's tokenizers"),
        (["--epochs", "0"], "epochs must be an integer of at least 1"),
    ],
)
def test_what_cannot_be_trained_is_one_sentence_and_no_folder(
    inside, arguments, expected, tmp_path
):
    result = inside([*TRAIN, *arguments, "--output", tmp_path / "run"])
    last = result.stderr.strip().splitlines()[-1]
    assert result.returncode == 1 and expected in last and "Traceback" not in result.stderr
    assert not (tmp_path / "run").exists()


def test_an_output_that_is_a_file_is_one_sentence(inside, tmp_path):
    (tmp_path / "file").write_text("")
    result = inside([*TRAIN, "--output", tmp_path / "file" / "run"])
    assert result.returncode == 1 and "is a file; the run needs a folder" in result.stderr


@pytest.mark.parametrize(
    "sides, expected",
    [(None, "a A"), (("2", "1"), "A a"), (("1", "3"), "a B"), (("x", "z"), "a A")],
)
def test_sides_choose_the_columns_of_a_table(inside, tmp_path, sides, expected):
    head = "" if sides is None or sides[0].isdecimal() else "x\tz\ty\n"
    (tmp_path / "a.tsv").write_text(f"{head}a\tA\tB\nc\tC\tD\n", encoding="utf-8")
    dates = importlib.import_module("recipes").TRANSLATION["dates"]
    files = dates.replace(pairs=str(tmp_path / "a.tsv"), sides=sides).files
    train = importlib.import_module("train_translation").read_pairs(files, "train")
    assert f"{train.source[0]} {train.target[0]}" == expected


def test_several_files_and_patterns_are_read_in_order(inside, tmp_path):
    for number in (2, 1):
        (tmp_path / f"{number}.en").write_text(f"source {number}\n")
        (tmp_path / f"{number}.de").write_text(f"target {number}\n")
        (tmp_path / f"{number}.tsv").write_text(f"source {number}\ttarget {number}\n")
    dates = importlib.import_module("recipes").TRANSLATION["dates"]
    read = importlib.import_module("train_translation").read_pairs
    one, other = (["source 1", "source 2"], ["target 1", "target 2"])
    for given in (
        {"source": (f"{tmp_path}/*.en",), "target": (f"{tmp_path}/*.de",)},
        {"pairs": (f"{tmp_path}/[1-2].tsv",)},
    ):
        assert read(dates.replace(**given).files, "train") == (one, other)
    twice = dates.replace(pairs=(f"{tmp_path}/1.tsv", f"{tmp_path}/1.tsv"))
    assert read(twice.files, "train") == (one[:1] * 2, other[:1] * 2)
    fewer = dates.replace(source=(f"{tmp_path}/*.en",), target=(f"{tmp_path}/1.de",))
    with pytest.raises(ValueError, match="must have as many files; received 2 and 1"):
        read(fewer.files, "train")


def test_files_of_patterns_are_of_the_same_parts(inside, tmp_path):
    def read(source, target):
        return data.parallel_files([f"{tmp_path}/{source}"], [f"{tmp_path}/{target}"])

    names = (
        "n.1.en n.2.en n.2.de n.3.de en/1.txt en/2.txt de/1.txt de/2.txt n.3.en x.es x.en y.es y.en"
    )
    for name in names.split():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a\n")
    message = r"n.\[12\].en and .*n.\*.de must fit the same parts .*n.1.en would go with .*n.2.de, "
    with pytest.raises(ValueError, match=rf"{message}and .*n.2.en with .*n.3.de. Name each file"):
        read("n.[12].en", "n.*.de")
    assert len(read("n.[23].en", "n.*.de")) == len(read("[xy].es", "[xy].en")) == 2
    assert [pathlib.Path(b).name for _, b in read("en/*", "de/*")] == ["1.txt", "2.txt"]
    named = (
        [f"{tmp_path}/n.1.en", f"{tmp_path}/n.2.en"],
        [f"{tmp_path}/n.2.de", f"{tmp_path}/n.3.de"],
    )
    assert data.parallel_files(*named) == list(zip(*named, strict=True))  # as they are named


@pytest.fixture
def directions(inside, tmp_path):
    """Options of a model with language tags, for 60 pairs of en-de and 15 of en-fr."""
    for name, number in (("en-de.tsv", 60), ("en-fr.tsv", 15), ("valid_en-fr.tsv", 3)):
        rows = [f"{name[:-4]} {n}\t{n} {name[-6:-4]}\n" for n in range(number)]
        (tmp_path / name).write_text("".join(rows), encoding="utf-8")
    pairs = tuple(str(tmp_path / name) for name in ("en-de.tsv", "en-fr.tsv"))
    dates = importlib.import_module("recipes").TRANSLATION["dates"]
    return dates.replace(pairs=pairs, language_tags=True, reserve=("<x>",))


def targets(examples):
    """How often each tag is followed by each language in the target."""
    rows = zip(*examples, strict=True)
    return collections.Counter((text.split()[0], other.split()[-1]) for text, other in rows)


def test_the_source_of_each_direction_begins_with_the_tag_of_its_target(directions):
    train_translation = importlib.import_module("train_translation")
    splits = train_translation.load(directions, [])
    assert targets(splits.train) == {("<2de>", "de"): 58, ("<2fr>", "fr"): 14}
    assert targets(splits.valid) == {("<2de>", "de"): 2, ("<2fr>", "fr"): 1}
    source, target = train_translation.find_tokenizers(directions, splits.train, None)
    assert source is target and source.tokens([4, 5, 6]) == ["<x>", "<2de>", "<2fr>"]
    for text, ids in zip(splits.train.source, source.encode(splits.train.source), strict=True):
        assert (ids.count(5), ids.count(6)) == ((1, 0) if text.startswith("<2de>") else (0, 1))
    translator, *_ = train_translation.prepare(directions, splits, [source, target])
    assert translator.directions == ("en-de", "en-fr")


@pytest.mark.usefixtures("inside")
def test_placeholders_of_training_pairs_are_masked_on_both_sides():
    train_translation = importlib.import_module("train_translation")
    dates = importlib.import_module("recipes").TRANSLATION["dates"]
    options = dates.replace(placeholders=("url", "tag"))
    sources = ["See <b>a</b> http://a.b/c.", "a {x}", "See"]
    pairs = data.Examples(sources, ["http://a.b/c: <b>s</b>", "s", "s"])
    splits = data.Splits(pairs, pairs, None)
    source, target = train_translation.find_tokenizers(options, pairs, None)
    assert source.tokens(range(4, 14)) == list(data.MASKS)
    prepared = train_translation.prepare(options, splits, [source, target])
    translator, valid = prepared[0], prepared[2]
    assert translator.placeholders == ("url", "tag")
    read = [text for batch, _ in valid for text in source.decode(batch["source_ids"]) if text]
    assert sorted(read) == ["See", "See ⟦0⟧a⟦1⟧ ⟦2⟧.", "a {x}"]
    written = [text for _, labels in valid for text in target.decode(labels) if text]
    assert sorted(written) == ["s", "s", "⟦2⟧: ⟦0⟧s⟦1⟧"]


def test_directions_may_be_given_or_reversed_and_equal_in_number(directions, tmp_path):
    load = importlib.import_module("train_translation").load
    given = directions.replace(directions=("en-xx", "fr-yy"), valid_pairs=directions.files.pairs)
    assert given.files.all_directions() == ["en-xx", "fr-yy"]
    assert targets(load(given, []).train) == {("<2xx>", "de"): 60, ("<2yy>", "fr"): 15}
    both = directions.replace(both_directions=True)
    assert both.files.all_directions() == ["en-de", "en-fr", "de-en", "fr-en"]
    splits = load(both, [])
    assert {tag: n for (tag, _), n in targets(splits.train).items() if tag != "<2en>"} == {
        "<2de>": 58,
        "<2fr>": 14,
    }
    backwards = [text for text in splits.train.source if text.startswith("<2en>")]
    assert len(backwards) == 72 and len(splits.valid.source) == 6
    known = {text.removeprefix("<2en> ") for text in backwards}
    assert known <= {*splits.train.target} and not known & {*splits.valid.target}
    valid = str(tmp_path / "valid_en-fr.tsv")
    equal = load(directions.replace(corpus_temperature=1e9, valid_pairs=(valid,)), [])
    assert targets(equal.train) == {("<2de>", "de"): 60, ("<2fr>", "fr"): 60}
    assert targets(equal.valid) == {("<2fr>", "fr"): 3}
    with pytest.raises(ValueError, match="--directions must be as many as the 2 files of --pairs"):
        load(directions.replace(directions=("en-de",)), [])
    with pytest.raises(ValueError, match="A direction must be like en-de"):
        directions.replace(directions=("en-de", "pt-BR-en"))


def test_no_direction_trains_on_what_another_one_validates(directions, tmp_path):
    load = importlib.import_module("train_translation").load
    numbers = range(200)
    (tmp_path / "en-de.tsv").write_text("".join(f"en {n}\tde {n}\n" for n in numbers))
    alone = load(directions.replace(pairs=(str(tmp_path / "en-de.tsv"),)), [])
    (tmp_path / "en-fr.tsv").write_text("".join(f"en {n}\tfr {n}\n" for n in numbers[7:]))
    (tmp_path / "de-en.tsv").write_text("".join(f"de {n}\ten {n}\n" for n in numbers[3:]))
    pairs = tuple(str(tmp_path / f"{each}.tsv") for each in ("en-de", "en-fr", "de-en"))
    splits = load(directions.replace(pairs=pairs), [])
    validated = {text.split(maxsplit=1)[1] for text in splits.valid.source}
    trained = {text.split(maxsplit=1)[1] for text in splits.train.source} | {*splits.train.target}
    assert len(validated) == 12 and not validated & trained
    of_first = [text for text in splits.valid.source if text.startswith("<2de>")]
    assert of_first == alone.valid.source and len(alone.train.source) == 196


@pytest.mark.parametrize("name", ["diversify", "valid_source", "mix_pairs"])
def test_data_without_a_direction_is_refused_with_language_tags(directions, name):
    expected = "--language-tags, not both: each file of pairs has a direction"
    with pytest.raises(ValueError, match=expected):
        directions.replace(**{name: 1 if name == "diversify" else ("a.tsv",)})


def test_a_model_trained_further_must_know_the_tags(directions, dates_translator):
    train_translation = importlib.import_module("train_translation")
    with pytest.raises(ValueError, match="in the vocabulary of --init-from; .*missing='<2de>'"):
        train_translation.find_tokenizers(directions, None, dates_translator)


def test_a_direction_that_is_not_trained_is_not_validated(directions):
    train_translation = importlib.import_module("train_translation")
    splits = train_translation.load(directions, [])
    tokenizers = train_translation.find_tokenizers(directions, splits.train, None)
    wrong = data.Examples(["<2xx> a"], ["b"])
    for name in ("valid", "test"):
        with pytest.raises(ValueError, match="has no target language: this model translates into"):
            train_translation.prepare(directions, splits._replace(**{name: wrong}), tokenizers)


def test_a_model_trained_further_keeps_its_directions(directions):
    train_translation = importlib.import_module("train_translation")
    splits = train_translation.load(directions, [])
    tokenizers = train_translation.find_tokenizers(directions, splits.train, None)
    initial, *_ = train_translation.prepare(directions, splits, tokenizers)
    one = directions.replace(pairs=directions.files.pairs[1:])
    further, *_ = train_translation.prepare(
        one, train_translation.load(one, []), tokenizers, initial
    )
    assert further.directions == initial.directions == ("en-de", "en-fr")
    plain = directions.replace(language_tags=False)
    with pytest.raises(ValueError, match="trained further with --language-tags; received directi"):
        train_translation.prepare(plain, splits, tokenizers, initial)


@pytest.mark.slow
def test_one_run_learns_several_directions_and_resumes_with_the_same_bits(directions, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    files = ["--pairs", *directions.files.pairs, "--language-tags", "--both-directions"]
    files += ["--corpus-temperature", "5", "--schedule", "paper"]
    for output, epochs in ((whole, "2"), (parts, "1")):
        run([*TRAIN, *files, *options(None, output, epochs)[2:]])
    run([*TRAIN, "--resume", "--output", parts, "--epochs", "2"])
    pairs = zip(weights_of(parts), weights_of(whole), strict=True)
    assert all(np.array_equal(resumed, uninterrupted) for resumed, uninterrupted in pairs)
    scores = json.loads((whole / "scores.json").read_text("utf-8"))
    assert {"bleu_to_de", "bleu_to_en", "bleu_to_fr"} <= scores.keys()
    model = keras.saving.load_model(whole / "model.keras")
    assert model.directions == ("en-de", "en-fr", "de-en", "fr-en")
    assert len(model.translate(["en-de 1"], to="fr")) == 1


def test_help_teaches(inside):
    result = inside([*TRAIN, "--help"])
    assert result.returncode == 0
    for words in ("Without data it learns generated dates", "KERAS_BACKEND", "--resume"):
        assert words in result.stdout
    assert "--target train.de \\\n        --valid-source val.en" in result.stdout
