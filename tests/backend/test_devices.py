"""Several devices: rows of padding fill up a batch, and a training equals that on one device.

Every device is a virtual one of the CPU, or a process of its own on the loopback.
"""

import dataclasses
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import backend
from keras_transformer.backend import distribution
from keras_transformer.ids import PADDING

ROOT = pathlib.Path(__file__).parents[2]
GENERATOR = np.random.default_rng(0)
IDS = [GENERATOR.integers(4, 30, GENERATOR.integers(0, 20)).tolist() for _ in range(200)]


@pytest.mark.parametrize("budget", [{}, {"batch_size": 7}, {"tokens_per_batch": 90}])
@pytest.mark.parametrize("multiple", [2, 3, 8])
def test_rows_are_a_multiple_of_the_devices_and_each_example_comes_once(budget, multiple):
    batches = kt.TranslationBatches(IDS, IDS, rows_multiple=multiple, num_buckets=3, **budget)
    found = []
    for inputs, labels in batches:
        assert len(labels) % multiple == 0 and labels.any()
        found += [row[row != PADDING][:-1].tolist() for row in labels if row.any()]
        is_real = labels.any(axis=1)
        assert not inputs["source_ids"][~is_real].any()
    assert sorted(found) == sorted(IDS)
    assert len(batches.shapes) > 1


def test_a_budget_holds_with_rows_in_multiples_where_it_can():
    batches = kt.TranslationBatches(IDS, IDS, rows_multiple=4, tokens_per_batch=200)
    assert max(labels.size for _, labels in batches) <= 200
    batches = kt.TranslationBatches(IDS, IDS, rows_multiple=4, batch_size=3)
    assert {len(labels) for _, labels in batches} == {4}


def of_every_kind():
    """Batches of each kind, of odd rows."""
    texts = [[5, 6, 7], [8], [9, 5]] * 5
    words = [np.array(ids) for ids in texts]
    characters = [np.full((len(ids), 4), 3) for ids in texts]
    return [
        lambda: kt.TranslationBatches(texts, texts, batch_size=7, num_buckets=1),
        lambda: kt.TextBatches(texts, batch_size=7, num_buckets=1),
        lambda: kt.WordBatches(words, characters, texts, batch_size=7, num_buckets=1),
    ]


def test_batches_round_their_rows_to_the_devices_that_share_them(monkeypatch):
    for make in of_every_kind():
        before = make()
        assert {len(labels) % 2 for _, labels in before} == {1}
        monkeypatch.setattr(distribution, "num_shares", lambda: 4)
        for batches in (make(), before):  # planned for four devices, and for one
            for inputs, labels in batches:
                rows = {len(array) for array in (*inputs.values(), labels)}
                assert len(rows) == 1 and rows.pop() % 4 == 0
            real = sum(labels.any(axis=1).sum() for _, labels in batches)
            assert real == batches.num_examples
        monkeypatch.undo()


def test_processes_share_the_rows_of_a_batch_and_each_row_has_one_process(monkeypatch):
    batches = kt.TranslationBatches(IDS, IDS, rows_multiple=4, shuffle=False)
    assert distribution.own_rows(batches) is batches
    for number in range(len(batches)):
        inputs, labels = batches[number]
        parts = []
        for index in range(4):
            monkeypatch.setattr(distribution, "_process", distribution.Process(index, 4, True))
            parts.append(distribution.own_rows(batches)[number])
        np.testing.assert_array_equal(np.concatenate([part[1] for part in parts]), labels)
        sources = np.concatenate([part[0]["source_ids"] for part in parts])
        np.testing.assert_array_equal(sources, inputs["source_ids"])
    assert len(distribution.own_rows(batches)) == len(batches)
    odd = [np.zeros((3, 2), "int32")]  # of one's own
    with pytest.raises(ValueError, match="must be a multiple of the 4 processes"):
        distribution.own_rows(odd)[0]


