"""The folder of a training run: not lost by accident, resumed as it was started, ended rightly."""

import contextlib
import csv
import json
import os
import shlex
import sys

import keras
import numpy as np
import pytest

from keras_transformer import atomic, backend
from keras_transformer.training import PrintSamples, Run, evenly_spaced
from keras_transformer.training import run as run_module
from keras_transformer.training.checkpoints import checkpoint_paths

ARGUMENTS, DATA = {"seed": 3, "learning_rate": 0.5}, (["May"], ["五月"])


class Rows(keras.utils.PyDataset):
    """One batch of (x, 2 x)."""

    num_tokens, epoch = 8, 0

    def __len__(self):
        return 1

    def __getitem__(self, index):
        x = np.arange(8.0, dtype="float32").reshape(8, 1) / 8
        return x, 2 * x


def doubling(learning_rate=0.1):
    dense = keras.layers.Dense(1, kernel_initializer="ones")
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dropout(0.2), dense])
    model.compile(keras.optimizers.Adam(learning_rate), "mse", run_eagerly=True)  # sooner done
    return model


def started(folder, **kwargs):
    run = Run(folder, **kwargs)
    run.begin(ARGUMENTS, DATA)
    return run


def fit(run, model, epochs, callbacks=(), **kwargs):
    """Trains as a script does."""
    of_run = run.callbacks(Rows(), **kwargs)
    for span in run.restore(model, epochs):
        model.fit(
            Rows(),
            validation_data=Rows(),
            **span,
            callbacks=[*callbacks, *of_run],
            shuffle=False,
            verbose=0,
        )
    run.finish(model)


def visible(folder):
    """The names in a folder, but for the lock."""
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def history_of(run):
    with open(run.folder / "history.csv", newline="", encoding="utf-8") as file:
        return [(row["epoch"], row["loss"], row["val_loss"]) for row in csv.DictReader(file)]


def test_nothing_is_written_before_a_run_begins(tmp_path):
    folder = tmp_path / "new" / "run"
    run = Run(folder)
    assert not folder.parent.exists()
    run.begin(ARGUMENTS, DATA)
    assert visible(folder) == ["settings.json"]
    settings = json.loads((folder / "settings.json").read_text("utf-8"))
    assert run.settings == settings and settings["arguments"] == ARGUMENTS
    assert settings["versions"]["keras"] == keras.__version__
    assert settings["command"].startswith(f"KERAS_BACKEND={keras.backend.backend()} ")


OF_AN_OLD_RUN = [
    "checkpoint/epoch-0001.weights.h5",
    "teachers/forward-1/settings.json",
    "teachers/forward-1/checkpoint/epoch-0001.weights.h5",
    "tensorboard/train/events.out.tfevents.17.host.v2",
    "history.csv",
    "model.keras",
    "average-3.keras",
    "scores.json",
    "learning_curve.png",
    "attention.png",
    "confusion.png",
    "calibration.png",
    "sample.txt",
]
OF_OTHERS = ["notes.txt", "checkpoint/best.pt", "teachers/forward-1/mine.txt", "teachers/notes.txt"]


