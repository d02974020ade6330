r"""Pretrain an encoder of words: it learns to predict masked words, as BERT did.

    keras-transformer train words
    keras-transformer train words --train news.txt.gz --output runs/words
    keras-transformer train words --train train.conllu --output runs/words

Without data it reads generated sentences. A text file contains one or more sentences per line; of a
treebank (.conllu, .conllu.gz) only the words are read. A tagger or a classifier starts from it:

    keras-transformer train tagging --train train.conllu --init-from runs/words/model.keras

The run folder contains model.keras, history.csv, settings.json, scores.json and learning_curve.png.
Continue an interrupted run with --resume --output FOLDER. KERAS_BACKEND=tensorflow, jax or torch
selects the backend.
"""

import start_up  # noqa: F401

import generated_english
import keras_transformer as kt
import running
from command_line import parse
from data_report import DataReport
from keras_transformer import backend, data, training
from keras_transformer.backend.distribution import leave, own_rows
from keras_transformer.checks import check
from keras_transformer.data.lines import TREEBANK
from keras_transformer.tokenizers.words import MASKED
from recipes import PRETRAINING


@running.script()
def main():
    with running.errors_as_exits(ValueError, ImportError):
        options = parse(__doc__, PRETRAINING)
        run, initial = running.start(options)
        train_words, valid_words = load(options, initial)
        filler, train, valid = prepare(options, train_words, valid_words, initial)
        report = DataReport(
            data.Splits(train_words, valid_words, None),
            lambda sentences: {"words": filler.vocabulary.unknown_share(sentences)},
        )
        # Nothing is written before all of it is valid.
        run.begin(options.flat(), train_words, valid_words)

    print(train.summary())
    filler.model.summary()
    model, epochs = running.for_training(options, filler.model), options.training.epochs
    model.compile(
        optimizer=running.make_optimizer(options, epochs * len(train)),
        loss=kt.TokenCrossEntropy(options.training.label_smoothing),
        metrics=[kt.TokenAccuracy(), kt.Perplexity()],
        jit_compile=backend.prefers_jit(),
    )
    callbacks = running.callbacks(options, run, train, lambda: samples(filler, valid_words))
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
    run.save(filler)
    leave(model)  # if there are several processes, each evaluates alone, with all weights

    evaluated = model.evaluate(valid, verbose=0, return_dict=True)
    print(
        f"Perplexity of the masked words of the validation data: {evaluated['perplexity']:.2f}; "
        f"{evaluated['token_accuracy']:.2%} of them predicted correctly"
        f"{report.note('validation')}"
    )
    run.write_scores({"split": "validation", **evaluated, **report.scores})
    run.draw_learning_curve()
    running.print_end(run, " ".join([*valid_words[0][:5], "[MASK]"]))


def load(options, initial):
    """Sentences as lists of words, for training and validation."""
    if not options.has_data:
        train, valid, _ = generated_english.tagged_sentences(seed=options.run.seed)
        return train.words, valid.words
    read = running.reader(options, read_file)
    train, valid, _ = running.load(options, "sentences", read, train_options="--train")
    split = initial.vocabulary.split if initial else kt.split_words
    sides = train, valid
    words = ((split(each) if isinstance(each, str) else each for each in side) for side in sides)
    return [list(filter(None, sentences)) for sentences in words]


def read_file(path):
    """Lines, or sentences as lists of words."""
    if data.format_of(path) == TREEBANK:
        return data.read_conllu(path, "FORM").words
    return data.read_texts(path)


def prepare(options, train, valid, initial):
    """A mask filler with initial weights, its training batches and its validation batches."""
    seed, budget = options.run.seed, options.budget
    if initial:
        vocabulary = initial.vocabulary
    else:
        vocabulary = kt.WordVocabulary.learn(
            train, options.words.min_count, options.words.max_characters
        )
    words = train, valid
    train, valid = vocabulary.encode(train), vocabulary.encode(valid)

    def masked(encoded, *seeds):
        return kt.mask_words(*encoded, options.mask_rate, (seed, *seeds))

    sizes = vocabulary.num_words, vocabulary.num_characters, vocabulary.num_words
    model = kt.TaggingModel(
        *sizes, vocabulary.max_characters, options.words.word_stddev, options.model
    )
    if initial:
        model.initialize_from(initial.model, labels=True)
    running.freeze(options, model)
    masked_train, masked_valid = masked(train), masked(valid, 2)
    for name, (*_, labels) in (("training", masked_train), ("validation", masked_valid)):
        number = sum(len(of_sentence) for of_sentence in labels)
        expected = f"The {name} data must have a known word that is masked; provide more of it"
        check(any(of_sentence.any() for of_sentence in labels), expected, words=number)
    with running.naming_lines(options, "training", words[0]):
        of_train = kt.WordBatches(
            *masked_train, seed=seed, resample=lambda epoch: masked(train, 1, epoch), **budget
        )
    with running.naming_lines(options, "validation", words[1]):
        of_valid = kt.WordBatches(*masked_valid, shuffle=False, **budget)
    return kt.MaskFiller(model, vocabulary), of_train, of_valid


def samples(filler, sentences):
    """Predictions for the middle word of three sentences."""
    lines = []
    # Those with one mask, that of the middle, and not so long that they would be refused.
    long = [words for words in sentences if 4 < len(words) < 100 and MASKED not in "".join(words)]
    for words in training.evenly_spaced(long, 3):
        middle = len(words) // 2
        text = " ".join([*words[:middle], MASKED, *words[middle + 1 :]])
        (predictions,) = filler.fill([text])
        shown = ", ".join(f"{p.label} {p.probability:.2f}" for p in predictions)
        lines.append(f"  {text}\n    {words[middle]}: {shown}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
