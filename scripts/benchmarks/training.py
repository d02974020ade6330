"""Seconds for one training step, beside Keras's, KerasHub's and PyTorch's own layers."""

import sys

import keras
import numpy as np
from keras import layers, ops

from keras_transformer.masks import padding_mask
from keras_transformer.models import PRESETS
from keras_transformer.positions import PositionalEncoding, sinusoids
from keras_transformer.tokenizers import PADDING, UNKNOWN
from keras_transformer.training import Perplexity, TokenAccuracy, TokenCrossEntropy, paper_optimizer

from .measuring import INPUTS, SIZES, id_inputs, ours, race, report, stack_of

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


def keras_hub_layers(sizes, norm_first=False):
    import keras_hub

    embedding = keras_hub.layers.ReversibleEmbedding(sizes.vocabulary_size, sizes.d_model)
    positions = keras_hub.layers.SinePositionEncoding()
    block = dict(intermediate_dim=sizes.d_ff, num_heads=sizes.num_heads, dropout=sizes.dropout)
    block["normalize_first"] = norm_first

    def embed(ids):
        x = embedding(ids) * sizes.d_model**0.5
        return layers.Dropout(sizes.dropout)(x + positions(x))

    def end_of_stack(x):
        return layers.LayerNormalization()(x) if norm_first else x

    inputs = id_inputs()
    source_ids, target_ids = inputs.values()
    source_mask = ops.not_equal(source_ids, PADDING)
    x, y = embed(source_ids), embed(target_ids)
    for _ in range(sizes.num_layers):
        x = keras_hub.layers.TransformerEncoder(**block)(x, padding_mask=source_mask)
    x = end_of_stack(x)
    for _ in range(sizes.num_layers):
        decoder = keras_hub.layers.TransformerDecoder(**block)
        y = decoder(y, x, encoder_padding_mask=source_mask)
    return keras.Model(inputs, embedding(end_of_stack(y), reverse=True))


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

    inputs = id_inputs()
    source_ids, target_ids = inputs.values()
    source_mask = padding_mask(source_ids)
    x, y = embed(source_ids), embed(target_ids)
    for _ in range(sizes.num_layers):
        x = feed_forward(attend(x, x, attention_mask=source_mask))
    for _ in range(sizes.num_layers):
        y = attend(y, y, use_causal_mask=True)
        y = feed_forward(attend(y, x, attention_mask=source_mask))
    return keras.Model(inputs, embedding(y, reverse=True))


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
    print(f"Training step, {stack_of(args)}, {batches}\n")
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


def fastest_variants(seconds, steps):
    """The variant of each contender with the lowest median: {name: row of the table}."""
    best = {}
    for (name, variant, _), column in zip(steps, seconds.T):
        low, median, high = (float(q) for q in np.quantile(column, (0.25, 0.5, 0.75)))
        if name not in best or median < best[name]["seconds"]:
            row = dict(seconds=median, low=low, high=high, fastest=float(column.min()))
            best[name] = dict(name=name, variant=variant, **row)
    return best


def add_command(commands, formatter):
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
