"""Runs of the training scripts around `compile` and `fit`: set-up, data, optimizer, the end."""

import start_up

import contextlib
import importlib
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras

import keras_transformer as kt
from keras_transformer import backend, data, training
from keras_transformer.backend import distribution
from keras_transformer.checks import TextError, check
from keras_transformer.cli.files import load_task
from keras_transformer.cli.streams import standard_streams
from keras_transformer.training import Run
from options import OF_CORPORA, Options, flags

ACCURACY = {"monitor": "val_token_accuracy", "mode": "max"}  # of labels, see `Run.callbacks`


@contextlib.contextmanager
def script() -> Iterator[None]:
    """The whole of a script: its output in UTF-8, errors of files and of training as exits."""
    start_up.imported()
    with standard_streams(), errors_as_exits():
        yield


@contextlib.contextmanager
def errors_as_exits(*errors: type[Exception]) -> Iterator[None]:
    """Ends the script with the message of an error that its user can fix, without a traceback.

    Args:
        *errors: their classes. Also of what is written: OSError; of training: FloatingPointError.
    """
    try:
        yield
    except Exception as error:
        if lost := distribution.lost_process(error):
            distribution.end(lost)
        if isinstance(error, BrokenPipeError):
            sys.exit(128 + 13)  # quietly, as SIGPIPE ends a program: the run is not complete
        if isinstance(error, (OSError, FloatingPointError, *errors)):
            sys.exit(f"{error}")
        raise


def print_label_scores(scores: dict[str, Any], unit: str) -> None:
    """Prints the F1 of each label.

    Args:
        scores: dict from labels to `evaluation.LabelScore`.
        unit: what has a label, in the plural: "words" or "texts".
    """
    for label, score in scores.items():
        print(f"  {label:8} F1 {score.f1:7.2%}  {score.count:6} {unit}")


def confusion_counts(confusion: Any, labels: Iterable[str]) -> dict[str, dict[str, int]]:
    """The cells of a confusion matrix that are not 0, of which thousands of labels have few.

    Args:
        confusion: int array (expected, predicted), counts.
        labels: those of its rows and columns.

    Returns:
        dict from the expected labels to dicts from the predicted ones to counts.
    """
    labels = list(labels)
    return {
        label: {labels[column]: int(row[column]) for column in row.nonzero()[0]}
        for label, row in zip(labels, confusion, strict=True)
        if row.any()
    }


def print_end(run: Run, text: str, command: str = "predict") -> None:
    """Prints where a run is, and a command that uses its model.

    Args:
        run: `Run`, finished.
        text: sample of what the model reads.
        command: command of keras-transformer that uses the model.
    """
    words = shlex.join(["keras-transformer", command, f"{run.folder}/model.keras", text])
    print(f"The run is in {run.folder}. Try: {words}")


@contextlib.contextmanager
def naming_lines(options: Options, split: str, *sides: Sequence) -> Iterator[None]:
    """Names file and line of a text that is refused before training.

    Args:
        options: which name the files.
        split: "training", "validation", "test" or "monolingual".
        *sides: the texts, or lists of words; those of the target after those of the source.

    Raises:
        ValueError: Where and why.
    """
    try:
        yield
    except TextError as error:
        names = ["train", "mix_in", "pairs", "source", "mix_pairs", "mix_source"]
        before = {"validation": "valid", "training": None}.get(split, split)
        if before:  # without data of their own, they are split off the training data
            names = [before, f"{before}_pairs", f"{before}_source", *names]
        if error.side:
            names = [name.replace("source", "target") for name in names]
        flat = options.flat()
        paths = data.expand_files(path for name in names for path in flat.get(name) or ())
        line = data.find_line(paths, sides[error.side][error.number]) if sides else None
        found = f"{line}: the text {error.problem}" if line else f"The {split} data: {error}"
        raise ValueError(found) from None


def start(options: Options) -> tuple[Run, Any]:
    """The run folder, in which nothing is written yet, and the task of --init-from or None."""
    run = Run(options.run.output, options.run.resume, options.run.overwrite)
    set_up(options)
    for name in options.run.callback:
        find_callback(name)
    return run, options.fine_tuning.init_from and load_task(options.fine_tuning.init_from)


