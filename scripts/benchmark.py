"""Measure this package beside its peers, in one process, so that a busy machine slows all alike."""

import argparse
import datetime
import functools
import json
import os
import platform
import re
import shlex
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from keras import layers, ops

from keras_transformer.masks import padding_mask
from keras_transformer.models import PRESETS, Transformer
from keras_transformer.positions import PositionalEncoding, sinusoids
from keras_transformer.tokenizers import END, PADDING, START, UNKNOWN
from keras_transformer.training import Perplexity, TokenAccuracy, TokenCrossEntropy, paper_optimizer

HELP = """\
Measure this package beside its peers, in one process, so that a busy machine slows all alike.

  KERAS_BACKEND=jax python scripts/benchmark.py train
  python scripts/benchmark.py train --preset base --dtype mixed_bfloat16 --json train.json
  python scripts/benchmark.py train --contenders ours keras-attention --rounds 50

Each command prints a Markdown table with the hardware, the versions and the command line.
"python scripts/benchmark.py COMMAND --help" says what is compared, and how.
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


INPUTS = ("source_ids", "target_ids")


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

    inputs = _inputs()
    source_ids, target_ids = inputs.values()
    source_mask = ops.not_equal(source_ids, PADDING)
    x, y = embed(source_ids), embed(target_ids)
    for _ in range(sizes.num_layers):
        x = keras_hub.layers.TransformerEncoder(**block)(x, padding_mask=source_mask)
    for _ in range(sizes.num_layers):
        decoder = keras_hub.layers.TransformerDecoder(**block)
        y = decoder(y, x, encoder_padding_mask=source_mask)
    return keras.Model(inputs, embedding(y, reverse=True))


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

    inputs = _inputs()
    source_ids, target_ids = inputs.values()
    source_mask = padding_mask(source_ids)
    x, y = embed(source_ids), embed(target_ids)
    for _ in range(sizes.num_layers):
        x = feed_forward(attend(x, x, attention_mask=source_mask))
    for _ in range(sizes.num_layers):
        y = attend(y, y, use_causal_mask=True)
        y = feed_forward(attend(y, x, attention_mask=source_mask))
    return keras.Model(inputs, embedding(y, reverse=True))


def _inputs():
    return {name: keras.Input((None,), dtype="int32", name=name) for name in INPUTS}


def torch_step(sizes, batch):
    """One step of torch.nn.Transformer: a function without arguments that waits for its end."""
    import torch
    from torch import nn

    device = "cuda" if torch.cuda.is_available() else "cpu"
    mixed = keras.config.dtype_policy().name == "mixed_bfloat16"
    source_ids, target_ids, labels = (torch.tensor(x, device=device).long() for x in batch)
    causal = nn.Transformer.generate_square_subsequent_mask(target_ids.shape[1], device=device)
    positions = ops.convert_to_numpy(sinusoids(sizes.length, sizes.d_model))
    positions = torch.tensor(positions, device=device)
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
                dropout(embedding(ids) * sizes.d_model**0.5 + positions)
                for ids in (source_ids, target_ids)
            )
            padding = source_ids == PADDING
            of_source = dict(src_key_padding_mask=padding, memory_key_padding_mask=padding)
            y = model(x, y, tgt_mask=causal, tgt_is_causal=True, **of_source)
            logits = (y @ embedding.weight.T).flatten(0, 1).float()
        options = dict(ignore_index=PADDING, label_smoothing=0.1)
        loss = nn.functional.cross_entropy(logits, labels.flatten(), **options)
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
    model.compile(paper_optimizer(1e-4), loss, weighted_metrics=metrics, jit_compile=jit_compile)
    *inputs, labels = (ops.convert_to_tensor(x) for x in batch)
    last = model.trainable_variables[-1]

    def step():
        model.train_on_batch(dict(zip(INPUTS, inputs)), labels)
        ops.convert_to_numpy(last)  # the loss alone could arrive before the update

    return step


def variants(name, sizes, batch):
    """Every way to run one contender, as (description, step)."""
    if name == "torch":
        yield "eager", torch_step(sizes, batch)
        return
    # "auto" leaves torch eager and compiles JAX: what their users get.
    choices = ("auto",)
    if keras.backend.backend() == "tensorflow":
        choices = {"both": (False, True), "no": (False,), "yes": (True,)}[sizes.jit_compile]
    losses = {"smoothed": TokenCrossEntropy(label_smoothing=0.1)}
    if not name.startswith("ours"):
        losses["sparse"] = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    metrics = [TokenAccuracy(), Perplexity()] if name == "ours-metrics" else None
    for described, loss in losses.items():
        for jit_compile in choices:
            model = CONTENDERS[name](sizes)
            how = f"{described} loss{', XLA' * (jit_compile is True)}"
            yield how, keras_step(model, batch, loss, metrics, jit_compile)


def train(args):
    keras.utils.set_random_seed(args.seed)
    keras.config.set_dtype_policy(args.dtype)
    shape = (3, args.batch_size, args.length)
    rng = np.random.default_rng(args.seed)
    batch = rng.integers(UNKNOWN + 1, args.vocabulary_size, shape).astype("int32")
    steps = []
    for name in args.contenders:
        for how, step in variants(name, args, batch):
            print(f"preparing {name} {how}", file=sys.stderr)
            for _ in range(args.warmup):
                step()
            steps.append((name, how, step))
    best = fastest_variants(race([step for _, _, step in steps], args.rounds), steps)
    peer = min((r["seconds"] for n, r in best.items() if not n.startswith("ours")), default=None)

    batches = f"batch {args.batch_size} x {args.length}, dropout {args.dropout:g}, {args.dtype}"
    print(f"Training step, {_stack_of(args)}, {batches}\n")
    print("| who | variant | seconds a step (quartiles) | target tokens a second | ratio |")
    print("|---|---|---|---|---|")
    for name, row in best.items():
        row["tokens_per_second"] = args.batch_size * args.length / row["seconds"]
        row["ratio"] = row["seconds"] / peer if peer else None
        seconds = f"{row['seconds']:.4f} ({row['low']:.4f} to {row['high']:.4f})"
        ratio = f"{row['ratio']:.2f}" if peer else ""
        tokens = f"{row['tokens_per_second']:,.0f}"
        print(f"| {name} | {row['variant']} | {seconds} | {tokens} | {ratio} |")
    report(args, list(best.values()))


def race(steps, rounds):
    """Seconds of every step, (rounds, steps): one of each in turn, again and again."""
    seconds = np.empty((rounds, len(steps)))
    for round_number, column in np.ndindex(seconds.shape):
        start = time.perf_counter()
        steps[column]()
        seconds[round_number, column] = time.perf_counter() - start
    return seconds


def fastest_variants(seconds, steps):
    """The variant of each contender with the lowest median: {name: row of the table}."""
    best = {}
    for (name, variant, _), column in zip(steps, seconds.T):
        low, median, high = (float(q) for q in np.quantile(column, (0.25, 0.5, 0.75)))
        if name not in best or median < best[name]["seconds"]:
            row = dict(seconds=median, low=low, high=high, fastest=float(column.min()))
            best[name] = dict(name=name, variant=variant, **row)
    return best


GENERATE_HELP = """\
Sentences a second of decoding, every sentence to the full length, on random weights.

