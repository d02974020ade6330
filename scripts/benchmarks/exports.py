"""Answers, size and speed of each export of a model: the matrix of formats."""

import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import keras_transformer as kt
from keras_transformer.interchange import FORMATS
from keras_transformer.interchange.graphs import beams_of
from keras_transformer.tasks import pretrained

from .measuring import report

EXPORTS_HELP = """\
Exports of models: equal answers, size, speed.

  python scripts/benchmark.py export runs/en-de/model.keras --texts val.en --number 1000
  python scripts/benchmark.py export runs/*/model.keras --formats onnx litert --json exports.json

Each model is exported to every format with every number type, and each export runs in a process
of its own without Keras (scripts/run_exported.py), with one thread, in batches of 64 texts,
greedily and, for translators, by beam search. `equal` counts the answers that are those of the task
itself, which also runs in a process of its own, as the row "ours", on the backend of this command.
CTranslate2 and transformers have other length penalties: their beam search is compared without
any. safetensors holds bare weights, which run nothing; tests compare them bit by bit.

--least 1 ends with code 1 if an export in float32 has another answer to any text, for a run every
night.
"""
SCRIPTS = pathlib.Path(__file__).parents[1]
NEEDS = {
    "saved_model": "tensorflow, tensorflow-text",
    "onnx": "onnxruntime, sentencepiece",
    "litert": "ai-edge-litert, sentencepiece",
    "ctranslate2": "ctranslate2, sentencepiece",
    "keras": "keras_transformer",
    "marian": "transformers, torch, sentencepiece",
    "safetensors": "safetensors; a model to put the weights into",
}
NO_PENALTY = ("ctranslate2", "marian")  # their length penalty is another one
ENGINES = (
    "tensorflow", "tensorflow-text", "onnx", "onnxruntime", "tf2onnx", "ai-edge-litert",
    "ctranslate2", "transformers", "torch",
)  # fmt: skip
MAX_TOKENS = 20  # new ones of a text generator


def own_answers(path, texts, options):
    """The answers of a saved task, texts per second and what they were asked with."""
    from keras_transformer import backend

    backend.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):  # JAX has no number of threads
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    task = kt.load(path)

    def answer():
        if isinstance(task, kt.Translator):
            return task.translate(texts, **options)
        if isinstance(task, kt.TextGenerator):
            return task.generate(texts, MAX_TOKENS, temperature=0)
        if isinstance(task, kt.Tagger):
            return task.tag(texts)
        return task.classify(texts) if isinstance(task, kt.Classifier) else task.fill(texts)

    answer()  # compiles
    start = time.perf_counter()
    answers = answer()
    return {"answers": answers, "texts_per_second": len(texts) / (time.perf_counter() - start)}


def in_own_process(function, *arguments):
    """A function of this module in a process of its own, one thread per operation."""
    code = (
        f"import json, sys; sys.path.insert(0, {str(SCRIPTS)!r}); "
        f"from benchmarks import exports; "
        f"result = exports.{function.__name__}(*json.load(sys.stdin)); "
        f"open(sys.argv[1], 'w').write(json.dumps(result))"
    )
    return answered([sys.executable, "-c", code], json.dumps(arguments), after=[])


