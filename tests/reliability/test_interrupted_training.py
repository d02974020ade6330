"""Training that is interrupted in every way: signals, full disks, damaged files, two at once, NaN.

A run that is resumed must end with the very bits of one that was never interrupted.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import atomic, backend, training
from keras_transformer.atomic import atomic_write, check_space, write_text
from programs import history_of, largest_file

XLA_FLAGS = os.environ.get("XLA_FLAGS", "")

pytestmark = pytest.mark.skipif(
    backend.name() == "jax" and backend.on_accelerator() and "deterministic" not in XLA_FLAGS,
    reason="a GPU's bits differ without XLA_FLAGS=--xla_gpu_deterministic_ops=true",
)

EPOCHS, SEED = 3, 1
DECAYING = ("adamw", "lion", "muon")
OF_BACKEND = dict(zip(("tensorflow", "jax", "torch"), DECAYING, strict=True))
SIZES = dict(num_layers=1, d_model=8, num_heads=2, d_ff=16, dropout=0.2, attention_dropout=0.1)


def texts():
    """Of one length: one shape to compile."""
    return np.random.default_rng(0).integers(4, 20, (60, 6)).tolist()


def sentences(**options):
    """Words, the characters of each and its label; of training data each epoch drops some words."""
    words = [np.array(row) for row in texts()]
    spelled = [np.stack([row % 7 + 3] * 3, axis=1) for row in words]
    labels = [row % 3 + 1 for row in words]

    def resample(epoch):
        return kt.word_dropout(words, 9.0, (SEED, epoch)), spelled, labels

    options = options or {"resample": resample}
    return kt.WordBatches(words, spelled, labels, batch_size=8, **options)


def compiled(
    optimizer="adam",
    within=None,
    learning_rate=0.01,
    steps_per_execution=1,
    of_words=False,
    **options,
):
    keras.utils.set_random_seed(3)
    model = kt.TaggingModel(20, 10, 4, 3, **SIZES) if of_words else kt.LanguageModel(20, **SIZES)
    model = within(model) if within else model
    model.compile(
        kt.training.create_optimizer(optimizer, learning_rate, **options),
        kt.TokenCrossEntropy(0.1),
        metrics=[kt.TokenAccuracy(), kt.Perplexity()],
        jit_compile=backend.prefers_jit(),
        steps_per_execution=steps_per_execution,
    )
    return model


def train(folder, callbacks=(), resume=False, checkpoint_every=None, of_words=False, **options):
    """Trains as a script does: the model and its data."""
    model = compiled(of_words=of_words, **options)
    if of_words:
        batches, valid = sentences(), sentences(shuffle=False)
    else:
        batches = kt.TextBatches(texts(), batch_size=8)
        valid = kt.TextBatches(texts()[:8], shuffle=False)
    run = training.Run(folder, resume=resume)
    run.begin({}, ["the data"])
    of_run = run.callbacks(batches, seed=SEED, checkpoint_every=checkpoint_every)
    with run.interruptible():
        for span in run.restore(model, EPOCHS):
            callbacks_of_fit = [*callbacks, *of_run]
            model.fit(
                batches,
                validation_data=valid,
                **span,
                callbacks=callbacks_of_fit,
                shuffle=False,
                verbose=0,
            )
    run.finish(model)
    return model, batches


def bits(model):
    """All that a run leaves: weights, and the state of the optimizer."""
    variables = [*model.trainable_variables, *model.optimizer.variables]
    return [keras.ops.convert_to_numpy(variable).tobytes() for variable in variables]


class Raise(keras.callbacks.Callback):
    """Sends this process a signal as a batch begins, counted over all epochs."""

    def __init__(self, number, batch):
        super().__init__()
        self.number, self.left = number, batch

    def on_train_batch_begin(self, batch, logs=None):
        if self.left == 0:
            os.kill(os.getpid(), self.number)
        self.left -= 1


@pytest.fixture(autouse=True)
def as_in_a_terminal():
    """Python handles SIGINT, which the tests would inherit as ignored from a background job."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bits and the history of a run that nothing interrupts, by its options; `copy` has it."""
    runs, folders = {}, {}

    def run(**options):
        key = repr(options)
        if key not in runs:
            folders[key] = folder = tmp_path_factory.mktemp("whole") / "run"
            model, batches = train(folder, **options)
            runs[key] = bits(model), history_of(folder), len(batches)
        return runs[key]

    run.copy = lambda folder: shutil.copytree(folders["{}"], folder, dirs_exist_ok=True)
    return run


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param(
            {
                "within": training.RDrop,
                "gradient_accumulation_steps": 3,
                "use_ema": True,
                "ema_momentum": 0.9,
            },
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"within": training.SimCut, "gradient_accumulation_steps": 2}, marks=pytest.mark.slow
        ),
        pytest.param({"optimizer": OF_BACKEND[backend.name()]}, marks=pytest.mark.slow),
        pytest.param({"of_words": True}, marks=pytest.mark.slow),
        *(
            pytest.param({"optimizer": name}, marks=pytest.mark.slow)
            for name in DECAYING
            if name != OF_BACKEND[backend.name()]
        ),
    ],
    ids=repr,
)
def test_a_run_interrupted_twice_ends_with_the_same_bits(tmp_path, whole, options, capsys):
    expected, rows, per_epoch = whole(**options)
    folder = tmp_path / "run"
    for number, code, batch in ((signal.SIGINT, 130, 2), (signal.SIGTERM, 143, per_epoch + 1)):
        resume = folder.exists()
        with pytest.raises(SystemExit) as ended:
            train(folder, [Raise(number, batch)], resume=resume, **options)
        assert ended.value.code == code
        last = capsys.readouterr().err.splitlines()[-1]
        assert last.startswith("Interrupted, and saved. Continue with: ")
        assert last.endswith(" --resume") and f"KERAS_BACKEND={backend.name()}" in last
    model, _ = train(folder, resume=True, **options)
    assert bits(model) == expected and history_of(folder) == rows
    names = sorted(path.name for path in (folder / "checkpoint").iterdir())
    assert names == ["epoch-0002.weights.h5", "epoch-0003.weights.h5"]