def open_corpora(
    options: Options, kind: str, checked: bool = True
) -> tuple[list[data.Corpus], Options]:
    """The corpora of --prepared, none without it, and the options with what they provide.

    Args:
        options: `Options`.
        kind: "pairs" or "texts", which they must hold.
        checked: bool, whether options of `keras-transformer prepare` must be those of the corpora.

    Raises:
        ValueError: A corpus holds something else, or an option has another value.
    """
    corpora = [data.Corpus(folder) for folder in options.corpora.prepared]
    if not corpora:
        return corpora, options
    for corpus in corpora:
        expected = f"--prepared must name corpora of {kind}"
        check(corpus.kind == kind, expected, corpus=f"{corpus.folder}, {corpus.kind}")
    first, flat = corpora[0], options.flat()
    cleaning = first.cleaning or {}
    provided = OF_CORPORA | {
        "normalization": cleaning.get("normalization") or "none",
        "lowercase": cleaning.get("lowercase", False),
    }
    for name, default in OF_CORPORA.items() if checked else ():
        if name in flat and flat[name] not in (default, provided[name]):
            option = flags([name])
            raise ValueError(f"{option} is an option of keras-transformer prepare; leave it out.")
    provided |= {
        "vocabulary_size": max(each.vocabulary_size() for each in first.tokenizers()),
        "separate_vocabularies": len(set(first.vocabularies)) > 1,
        "lines": True,
    }
    return corpora, options.replace(**{n: v for n, v in provided.items() if n in flat})


def load(
    options: Options,
    what: str,
    read: Callable[[str], Any],
    read_dataset: Callable[..., data.Splits] | None = None,
    *,
    corpora: Sequence[data.Corpus] = (),
    split: Callable[..., tuple[Any, Any]] = data.train_valid_split,
    mix: Callable[..., Any] = data.mix,
    train_options: str = "--train or --dataset",
    valid_options: str = "--valid",
) -> data.Splits:
    """The data that the command line names; test data is None without.

    Args:
        options: `Options`.
        what: what the examples are, such as "texts".
        read: function from "train", "valid", "test" or "mix" to the data of its files, or None.
        read_dataset: function from the name of a dataset, and `download`, to its splits.
        corpora: those of --prepared, which are then the training data.
        split: function such as `data.train_valid_split`.
        mix: function such as `data.mix`.
        train_options, valid_options: the options that name the data, for errors.

    Raises:
        ValueError: Training data is missing or given twice, or --prepared lacks validation data.
    """
    dataset = options.flat().get("dataset")
    if read_dataset and dataset:
        download = options.files.download
        train, valid, test = read_dataset(dataset.removeprefix("tfds:"), download=download)
    else:
        train = read("train")
        if train is None and not corpora:
            raise ValueError(f"No training data: give {train_options}.")
        if train is not None and corpora:
            raise ValueError("Give training data once, as files or as --prepared.")
        valid, test = read("valid"), read("test")
    if corpora:
        if valid is None:
            raise ValueError(f"--prepared needs validation data: give {valid_options}.")
        return data.Splits(corpora, valid, test)
    if valid is None:
        train, valid = split(train, what, valid_options)
    mixed = read("mix")
    if mixed is not None:
        train = mix(train, mixed, options.fine_tuning.mix_share, options.run.seed)
    return data.Splits(train, valid, test)


def reader(
    options: Options,
    read_file: Callable[[str], Any],
    join: Callable[[Sequence[Any]], Any] = data.concatenate,
) -> Callable[[str], Any]:
    """A function from "train", "valid", "test" or "mix" to the data of its files; None without.

    Args:
        options: `Options`.
        read_file: function from a path to the data of one file.
        join: function from those of several files to the data of all.
    """
    flat = options.flat() | {"mix": options.flat()["mix_in"]}

    def read(split):
        patterns = flat.get(split)
        return patterns and join([read_file(path) for path in data.expand_files(patterns)])

    return read


def evaluated(splits: data.Splits) -> tuple[str, Any]:
    """The name and the data of the split that is scored in the end: the test data, if any."""
    return ("test", splits.test) if splits.test else ("validation", splits.valid)


def prepared_batches(
    options: Options, corpora: list[data.Corpus], subword_alpha: float | None = None
) -> data.PreparedBatches:
    """The training batches of corpora."""
    settings = {"subword_alpha": subword_alpha, "seed": options.run.seed, **options.budget}
    with naming_lines(options, "training"):
        return data.PreparedBatches(corpora, options.corpora.weights or None, **settings)


def freeze(options: Options, model: keras.Model) -> None:
    """Freezes what --freeze and --lora-rank ask for."""
    training.freeze(model, options.fine_tuning.freeze)
    if options.fine_tuning.lora_rank:
        training.enable_lora(model, options.fine_tuning.lora_rank)
    update_rule, trained = options.training.optimizer, model.trainable_variables
    decays = update_rule == "adam" or any("kernel" in variable.name for variable in trained)
    check(decays, "With all kernels frozen, use --optimizer adam", optimizer=update_rule)


