"""Seconds per training step, compared with the layers of Keras, KerasHub and PyTorch."""

import argparse
import collections
import itertools
import math
import sys

import keras
import numpy as np
from keras import layers, ops

import keras_transformer as kt
from keras_transformer import backend

from .measuring import (
    INPUTS,
    OF_OURS_ALONE,
    add_keep_memory,
    add_separate,
    add_sizes,
    check_quiet,
    id_inputs,
    measure_separately,
    race,
    report,
    sizes_given,
    stack_of,
)

TRAIN_HELP = """\
Seconds per training step (forward, backward, Adam) of an encoder-decoder Transformer.

All contenders have the same sizes, tied embeddings, post-norm, dropout and batch, and are trained
by keras.Model.train_on_batch, which runs the compiled function of `fit`. Each round times one step
of each in turn; the table shows the median over the rounds. A GPU computes while the next steps are
prepared: with --steps 10 a round times `fit` with that many. Contenders:

  ours                       Transformer; dropout on embeddings and sublayers, as in the paper
  ours-attention-dropout     the same with dropout on the attention weights too, as in KerasHub
  ours-metrics               ours, with TokenAccuracy and Perplexity
  keras-hub                  keras_hub.layers.TransformerEncoder and TransformerDecoder
  keras-attention            keras.layers.MultiHeadAttention, assembled as in chapter 16 of
                             Géron's book (heads of d_model / num_heads, no attention dropout)
  torch                      torch.nn.Transformer, torch.optim.Adam (torch backend only): eager and,
                             on a GPU, under torch.compile
  limit                      no model: the matrix products of such a step and nothing else

Ours trains with TokenCrossEntropy, label smoothing 0.1. The others on Keras are timed with it and
with keras.losses.SparseCategoricalCrossentropy(from_logits=True), and on TensorFlow, and on
PyTorch with a GPU, all are timed with jit_compile False and True; the table shows the fastest
variant of each.
`ratio` is seconds / seconds of the fastest other model: below 1 is faster. `x limit` is seconds /
seconds of the products alone, which no implementation of these sizes can do without. `TFLOP/s`
counts these products, with their share of the ceiling: what large square products
reach in the same run.

In one process the settings of one contender are those of all. --separate N gives each contender N
processes of its own, in turn, and --keep-memory then holds for ours and the limit alone: a user of
another library has no such setting.
"""


def ours(config, vocabulary_size, **changes):
    return kt.Transformer(vocabulary_size, config=config, **changes)


def ours_attention_dropout(config, vocabulary_size):
    return ours(config, vocabulary_size, attention_dropout=config.dropout)


def keras_hub_layers(config, vocabulary_size):
    import keras_hub

    embedding = keras_hub.layers.ReversibleEmbedding(vocabulary_size, config.d_model)
    positions = keras_hub.layers.SinePositionEncoding()
    block = {
        "intermediate_dim": config.d_ff,
        "num_heads": config.num_heads,
        "dropout": config.dropout,
        "normalize_first": config.norm_first,
    }

    def embed(ids):
        x = embedding(ids) * config.d_model**0.5
        return layers.Dropout(config.dropout)(x + positions(x))

    def end_of_stack(x):
        return layers.LayerNormalization()(x) if config.norm_first else x

    inputs = id_inputs()
    source_ids, target_ids = inputs.values()
    source_mask = ops.not_equal(source_ids, kt.PADDING)
    x, y = embed(source_ids), embed(target_ids)
    for _ in range(config.num_layers):
        x = keras_hub.layers.TransformerEncoder(**block)(x, padding_mask=source_mask)
    x = end_of_stack(x)
    for _ in range(config.num_layers):
        decoder = keras_hub.layers.TransformerDecoder(**block)
        y = decoder(y, x, encoder_padding_mask=source_mask)
    return keras.Model(inputs, embedding(end_of_stack(y), reverse=True))


