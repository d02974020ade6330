"""Train a Transformer to translate, from nothing, and leave one .keras file that does.

Without data it learns dates ("April 22, 2019" -> "2019-04-22"), made on the spot:

    python scripts/train_translation.py

With your own sentence pairs, as two files (line n of one translates line n of the other), as one
file of tab-separated pairs or of JSON Lines, each plain or .gz, or as a translation set of
tensorflow-datasets (or a folder for its TranslateFolder):

    python scripts/train_translation.py --source train.en --target train.de \
        --valid-source val.en --valid-target val.de --output runs/en-de
    python scripts/train_translation.py --pairs pairs.tsv --output runs/mine
    python scripts/train_translation.py --dataset tfds:ted_hrlr_translate/pt_to_en --download

What suits how much data is in scripts/recipes.py: --recipe quick (an hour on two cores, the
default), small, medium, large. The run folder then holds model.keras, history.csv, settings.json,
scores.json, learning_curve.png and attention.png. Killed? The same command with --resume goes on.
KERAS_BACKEND=tensorflow, jax or torch chooses the backend.
"""

import argparse
import datetime
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import shutil
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's start-up notices

import keras
from recipes import RECIPES

import keras_transformer as kt
from keras_transformer import corpora, evaluation, plots, training
from keras_transformer.writing import write_text


def main():
    args = parse_arguments()
    output = pathlib.Path(args.output)
    if args.threads:
        training.use_threads(args.threads)
    keras.utils.set_random_seed(args.seed)
    keras.config.set_dtype_policy(
        "float32" if args.precision == "float32" else f"mixed_{args.precision}"
    )
    if args.deterministic:
        training.make_deterministic()

    refuse_to_overwrite(output, args)
    try:
        if args.tensorboard:
            check_tensorboard()
        splits, tokenizers, train, valid = prepare(args)
        translator, model = build(args, tokenizers, updates=args.epochs * len(train))
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"{error}")
    begin_run(output, args, splits)  # nothing is written before all of it fits together

    print(train.summary())
    translator.transformer.summary()
    checkpoint = training.Checkpoint(
        output / "checkpoint", train, seed=args.seed, keep=max(1, args.average)
    )
    finished = checkpoint.restore(model)
    if finished:
        print(f"Resuming after epoch {finished} of {args.epochs}.")
    log = training.TrainingLog(output / "history.csv", finished)
    callbacks = [training.Progress(train)]
    if args.bleu_sentences:
        bleu = training.ValidationScore(translator, splits.valid, score(args), args.bleu_sentences)
        callbacks.append(bleu)
    callbacks += [training.SampleTranslations(translator, splits.valid, number=3), log]
    ended = False
    if args.patience:
        better = ("val_bleu", "max") if args.bleu_sentences else ("val_perplexity", "min")
        stopping = training.EarlyStopping(better[0], args.patience, better[1], log.past)
        callbacks.append(stopping)
        ended = stopping.ended
    if args.tensorboard:
        callbacks.append(keras.callbacks.TensorBoard(output / "tensorboard"))
    model.fit(
        train,
        validation_data=valid,
        epochs=finished if ended else args.epochs,
        initial_epoch=finished,
        shuffle=False,  # the batches shuffle themselves, from the seed and the epoch
        callbacks=[*callbacks, checkpoint],
    )
    # With --ema, Keras put the mean of the weights in place as `fit` ended.
    if args.average:
        training.average_checkpoints(model, checkpoint.paths)
    translator.save(output / "model.keras")

    # What it learnt.
    evaluated = model.evaluate(valid, verbose=0, return_dict=True)
    print(f"Validation perplexity: {evaluated['perplexity']:.3f}")
    scored_on, examples = ("test", splits.test) if splits.test else ("validation", splits.valid)
    translations = translator.translate(examples.source)
    scores = {"valid_perplexity": evaluated["perplexity"]}
    scores |= {"split": scored_on, "sentences": len(translations)}
    if is_dates(args):
        scores["exact_match"] = evaluation.exact_match(translations, examples.target)
        print(f"Exact match on {len(translations)} held-out dates: {scores['exact_match']:.2%}")
    else:
        bleu = score(args)(translations, examples.target)
        scores["bleu"], scores["signature"] = bleu.value, bleu.signature
        print(f"sacreBLEU on the {scored_on} set, {len(translations)} sentences: {bleu}")
    write_json(output / "scores.json", scores)

    # To look at.
    plots.plot_history(output / "history.csv").savefig(output / "learning_curve.png", dpi=150)
    text = min(examples.source, key=lambda text: abs(len(text) - 12))  # fits a picture
    weights, source_tokens, target_tokens = translator.attention(text)
    title = "Cross-attention of the last layer"
    figure = plots.plot_attention(weights[-1], source_tokens, target_tokens, title)
    figure.savefig(output / "attention.png", dpi=150)
    print(f"The run is in {output}. Try: python scripts/translate.py {output / 'model.keras'}")


