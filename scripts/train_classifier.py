"""Train a text classifier, from nothing: one label for each text, in one .keras file.

Without data it learns whether generated reviews praise or blame, which takes the order of their
words ("dull, but never boring"):

    python scripts/train_classifier.py

With tables, columns separated by TAB and counted from 0 or called by the name in the first line, or
with a set of tensorflow-datasets:

    python scripts/train_classifier.py --train train.tsv --valid dev.tsv --columns 0 1
    python scripts/train_classifier.py --train train.tsv --columns sentence label
    python scripts/train_classifier.py --dataset tfds:glue/sst2 --recipe phrases --download

The run folder then holds model.keras, history.csv, settings.json, scores.json, learning_curve.png
and calibration.png. Killed? The same command with --resume goes on.
KERAS_BACKEND=tensorflow, jax or torch chooses the backend.
"""

import command_line
import over_words
from recipes import CLASSIFICATION

import keras_transformer as kt
from keras_transformer import corpora, evaluation, plots, training


def main():
    with command_line.errors_as_exits():
        args = parse_arguments()
        run = training.Run(args.output, args.resume, args.overwrite)
        command_line.set_up(args)
        splits = load(args)
        classifier, train, valid = prepare(args, splits)
        model = command_line.compile_model(classifier.model, args, train)
        run.begin(vars(args), splits.train)  # nothing is written before all of it fits together

    print(train.summary())
    classifier.model.summary()
    watched = training.Samples(lambda: samples(classifier, splits.valid))
    command_line.fit(run, model, train, valid, args, [watched], best=("val_token_accuracy", "max"))
    classifier.save(run.folder / "model.keras")

    # What it learnt.
    split, examples = ("test", splits.test) if splits.test else ("validation", splits.valid)
    said = classifier.classify(examples.texts)
    right = [each.label == label for each, label in zip(said, examples.labels)]
    low, high = evaluation.accuracy_interval(sum(right), len(right))
    sure = evaluation.calibration([each.probability for each in said], right)
    accuracy = sum(right) / len(right)
    print(
        f"Accuracy on the {split} set: {accuracy:.2%} of {len(right)} texts "
        f"(95 %: {low:.2%} to {high:.2%}); expected calibration error {sure.error:.3f}"
    )
    scores = {"split": split, "accuracy": accuracy, "low": low, "high": high, "texts": len(right)}
    run.write_scores({**scores, "calibration_error": sure.error})

    # To look at.
    run.draw_learning_curve()
    plots.plot_calibration(sure.table).savefig(run.folder / "calibration.png", dpi=150)
    print(f"The run is in {run.folder}. Try: python scripts/predict.py {run.folder}/model.keras")


def load(args):
    """The texts to train on, to watch and to score; the last may be None."""
    if args.dataset:
        name, options = args.dataset.removeprefix("tfds:"), (args.data_dir, args.download)
        text, label = args.columns or (None, "label")
        splits = corpora.read_labelled_splits(name, text, label, *options)
    elif args.train:
        splits = corpora.Splits(*(read(args, path) for path in (args.train, args.valid, args.test)))
    elif args.valid or args.test:
        raise ValueError("Nothing to train on: give --train or --dataset.")
    else:
        return corpora.reviews(seed=args.seed)
    if splits.valid is None:
        parts = command_line.held_out(splits.train, "texts", "--valid")
        splits = corpora.Splits(*parts, splits.test)
    return splits


def read(args, path):
    columns = [int(name) if name.isdigit() else name for name in args.columns or ("0", "1")]
    return None if path is None else corpora.read_labelled(path, *columns)


def prepare(args, splits):
    """The classifier, not yet trained, and what it is trained on and watched by."""
    labels = sorted(set(splits.train.labels))
    ids = {label: n for n, label in enumerate(labels, start=1)}
    seen, watched = ([kt.split_words(text) for text in side.texts] for side in splits[:2])
    vocabulary, start = over_words.vocabulary(seen, args)

    def batches(words, examples, **options):  # a label that training lacks counts for nothing: 0
        label_ids = [ids.get(label, 0) for label in examples.labels]
        return over_words.batches(args, vocabulary, words, label_ids, **options)

    model = over_words.model(kt.ClassificationModel, args, vocabulary, len(labels) + 1, start)
    classifier = kt.Classifier(model, vocabulary, labels)
    return classifier, batches(seen, splits.train, train=True), batches(watched, splits.valid)


def samples(classifier, examples):
    """What it makes of three texts, to watch it learn."""
    texts, labels = (training.spread(side, 3) for side in examples)
    return "\n".join(
        f"  {label} {each.label} {each.probability:.2f}  {text}"
        for text, label, each in zip(texts, labels, classifier.classify(texts))
    )


def parse_arguments():
    """The options of this script among those that all have."""
    parser = command_line.new_parser(
        __doc__, CLASSIFICATION, "reviews / texts with data", "runs/labels"
    )
    add = parser.add_argument_group("data (none given: generated reviews)").add_argument
    add("--train", metavar="FILE", help="a table, columns separated by TAB, plain or .gz")
    add("--valid", metavar="FILE", help="to watch; none: 2 %% of the training texts")
    add("--test", metavar="FILE", help="to score at the end; none: the validation set")
    columns = "of text and label: numbers from 0, or names in the first line (0 1)"
    add("--columns", nargs=2, metavar=("TEXT", "LABEL"), help=columns)
    add("--dataset", metavar="NAME", help="instead of all: tfds:NAME; --columns are its features")
    add("--data-dir", metavar="FOLDER", help="where tensorflow-datasets keeps its sets")
    add("--download", action="store_true", help="fetch the data set if it is not there")
    over_words.add_start_options(parser)
    over_words.add_options(parser)
    return command_line.parse(
        parser, CLASSIFICATION, lambda args: "texts" if args.train or args.dataset else "reviews"
    )


if __name__ == "__main__":
    main()
