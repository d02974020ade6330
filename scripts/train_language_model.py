r"""Train a language model, from scratch: text generation, saved as one .keras file.

Without data it learns generated sentences, whose true entropy is known for comparison:

    keras-transformer train language-model

Train on a text or on one text per line (--lines), plain or compressed, or on a dataset of
tensorflow-datasets:

    keras-transformer train language-model --train input.txt --output runs/shakespeare
    keras-transformer train language-model --train names.txt --lines --output runs/names
    keras-transformer train language-model --dataset tfds:tiny_shakespeare --download

A corpus larger than memory is prepared once (docs/scale.md):

    keras-transformer prepare corpora/books --texts "books/*.txt"
    keras-transformer train language-model --prepared corpora/books --valid valid.txt

The last tenth of a single text is validation data. It is scored in one deterministic pass over all
of it. --vocabulary char, byte, bpe or unigram selects what a token is. The run folder contains
model.keras, history.csv, settings.json, scores.json, learning_curve.png and sample.txt. Continue an
interrupted run with --resume --output FOLDER. KERAS_BACKEND=tensorflow, jax or torch selects the
backend.
"""

import start_up  # noqa: F401

import math

import numpy as np

import generated_english
import keras_transformer as kt
import running
from data_report import DataReport
from keras_transformer import backend, data, training
from keras_transformer.backend.distribution import leave, own_rows
from options import parse
from recipes import LANGUAGE_MODELLING


@running.script()
def main():
    with running.errors_as_exits(ValueError, ImportError):
        options = parse(__doc__, LANGUAGE_MODELLING)
        run, initial = running.start(options)
        corpora = options.open_corpora()
        options = options.of_corpora(corpora)
        splits = load(options, corpora)
        generator, train, valid = prepare(options, splits, initial)
        tokenizer = generator.tokenizer
        report = DataReport(splits, lambda each: {"characters": tokenizer.unknown_share(each)})
        train_data = [corpus.digest for corpus in corpora] or splits.train
        # Nothing is written before all of it is valid.
        run.begin(options.flat(), train_data, splits.valid, splits.test)

    prompts = [options.prompt]
    print(train.summary())
    generator.model.summary()
    model, epochs = running.for_training(options, generator.model), options.training.epochs
    model.compile(
        optimizer=running.make_optimizer(options, epochs * len(train)),
        loss=kt.TokenCrossEntropy(options.training.label_smoothing),
        metrics=[kt.TokenAccuracy(), kt.Perplexity()],
        jit_compile=backend.prefers_jit(),
    )
    print(training.forecast(model, train))
    callbacks = run.callbacks(train, **options.for_callbacks)
    with run.interruptible():
        for span in run.restore(model, epochs):  # two if it was interrupted within an epoch
            model.fit(
                own_rows(train),
                validation_data=own_rows(valid),
                **span,
                callbacks=[
                    *callbacks,
                    training.PrintSamples(lambda: generator.generate(prompts, 100, 0.8)[0]),
                ],
                shuffle=False,  # the batches shuffle themselves
            )
    run.finish(model)
    run.save(generator)
    leave(model)  # if there are several processes, each evaluates alone, with all weights

    split, texts = ("test", splits.test) if splits.test else ("validation", splits.valid)
    scores = {"split": split, "side_by_side": score(generator, texts, overlap=0.0), **report.scores}
    best = scores["side_by_side"]
    if not generator.append_end:  # the text is cut into chunks, which may overlap
        best = scores["overlapping"] = score(generator, texts, overlap=0.5)
    print(
        f"The {split} data: {best['nats_per_token']:.4f} nats per token, perplexity "
        f"{best['perplexity']:.4f}, {best['bits_per_character']:.4f} bits per character"
        f"{report.note(split)}"
    )
    if not options.has_data:
        nats = generated_english.grammar_nats("".join(f"{text}\n" for text in texts))
        true = scores["true_perplexity"] = math.exp(nats)
        excess = best["perplexity"] / true - 1
        print(f"The true perplexity is {true:.4f}; that of the model is {excess:.2%} larger.")
    run.write_scores(scores)

    run.draw_learning_curve()
    (sample,) = generator.generate(prompts, 500, 0.8, seed=options.run.seed)
    run.write_sample(sample)
    running.print_end(run, " ".join(sample[:20].split()))


