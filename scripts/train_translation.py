r"""Train a Transformer to translate, from scratch, and save it as one .keras file.

Without data it learns generated dates ("April 22, 2019" -> "2019-04-22"):

    keras-transformer train translation

Train on your own sentence pairs: two files (line n of one translates line n of the other), one file
of pairs separated by TAB or of JSON Lines, each plain or compressed, or a translation dataset of
tensorflow-datasets (or a folder for its TranslateFolder):

    keras-transformer train translation --source train.en --target train.de \
        --valid-source val.en --valid-target val.de --output runs/en-de
    keras-transformer train translation --pairs pairs.tsv --output runs/mine
    keras-transformer train translation --dataset tfds:ted_hrlr_translate/pt_to_en --download

One model for several directions, such as those of en-de.tsv, en-fr.tsv and de-en.tsv:

    keras-transformer train translation --pairs ??-??.tsv --language-tags --output runs/many

A corpus larger than memory is prepared once (docs/scale.md):

    keras-transformer prepare corpora/en-de --source "news.*.en.gz" --target "news.*.de.gz"
    keras-transformer train translation --prepared corpora/en-de --recipe large \
        --valid-source val.en --valid-target val.de --output runs/en-de

Recipes for several amounts of data are in scripts/recipes.py: --recipe quick (the default with
data; an hour and a half on one core for 30,000 pairs), few, small, medium, large. --help-all lists
--download, --prepared and the other less common options. The run folder contains model.keras,
history.csv, settings.json, scores.json, learning_curve.png and attention.png. Continue an
interrupted run with --resume --output FOLDER. KERAS_BACKEND=tensorflow, jax or torch selects the
backend.
"""

import start_up  # noqa: F401

import dataclasses
import functools
import itertools

import keras

import keras_transformer as kt
import running
from command_line import parse
from data_report import DataReport
from keras_transformer import backend, data, evaluation, interchange, plots, training
from keras_transformer.backend.distribution import leave, of_first_process, own_rows
from keras_transformer.checks import check
from keras_transformer.cli.files import load_task
from keras_transformer.data.records import collect_complete
from options import SIDES, TEACHERS, flags
from recipes import TRANSLATION

FEW_UPDATES = 30  # per epoch; with 17, of 3,000 pairs, few had 5.8 BLEU more (docs/experiments.md)


