"""Whatever lies where a writer writes: what is not its own stays, byte for byte."""

import contextlib
import json
import os
import pathlib
import select
import stat
import threading

import numpy as np
import pytest

from keras_transformer import cli as console
from keras_transformer import plots, training
from keras_transformer.atomic import MANIFEST, atomic_folder, write_text
from keras_transformer.cli import average, evaluate, export, translate
from keras_transformer.data.prepared import jobs as shard_tasks
from keras_transformer.data.prepared import preparation
from keras_transformer.interchange import keras_file
from keras_transformer.tasks.translation import Hypothesis
from keras_transformer.training import ResumableCSVLogger, Run
from keras_transformer.training import run as run_module

pytestmark = pytest.mark.once

NAMES = (
    *("a", "x.png", "out.json", "notes.txt", "model.keras", "history.csv", "settings.json", "m"),
    *("corpus.json", "preparation.json", "vocabulary.spm", "source.spm", "scores.json", ".lock"),
    *("shard-00000.array_record", "sample.txt", "checkpoint", "teachers", "tensorboard", "my.spm"),
    *(
        ".unfinished.out.json",
        ".unfinished.model.keras",
        ".unfinished.m",
        MANIFEST,
        "average-1.keras",
    ),
    *("checkpoint/epoch-0001.weights.h5", "teachers/notes.txt", "learning_curve.png"),
    "events.out.tfevents.1",
)
FOLDERS = ("", "mine", "run", "export", "corpus", "deep/er")
PAIRS = "".join(f"a{n} b\tc{n} d\n" for n in range(9))


class Fake:
    """A translator, a task of any kind, and a figure."""

    model = source_tokenizer = target_tokenizer = property(lambda self: self)

    def __init__(self, text=None):
        self.text = text

    def tagged(self, texts, to):
        return texts

    def translate(self, texts, return_finished=False, **options):
        return [Hypothesis(text, None, True) if return_finished else text for text in texts]

    def score(self, sources, targets, **options):
        return [-1.0] * len(sources)

    def normalized(self, texts):
        return texts

    def unknown_share(self, texts):
        return 0.0

    def encode(self, texts):
        return [[5] for _ in texts]

    def attention(self, text, translation, to=None):
        return [[]], [], []

    def save(self, path):
        write_text(path, "a model")

    def savefig(self, path, **options):
        path.write_text("a picture")


class InThisProcess:
    """`ShardWriters` without processes."""

    def __init__(self, num_processes):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def run(self, task, arguments):
        for each in arguments:
            getattr(shard_tasks, task)(**each)


def write_format(task, folder, quantization):
    (folder / "assets").mkdir()
    (folder / "model.keras").write_text("a model")
    (folder / "assets" / "words").write_text("words")


@pytest.fixture
def fakes(monkeypatch, small_tasks):
    """All that takes long, replaced; what writes files stays."""
    monkeypatch.setattr(export, "load_task", lambda path: small_tasks["tagger"])
    for module in (average, evaluate, translate):
        monkeypatch.setattr(module, "load_task", lambda *args: Fake())
    monkeypatch.setattr(training, "average_checkpoints", lambda model, paths: None)
    monkeypatch.setattr(preparation, "ShardWriters", InThisProcess)
    monkeypatch.setattr(plots, "plot_attention", lambda *args: Fake())
    monkeypatch.setattr(keras_file, "write", write_format)


