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
import random

import numpy as np

import generated_english
import keras_transformer as kt
import running
from command_line import parse
from data_report import DataReport
from keras_transformer import backend, data, training
from keras_transformer.backend.distribution import leave, own_rows
from recipes import LANGUAGE_MODELLING


@running.script()
def main():
    with running.errors_as_exits(ValueError, ImportError):
        options = parse(__doc__, LANGUAGE_MODELLING)
        run, initial = running.start(options)
        corpora, options = running.open_corpora(options, "texts", checked=not initial)
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
    callbacks = running.callbacks(
        options, run, train, lambda: generator.generate(prompts, 100, 0.8)[0]
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
    run.save(generator)
    leave(model)  # if there are several processes, each evaluates alone, with all weights

    split, texts = running.evaluated(splits)
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

    def normalized(texts):
        return [data.normalized(text, options.normal_form) for text in texts]

    def read(path):
        if not options.lines and data.format_of(path) is None:
            return normalized([data.read_text(path)])
        texts = data.read_texts(path, options.feature or "text")
        return normalized(texts if options.lines else ["\n".join(texts)])

    def read_dataset(name, **settings):
        splits = data.read_text_splits(name, options.feature, **settings)
        train, *others = (side and normalized(side) for side in splits)
        if not options.lines and len(train) == 1:  # one text, that the others continue
            others = [side and ["\n".join(side)] for side in others]
        return data.Splits(train, *others)

    def split(train, *names):
        if options.lines or len(train) > 1:
            return data.train_valid_split(train, *names)
        cut = len(train[0]) * 9 // 10
        return [train[0][:cut]], [train[0][cut:]]

    def mix(train, others, share, seed):
        if options.lines or len(train) > 1:
            return data.mix(train, others, share, seed)
        (text,), (other,) = train, others
        number = round(len(text) * share / (1 - share))
        start = random.Random(seed).randint(0, max(0, len(other) - number))
        return [f"{text}\n{other[start : start + number]}"]

    def join(parts):
        if options.lines:
            return data.concatenate(parts)
        return ["\n".join(text for (text,) in parts)]  # one text

    read = running.reader(options, read, join)
    return running.load(options, "texts", read, read_dataset, corpora=corpora, split=split, mix=mix)


def prepare(options, splits, initial):
    """A generator with initial weights, its training batches and its validation batches."""
    prepared = options.corpora.prepared
    append_end = options.lines or len(splits.train) > 1
    if prepared:
        (tokenizer,) = splits.train[0].tokenizers()
        running.check_initial_vocabulary(options, [tokenizer], initial and [initial.tokenizer])
    elif initial:
        tokenizer = initial.tokenizer
    else:
        texts = splits.train if append_end else splits.train[0].splitlines(keepends=True)
        tokenizer = kt.train_tokenizer(texts, *options.vocabulary_settings)
    if initial:
        model = initial.model.copy(**options.rates)
    else:
        model = kt.LanguageModel(tokenizer.vocabulary_size(), config=options.model)
    running.freeze(options, model)
    seed, budget, window = options.run.seed, options.budget, options.window
    form = {"append_end": append_end, "normalization": options.normal_form}
    generator = kt.TextGenerator(model, tokenizer, None if append_end else window, **form)
    split, texts = running.evaluated(splits)
    with running.naming_lines(options, split, texts):
        generator.check_texts(texts)  # which are scored in the end

    if append_end:
        if prepared:
            train = running.prepared_batches(options, splits.train)
        else:
            with running.naming_lines(options, "training", splits.train):
                train = kt.TextBatches(tokenizer.encode(splits.train), seed=seed, **budget)
        valid = tokenizer.encode(splits.valid)
        with running.naming_lines(options, "validation", splits.valid):
            return generator, train, kt.TextBatches(valid, shuffle=False, **budget)

    (train,), (valid,) = tokenizer.encode(splits.train), tokenizer.encode(splits.valid)

    def resample(epoch):  # every epoch cuts the text in other places
        start = np.random.default_rng((seed, epoch)).integers(window)
        return [kt.chunks(train, window, start)]

    settings = {"append_end": False, "multiple": 1, **budget, "max_length": window}
    return (
        generator,
        kt.TextBatches(*resample(0), seed=seed, resample=resample, **settings),
        kt.TextBatches(kt.chunks(valid, window), shuffle=False, **settings),
    )


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
