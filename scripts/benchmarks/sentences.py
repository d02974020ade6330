"""Real sentences translated per second, compared with CTranslate2 with the same weights."""

import concurrent.futures
import contextlib
import functools
import multiprocessing
import pathlib
import tempfile

import numpy as np

import keras_transformer as kt
from keras_transformer.backend import num_cores, process
from keras_transformer.interchange import export, set_engine
from keras_transformer.interchange.engines import SAME_SLOPE

from .exports import equal
from .measuring import check_quiet, race, report

TRANSLATE_HELP = """\
Sentences per second of a trained translator, text to text, on sentences of every length.

  KERAS_BACKEND=jax python scripts/benchmark.py translate zh-en --texts dev.zh --beams 1 5
  python scripts/benchmark.py translate runs/en-de/model.keras --texts val.en --separate 3

Each contender has a process of its own, --separate times, and translates all lines once before
--rounds timed passes, in each of which all contenders take turns, so that a machine that becomes
slower is slower for all. CTranslate2 has another length penalty: alone it uses the one that
rises like that of --length-penalty at 20 tokens, as an engine of ours it ranks by ours. Contenders:

  ours              Translator.translate, in batches of 64 sentences as it forms them
  ours-one-batch    the same, one batch at a time
  engine            ours with CTranslate2 as its engine (--engine ctranslate2)
  engine-int8       the same with its products in 8 bits (--engine ctranslate2-int8)
  ours-int8         ours with the matrices of `Dense` layers in 8 bits (export --format keras)
  ctranslate2       CTranslate2's own batches of 64, one per core at a time, one thread each
  ctranslate2-one-batch  one batch at a time, one thread per core
  ctranslate2-int8, ctranslate2-int8-one-batch  the same with its products in 8 bits

`equal` counts the translations that are those of the first contender, `ratio` is the median of the
speeds divided by that of the first contender in the same pass. CTranslate2 has one limit of
length for all sentences, here that of the longest.
"""
BATCH_SIZE = 64


def ours(args, quantization=None, engine="keras"):
    task = kt.load(args.model)
    if quantization:
        with tempfile.TemporaryDirectory() as parent:
            folder = pathlib.Path(parent, "exported")
            export(task, folder, "keras", quantization)
            task = kt.load(folder / "model.keras")
    set_engine(task, engine)
    task.expect_many()
    search = dict(length_penalty=args.length_penalty, batch_size=BATCH_SIZE)
    return functools.partial(task.translate, **search)


def ours_one_batch(args):
    process._has_idle_cores = lambda: False
    return ours(args)


def ctranslate2(args, compute_type="float32", one_batch=False):
    import ctranslate2

    task = kt.load(args.model)
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent, "exported")
        export(task, folder, "ctranslate2")
        threads = (1, num_cores()) if one_batch else (num_cores(), 1)
        engine = ctranslate2.Translator(
            str(folder),
            compute_type=compute_type,
            inter_threads=threads[0],
            intra_threads=threads[1],
        )
    read, write = task.source_tokenizer, task.target_tokenizer
    id_of = {token: i for i, token in enumerate(write.get_vocabulary())}

    def translate(texts, beams):
        source = [read.tokens(ids) for ids in read.encode(task.normalized(texts))]
        longest = max(map(len, source)) + 1
        found = engine.translate_batch(
            source,
            beam_size=beams,
            length_penalty=args.length_penalty / SAME_SLOPE,
            max_decoding_length=int(task.config.max_length_ratio * longest + 16),
            max_batch_size=BATCH_SIZE,
        )
        return write.decode([[id_of[token] for token in each.hypotheses[0]] for each in found])

    return translate


CONTENDERS = {
    "ours": ours,
    "ours-one-batch": ours_one_batch,
    "engine": functools.partial(ours, engine="ctranslate2"),
    "engine-int8": functools.partial(ours, engine="ctranslate2-int8"),
    "ours-int8": functools.partial(ours, quantization="int8"),
    "ctranslate2": ctranslate2,
    "ctranslate2-one-batch": functools.partial(ctranslate2, one_batch=True),
    "ctranslate2-int8": functools.partial(ctranslate2, compute_type="int8"),
    "ctranslate2-int8-one-batch": functools.partial(
        ctranslate2, compute_type="int8", one_batch=True
    ),
}