class PowerFailure(keras.callbacks.Callback):
    """Ends training as a batch begins, with nothing saved for it."""

    def __init__(self, batch):
        super().__init__()
        self.left = batch

    def on_train_batch_begin(self, batch, logs=None):
        if self.left == 0:
            raise ArithmeticError("the power fails")
        self.left -= 1


@pytest.mark.slow
def test_a_run_that_saves_every_few_updates_loses_no_more_than_these(tmp_path, whole):
    expected, rows, per_epoch = whole()
    folder, last = tmp_path / "run", per_epoch // 3 * 3
    # In the first epoch after 3 batches of 3 + 2, then after those and all but one of the rest.
    for batch, saved in ((5, "epoch-0000-batch-0000003"), (per_epoch - 4, f"-batch-{last:07d}")):
        with pytest.raises(ArithmeticError):
            train(folder, [PowerFailure(batch)], folder.exists(), checkpoint_every=3)
        (within,) = (folder / "checkpoint").glob("*-batch-*")
        assert saved in within.name
    model, _ = train(folder, resume=True, checkpoint_every=3)
    assert bits(model) == expected and history_of(folder) == rows
    names = sorted(path.name for path in (folder / "checkpoint").iterdir())
    assert names == ["epoch-0002.weights.h5", "epoch-0003.weights.h5"]


@pytest.mark.slow
def test_a_signal_at_an_update_that_is_saved_in_any_case_keeps_the_file(tmp_path, whole):
    expected, rows, _ = whole()
    with pytest.raises(SystemExit):
        train(tmp_path, [Raise(signal.SIGTERM, 2)], checkpoint_every=3)
    (within,) = (tmp_path / "checkpoint").iterdir()
    assert "epoch-0000-batch-0000003" in within.name
    other = within.with_name("epoch-0000-batch-0000009.weights.h5")
    left = within.with_name(f"{atomic._start(other, '.unfinished')}9999999-1.weights.h5")
    left.write_text("half")  # by a process that was killed while it saved
    model, _ = train(tmp_path, resume=True)
    assert bits(model) == expected and history_of(tmp_path) == rows
    assert not left.exists()


