"""Measure this package beside its peers, in one process, so that a busy machine slows all alike."""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import shlex
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from keras import layers, ops

from keras_transformer.masks import padding_mask
from keras_transformer.models import PRESETS, Transformer
from keras_transformer.positions import PositionalEncoding
from keras_transformer.tokenizers import PADDING, UNKNOWN
from keras_transformer.training import Perplexity, TokenAccuracy, TokenCrossEntropy, paper_optimizer

HELP = """\
Measure this package beside its peers, in one process, so that a busy machine slows all alike.

  KERAS_BACKEND=jax python scripts/benchmark.py train
  python scripts/benchmark.py train --preset base --dtype mixed_bfloat16 --json train.json
"""

TRAIN_HELP = """\
Seconds for one training step (forward, backward, Adam) of an encoder-decoder Transformer.

All contenders have the same sizes, tied embeddings, post-norm, dropout and batch, and are
trained by keras.Model.train_on_batch, which runs the compiled function of `fit`. Each round
times one step of each in turn; the table gives the median over the rounds. Contenders:

  ours                       Transformer; dropout where the paper has it: embeddings, sublayers
  ours-attention-dropout     the same with dropout on the attention weights too, as KerasHub has
  ours-metrics               ours, with TokenAccuracy and Perplexity
  keras-hub                  keras_hub.layers.TransformerEncoder and TransformerDecoder
  keras-attention            keras.layers.MultiHeadAttention, assembled as in chapter 16 of
                             Geron's book (heads of d_model / num_heads, no attention dropout)
  torch                      torch.nn.Transformer, eager, torch.optim.Adam (torch backend only)

Ours trains with TokenCrossEntropy, smoothing 0.1. The Keras peers are timed with that and with
keras.losses.SparseCategoricalCrossentropy(from_logits=True), and on TensorFlow everyone is timed
with jit_compile False and True; the fastest variant of each is the one in the table.
`ratio` is seconds / seconds of the fastest peer: below 1 is faster than all of them.
"""


def ours(sizes, attention_dropout=0.0):
    return Transformer(
        sizes.vocabulary_size,
        num_layers=sizes.num_layers,
        d_model=sizes.d_model,
        num_heads=sizes.num_heads,
        d_ff=sizes.d_ff,
        dropout=sizes.dropout,
        attention_dropout=attention_dropout,
    )


def keras_hub_layers(sizes):
    import keras_hub

    embedding = keras_hub.layers.ReversibleEmbedding(sizes.vocabulary_size, sizes.d_model)
    positions = keras_hub.layers.SinePositionEncoding()
    block = dict(intermediate_dim=sizes.d_ff, num_heads=sizes.num_heads, dropout=sizes.dropout)

    def embed(ids):
        x = embedding(ids) * sizes.d_model**0.5
        return layers.Dropout(sizes.dropout)(x + positions(x))

    source_ids, target_ids = _inputs()
    source_mask = ops.not_equal(source_ids, PADDING)
    x, y = embed(source_ids), embed(target_ids)
    for _ in range(sizes.num_layers):
        x = keras_hub.layers.TransformerEncoder(**block)(x, padding_mask=source_mask)
    for _ in range(sizes.num_layers):
        decoder = keras_hub.layers.TransformerDecoder(**block)
        y = decoder(y, x, encoder_padding_mask=source_mask)
    return keras.Model([source_ids, target_ids], embedding(y, reverse=True))


