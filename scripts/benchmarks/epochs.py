"""Target tokens per second over whole epochs of sentence pairs, the data pipeline included."""

import dataclasses
import sys
import time
from typing import NamedTuple

import keras
import numpy as np

import keras_transformer as kt
from keras_transformer import backend
from recipes import TRANSLATION

from .measuring import (
    OF_OURS_ALONE,
    add_keep_memory,
    add_separate,
    check_quiet,
    measure_separately,
    report,
    stack_of,
)
from .training import keras_hub_layers, ours

EPOCH_HELP = """\
Target tokens per second over a whole epoch of your sentence pairs, from ids to the last update.

  python scripts/benchmark.py epoch --source train.en.gz --target train.de.gz

Both contenders have the sizes and the norm (before or after a sublayer) of a recipe, sinusoids, the
same ids from one BPE vocabulary, and the same number of updates per epoch. They take turns of one
epoch, or with --separate of a process; the first epoch compiles and has a column of its own.
Padding counts as time, not as tokens. Needs TensorFlow, for tf.data.

  ours       Transformer, TranslationBatches (buckets of similar lengths, a budget of tokens),
             TokenCrossEntropy with label smoothing 0.1
  keras-hub  keras_hub layers as in its translation example; tf.data: shuffled, batched by
             sentences, padded to the longest of the batch (on JAX, which compiles every new shape,
             to the longest of all), prefetched, without the tuning for which an epoch waits
             (--autotune: with it, as by default);
             SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
"""


class Data(NamedTuple):
    """The sentence pairs as ids, and in batches of ours."""

    source: list
    target: list
    vocabulary_size: int
    batches: kt.TranslationBatches


def read(args):
    recipe = TRANSLATION[args.recipe]
    texts = kt.data.read_files(args.source, args.target)
    source, target = (side[: args.limit] for side in texts)
    wanted = args.vocabulary_size or recipe.tokenizer.vocabulary_size
    tokenizer = kt.train_tokenizer(source + target, wanted)
    source, target = tokenizer.encode(source), tokenizer.encode(target)
    budget = args.tokens_per_batch or recipe.training.tokens_per_batch
    sizes = dict(tokens_per_batch=budget, num_buckets=args.num_buckets)
    batches = kt.TranslationBatches(source, target, **sizes)
    return Data(source, target, tokenizer.vocabulary_size(), batches)


def our_epoch(config, data, args):
    model = ours(config, data.vocabulary_size)
    return fitting(model, kt.TokenCrossEntropy(0.1), data.batches, shuffle=False)


