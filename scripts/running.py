"""Runs of the training scripts around `compile` and `fit`: set-up, optimizer, errors, the end."""

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import keras

import keras_transformer as kt
from keras_transformer import backend, data, training
from keras_transformer.backend import distribution
from keras_transformer.checks import TextError, check
from keras_transformer.cli.streams import standard_streams
from keras_transformer.training import Run
from options import Options


@contextlib.contextmanager
def script() -> Iterator[None]:
    """The whole of a script: its output in UTF-8, errors of files and of training as exits."""
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
        split: "training", "validation" or "test".
        *sides: the texts, or lists of words; those of the target after those of the source.

    Raises:
        ValueError: Where and why.
    """
    try:
        yield
    except TextError as error:
        names = ["train", "mix_in", "pairs", "source", "mix_pairs", "mix_source"]
        before = {"validation": "valid", "test": "test"}.get(split)
        if before:  # without data of their own, they are split off the training data
            names = [before, f"{before}_pairs", f"{before}_source", *names]
        if error.side:
            names = [name.replace("source", "target") for name in names]
        flat = options.flat()
        paths = [path for name in names if (path := flat.get(name))]
        line = data.find_line(paths, sides[error.side][error.number]) if sides else None
        found = f"{line}: the text {error.problem}" if line else f"The {split} data: {error}"
        raise ValueError(found) from None


def start(options: Options) -> tuple[Run, Any]:
    """The run folder, in which nothing is written yet, and the task of --init-from or None."""
    run = Run(options.run.output, options.run.resume, options.run.overwrite)
    set_up(options)
    return run, options.load_initial()


def for_training(options: Options, model: keras.Model) -> keras.Model:
    """The model to compile: `model`, or one around it for --r-drop or --logits-in-pieces."""
    if options.training.r_drop:
        return training.RDrop(model, options.training.r_drop)
    pieces = options.flat().get("logits_in_pieces")
    return training.ChunkedLogits(model, pieces) if pieces else model


def set_up(options: Options) -> None:
    """Determinism, memory, threads, devices, seed and precision; before the first operation."""
    if options.run.deterministic:
        backend.make_deterministic()
    backend.keep_freed_memory()
    backend.leave_pipelines_untuned()
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


def make_optimizer(options: Options, num_batches: int) -> keras.optimizers.Adam:
    """Adam with a learning rate that rises to its peak and then decays.

    Schedules and moving averages of Keras count batches. The options count updates: one per
    --accumulate batches.

    Args:
        options: `Options`.
        num_batches: int, batches of all epochs.
    """
    warmup_steps = options.training.warmup_steps * options.training.accumulate
    if options.training.schedule == "cosine":
        learning_rate = keras.optimizers.schedules.CosineDecay(
            initial_learning_rate=0.0,
            warmup_target=options.training.learning_rate,
            warmup_steps=warmup_steps,
            decay_steps=max(1, num_batches - warmup_steps),
        )
    else:
        learning_rate = kt.WarmupSchedule.with_peak(options.training.learning_rate, warmup_steps)
    return kt.paper_optimizer(
        learning_rate,
        global_clipnorm=options.training.clip_norm,
        use_ema=bool(options.training.ema),
        ema_momentum=(options.training.ema or 0.99) ** (1 / options.training.accumulate),
        gradient_accumulation_steps=options.training.accumulate
        if options.training.accumulate > 1
        else None,
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
        kept = kt.word_dropout(word_ids, options.labels.forget, (options.run.seed, epoch))
        return kept, character_ids, label_ids[0]

    with naming_lines(options, "training", sentences[0]):
        train = kt.WordBatches(
            word_ids,
            character_ids,
            label_ids[0],
            seed=options.run.seed,
            resample=resample if options.labels.forget else None,
            **options.budget,
        )
    encoded = vocabulary.encode(sentences[1])
    with naming_lines(options, "validation", sentences[1]):
        valid = kt.WordBatches(*encoded, label_ids[1], shuffle=False, **options.budget)

    sizes = vocabulary.num_words, vocabulary.num_characters, num_labels, vocabulary.max_characters
    model = model_class(*sizes, options.words.word_stddev, options.model)
    if initial:
        model.initialize_from(initial.model, labels=type(initial).__name__ == options.TASK)
    options.adapt(model)
    return model, vocabulary, train, valid


def known_labels(options: Options, initial: Any, labels: set[str]) -> list[str]:
    """The labels of the data, or those of the model of --init-from, if it has labels of this kind.

    Raises:
        ValueError: The data has a label that the model does not have.
    """
    if type(initial).__name__ != options.TASK:
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
