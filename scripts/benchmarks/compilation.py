"""How long a training step is traced and compiled, for each shape of its batches."""

import keras
import numpy as np

import keras_transformer as kt
from keras_transformer import backend

from .measuring import race, report
from .training import ours, random_batch, step_on

COMPILE_HELP = """\
Seconds to trace and compile a training step: how much longer the first step of a shape takes than
its second, the median over shapes of 16, 24 and 32 tokens per side, for --layers blocks per stack.

PyTorch compiles nothing; TensorFlow traces one program for the first shape and one for all others.
What JAX has compiled before and kept (--compilation-cache of the training scripts, or
JAX_COMPILATION_CACHE_DIR) is loaded instead.
"""
LENGTHS = (16, 24, 32)


def compilation(args):
    keras.utils.set_random_seed(args.seed)
    rows = []
    print("| layers | seconds per shape | each of the shapes |\n|---|---|---|")
    for number in args.layers:
        config = kt.PRESETS[args.preset].replace(num_layers=number)
        model, seconds = ours(config, args.vocabulary_size), []
        loss, jit_compile = kt.TokenCrossEntropy(label_smoothing=0.1), backend.prefers_jit()
        model.compile(kt.paper_optimizer(1e-4), loss, jit_compile=jit_compile)
        model.optimizer.build(model.trainable_variables)
        for length in LENGTHS:
            first, second = race([step_on(model, random_batch(args, length))], 2).ravel()
            seconds.append(float(first - second))
        rows.append({"layers": number, "seconds": float(np.median(seconds)), "each": seconds})
        each = ", ".join(f"{s:.1f}" for s in seconds)
        print(f"| {number} + {number} | {rows[-1]['seconds']:.1f} | {each} |", flush=True)
    report(args, rows)


def add_command(commands, formatter):
    one_line = "seconds to compile a training step"
    command = commands.add_parser("compile", help=one_line, description=COMPILE_HELP, **formatter)
    add = command.add_argument
    add("--layers", nargs="+", type=int, default=[1, 3, 6], metavar="N", help="(default: 1 3 6)")
    add("--preset", choices=kt.PRESETS, default="tiny", help="other sizes (default: tiny)")
    add("--vocabulary-size", type=int, default=1000, metavar="N", help="shared ids (default: 1000)")
    add("--batch-size", type=int, default=8, metavar="N", help="sentence pairs (default: 8)")
    add("--seed", type=int, default=0, metavar="N", help="random seed (default: 0)")
    add("--json", metavar="FILE", help="JSON file for the rows and their circumstances")
    command.set_defaults(run=compilation)