def answered(command, stdin, after=("--json",)):
    """Returns what a process writes into a JSON file, whose name is its last argument."""
    threads = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "answers.json")
        done = subprocess.run(
            [*command, *after, str(path)],
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            env={**os.environ, **threads},
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        return json.loads(path.read_text("utf-8"))


def exported(model, format, kind, folder):
    """Seconds that `keras-transformer export` takes; its one sentence, if it cannot."""
    code = "from keras_transformer.cli import main; main()"
    command = [sys.executable, "-c", code, "export", model, "--format", format]
    command += ["--output", str(folder), *(["--quantize", kind] if kind else [])]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return time.perf_counter() - start


def size_of(folder, beams):
    """Megabytes of the files that one search reads."""
    search = "greedy" if beams == 1 else f"beam{beams}"
    files = [path for path in folder.rglob("*") if path.is_file()]
    if any(path.stem == search for path in files):  # one file per search
        graphs = (".onnx", ".tflite")
        files = [path for path in files if path.suffix not in graphs or path.stem == search]
    return sum(path.stat().st_size for path in files) / 1e6


def searches_of(task):
    """The widths of the searches that are exported."""
    if not isinstance(task, kt.Translator):
        return [1]
    return [1, beams_of(task)]


def equal(one, other):
    """The number of answers with the same strings, whatever their probabilities."""

    def strings(answer):
        if isinstance(answer, (list, tuple)):
            return [strings(each) for each in answer if not isinstance(each, float)]
        return answer

    return sum(strings(a) == strings(b) for a, b in zip(one, other, strict=True))


def measure_model(path, texts, formats):
    """The rows of one model."""
    task = kt.load(path)
    is_translator = isinstance(task, kt.Translator)
    of_model = dict(model=str(path), task=type(task).__name__, number=len(texts))
    asked = {beams: {"beams": beams} if is_translator else {} for beams in searches_of(task)}
    ours = {beams: in_own_process(own_answers, path, texts, asked[beams]) for beams in asked}
    expected = {beams: ours[beams]["answers"] for beams in asked}
    plain = dict(expected)  # without a length penalty
    if is_translator and set(NO_PENALTY) & set(formats):
        for beams in asked:
            options = {**asked[beams], "length_penalty": 0.0}
            plain[beams] = in_own_process(own_answers, path, texts, options)["answers"]
    for beams in asked:
        row = {**of_model, "beams": beams, "format": "ours", "kind": "float32"}
        speed = ours[beams]["texts_per_second"]
        size = pretrained.find(path).stat().st_size / 1e6
        yield {**row, "equal": len(texts), "mb": size, "texts_per_second": speed}
    for format in formats:
        for kind in (None, *FORMATS[format].quantizations):
            if format == "keras" and kind is None:
                continue
            row = {**of_model, "format": format, "kind": kind or "float32"}
            print(f"{path}: {format}, {row['kind']}", file=sys.stderr)
            with tempfile.TemporaryDirectory() as parent:
                folder = pathlib.Path(parent, "exported")
                try:
                    row["seconds"] = exported(path, format, kind, folder)
                    if format == "safetensors":
                        yield {**row, "beams": "", "mb": size_of(folder, 1), "needs": NEEDS[format]}
                        continue
                    for beams, options in asked.items():
                        answers = (plain if format in NO_PENALTY else expected)[beams]
                        cell = measure_cell(folder, texts, format, beams, options, answers)
                        yield {**row, "beams": beams, **cell}
                except RuntimeError as error:
                    yield {**row, "beams": "", "reason": str(error)}
                    if kind is None:
                        break


def measure_cell(folder, texts, format, beams, options, expected):
    """One search of one export."""
    if format == "keras":
        found = in_own_process(own_answers, str(folder / "model.keras"), texts, options)
    else:
        command = [sys.executable, str(SCRIPTS / "run_exported.py"), str(folder)]
        command += ["--beams", str(beams), "--max-tokens", str(MAX_TOKENS)]
        found = answered(command, "\n".join(texts) + "\n")
    return {
        "equal": equal(found["answers"], expected),
        "mb": size_of(folder, beams),
        "texts_per_second": found["texts_per_second"],
        "needs": NEEDS[format],
    }


def print_table(rows):
    print("| model | beams | format | numbers | equal | MB | export | texts per second | needs |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        path = pathlib.Path(row["model"])
        name = f"{row['task']} {path.parent.name or path.name}"
        start = f"| {name} | {row['beams']} | {row['format']} | {row['kind']} |"
        if "reason" in row:
            print(f"{start} not possible: {row['reason']} |||||")
            continue
        export = f"{row['seconds']:.0f} s" if "seconds" in row else ""
        equal = f"{row['equal']:,} of {row['number']:,}" if "equal" in row else ""
        speed = f"{row['texts_per_second']:,.0f}" if "equal" in row else ""
        print(f"{start} {equal} | {row['mb']:.2f} | {export} | {speed} | {row.get('needs', '')} |")


def run(args):
    rows = []
    for path in args.models:
        lines = texts_for(path, args)
        rows.extend(measure_model(path, lines, args.formats))
    print_table(rows)
    engines = {name: version_of(name) for name in ENGINES}
    print("\nEngines: " + ", ".join(f"{name} {engines[name]}" for name in ENGINES) + ".")
    report(args, rows, engines=engines)
    for row in rows:
        least = args.least * row["number"] if row["kind"] == "float32" else 0
        if row.get("equal", least) < least:
            sys.exit(
                f"{row['model']} as {row['format']}, beam {row['beams']}: {row['equal']} of "
                f"{row['number']} answers are equal; expected at least {least:g}."
            )


def version_of(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def texts_for(path, args):
    """Lines of --texts, else generated dates; with a mask for a task that fills it."""
    if args.texts:
        lines = pathlib.Path(args.texts).read_text("utf-8").removesuffix("\n").split("\n")
    else:
        lines = kt.data.dates(num_train=1, num_valid=args.number, num_test=1, seed=7).valid.source
    lines = lines[: args.number]
    if kt.check_file(path).task == "MaskFiller":
        lines = [" ".join(["[MASK]", *line.split()[1:]]) for line in lines]
    return lines


def add_command(commands, formatter):
    one_line = "exports of models: equal answers, size, texts per second"
    command = commands.add_parser("export", help=one_line, description=EXPORTS_HELP, **formatter)
    add = command.add_argument
    add("models", nargs="+", metavar="MODEL", help="paths of .keras files, or names")
    add("--texts", metavar="FILE", help="validation inputs, one per line (default: dates)")
    add("--number", type=int, default=1000, metavar="N", help="inputs per model (default: 1000)")
    add("--formats", nargs="+", choices=NEEDS, default=list(NEEDS), help="formats to measure")
    least = "least share of equal answers of an export in float32 (default: 0)"
    add("--least", type=float, default=0.0, metavar="SHARE", help=least)
    add("--json", metavar="FILE", help="JSON file for the rows and their circumstances")
    command.set_defaults(run=run)