def callbacks(
    options: Options, run: Run, batches: Any, samples: Callable[[], str] | None, **monitored: str
) -> list[keras.callbacks.Callback]:
    """The callbacks of `fit`: those of the run, then of --callback, then of printed samples.

    Args:
        options: `Options`.
        run: `Run`.
        batches: the training batches.
        samples: function that returns what is printed; None: nothing.
        **monitored: what decides which epoch is the best, see `Run.callbacks`.
    """
    every = options.training.checkpoint_every
    of_run = run.callbacks(
        batches,
        seed=options.run.seed,
        average=options.training.average,
        patience=options.training.patience,
        tensorboard=options.run.tensorboard,
        checkpoint_every=every and every * options.training.accumulate,  # in batches
        **monitored,
    )
    own = [find_callback(name)() for name in options.run.callback]
    return [*of_run, *own, *([training.PrintSamples(samples)] if samples else [])]


def find_callback(name: str) -> Callable[[], keras.callbacks.Callback]:
    """The class or function of --callback, of an installed module or one in the current folder.

    Raises:
        ValueError: There is no such module, or nothing of this name in it.
    """
    before = list(sys.path)
    sys.path.append(os.getcwd())
    try:
        module, attribute = name.split(":")
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        expected = f"--callback must be package.module:Class ({error})"
        raise ValueError(f"{expected}; received {name!r}.") from None
    finally:
        sys.path[:] = before


def for_training(options: Options, model: keras.Model) -> keras.Model:
    """The model to compile: `model`, or one around it that an option asks for."""
    if options.training.r_drop:
        return training.RDrop(model, options.training.r_drop)
    if options.training.simcut:
        return training.SimCut(model, options.training.simcut, options.training.cutoff)
    pieces = options.flat().get("logits_in_pieces")
    return training.ChunkedLogits(model, pieces) if pieces else model


def set_up(options: Options) -> None:
    """Determinism, memory, threads, devices, seed and precision; before the first operation."""
    if options.run.tensorboard:
        check_tensorboard()
    if options.run.deterministic:
        backend.make_deterministic()
    backend.speed_up_training()
    if options.run.threads:
        backend.set_num_threads(options.run.threads)
    if options.run.compilation_cache:
        backend.keep_programs(options.run.compilation_cache)
    distribution.use_devices(options.run.devices, options.run.model_parallel)
    distribution.check_update(bool(options.training.clip_norm), options.training.accumulate > 1)
    if not distribution.is_first_process():
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # each line is printed once
    keras.utils.set_random_seed(options.run.seed)
    keras.config.set_dtype_policy(
        "float32" if options.run.precision == "float32" else f"mixed_{options.run.precision}"
    )


def check_tensorboard() -> None:
    """Raises an `ImportError` now; the callback of Keras would find out after the first epoch."""
    try:
        import tensorboard  # noqa: F401
        import tensorflow  # noqa: F401
    except ImportError:
        raise ImportError(
            "--tensorboard needs TensorFlow and TensorBoard: pip install tensorflow tensorboard. "
            "history.csv contains the same numbers."
        ) from None


def make_optimizer(options: Options, num_batches: int) -> keras.optimizers.Optimizer:
    """The optimizer, with a learning rate that rises to its peak and then follows the schedule.

    Schedules and moving averages of Keras count batches. The options count updates: one per
    --accumulate batches. If the training ends within the warm-up, or if a moving average would not
    forget the first weights, it prints so.

    Args:
        options: `Options`.
        num_batches: int, batches of all epochs.
    """
    accumulate = options.training.accumulate
    updates, warmup_steps = num_batches // accumulate, options.training.warmup_steps * accumulate
    if num_batches < warmup_steps:
        size = "--tokens-per-batch" if options.training.tokens_per_batch else "--batch-size"
        print(
            f"The {updates} updates of this training end within its warm-up of "
            f"{options.training.warmup_steps}, before the learning rate has reached its peak: "
            f"raise --epochs, or lower --warmup-steps or {size}."
        )
    peak, schedule = options.training.learning_rate, options.training.schedule
    momentum = options.training.ema
    if momentum and momentum > (most := max(0.0, 1 - 5 / max(1, updates))):
        share = momentum**updates
        cure = "raise --epochs, or lower it"
        if schedule in ("cosine", "wsd"):  # others may be trained for more epochs
            momentum, cure = most, f"it is {most:.4f} instead"
        print(
            f"After so few updates --ema {options.training.ema} would still hold {share:.0%} of "
            f"the first weights; {cure}."
        )
    if schedule == "paper":
        learning_rate = kt.WarmupSchedule.with_peak(peak, warmup_steps)
    elif schedule == "wsd":
        decay_steps = max(1, round(options.training.decay_share * num_batches))
        learning_rate = kt.training.WSDSchedule(peak, warmup_steps, num_batches, decay_steps)
    else:
        learning_rate = keras.optimizers.schedules.CosineDecay(
            initial_learning_rate=0.0,
            warmup_target=peak,
            warmup_steps=warmup_steps,
            decay_steps=max(1, num_batches - warmup_steps),
            alpha=float(schedule == "constant"),  # the share of the peak that it decays to
        )
    return kt.training.create_optimizer(
        options.training.optimizer,
        learning_rate,
        options.training.weight_decay,
        global_clipnorm=options.training.clip_norm,
        use_ema=bool(options.training.ema),
        ema_momentum=(0.99 if momentum is None else momentum) ** (1 / accumulate),
        gradient_accumulation_steps=accumulate if accumulate > 1 else None,
    )