@running.script()
def main():
    with running.errors_as_exits(ValueError, ImportError):
        options = parse(__doc__, TRANSLATION)
        run, initial = running.start(options)
        corpora, options = running.open_corpora(options, "pairs")
        splits = load(options, corpora)
        tokenizers = find_tokenizers(options, splits.train, initial)
        translator, train, valid = prepare(options, splits, tokenizers, initial)
        advise(options, train)
        report = DataReport(splits, lambda pairs: unknown(tokenizers, pairs))
        monolingual = read_monolingual(options)
        teachers = load_teachers(options, run, splits, monolingual)
        train_data = [corpus.digest for corpus in corpora] or splits.train
        if monolingual:
            train_data = [*train_data, monolingual]
        # Nothing is written before all of it is valid.
        run.begin(options.flat(), train_data, splits.valid, splits.test)

    if any(getattr(options, name) for name in TEACHERS):
        pairs = learn_from_models(options, run, splits, tokenizers, monolingual, teachers)
        splits = splits._replace(train=pairs)
        keras.utils.set_random_seed(options.run.seed)  # whether or not teachers were trained now
        translator, train, valid = prepare(options, splits, tokenizers, initial)

    bleu = functools.partial(evaluation.bleu, tokenize=options.scoring.tokenize)
    scored, monitored = [], {}
    if options.scoring.bleu_sentences:
        number = options.scoring.bleu_sentences
        scored.append(training.ValidationScore(translator, splits.valid, bleu, number))
        monitored = {"monitor": "val_bleu", "mode": "max"}
    shown = functools.partial(samples, translator, splits.valid)
    model = fit(options, run, translator, train, valid, scored, shown, **monitored)
    leave(model)  # if there are several processes, each evaluates alone, with all weights

    evaluated = model.evaluate(valid, verbose=0, return_dict=True)
    split, examples = running.evaluated(splits)
    translations = translator.translate(examples.source)
    scores = {
        "valid_perplexity": evaluated["perplexity"],
        "split": split,
        "sentences": len(translations),
        **report.scores,
    }
    note = report.note("validation")
    print(f"Validation perplexity: {evaluated['perplexity']:.3f}{note}")
    if options.has_data:
        score = bleu(translations, examples.target)
        scores |= {"bleu": score.value, "signature": score.signature}
        print(
            f"sacreBLEU on the {split} data, {len(translations)} sentences: {score}"
            f"{report.note(split)}"
        )
        for language in translator.targets:
            tag = data.language_tag(language)
            numbers = [n for n, text in enumerate(examples.source) if text.startswith(tag)]
            if numbers:
                sides = translations, examples.target
                score = bleu(*([side[n] for n in numbers] for side in sides))
                scores[f"bleu_to_{language}"] = score.value
                print(f"  to {language}, {len(numbers)} sentences: {score}")
    else:
        scores["exact_match"] = evaluation.exact_match(translations, examples.target)
        print(f"Exact match on {len(translations)} test dates: {scores['exact_match']:.2%}")
    run.write_scores(scores)

    run.draw_learning_curve()
    texts = filter(str.strip, examples.source)  # the lines of test data may be blank
    text = min(texts, key=lambda text: abs(len(text) - 12))  # about as long as a date: legible
    maps = translator.attention(text)
    figure = plots.plot_attention(
        maps.weights[-1],
        maps.source_tokens,
        maps.target_tokens,
        "Attention of the last layer",
        plots.BEING_WRITTEN,
    )
    run.draw(figure, "attention.png")
    running.print_end(run, text, "translate")


def fit(options, run, translator, train, valid, scored=(), shown=None, **monitored):
    """Trains the model of a translator and saves the translator.

    Args:
        scored: callbacks that add to the log, before the run records it.
        shown: function that returns what is printed after every epoch; None: nothing.
        **monitored: what decides which epoch is the best, see `Run.callbacks`.

    Returns:
        The compiled model.
    """
    print(train.summary())
    translator.model.summary()
    model, epochs = running.for_training(options, translator.model), options.training.epochs
    model.compile(
        optimizer=running.make_optimizer(options, epochs * len(train)),
        loss=kt.TokenCrossEntropy(options.training.label_smoothing),
        metrics=[kt.TokenAccuracy(), kt.Perplexity()],
        jit_compile=backend.prefers_jit(),
    )
    print(training.forecast(model, train))
    callbacks = running.callbacks(options, run, train, shown, **monitored)
    with run.interruptible():
        for span in run.restore(model, epochs):  # two if it was interrupted within an epoch
            model.fit(
                own_rows(train),
                validation_data=own_rows(valid),
                **span,
                callbacks=[*scored, *callbacks],
                shuffle=False,  # the batches shuffle themselves
            )
    run.finish(model)
    run.save(translator)
    return model


def load(options, corpora):
    """Returns the sentence pairs for training, validation and test as `Splits`.

    With --prepared the training data is the list of corpora. Without test data `test` is None.
    """

    def clean(pairs, split):  # the test data stays complete, so that its scores are comparable
        if split == "test":
            return pairs and data.clean(pairs, **form(options), keep_blank=True)
        cleaning = options.cleaning
        settings = form(options) | {"max_characters": cleaning.max_characters}
        if split != "valid":
            settings |= cleaning.filters
        return pairs and data.clean(pairs, **settings)

    def clean_splits(splits):
        return data.Splits(*(clean(pairs, name) for name, pairs in splits._asdict().items()))

    def read_dataset(name, **settings):
        sides = options.files.sides or (None, None)
        return clean_splits(data.read_splits(name, *sides, **settings))

    if not options.has_data:
        return clean_splits(data.dates(seed=options.run.seed))
    if options.files.language_tags:
        return load_directions(options, clean)
    return running.load(
        options,
        "pairs",
        lambda split: clean(read_pairs(options.files, split), split),
        read_dataset,
        corpora=corpora,
        train_options="--source and --target, --pairs, or --dataset",
        valid_options="--valid-source and --valid-target",
    )