@pytest.mark.slow
@pytest.mark.skipif(backend.name() == "torch", reason="Keras on PyTorch has one step per execution")
def test_with_several_steps_per_execution_it_saves_after_the_one_that_is_due(tmp_path, whole):
    expected, rows, _ = whole(steps_per_execution=3)
    options = {"steps_per_execution": 3, "checkpoint_every": 4}
    with pytest.raises(ArithmeticError):
        train(tmp_path, [PowerFailure(2)], **options)  # after 2 executions
    (within,) = (tmp_path / "checkpoint").glob("*-batch-*")
    assert "epoch-0000-batch-0000006" in within.name
    model, _ = train(tmp_path, resume=True, **options)
    assert bits(model) == expected and history_of(tmp_path) == rows


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 1])
def test_a_signal_in_the_last_updates_of_an_epoch_lets_the_epoch_end(tmp_path, whole, left):
    expected, rows, per_epoch = whole()
    with pytest.raises(SystemExit):
        train(tmp_path, [Raise(signal.SIGINT, per_epoch - 1 - left)])
    (path,) = (tmp_path / "checkpoint").iterdir()
    assert path.name == "epoch-0001.weights.h5" and history_of(tmp_path) == rows[:1]
    assert bits(train(tmp_path, resume=True)[0]) == expected


@pytest.mark.slow
def test_an_epoch_is_continued_with_batches_of_another_length(tmp_path):
    """At the last place where it may begin: TensorFlow reads two batches for their shapes."""
    rows = [[5] * length for length in [3] * 12 + [30] * 12]

    def fit(*interruptions, **options):
        model = compiled()
        batches = kt.TextBatches(rows, batch_size=4, num_buckets=2, shuffle=False)
        run = training.Run(tmp_path / "run", **options)
        run.begin({}, ["the data"])
        of_run = run.callbacks(batches)
        with run.interruptible():
            for span in run.restore(model, 1):
                callbacks = [*interruptions, *of_run]
                model.fit(batches, **span, callbacks=callbacks, shuffle=False, verbose=0)
        return bits(model), len(batches)

    expected, number = fit()
    with pytest.raises(SystemExit):
        fit(Raise(signal.SIGTERM, number - 3), overwrite=True)
    (within,) = (tmp_path / "run" / "checkpoint").iterdir()
    assert f"batch-{number - 2:07d}" in within.name
    assert fit(resume=True)[0] == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"use_ema": True, "ema_momentum": 0.9}], ids=["plain", "ema"]
)
def test_a_run_that_ended_after_its_last_epoch_is_finished(tmp_path, whole, options):
    expected, rows, per_epoch = whole(**options)
    with pytest.raises(SystemExit):
        train(tmp_path, [Raise(signal.SIGTERM, EPOCHS * per_epoch - 1)], **options)
    assert history_of(tmp_path) == rows
    assert bits(train(tmp_path, resume=True, **options)[0]) == expected


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_would_end_the_process_at_once_and_handlers_come_back(tmp_path, number):
    before = signal.getsignal(number)
    seen = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(signal.getsignal(number))

    with pytest.raises(SystemExit):
        train(tmp_path, [Raise(number, 1), Look()])
    assert seen[0] not in (before, signal.SIG_DFL) and seen[1] == signal.SIG_DFL
    assert signal.getsignal(number) == before


def test_a_signal_after_an_error_of_fit_is_python_s_again(tmp_path):
    before = signal.getsignal(signal.SIGINT)

    class Fail(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise RuntimeError("failed")

    with pytest.raises(RuntimeError, match="failed"):
        train(tmp_path, [Fail()])
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before


def test_a_signal_after_the_last_epoch_is_raised_again():
    before, ended = signal.getsignal(signal.SIGINT), []

    def fit():
        with training.SaveOnInterrupt(None):
            signal.raise_signal(signal.SIGINT)
            ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        fit()
    assert ended and signal.getsignal(signal.SIGINT) == before


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def flip(path):
    content = bytearray(path.read_bytes())
    for place in range(1000, len(content), 1000):
        content[place] ^= 16
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [flip, *(pytest.param(each, marks=pytest.mark.slow) for each in (cut, empty, os.remove))],
)
def test_a_damaged_or_missing_checkpoint_is_skipped(tmp_path, whole, capsys, damage):
    expected, rows, _ = whole()
    whole.copy(tmp_path)
    last = tmp_path / "checkpoint" / "epoch-0003.weights.h5"
    damage(last)
    capsys.readouterr()
    model, _ = train(tmp_path, resume=True)
    out = capsys.readouterr().out
    assert "Resuming after epoch 2 of 3." in out
    assert damage is os.remove or f"{last} is damaged" in out
    assert bits(model) == expected and history_of(tmp_path) == rows