def load(options, corpora):
    """Lists of texts for training, validation and test; None without test data.

    The training data is a list of corpora if there are any.
    """
    if not options.has_data:
        sizes = 20_000, 2_000
        train, valid = (
            generated_english.grammar_text(size, options.run.seed + number).splitlines()
            for number, size in enumerate(sizes)
        )
        return data.Splits(train, valid, None)
    train, valid, test = options.read()
    if corpora:
        return data.Splits(corpora, valid, test)
    if valid is None and (options.lines or len(train) > 1):
        train, valid = data.train_valid_split(train, "texts", "--valid")
    elif valid is None:
        cut = len(train[0]) * 9 // 10
        train, valid = [train[0][:cut]], [train[0][cut:]]
    return data.Splits(options.mix(train), valid, test)


def prepare(options, splits, initial):
    """A generator with initial weights, its training batches and its validation batches."""
    if options.corpora.prepared:
        return prepare_corpora(options, splits, initial)
    append_end = options.lines or len(splits.train) > 1
    texts = splits.train if append_end else splits.train[0].splitlines(keepends=True)
    if initial:
        tokenizer = initial.tokenizer
        model = initial.model.copy(**options.rates)
    else:
        tokenizer = kt.train_tokenizer(
            texts, options.tokenizer.vocabulary_size, options.tokenizer.vocabulary
        )
        model = kt.LanguageModel(tokenizer.vocabulary_size(), config=options.model)
    options.adapt(model)
    train, valid = (tokenizer.encode(texts) for texts in (splits.train, splits.valid))
    seed, budget, window = options.run.seed, options.budget, options.window
    if append_end:
        generator = kt.TextGenerator(model, tokenizer, normalization=options.form)
        check_scored(options, generator, splits)
        with running.naming_lines(options, "training", splits.train):
            train = kt.TextBatches(train, seed=seed, **budget)
        with running.naming_lines(options, "validation", splits.valid):
            return generator, train, kt.TextBatches(valid, shuffle=False, **budget)

    def resample(epoch):  # every epoch cuts the text in other places
        start = np.random.default_rng((seed, epoch)).integers(window)
        return [kt.chunks(train[0], window, start)]

    form = {"append_end": False, "normalization": options.form}
    generator = kt.TextGenerator(model, tokenizer, window, **form)
    check_scored(options, generator, splits)
    settings = {"append_end": False, "multiple": 1, **budget, "max_length": window}
    return (
        generator,
        kt.TextBatches(*resample(0), seed=seed, resample=resample, **settings),
        kt.TextBatches(kt.chunks(valid[0], window), shuffle=False, **settings),
    )


def prepare_corpora(options, splits, initial):
    """The same for training data on disk."""
    (tokenizer,) = splits.train[0].tokenizers()
    running.check_initial_vocabulary(options, [tokenizer], initial and [initial.tokenizer])
    if initial:
        model = initial.model.copy(**options.rates)
    else:
        model = kt.LanguageModel(tokenizer.vocabulary_size(), config=options.model)
    options.adapt(model)
    with running.naming_lines(options, "training"):
        train = options.prepared_batches(splits.train)
    with running.naming_lines(options, "validation", splits.valid):
        valid = kt.TextBatches(tokenizer.encode(splits.valid), shuffle=False, **options.budget)
    generator = kt.TextGenerator(model, tokenizer, normalization=options.form)
    check_scored(options, generator, splits)
    return generator, train, valid


def check_scored(options, generator, splits):
    """Refuses texts that cannot be scored in the end."""
    split, texts = ("test", splits.test) if splits.test else ("validation", splits.valid)
    with running.naming_lines(options, split, texts):
        generator.check_texts(texts)


def score(generator, texts, overlap):
    """Nats per token, perplexity and bits per character of all texts together."""
    columns = zip(*generator.score(texts, overlap), strict=True)
    total = kt.TextScore(*map(sum, columns))
    return {
        "nats_per_token": total.nats / total.tokens,
        "perplexity": total.perplexity,
        "bits_per_character": total.bits_per_character,
        "tokens": total.tokens,
        "characters": total.characters,
        "unknown_characters": total.unknown,
    }


if __name__ == "__main__":
    main()
