r"""Train a tagger, from scratch: a label for every word, saved as one .keras file.

Without data it learns the parts of speech of generated English, in which many words have several
("I saw a saw" -> PRON VERB DET NOUN):

    keras-transformer train tagging

Train on a treebank in CoNLL-U (.conllu, .conllu.gz), on lines of a word TAB its tag with a blank
line after each sentence, or on a dataset of tensorflow-datasets:

    keras-transformer train tagging --train train.conllu --valid dev.conllu --output runs/ewt
    keras-transformer train tagging --dataset tfds:universal_dependencies/en_ewt --download

The run folder contains model.keras, history.csv, settings.json, scores.json, learning_curve.png and
confusion.png. Continue an interrupted run with --resume --output FOLDER. KERAS_BACKEND=tensorflow,
jax or torch selects the backend.
"""

import start_up  # noqa: F401

import numpy as np

import generated_english
import keras_transformer as kt
import running
from command_line import parse
from data_report import DataReport
from keras_transformer import backend, data, evaluation, plots, training
from keras_transformer.backend.distribution import leave, own_rows
from recipes import TAGGING


@running.script()
def main():
    with running.errors_as_exits(ValueError, ImportError):
        options = parse(__doc__, TAGGING)
        run, initial = running.start(options)
        splits = load(options)
        tagger, train, valid = prepare(options, splits, initial)
        report = DataReport(splits, lambda each: unknown(tagger, each), tagger.labels)
        # Nothing is written before all of it is valid.
        run.begin(options.flat(), *splits)

    print(train.summary())
    tagger.model.summary()
    model, epochs = running.for_training(options, tagger.model), options.training.epochs
    model.compile(
        optimizer=running.make_optimizer(options, epochs * len(train)),
        loss=kt.TokenCrossEntropy(options.training.label_smoothing),
        metrics=[kt.TokenAccuracy(), kt.Perplexity()],
        jit_compile=backend.prefers_jit(),
    )
    callbacks = running.callbacks(
        options,
        run,
        train,
        lambda: samples(tagger, splits.valid),
        **running.ACCURACY,
    )
    with run.interruptible():
        for span in run.restore(model, epochs):  # two if it was interrupted within an epoch
            model.fit(
                own_rows(train),
                validation_data=own_rows(valid),
                **span,
                callbacks=callbacks,
                shuffle=False,  # the batches shuffle themselves
            )
    run.finish(model)
    run.save(tagger)
    leave(model)  # if there are several processes, each evaluates alone, with all weights

    split, examples = running.evaluated(splits)
    predicted = [[tag for _, tag in sentence] for sentence in tagger.tag(examples.words)]
    known = {word for sentence in splits.train.words for word in sentence}
    scores = evaluation.tagging_scores(predicted, examples.tags, examples.words, known)
    hits = round(scores.accuracy * scores.num_words)
    low, high = evaluation.accuracy_interval(hits, scores.num_words)
    print(
        f"Accuracy on the {split} data: {scores.accuracy:.2%} of {scores.num_words} words "
        f"(95 % interval: {low:.2%} to {high:.2%}){report.note(split)}"
    )
    if scores.num_unseen:
        print(
            f"{scores.unseen_accuracy:.2%} of {scores.num_unseen} words that are not in the "
            "training data"
        )
    running.print_label_scores(scores.tags, "words")
    confusion = running.confusion_counts(scores.confusion, scores.tags)
    run.write_scores({"split": split, **scores._asdict(), "confusion": confusion, **report.scores})

    run.draw_learning_curve()
    figure = plots.plot_confusion(scores.confusion, list(scores.tags))
    run.draw(figure, "confusion.png")
    running.print_end(run, " ".join(min(examples.words, key=len)))


def load(options):
    """Tagged sentences for training, validation and test; None without test data."""
    if not options.has_data:
        return generated_english.tagged_sentences(seed=options.run.seed)
    features = options.tokens, options.tags
    return running.load(
        options,
        "sentences",
        running.reader(options, lambda path: data.read_tagged(path, options.column)),
        lambda name, **settings: data.read_tagged_splits(name, *features, **settings),
    )


def prepare(options, splits, initial):
    """A tagger with initial weights, its training batches and its validation batches."""
    tags = {tag for sentence in splits.train.tags for tag in sentence}
    labels = running.known_labels(options, initial, tags)
    ids = {label: number for number, label in enumerate(labels, start=1)}

    def label_ids(sentences):  # padding, 0, for a tag that is not in the training data
        return [np.array([ids.get(tag, 0) for tag in tags]) for tags in sentences.tags]

    both = splits.train, splits.valid
    words, tags = [side.words for side in both], [label_ids(side) for side in both]
    model, vocabulary, train, valid = running.prepare_words(
        options, kt.TaggingModel, words, tags, len(labels) + 1, initial
    )
    tagger = kt.Tagger(model, vocabulary, labels)
    if splits.test:
        with running.naming_lines(options, "test", splits.test.words):
            tagger.check_texts(splits.test.words)
    return tagger, train, valid


def unknown(tagger, examples):
    return {"words": tagger.vocabulary.unknown_share(examples.words)}


def samples(tagger, examples):
    """Tags of three sentences; after a wrong tag, the right one in parentheses."""
    words, tags = (training.evenly_spaced(side, 3) for side in examples)
    lines = []
    for tagged, expected in zip(tagger.tag(words), tags, strict=True):
        pairs = zip(tagged, expected, strict=True)
        shown = (f"{word}/{tag}" + f"({right})" * (tag != right) for (word, tag), right in pairs)
        lines.append("  " + " ".join(shown))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