def keras_attention(sizes):
    embedding = layers.ReversibleEmbedding(sizes.vocabulary_size, sizes.d_model)

    def embed(ids):
        x = PositionalEncoding()(embedding(ids) * sizes.d_model**0.5)
        return layers.Dropout(sizes.dropout)(x)

    def add_norm(x, h):
        return layers.LayerNormalization()(x + layers.Dropout(sizes.dropout)(h))

    def attend(x, value, **masks):
        attention = layers.MultiHeadAttention(sizes.num_heads, sizes.d_model // sizes.num_heads)
        return add_norm(x, attention(x, value, **masks))

    def feed_forward(x):
        h = layers.Dense(sizes.d_ff, activation="relu")(x)
        return add_norm(x, layers.Dense(sizes.d_model)(h))

    source_ids, target_ids = _inputs()
    source_mask = padding_mask(source_ids)
    x, y = embed(source_ids), embed(target_ids)
    for _ in range(sizes.num_layers):
        x = feed_forward(attend(x, x, attention_mask=source_mask))
    for _ in range(sizes.num_layers):
        y = attend(y, y, use_causal_mask=True)
        y = feed_forward(attend(y, x, attention_mask=source_mask))
    return keras.Model([source_ids, target_ids], embedding(y, reverse=True))


def _inputs():
    return [keras.Input((None,), dtype="int32", name=f"{side}_ids") for side in ("source", "target")]


def torch_step(sizes, batch):
    """One step of torch.nn.Transformer: a function without arguments that waits for its end."""
    import torch
    from torch import nn

    device = "cuda" if torch.cuda.is_available() else "cpu"
    mixed = keras.config.dtype_policy().name == "mixed_bfloat16"
    source_ids, target_ids, labels = (torch.tensor(x, device=device).long() for x in batch)
    causal = nn.Transformer.generate_square_subsequent_mask(target_ids.shape[1], device=device)
    table = PositionalEncoding()
    table.build((None, None, sizes.d_model))
    positions = [
        torch.tensor(ops.convert_to_numpy(table.table(x.shape[1])), device=device)
        for x in (source_ids, target_ids)
    ]
    with torch.device(device):
        embedding = nn.Embedding(sizes.vocabulary_size, sizes.d_model)
        nn.init.normal_(embedding.weight, std=sizes.d_model**-0.5)
        stack = dict(dim_feedforward=sizes.d_ff, dropout=sizes.dropout, batch_first=True)
        counts = sizes.num_layers, sizes.num_layers
        model = nn.Transformer(sizes.d_model, sizes.num_heads, *counts, **stack)
    dropout = nn.Dropout(sizes.dropout)
    parameters = [*embedding.parameters(), *model.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-4, betas=(0.9, 0.98), eps=1e-9)

    def step():
        with torch.autocast(device, torch.bfloat16, enabled=mixed):
            x, y = (
                dropout(embedding(ids) * sizes.d_model**0.5 + table)
                for ids, table in zip((source_ids, target_ids), positions)
            )
            padding = source_ids == PADDING
            y = model(
                x,
                y,
                tgt_mask=causal,
                src_key_padding_mask=padding,
                memory_key_padding_mask=padding,
                tgt_is_causal=True,
            )
            logits = (y @ embedding.weight.T).flatten(0, 1).float()
        loss = nn.functional.cross_entropy(
            logits, labels.flatten(), ignore_index=PADDING, label_smoothing=0.1
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        if device == "cuda":
            torch.cuda.synchronize()

    return step


CONTENDERS = {
    "ours": ours,
    "ours-attention-dropout": lambda sizes: ours(sizes, attention_dropout=sizes.dropout),
    "ours-metrics": ours,
    "keras-hub": keras_hub_layers,
    "keras-attention": keras_attention,
}


def keras_step(model, batch, loss, metrics, jit_compile):
    """One step as `fit` does it: a function without arguments that waits for its end."""
    # "auto" would leave torch eager and compile JAX: what their users get.
    model.compile(paper_optimizer(1e-4), loss, weighted_metrics=metrics, jit_compile=jit_compile)
    *inputs, labels = (ops.convert_to_tensor(x) for x in batch)
    last = model.trainable_variables[-1]

    def step():
        model.train_on_batch(dict(zip(model.input_names, inputs)), labels)
        ops.convert_to_numpy(last)  # the loss alone could arrive before the update

    return step


def variants(name, sizes, batch):
    """Every way to run one contender, as (description, step)."""
    if name == "torch":
        yield "eager", torch_step(sizes, batch)
        return
    losses = {"": TokenCrossEntropy(label_smoothing=0.1)}
    if not name.startswith("ours"):
        losses["sparse"] = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    metrics = [TokenAccuracy(), Perplexity()] if name == "ours-metrics" else None
    for described, loss in losses.items():
        for jit_compile in (False, True) if keras.backend.backend() == "tensorflow" else ("auto",):
            how = [described] * bool(described) + ["XLA"] * (jit_compile is True)
            model = CONTENDERS[name](sizes)
            yield ", ".join(how), keras_step(model, batch, loss, metrics, jit_compile)


def train(args):
    keras.utils.set_random_seed(args.seed)
    keras.config.set_dtype_policy(args.dtype)
    rng = np.random.default_rng(args.seed)
    shape = (3, args.batch_size, args.length)
    batch = rng.integers(UNKNOWN + 1, args.vocabulary_size, shape).astype("int32")
    steps = []
    for name in args.contenders or [*CONTENDERS, *["torch"] * (keras.backend.backend() == "torch")]:
        for how, step in variants(name, args, batch):
            print(f"preparing {name} {how}", file=sys.stderr)
            for _ in range(args.warmup):
                step()
            steps.append((name, how, step, []))
    for round_number in range(args.rounds):
        for _, _, step, seconds in steps:
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        print(f"round {round_number + 1} of {args.rounds}", end="\r", file=sys.stderr)

    best = {}
    for name, how, _, seconds in steps:
        low, median, high = np.quantile(seconds, (0.25, 0.5, 0.75))
        row = dict(name=name, how=how, seconds=median, low=low, high=high, fastest=min(seconds))
        row["tokens_per_second"] = args.batch_size * args.length / median
        if name not in best or median < best[name]["seconds"]:
            best[name] = row
    peer = min((r["seconds"] for n, r in best.items() if not n.startswith("ours")), default=None)
    print(
        f"Training step, {args.num_layers} + {args.num_layers} layers, d_model {args.d_model}, "
        f"{args.num_heads} heads, d_ff {args.d_ff}, vocabulary {args.vocabulary_size:,}, batch "
        f"{args.batch_size} x {args.length}, dropout {args.dropout:g}, {args.dtype}\n\n"
        "| who | variant | seconds a step (quartiles) | target tokens a second | ratio |\n"
        "|---|---|---|---|---|"
    )
    for name, row in best.items():
        row["ratio"] = row["seconds"] / peer if peer else None
        spread = f"{row['seconds']:.4f} ({row['low']:.4f}-{row['high']:.4f})"
        ratio = f"{row['ratio']:.2f}" if peer else "-"
        print(f"| {name} | {row['how'] or '-'} | {spread} | {row['tokens_per_second']:,.0f} | {ratio} |")
    report(args, list(best.values()))


def report(args, rows):
    """Where, with what and when the rows were measured: a line after the table, and the JSON."""
    backend = keras.backend.backend()
    packages = dict.fromkeys(["keras", "keras-hub", backend])
    where = dict(
        hardware=hardware(),
        versions={package: importlib.metadata.version(package) for package in packages},
        python=platform.python_version(),
        date=datetime.date.today().isoformat(),
        command=f"KERAS_BACKEND={backend} python {shlex.join(sys.argv)}",
    )
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items())
    print(f"\n{where['hardware']}; {versions}; {where['date']}; `{where['command']}`")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({**where, "rows": rows}, file, indent=2)


def hardware():
    """The accelerator that the backend uses, or else the processor, in words."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        accelerators = [d.device_kind for d in jax.devices() if d.platform != "cpu"]
    elif backend == "torch":
        import torch

        accelerators = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    else:
        import tensorflow as tf

        accelerators = [
            tf.config.experimental.get_device_details(d).get("device_name", d.name)
            for d in tf.config.list_physical_devices("GPU")
        ]
    if accelerators:
        return f"{len(accelerators)} x {accelerators[0]}"
    name = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
        name = names[0] if names else name
    affinity = getattr(os, "sched_getaffinity", None)
    return f"{name}, {len(affinity(0)) if affinity else os.cpu_count()} cores"


def main():
    parser = argparse.ArgumentParser(
        description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser(
        "train",
        help="seconds for one training step",
        description=TRAIN_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=train)
    command.add_argument("--preset", choices=PRESETS, default="small", help="sizes; default: small")
    for name in ("num_layers", "d_model", "num_heads", "d_ff"):
        option = f"--{name.replace('_', '-')}"
        command.add_argument(option, type=int, metavar="N", help="instead of the preset's")
    command.add_argument("--dropout", type=float, metavar="P", help="instead of the preset's")
    command.add_argument("--vocabulary-size", type=int, default=8000, metavar="N", help="shared; default: 8000")
    command.add_argument("--batch-size", type=int, default=64, metavar="N", help="sentence pairs; default: 64")
    command.add_argument("--length", type=int, default=32, metavar="N", help="tokens a side; default: 32")
    command.add_argument("--dtype", default="float32", metavar="POLICY", help="float32 (default), mixed_bfloat16")
    command.add_argument("--rounds", type=int, default=20, metavar="N", help="timed steps of each; default: 20")
    command.add_argument("--warmup", type=int, default=3, metavar="N", help="untimed steps of each; default: 3")
    command.add_argument(
        "--contenders", nargs="+", choices=[*CONTENDERS, "torch"], metavar="NAME", help="default: all of them"
    )
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--json", metavar="FILE", help="write the results here too")
    args = parser.parse_args()
    for name, value in vars(PRESETS[args.preset]).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    args.run(args)


if __name__ == "__main__":
    main()
