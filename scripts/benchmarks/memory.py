"""Memory of a training step by formula and as measured; costs of a training."""

import contextlib
import itertools
import multiprocessing
import os
import pathlib
import re
import time

import keras
import numpy as np

import keras_transformer as kt
from keras_transformer import training
from keras_transformer.training.estimates import activations_in_bytes, weights_in_bytes

from .measuring import INPUTS, add_sizes, report, sizes_given, stack_of
from .training import flops_of, keras_hub_layers, products_of

MEMORY_HELP = """\
Peak memory of a training step (forward, backward, Adam) of a Transformer, by the formula of
docs/memory.md and as measured: for each number of rows, with and without rematerialization, and
with the logits in --pieces. --contender keras-hub measures KerasHub's layers in the same sizes,
with Keras's own loss, without either.

Each step runs in a process of its own. Measured is the peak of that process during its third step,
less that of the same program with sizes near 1, so that neither the libraries nor the compiled
program count. Needs Linux. With an accelerator it is the peak of its memory.

With --updates N it is a long run instead, without and with R-Drop: N updates of batches in a random
order of eight lengths, up to --length. The table shows the peak memory of the process and its
processor seconds per update in each tenth of the run; both must stay the same.
"""
COST_HELP = """\
What the paper's trainings cost on paper: parameters, tokens, FLOPs, hours.

FLOPs are those of all products of matrices, forward and backward, as scripts/benchmark.py train
counts them (two per multiplication and addition), for sentences of --length tokens on both sides.
"""
TINY = {"d_model": 8, "num_heads": 2, "d_ff": 8}
TRAININGS = {  # Vaswani et al. 2017, sections 5.1, 5.2 and 6.1: updates, hours on 8 P100
    "base": (100_000, 12),
    "big": (300_000, 3.5 * 24),
}
TOKENS_PER_SIDE = 25_000  # section 5.1, per update
PAPER_VOCABULARY = 37_000
P100 = 9.5e12  # FLOP/s sustained, the paper's estimate (footnote 5)
H100 = 989e12  # FLOP/s, bfloat16 without sparsity, SXM, from its data sheet


def blocks(config):
    """The names of all blocks, for `keras.RematScope`."""
    return [f"block_{number}" for number in range(1, config.num_layers + 1)]


def parameters_of(config, vocabulary_size):
    """Numbers that a Transformer with one vocabulary learns."""
    d, d_ff = config.d_model, config.d_ff
    attention, norm = 4 * (d * d + d), 2 * d
    feed_forward = 2 * d * d_ff + d_ff + d
    blocks = config.num_layers * (3 * attention + 2 * feed_forward + 5 * norm)
    return vocabulary_size * d + blocks + config.norm_first * 2 * norm


def ours_and_loss(config, vocabulary_size, rematerialize, pieces):
    scope = keras.RematScope(mode="list_of_layers", layer_names=blocks(config))
    with scope if rematerialize else contextlib.nullcontext():
        model = kt.Transformer(vocabulary_size, config=config)
    model = training.ChunkedLogits(model, pieces) if pieces > 1 else model
    return model, kt.TokenCrossEntropy(0.1)


def keras_hub_and_loss(config, vocabulary_size, *_):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return keras_hub_layers(config, vocabulary_size), loss


CONTENDERS = {"ours": ours_and_loss, "keras-hub": keras_hub_and_loss}


def peak_of_step(backend, dtype, contender, config, vocabulary_size, rows, length, *how):
    """The peak memory in bytes of this process, which must be a new one, during a step.

    On an accelerator it is the peak of that one's memory since the process began.
    """
    assert keras.backend.backend() == backend, "the process has another backend"
    keras.config.set_dtype_policy(dtype)
    model, loss = CONTENDERS[contender](config, vocabulary_size, *how)
    batch = random_batch(np.random.default_rng(0), vocabulary_size, rows, length)
    compile_model(model, loss)
    for step in range(3):
        if step == 2:
            forget_peak()
        model.train_on_batch(*batch)
        wait_for_update(model)
    return peak()