def keras_hub_epoch(config, data, args):
    import tensorflow as tf

    source, target = data.source, data.target
    rows = -(-len(source) // len(data.batches))
    sides = (
        tf.ragged.constant([[*ids, kt.END] for ids in source]),
        tf.ragged.constant([[kt.START, *ids] for ids in target]),
        tf.ragged.constant([[*ids, kt.END] for ids in target]),
    )
    on_jax = keras.backend.backend() == "jax"
    widths = [side.bounding_shape()[1] if on_jax else None for side in sides]

    def padded(*ids):
        source_ids, target_ids, labels = (
            side.to_tensor(shape=(None, width)) for side, width in zip(ids, widths, strict=True)
        )
        return {"source_ids": source_ids, "target_ids": target_ids}, labels

    dataset = tf.data.Dataset.from_tensor_slices(sides).shuffle(len(source), seed=0)
    dataset = dataset.batch(rows, drop_remainder=on_jax).map(padded).prefetch(tf.data.AUTOTUNE)
    options = tf.data.Options()
    options.autotune.enabled = args.autotune  # an epoch waits for it; see keras_transformer.backend
    dataset = dataset.with_options(options)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    return fitting(keras_hub_layers(config, data.vocabulary_size), loss, dataset)


def fitting(model, loss, data, **kwargs):
    """A function that trains for one more epoch and returns its seconds."""
    # On TensorFlow without XLA, which would compile each shape, of KerasHub's nearly every batch.
    jit_compile = False if keras.backend.backend() == "tensorflow" else "auto"
    model.compile(kt.paper_optimizer(1e-3), loss, jit_compile=jit_compile)

    def epoch():
        start = time.perf_counter()
        model.fit(data, verbose=0, **kwargs)
        return time.perf_counter() - start

    return epoch


def sizes_of(recipe):
    """The model of a recipe, with the sinusoids that KerasHub's layers have."""
    return dataclasses.replace(TRANSLATION[recipe].model, rotary=False)


CONTENDERS = {"ours": our_epoch, "keras-hub": keras_hub_epoch}


def measure(args, contenders):
    """Seconds of each epoch of the contenders, which take turns in this process."""
    if args.keep_memory:
        backend.keep_freed_memory()
    backend.leave_pipelines_untuned()
    keras.utils.set_random_seed(args.seed)
    config, data = sizes_of(args.recipe), read(args)
    epochs = {name: CONTENDERS[name](config, data, args) for name in contenders}
    seconds = {name: [] for name in contenders}
    for number in range(1 + args.rounds):
        for name, epoch in epochs.items():
            seconds[name].append(epoch())
            print(f"epoch {number}, {name}: {seconds[name][-1]:.1f} s", file=sys.stderr)
    return seconds


def run(args):
    quiet = check_quiet()
    config, data = sizes_of(args.recipe), read(args)
    print(data.batches.summary(), file=sys.stderr)
    measured = measure_separately(measure, args) if args.separate else [measure(args, CONTENDERS)]
    rows = {}
    for name, (first, *later) in (item for each in measured for item in each.items()):
        row = rows.setdefault(name, {"name": name, "first": [], "seconds": []})
        row["first"].append(first)
        row["seconds"] += later
    num_tokens = sum(map(len, data.target)) + len(data.target)  # END is also predicted
    norm = "pre" if config.norm_first else "post"
    print(f"Epoch of {len(data.source):,} pairs, {num_tokens:,} target tokens,")
    print(f"{len(data.batches)} updates, dropout {config.dropout:g}, {norm}-norm,")
    print(f"{stack_of(config, data.vocabulary_size)}\n")
    print("| contender | first epoch, s | later epochs, s | target tokens per second | ratio |")
    print("|---|---|---|---|---|")
    for row in rows.values():
        low, median, high = np.quantile(row["seconds"], (0.25, 0.5, 0.75)).tolist()
        row |= {"first": float(np.median(row["first"])), "low": low, "median": median, "high": high}
        row["tokens_per_second"] = num_tokens / median
        row["ratio"] = float(np.median(rows["keras-hub"]["seconds"])) / median
        speed = f"{median:.1f} ({low:.1f} to {high:.1f}) | {row['tokens_per_second']:,.0f}"
        print(f"| {row['name']} | {row['first']:.1f} | {speed} | {row['ratio']:.2f} |")
    report(args, list(rows.values()), two_threads_over_one=quiet)


def add_command(commands, formatter):
    one_line = "target tokens per second over whole epochs"
    command = commands.add_parser("epoch", help=one_line, description=EPOCH_HELP, **formatter)
    add = command.add_argument
    lines = "sentences, one per line, plain or compressed"
    add("--source", required=True, metavar="FILE", help=lines)
    add("--target", required=True, metavar="FILE", help="their translations, line by line")
    recipe = "recipe of the sizes (default: small)"
    add("--recipe", choices=("small", "medium"), default="small", help=recipe)
    vocabulary_size = "ids of the vocabulary (default: the recipe's)"
    add("--vocabulary-size", type=int, metavar="N", help=vocabulary_size)
    tokens = "target tokens per batch of ours (default: the recipe's)"
    add("--tokens-per-batch", type=int, metavar="N", help=tokens)
    buckets = "length buckets of ours (default: 8)"
    add("--num-buckets", type=int, default=8, metavar="N", help=buckets)
    add_separate(add)
    add_keep_memory(add, OF_OURS_ALONE)
    add("--autotune", action="store_true", help="tune the pipeline of keras-hub, tf.data's default")
    add("--limit", type=int, metavar="N", help="number of pairs to use (default: all)")
    rounds = "epochs per contender after its first (default: 1)"
    add("--rounds", type=int, default=1, metavar="N", help=rounds)
    seed = "random seed of weights and dropout (default: 0)"
    add("--seed", type=int, default=0, metavar="N", help=seed)
    add("--json", metavar="FILE", help="JSON file for the rows and their circumstances")
    command.set_defaults(run=run, contenders=list(CONTENDERS))