class Tree:
    """A folder with files of all kinds, made from a seed; the current folder is in it."""

    def __init__(self, root, rng):
        self.root, self.rng, self.pipes, self.sinks = root, rng, [], []
        self.home = root / "home"
        self.home.mkdir(parents=True)
        for folder in filter(None, FOLDERS):
            (self.home / folder).mkdir(parents=True)
        for name, text in (("src.txt", "a\nb\n"), ("ref.txt", "a\nb\n"), ("pairs.tsv", PAIRS)):
            (self.home / name).write_text(text)
        (self.home / "task.keras").write_text("an input")
        self._own()
        for _ in range(rng.integers(0, 12)):
            path = self.home / self.one(FOLDERS) / self.one((*NAMES, ".replaced-1", ".replacing-1"))
            with contextlib.suppress(OSError):  # something is there
                path.parent.mkdir(parents=True, exist_ok=True)
                self._place(path)

    def one(self, choices):
        return choices[self.rng.integers(len(choices))]

    def _own(self):
        """Earlier outputs of the package: in half of the trees a run, an export, a corpus."""
        if self.rng.random() < 0.5:
            run = Run(self.home / "run")
            run.begin({}, ["data"])
            (run.folder / "checkpoint").mkdir()
            (run.folder / "checkpoint" / "epoch-0001.weights.h5").write_text("weights")
            (run.folder / "model.keras").write_text("a model")
            run._lock.lock.release()
        if self.rng.random() < 0.5:
            (self.home / "export").rmdir()
            with atomic_folder(self.home / "export") as folder:
                write_format(None, folder, None)
        if self.rng.random() < 0.5:
            for name in ("preparation.json", "corpus.json"):
                content = {"format_version": 1, "kind": "pairs", "shard_size": 1}
                (self.home / "corpus" / name).write_text(json.dumps(content))
            (self.home / "corpus" / ".lock").touch()
            (self.home / "corpus" / "shard-00000.array_record").write_text("a shard")

    def _place(self, path):
        kind = self.one(
            (
                "file",
                "file",
                "empty",
                "folder",
                "link",
                "dangling",
                "loop",
                "hard",
                "pipe",
                "device",
            )
        )
        if kind == "file":
            with open(path, "x") as file:
                file.write(f"precious {self.rng.integers(10**9)}")
            os.chmod(path, self.one((0o600, 0o644, 0o664, 0o755)))
        elif kind == "empty":
            path.touch(exist_ok=False)
        elif kind == "folder":
            path.mkdir()
        elif kind == "link":
            path.symlink_to(
                self.home / self.one((*FOLDERS, "src.txt", "task.keras", "run/model.keras"))
            )
        elif kind == "dangling":
            path.symlink_to(self.one(("missing", "../missing", str(self.home / "mine" / "far"))))
        elif kind == "loop":
            path.symlink_to(path.name)
        elif kind == "hard":
            os.link(self.home / self.one(("src.txt", "task.keras")), path)
        elif kind == "pipe":
            os.mkfifo(path)
            self.pipes.append(os.open(path, os.O_RDWR | os.O_NONBLOCK))
        else:
            with contextlib.suppress(PermissionError):  # root alone makes devices
                os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))

    def output(self, *preferred):
        """A path in some spelling; seldom an unset variable or an input."""
        path = os.path.join(self.one(FOLDERS), self.one(NAMES))
        if self.rng.random() < 0.7:
            path = self.one(preferred)
        draw = self.rng.random()
        if draw < 0.06:
            return self.one(("", ".", "..", "mine", "run", "./run/..", "deep/er/../.."))
        if draw < 0.14:
            return self.one(
                ("src.txt", "./ref.txt", "mine/../pairs.tsv", "task.keras", "run/model.keras")
            )
        if draw < 0.3:
            return str(self.home / path)
        return self.one((path, f"./{path}", f"mine/../{path}", f"deep/er/../../{path}"))

    def state(self):
        """The state of each path: its kind, its mode, and its content."""
        found = {}
        for root, folders, files in os.walk(self.root):
            for name in (*folders, *files):
                path = os.path.join(root, name)
                status = os.lstat(path)
                kind, content = stat.S_IFMT(status.st_mode), None
                if kind == stat.S_IFLNK:
                    content = os.readlink(path)
                elif kind == stat.S_IFREG:
                    content = pathlib.Path(path).read_bytes()
                found[path] = kind, stat.S_IMODE(status.st_mode), content
        return found

    @contextlib.contextmanager
    def drained(self):
        """Reads the pipes meanwhile, so that no writer waits."""
        ended = threading.Event()

        def read():
            while not ended.is_set():
                for pipe in select.select(self.pipes, [], [], 0.01)[0]:
                    os.read(pipe, 2**16)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield
        finally:
            ended.set()
            reader.join()
            for pipe in self.pipes:
                os.close(pipe)


def to_file(path):
    """Where a writer of one file may write: behind links; nowhere, if it is a pipe or a device."""
    real = os.path.realpath(path)
    return {real} if path and (not os.path.lexists(real) or os.path.isfile(real)) else set()


def everywhere(name):
    return [os.path.join(folder, name) for folder in FOLDERS]


def write_a_text(tree):
    path = tree.output(*everywhere("out.json"))
    return lambda: write_text(path, "new"), to_file(path), path


def evaluate_a_model(tree):
    one, two = tree.output(*everywhere("out.json")), tree.output(*everywhere("a"))
    command = ["evaluate", "task.keras", "--source", "src.txt", "--reference", "ref.txt"]
    given = [*command, "--json", one, "--translations", two, "--worst", "0"]
    return lambda: console.main(given), to_file(one) | to_file(two), (one, two)


def draw_attention(tree):
    path = tree.output(*everywhere("x.png"))
    given = ["translate", "task.keras", "a", "--attention", path]
    return lambda: console.main(given), to_file(path), path


def average_a_run(tree):
    output = tree.output(*everywhere("model.keras"), *everywhere("average-1.keras"))
    given = ["average", "run", *tree.one(([], ["--output", output]))]
    written = to_file(output) if len(given) > 2 else to_file("run/average-1.keras")
    return lambda: console.main(given), written, given


def save_a_task(tree, task):
    path = tree.output(*everywhere("model.keras"))
    return lambda: task.save(path), to_file(path), path


def owned_by(files, folder):
    """The paths that a run or corpus in a folder may replace, on the evidence of its marker."""
    return {os.path.join(folder, name) for name in files.names_in(pathlib.Path(folder))}