def sentences(args):
    texts = pathlib.Path(args.texts).read_text("utf-8").removesuffix("\n").split("\n")
    return [text for text in texts if text.strip()][: args.number]


def prepare(args, name):
    """Makes this process that of a contender."""
    global translation
    translation = functools.partial(CONTENDERS[name](args), sentences(args))


def translate(beams):
    """The translations of this process's contender."""
    return translation(beams=beams)


def answer(submit, beams):
    """The translations of another process, by the `submit` of its executor."""
    return submit(translate, beams).result()


def measure(args):
    """Each contender in a new process: {(beams, name): translations and seconds}."""
    measured = {}
    with contextlib.ExitStack() as stack:
        processes = {}
        for name in args.contenders:
            process = concurrent.futures.ProcessPoolExecutor(
                1, multiprocessing.get_context("spawn")
            )
            processes[name] = stack.enter_context(process).submit
            processes[name](prepare, args, name).result()
        for beams in args.beams:
            runs = [functools.partial(answer, each, beams) for each in processes.values()]
            translations = [run() for run in runs]  # which compiles
            seconds = race(runs, args.rounds).T.tolist()
            for name, *found in zip(processes, translations, seconds, strict=True):
                measured[beams, name] = found
    return measured


def run(args):
    texts, quiet = sentences(args), check_quiet()
    rows = {}
    for _ in range(args.separate):
        for (beams, name), (translations, seconds) in measure(args).items():
            row = rows.setdefault((beams, name), {"name": name, "beams": beams, "seconds": []})
            row["seconds"] += seconds
            expected = rows[beams, args.contenders[0]].setdefault("translations", translations)
            row["equal"] = equal(translations, expected)
    for (beams, _), row in rows.items():
        of_first = np.array(rows[beams, args.contenders[0]]["seconds"])
        row["ratio"] = float(np.median(of_first / row["seconds"]))
    rows = [rows[key] for key in sorted(rows, key=lambda key: key[0])]
    print(f"Translating {len(texts):,} sentences with {args.model}\n")
    print("| contender | beams | sentences per second (quartiles) | ratio | equal |")
    print("|---|---|---|---|---|")
    for row in rows:
        row.pop("translations", None)
        quantiles = np.quantile(row["seconds"], (0.75, 0.5, 0.25))
        low, median, high = (len(texts) / quantiles).tolist()
        row |= {"sentences_per_second": median, "low": low, "high": high}
        speed = f"{median:,.0f} ({low:,.0f} to {high:,.0f})"
        print(
            f"| {row['name']} | {row['beams']} | {speed} | {row['ratio']:.2f} | {row['equal']:,} |"
        )
    report(args, rows, two_threads_over_one=quiet)


def add_command(commands, formatter):
    one_line = "translations per second of real sentences"
    command = commands.add_parser(
        "translate", help=one_line, description=TRANSLATE_HELP, **formatter
    )
    add = command.add_argument
    add("model", metavar="MODEL", help="path of the .keras file of a Translator, or a name")
    add("--texts", required=True, metavar="FILE", help="validation sentences, one per line")
    add("--number", type=int, metavar="N", help="sentences (default: all)")
    widths = "widths of the search, 1 for greedy (default: 1)"
    add("--beams", type=int, nargs="+", default=[1], metavar="N", help=widths)
    penalty = "exponent of the length penalty of beam search (default: 0)"
    add("--length-penalty", type=float, default=0.0, metavar="A", help=penalty)
    contenders = "contenders to measure (default: all)"
    add("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), help=contenders)
    separate = "processes of each contender, one after the other (default: 2)"
    add("--separate", type=int, default=2, metavar="N", help=separate)
    rounds = "timed passes per process (default: 3)"
    add("--rounds", type=int, default=3, metavar="N", help=rounds)
    add("--json", metavar="FILE", help="JSON file for the rows and their circumstances")
    command.set_defaults(run=run, keep_memory=False)
