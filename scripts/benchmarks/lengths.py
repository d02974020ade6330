"""The cost of translating sentences of every length: compilations, memory, one long sentence."""

import time

import keras
import numpy as np

import keras_transformer as kt

from .measuring import peak_memory, report, stack_of

LENGTHS_HELP = """\
The cost of sentences of every length, on random weights: time and memory must not grow with the
number of different lengths.

First --calls translations of 1 to 200 random characters (one token per character), one sentence per
call, greedy and with two beams in turn; the table shows the peak memory of the process after each
tenth of them. Then the seconds, the best of six, of one sentence of 200 characters, of 63 of five,
and of all 64 in one call.
"""
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def run(args):
    keras.utils.set_random_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    tokenizer = kt.train_tokenizer([LETTERS], model_type="char")
    size = tokenizer.vocabulary_size()
    config = kt.PRESETS[args.preset]
    translator = kt.Translator(kt.Transformer(size, config=config), tokenizer)

    def text(length):
        return "".join(rng.choice(list(LETTERS), length))

    print(f"{stack_of(config, size)}\n")
    rows = many_lengths(translator, text, rng, args.calls)
    rows += one_long_sentence(translator, text)
    report(args, rows)


def many_lengths(translator, text, rng, calls):
    rows, start = [], time.perf_counter()
    print("| calls | seconds | peak memory |\n|---|---|---|")
    for number in range(1, calls + 1):
        translator.translate([text(rng.integers(1, 201))], beams=1 + number % 2)
        if number * 10 % calls == 0:
            seconds, memory = time.perf_counter() - start, peak_memory()
            rows.append({"calls": number, "seconds": seconds, "memory_mb": memory})
            print(f"| {number} | {seconds:.0f} | {memory:,.0f} MB |", flush=True)
    return rows


def one_long_sentence(translator, text):
    one = [text(200)]
    many = [text(5) for _ in range(63)]
    rows = []
    print("\n| beams | 200 tokens alone | 63 times 5 tokens | together |\n|---|---|---|---|")
    for beams in (1, 4):
        row = {"beams": beams}
        for name, texts in (("long", one), ("short", many), ("together", one + many)):
            row[name] = min(seconds_of(translator, texts, beams) for _ in range(6))
        rows.append(row)
        print("| {beams} | {long:.3f} s | {short:.3f} s | {together:.3f} s |".format(**row))
    return rows


def seconds_of(translator, texts, beams):
    start = time.perf_counter()
    translator.translate(texts, beams=beams)
    return time.perf_counter() - start


def add_command(commands, formatter):
    one_line = "memory and seconds of translating sentences of every length"
    command = commands.add_parser("lengths", help=one_line, description=LENGTHS_HELP, **formatter)
    add = command.add_argument
    add("--preset", choices=kt.PRESETS, default="tiny", help="sizes (default: tiny)")
    add("--calls", type=int, default=1000, metavar="N", help="translations (default: 1000)")
    seed = "random seed of weights and texts (default: 0)"
    add("--seed", type=int, default=0, metavar="N", help=seed)
    add("--json", metavar="FILE", help="JSON file for the rows and their circumstances")
    command.set_defaults(run=run)