def begin_a_run(tree):
    folder, overwrite = tree.output("run", *FOLDERS[1:]), bool(tree.rng.integers(2))

    def train():
        run = Run(folder, overwrite=overwrite)
        run.begin({}, ["data"])
        ResumableCSVLogger(run.folder / "history.csv")
        run.write_scores({"bleu": 1.0})
        run.write_sample("a text")
        run.draw(Fake(), "learning_curve.png")
        run.save(Fake())
        run._lock.lock.release()

    return train, in_folder(run_module.FILES, folder, overwrite), (folder, overwrite)


def prepare_a_corpus(tree):
    folder, overwrite = tree.output("corpus", *FOLDERS[1:]), tree.one(([], ["--overwrite"]))
    given = ["prepare", folder, "--pairs", "pairs.tsv", "--vocabulary", "char", *overwrite]
    return lambda: console.main(given), in_folder(preparation.FILES, folder, overwrite), given


def in_folder(files, folder, overwrite):
    """Paths that a run or corpus may change: its names where they are free, its own if asked."""
    real = os.path.realpath(folder)
    own = owned_by(files, real) if overwrite and files.are_in(pathlib.Path(real)) else set()
    parents = {str(parent) for path in own for parent in pathlib.Path(path).parents}

    def may_be_written(path, before):
        inside = path.startswith(f"{real}/") or path == real or real.startswith(f"{path}/")
        return inside and (path not in before or path in own or path in parents)

    return may_be_written


def export_a_model(tree):
    folder, overwrite = tree.output("export", *FOLDERS[1:]), tree.one(([], ["--overwrite"]))
    given = ["export", "task.keras", "--format", "keras", "--output", folder, *overwrite]
    real = os.path.realpath(folder)
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        manifest = pathlib.Path(real, MANIFEST)
        content = json.loads(manifest.read_text()) if manifest.is_file() else {}
        names = content["files"] if content["written_by"] == "keras_transformer" else []
        own = {os.path.join(real, name) for name in (*names, MANIFEST)} if overwrite else set()

        def may_be_replaced(path, before):
            inside = path.startswith(f"{real}/") or path == real or real.startswith(f"{path}/")
            return inside and (path not in before or path in own)

        return lambda: console.main(given), may_be_replaced, given

    def may_be_made(path, before):
        inside = path.startswith(f"{real}/") or path == real or real.startswith(f"{path}/")
        return inside and path not in before

    return lambda: console.main(given), may_be_made, given


WRITERS = (
    *(write_a_text, evaluate_a_model, draw_attention, average_a_run, save_a_task),
    *(begin_a_run, prepare_a_corpus, export_a_model),
)


INPUTS = {
    evaluate_a_model: ("src.txt", "ref.txt", "task.keras"),
    draw_attention: ("task.keras",),
    average_a_run: ("run/model.keras",),
}


def check_case(seed, folder, monkeypatch, capsys, task):
    """Runs one writer in one tree; returns whether it wrote."""
    rng = np.random.default_rng(seed)
    tree = Tree(folder / str(seed), rng)
    monkeypatch.chdir(tree.home)
    writer = WRITERS[seed % len(WRITERS)]
    call, allowed, given = writer(tree, task) if writer is save_a_task else writer(tree)
    before, error = tree.state(), None
    with tree.drained():
        try:
            call()
        except (OSError, ValueError) as raised:
            error = f"{raised}"
        except SystemExit as end:
            error = end.code if isinstance(end.code, str) else capsys.readouterr().err
            error = error or "no message"
    after = tree.state()
    what = f"seed {seed}: {writer.__name__} {given}: {error}"
    changed = {p for p in before.keys() | after.keys() if before.get(p) != after.get(p)}
    if error is not None:
        assert len(error.strip().splitlines()) == 1 and "PosixPath" not in error, what
        assert not changed, f"{what} {changed}"
        return False
    if isinstance(allowed, set):
        inputs = {str(tree.home / name) for name in INPUTS.get(writer, ())}
        assert changed <= allowed - inputs, f"{what} {changed}"
        for path in changed & before.keys():
            assert after[path][:2] == before[path][:2], f"{what} {path}"
    else:
        stray = {path for path in changed if not allowed(path, before)}
        assert not stray, f"{what} {stray}"
    left = [path for path in after if "/.unfinished-" in path or "/.replac" in path]
    written = allowed if isinstance(allowed, set) else set()
    assert set(left) <= before.keys() | written, f"{what} {left}"
    return True


def check_cases(seeds, *arguments):
    written = sum(check_case(seed, *arguments) for seed in seeds)
    assert 0.1 < written / len(seeds) < 0.9  # neither refuses all nor accepts all


def test_a_hundred_trees_keep_what_is_not_the_packages(
    tmp_path, monkeypatch, capsys, fakes, small_tasks
):
    check_cases(range(104), tmp_path, monkeypatch, capsys, small_tasks["tagger"])


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 4000, 200))
def test_three_thousand_trees_keep_what_is_not_the_packages(
    tmp_path, monkeypatch, capsys, fakes, small_tasks, first
):
    seeds = range(first, first + 200)
    check_cases(seeds, tmp_path, monkeypatch, capsys, small_tasks["tagger"])
