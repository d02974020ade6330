"""Ends the training scripts at random times, resumes them, and compares all that they leave.

  python tests/reliability/kill_runs.py --kills 20 --full-disks 5 --seed 1
  KERAS_BACKEND=torch python tests/reliability/kill_runs.py --scripts train_tagger --kills 5

Each script runs once without interruption. Then it is started repeatedly, each time with
SIGINT, SIGTERM or SIGKILL at a time that is uniform from the start of the process to its end, until
it has had its share of the kills and may finish. For a full disk no file may be larger than a
random number of bytes; the run must end with one sentence. Weights, history and scores must be the
same bits. It takes half a minute per kill on two cores, so the gate does not run it.
"""

import argparse
import io
import itertools
import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import zipfile

import h5py

sys.path.append(str(pathlib.Path(__file__).parents[1]))

from programs import history_of

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"
SMALL = "--num-layers 1 --d-model 16 --num-heads 2 --d-ff 32 --dropout 0.1 --epochs 3".split()
BATCHES = ["--batch-size", "32"]
TABLE = [(f"on {n % 7} May {1900 + n}", f"{1900 + n}-05-{n % 7}") for n in range(300)]
FILES = {
    "pairs.tsv": "".join(f"{source}\t{target}\n" for source, target in TABLE),
    "labels.tsv": "".join(f"{source}\t{n % 2}\n" for n, (source, _) in enumerate(TABLE)),
    "tags.tsv": "\n".join(f"on\tADP\n{n}\tNUM\nMay\tPROPN\n" for n in range(300)),
    "text.txt": "\n".join(f"{source} is {target}" for source, target in TABLE),
}
PAIRS = ["--pairs", "pairs.tsv", "--vocabulary", "char", *BATCHES]
COMMANDS = {
    "train_translation": [*PAIRS, "--average", "0"],
    "train_translation --diversify 1": [*PAIRS, "--average", "0", "--diversify", "1"],
    "train_tagger": ["--train", "tags.tsv", *BATCHES],
    "train_classifier": ["--train", "labels.tsv", "--columns", "1", "2", *BATCHES],
    "train_language_model": ["--train", "text.txt", "--lines", "--vocabulary", "char", *BATCHES],
    "pretrain_words": ["--train", "text.txt", *BATCHES],
}
ENDS = {signal.SIGINT: (130, -2), signal.SIGTERM: (143, -15), signal.SIGKILL: (-9,)}


def started(name, folder, output, largest=resource.RLIM_INFINITY):
    command = [sys.executable, str(SCRIPTS / f"{name.split()[0]}.py"), *COMMANDS[name]]
    command += ["--output", output, *SMALL]
    if (folder / output / "settings.json").exists():
        command.append("--resume")
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: _prepare(largest),
    )


def _prepare(largest):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))


def finished(name, folder, output):
    """Seconds of an undisturbed run."""
    start = time.monotonic()
    _, errors = (process := started(name, folder, output)).communicate()
    if process.returncode:
        sys.exit(f"{name} ended with {process.returncode}: {errors[-2000:]}")
    return time.monotonic() - start


def left(folder):
    """The results of a run, without its times: weights, history, scores."""
    weights = {}
    with zipfile.ZipFile(folder / "model.keras") as archive:
        content = io.BytesIO(archive.read("model.weights.h5"))
    with h5py.File(content) as file:
        file.visititems(lambda name, x: weights.update({name: _bytes(x)}))
    return weights, history_of(folder), json.loads((folder / "scores.json").read_text("utf-8"))


def _bytes(x):
    return x[()].tobytes() if isinstance(x, h5py.Dataset) else None


def kill(name, folder, output, seconds, rng):
    """Starts a run and ends it; returns what happened."""
    number = rng.choice(list(ENDS))
    process = started(name, folder, output)
    try:
        _, errors = process.communicate(timeout=rng.uniform(0, seconds))
        expected = (0,)
    except subprocess.TimeoutExpired:
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
        expected = (*ENDS[number], 0)  # 0: it had all but ended
    traceback = "Traceback" in errors and number != signal.SIGKILL
    wrong = process.returncode not in expected or traceback
    return f"{number.name} {process.returncode}{' WRONG: ' + errors[-1500:] if wrong else ''}"


def fill(name, folder, output, rng):
    """Starts a run on a disk that is full at some size of a file; returns what happened."""
    largest = int(1000 * 2 ** rng.uniform(0, 10))
    process = started(name, folder, output, largest)
    _, errors = process.communicate(timeout=300)
    lines = [line for line in errors.splitlines() if not line.startswith(("I0000", "WARNING"))]
    wrong = process.returncode not in (0, 1) or "Traceback" in errors or len(lines) > 3
    return f"disk of {largest} {process.returncode}{' WRONG: ' + errors[-1500:] if wrong else ''}"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scripts", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--kills", type=int, default=20, help="in all (default: 20)")
    parser.add_argument("--full-disks", type=int, default=0, help="in all (default: 0)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    rng, failures = random.Random(options.seed), 0
    ends = ["kill"] * options.kills + ["fill"] * options.full_disks
    rng.shuffle(ends)
    shares = _dealt(ends, len(options.scripts))
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent)
        for file, content in FILES.items():
            (folder / file).write_text(content, encoding="utf-8")
        for number, (name, share) in enumerate(zip(options.scripts, shares, strict=True)):
            seconds = finished(name, folder, f"whole-{number}")
            run = name, folder, f"run-{number}"
            events = [
                kill(*run, seconds, rng) if end == "kill" else fill(*run, rng) for end in share
            ]
            finished(name, folder, f"run-{number}")
            same = left(folder / f"whole-{number}") == left(folder / f"run-{number}")
            failures += not same or any("WRONG" in event for event in events)
            print(
                f"{name}: {'equal' if same else 'DIFFERENT'} after {', '.join(events)}", flush=True
            )
    sys.exit(min(failures, 1))


def _dealt(items, number):
    return [list(itertools.islice(items, first, None, number)) for first in range(number)]


if __name__ == "__main__":
    main()
