"""What translating sentences of every length costs: compiled shapes, memory, one long sentence."""

import resource
import time

import keras
import numpy as np

from keras_transformer import Translator, learn_tokenizer
from keras_transformer.models import PRESETS

from .measuring import ours, report, stack_of

LENGTHS_HELP = """\
What sentences of every length cost, on random weights: nothing that grows with their number.

First --calls translations of 1 to 200 random characters (a token each), one sentence a call, greedy
and with two beams in turn; the peak of the process's memory after some of them. Then the seconds,
the best of five, of one sentence of 200 characters, of 63 of five, and of all 64 in one call.
"""
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def run(args):
    keras.utils.set_random_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    tokenizer = learn_tokenizer([LETTERS], model_type="char")
    args.vocabulary_size = tokenizer.vocabulary_size()
    for name, value in vars(PRESETS[args.preset]).items():
        setattr(args, name, value)
    translator = Translator(ours(args), tokenizer)

    def text(length):
        return "".join(rng.choice(list(LETTERS), length))

    rows, start = [], time.perf_counter()
    print(f"{stack_of(args)}\n\n| calls | seconds | peak memory |\n|---|---|---|")
    for number in range(1, args.calls + 1):
        translator.translate([text(rng.integers(1, 201))], beams=1 + number % 2)
        if number * 10 % args.calls == 0:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            rows.append(dict(calls=number, seconds=time.perf_counter() - start, memory_mb=peak))
            print(f"| {number} | {rows[-1]['seconds']:.0f} | {peak:,.0f} MB |", flush=True)

    one, many = [text(200)], [text(5) for _ in range(63)]
    print("\n| beams | 200 tokens alone | 63 times 5 tokens | together |\n|---|---|---|---|")
    for beams in (1, 4):
        row = {"beams": beams}
        for name, texts in (("long", one), ("short", many), ("together", one + many)):
            row[name] = min(seconds_of(translator, texts, beams) for _ in range(6))
        rows.append(row)
        print("| {beams} | {long:.3f} s | {short:.3f} s | {together:.3f} s |".format(**row))
    report(args, rows)


def seconds_of(translator, texts, beams):
    start = time.perf_counter()
    translator.translate(texts, beams=beams)
    return time.perf_counter() - start


def add_command(commands, formatter):
    one_line = "memory and seconds of translating sentences of every length"
    command = commands.add_parser("lengths", help=one_line, description=LENGTHS_HELP, **formatter)
    add = command.add_argument
    add("--preset", choices=PRESETS, default="tiny", help="sizes; default: tiny")
    add("--calls", type=int, default=1000, metavar="N", help="translations; default: 1000")
    add("--seed", type=int, default=0, metavar="N", help="of weights and texts; default: 0")
    add("--json", metavar="FILE", help="write the rows and their circumstances here too")
    command.set_defaults(run=run)