def tenths_of_run(backend, dtype, config, vocabulary_size, rows, length, updates, r_drop):
    """The peak memory in bytes and the processor seconds per update in each tenth of a run."""
    assert keras.backend.backend() == backend, "the process has another backend"
    keras.config.set_dtype_policy(dtype)
    keras.utils.set_random_seed(0)
    model, loss = ours_and_loss(config, vocabulary_size, False, 1)
    model = training.RDrop(model) if r_drop else model
    compile_model(model, loss)
    rng, found = np.random.default_rng(0), []
    lengths = [max(1, length * eighths // 8) for eighths in range(1, 9)]
    for _ in range(10):
        forget_peak()
        start = time.process_time()
        for drawn in rng.permutation(np.resize(lengths, updates // 10)):
            model.train_on_batch(*random_batch(rng, vocabulary_size, rows, drawn))
        wait_for_update(model)
        found.append((peak(), (time.process_time() - start) / (updates // 10)))
    return found


def compile_model(model, loss):
    model.compile(kt.paper_optimizer(1e-4), loss, jit_compile=kt.backend.prefers_jit())


def random_batch(rng, vocabulary_size, rows, length):
    *inputs, labels = rng.integers(4, vocabulary_size, (3, rows, length)).astype("int32")
    return dict(zip(INPUTS, inputs, strict=True)), labels


def wait_for_update(model):
    keras.ops.convert_to_numpy(model.trainable_variables[-1])


def forget_peak():
    """From now on `peak` is that of what follows, except on an accelerator."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def peak():
    """The peak memory in bytes of this process, or of its accelerator."""
    if kt.backend.on_accelerator():
        return accelerator_peak()
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+) kB", status)[1]) * 1024


def accelerator_peak():
    """The most memory in bytes that this process has allocated on its first accelerator."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.devices()[0].memory_stats()["peak_bytes_in_use"]
    if keras.backend.backend() == "torch":
        import torch

        return torch.cuda.max_memory_allocated()
    import tensorflow as tf

    return tf.config.experimental.get_memory_info("GPU:0")["peak"]


def in_new_process(function, *arguments):
    # Of a fixed size, or freed arrays would stay with the process.
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "131072"
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, (keras.backend.backend(), *arguments))


def memory(args):
    if args.contender != "ours" and args.pieces > 1:
        raise SystemExit("--pieces needs --contender ours: KerasHub computes its logits at once.")
    config = kt.PRESETS[args.preset].replace(**sizes_given(args))
    if args.updates is not None:
        long_run(args, config)
        return
    size, length, rows = args.vocabulary_size, args.length, []
    parameters = parameters_of(config, size)
    print(f"Training step, {stack_of(config, size)}: {parameters:,} parameters, {args.dtype}\n")
    print("| rows x length | rematerialized | float32 formula, MB | measured, MB | ratio |")
    print("|---|---|---|---|---|")
    for rematerialized in (False, True) if args.contender == "ours" else (False,):
        how = (rematerialized, args.pieces)
        of_tiny = config.replace(**TINY), 16, 1, 4
        program = in_new_process(peak_of_step, args.dtype, args.contender, *of_tiny, *how)
        for number in args.rows:
            expected = weights_in_bytes(parameters) + activations_in_bytes(
                config, size, number, length, length, *how
            )
            sizes = config, size, number, length
            measured = in_new_process(peak_of_step, args.dtype, args.contender, *sizes, *how)
            measured -= program
            row = {
                "rows": number,
                "length": length,
                "rematerialized": rematerialized,
                "formula": expected / 1e6,
                "measured": measured / 1e6,
                "program": program / 1e6,
            }
            rows.append(row)
            print(
                f"| {number} x {length} | {'yes' if rematerialized else 'no'} | "
                f"{row['formula']:,.0f} | {row['measured']:,.0f} | {measured / expected:.2f} |",
                flush=True,
            )
    report(args, rows)


def long_run(args, config):
    """Memory and time in each tenth of a run, without and with R-Drop."""
    if args.contender != "ours" or args.pieces > 1 or args.updates < 10:
        raise SystemExit("--updates must be at least 10, without --contender and --pieces.")
    size, rows, tenth = args.vocabulary_size, [], args.updates // 10
    print(f"Training, {stack_of(config, size)}, {args.dtype}, up to {args.length} tokens\n")
    print("| rows | R-Drop | updates | peak memory, MB | processor seconds per update |")
    print("|---|---|---|---|---|")
    for number, r_drop in itertools.product(args.rows, (False, True)):
        sizes = config, size, number, args.length, args.updates
        of_tenths = in_new_process(tenths_of_run, args.dtype, *sizes, r_drop)
        for updates, (memory, seconds) in zip(itertools.count(tenth, tenth), of_tenths):
            row = {"rows": number, "r_drop": r_drop, "updates": updates}
            rows.append({**row, "memory": memory / 1e6, "seconds": seconds})
            with_it = "yes" if r_drop else "no"
            print(f"| {number} | {with_it} | {updates} | {memory / 1e6:,.0f} | {seconds:.4f} |")
    report(args, rows)


def flops_per_update(config, vocabulary_size, length):
    """Of 25,000 tokens per side, in sentences of one length."""
    products = products_of(config, vocabulary_size, TOKENS_PER_SIDE // length, length)
    return flops_of(products)


def costs(vocabulary_size=PAPER_VOCABULARY, length=25, utilization=0.4):
    """Costs of the trainings of Table 2: a dict per model."""
    rows = []
    for preset, (updates, hours) in TRAININGS.items():
        config = kt.PRESETS[preset]
        parameters = parameters_of(config, vocabulary_size)
        flops = updates * flops_per_update(config, vocabulary_size, length)
        tokens = updates * 2 * TOKENS_PER_SIDE
        rows.append(
            {
                "model": preset,
                "parameters": parameters,
                "updates": updates,
                "tokens": tokens,
                "flops": flops,
                "six_n_tokens": 6 * parameters * tokens,
                "p100_hours": hours,
                "p100_utilization": flops / (hours * 3600 * 8 * P100),
                "h100_hours": flops / (utilization * H100) / 3600,
            }
        )
    return rows


def cost(args):
    rows = costs(args.vocabulary_size, args.length, args.utilization)
    print(
        "| model | parameters | updates | tokens, both sides | 6 N tokens | FLOPs | "
        "hours on 8 P100 (paper) | share of their FLOP/s | hours on one H100 |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['model']} | {row['parameters']:,} | {row['updates']:,} | "
            f"{row['tokens']:.1e} | {row['six_n_tokens']:.2e} | {row['flops']:.2e} | "
            f"{row['p100_hours']:g} | {row['p100_utilization']:.0%} | {row['h100_hours']:.1f} |"
        )
    report(args, rows)


def add_command(commands, formatter):
    one_line = "peak memory of a training step, by formula and measured, or over a long run"
    command = commands.add_parser("memory", help=one_line, description=MEMORY_HELP, **formatter)
    add = command.add_argument
    add("--preset", choices=kt.PRESETS, default="mini", help="sizes and dropout (default: mini)")
    add_sizes(add)
    add("--vocabulary-size", type=int, default=8000, metavar="N", help="shared ids (default: 8000)")
    rows = "sentence pairs per batch, one measurement each (default: 64 256)"
    add("--rows", type=int, nargs="+", default=[64, 256], metavar="N", help=rows)
    add("--length", type=int, default=32, metavar="N", help="tokens per side (default: 32)")
    pieces = "pieces in which logits are computed (default: 1)"
    add("--pieces", type=int, default=1, metavar="N", help=pieces)
    updates = "updates of a long run to be measured instead (default: none)"
    add("--updates", type=int, metavar="N", help=updates)
    whose = "whose layers (default: ours)"
    add("--contender", choices=CONTENDERS, default="ours", help=whose)
    add("--dtype", default="float32", help="dtype policy: float32 (default), mixed_bfloat16, ...")
    add("--json", metavar="FILE", help="JSON file for the rows and their circumstances")
    command.set_defaults(run=memory)

    one_line = "what the paper's trainings cost on paper"
    command = commands.add_parser("cost", help=one_line, description=COST_HELP, **formatter)
    add = command.add_argument
    size = f"shared ids (default: {PAPER_VOCABULARY}, as in the paper)"
    add("--vocabulary-size", type=int, default=PAPER_VOCABULARY, metavar="N", help=size)
    add("--length", type=int, default=25, metavar="N", help="tokens per sentence (default: 25)")
    share = "assumed share of the H100's peak, 989 TFLOP/s in bfloat16 (default: 0.4)"
    add("--utilization", type=float, default=0.4, metavar="P", help=share)
    add("--json", metavar="FILE", help="JSON file for the rows and their circumstances")
    command.set_defaults(run=cost)