Each round times one batch of each contender in turn; the table gives the median over the rounds.
All read the same ids and write exactly --length tokens. Contenders:

  ours                Decoding.greedy, or beam_search, compiled, with caches
  ctranslate2         CTranslate2 on the same weights, float32, as many threads as cores
  ctranslate2-1-thread  the same with one thread, which is faster on some machines
  keras-hub           KerasHub's layers and sampler with caches, compiled as its generate() does
  keras-hub-uncached  the same layers and sampler, all tokens run anew for each; greedy only

`first` is the first call, compilation included; `memory` is how much the process's peak grew while
a contender was prepared and timed. `ratio` is sentences a second / CTranslate2's: above 1 is
faster.
"""


def ours_decoding(args, transformer):
    from keras_transformer.generation import Decoding

    decoding = Decoding(transformer)

    def decode(source_ids, beams):
        if beams == 1:
            return decoding.greedy(source_ids, args.length, min_length=args.length)
        found = decoding.beam_search(source_ids, args.length, beams, min_length=args.length)
        return found.ids[:, 0]

    return decode


def ctranslate2_decoding(args, transformer, threads=None):
    import tempfile

    import ctranslate2

    from keras_transformer.export import ctranslate2_spec

    tokens = [str(i) for i in range(args.vocabulary_size)]
    with tempfile.TemporaryDirectory() as folder:
        ctranslate2_spec(transformer, tokens, tokens).save(folder)
        threads = threads or len(os.sched_getaffinity(0))
        options = dict(compute_type="float32", inter_threads=1, intra_threads=threads)
        engine = ctranslate2.Translator(folder, **options)

    def decode(source_ids, beams):
        source = [[tokens[i] for i in row[:-1]] for row in source_ids]  # END is added there
        lengths = dict(min_decoding_length=args.length, max_decoding_length=args.length)
        found = engine.translate_batch(source, beam_size=beams, length_penalty=0, **lengths)
        return [each.hypotheses[0] for each in found]

    return decode


def keras_hub_decoding(args, transformer, cached=True):
    """KerasHub's layers in its samplers, as its Seq2SeqLM tasks call them."""
    import keras_hub

    from keras_transformer.generation import _compiled

    embedding = keras_hub.layers.ReversibleEmbedding(args.vocabulary_size, args.d_model)
    positions = keras_hub.layers.SinePositionEncoding()
    block = dict(intermediate_dim=args.d_ff, num_heads=args.num_heads)
    encoders = [keras_hub.layers.TransformerEncoder(**block) for _ in range(args.num_layers)]
    decoders = [keras_hub.layers.TransformerDecoder(**block) for _ in range(args.num_layers)]

    def embed(ids, start_index=0):
        x = embedding(ids)
        return x + positions(x, start_index=start_index)

    def encode(source_ids):
        x, mask = embed(source_ids), ops.not_equal(source_ids, PADDING)
        for encoder in encoders:
            x = encoder(x, padding_mask=mask)
        return x, mask

    inputs = _inputs()
    memory, mask = encode(inputs["source_ids"])
    y = embed(inputs["target_ids"])
    for decoder in decoders:
        y = decoder(y, memory, encoder_padding_mask=mask)
    model = keras.Model(inputs, embedding(y, reverse=True))

    def caches(number, length):
        heads = args.num_heads, args.d_model // args.num_heads
        return ops.zeros((number, args.num_layers, 2, length, *heads))

    def generated(source_ids, beams):
        memory, mask = encode(source_ids)
        prompt = ops.pad(ops.full_like(source_ids[:, :1], START), ((0, 0), (0, args.length)))
        number = source_ids.shape[0]
        past = caches(number, args.length + 1)

        def of_each_beam(x, ids):
            return ops.repeat(x, ids.shape[0] // number, axis=0)

        def next_cached(prompt, cache, index):
            ids = ops.slice(prompt, (0, index - 1), (prompt.shape[0], 1))
            y, presents = embed(ids, index - 1), []
            for layer, decoder in enumerate(decoders):
                y, present, _ = decoder(
                    y,
                    of_each_beam(memory, ids),
                    encoder_padding_mask=of_each_beam(mask, ids),
                    self_attention_cache=cache[:, layer],
                    self_attention_cache_update_index=index - 1,
                    cross_attention_cache=of_each_beam(of_memory[:, layer], ids),
                )
                presents.append(present)
            logits = embedding(y, reverse=True)[:, 0]
            return logits, y[:, 0], ops.stack(presents, axis=1)

        def next_uncached(prompt, cache, index):
            y = embed(prompt)
            for decoder in decoders:
                y = decoder(y, memory, encoder_padding_mask=mask)
            y = ops.slice(y, (0, index - 1, 0), (number, 1, args.d_model))
            return embedding(y, reverse=True)[:, 0], y[:, 0], cache

        if cached:  # a first call, at position 0, fills the cache of the memory
            of_memory, y = caches(number, source_ids.shape[1]), embed(prompt[:, :1])
            filled = []
            for layer, decoder in enumerate(decoders):
                y, _, cross = decoder(
                    y,
                    memory,
                    encoder_padding_mask=mask,
                    self_attention_cache=past[:, layer],
                    self_attention_cache_update_index=0,
                    cross_attention_cache=of_memory[:, layer],
                    cross_attention_cache_update_index=0,
                )
                filled.append(cross)
            of_memory = ops.stack(filled, axis=1)
        names = keras_hub.samplers
        sampler = names.GreedySampler() if beams == 1 else names.BeamSampler(num_beams=beams)
        next_token = next_cached if cached else next_uncached
        return sampler(next_token, prompt, cache=past if cached else (), index=1, model=model)

    program = _compiled(generated, model, "beams")

    def decode(source_ids, beams):
        ids = program(ops.convert_to_tensor(source_ids), beams=beams)
        return ops.convert_to_numpy(ids)[:, 1:]

    return decode


DECODERS = {
    "ours": ours_decoding,
    "ctranslate2": ctranslate2_decoding,
    "ctranslate2-1-thread": functools.partial(ctranslate2_decoding, threads=1),
    "keras-hub": keras_hub_decoding,
    "keras-hub-uncached": functools.partial(keras_hub_decoding, cached=False),
}


def generate(args):
    import resource

    keras.utils.set_random_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    transformer = ours(args)
    rows, steps = {}, []
    for name in args.contenders:
        decode = DECODERS[name](args, transformer)
        for batch_size, beams in args.batches:
            if name == "keras-hub-uncached" and beams > 1:
                continue
            shape = batch_size, args.length
            source_ids = rng.integers(UNKNOWN + 3, args.vocabulary_size, shape).astype("int32")
            source_ids[:, -1] = END
            print(f"preparing {name}, batch {batch_size}, beams {beams}", file=sys.stderr)
            before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
            decode(source_ids, beams)
            first = time.perf_counter() - start
            for _ in range(args.warmup):
                decode(source_ids, beams)
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            rows[name, batch_size, beams] = dict(first=first, memory_mb=grown / 1024)
            step = functools.partial(decode, source_ids, beams)
            steps.append(((name, batch_size, beams), step))
    seconds = race([step for _, step in steps], args.rounds)
    for (key, _), column in zip(steps, seconds.T):
        low, median, high = (key[1] / np.quantile(column, (0.75, 0.5, 0.25))).tolist()
        rows[key] |= dict(sentences_per_second=median, low=low, high=high)
    print(f"Decoding, {_stack_of(args)}, {args.length} tokens a side, float32\n")
    print("| who | batch | beams | sentences a second (quartiles) | ratio | first | memory |")
    print("|---|---|---|---|---|---|---|")
    for (name, batch_size, beams), row in rows.items():
        peer = rows.get(("ctranslate2", batch_size, beams))
        row |= dict(name=name, batch_size=batch_size, beams=beams)
        row["ratio"] = peer and row["sentences_per_second"] / peer["sentences_per_second"]
        speed = "{sentences_per_second:,.0f} ({low:,.0f} to {high:,.0f})".format(**row)
        ratio = f"{row['ratio']:.2f}" if peer else ""
        costs = f"{row['first']:.1f} s | {row['memory_mb']:,.0f} MB"
        print(f"| {name} | {batch_size} | {beams} | {speed} | {ratio} | {costs} |")
    report(args, list(rows.values()))


def _stack_of(args):
    stack = f"{args.num_layers} + {args.num_layers} layers, d_model {args.d_model}"
    return f"{stack}, {args.num_heads} heads, d_ff {args.d_ff}, vocabulary {args.vocabulary_size:,}"


def report(args, rows):
    """Where, with what and when the rows were measured: a line after the table, and the JSON."""
    backend = keras.backend.backend()
    modules = {name: sys.modules.get(name) for name in ("keras", "keras_hub", backend)}
    versions = {name: module.__version__ for name, module in modules.items() if module}
    where = dict(
        hardware=hardware(),
        versions={"python": platform.python_version(), **versions},
        date=datetime.date.today().isoformat(),
        command=f"KERAS_BACKEND={backend} python {shlex.join(sys.argv)}",
    )
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items())
    print(f"\n{where['hardware']}; {versions}; {where['date']}; `{where['command']}`")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({**where, "rows": rows}, file, indent=2)


