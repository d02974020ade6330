"""The folder of a training run: not written over, resumed as it was begun, ended as it should."""

import csv
import json

import keras
import numpy as np
import pytest

from keras_transformer.training import Run, Samples, spread

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
    model.compile(keras.optimizers.Adam(learning_rate), "mse")
    return model


def begun(folder, **kwargs):
    run = Run(folder, **kwargs)
    run.begin(ARGUMENTS, DATA)
    return run


def history_of(run):
    with open(run.folder / "history.csv", newline="") as file:
        return [(row["epoch"], row["loss"], row["val_loss"]) for row in csv.DictReader(file)]


def test_nothing_is_written_before_a_run_begins(tmp_path):
    folder = tmp_path / "new" / "run"
    run = Run(folder)
    assert not folder.parent.exists()
    run.begin(ARGUMENTS, DATA)
    assert [path.name for path in folder.iterdir()] == ["settings.json"]
    settings = json.loads((folder / "settings.json").read_text("utf-8"))
    assert run.settings == settings and settings["arguments"] == ARGUMENTS
    assert settings["versions"]["keras"] == keras.__version__
    assert settings["command"].startswith(f"KERAS_BACKEND={keras.backend.backend()} ")


def test_a_folder_that_holds_a_run_is_refused_and_begun_anew_only_on_demand(tmp_path):
    begun(tmp_path)
    for name in ("checkpoint/epoch-0001.weights.h5", "teachers/a", "history.csv", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("old")
    with pytest.raises(FileExistsError, match="holds a run already: --resume .* --overwrite"):
        Run(tmp_path)
    anew = Run(tmp_path, overwrite=True)
    assert (tmp_path / "history.csv").exists()  # until it begins
    anew.begin({"seed": 4}, DATA)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "settings.json"]
    assert anew.settings["arguments"] == {"seed": 4}


def test_a_resumed_run_keeps_its_settings_and_its_data(tmp_path):
    before = begun(tmp_path).settings
    (tmp_path / "history.csv").write_text("old")
    resumed = Run(tmp_path, resume=True, overwrite=True)  # as a run begun with --overwrite is
    resumed.begin({**ARGUMENTS, "resume": True}, DATA)
    assert resumed.settings == before and (tmp_path / "history.csv").exists()
    with pytest.raises(ValueError, match="not what .* was begun with; put it back"):
        resumed.begin(ARGUMENTS, (["June"], ["六月"]))


def test_there_must_be_a_run_to_resume(tmp_path):
    with pytest.raises(FileNotFoundError, match="no run to resume in .*settings.json does not"):
        Run(tmp_path, resume=True)


def test_a_resumed_run_ends_as_the_whole_one_does(tmp_path, capsys):
    seen = []
    kept = dict(average=2, seed=5)
    whole, model = begun(tmp_path / "whole"), doubling()
    remember = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(model.get_weights()[0])
    )
    whole.fit(model, Rows(), Rows(), epochs=4, callbacks=[remember], **kept)
    np.testing.assert_allclose(model.get_weights()[0], (seen[2] + seen[3]) / 2, rtol=1e-6)
    assert [row[0] for row in history_of(whole)] == ["0", "1", "2", "3"]

    begun(tmp_path / "killed").fit(doubling(), Rows(), Rows(), epochs=3, **kept)
    resumed, other = begun(tmp_path / "killed", resume=True), doubling()
    capsys.readouterr()
    resumed.fit(other, Rows(), Rows(), epochs=4, **kept)
    assert "Resuming after epoch 3 of 4." in capsys.readouterr().out
    np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])
    assert history_of(resumed) == history_of(whole)
    another = begun(tmp_path / "another")
    another.fit(doubling(), Rows(), Rows(), epochs=1, seed=6)
    assert history_of(another)[0] != history_of(whole)[0]  # by its dropout

    whole.write_scores({"名": 1.5})
    assert json.loads((whole.folder / "scores.json").read_text("utf-8")) == {"名": 1.5}
    whole.draw_learning_curve()
    assert (whole.folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_patience_ends_a_run_and_a_resumed_one_trains_no_further(tmp_path):
    stop = dict(epochs=9, patience=2, best=("val_loss", "max"))  # a loss that falls is no better
    run, model = begun(tmp_path), doubling()
    run.fit(model, Rows(), Rows(), **stop)
    history = history_of(run)
    assert len(history) == 3
    other = doubling()
    begun(tmp_path, resume=True).fit(other, Rows(), Rows(), **stop)
    np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])
    assert history_of(run) == history


def test_what_the_model_makes_of_samples_is_printed_after_every_epoch(capsys):
    counts = iter("ab")
    samples = Samples(lambda: f"model {next(counts)}")
    samples.on_epoch_end(0)
    samples.on_epoch_end(1)
    assert capsys.readouterr().out == "\nmodel a\n\nmodel b\n"


def test_so_many_of_a_list_are_spread_over_it():
    assert spread(list("abcdefg"), 3) == ["a", "c", "e"] and spread(["a"], 3) == ["a"]