def test_more_devices_than_there_are_are_an_error(monkeypatch):
    distribution.use_devices(1)
    message = "must be the number of" if backend.name() == "torch" else "must be at most"
    with pytest.raises(ValueError, match=message):
        distribution.use_devices(64)
    with pytest.raises(ValueError, match="devices must be an integer of at least 1"):
        distribution.use_devices(0)
    with pytest.raises(ValueError, match="model_parallel must divide the devices"):
        distribution.use_devices(4, model_parallel=3)


@pytest.mark.skipif(backend.name() == "jax", reason="JAX splits weights")
def test_weights_are_split_on_jax_only():
    with pytest.raises(ValueError, match=f"needs JAX; received backend='{backend.name()}'"):
        distribution.use_devices(2, model_parallel=2)


@pytest.mark.skipif(backend.name() != "tensorflow", reason="a variable of TensorFlow")
def test_several_hosts_with_tensorflow_are_an_error_that_names_another_way(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "{}")
    with pytest.raises(ValueError, match="several hosts need JAX or PyTorch"):
        distribution.use_devices(2)


def test_an_error_of_ours_is_not_taken_for_a_lost_process(monkeypatch):
    lost = RuntimeError("[gloo/pair.cc:553] Connection closed by peer [127.0.0.1]:1234\nmore")
    assert distribution.lost_process(lost) is None  # there is no other process
    monkeypatch.setattr(distribution, "_process", distribution.Process(together=True))
    sentence = distribution.lost_process(lost)
    assert "ended or did not answer ([gloo/pair.cc:553] Connection closed" in sentence
    assert "--resume" in sentence and "\n" not in sentence
    assert distribution.lost_process(RuntimeError("shapes do not match")) is None
    of_jax = ValueError("UNKNOWN: Gloo AllGather failed: Connection reset by peer")
    assert "Gloo AllGather failed" in distribution.lost_process(of_jax)
    assert distribution.lost_process(KeyError("gloo")) is None


# Trainings, by tests/trainings.py: as a rule half of them, an interruption, and the other half.

STOP = {"stop": 30}
# On TensorFlow the other logs of an update are means of the devices' own, unlike those of an epoch.
LOGS = ("loss",) if backend.name() == "tensorflow" else ("loss", "perplexity", "token_accuracy")
INTERRUPTED = [STOP, {"resume": True}]
TRAININGS = {
    "tensorflow": {"mirrored": {"devices": 2}},
    "jax": {"data": {"devices": 2}, "model": {"devices": 2, "model_parallel": 2}},
    "torch": {},
}[backend.name()]