def load_directions(options, clean):
    """Returns the pairs of --language-tags: each source after the tag of its target language."""

    def read(split):  # the pairs of each direction; None without
        name = f"{split}_pairs".removeprefix("train_")
        found = {}
        for direction, path in options.files.directed(name):
            file = dataclasses.replace(options.files, **{name: (path,)})
            found.setdefault(direction, []).append(clean(read_pairs(file, split), split))
        return {direction: data.concatenate(parts) for direction, parts in found.items()} or None

    def split(found, *names):
        parts = {each: data.train_valid_split(pairs, *names) for each, pairs in found.items()}
        train, valid = ({each: part[n] for each, part in parts.items()} for n in (0, 1))
        if len(options.files.all_directions()) > 1:
            train = data.without_validation(train, valid, options.files.both_directions)
        return train, valid

    def tagged(found, temperature=1.0):
        corpora = []
        for direction, (sources, targets) in found.items():
            source, target = direction.split("-")
            corpora.append(data.Examples(data.tagged(sources, target), targets))
            if options.files.both_directions:
                corpora.append(data.Examples(data.tagged(targets, source), sources))
        return data.oversampled(corpora, temperature, options.run.seed)

    splits = running.load(options, "pairs", read, split=split, valid_options="--valid-pairs")
    temperature = options.files.corpus_temperature
    test = splits.test and tagged(splits.test)
    return data.Splits(tagged(splits.train, temperature), tagged(splits.valid), test)


def form(options):
    """Returns the normalization of every text, here and later by the translator."""
    return {"normalization": options.normal_form, "lowercase": options.cleaning.lowercase}


def read_pairs(files, split):
    """Returns the pairs of "train", "valid", "test" or "mix"; None without."""
    names = [f"{split}_{side}".removeprefix("train_") for side in SIDES]
    source, target, pairs = (getattr(files, name) for name in names)
    one, other, either = (flags([name]) for name in names)
    if pairs and (source or target):
        raise ValueError(f"Give {one} and {other}, or {either}; not all of them.")
    if bool(source) != bool(target):
        raise ValueError(f"{one} and {other} go together; one of them is missing.")
    if not (pairs or source):
        return None
    if pairs:
        paths = data.expand_files(pairs)
        sides = files.sides or ()
        rows = [(path, data.iterate_pairs(path, *sides, quoted=files.quoted)) for path in paths]
    else:
        paths = data.parallel_files(source, target)
        rows = [(" and ".join(each), data.iterate_files(*each)) for each in paths]
    # The lines of test data are scored as any other program would score them: all.
    drop = split != "test"
    return data.concatenate(
        [collect_complete(data.Examples, each, name, drop) for name, each in rows]
    )


def advise(options, train):
    """Prints which recipe is for so few pairs."""
    if options.run.recipe == "quick" and len(train) < FEW_UPDATES:
        print(
            f"With {train.num_examples} pairs the recipe quick has few updates per epoch "
            f"({len(train)}): --recipe few, with smaller batches, has more."
        )


def read_monolingual(options):
    """Returns the texts of --monolingual, cleaned as the pairs are; None without."""
    if not options.monolingual:
        return None
    paths = data.expand_files(options.monolingual)
    texts = data.concatenate([data.read_texts(each) for each in paths])
    settings = form(options) | {"max_characters": options.cleaning.max_characters}
    return data.clean(data.Examples(texts, texts), **settings, unique=True).target


