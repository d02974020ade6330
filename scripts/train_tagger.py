"""Train a tagger, from nothing: a label for every word, in one .keras file.

Without data it learns parts of speech of generated English, in which many words have several
("I saw a saw" -> PRON VERB DET NOUN):

    python scripts/train_tagger.py

With a treebank in CoNLL-U (a file named .conllu or .conllu.gz), with a word TAB its tag a line and
a blank line after each sentence, or with a set of tensorflow-datasets:

    python scripts/train_tagger.py --train train.conllu --valid dev.conllu --output runs/ewt
    python scripts/train_tagger.py --dataset tfds:universal_dependencies/en_ewt --download

The run folder then holds model.keras, history.csv, settings.json, scores.json, learning_curve.png
and confusion.png. Killed? The same command with --resume goes on.
KERAS_BACKEND=tensorflow, jax or torch chooses the backend.
"""

import command_line
import numpy as np
import over_words
from recipes import TAGGING

import keras_transformer as kt
from keras_transformer import corpora, evaluation, plots, training


def main():
    with command_line.errors_as_exits():
        args = parse_arguments()
        run = training.Run(args.output, args.resume, args.overwrite)
        command_line.set_up(args)
        splits = load(args)
        tagger, train, valid = prepare(args, splits)
        model = command_line.compile_model(tagger.model, args, train)
        run.begin(vars(args), splits.train)  # nothing is written before all of it fits together

    print(train.summary())
    tagger.model.summary()
    watched = training.Samples(lambda: samples(tagger, splits.valid))
    command_line.fit(run, model, train, valid, args, [watched], best=("val_token_accuracy", "max"))
    tagger.save(run.folder / "model.keras")

    # What it learnt.
    split, examples = ("test", splits.test) if splits.test else ("validation", splits.valid)
    said = [[tag for _, tag in sentence] for sentence in tagger.tag(examples.words)]
    known = {word for sentence in splits.train.words for word in sentence}
    scores = evaluation.tagging_scores(said, examples.tags, examples.words, known)
    hits = round(scores.accuracy * scores.num_words)
    low, high = evaluation.accuracy_interval(hits, scores.num_words)
    print(
        f"Accuracy on the {split} set: {scores.accuracy:.2%} of {scores.num_words} words "
        f"(95 %: {low:.2%} to {high:.2%}); {scores.unseen_accuracy:.2%} of {scores.num_unseen} "
        "that the training set lacks"
    )
    for tag, score in scores.tags.items():
        print(f"  {tag:8} F1 {score.f1:7.2%}  {score.count:6} words")
    run.write_scores({"split": split, **scores._asdict(), "confusion": scores.confusion.tolist()})

    # To look at.
    run.draw_learning_curve()
    figure = plots.plot_confusion(scores.confusion, list(scores.tags))
    figure.savefig(run.folder / "confusion.png", dpi=150)
    print(f"The run is in {run.folder}. Try: python scripts/predict.py {run.folder}/model.keras")


def load(args):
    """The sentences to train on, to watch and to score; the last may be None."""
    if args.dataset:
        name, options = args.dataset.removeprefix("tfds:"), (args.data_dir, args.download)
        splits = corpora.read_tagged_splits(name, args.tokens, args.tags, *options)
    elif args.train:
        splits = corpora.Splits(*(read(args, path) for path in (args.train, args.valid, args.test)))
    elif args.valid or args.test:
        raise ValueError("Nothing to train on: give --train or --dataset.")
    else:
        return corpora.tagged_sentences(seed=args.seed)
    if splits.valid is None:
        parts = command_line.held_out(splits.train, "sentences", "--valid")
        splits = corpora.Splits(*parts, splits.test)
    return splits


def read(args, path):
    if path is None:
        return None
    if path.removesuffix(".gz").endswith(".conllu"):
        return corpora.read_conllu(path, args.column)
    return corpora.read_tagged_lines(path)


def prepare(args, splits):
    """The tagger, not yet trained, and what it is trained on and watched by."""
    labels = sorted({tag for sentence in splits.train.tags for tag in sentence})
    ids = {label: n for n, label in enumerate(labels, start=1)}
    vocabulary, start = over_words.vocabulary(splits.train.words, args)

    def batches(sentences, **options):  # a tag that training lacks counts for nothing: 0
        tags = [np.array([ids.get(tag, 0) for tag in tags]) for tags in sentences.tags]
        return over_words.batches(args, vocabulary, sentences.words, tags, **options)

    model = over_words.model(kt.TaggingModel, args, vocabulary, len(labels) + 1, start)
    tagger = kt.Tagger(model, vocabulary, labels)
    return tagger, batches(splits.train, train=True), batches(splits.valid)


def samples(tagger, examples):
    """What it makes of three sentences, to watch it learn; a wrong tag beside the right one."""
    words, tags = (training.spread(side, 3) for side in examples)
    return "\n".join(
        "  "
        + " ".join(f"{w}/{t}" if t == right else f"{w}/{t}({right})" for (w, t), right in pairs)
        for pairs in (zip(said, right) for said, right in zip(tagger.tag(words), tags))
    )


def parse_arguments():
    """The options of this script among those that all have."""
    parser = command_line.new_parser(__doc__, TAGGING, "grammar / treebank with data", "runs/tags")
    add = parser.add_argument_group("data (none given: generated sentences)").add_argument
    add("--train", metavar="FILE", help="a treebank in CoNLL-U, or word TAB tag lines, or .gz")
    add("--valid", metavar="FILE", help="to watch; none: 2 %% of the training sentences")
    add("--test", metavar="FILE", help="to score at the end; none: the validation set")
    add("--column", default="UPOS", metavar="NAME", help="of CoNLL-U: UPOS (default), XPOS, ...")
    add("--dataset", metavar="NAME", help="instead of all: tfds:NAME")
    add("--tokens", default="tokens", metavar="FEATURE", help="of the data set: the words")
    add("--tags", default="upos", metavar="FEATURE", help="of the data set: their tags (upos)")
    add("--data-dir", metavar="FOLDER", help="where tensorflow-datasets keeps its sets")
    add("--download", action="store_true", help="fetch the data set if it is not there")
    over_words.add_start_options(parser)
    over_words.add_options(parser)
    return command_line.parse(
        parser, TAGGING, lambda args: "treebank" if args.train or args.dataset else "grammar"
    )


if __name__ == "__main__":
    main()
