"""Real target tokens a second over whole epochs of sentence pairs, the data included."""

import sys
import time

import keras
from recipes import TRANSLATION

from keras_transformer import corpora, encode, learn_tokenizer
from keras_transformer.batches import TranslationBatches
from keras_transformer.tokenizers import END, START
from keras_transformer.training import TokenCrossEntropy, paper_optimizer

from .measuring import ours, report, stack_of
from .training import keras_hub_layers

EPOCH_HELP = """\
Real target tokens a second over a whole epoch of your sentence pairs, from ids to the last update.

  python scripts/benchmark.py epoch --source train.en.gz --target train.de.gz

Both have the sizes and the norm (before or after a sublayer) of a recipe, the same ids from one
BPE vocabulary, and as many updates an epoch. They take turns, an epoch each; the first epoch
compiles and is in a column of its own. Padding counts as time, not as tokens. Needs TensorFlow,
for tf.data.

  ours       Transformer, TranslationBatches (buckets of like lengths, a budget of tokens),
             TokenCrossEntropy with smoothing 0.1
  keras-hub  keras_hub layers as in its translation example; tf.data: shuffled, batched by
             sentences, padded to the longest of the batch (on JAX, which compiles every new shape,
             to the longest of all), prefetched;
             SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
"""


def our_epoch(args, source, target):
    batches = TranslationBatches(source, target, tokens_per_batch=args.tokens_per_batch)
    print(batches.summary(), file=sys.stderr)
    model = ours(args, norm_first=args.norm_first)
    return len(batches), fitting(model, TokenCrossEntropy(0.1), batches, shuffle=False)


def keras_hub_epoch(args, source, target, num_batches):
    import tensorflow as tf

    rows = -(-len(source) // num_batches)
    sides = [
        tf.ragged.constant(side)
        for side in (
            [[*ids, END] for ids in source],
            [[START, *ids] for ids in target],
            [[*ids, END] for ids in target],
        )
    ]
    on_jax = keras.backend.backend() == "jax"
    widths = [side.bounding_shape()[1] if on_jax else None for side in sides]

    def padded(*ids):
        source_ids, target_ids, labels = (
            side.to_tensor(shape=(None, width)) for side, width in zip(ids, widths)
        )
        return {"source_ids": source_ids, "target_ids": target_ids}, labels

    dataset = tf.data.Dataset.from_tensor_slices(tuple(sides)).shuffle(len(source), seed=0)
    dataset = dataset.batch(rows, drop_remainder=on_jax).map(padded).prefetch(tf.data.AUTOTUNE)
    options = dict(from_logits=True, ignore_class=0)
    loss = keras.losses.SparseCategoricalCrossentropy(**options)
    return fitting(keras_hub_layers(args, args.norm_first), loss, dataset)


def fitting(model, loss, data, **kwargs):
    """A function that trains for one more epoch and returns its seconds."""
    # XLA would compile each new shape; on TensorFlow both are faster without.
    jit_compile = False if keras.backend.backend() == "tensorflow" else "auto"
    model.compile(paper_optimizer(1e-3), loss, jit_compile=jit_compile)

    def epoch():
        start = time.perf_counter()
        model.fit(data, verbose=0, **kwargs)
        return time.perf_counter() - start

    return epoch


def run(args):
    for name, value in TRANSLATION[args.recipe].items():
        setattr(args, name, getattr(args, name, None) or value)
    keras.utils.set_random_seed(args.seed)
    texts = corpora.read_files(args.source, args.target)
    texts = [side[: args.limit] for side in texts]
    tokenizer = learn_tokenizer(texts[0] + texts[1], args.vocabulary_size)
    args.vocabulary_size = tokenizer.vocabulary_size()
    source, target = (encode(tokenizer, side) for side in texts)
    num_tokens = sum(map(len, target)) + len(target)  # END is written, too
    num_batches, our = our_epoch(args, source, target)
    contenders = {"ours": our, "keras-hub": keras_hub_epoch(args, source, target, num_batches)}

    seconds = {name: [] for name in contenders}
    for number in range(1 + args.rounds):
        for name, epoch in contenders.items():
            seconds[name].append(epoch())
            print(f"epoch {number}, {name}: {seconds[name][-1]:.1f} s", file=sys.stderr)
    rows = [
        dict(name=name, first=first, seconds=min(later), tokens_per_second=num_tokens / min(later))
        for name, (first, *later) in seconds.items()
    ]
    batches = f"{num_batches} updates an epoch, dropout {args.dropout:g}"
    print(f"Epoch of {len(source):,} pairs, {num_tokens:,} target tokens, {batches},")
    print(f"{stack_of(args)}, {'pre' if args.norm_first else 'post'}-norm\n")
    print("| who | first epoch, s | fastest later epoch, s | real target tokens a second | ratio |")
    print("|---|---|---|---|---|")
    for row in rows:
        row["ratio"] = row["tokens_per_second"] / rows[-1]["tokens_per_second"]
        numbers = f"{row['first']:.1f} | {row['seconds']:.1f} | {row['tokens_per_second']:,.0f}"
        print(f"| {row['name']} | {numbers} | {row['ratio']:.2f} |")
    report(args, rows)


def add_command(commands, formatter):
    one_line = "real target tokens a second over whole epochs"
    command = commands.add_parser("epoch", help=one_line, description=EPOCH_HELP, **formatter)
    add = command.add_argument
    add("--source", required=True, metavar="FILE", help="sentences, one a line, plain or .gz")
    add("--target", required=True, metavar="FILE", help="their translations, line by line")
    add("--recipe", choices=("small", "medium"), default="small", help="default: small")
    add("--vocabulary-size", type=int, metavar="N", help="default: the recipe's")
    add("--tokens-per-batch", type=int, metavar="N", help="default: the recipe's")
    add("--limit", type=int, metavar="N", help="only the first N pairs")
    add("--rounds", type=int, default=1, metavar="N", help="epochs of each after its first (1)")
    add("--seed", type=int, default=0, metavar="N", help="of weights and dropout (0)")
    add("--json", metavar="FILE", help="write the rows and their circumstances here too")
    command.set_defaults(run=run, norm_first=False)
