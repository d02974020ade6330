"""What the training scripts share: options, where their defaults come from, and their meaning.

A script makes its parser from these groups and its own, and calls in this order: `parse`, `set_up`,
`compile_model`, `fit`.
"""

import argparse
import contextlib
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's start-up notices

import keras

import keras_transformer as kt
from keras_transformer import training

# Options. Each function returns `add_argument` of its group, for what a script adds of its own.


def new_parser(description, recipes, recipe, output):
    """A parser with the options of a run.

    Args:
        description: str, the script's docstring.
        recipes: dict of dict, what --recipe chooses from.
        recipe: str, for --help: which of them when none is named.
        output: str, for --help: the folder when none is named.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument_group("run").add_argument
    add("--recipe", choices=recipes, help=f"where defaults come from ({recipe})")
    add("--output", metavar="FOLDER", help=f"the run folder ({output})")
    add("--resume", action="store_true", help="go on with the run in --output, as it was begun")
    add("--overwrite", action="store_true", help="begin anew although --output holds a run")
    add("--seed", type=int, default=0, help="of data, weights, order and dropout (0)")
    add("--deterministic", action="store_true", help="equal bit for bit each time, a little slower")
    return parser


def add_model_options(parser, decoder=False):
    """The sizes of an encoder, or of an encoder and a decoder."""
    add = parser.add_argument_group("model (defaults: the recipe's)").add_argument
    stacks = "{0} + {0}" if decoder else "{0}"
    sizes = "; ".join(
        f"{name}: {stacks.format(size.num_layers)} layers, d_model {size.d_model}"
        for name, size in kt.PRESETS.items()
    )
    layers = "of the encoder, and again of the decoder" if decoder else "blocks in the stack"
    add("--preset", choices=kt.PRESETS, help=f"all sizes at once; {sizes}")
    add("--num-layers", type=int, metavar="N", help=layers)
    add("--d-model", type=int, metavar="N", help="width of embeddings and sublayers")
    add("--num-heads", type=int, metavar="N", help="of each attention; they divide d_model")
    add("--d-ff", type=int, metavar="N", help="inner width of the feed-forward networks")
    add("--dropout", type=float, metavar="P", help="share of values dropped")
    add("--attention-dropout", type=float, default=0.0, metavar="P", help="of weights (0)")
    either = dict(action=argparse.BooleanOptionalAction, default=False)
    add("--norm-first", **either, help="LayerNorm before each sublayer, not after")
    add("--rotary", **either, help="rotary positions instead of sinusoids")
    return add


def add_vocabulary_options(add):
    """What `learn_tokenizer` goes by, to a group."""
    add("--vocabulary", choices=kt.tokenizers.MODEL_TYPES, help="what gets an id")
    add("--vocabulary-size", type=int, metavar="N", help="ids at most (all characters / 8,000)")


def add_training_options(parser, tokens="tokens"):
    """Batches, updates, and what else `compile_model`, `fit` and `set_up` go by."""
    add = parser.add_argument_group("training (defaults: the recipe's)").add_argument
    add("--epochs", type=int, metavar="N", help="passes over the training data")
    add("--batch-size", type=int, metavar="N", help="sentences a batch, or")
    add("--tokens-per-batch", type=int, metavar="N", help=f"{tokens} a batch, padding too")
    add("--accumulate", type=int, default=1, metavar="N", help="batches an update (1)")
    add("--learning-rate", type=float, metavar="R", help="at the end of the warm-up")
    add("--warmup-steps", type=int, metavar="N", help="updates of linear growth")
    falls = "how the rate then falls: as 1/sqrt(step), or to 0 (paper)"
    add("--schedule", choices=("paper", "cosine"), default="paper", help=falls)
    add("--label-smoothing", type=float, default=0.1, metavar="E", help="0.1, as in the paper")
    add("--clip-norm", type=float, metavar="N", help="of all gradients together, at most")
    add("--ema", type=float, metavar="M", help="save a running mean of the weights, momentum M")
    add("--average", type=int, default=0, metavar="N", help="save the mean of the last N epochs'")
    add("--r-drop", type=float, metavar="A", help="train on two dropout passes that agree (5)")
    precisions = ("float32", "bfloat16", "float16")
    add("--precision", choices=precisions, default="float32", help="of products, not of weights")
    add("--patience", type=int, metavar="N", help="end after N epochs without a better one")
    add("--threads", type=int, metavar="N", help="of one operation (all; not on jax)")
    add("--tensorboard", action="store_true", help="log for TensorBoard, which it needs, too")
    return add


def parse(parser, recipes, default):
    """The command line, before its --preset, before the recipe, before the recipe's preset.

    With --resume, the arguments of the run in --output stand, and only --epochs may change.

    Args:
        parser: of `new_parser`, with all options.
        recipes: dict of dict; each has at least `output`.
        default: function of the arguments, the name of the recipe when none is named.

    Returns:
        argparse.Namespace.
    """
    args = parser.parse_args()
    args.recipe = args.recipe or default(args)
    recipe = dict(recipes[args.recipe])
    args.output = args.output or recipe["output"]
    if args.resume:
        return _resumed(parser, args.output)
    if args.batch_size or args.tokens_per_batch:  # the one replaces the other
        recipe = {k: v for k, v in recipe.items() if k not in ("batch_size", "tokens_per_batch")}
    if args.ema or args.average:  # each replaces the weights by a mean
        recipe = {k: v for k, v in recipe.items() if k not in ("ema", "average")}
    preset = vars(kt.PRESETS[args.preset]) if args.preset else {}
    basis = vars(kt.PRESETS[recipe.get("preset", "small")])
    parser.set_defaults(**{**basis, **recipe, **preset, "output": args.output})
    args = parser.parse_args(namespace=argparse.Namespace(recipe=args.recipe))
    if args.ema and args.average:
        parser.error("--ema or --average, not both: each replaces the weights by a mean.")
    return args


def _resumed(parser, output):
    begun = training.Run(output, resume=True).settings["arguments"]
    # What a namespace holds already is argparse's default: the command line goes before it.
    args = parser.parse_args(namespace=argparse.Namespace(**begun))
    changed = [name for name in begun if getattr(args, name) != begun[name]]
    fixed = [name for name in changed if name not in ("epochs", "output", "resume")]
    if fixed:
        options = ", ".join("--" + name.replace("_", "-") for name in fixed)
        raise ValueError(
            f"A resumed run keeps its settings, all but --epochs; leave out {options}."
        )
    if "epochs" in changed and args.schedule == "cosine":
        raise ValueError(
            "With --schedule cosine the rate is 0 after the last epoch; leave out --epochs."
        )
    return args


# What they mean


@contextlib.contextmanager
def errors_as_exits():
    """Ends the script with the sentence of an error that its user can cure."""
    try:
        yield
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"{error}")


def set_up(args):
    """Threads, seed, precision and determinism of all that follows; before any operation."""
    if args.threads:
        training.use_threads(args.threads)
    keras.utils.set_random_seed(args.seed)
    keras.config.set_dtype_policy(
        "float32" if args.precision == "float32" else f"mixed_{args.precision}"
    )
    if args.deterministic:
        training.make_deterministic()
    if args.tensorboard:
        training.check_tensorboard()


def held_out(examples, what="examples", options="validation data"):
    """The examples in two parts: to train on, and 2 % to watch, 1,000 or so at most.

    Args:
        examples: list, or NamedTuple of lists of one length.
        what: str, their name in an error.
        options: str, what gives others to watch, for that error.

    Raises:
        ValueError: If there are not at least two.
    """
    columns = examples if isinstance(examples, tuple) else (examples,)
    number = len(columns[0])
    if number < 2:
        raise ValueError(
            f"Expected at least two training {what}, one of them to watch; received "
            f"{'one' if number else 'none'}. Give more, or {options}."
        )
    aside = range(0, number, max(50, number // 1000))
    parts = [], []
    for column in columns:
        parts[0].append([each for n, each in enumerate(column) if n not in aside])
        parts[1].append([column[n] for n in aside])
    return [type(examples)(*part) if isinstance(examples, tuple) else part[0] for part in parts]


def sizes(args):
    """The arguments of a model that `add_model_options` names."""
    names = "num_layers d_model num_heads d_ff dropout attention_dropout norm_first rotary".split()
    return {name: getattr(args, name) for name in names}


def optimizer(args, batches):
    """Adam with a rate that climbs to its peak and then falls, as 1/sqrt(step) or to 0.

    Keras's schedules and its running mean of the weights count batches. The options count updates,
    which --accumulate makes fewer.

    Args:
        args: of `parse`.
        batches: int, of all epochs.
    """
    warmup_steps = args.warmup_steps * args.accumulate
    if args.schedule == "cosine":
        rate = keras.optimizers.schedules.CosineDecay(
            initial_learning_rate=0.0,
            warmup_target=args.learning_rate,
            warmup_steps=warmup_steps,
            decay_steps=max(1, batches - warmup_steps),
        )
    else:
        rate = kt.WarmupSchedule.with_peak(args.learning_rate, warmup_steps)
    return kt.paper_optimizer(
        rate,
        global_clipnorm=args.clip_norm,
        use_ema=bool(args.ema),
        ema_momentum=(args.ema or 0.99) ** (1 / args.accumulate),
        gradient_accumulation_steps=args.accumulate if args.accumulate > 1 else None,
    )


def compile_model(model, args, train):
    """The model to fit, compiled for labels that are ids, 0 where there is none.

    Args:
        model: keras.Model that gives logits.
        args: of `parse`.
        train: the batches of an epoch.

    Returns:
        keras.Model: `model`, or with --r-drop one that trains it.
    """
    model = training.RDrop(model, args.r_drop) if args.r_drop else model
    model.compile(
        optimizer(args, batches=args.epochs * len(train)),
        loss=kt.TokenCrossEntropy(args.label_smoothing),
        metrics=[kt.TokenAccuracy(), kt.Perplexity()],
        jit_compile=training.pays_to_compile(),
    )
    model.optimizer.build(model.trainable_variables)  # or TensorFlow traces the first step twice
    return model


def fit(run, model, train, valid, args, callbacks=(), **kwargs):
    """`training.Run.fit` as the command line wants it; what it does not know are `kwargs`."""
    run.fit(
        model,
        train,
        valid,
        epochs=args.epochs,
        seed=args.seed,
        callbacks=callbacks,
        patience=args.patience,
        average=args.average,
        tensorboard=args.tensorboard,
        **kwargs,
    )