def start(folder, ways, **environment):
    """The program in a process of its own."""
    return subprocess.Popen(
        [sys.executable, ROOT / "tests" / "trainings.py", folder, json.dumps(ways)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result_of(process):
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    return json.loads(output.splitlines()[-1])


DATA_PARALLEL = """
import keras, numpy as np, keras_transformer as kt

texts = [[5, 6, 7], [8], [9, 5]] * 5
def evaluated(weights=None):
    batches = kt.TextBatches(texts, batch_size=16, num_buckets=1, shuffle=False)
    model = kt.LanguageModel(12, num_layers=1, d_model=8, num_heads=2, d_ff=8, dropout=0.0)
    model.set_weights(weights or model.get_weights())
    weights = [array.copy() for array in model.get_weights()]
    model.compile("sgd", kt.TokenCrossEntropy(), metrics=[kt.TokenAccuracy()])
    model.fit(batches, validation_data=batches, shuffle=False, verbose=0)
    return weights, model.evaluate(batches, verbose=0)

weights, one = evaluated()
before = kt.TextBatches(texts, batch_size=16)
keras.distribution.set_distribution(keras.distribution.DataParallel())
assert keras.distribution.distribution().num_model_replicas == 2
np.testing.assert_allclose(evaluated(weights)[1], one, rtol=1e-5)
assert {len(labels) % 2 for _, labels in before} == {0}
"""


@pytest.mark.slow
@pytest.mark.skipif(backend.name() != "jax", reason="Keras's distributions need JAX")
def test_a_distribution_of_keras_takes_batches_of_odd_rows():
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    command = [sys.executable, "-c", DATA_PARALLEL]
    subprocess.run(command, check=True, env={**os.environ, "XLA_FLAGS": flags}, cwd=ROOT)


def start_two(folder, ways):
    """The program in two processes that train together, on a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    for_torch = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    for_jax = {
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": f"127.0.0.1:{port}",
        "KERAS_DISTRIBUTION_NUM_PROCESSES": "2",
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
    }
    numbers = "RANK", "LOCAL_RANK", "KERAS_DISTRIBUTION_PROCESS_ID"
    return [
        start(folder, ways, **for_torch, **for_jax, **dict.fromkeys(numbers, str(rank)))
        for rank in range(2)
    ]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Folder and results by name: "one" device, and what this backend has for two in a process."""
    folder = tmp_path_factory.mktemp("trainings")
    ways = [{"name": "one", "devices": 1}]
    for name, devices in TRAININGS.items():
        ways += [{"name": name, **devices, **half} for half in INTERRUPTED]
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    one, *others = result_of(start(folder, ways, XLA_FLAGS=flags))
    results = dict(zip(TRAININGS, zip(others[::2], others[1::2], strict=True), strict=True))
    return folder, {"one": one} | results


def check_equal(numpy, folder, name, first, second, one):
    """A training that was interrupted and resumed, on two devices, and one that was not, on one."""
    logs = [*first["logs"][:20], *second["logs"]]  # it resumes after the 20th update
    assert len(logs) == one["num_batches"] >= 50
    for key in LOGS:
        expected = [each[key] for each in one["logs"]]
        np.testing.assert_allclose([each[key] for each in logs], expected, rtol=1e-4)
    assert one["logs"][-1]["loss"] < 0.9 * one["logs"][0]["loss"]
    for key in ("history", "evaluated"):
        assert second[key] == pytest.approx(one[key], rel=1e-4)
    files = [kt.load(folder / each / "model.keras").model.weights for each in (name, "one")]
    for weight, of_one in zip(*files, strict=True):
        if not weight.path.endswith("key/bias"):  # its gradient is rounding, which Adam enlarges
            np.testing.assert_allclose(*map(numpy, (weight, of_one)), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAININGS)
def test_two_devices_of_a_process_train_as_one_does(trained, name, numpy):
    folder, results = trained
    check_equal(numpy, folder, name, *results[name], results["one"])
    if backend.name() == "jax":
        assert results["one"]["parts"] == [1, 1]
        assert results[name][1]["parts"] == [2, 2 if name == "model" else 1]


@pytest.mark.slow
@pytest.mark.skipif(backend.name() == "tensorflow", reason="Keras has one process on TensorFlow")
@pytest.mark.parametrize("kill", [0, 1])
def test_two_processes_train_as_one_does_though_one_of_them_is_killed(
    trained, tmp_path, numpy, kill
):
    folder, results = trained
    way = {"name": "pair", "devices": 2}
    pair = start_two(tmp_path, [way | STOP | {"kill": kill}])
    survivor, killed = pair[1 - kill], pair[kill]
    _, errors = survivor.communicate(timeout=600)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL and survivor.returncode != 0
    *_, last = errors.splitlines()
    assert "Another process of this training ended" in last and "--resume" in last

    first = {"logs": json.loads((tmp_path / "logs.json").read_text("utf-8"))}
    assert len(first["logs"]) == STOP["stop"]
    pair = start_two(tmp_path, [way | {"resume": True}])
    (second,) = result_of(pair[0])
    pair[1].communicate()
    assert pair[1].returncode == 0
    (tmp_path / "one").symlink_to(folder / "one")
    check_equal(numpy, tmp_path, "pair", first, second, results["one"])


def test_a_process_that_was_left_alone_can_end_in_any_order(monkeypatch):
    together = dataclasses.replace(distribution._process, together=True)
    monkeypatch.setattr(distribution, "_process", together)
    monkeypatch.setattr(distribution.platform, "name", lambda: "torch")  # no weights to move
    alone = distribution.alone(keras.Sequential())
    with alone:
        assert not distribution._process.together
        distribution._process = None  # as when Python ends
    assert distribution._process is together