def written(folder, names, text="old"):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def files_in(folder):
    """The names of all files in a folder, but for locks."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in found if not name.endswith(".lock"))


class Saved:
    """A task that writes a file."""

    model = None

    def save(self, path):
        path.write_text("new")


def test_a_run_is_refused_and_overwritten_only_on_demand_and_files_of_others_stay(tmp_path):
    started(tmp_path)
    written(tmp_path, [*OF_AN_OLD_RUN, *OF_OTHERS])
    with pytest.raises(
        FileExistsError, match="already contains a run: use --resume .* --overwrite"
    ):
        Run(tmp_path)
    replacement = Run(tmp_path, overwrite=True)
    assert (tmp_path / "history.csv").exists()  # until it begins
    replacement.begin({"seed": 4}, DATA)
    assert replacement.settings["arguments"] == {"seed": 4}
    kept = [f".replaced-1/{name}" for name in ("settings.json", *OF_AN_OLD_RUN)]
    assert files_in(tmp_path) == sorted([*kept, *OF_OTHERS, "settings.json"])
    assert json.loads((tmp_path / kept[0]).read_text())["arguments"] == ARGUMENTS
    replacement.save(Saved())  # the new one is whole
    assert files_in(tmp_path) == sorted([*OF_OTHERS, "settings.json", "model.keras"])


def test_a_run_without_a_model_is_not_kept_but_the_one_before_it_is(tmp_path):
    started(tmp_path)
    written(tmp_path, ["model.keras"])
    for seed in (4, 5):
        Run(tmp_path, overwrite=True).begin({"seed": seed}, DATA)
        written(tmp_path, ["history.csv"], "new")
    kept = [".replaced-1/model.keras", ".replaced-1/settings.json"]
    assert files_in(tmp_path) == [*kept, "history.csv", "settings.json"]


@pytest.mark.parametrize("kill_at", range(2 * len(OF_AN_OLD_RUN) + 6))
@pytest.mark.parametrize("whole", [True, False])
def test_a_kill_while_a_run_is_overwritten_leaves_no_mixture(tmp_path, monkeypatch, kill_at, whole):
    folder = tmp_path / "run"
    started(folder)
    old = [name for name in OF_AN_OLD_RUN if whole or name != "model.keras"]
    written(folder, [*old, *OF_OTHERS])
    before = files_in(folder)
    replacement = Run(folder, overwrite=True)
    steps = iter(range(100))

    def killed(function):
        def call(*args, **kwargs):
            if next(steps) == kill_at:
                raise KeyboardInterrupt
            return function(*args, **kwargs)

        return call

    for name in ("rename", "unlink"):
        monkeypatch.setattr(os, name, killed(getattr(os, name)))
    monkeypatch.setattr(run_module, "write_text", killed(run_module.write_text))
    with contextlib.suppress(KeyboardInterrupt):
        replacement.begin({"seed": 4}, DATA)
    monkeypatch.undo()
    if (folder / "settings.json").exists() and replacement.settings["arguments"] == ARGUMENTS:
        assert files_in(folder) == before  # the old run
        Run(folder, overwrite=True).begin({"seed": 4}, DATA)
    elif not (folder / "settings.json").exists():
        with pytest.raises(FileNotFoundError, match="no run to resume"):
            Run(folder, resume=True)
        Run(folder).begin({"seed": 4}, DATA)
    kept = [f".replaced-1/{name}" for name in ("settings.json", *old)] if whole else []
    left = [name.replace(".replaced-2", ".replaced-1") for name in files_in(folder)]
    left = [name for name in left if whole or not name.startswith(".replaced")]
    assert left == sorted([*kept, *OF_OTHERS, "settings.json"])
    replacement.save(Saved())
    assert files_in(folder) == sorted([*OF_OTHERS, "model.keras", "settings.json"])


@pytest.mark.parametrize("name", ["settings.json", *OF_AN_OLD_RUN])
def test_files_that_no_run_wrote_are_kept_and_named(tmp_path, name):
    written(tmp_path, [name])
    for options in ({}, {"overwrite": True}):
        with pytest.raises(FileExistsError, match=f"holds {name}, .* an empty folder"):
            Run(tmp_path, **options)
    assert files_in(tmp_path) == [name] and (tmp_path / name).read_text() == "old"


@pytest.mark.parametrize("content", ["[]", "{}", "{", "[" * 10**5, '{"editor.fontSize": 12}'])
def test_settings_of_another_program_are_not_a_run(tmp_path, content):
    (tmp_path / "settings.json").write_text(content)
    with pytest.raises(ValueError, match="expected the settings of a run"):
        Run(tmp_path, resume=True)
    with pytest.raises(FileExistsError, match="holds settings.json"):
        Run(tmp_path, overwrite=True)


def test_a_run_without_its_settings_is_not_replaced(tmp_path):
    started(tmp_path)
    (tmp_path / "settings.json").unlink()
    (tmp_path / "model.keras").write_text("of days")
    with pytest.raises(FileExistsError, match="holds model.keras"):
        Run(tmp_path, overwrite=True)
    assert (tmp_path / "model.keras").read_text() == "of days"


def test_a_lock_that_names_its_process_is_the_runs(tmp_path):
    (tmp_path / ".lock").write_text("mine")
    with pytest.raises(FileExistsError, match="holds .lock"):
        Run(tmp_path)
    (tmp_path / ".lock").unlink()
    started(tmp_path)
    (tmp_path / ".lock").write_text("1234 host")  # where a disk has no locks, filelock does so
    assert Run(tmp_path, resume=True).settings["arguments"] == ARGUMENTS


def test_a_run_begins_in_an_empty_folder_and_next_to_files_of_others(tmp_path):
    started(tmp_path)
    written(tmp_path / "mine", OF_OTHERS)
    started(tmp_path / "mine")
    assert files_in(tmp_path / "mine") == sorted([*OF_OTHERS, "settings.json"])


def test_files_behind_a_link_are_kept(tmp_path):
    started(tmp_path / "run")
    written(tmp_path, ["other/epoch-0001.weights.h5"])
    (tmp_path / "run" / "checkpoint").symlink_to(tmp_path / "other")
    with pytest.raises(FileExistsError, match="behind the link checkpoint"):
        Run(tmp_path / "run", overwrite=True).begin(ARGUMENTS, DATA)
    assert files_in(tmp_path / "other") == ["epoch-0001.weights.h5"]
    assert Run(tmp_path / "run", resume=True).settings["arguments"] == ARGUMENTS


def test_a_run_killed_at_its_first_write_begins_again(tmp_path, monkeypatch):
    def kill(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", kill)
    monkeypatch.setattr(atomic, "_remove", lambda path: None)  # a killed process removes nothing
    with pytest.raises(KeyboardInterrupt):
        started(tmp_path)
    monkeypatch.undo()
    (left,) = visible(tmp_path)
    started(tmp_path)
    assert visible(tmp_path) == [left, "settings.json"]


@pytest.mark.parametrize("name", ["average-mine.keras", f".unfinished-{'0' * 16}-1-1.onnx"])
def test_folders_of_others_stay_when_a_run_is_replaced(tmp_path, name):
    started(tmp_path)
    written(tmp_path, ["model.keras", f"{name}/mine.txt"])
    replacement = Run(tmp_path, overwrite=True)
    replacement.begin(ARGUMENTS, DATA)
    replacement.save(Saved())
    mine = [path for path in files_in(tmp_path) if path.endswith(f"{name}/mine.txt")]
    assert files_in(tmp_path) == sorted([*mine, "model.keras", "settings.json"]) and len(mine) == 1


@pytest.mark.parametrize("name", ["", "/"])
def test_a_run_folder_has_a_name(name):
    with pytest.raises(ValueError, match="folder must"):
        Run(name)


def test_a_resumed_run_keeps_its_settings_and_its_data(tmp_path):
    before = started(tmp_path).settings
    (tmp_path / "history.csv").write_text("old")
    resumed = Run(tmp_path, resume=True, overwrite=True)  # as a run started with --overwrite is
    resumed.begin({**ARGUMENTS, "resume": True}, DATA)
    assert resumed.settings == before and (tmp_path / "history.csv").exists()
    with pytest.raises(ValueError, match="data has changed since .* was started; restore it or"):
        resumed.begin(ARGUMENTS, (["June"], ["六月"]))


def test_another_backend_than_that_of_the_start_is_named(tmp_path, capsys):
    started(tmp_path)
    started(tmp_path, resume=True)
    assert capsys.readouterr().err == ""
    other = "torch" if backend.name() == "jax" else "jax"
    path = tmp_path / "settings.json"
    path.write_text(path.read_text().replace(f'"{backend.name()}": ', f'"{other}": '))
    started(tmp_path, resume=True)
    printed = capsys.readouterr().err
    assert f"started on {other}: on {backend.name()}, rounding and random numbers differ" in printed
    assert printed.endswith(f"KERAS_BACKEND={other}.\n") and printed.count("\n") == 1


def test_a_resumed_run_that_trains_longer_says_so_to_the_next_one(tmp_path):
    arguments = {**ARGUMENTS, "epochs": 1}
    Run(tmp_path).begin(arguments, DATA)
    before = (tmp_path / "settings.json").read_bytes()
    Run(tmp_path, resume=True).begin({**arguments, "resume": True}, DATA)
    assert (tmp_path / "settings.json").read_bytes() == before
    resumed = Run(tmp_path, resume=True)
    resumed.begin({**arguments, "epochs": 6, "resume": True}, DATA)
    settings = json.loads(before)
    settings["arguments"]["epochs"] = 6
    assert resumed.settings == settings


def test_a_resumed_run_keeps_its_validation_and_test_data(tmp_path):
    Run(tmp_path / "old").begin(ARGUMENTS, DATA)
    Run(tmp_path / "run").begin(ARGUMENTS, DATA, ["valid"])
    resumed = {name: Run(tmp_path / name, resume=True) for name in ("old", "run")}
    for validation_data in (None, ["valid"]):
        resumed["run"].begin(ARGUMENTS, DATA, validation_data)
    resumed["old"].begin(ARGUMENTS, DATA, ["other"])  # of before it was compared
    with pytest.raises(ValueError, match="The validation data has changed since .* was started"):
        resumed["run"].begin(ARGUMENTS, DATA, ["other"])
    with pytest.raises(ValueError, match="The training data has changed since"):
        resumed["run"].begin(ARGUMENTS, ["other"], ["valid"])
    Run(tmp_path / "tested").begin(ARGUMENTS, DATA, ["valid"], ["test"])
    tested = Run(tmp_path / "tested", resume=True)
    with pytest.raises(ValueError, match="The test data has changed since"):
        tested.begin(ARGUMENTS, DATA, ["valid"], ["other"])


def test_data_that_differs_in_its_borders_alone_is_other_data(tmp_path):
    both = ["ab", "c"], ["a", "bc"], ["abc"], [["ab", "c"]], ["ab", "c", ""], ["[2]", "ab", "c"]
    hashes = set()
    for number, data in enumerate(both):
        run = Run(tmp_path / str(number))
        run.begin({}, data)
        hashes.add(run.settings["data"])
    assert len(hashes) == len(both)


@pytest.mark.parametrize(
    "content", ["", "[", "[]", "3", '{"data": ""}', '{"arguments": []}', "[" * 10**5]
)
def test_damaged_settings_are_one_sentence(tmp_path, content):
    path = tmp_path / "settings.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="settings.json: expected the settings of a run, received"):
        run_module.read_settings(path)


def test_the_command_in_the_settings_can_be_copied_to_a_shell(tmp_path, monkeypatch):
    words = ["python", "scripts/train.py", "--output", "my run", "--prompt", "it's $5; \n", ""]
    monkeypatch.setattr(sys, "orig_argv", words)
    assert shlex.split(started(tmp_path).settings["command"])[1:] == words


def test_epochs_beyond_9999_are_found_in_order(tmp_path):
    model = doubling()
    run = started(tmp_path)
    run.callbacks(Rows(), average=3)
    checkpoint = run._checkpoint
    checkpoint.set_model(model)
    list(checkpoint.restore(model, 1))
    for epoch in (9_997, 9_998, 9_999, 10_000):  # from 0
        checkpoint.on_epoch_end(epoch)
    names = [path.name for path in checkpoint.paths]
    expected = ["epoch-9999", "epoch-10000", "epoch-10001"]
    assert names == [f"{name}.weights.h5" for name in expected]
    assert checkpoint.finished_epochs == 10_001
    (tmp_path / "checkpoint" / "epoch-10001.weights.h5.bak").touch()
    (tmp_path / "checkpoint" / "epoch-1.weights.h5").touch()
    assert len(checkpoint_paths(tmp_path / "checkpoint")) == 3


def test_a_loss_that_is_not_a_number_names_a_checkpoint_only_if_there_is_one(tmp_path):
    class Diverge(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.model.optimizer.learning_rate = float("inf")

    run = started(tmp_path)
    with pytest.raises(FloatingPointError, match="^[^/]* Start again with a lower learning rate"):
        fit(run, doubling(), 3, [Diverge()])
    fit(run, doubling(), 1)
    with pytest.raises(FloatingPointError, match=r"epoch-0001.weights.h5 is intact. Start again"):
        fit(run, doubling(), 3, [Diverge()])


def test_names_that_are_not_utf_8_are_in_the_settings(tmp_path):
    arguments = {"train": os.fsdecode(b"\xff\xe6.tsv"), "名": "五"}
    run = Run(tmp_path)
    run.begin(arguments, DATA)
    assert Run(tmp_path, resume=True).settings["arguments"] == arguments


def test_there_must_be_a_run_to_resume(tmp_path):
    with pytest.raises(FileNotFoundError, match="no run to resume in .*settings.json does not"):
        Run(tmp_path, resume=True)


def test_a_folder_that_cannot_be_written_is_known_at_once(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="file is a file; the run needs a folder"):
        Run(tmp_path / "file" / "run")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(PermissionError, match="is not writable; choose another folder"):
        Run(tmp_path / "new" / "run")


def test_the_version_of_a_backend_under_another_distribution_name_is_known(tmp_path, monkeypatch):
    def version(name):
        raise run_module.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(run_module.importlib.metadata, "version", version)
    versions = started(tmp_path).settings["versions"]
    assert versions["keras"] == keras.__version__ and versions[keras.backend.backend()]


@pytest.mark.slow
def test_a_resumed_run_ends_as_the_uninterrupted_one(tmp_path, capsys):
    seen = []
    kept = dict(average=2, seed=5)
    whole, model = started(tmp_path / "whole"), doubling()
    remember = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(model.get_weights()[0])
    )
    fit(whole, model, 4, [remember], **kept)
    np.testing.assert_allclose(model.get_weights()[0], (seen[2] + seen[3]) / 2, rtol=1e-6)
    assert [row[0] for row in history_of(whole)] == ["0", "1", "2", "3"]

    fit(started(tmp_path / "killed"), doubling(), 3, **kept)
    resumed, other = started(tmp_path / "killed", resume=True), doubling()
    capsys.readouterr()
    fit(resumed, other, 4, **kept)
    assert "Resuming after epoch 3 of 4." in capsys.readouterr().out
    np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])
    assert history_of(resumed) == history_of(whole)
    another = started(tmp_path / "another")
    fit(another, doubling(), 1, seed=6)
    assert history_of(another)[0] != history_of(whole)[0]  # by its dropout

    whole.draw_learning_curve()
    assert (whole.folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_the_mean_of_one_epoch_is_the_last_one(tmp_path):
    model, seen = doubling(), []
    remember = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(model.get_weights()[0])
    )
    fit(started(tmp_path), model, 3, [remember], average=1)
    assert (seen[1] != seen[2]).any()
    np.testing.assert_array_equal(model.get_weights()[0], seen[2])


def test_a_run_killed_in_its_first_epoch_is_resumed(tmp_path):
    whole, model = started(tmp_path / "whole"), doubling()
    fit(whole, model, 2)

    def kill(batch, logs):
        raise KeyboardInterrupt

    callbacks = [keras.callbacks.LambdaCallback(on_train_batch_begin=kill)]
    killed = started(tmp_path / "killed")
    with pytest.raises(KeyboardInterrupt):
        fit(killed, doubling(), 2, callbacks)
    assert (tmp_path / "killed" / "history.csv").read_bytes() == b""
    resumed, other = started(tmp_path / "killed", resume=True), doubling()
    fit(resumed, other, 2)
    np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])
    assert history_of(resumed) == history_of(whole)


def test_scores_are_strict_json_and_so_are_settings(tmp_path):
    run = started(tmp_path)
    run.write_scores({"名": 1.5, "none": float("nan"), "counts": np.arange(2)})
    text = (tmp_path / "scores.json").read_text("utf-8")
    assert json.loads(text) == {"名": 1.5, "none": None, "counts": [0, 1]} and "名" in text
    with pytest.raises(ValueError, match="JSON"):
        Run(tmp_path, overwrite=True).begin({"dropout": float("nan")}, DATA)
    assert Run(tmp_path, resume=True).settings["arguments"] == ARGUMENTS  # the old run stays


STOP = dict(patience=2, monitor="val_loss", mode="max")  # a loss that falls never improves


def test_patience_stops_a_run_and_a_resumed_one_trains_no_further(tmp_path):
    run, model = started(tmp_path), doubling()
    fit(run, model, 9, **STOP)
    history = history_of(run)
    assert len(history) == 3
    other = doubling()
    fit(started(tmp_path, resume=True), other, 9, **STOP)
    np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])
    assert history_of(run) == history


@pytest.mark.slow
def test_a_stopped_run_ends_with_its_best_weights_resumed_or_not(tmp_path):
    """The rate is so large that the loss falls, and then rises."""
    seen, losses = [], []

    def ups_and_downs():
        return doubling(learning_rate=0.7)

    whole, model = started(tmp_path / "whole"), ups_and_downs()
    remember = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: (
            seen.append(model.get_weights()[0]),
            losses.append(logs["val_loss"]),
        )
    )
    stop = dict(patience=2, monitor="val_loss", mode="min")
    fit(whole, model, 9, [remember], **stop)
    best = int(np.argmin(losses))
    assert 0 < best == len(losses) - 3 < 6, losses
    np.testing.assert_array_equal(model.get_weights()[0], seen[best])

    for killed_after in (1, 2, 3):
        folder = tmp_path / f"killed_after_{killed_after}"
        fit(started(folder), ups_and_downs(), killed_after, **stop)
        resumed, other = started(folder, resume=True), ups_and_downs()
        fit(resumed, other, 9, **stop)
        np.testing.assert_array_equal(other.get_weights()[0], seen[best])
        assert history_of(resumed) == history_of(whole)


def test_the_best_epoch_of_a_moving_average_is_its_average(tmp_path):
    model = doubling()
    optimizer = keras.optimizers.Adam(0.1, use_ema=True, ema_momentum=0.5)
    model.compile(optimizer, "mse", run_eagerly=True)
    averages = []

    def remember(epoch, logs):
        averages.append(keras.ops.convert_to_numpy(optimizer._model_variables_moving_average[0]))

    # A loss that falls never improves: the first epoch is the best.
    fit(
        started(tmp_path), model, 9, [keras.callbacks.LambdaCallback(on_epoch_end=remember)], **STOP
    )
    assert len(averages) == 3 and np.abs(averages[0] - averages[2]).max() > 1e-3
    np.testing.assert_allclose(model.get_weights()[0], averages[0], rtol=1e-6)


def test_samples_are_printed_after_every_epoch(capsys):
    counts = iter("ab")
    samples = PrintSamples(lambda: f"model {next(counts)}")
    samples.on_epoch_end(0)
    samples.on_epoch_end(1)
    assert capsys.readouterr().out == "\nmodel a\n\nmodel b\n"


def test_some_of_a_list_are_evenly_spaced_over_it():
    assert evenly_spaced(list("abcdefg"), 3) == ["a", "c", "e"]
    assert evenly_spaced(list("abcde"), 3) == ["a", "b", "d"]
    assert evenly_spaced(["a"], 3) == ["a"] and evenly_spaced([], 3) == []
    for length in range(1, 50):
        for number in range(1, length + 1):
            chosen = evenly_spaced(range(length), number)
            gaps = np.diff([*chosen, length])  # the last one reaches to the end
            assert len(chosen) == number and chosen[0] == 0 and gaps.max() - gaps.min() <= 1
    for number in (0, -1, 1.5):
        with pytest.raises(ValueError, match="number must be an integer of at least 1"):
            evenly_spaced(["a"], number)


def test_fewer_than_no_epochs_have_no_mean(tmp_path):
    with pytest.raises(ValueError, match="average must be an integer of at least 0"):
        started(tmp_path).callbacks(Rows(), average=-1)
