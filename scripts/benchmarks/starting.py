"""Seconds until a training begins, and until a command has translated its first text."""

import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

import keras
import numpy as np

from .measuring import check_quiet, report

START_HELP = """\
Seconds from a command to what it has reached, median of --rounds new processes each:

  import keras              python -c "import keras"
  import keras_transformer  the same for this package
  model                     scripts/train_translation.py, dates, until the model's summary
  first update              the same until the progress bar shows one update: the model is traced
                            and compiled, and has its first batch behind it

Each contains the ones before it. The files are in the cache of the system: the first round is not
counted.
"""
FIRST_HELP = """\
Seconds of a command in a new process and, in brackets, of the processor, median of --rounds:

  import keras   python -c "import keras"
  help           keras-transformer translate --help
  load           python -c "import keras_transformer as kt; kt.load('dates')"
  first answer   keras-transformer translate dates "May 3, 2021", with no compiled program kept
  second answer  the same again, with the programs that JAX kept of the first

A second table has the parts of the first answer: the last but one is what JAX saves in the second.
The files are in the cache of the system: the first round is not counted.
"""
CONSOLE = "from keras_transformer.cli import main; main()"
STAGES = """
import atexit, gc, sys, time
ends = [time.time()]
atexit.register(gc.freeze)

def ended():
    ends.append(time.time())

from keras_transformer.cli import starting, translate
starting.keep_programs(), ended()
starting.import_keras(), ended()
from keras_transformer.tasks import Translator, saved_files
ended()
task = saved_files.load(sys.argv[1])
ended()
print(task.translate([sys.argv[2]]), file=sys.stderr)
print(*ends, time.time())
"""
PARTS = ("Python", "command", "Keras and its backend", "package", "model", "translation", "exit")
LOAD = "import sys; import keras_transformer as kt; kt.load(sys.argv[1])"
IMPORTS = {name: ["-c", f"import {name}"] for name in ("keras", "keras_transformer")}
SCRIPT = pathlib.Path(__file__).parents[1] / "train_translation.py"
REACHED = {  # patterns in the output of the script
    "model": re.compile(rb"Model: "),
    "first update": re.compile(rb"Epoch 1/\d+\s.*?\s1/\d+", re.DOTALL),
}


def seconds_to_import(arguments):
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def seconds_to_train():
    """Seconds until each of REACHED, of one training that ends there."""
    seconds, output = {}, b""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, SCRIPT, "--output", os.path.join(folder, "run")]
        start = time.perf_counter()
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, env=environment, **pipes) as training:
            while len(seconds) < len(REACHED):
                read = os.read(training.stdout.fileno(), 4096)
                if not read:
                    raise SystemExit(f"{SCRIPT.name} ended before its first update.")
                output += read
                for name, pattern in REACHED.items():
                    if name not in seconds and pattern.search(output):
                        seconds[name] = time.perf_counter() - start
            training.kill()
    return seconds


def start(args):
    quiet, rows = check_quiet(), []
    for _ in range(1 + args.rounds):
        row = {f"import {name}": seconds_to_import(command) for name, command in IMPORTS.items()}
        rows.append(row | seconds_to_train())
    medians = {name: float(np.median([row[name] for row in rows[1:]])) for name in rows[0]}
    print(f"Seconds from the command, {keras.backend.backend()}\n")
    print("| until | seconds |\n|---|---|")
    for name, seconds in medians.items():
        print(f"| {name} | {seconds:.1f} |")
    report(args, [medians], two_threads_over_one=quiet)


def environment_of(variables):
    """The variables of a new process, as a user has them."""
    environment = {**os.environ, **variables}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # users' Python compiles a module once
    return environment


def seconds_of_stages(*arguments, **variables):
    """Seconds of each of PARTS of a new process that translates a text."""
    command, environment = [sys.executable, "-c", STAGES, *arguments], environment_of(variables)
    start = time.time()
    output = subprocess.run(command, env=environment, check=True, capture_output=True).stdout
    return np.diff([start, *map(float, output.split()), time.time()])


def seconds_of(code, *arguments, **variables):
    """Seconds of a new process, and those of the processor."""
    environment = environment_of(variables)
    command = [sys.executable, "-c", code, *arguments]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def first(args):
    translation = (CONSOLE, "translate", args.model, args.text)
    commands = {
        "import keras": ("import keras",),
        "help": (CONSOLE, "translate", "--help"),
        "load": (LOAD, args.model),
        "first answer": translation,
        "second answer": translation,
    }
    quiet, rows = check_quiet(), []
    print(f"| backend | {' | '.join(commands)} |\n|---{'|---' * len(commands)}|")
    for name in args.backends:
        rounds, of_parts = [], []
        for _ in range(1 + args.rounds):
            with tempfile.TemporaryDirectory() as folder:
                variables = {"KERAS_BACKEND": name, "KERAS_TRANSFORMER_CACHE": folder}
                rounds.append([seconds_of(*each, **variables) for each in commands.values()])
            with tempfile.TemporaryDirectory() as folder:
                variables["KERAS_TRANSFORMER_CACHE"] = folder
                of_parts.append(seconds_of_stages(args.model, args.text, **variables))
        medians = np.median(rounds[1:], axis=0).tolist()
        rows.append({"backend": name, **dict(zip(commands, medians, strict=True))})
        seconds = np.median(of_parts[1:], axis=0).tolist()
        rows[-1]["parts"] = dict(zip(PARTS, seconds, strict=True))
        columns = (f"{seconds:.1f} ({processor:.1f})" for seconds, processor in medians)
        print(f"| {name} | {' | '.join(columns)} |", flush=True)
    print(f"\n| backend | {' | '.join(PARTS)} |\n|---{'|---' * len(PARTS)}|")
    for row in rows:
        columns = (f"{seconds:.2f}" for seconds in row["parts"].values())
        print(f"| {row['backend']} | {' | '.join(columns)} |")
    report(args, rows, two_threads_over_one=quiet)


def add_command(commands, formatter):
    one_line = "seconds until a command has translated its first text"
    command = commands.add_parser("first", help=one_line, description=FIRST_HELP, **formatter)
    add = command.add_argument
    backends = ["tensorflow", "jax", "torch"]
    add("--backends", nargs="+", choices=backends, default=backends, help="(default: all)")
    add("--model", default="dates", help="translator: file, run folder or name (default: dates)")
    add("--text", default="May 3, 2021", help="to translate (default: May 3, 2021)")
    add("--rounds", type=int, default=5, metavar="N", help="rounds that count (default: 5)")
    add("--json", metavar="FILE", help="JSON file for the rows and their circumstances")
    command.set_defaults(run=first)

    one_line = "seconds until a training begins"
    command = commands.add_parser("start", help=one_line, description=START_HELP, **formatter)
    add = command.add_argument
    add("--rounds", type=int, default=5, metavar="N", help="rounds that count (default: 5)")
    add("--json", metavar="FILE", help="JSON file for the rows and their circumstances")
    command.set_defaults(run=start)