def hardware():
    """The accelerators that the backend uses, or else the processor, in words."""
    if keras.backend.backend() == "jax":
        import jax

        names = [device.device_kind for device in jax.devices() if device.platform != "cpu"]
    elif keras.backend.backend() == "torch":
        import torch

        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    else:
        from tensorflow import config

        details = map(config.experimental.get_device_details, config.list_physical_devices("GPU"))
        names = [detail.get("device_name", "GPU") for detail in details]
    if names:
        return f"{len(names)} x {names[0]}"
    name = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = re.search(r"model name\s*: (.*)|$", file.read())[1] or name
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores"


SIZES = {
    "num_layers": (None, "N, in the encoder and again in the decoder; default: the preset's"),
    "d_model": (None, "width; default: the preset's"),
    "num_heads": (None, "h; default: the preset's"),
    "d_ff": (None, "width inside the feed-forward networks; default: the preset's"),
    "vocabulary_size": (8000, "ids, shared by both sides; default: 8000"),
    "batch_size": (64, "sentence pairs; default: 64"),
    "length": (32, "tokens a side, none of them padding; default: 32"),
    "rounds": (20, "timed steps of each contender; default: 20"),
    "warmup": (3, "untimed steps of each contender before; default: 3"),
    "seed": (0, "of weights, ids and dropout; default: 0"),
}


