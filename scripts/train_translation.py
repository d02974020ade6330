"""Train a Transformer to translate, from nothing, and leave one .keras file that does.

Without data it learns dates ("April 22, 2019" -> "2019-04-22"), made on the spot:

    python scripts/train_translation.py

With your own sentence pairs, as two files (line n of one translates line n of the other) or as
one file of tab-separated pairs, each plain or .gz:

    python scripts/train_translation.py --source train.en --target train.de \
        --valid-source val.en --valid-target val.de --output runs/en-de
    python scripts/train_translation.py --pairs pairs.tsv --output runs/mine

The run folder then holds model.keras, history.csv, settings.json, scores.json,
learning_curve.png and attention.png. Killed? The same command with --resume goes on.
KERAS_BACKEND=tensorflow, jax or torch chooses the backend.
"""

import argparse
import dataclasses
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

import keras_transformer as kt
from keras_transformer import corpora, evaluation, plots, training

# What suits the task when the command line does not say. Dates: 30,000 short pairs of a regular
# language, learnt letter by letter. Text: some 30,000 sentence pairs, learnt by subwords.
DATES = dict(
    output="runs/dates",
    preset="tiny",
    vocabulary="char",
    batch_size=64,
    epochs=7,
    learning_rate=2e-3,
    warmup_steps=500,
)
TEXT = dict(
    output="runs/text",
    preset="small",
    vocabulary="bpe",
    tokens_per_batch=2048,
    epochs=10,
    learning_rate=1e-3,
    warmup_steps=1000,
)


def main():
    args = parse_arguments()
    output = pathlib.Path(args.output)
    keras.utils.set_random_seed(args.seed)
    if args.deterministic:
        training.make_deterministic()

    # Text in.
    splits = load(args)
    begin_run(output, args, splits)
    texts = (splits.train.source, splits.train.target)
    vocabulary = dict(vocabulary_size=args.vocabulary_size, model_type=args.vocabulary)
    if args.separate_vocabularies:
        tokenizers = [kt.learn_tokenizer(side, **vocabulary) for side in texts]
        sizes = [tokenizer.vocabulary_size() for tokenizer in tokenizers]
    else:
        shared = kt.learn_tokenizer(texts[0] + texts[1], **vocabulary)
        tokenizers, sizes = [shared, shared], [shared.vocabulary_size()]

    # Ids in buckets of equal length.
    def batches(examples, **kwargs):
        ids = [kt.encode(tokenizer, side) for tokenizer, side in zip(tokenizers, examples)]
        budget = dict(batch_size=args.batch_size, tokens_per_batch=args.tokens_per_batch)
        return kt.TranslationBatches(*ids, **budget, **kwargs)

    train, valid = batches(splits.train, seed=args.seed), batches(splits.valid, shuffle=False)
    print(train.summary())

    # The model, as keras.Model.
    preset = kt.PRESETS[args.preset]
    if args.dropout is not None:
        preset = dataclasses.replace(preset, dropout=args.dropout)
    transformer = kt.Transformer(*sizes, **dataclasses.asdict(preset))
    schedule = kt.WarmupSchedule.with_peak(args.learning_rate, args.warmup_steps)
    # The model that is saved is a running mean of the weights, over some 500 steps: it makes
    # fewer slips than the weights of any one step.
    transformer.compile(
        kt.paper_optimizer(schedule, use_ema=True, ema_momentum=0.998),
        loss=kt.TokenCrossEntropy(args.label_smoothing),
        metrics=[kt.TokenAccuracy(), kt.Perplexity()],
        jit_compile=training.pays_to_compile(),
    )
    transformer.summary()
    translator = kt.Translator(transformer, *tokenizers)

    # Training.
    checkpoint = training.Checkpoint(output / "checkpoint", train, seed=args.seed)
    initial_epoch = checkpoint.restore(transformer)
    if initial_epoch:
        print(f"Resuming after epoch {initial_epoch} of {args.epochs}.")
    transformer.fit(
        train,
        validation_data=valid,
        epochs=args.epochs,
        initial_epoch=initial_epoch,
        shuffle=False,  # the batches shuffle themselves, from the seed and the epoch
        callbacks=[
            training.TokensPerSecond(train.num_tokens, len(train)),
            training.SampleTranslations(translator, splits.valid, number=3),
            training.TrainingLog(output / "history.csv", initial_epoch),
            checkpoint,
        ],
    )
    translator.save(output / "model.keras")

    # What it learnt. Keras put the mean of the weights in place as `fit` ended.
    evaluated = transformer.evaluate(valid, verbose=0, return_dict=True)
    print(f"Validation perplexity: {evaluated['perplexity']:.3f}")
    scored_on, examples = ("test", splits.test) if splits.test else ("validation", splits.valid)
    translations = translator.translate(examples.source)
    scores = {"valid_perplexity": evaluated["perplexity"]}
    scores |= {"split": scored_on, "sentences": len(translations)}
    if is_dates(args):
        scores["exact_match"] = evaluation.exact_match(translations, examples.target)
        print(f"Exact match on {len(translations)} held-out dates: {scores['exact_match']:.2%}")
    else:
        bleu = evaluation.bleu(translations, examples.target)
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