def find_tokenizers(options, examples, initial):
    """Returns the tokenizers of source and target.

    They are those of --prepared or of --init-from; otherwise they are learned from the training
    pairs, one for both sides unless --separate-vocabularies.
    """
    if options.corpora.prepared:
        tokenizers = examples[0].tokenizers()
        running.check_initial_vocabulary(
            options, tokenizers, initial and initial_tokenizers(initial)
        )
        return tokenizers
    tags = [data.language_tag(each) for each in data.targets_of(options.files.all_directions())]
    tags += back_tags(options)
    if initial:
        tokenizers = initial_tokenizers(initial)
        for tag, ids in zip(tags, tokenizers[0].encode(tags), strict=True):
            expected = "The tags must be in the vocabulary of --init-from"
            check(tag in tokenizers[0].tokens(ids), expected, missing=tag)
        return tokenizers
    size, kind, reserved = options.vocabulary_settings
    masks = data.MASKS if options.files.placeholders else ()
    settings = size, kind, [*reserved, *tags, *masks]
    if options.separate_vocabularies:
        return [kt.train_tokenizer(side, *settings) for side in examples]
    return [kt.train_tokenizer(examples.source + examples.target, *settings)] * 2


def back_tags(options):
    """Returns the tag of --back-tag, as texts have it, in a list; an empty one without."""
    return [data.normalized(options.back_tag, **form(options))] if options.back_tag else []


def unknown(tokenizers, pairs):
    """Returns the shares of the characters of each side that its vocabulary lacks."""
    names = ("source characters", "target characters")
    rows = zip(names, tokenizers, pairs, strict=True)
    return {name: tokenizer.unknown_share(side) for name, tokenizer, side in rows}


def initial_tokenizers(initial):
    return [initial.source_tokenizer, initial.target_tokenizer]


def prepare(options, splits, tokenizers, initial=None):
    """Returns a translator with initial weights, its training and its validation batches."""
    seed, alpha = options.run.seed, options.subword_alpha
    if options.files.placeholders:
        pattern = data.placeholder_pattern(options.files.placeholders)
        splits = splits._replace(
            train=data.mask_pairs(splits.train, pattern),
            valid=data.mask_pairs(splits.valid, pattern),
        )

    def batches(split, examples, **settings):
        ids = [tokenizer.encode(side) for tokenizer, side in zip(tokenizers, examples, strict=True)]
        with running.naming_lines(options, split, *examples):
            return kt.TranslationBatches(*ids, **options.budget, **settings)

    def resample(epoch):  # subword regularization: other ids in every epoch
        return [
            tokenizer.encode(side, sample=True, alpha=alpha, seed=(seed, epoch, number))
            for number, (tokenizer, side) in enumerate(zip(tokenizers, splits.train, strict=True))
        ]

    if options.corpora.prepared:
        train = running.prepared_batches(options, splits.train, alpha or None)
    else:
        train = batches("training", splits.train, seed=seed, resample=resample if alpha else None)
    valid = batches("validation", splits.valid, shuffle=False)
    source, target = tokenizers
    if initial:
        transformer = initial.transformer.copy(**options.rates)
    else:
        target_size = None if target is source else target.vocabulary_size()
        transformer = kt.Transformer(source.vocabulary_size(), target_size, config=options.model)
    running.freeze(options, transformer)
    known = initial.directions if initial else ()
    expected = "A model with language tags is trained further with --language-tags"
    check(not known or options.files.language_tags, expected, directions=", ".join(known))
    translator = kt.Translator(
        transformer,
        source,
        target,
        beams=options.scoring.beams,
        length_penalty=options.scoring.length_penalty,
        directions=dict.fromkeys([*known, *options.files.all_directions()]),
        trained_length=train.trained_length,
        placeholders=options.files.placeholders,
        **form(options),
    )
    for split, examples in (("validation", splits.valid), ("test", splits.test)):
        if examples:
            with running.naming_lines(options, split, examples.source):
                translator.check_texts(examples.source)
    return translator, train, valid