def main():
    formatter = dict(formatter_class=argparse.RawDescriptionHelpFormatter)
    parser = argparse.ArgumentParser(description=HELP, **formatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_train(commands, formatter)
    add_generate(commands, formatter)
    args = parser.parse_args()
    args.run(args)


def add_train(commands, formatter):
    one_line = "seconds for one training step"
    command = commands.add_parser("train", help=one_line, description=TRAIN_HELP, **formatter)
    everyone = [*CONTENDERS, *["torch"] * (keras.backend.backend() == "torch")]
    add = command.add_argument
    add("--contenders", nargs="+", choices=everyone, default=everyone, help="default: all")
    add("--preset", choices=PRESETS, default="small", help="sizes and dropout; default: small")
    for name, (default, text) in SIZES.items():
        add(f"--{name.replace('_', '-')}", type=int, default=default, metavar="N", help=text)
    add("--dropout", type=float, metavar="P", help="default: the preset's")
    add("--dtype", default="float32", help="float32 (default), mixed_bfloat16 or mixed_float16")
    xla = "what TensorFlow's users may choose: time both (default), or one of them"
    add("--jit-compile", choices=("both", "yes", "no"), default="both", help=xla)
    add("--json", metavar="FILE", help="write the rows and their circumstances here too")

    def run(args):
        for name, value in vars(PRESETS[args.preset]).items():
            if getattr(args, name) is None:
                setattr(args, name, value)
        train(args)

    command.set_defaults(run=run)


def batch_and_beams(text):
    batch_size, beams = map(int, text.split("x"))
    return batch_size, beams


# The shapes of a small model that many measure decoding with; --batches is (sentences, beams).
GENERATE_SIZES = dict(num_layers=4, d_model=128, num_heads=4, d_ff=256, vocabulary_size=8000)


def add_generate(commands, formatter):
    one_line = "sentences a second of greedy decoding and beam search"
    command = commands.add_parser("generate", help=one_line, description=GENERATE_HELP, **formatter)
    add = command.add_argument
    add("--contenders", nargs="+", choices=DECODERS, default=[*DECODERS], help="default: all")
    for name, default in GENERATE_SIZES.items():
        text = f"{SIZES[name][1].split(';')[0]}; default: {default}"
        add(f"--{name.replace('_', '-')}", type=int, default=default, metavar="N", help=text)
    add("--length", type=int, default=20, metavar="N", help="tokens a side; default: 20")
    add("--rounds", type=int, default=15, metavar="N", help="timed batches of each; default: 15")
    add("--warmup", type=int, default=2, metavar="N", help="untimed ones before; default: 2")
    add("--seed", type=int, default=0, metavar="N", help="of weights and ids; default: 0")
    text = "sentences x beams; default: 64x1 64x4 1x4"
    default = [(64, 1), (64, 4), (1, 4)]
    add("--batches", nargs="+", type=batch_and_beams, default=default, metavar="NxK", help=text)
    add("--json", metavar="FILE", help="write the rows and their circumstances here too")
    command.set_defaults(run=generate, dropout=0.0)


if __name__ == "__main__":
    main()