def parse_arguments():
    """The command line; with --resume, the settings of the run on top."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument_group("run").add_argument
    add("--output", metavar="FOLDER", help="the run folder (runs/dates / runs/text)")
    add("--resume", action="store_true", help="go on with the run in --output, as it was begun")
    add("--overwrite", action="store_true", help="begin anew although --output holds a run")
    add("--seed", type=int, default=0, help="of data, weights, order and dropout (0)")
    add("--deterministic", action="store_true", help="equal bit for bit each time, a little slower")

    add = parser.add_argument_group("data (none given: dates)").add_argument
    add("--source", metavar="FILE", help="sentences, one a line, plain or .gz")
    add("--target", metavar="FILE", help="their translations, line by line")
    add("--pairs", metavar="FILE", help="instead of both: source TAB target on each line")
    add("--valid-source", metavar="FILE", help="to watch; none: 2 %% of the training pairs")
    add("--valid-target", metavar="FILE", help="their translations")
    add("--valid-pairs", metavar="FILE", help="instead of both")
    add("--test-source", metavar="FILE", help="to score at the end; none: the validation set")
    add("--test-target", metavar="FILE", help="their translations")
    add("--test-pairs", metavar="FILE", help="instead of both")

    add = parser.add_argument_group("model (defaults for dates / for text)").add_argument
    sizes = "; ".join(
        f"{name}: {size.num_layers} + {size.num_layers} layers, d_model {size.d_model}"
        for name, size in kt.PRESETS.items()
    )
    add("--preset", choices=kt.PRESETS, help=f"{sizes} (tiny / small)")
    add("--dropout", type=float, metavar="P", help="share of values dropped (the preset's)")
    add("--vocabulary", choices=("char", "bpe", "unigram"), help="what gets an id (char / bpe)")
    add("--vocabulary-size", type=int, metavar="N", help="ids at most (all characters / 8,000)")
    add("--separate-vocabularies", action="store_true", help="one vocabulary for each side")

    add = parser.add_argument_group("training (defaults for dates / for text)").add_argument
    add("--epochs", type=int, metavar="N", help="passes over the pairs (7 / 10)")
    add("--batch-size", type=int, metavar="N", help="sentences a batch (64 / by tokens)")
    add("--tokens-per-batch", type=int, metavar="N", help="target tokens a batch (- / 2,048)")
    add("--learning-rate", type=float, metavar="R", help="at the end of the warm-up")
    add("--warmup-steps", type=int, metavar="N", help="steps of linear growth; then 1/sqrt(step)")
    add("--label-smoothing", type=float, default=0.1, metavar="E", help="0.1, as in the paper")

    args = parser.parse_args()
    defaults = DATES if is_dates(args) else TEXT
    args.output = args.output or defaults["output"]
    if args.resume:
        return resumed(parser, args)
    if args.batch_size or args.tokens_per_batch:  # the one replaces the other
        defaults = {
            k: v for k, v in defaults.items() if k not in ("batch_size", "tokens_per_batch")
        }
    for name, value in defaults.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
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
    changed = [name for name in changed if name not in ("epochs", "output", "resume")]
    if changed:
        options = ", ".join("--" + name.replace("_", "-") for name in changed)
        sys.exit(f"A resumed run keeps its settings, all but --epochs; leave out {options}.")
    return args


def is_dates(args):
    """Whether the command line names no data at all."""
    return not any(
        getattr(args, split + part)
        for split in ("", "valid_", "test_")
        for part in ("source", "target", "pairs")
    )


def load(args):
    """The examples to train on, to watch and to score; the last may be None."""
    if is_dates(args):
        return corpora.dates(seed=args.seed)
    try:
        train = read(args, "")
        if train is None:
            raise ValueError("Nothing to train on: give --source and --target, or --pairs.")
        valid, test = read(args, "valid_"), read(args, "test_")
    except (ValueError, OSError) as error:
        sys.exit(f"{error}")
    if valid is None:
        aside = range(0, len(train.source), max(50, len(train.source) // 1000))
        valid = corpora.Examples(*([side[i] for i in aside] for side in train))
        keep = sorted(set(range(len(train.source))) - set(aside))
        train = corpora.Examples(*([side[i] for i in keep] for side in train))
    return corpora.Splits(train, valid, test)


def read(args, prefix):
    source, target, pairs = (getattr(args, prefix + name) for name in ("source", "target", "pairs"))
    if pairs:
        return corpora.read_pairs(pairs)
    if bool(source) != bool(target):
        option = "--" + prefix.replace("_", "-")
        raise ValueError(f"{option}source and {option}target go together; one of them is missing.")
    return corpora.read_files(source, target) if source else None


def begin_run(output, args, splits):
    """Writes settings.json, without touching a run that is there already."""
    path = output / "settings.json"
    data = hashlib.sha256(repr(splits.train).encode()).hexdigest()
    if args.resume:
        if json.loads(path.read_text())["data"] != data:
            sys.exit(f"The training data is not what {output} was begun with; put it back.")
        return
    if path.exists() and not args.overwrite:
        sys.exit(
            f"{output} holds a run already: --resume goes on with it, --overwrite begins anew, "
            "--output takes another folder."
        )
    shutil.rmtree(output / "checkpoint", ignore_errors=True)
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
    beside = path.with_suffix(".unfinished")
    beside.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(beside, path)


if __name__ == "__main__":
    main()