def prepare(args):
    """Text in: the examples, a tokenizer a side, ids in batches to train on and to watch."""
    splits = load(args)
    texts = (splits.train.source, splits.train.target)
    vocabulary = dict(vocabulary_size=args.vocabulary_size, model_type=args.vocabulary)
    if args.separate_vocabularies:
        tokenizers = [kt.learn_tokenizer(side, **vocabulary) for side in texts]
    else:
        tokenizers = [kt.learn_tokenizer(texts[0] + texts[1], **vocabulary)] * 2

    # Ids in buckets of equal length; with subword regularisation, other ids every epoch.
    def batches(examples, **kwargs):
        ids = [kt.encode(tokenizer, side) for tokenizer, side in zip(tokenizers, examples)]
        budget = dict(batch_size=args.batch_size, tokens_per_batch=args.tokens_per_batch)
        return kt.TranslationBatches(*ids, **budget, **kwargs)

    def redraw(epoch):
        return [
            kt.encode_at_random(tokenizer, side, args.subword_alpha, seed=(args.seed, epoch, n))
            for n, (tokenizer, side) in enumerate(zip(tokenizers, splits.train))
        ]

    train = batches(splits.train, seed=args.seed, redraw=redraw if args.subword_alpha else None)
    return splits, tokenizers, train, batches(splits.valid, shuffle=False)