def translations_file(run, name):
    return run.folder / "teachers" / name.replace("_", "-") / "translations.json"


def load_teachers(options, run, splits, monolingual):
    """Returns the translators of --distill-from and --back-translator, by the option.

    One whose translations a resumed run already has is left out.
    """
    found = {}
    for name, split in (("distill_from", "training"), ("back_translator", "monolingual")):
        models = getattr(options, name)
        if not models or (run.resume and of_first_process(translations_file(run, name).exists())):
            continue
        found[name] = load_task(models[0], "Translator", options.engine, models[1:], flags([name]))
        texts = splits.train.source if name == "distill_from" else monolingual
        with running.naming_lines(options, split, texts):
            found[name].check_texts(texts)
    return found


def learn_from_models(options, run, splits, tokenizers, monolingual, teachers):
    """Returns the training pairs and those that models make: TEACHERS.

    Args:
        teachers: the translators that `load_teachers` returns; each is dropped after its use.
    """

    def translations(name, texts):
        path = translations_file(run, name)
        return training.saved_translations(path, texts, functools.partial(teachers.pop, name))

    pairs, sources = splits.train, splits.train.source
    if options.diversify:
        pairs = diversify(options, run, splits, tokenizers)
    if options.distill_from:
        made = data.Examples(sources, translations("distill_from", sources))
        pairs = training.add_pairs(pairs, made)
    if monolingual:
        written = translations("back_translator", monolingual)
        before = "".join(f"{tag} " for tag in back_tags(options))
        tagged = [before + text if text else "" for text in written]
        pairs = training.add_pairs(pairs, data.Examples(tagged, monolingual))
    return _within(options.model.max_length, pairs, tokenizers)


def _within(max_length, pairs, tokenizers):
    """Returns the pairs without those that are too long to read, which only models have made."""
    if max_length is None:
        return pairs
    sides = (map(len, each.encode(side)) for each, side in zip(tokenizers, pairs, strict=True))
    fits = [max(lengths) < max_length for lengths in zip(*sides, strict=True)]  # and END
    if dropped := fits.count(False):
        print(f"Dropped {dropped} of them, of more than {max_length} tokens.")
    return data.Examples(*([*itertools.compress(side, fits)] for side in pairs))


def diversify(options, run, splits, tokenizers):
    """Returns the training pairs and those that teachers translated, each trained in a run."""
    splits = splits._replace(test=None)  # its targets need not be texts that a model reads
    swapped = data.Splits(*(pairs and data.Examples(*pairs[::-1]) for pairs in splits))

    def train_teacher(direction, number, folder):
        seed = options.run.seed + number
        teacher = options.replace(seed=seed, output=str(folder), diversify=0, callback=())
        forward = direction == "forward"
        examples = splits if forward else swapped
        exists = of_first_process((folder / "settings.json").exists())
        run = training.Run(folder, resume=bool(exists))
        keras.utils.set_random_seed(teacher.run.seed)
        translator, train, valid = prepare(
            teacher, examples, tokenizers if forward else tokenizers[::-1]
        )
        interchange.set_engine(translator, options.engine)  # what it cannot hold, it says now
        interchange.set_engine(translator, "keras")  # and not the weights of this moment
        run.begin(teacher.flat(), examples.train, examples.valid)
        fit(teacher, run, translator, train, valid)
        interchange.set_engine(translator, options.engine)
        return translator

    number, folder = options.diversify, run.folder / "teachers"
    return training.diversify(splits.train, number, folder, train_teacher)


def samples(translator, examples):
    """Returns what is printed after every epoch: three sentences and their translations."""
    source, target = (training.evenly_spaced(side, 3) for side in examples)
    rows = zip(source, translator.translate(source), target, strict=True)
    return "\n".join(
        f"  source     {text}\n  model      {translation}\n  reference  {reference}\n"
        for text, translation, reference in rows
    )


if __name__ == "__main__":
    main()
