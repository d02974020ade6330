r"""Train a text classifier, from scratch: one label per text, saved as one .keras file.

Without data it learns whether generated reviews are positive or negative, which depends on the
order of their words ("dull, but never boring"):

    keras-transformer train classification

Train on tables with columns separated by TAB, given by their numbers from 1 or by their names in
the first line, or on a dataset of tensorflow-datasets:

    keras-transformer train classification --train train.tsv --valid dev.tsv --columns 1 2
    keras-transformer train classification --train train.tsv --columns sentence label
    keras-transformer train classification --dataset tfds:glue/sst2 --recipe phrases --download

The run folder contains model.keras, history.csv, settings.json, scores.json, learning_curve.png,
calibration.png and confusion.png. Continue an interrupted run with --resume --output FOLDER.
KERAS_BACKEND=tensorflow, jax or torch selects the backend.
"""

import start_up  # noqa: F401

import generated_english
import keras_transformer as kt
import running
from command_line import parse
from data_report import DataReport
from keras_transformer import backend, data, evaluation, plots, training
from keras_transformer.backend.distribution import leave, own_rows
from recipes import CLASSIFICATION


@running.script()
def main():
    with running.errors_as_exits(ValueError, ImportError):
        options = parse(__doc__, CLASSIFICATION)
        run, initial = running.start(options)
        splits = load(options)
        classifier, train, valid = prepare(options, splits, initial)
        report = DataReport(splits, lambda each: unknown(classifier, each), classifier.labels)
        # Nothing is written before all of it is valid.
        run.begin(options.flat(), *splits)

    print(train.summary())
    classifier.model.summary()
    model, epochs = running.for_training(options, classifier.model), options.training.epochs
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
        lambda: samples(classifier, splits.valid),
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
    run.save(classifier)
    leave(model)  # if there are several processes, each evaluates alone, with all weights

    split, examples = running.evaluated(splits)
    predictions = classifier.classify(examples.texts)
    scores = evaluation.classification_scores([p.label for p in predictions], examples.labels)
    hits = [p.label == label for p, label in zip(predictions, examples.labels, strict=True)]
    low, high = evaluation.accuracy_interval(sum(hits), len(hits))
    calibration = evaluation.calibration([each.probability for each in predictions], hits)
    print(
        f"Accuracy on the {split} data: {scores.accuracy:.2%} of {len(hits)} texts "
        f"(95 % interval: {low:.2%} to {high:.2%}); expected calibration error "
        f"{calibration.error:.3f}{report.note(split)}"
    )
    print(f"Macro F1: {scores.macro_f1:.2%}")
    running.print_label_scores(scores.labels, "texts")
    run.write_scores(
        {
            "split": split,
            **scores._asdict(),
            "confusion": running.confusion_counts(scores.confusion, scores.labels),
            "low": low,
            "high": high,
            "texts": len(hits),
            "calibration_error": calibration.error,
            **report.scores,
        }
    )

    run.draw_learning_curve()
    run.draw(plots.plot_calibration(calibration.table), "calibration.png")
    figure = plots.plot_confusion(scores.confusion, list(scores.labels))
    run.draw(figure, "confusion.png")
    running.print_end(run, min(filter(str.strip, examples.texts), key=len))


def load(options):
    """Labeled texts for training, validation and test; None without test data."""
    if not options.has_data:
        return generated_english.reviews(seed=options.run.seed)
    text, label = columns = options.columns or (None, None)
    return running.load(
        options,
        "texts",
        running.reader(options, lambda path: data.read_labeled(path, *columns, options.quoted)),
        lambda name, **settings: data.read_labeled_splits(name, text, label or "label", **settings),
    )


def prepare(options, splits, initial):
    """A classifier with initial weights, its training batches and its validation batches."""
    labels = running.known_labels(options, initial, set(splits.train.labels))
    ids = {label: number for number, label in enumerate(labels, start=1)}
    both = splits.train, splits.valid
    vocabulary = getattr(initial, "vocabulary", None)
    split = vocabulary.split if vocabulary else kt.split_words
    words = [[split(text) for text in side.texts] for side in both]
    # Padding, 0, for a label that is not in the training data.
    label_ids = [[ids.get(label, 0) for label in side.labels] for side in both]
    model, vocabulary, train, valid = running.prepare_words(
        options, kt.ClassificationModel, words, label_ids, len(labels) + 1, initial
    )
    classifier = kt.Classifier(model, vocabulary, labels)
    if splits.test:
        test = [split(text) for text in splits.test.texts]
        with running.naming_lines(options, "test", test):
            classifier.check_texts(test)
    return classifier, train, valid


def unknown(classifier, examples):
    words = [classifier.vocabulary.split(text) for text in examples.texts]
    return {"words": classifier.vocabulary.unknown_share(words)}


def samples(classifier, examples):
    """Labels of three texts: the expected one, the predicted one and its probability."""
    texts, labels = (training.evenly_spaced(side, 3) for side in examples)
    rows = zip(labels, classifier.classify(texts), texts, strict=True)
    return "\n".join(f"  {label} {p.label} {p.probability:.2f}  {text}" for label, p, text in rows)


if __name__ == "__main__":
    main()