def build(args, tokenizers, updates):
    """The model as a translator to keep, and as the keras.Model to fit."""
    source, target = tokenizers
    transformer = kt.Transformer(
        source.vocabulary_size(),
        None if target is source else target.vocabulary_size(),
        num_layers=args.num_layers,
        d_model=args.d_model,
        num_heads=args.num_heads,
        d_ff=args.d_ff,
        dropout=args.dropout,
        attention_dropout=args.attention_dropout,
        norm_first=args.norm_first,
    )
    translator = kt.Translator(
        transformer,
        source,
        target,
        beams=args.beams,
        **form(args),
    )
    model = training.RDrop(transformer, args.r_drop) if args.r_drop else transformer
    model.compile(
        optimizer(args, updates // args.accumulate),
        loss=kt.TokenCrossEntropy(args.label_smoothing),
        metrics=[kt.TokenAccuracy(), kt.Perplexity()],
        jit_compile=training.pays_to_compile(),
    )
    return translator, model


def optimizer(args, updates):
    """Adam with a rate that climbs to its peak and then falls, as 1/sqrt(step) or to 0."""
    if args.schedule == "cosine":
        rate = keras.optimizers.schedules.CosineDecay(
            initial_learning_rate=0.0,
            warmup_target=args.learning_rate,
            warmup_steps=args.warmup_steps,
            decay_steps=max(1, updates - args.warmup_steps),
        )
    else:
        rate = kt.WarmupSchedule.with_peak(args.learning_rate, args.warmup_steps)
    return kt.paper_optimizer(
        rate,
        global_clipnorm=args.clip_norm,
        use_ema=bool(args.ema),
        ema_momentum=args.ema or 0.99,
        gradient_accumulation_steps=args.accumulate if args.accumulate > 1 else None,
    )


def form(args):
    """What is done to every text: in the corpora, and later by the translator."""
    normalization = None if args.normalization == "none" else args.normalization
    return dict(normalization=normalization, lowercase=args.lowercase)


def score(args):
    """BLEU as the command line wants it."""
    return lambda said, references: evaluation.bleu(said, references, args.tokenize)


def parse_arguments():
    """The command line; with --resume, the settings of the run on top."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument_group("run").add_argument
    add("--recipe", choices=RECIPES, help="where defaults come from (dates / quick with data)")
    add("--output", metavar="FOLDER", help="the run folder (runs/dates / runs/text)")
    add("--resume", action="store_true", help="go on with the run in --output, as it was begun")
    add("--overwrite", action="store_true", help="begin anew although --output holds a run")
    add("--seed", type=int, default=0, help="of data, weights, order and dropout (0)")
    add("--deterministic", action="store_true", help="equal bit for bit each time, a little slower")

    add = parser.add_argument_group("data (none given: dates)").add_argument
    add("--source", metavar="FILE", help="sentences, one a line, plain or .gz")
    add("--target", metavar="FILE", help="their translations, line by line")
    add("--pairs", metavar="FILE", help="instead of both: source TAB target a line, or .jsonl")
    add("--valid-source", metavar="FILE", help="to watch; none: 2 %% of the training pairs")
    add("--valid-target", metavar="FILE", help="their translations")
    add("--valid-pairs", metavar="FILE", help="instead of both")
    add("--test-source", metavar="FILE", help="to score at the end; none: the validation set")
    add("--test-target", metavar="FILE", help="their translations")
    add("--test-pairs", metavar="FILE", help="instead of both")
    add("--dataset", metavar="NAME", help="instead of all: tfds:NAME, or a TranslateFolder")
    add("--data-dir", metavar="FOLDER", help="where tensorflow-datasets keeps its sets")
    add("--download", action="store_true", help="fetch the data set if it is not there")
    add("--sides", nargs=2, metavar=("FROM", "TO"), help="languages of it, or fields of .jsonl")

    add = parser.add_argument_group("cleaning").add_argument
    forms = ("NFC", "NFKC", "none")
    add("--normalization", choices=forms, default="NFC", help="Unicode's; NFKC: plain letters")
    add("--lowercase", action="store_true", help="of both sides, and of what is translated later")
    characters = "drop pairs with a longer side, but from the test set (1,000)"
    add("--max-characters", type=int, default=1000, metavar="N", help=characters)
    add(
        "--max-ratio",
        type=float,
        metavar="R",
        help="drop training pairs with a side R times as long",
    )
    add("--unique", action="store_true", help="drop repeated training pairs")

    add = parser.add_argument_group("model (defaults: the recipe's)").add_argument
    sizes = "; ".join(
        f"{name}: {size.num_layers} + {size.num_layers} layers, d_model {size.d_model}"
        for name, size in kt.PRESETS.items()
    )
    add("--preset", choices=kt.PRESETS, help=f"all sizes at once; {sizes}")
    add("--num-layers", type=int, metavar="N", help="of the encoder, and again of the decoder")
    add("--d-model", type=int, metavar="N", help="width of embeddings and sublayers")
    add("--num-heads", type=int, metavar="N", help="of each attention; they divide d_model")
    add("--d-ff", type=int, metavar="N", help="inner width of the feed-forward networks")
    add("--dropout", type=float, metavar="P", help="share of values dropped")
    add("--attention-dropout", type=float, default=0.0, metavar="P", help="of weights (0)")
    add("--norm-first", action="store_true", help="LayerNorm before each sublayer, not after")
    add("--vocabulary", choices=("char", "bpe", "unigram"), help="what gets an id")
    add("--vocabulary-size", type=int, metavar="N", help="ids at most (all characters / 8,000)")
    add("--separate-vocabularies", action="store_true", help="one vocabulary for each side")

    add = parser.add_argument_group("training (defaults: the recipe's)").add_argument
    add("--epochs", type=int, metavar="N", help="passes over the pairs")
    add("--batch-size", type=int, metavar="N", help="sentences a batch, or")
    add("--tokens-per-batch", type=int, metavar="N", help="target tokens a batch, padding too")
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
    add("--subword-alpha", type=float, metavar="A", help="split words at random each epoch (0.1)")
    precisions = ("float32", "bfloat16", "float16")
    add("--precision", choices=precisions, default="float32", help="of products, not of weights")
    add("--patience", type=int, metavar="N", help="end after N epochs without a better one")
    add("--threads", type=int, metavar="N", help="of one operation (all; not on jax)")
    add("--tensorboard", action="store_true", help="log for TensorBoard, which it needs, too")

    add = parser.add_argument_group("scoring").add_argument
    add("--beams", type=int, default=1, metavar="K", help="width of the search, saved as default")
    add("--tokenize", default="13a", metavar="T", help="sacreBLEU's: 13a (default), zh, none, ...")
    watch = "watch the BLEU of so many validation sentences; --patience goes by it then"
    add("--bleu-sentences", type=int, metavar="N", help=watch)

    args = parser.parse_args()
    args.recipe = args.recipe or ("dates" if is_dates(args) else "quick")
    recipe = dict(RECIPES[args.recipe])
    args.output = args.output or recipe["output"]
    if args.resume:
        return resumed(parser, args)
    if args.batch_size or args.tokens_per_batch:  # the one replaces the other
        recipe = {k: v for k, v in recipe.items() if k not in ("batch_size", "tokens_per_batch")}
    if args.ema or args.average:  # each replaces the weights by a mean
        recipe = {k: v for k, v in recipe.items() if k not in ("ema", "average")}
    # The command line goes before its --preset, that before the recipe, that before its preset.
    preset = vars(kt.PRESETS[args.preset]) if args.preset else {}
    basis = vars(kt.PRESETS[recipe.get("preset", "small")])
    parser.set_defaults(**{**basis, **recipe, **preset, "output": args.output})
    args = parser.parse_args(namespace=argparse.Namespace(recipe=args.recipe))
    if args.ema and args.average:
        parser.error("--ema or --average, not both: each replaces the weights by a mean.")
    return args


def resumed(parser, args):
    """The arguments that the run in --output was begun with; only --epochs may change."""
    settings = pathlib.Path(args.output) / "settings.json"
    if not settings.exists():
        sys.exit(f"There is no run to resume in {args.output}: {settings} does not exist.")
    begun = json.loads(settings.read_text())["arguments"]
    # What a namespace holds already is argparse's default: the command line goes before it.
    args = parser.parse_args(namespace=argparse.Namespace(**begun))
    changed = [name for name in begun if getattr(args, name) != begun[name]]
    fixed = [name for name in changed if name not in ("epochs", "output", "resume")]
    if fixed:
        options = ", ".join("--" + name.replace("_", "-") for name in fixed)
        sys.exit(f"A resumed run keeps its settings, all but --epochs; leave out {options}.")
    if "epochs" in changed and args.schedule == "cosine":
        sys.exit("With --schedule cosine the rate is 0 after the last epoch; leave out --epochs.")
    return args


def is_dates(args):
    """Whether the command line names no data at all."""
    return not args.dataset and not any(
        getattr(args, split + part)
        for split in ("", "valid_", "test_")
        for part in ("source", "target", "pairs")
    )


def load(args):
    """The examples to train on, to watch and to score; the last may be None."""
    if is_dates(args):
        return corpora.dates(seed=args.seed)
    splits = read_all(args)
    longest = dict(max_characters=args.max_characters)
    train = corpora.clean(
        splits.train, **form(args), **longest, max_ratio=args.max_ratio, unique=args.unique
    )
    valid = splits.valid and corpora.clean(splits.valid, **form(args), **longest)
    # the test set is left whole: so is its score
    test = splits.test and corpora.clean(splits.test, **form(args))
    if valid is None:
        if len(train.source) < 2:
            raise ValueError(
                "Expected at least two training pairs, one of them to watch; received one. Give "
                "more, or --valid-source and --valid-target."
            )
        aside = range(0, len(train.source), max(50, len(train.source) // 1000))
        valid = corpora.Examples(*([side[i] for i in aside] for side in train))
        keep = sorted(set(range(len(train.source))) - set(aside))
        train = corpora.Examples(*([side[i] for i in keep] for side in train))
    return corpora.Splits(train, valid, test)


def read_all(args):
    """What the command line names, as it is there."""
    if not args.dataset:
        train = read(args, "")
        if train is None:
            raise ValueError(
                "Nothing to train on: give --source and --target, --pairs, or --dataset."
            )
        return corpora.Splits(train, read(args, "valid_"), read(args, "test_"))
    name = args.dataset.removeprefix("tfds:")
    sides = args.sides or (None, None)
    return corpora.read_splits(name, *sides, data_dir=args.data_dir, download=args.download)


def read(args, prefix):
    source, target, pairs = (getattr(args, prefix + name) for name in ("source", "target", "pairs"))
    if pairs:
        if pairs.removesuffix(".gz").endswith((".jsonl", ".json")):
            return corpora.read_json_lines(pairs, *(args.sides or ()))
        return corpora.read_pairs(pairs)
    if bool(source) != bool(target):
        option = "--" + prefix.replace("_", "-")
        raise ValueError(f"{option}source and {option}target go together; one of them is missing.")
    return corpora.read_files(source, target) if source else None


def refuse_to_overwrite(output, args):
    if (output / "settings.json").exists() and not (args.resume or args.overwrite):
        sys.exit(
            f"{output} holds a run already: --resume goes on with it, --overwrite begins anew, "
            "--output takes another folder."
        )


def check_tensorboard():
    """Keras's callback would miss them only after the first epoch."""
    try:
        import tensorboard  # noqa: F401
        import tensorflow  # noqa: F401
    except ImportError:
        raise ImportError(
            "--tensorboard needs TensorFlow and TensorBoard; pip install tensorflow tensorboard, "
            "or leave it out: history.csv has the same numbers."
        ) from None


def begin_run(output, args, splits):
    """Writes settings.json; a resumed run must have the data it was begun with."""
    path = output / "settings.json"
    data = hashlib.sha256(repr(splits.train).encode()).hexdigest()
    if args.resume:
        if json.loads(path.read_text())["data"] != data:
            sys.exit(f"The training data is not what {output} was begun with; put it back.")
        return
    for folder in ("checkpoint", "tensorboard"):
        shutil.rmtree(output / folder, ignore_errors=True)
    (output / "history.csv").unlink(missing_ok=True)
    output.mkdir(parents=True, exist_ok=True)
    packages = ("keras", "keras-hub", keras.backend.backend(), "numpy", "sentencepiece")
    settings = {
        "command": " ".join([f"KERAS_BACKEND={keras.backend.backend()}", *sys.orig_argv]),
        "arguments": vars(args),
        "data": data,
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "begun": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    write_json(path, settings)


def write_json(path, content):
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
