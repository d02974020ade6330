"""Tokens per second that a prepared corpus provides, and those that training consumes."""

import time

import keras
import numpy as np

import keras_transformer as kt
from keras_transformer import data
from recipes import TRANSLATION

from .measuring import check_quiet, peak_memory, report, stack_of

READ_HELP = """\
Target tokens per second, padding excluded, that PreparedBatches read from a corpus of pairs, and
those that training consumes with the sizes and the batches of a recipe.

  keras-transformer prepare corpora/en-de --pairs pairs.tsv --vocabulary-size 10000
  python scripts/benchmark.py read corpora/en-de

Reading is timed over the first --batches batches of an epoch, training over the first --steps, once
a batch of each of their shapes has been trained on (which compiles).
"""


def tokens_in(batch):
    return int(np.count_nonzero(batch[1]))


def reading(batches, number):
    """Target tokens per second of reading the first batches of an epoch."""
    start, tokens = time.perf_counter(), 0
    for index in range(min(number, len(batches))):
        tokens += tokens_in(batches[index])
    return tokens / (time.perf_counter() - start)


def training(recipe, vocabulary_size, batches, number):
    """Target tokens per second of training on them, or on fewer."""
    model = kt.Transformer(vocabulary_size, config=recipe.model)
    model.compile(
        kt.paper_optimizer(1e-4),
        kt.TokenCrossEntropy(recipe.label_smoothing),
        jit_compile=kt.backend.prefers_jit(),
    )
    chosen = [batches[index] for index in range(min(number, len(batches)))]
    for batch in {labels.shape: (inputs, labels) for inputs, labels in chosen}.values():
        model.train_on_batch(*batch)
    start = time.perf_counter()
    for batch in chosen:
        model.train_on_batch(*batch)
    keras.ops.convert_to_numpy(model.trainable_variables[-1])  # waits for the last update
    return sum(map(tokens_in, chosen)) / (time.perf_counter() - start)


def run(args):
    keras.utils.set_random_seed(args.seed)
    recipe = TRANSLATION[args.recipe]
    corpus = data.Corpus(args.corpus)
    size = corpus.tokenizers()[-1].vocabulary_size()
    quiet, start = check_quiet(), time.perf_counter()
    batches = data.PreparedBatches(corpus, seed=args.seed, **recipe.budget)
    batches[0]  # plans the order of the epoch
    planning = time.perf_counter() - start
    row = {
        "pairs": len(corpus),
        "planning_seconds": planning,
        "read": reading(batches, args.batches),
        "memory_mb": peak_memory(),
        "trained": training(recipe, size, batches, args.steps),
    }
    row["ratio"] = row["read"] / row["trained"]
    print(f"{len(corpus):,} pairs, {len(batches):,} batches; {stack_of(recipe.model, size)}\n")
    print("| plan of an epoch, s | peak memory, MB | tokens per second read | trained | ratio |")
    print("|---|---|---|---|---|")
    print(
        f"| {planning:.1f} | {row['memory_mb']:,.0f} | {row['read']:,.0f} | "
        f"{row['trained']:,.0f} | {row['ratio']:.0f} |"
    )
    report(args, [row], two_threads_over_one=quiet)


def add_command(commands, formatter):
    one_line = "tokens per second read from a prepared corpus"
    command = commands.add_parser("read", help=one_line, description=READ_HELP, **formatter)
    add = command.add_argument
    add("corpus", metavar="FOLDER", help="corpus of pairs that keras-transformer prepare wrote")
    recipe = "recipe of the sizes and the batches (default: small)"
    add("--recipe", choices=TRANSLATION, default="small", help=recipe)
    number = "batches to read (default: 2000)"
    add("--batches", type=int, default=2000, metavar="N", help=number)
    steps = "batches to train on (default: 20)"
    add("--steps", type=int, default=20, metavar="N", help=steps)
    seed = "random seed of weights, dropout and order (default: 0)"
    add("--seed", type=int, default=0, metavar="N", help=seed)
    add("--json", metavar="FILE", help="JSON file for the rows and their circumstances")
    command.set_defaults(run=run)