def keras_attention(config, vocabulary_size):
    embedding = layers.ReversibleEmbedding(vocabulary_size, config.d_model)

    def embed(ids):
        x = kt.PositionalEncoding()(embedding(ids) * config.d_model**0.5)
        return layers.Dropout(config.dropout)(x)

    def add_norm(x, h):
        return layers.LayerNormalization()(x + layers.Dropout(config.dropout)(h))

    def attend(x, value, **masks):
        attention = layers.MultiHeadAttention(config.num_heads, config.d_model // config.num_heads)
        return add_norm(x, attention(x, value, **masks))

    def feed_forward(x):
        h = layers.Dense(config.d_ff, activation="relu")(x)
        return add_norm(x, layers.Dense(config.d_model)(h))

    inputs = id_inputs()
    source_ids, target_ids = inputs.values()
    source_mask = kt.padding_mask(source_ids)
    x, y = embed(source_ids), embed(target_ids)
    for _ in range(config.num_layers):
        x = feed_forward(attend(x, x, attention_mask=source_mask))
    for _ in range(config.num_layers):
        y = attend(y, y, use_causal_mask=True)
        y = feed_forward(attend(y, x, attention_mask=source_mask))
    return keras.Model(inputs, embedding(y, reverse=True))


def products_of(config, vocabulary_size, batch_size, length):
    """The products of a step, each as (matrices, rows, inner, columns), forward and backward."""
    tokens, d_model, d_ff = batch_size * length, config.d_model, config.d_ff
    heads, d_k = batch_size * config.num_heads, d_model // config.num_heads
    projection = (1, tokens, d_model, d_model)
    attention = [*[projection] * 4, (heads, length, d_k, length), (heads, length, length, d_k)]
    feed_forward = [(1, tokens, d_model, d_ff), (1, tokens, d_ff, d_model)]
    blocks = 3 * attention + 2 * feed_forward  # of an encoder and of a decoder
    forward = [*config.num_layers * blocks, (1, tokens, d_model, vocabulary_size)]
    for number, m, k, n in forward:  # C = A B; dA = dC B^T; dB = A^T dC
        yield from ((number, m, k, n), (number, m, n, k), (number, k, m, n))


def products_step(products):
    """Matrix products: a function without arguments that waits for their end.

    No pair of operands is multiplied twice, since a compiler computes equal products once. n
    products of one shape share about sqrt(n) operands on each side, or they would not fit.

    Args:
        products: iterable of (matrices, rows, inner, columns).
    """
    dtype = keras.config.dtype_policy().compute_dtype
    pairs = []
    for (number, m, k, n), count in collections.Counter(products).items():
        operands = math.isqrt(count - 1) + 1
        left = [keras.random.normal((number, m, k), dtype=dtype) for _ in range(operands)]
        right = [keras.random.normal((number, k, n), dtype=dtype) for _ in range(operands)]
        pairs += itertools.islice(itertools.product(left, right), count)

    def multiply(pairs):
        return [ops.matmul(*pair) for pair in pairs]

    if keras.backend.backend() == "jax":
        import jax

        run = jax.jit(multiply)
        return lambda: jax.block_until_ready(run(pairs))
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        run = tf.function(multiply)
        return lambda: run(pairs)[-1].numpy()
    import torch

    def step():
        with torch.inference_mode():
            multiply(pairs)
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    return step


def ceiling():
    """FLOP/s of large square matrix products, the most that this machine reaches."""
    size = 8192 if backend.on_accelerator() else 2048
    square = 1, size, size, size
    many = [square] * (32 if backend.on_accelerator() else 4)
    return flops_of(many) / np.median(race([products_step(many)], 6)[2:])


def flops_of(products):
    return sum(2 * math.prod(product) for product in products)


def random_batch(args, length):
    """Ids of sources, targets and labels without padding: int32, (3, batch size, length)."""
    rng, shape = np.random.default_rng(args.seed), (3, args.batch_size, length)
    return rng.integers(kt.UNKNOWN + 1, args.vocabulary_size, shape).astype("int32")


CONTENDERS = {
    "ours": ours,
    "ours-attention-dropout": ours_attention_dropout,
    "ours-metrics": ours,
    "keras-hub": keras_hub_layers,
    "keras-attention": keras_attention,
}


class SameBatch(keras.utils.PyDataset):
    """One batch, which is on the device already, a number of times."""

    def __init__(self, batch, times):
        super().__init__()
        *inputs, labels = (ops.convert_to_tensor(x) for x in batch)
        self.batch = dict(zip(INPUTS, inputs, strict=True)), labels
        self.times = times

    def __len__(self):
        return self.times

    def __getitem__(self, index):
        return self.batch


def keras_step(model, batch, loss, metrics, jit_compile, steps=1):
    """Steps as `fit` does them, of a model that is compiled first."""
    model.compile(kt.paper_optimizer(1e-4), loss, weighted_metrics=metrics, jit_compile=jit_compile)
    return step_on(model, batch, steps)


def step_on(model, batch, steps=1):
    """Steps of a compiled model: a function without arguments that waits for their end."""
    batches, last = SameBatch(batch, steps), model.trainable_variables[-1]

    def step():
        if steps == 1:
            model.train_on_batch(*batches[0])
        else:
            model.fit(batches, shuffle=False, verbose=0)
        ops.convert_to_numpy(last)  # the loss alone could arrive before the update

    return step


def torch_step(config, vocabulary_size, batch, steps, compiled):
    """Steps of torch.nn.Transformer: a function without arguments that waits for their end."""
    import torch
    from torch import nn

    device = "cuda" if torch.cuda.is_available() else "cpu"
    mixed = keras.config.dtype_policy().name == "mixed_bfloat16"
    source_ids, target_ids, labels = (torch.tensor(x, device=device).long() for x in batch)
    length = target_ids.shape[1]
    causal = nn.Transformer.generate_square_subsequent_mask(length, device=device)
    positions = ops.convert_to_numpy(kt.sinusoids(length, config.d_model))
    positions = torch.tensor(positions, device=device)
    with torch.device(device):
        embedding = nn.Embedding(vocabulary_size, config.d_model)
        nn.init.normal_(embedding.weight, std=config.d_model**-0.5)
        model = nn.Transformer(
            config.d_model,
            config.num_heads,
            config.num_layers,
            config.num_layers,
            dim_feedforward=config.d_ff,
            dropout=config.dropout,
            batch_first=True,
        )
    dropout = nn.Dropout(config.dropout)
    parameters = [*embedding.parameters(), *model.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-4, betas=(0.9, 0.98), eps=1e-9)

    def embed(ids):
        return dropout(embedding(ids) * config.d_model**0.5 + positions)

    def logits():
        padding = source_ids == kt.PADDING
        y = model(
            embed(source_ids),
            embed(target_ids),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return (y @ embedding.weight.T).flatten(0, 1).float()

    logits = torch.compile(logits) if compiled else logits

    def update():
        with torch.autocast(device, torch.bfloat16, enabled=mixed):
            predicted = logits()
        loss = nn.functional.cross_entropy(
            predicted, labels.flatten(), ignore_index=kt.PADDING, label_smoothing=0.1
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def step():
        for _ in range(steps):
            loss = update()
        loss.item()
        if device == "cuda":
            torch.cuda.synchronize()

    return step


def variants(name, config, args, batch):
    """Every way to run one contender, as (description, step)."""
    if name == "torch":
        yield "eager", torch_step(config, args.vocabulary_size, batch, args.steps, False)
        if backend.on_accelerator():
            yield "torch.compile", torch_step(config, args.vocabulary_size, batch, args.steps, True)
        return
    if name == "limit":
        yield "", products_step(products_of(config, args.vocabulary_size, *batch.shape[1:]))
        return
    # JAX always compiles; torch.compile takes minutes, and pays on a GPU alone.
    choices, compiler = ("auto",), "XLA"
    if keras.backend.backend() != "jax":
        choices = {"both": (False, True), "no": (False,), "yes": (True,)}[args.jit_compile]
    if keras.backend.backend() == "torch":
        choices, compiler = (choices if backend.on_accelerator() else (False,)), "torch.compile"
    losses = {"smoothed": kt.TokenCrossEntropy(label_smoothing=0.1)}
    if not name.startswith("ours"):
        losses["sparse"] = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    metrics = [kt.TokenAccuracy(), kt.Perplexity()] if name == "ours-metrics" else None
    for described, loss in losses.items():
        for jit_compile in choices:
            model = CONTENDERS[name](config, args.vocabulary_size)
            how = f"{described} loss{f', {compiler}' * (jit_compile is True)}"
            yield how, keras_step(model, batch, loss, metrics, jit_compile, args.steps)


def fastest_variants(seconds):
    """The variant of each contender with the lowest median: {name: row of the table}."""
    best = {}
    for (name, variant), of_variant in seconds.items():
        low, median, high = (float(q) for q in np.quantile(of_variant, (0.25, 0.5, 0.75)))
        if name not in best or median < best[name]["seconds"]:
            best[name] = {
                "name": name,
                "variant": variant,
                "seconds": median,
                "low": low,
                "high": high,
                "fastest": min(of_variant),
            }
    return best


def set_up(args):
    """Settings that `add_step` needs before the first operation."""
    if args.keep_memory:
        backend.keep_freed_memory()
    keras.utils.set_random_seed(args.seed)
    keras.config.set_dtype_policy(args.dtype)


def config_of(args):
    config = kt.PRESETS[args.preset].replace(**sizes_given(args))
    return config if args.dropout is None else config.replace(dropout=args.dropout)


def measure(args, contenders):
    """The contenders in this process: {(name, variant): seconds of each round, per step}."""
    set_up(args)
    if not args.flash_attention:
        keras.config.disable_flash_attention()
    batch, steps = random_batch(args, args.length), {}
    for name in contenders:
        for how, step in variants(name, config_of(args), args, batch):
            print(f"preparing {name} {how}", file=sys.stderr)
            for _ in range(args.warmup):
                step()
            steps[name, how] = step
    seconds = race(list(steps.values()), args.rounds)
    seconds /= [1 if name == "limit" else args.steps for name, _ in steps]
    return dict(zip(steps, seconds.T.tolist(), strict=True))


def train(args):
    quiet = check_quiet()
    if args.separate:
        keras.config.set_dtype_policy(args.dtype)  # for the ceiling below
        seconds = collections.defaultdict(list)
        for results in measure_separately(measure, args):
            for key, of_process in results.items():
                seconds[key] += of_process
    else:
        seconds = measure(args, args.contenders)
    config, best = config_of(args), fastest_variants(seconds)
    models = {name: row for name, row in best.items() if name != "limit"}
    peer = min((r["seconds"] for n, r in models.items() if not n.startswith("ours")), default=None)
    limit = best["limit"]["seconds"] if "limit" in best else None
    flops = flops_of(products_of(config, args.vocabulary_size, args.batch_size, args.length))
    most = ceiling()

    batches = f"batch {args.batch_size} x {args.length}, dropout {config.dropout:g}, {args.dtype}"
    batches += "" if args.flash_attention else ", no flash attention"
    print(f"Training step, {stack_of(config, args.vocabulary_size)}, {batches}\n")
    print(
        "| contender | variant | seconds per step (quartiles) | target tokens per second | ratio "
        "| x limit | TFLOP/s (of ceiling) |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, row in best.items():
        row["tokens_per_second"] = args.batch_size * args.length / row["seconds"]
        row["ratio"] = row["seconds"] / peer if peer else None
        seconds = f"{row['seconds']:.4f} ({row['low']:.4f} to {row['high']:.4f})"
        ratio = f"{row['ratio']:.2f}" if peer else ""
        row["over_limit"] = row["seconds"] / limit if limit else None
        over = f"{row['over_limit']:.2f}" if limit else ""
        tokens = f"{row['tokens_per_second']:,.0f}"
        row["flops"] = flops / row["seconds"]
        rate = f"{row['flops'] / 1e12:.3g} ({row['flops'] / most:.0%})"
        print(f"| {name} | {row['variant']} | {seconds} | {tokens} | {ratio} | {over} | {rate} |")
    report(args, list(best.values()), two_threads_over_one=quiet, ceiling=most)
    print(f"ceiling: {most / 1e12:.3g} TFLOP/s")


def add_step(add):
    """Options for the model and the batch of a step."""
    add("--preset", choices=kt.PRESETS, default="mini", help="sizes and dropout (default: mini)")
    add_sizes(add)
    add("--vocabulary-size", type=int, default=8000, metavar="N", help="shared ids (default: 8000)")
    add("--batch-size", type=int, default=64, metavar="N", help="sentence pairs (default: 64)")
    add("--length", type=int, default=32, metavar="N", help="tokens per side (default: 32)")
    dtype = "dtype policy: float32 (default), mixed_bfloat16 or mixed_float16"
    add("--dtype", default="float32", help=dtype)
    seed = "random seed of weights, ids and dropout (default: 0)"
    add("--seed", type=int, default=0, metavar="N", help=seed)
    add("--json", metavar="FILE", help="JSON file for the rows and their circumstances")


def add_command(commands, formatter):
    one_line = "seconds per training step"
    command = commands.add_parser("train", help=one_line, description=TRAIN_HELP, **formatter)
    everyone = [*CONTENDERS, *["torch"] * (keras.backend.backend() == "torch"), "limit"]
    add = command.add_argument
    contenders = "contenders to measure (default: all)"
    add("--contenders", nargs="+", choices=everyone, default=everyone, help=contenders)
    add_step(add)
    add_separate(add)
    add_keep_memory(add, OF_OURS_ALONE)
    add("--dropout", type=float, metavar="P", help="dropout rate (default: the preset's)")
    flash = "attention that never holds all scores, where the backend has it (default: yes)"
    add("--flash-attention", action=argparse.BooleanOptionalAction, default=True, help=flash)
    xla = (
        "XLA on TensorFlow, torch.compile on a GPU: the faster one (default: both), without or with"
    )
    add("--jit-compile", choices=("both", "no", "yes"), default="both", help=xla)
    rounds = "timed steps per contender (default: 20)"
    add("--rounds", type=int, default=20, metavar="N", help=rounds)
    add("--steps", type=int, default=1, metavar="N", help="steps per timing (default: 1)")
    warmup = "untimed steps per contender before (default: 3)"
    add("--warmup", type=int, default=3, metavar="N", help=warmup)
    command.set_defaults(run=train)
