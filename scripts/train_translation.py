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

What suits how much data is in scripts/recipes.py: --recipe quick (half an hour on two cores, the
default), small, medium, large. The run folder then holds model.keras, history.csv, settings.json,
scores.json, learning_curve.png and attention.png. Killed? The same command with --resume goes on.
KERAS_BACKEND=tensorflow, jax or torch chooses the backend.
"""

import argparse
import pathlib

import command_line
import diversification
import keras
from recipes import TRANSLATION

import keras_transformer as kt
from keras_transformer import corpora, evaluation, plots, training
from keras_transformer.arguments import check_at_least


def main():
    with command_line.errors_as_exits():
        args = parse_arguments()
        run = training.Run(args.output, args.resume, args.overwrite)
        check_at_least(0, diversify=args.diversify)
        command_line.set_up(args)
        splits = load(args)
        tokenizers = learn(args, splits.train)
        parts = put_together(args, splits, tokenizers)
        run.begin(vars(args), splits.train)  # nothing is written before all of it fits together

    if args.diversify:
        splits = splits._replace(train=diversified(args, run, splits, tokenizers))
        keras.utils.set_random_seed(args.seed)  # whether or not its teachers were trained just now
        parts = put_together(args, splits, tokenizers)
    translator, model, train, valid = parts
    callbacks = [training.Samples(lambda: samples(translator, splits.valid))]
    best = ("val_perplexity", "min")
    if args.bleu_sentences:
        bleu = training.ValidationScore(translator, splits.valid, score(args), args.bleu_sentences)
        callbacks, best = [bleu, *callbacks], (bleu.name, "max")
    fit(args, run, *parts, callbacks, best=best)

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
    run.write_scores(scores)

    # To look at.
    run.draw_learning_curve()
    draw_attention(translator, examples, run.folder / "attention.png")
    print(f"The run is in {run.folder}. Try: python scripts/translate.py {run.folder}/model.keras")


def learn(args, examples):
    """A tokenizer a side."""
    vocabulary = dict(vocabulary_size=args.vocabulary_size, model_type=args.vocabulary)
    if args.separate_vocabularies:
        return [kt.learn_tokenizer(side, **vocabulary) for side in examples]
    return [kt.learn_tokenizer(examples.source + examples.target, **vocabulary)] * 2


def put_together(args, splits, tokenizers):
    """The translator to keep, its model to fit, and the batches to train on and to watch."""
    train, valid = in_batches(args, splits, tokenizers)
    return *build(args, tokenizers, train), train, valid


def in_batches(args, splits, tokenizers):
    """Ids in buckets of equal length; with subword regularisation, other ids every epoch."""

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
    return train, batches(splits.valid, shuffle=False)


def build(args, tokenizers, train):
    """The model as a translator to keep, and as the keras.Model to fit."""
    source, target = tokenizers
    transformer = kt.Transformer(
        source.vocabulary_size(),
        None if target is source else target.vocabulary_size(),
        **command_line.sizes(args),
    )
    translator = kt.Translator(
        transformer,
        source,
        target,
        beams=args.beams,
        length_penalty=args.length_penalty,
        **form(args),
    )
    return translator, command_line.compile_model(transformer, args, train)


def fit(args, run, translator, model, train, valid, callbacks=(), **kwargs):
    """Trains what was put together, into model.keras of the run."""
    print(train.summary())
    translator.transformer.summary()
    command_line.fit(run, model, train, valid, args, callbacks, **kwargs)
    translator.save(run.folder / "model.keras")


def diversified(args, run, splits, tokenizers):
    """The training pairs, and what --diversify teachers make of them, each in a run of its own."""
    turned = corpora.Splits(*(pairs and corpora.Examples(*pairs[::-1]) for pairs in splits))
    ways = {"forward": (splits, tokenizers), "backward": (turned, tokenizers[::-1])}

    def translations(way, number):
        name = f"{way}-{number}"
        folder = run.folder / "teachers" / name
        path = folder / "translations.json"
        if not path.exists():
            print(f"Teacher {name} learns, and then translates what it has learnt from.")
            teachers = dict(seed=args.seed + number, output=str(folder), diversify=0)
            teacher = teach(argparse.Namespace(**{**vars(args), **teachers}), *ways[way])
            diversification.write_translations(teacher, ways[way][0].train.source, path)
        return diversification.read_translations(path)

    return diversification.diversified(splits.train, args.diversify, translations)


def teach(args, splits, tokenizers):
    """A translator trained in a run of its own, which goes on where it was killed."""
    folder = pathlib.Path(args.output)
    run = training.Run(folder, resume=(folder / "settings.json").exists())
    keras.utils.set_random_seed(args.seed)
    translator, *_ = parts = put_together(args, splits, tokenizers)
    run.begin(vars(args), splits.train)
    fit(args, run, *parts)
    return translator


def form(args):
    """What is done to every text: in the corpora, and later by the translator."""
    normalization = None if args.normalization == "none" else args.normalization
    return dict(normalization=normalization, lowercase=args.lowercase)


def score(args):
    """BLEU as the command line wants it."""
    return lambda said, references: evaluation.bleu(said, references, args.tokenize)


def samples(translator, examples):
    """What it makes of three sentences, to watch it learn."""
    source, target = (training.spread(side, 3) for side in examples)
    return "\n".join(
        f"  source     {text}\n  model      {said}\n  reference  {reference}\n"
        for text, said, reference in zip(source, translator.translate(source), target)
    )


def draw_attention(translator, examples, path):
    """Where the last layer looks in the example that fits a picture best."""
    text = min(examples.source, key=lambda text: abs(len(text) - 12))
    weights, source_tokens, target_tokens = translator.attention(text)
    title = "Cross-attention of the last layer"
    figure = plots.plot_attention(weights[-1], source_tokens, target_tokens, title)
    figure.savefig(path, dpi=150)


def parse_arguments():
    """The options of this script among those that all have."""
    parser = command_line.new_parser(
        __doc__, TRANSLATION, "dates / quick with data", "runs/dates / runs/text"
    )
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
    add(
        "--sides",
        nargs=2,
        metavar=("FROM", "TO"),
        help="languages of it, fields of .jsonl, or columns (1 2)",
    )

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

    add = command_line.add_model_options(parser, decoder=True)
    command_line.add_vocabulary_options(add)
    add("--separate-vocabularies", action="store_true", help="one vocabulary for each side")

    add = command_line.add_training_options(parser, "target tokens")
    add("--subword-alpha", type=float, metavar="A", help="split words at random each epoch (0.1)")
    diversify = "train N models each way first, and learn from their translations too (0)"
    add("--diversify", type=int, default=0, metavar="N", help=diversify)

    add = parser.add_argument_group("scoring").add_argument
    add("--beams", type=int, default=1, metavar="K", help="width of the search, saved as default")
    penalty = "alpha of GNMT's, saved as default; more: longer translations (0.6)"
    add("--length-penalty", type=float, default=0.6, metavar="A", help=penalty)
    add("--tokenize", default="13a", metavar="T", help="sacreBLEU's: 13a (default), zh, none, ...")
    watch = "watch the BLEU of so many validation sentences; --patience goes by it then"
    add("--bleu-sentences", type=int, metavar="N", help=watch)

    return command_line.parse(
        parser, TRANSLATION, lambda args: "dates" if is_dates(args) else "quick"
    )


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
        train, valid = command_line.held_out(train, "pairs", "--valid-source and --valid-target")
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
        return corpora.read_pairs(pairs, *columns(args.sides))
    if bool(source) != bool(target):
        option = "--" + prefix.replace("_", "-")
        raise ValueError(f"{option}source and {option}target go together; one of them is missing.")
    return corpora.read_files(source, target) if source else None


def columns(sides):
    """Where in a line of a --pairs file the two stand."""
    if not all(side.isdecimal() for side in sides or ()):
        raise ValueError(
            "For tab-separated --pairs, --sides are two columns, such as 2 1; received "
            f"{' '.join(sides)}."
        )
    return map(int, sides or ())


if __name__ == "__main__":
    main()