def test_a_damaged_checkpoint_within_an_epoch_is_skipped(tmp_path, whole, capsys):
    expected, rows, per_epoch = whole()
    with pytest.raises(ArithmeticError):
        train(tmp_path, [PowerFailure(per_epoch + 5)], checkpoint_every=3)
    (within,) = (tmp_path / "checkpoint").glob("*-batch-*")
    flip(within)
    model, _ = train(tmp_path, resume=True, checkpoint_every=3)
    assert f"{within} is damaged" in capsys.readouterr().out
    assert bits(model) == expected and history_of(tmp_path) == rows


@pytest.mark.slow
def test_a_full_disk_is_one_sentence_and_the_last_checkpoint_stays(tmp_path, whole):
    class Fill(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                limit.enter_context(largest_file(20_000))

    expected, rows, _ = whole()
    with contextlib.ExitStack() as limit:
        with pytest.raises(OSError, match=r"no room for .*epoch-0002.* needs .* MB, .* MB are"):
            train(tmp_path, [Fill()])
        assert len(list((tmp_path / "checkpoint").iterdir())) == 1  # nothing unfinished
    assert bits(train(tmp_path, resume=True)[0]) == expected
    assert history_of(tmp_path) == rows


def test_a_loss_that_is_not_a_number_ends_the_run_at_that_update(tmp_path):
    message = (
        "The loss is (nan|inf) at batch 2 of epoch 1 .learning rate 1e.30, norm of the mean gradi"
    )
    with pytest.raises(FloatingPointError, match=message):
        train(tmp_path, learning_rate=1e30)
    assert not (tmp_path / "checkpoint").exists() and not history_of(tmp_path)


@pytest.mark.slow
def test_weights_that_are_not_numbers_are_never_saved(tmp_path, whole):
    class Spoil(keras.callbacks.Callback):  # as the last update of an epoch may
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                weight = self.model.trainable_variables[0]
                weight.assign(weight * np.nan)

    with pytest.raises(FloatingPointError, match="became infinite or not a number"):
        train(tmp_path, [Spoil()])
    assert [path.name for path in (tmp_path / "checkpoint").iterdir()] == ["epoch-0001.weights.h5"]


HOLD = """
import sys, filelock
with filelock.FileLock(sys.argv[1], timeout=0):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_has_ended_in_whatever_way(tmp_path):
    training.Run(tmp_path).begin({}, ["the data"])  # and ends: nothing refers to it
    command = [sys.executable, "-c", HOLD, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout.readline() == b"held\n"
        for options in ({"resume": True}, {"overwrite": True}):
            with pytest.raises(BlockingIOError, match="writes the run in .*; wait for it"):
                training.Run(tmp_path, **options).begin({}, ["the data"])
        owner.kill()
    run = training.Run(tmp_path, resume=True)
    run.begin({}, ["the data"])
    refused = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert "could not be acquired" in refused.stderr and not refused.stdout


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_write(path) as temporary:
        temporary.write_text(str(1 / 0))
    assert path.read_text() == "old"
    with (
        largest_file(100),
        pytest.raises(OSError, match="too large.*file"),
        atomic_write(path) as t,
    ):
        t.write_bytes(bytes(200))
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    write_text(path, "new")
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_room_is_looked_for_before_a_library_writes(tmp_path):
    check_space(tmp_path / "file", 10_000)
    message = "no room for .*file: it needs 1000000000000.0 MB"
    with pytest.raises(OSError, match=message):
        check_space(tmp_path / "file", 10**18)
    with largest_file(10_000):  # a limit of each file, not of all together
        check_space(tmp_path / "file", 10_000, number=3)
    with largest_file(9_999), pytest.raises(OSError, match="needs 0.0 MB, .* MB are free .File"):
        check_space(tmp_path / "file", 10_000, number=3)
    assert not list(tmp_path.iterdir())