def prepare_words(
    options: Options,
    model_class: type[keras.Model],
    sentences: Sequence[list[list[str]]],
    label_ids: Sequence[list],
    num_labels: int,
    initial: Any,
) -> tuple[keras.Model, kt.WordVocabulary, kt.WordBatches, kt.WordBatches]:
    """Model and batches from words, for a tagger or a classifier.

    Args:
        options: `Tagging` or `Classification`.
        model_class: `TaggingModel` or `ClassificationModel`.
        sentences: training and validation data, two lists of lists of words.
        label_ids: the ids of their labels, two lists; padding, 0, for labels that do not count.
        num_labels: int, number of label ids, padding included.
        initial: the task of --init-from; None: a new vocabulary and random weights.

    Returns:
        model with initial weights, vocabulary, training batches, validation batches.
    """
    vocabulary = getattr(initial, "vocabulary", None)
    if not vocabulary:
        limits = options.words.min_count, options.words.max_characters
        vocabulary = kt.WordVocabulary.learn(sentences[0], *limits)

    word_ids, character_ids = vocabulary.encode(sentences[0])

    def resample(epoch):  # word dropout: other words become unknown in every epoch
        kept = kt.word_dropout(word_ids, options.labels.word_dropout, (options.run.seed, epoch))
        return kept, character_ids, label_ids[0]

    with naming_lines(options, "training", sentences[0]):
        train = kt.WordBatches(
            word_ids,
            character_ids,
            label_ids[0],
            seed=options.run.seed,
            resample=resample if options.labels.word_dropout else None,
            **options.budget,
        )
    encoded = vocabulary.encode(sentences[1])
    with naming_lines(options, "validation", sentences[1]):
        valid = kt.WordBatches(*encoded, label_ids[1], shuffle=False, **options.budget)

    sizes = vocabulary.num_words, vocabulary.num_characters, num_labels, vocabulary.max_characters
    model = model_class(*sizes, options.words.word_stddev, options.model)
    if initial:
        model.initialize_from(initial.model, labels=type(initial).__name__ == options.TASK)
    freeze(options, model)
    return model, vocabulary, train, valid


def known_labels(options: Options, initial: Any, labels: set[str]) -> list[str]:
    """The labels of the data, or those of the model of --init-from, if it has labels of this kind.

    Raises:
        ValueError: The data has one label, or a label that the model does not have.
    """
    if type(initial).__name__ != options.TASK:
        expected = "The training data must have two labels or more; choose their column"
        check(len(labels) > 1, expected, labels=", ".join(labels))
        return sorted(labels)
    model, lacks = options.fine_tuning.init_from, sorted(labels - set(initial.labels))
    check(
        not lacks,
        f"The labels must be among those of {model}, {', '.join(initial.labels)}",
        labels=", ".join(lacks),
    )
    return initial.labels


def check_initial_vocabulary(
    options: Options, tokenizers: Sequence[Any], initial: Sequence[Any] | None
) -> None:
    """Raises a ValueError if the corpora of --prepared have another vocabulary than --init-from.

    Args:
        options: `Options`.
        tokenizers: those of the corpora, one per side.
        initial: those of the initial model; None without one.
    """
    if not initial:
        return
    model = options.fine_tuning.init_from
    if not all(isinstance(each, kt.SentencePieceTokenizer) for each in initial):
        raise ValueError(
            f"--prepared holds ids of SentencePiece; {model} has another kind of "
            "vocabulary. Give it training data as files."
        )
    if [each.proto for each in initial] != [each.proto for each in tokenizers]:
        raise ValueError(
            f"--prepared must have the vocabulary of {model}: prepare the corpus with "
            f"--vocabulary-from {model}."
        )
