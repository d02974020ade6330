"""Shared by the training scripts: options from the command line, random seeds, the optimizer.

An option is a field of a dataclass: `batch_size: int | None` of `TrainingOptions` is
`--batch-size`. Its help comes from the docstring and its default from a recipe; those of the tasks
are in recipes.py. Each dataclass is a group of the help.
"""

import contextlib
import dataclasses
import inspect
import io
import os
import pathlib
import re
import shlex
import sys
import typing
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, Self

import docstring_parser
import keras
import tyro

import keras_transformer as kt
from keras_transformer import backend, data, training
from keras_transformer.backend import distribution
from keras_transformer.checks import (
    TextError,
    check,
    check_above_0,
    check_at_least,
    check_from_0,
    check_optional,
    check_rates,
    option_names,
)
from keras_transformer.cli.files import load_task
from keras_transformer.data.lengths import LONGEST
from keras_transformer.models.configuration import TransformerConfig
from keras_transformer.tasks.saved_files import ADDED_OPTIONS, FileSummary
from keras_transformer.training import Run
from keras_transformer.training.run import FILES

Folder = Annotated[str | None, tyro.conf.arg(metavar="FOLDER")]

SEARCH = ("beams", "length_penalty")  # a model file provides them, and they may change
# Options newer than some runs, and what these do without them.
IN_OLDER_RUNS = {"num_buckets": 8, **{n: getattr(TransformerConfig, n) for n in ADDED_OPTIONS}}

# Of each pair, the one on the command line replaces the other one of the recipe.
ALTERNATIVES = {"batch_size": None, "tokens_per_batch": None}, {"ema": None, "average": 0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The run as a whole.

    Args:
        recipe: Recipe that provides the defaults.
        output: Run folder.
        resume: Resume the run in --output with its original settings; only --epochs may change.
        overwrite: Replace a run that --output already contains.
        seed: Random seed (data, weights, shuffling, dropout).
        deterministic: Bit-exact reproducibility, slightly slower.
        precision: Compute dtype; weights stay float32.
        threads: Intra-op threads on TensorFlow and PyTorch; none: all cores.
        devices: Devices over which each batch is split, of all processes (docs/devices.md).
        model_parallel: Devices over which the weights are split, a divisor of --devices; JAX.
        compilation_cache: Folder that keeps compiled programs for later runs; JAX.
        tensorboard: Write TensorBoard logs too; needs TensorFlow and TensorBoard.
    """

    recipe: str | None = None
    output: Folder = None
    resume: bool = False
    overwrite: bool = False
    seed: int = 0
    deterministic: bool = False
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    threads: int | None = None
    devices: int = 1
    model_parallel: int = 1
    compilation_cache: Folder = None
    tensorboard: bool = False
    model: TransformerConfig

    def __post_init__(self):
        check_at_least(0, seed=self.seed)
        check_optional(1, threads=self.threads)
        check_at_least(1, devices=self.devices)
        check_at_least(1, model_parallel=self.model_parallel)
        if self.tensorboard:
            _check_tensorboard()

    FILES = ()  # the options that name data

    @property
    def has_data(self) -> bool:
        """Whether the command line names any data."""
        return any(getattr(self, name) for name in self.FILES)

    def unused(self, initial: FileSummary | None) -> dict[str, str]:
        """The options that this combination does not use, by name, each with what uses it.

        Args:
            initial: what --init-from holds; None without.
        """
        return {}

    def flat(self) -> dict[str, Any]:
        """All options by name, those of the model included, as settings.json contains them."""
        flat = vars(self) | vars(self.model)
        del flat["model"]
        return flat

    def replace(self, **changes: Any) -> Self:
        """A copy with some options changed, by name."""
        sizes = {name: changes.pop(name) for name in vars(self.model) if name in changes}
        return dataclasses.replace(self, model=self.model.replace(**sizes), **changes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions(RunOptions):
    """Batches, updates and when to stop.

    Args:
        epochs: Passes over the training data.
        learning_rate: Peak learning rate.
        warmup_steps: Linear warm-up, in updates.
        schedule: Decay after the warm-up: paper (as 1/sqrt(step)) or cosine (to 0).
        batch_size: Examples per batch (alternative: --tokens-per-batch).
        tokens_per_batch: Maximum (target) tokens per batch, padding included.
        num_buckets: Length buckets, that is shapes of batches. More have less padding; JAX compiles
            each of them.
        accumulate: Gradient accumulation, in batches per update.
        label_smoothing: Share of the probability spread over the vocabulary.
        clip_norm: Maximum global gradient norm.
        ema: Momentum of an exponential moving average of the weights, which is saved.
        average: Checkpoint averaging: number of last epochs whose mean is saved; 0: none.
        r_drop: R-Drop: weight of the divergence between two dropout passes (paper: 5).
        patience: Early stopping: epochs without improvement; the best epoch is saved, or with
            --average the mean of the last ones (recipes: --average 0 for the best).
        checkpoint_every: Updates after which a checkpoint is also saved within an epoch.
        steps_per_execution: Batches per execution, after which loss and signals are read and the
            progress bar is updated; with more, a GPU waits less. TensorFlow and JAX.
    """

    epochs: int
    learning_rate: float
    warmup_steps: int
    schedule: Literal["paper", "cosine"] = "paper"
    batch_size: int | None = None
    tokens_per_batch: int | None = None
    num_buckets: int = 8
    accumulate: int = 1
    label_smoothing: float = 0.1
    clip_norm: float | None = None
    ema: float | None = None
    average: int = 0
    r_drop: float | None = None
    patience: int | None = None
    checkpoint_every: int | None = None
    steps_per_execution: int = 1

    def __post_init__(self):
        super().__post_init__()
        check_at_least(1, epochs=self.epochs, warmup_steps=self.warmup_steps)
        check_at_least(1, num_buckets=self.num_buckets, accumulate=self.accumulate)
        check_optional(1, batch_size=self.batch_size, tokens_per_batch=self.tokens_per_batch)
        check_optional(1, patience=self.patience, checkpoint_every=self.checkpoint_every)
        check_at_least(1, steps_per_execution=self.steps_per_execution)
        if self.steps_per_execution > 1 and backend.name() == "torch":
            raise ValueError(
                "--steps-per-execution needs TensorFlow or JAX; Keras on PyTorch runs one step at "
                "a time."
            )
        check_at_least(0, average=self.average)
        check_rates(label_smoothing=self.label_smoothing, ema=self.ema or 0.0)
        check_above_0(learning_rate=self.learning_rate)
        if self.clip_norm is not None:
            check_above_0(clip_norm=self.clip_norm)
        check_from_0(r_drop=self.r_drop or 0)
        if self.batch_size and self.tokens_per_batch:
            raise ValueError("Give --batch-size or --tokens-per-batch, not both.")
        if self.ema and self.average:
            raise ValueError("Give --ema or --average, not both: each replaces the weights.")

    @property
    def budget(self) -> dict[str, int | None]:
        """The sizes of batches, and the longest text that the finished task reads."""
        return {
            "batch_size": self.batch_size,
            "tokens_per_batch": self.tokens_per_batch,
            "num_buckets": self.num_buckets,
            "max_length": self.model.max_length or LONGEST,
        }

    @property
    def for_callbacks(self) -> dict[str, Any]:
        """The options that `Run.callbacks` takes."""
        names = ("seed", "average", "patience", "tensorboard")
        every = self.checkpoint_every and self.checkpoint_every * self.accumulate  # in batches
        return {name: getattr(self, name) for name in names} | {"checkpoint_every": every}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningOptions(TrainingOptions):
    """Fine-tuning: training a saved model further on other data.

    Args:
        init_from: Saved model, or the name of one that comes with the package, that provides
            vocabulary, sizes and initial weights. Without
            --recipe a model of the same task uses the recipe fine-tune.
        freeze: Layers that keep their weights: embedding, encoder, decoder/block_1, ...
        lora_rank: LoRA: rank of the updates to the kernels of attention and feed-forward network;
            all other weights are kept.
        mix_share: Share of the training data that is drawn from the data to mix in, against
            forgetting.
    """

    init_from: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    freeze: Annotated[tuple[str, ...], tyro.conf.arg(metavar="LAYER ...")] = ()
    lora_rank: int | None = None
    mix_share: float = 0.25

    MIX = ()  # the options that name data to mix in

    TASK = ""  # what the script trains
    RELATED = ()  # other tasks that it can be initialized from

    def __post_init__(self):
        super().__post_init__()
        check_optional(1, lora_rank=self.lora_rank)
        check_rates(mix_share=self.mix_share)
        if self.init_from and self.output:
            inside = (
                pathlib.Path(self.output).resolve()
                in pathlib.Path(self.init_from).resolve().parents
            )
            check(not inside, "--init-from must not be within --output", init_from=self.init_from)

    def unused(self, initial):
        unused = super().unused(initial)
        if not any(getattr(self, name) for name in self.MIX):
            unused["mix_share"] = "data to mix in"
        if not self.has_data:
            unused |= dict.fromkeys(self.MIX, "training data")
        return unused

    def provided_by(self, summary: FileSummary) -> dict[str, Any]:
        """The options that a model file provides."""
        sizes = dataclasses.asdict(summary.config)
        return {name: value for name, value in sizes.items() if name not in self.rates}

    @property
    def rates(self) -> dict[str, float]:
        """The dropout rates, which are of the training and not of a model to initialize from."""
        return {name: getattr(self.model, name) for name in ("dropout", "attention_dropout")}

    def load_initial(self) -> Any:
        """The task of --init-from; None without."""
        return self.init_from and load_task(self.init_from)

    def adapt(self, model: keras.Model) -> None:
        """Freezes what --freeze and --lora-rank ask for."""
        training.freeze(model, self.freeze)
        if self.lora_rank:
            training.enable_lora(model, self.lora_rank)

    def read_mix(self) -> Any:
        """The data to mix in; None: no such data."""
        return None

    def mix(self, train: Any) -> Any:
        """The training data, with a share of that to mix in."""
        others = self.read_mix()
        return train if others is None else data.mix(train, others, self.mix_share, self.seed)


def parse(description: str, recipes: dict[str, Any]) -> Any:
    """Options from the command line; those that it does not give are the recipe's.

    With --resume, they are those of the run in --output, and only --epochs may change.

    Args:
        description: docstring of the script, for --help.
        recipes: options by name; the first are the default without data, the second with data.

    Returns:
        Options of the same class.

    Raises:
        ValueError: If an option is out of range, may not change, is given twice, or is not used
            with the others.
    """
    words, (without_data, *others) = sys.argv[1:], recipes
    named = option_names(words)
    if "--version" in words:
        print(f"keras-transformer {kt.__version__}")
        sys.exit()
    unset = {name: value for pair in ALTERNATIVES for name, value in pair.items()}
    without_help = [word for word in words if word not in ("-h", "--help")]
    blank = recipes[without_data].replace(**unset, output=None)
    given = _read(without_help, blank, recipes)
    empty = [n for n, v in given.items() if v in ("", ("",)) and v != blank.flat()[n]]
    check(not empty, "Each option must have a value, or be left out", empty=_flags(empty))
    has_data = any(given[name] for name in blank.FILES)
    initial = None if given["resume"] else _check_initial(given["init_from"], blank)
    default = others[0] if others and has_data else without_data
    if initial and initial.task == blank.TASK:
        default = "fine-tune"
    recipe = given["recipe"] or default
    defaults = recipes[recipe].replace(recipe=recipe)
    provided = defaults.provided_by(initial) if initial else {}
    defaults = defaults.replace(**provided)
    if given["resume"]:
        return _resume(words, given["output"] or defaults.output, defaults, recipes)
    for pair in ALTERNATIVES:
        if any(given[option] != value for option, value in pair.items()):
            defaults = defaults.replace(**pair)
    if words != without_help:
        print(f"{description.strip()}\n")  # tyro would join its lines
    options = defaults.replace(**_read(words, defaults, recipes, named=given["recipe"]))
    fixed = [n for n, value in provided.items() if options.flat()[n] != value and n not in SEARCH]
    if fixed:
        raise ValueError(f"--init-from provides these options; leave out {_flags(fixed)}.")
    check(options.output, "--output must name a folder", output=options.output)
    unused = options.unused(initial)
    for name in named:
        if name in unused:
            raise ValueError(
                f"{_flags([name])} would not be used: it needs {unused[name]}. Leave it out."
            )
    if options.overwrite:
        values = (each if isinstance(each, tuple) else [each] for each in options.flat().values())
        inputs = [each for value in values for each in value if isinstance(each, str)]
        FILES.check_inputs(options.output, inputs)
    return options


def _check_initial(path, options):
    """The summary of --init-from, a model of this task or of a related one; None without it."""
    if not path:
        return None
    summary = kt.check_file(path)
    expected = (options.TASK, *options.RELATED)
    if summary.task not in expected:
        raise ValueError(
            f"--init-from must be a {' or a '.join(expected)}; {path} holds a {summary.task}."
        )
    return summary


def _flags(names):
    return ", ".join("--" + name.replace("_", "-") for name in names)


def _resume(words, output, defaults, recipes):
    known = defaults.flat().keys()
    saved = {name: value for name, value in IN_OLDER_RUNS.items() if name in known}
    saved |= Run(output, resume=True).settings["arguments"]
    if saved.keys() != known:
        raise ValueError(f"The options in {output} are of another version; start a new run.")
    saved = {k: tuple(v) if isinstance(v, list) else v for k, v in saved.items()}
    try:
        resumed = defaults.replace(**saved)
    except (TypeError, ValueError) as error:  # only if the file was edited or damaged
        raise ValueError(f"{output}/settings.json holds an impossible option: {error}") from None
    given = _read(words, resumed, recipes)
    changed = [name for name, value in given.items() if value != saved[name]]
    fixed = [name for name in changed if name not in ("epochs", "output", "resume")]
    if fixed:
        raise ValueError(
            f"A resumed run keeps its settings, except --epochs; leave out {_flags(fixed)}."
        )
    if "epochs" in changed and given["schedule"] == "cosine":
        raise ValueError(
            "With --schedule cosine the learning rate is 0 after the last epoch; leave out "
            "--epochs."
        )
    return defaults.replace(**given)


def _read(words, defaults, recipes, named=None):
    """All options by name from a command line, by tyro: a group for each dataclass."""
    flat, docs, groups = defaults.flat(), _docs(type(defaults)), []
    for cls in (*reversed(type(defaults).__mro__), TransformerConfig):
        names = [name for name in inspect.get_annotations(cls) if name in flat]
        hints = typing.get_type_hints(cls, include_extras=True)
        fields = [
            (name, _shown(name, hints[name], docs[name], recipes, named), flat[name])
            for name in names
        ]
        if fields:
            group = dataclasses.make_dataclass(cls.__name__, fields, frozen=True)
            title = "model" if cls is TransformerConfig else cls.__name__.removesuffix("Options")
            groups.append((re.sub("(?<=[a-z])(?=[A-Z])", "_", title).lower(), group, group()))
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            parsed = tyro.cli(
                dataclasses.make_dataclass("Groups", groups),
                prog=os.path.basename(sys.argv[0]),
                description="",
                args=words,
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as end:
        if not end.code:  # --help
            raise
        print(_as_sentence(box.getvalue()), end="", file=sys.stderr)
        raise
    return {name: value for group in vars(parsed).values() for name, value in vars(group).items()}


def _as_sentence(box):
    """The error that tyro draws in a box, or without colors between lines, in two lines."""
    lines = [line.strip(" │") for line in box.splitlines() if not line.startswith(("╭", "╰"))]
    parts = re.split("[─-]{9,}", " ".join(lines).replace("[bold]", "").replace("[/bold]", ""))
    parts = [" ".join(part.split()) for part in parts]
    error, *others = (part for part in parts if not re.fullmatch(r"[\w ]*", part))  # no title
    meant = [re.findall(r"--[\w-]+", part) for part in others if "Perhaps you meant" in part]
    hint = f" Perhaps you meant {', '.join(meant[0])}." if meant else ""
    return f"{_in_words(error).rstrip('.')}.{hint}\n{others[-1]}.\n"


def _in_words(error):
    """An error of tyro about the types of an option's values, in words."""
    pattern = (
        r"Error parsing (--[\w-]+): no type matching (.*?) could be instantiated from \[(.*?)\]"
    )
    found = re.match(pattern, error)
    if not found:
        return error
    option, types, received = found.groups()
    kinds = [kind for kind in re.findall("[^{}|]+", types) if kind != "None"]
    words = {"INT": "an integer", "FLOAT": "a number", "STR": "one value", "STR STR": "two values"}
    expected = " or ".join(words.get(kind, kind) for kind in kinds)
    return f"{option} takes {expected}; received {received or 'none'}"


def _docs(cls):
    """Descriptions of the fields, from the docstrings of a dataclass, its bases and its model."""
    classes = [TransformerConfig, *reversed(cls.__mro__)]
    params = [p for each in classes for p in docstring_parser.parse(each.__doc__ or "").params]
    return {param.arg_name: " ".join(param.description.split()) for param in params}


def _shown(name, hint, doc, recipes, named):
    """The type of an option with its help: the default, or the value of each recipe."""
    if name == "recipe":
        first, *others = recipes
        default = f"(default: {first}{f'; with data: {others[0]}' if others else ''})"
        names = f"{{{','.join(recipes)}}}"
        shown = tyro.conf.arg(metavar=names, help=doc, help_behavior_hint=default)
        return Annotated[Literal[*recipes] | None, shown]
    names_of_value = {}
    for recipe, options in recipes.items():
        names_of_value.setdefault(_text(options.flat()[name]), []).append(recipe)
    values = "; ".join(f"{', '.join(names)}: {text}" for text, names in names_of_value.items())
    if len(names_of_value) == 1:
        values = f"default: {next(iter(names_of_value))}"
    elif named:
        values = f"default: {_text(recipes[named].flat()[name])}; {values}"
    metavar = {int | None: "INT", float | None: "FLOAT"}.get(hint)
    shown = tyro.conf.arg(metavar=metavar, help=doc, help_behavior_hint=f"({values})")
    return Annotated[hint, shown]


def _text(value):
    if isinstance(value, bool):
        return "on" if value else "off"
    return {None: "none", "": "empty"}.get(value, str(value))


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


def print_end(run: Run, command: str = "predict") -> None:
    """Prints where a run is, and the command that asks its model.

    Args:
        run: `Run`, finished.
        command: command of keras-transformer that asks it.
    """
    words = shlex.join(["keras-transformer", command, f"{run.folder}/model.keras"])
    print(f"The run is in {run.folder}. Try: {words}")


@contextlib.contextmanager
def naming_lines(options: RunOptions, split: str, *sides: Sequence) -> Iterator[None]:
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
        paths = [path for name in names if (path := getattr(options, name, None))]
        line = data.find_line(paths, sides[error.side][error.number]) if sides else None
        found = f"{line}: the text {error.problem}" if line else f"The {split} data: {error}"
        raise ValueError(found) from None


def set_up(options: TrainingOptions) -> None:
    """Determinism, memory, threads, devices, seed and precision; before the first operation."""
    if options.deterministic:
        backend.make_deterministic()
    backend.keep_freed_memory()
    backend.leave_pipelines_untuned()
    if options.threads:
        backend.set_num_threads(options.threads)
    if options.compilation_cache:
        backend.keep_programs(options.compilation_cache)
    distribution.use_devices(options.devices, options.model_parallel)
    distribution.check_update(bool(options.clip_norm), options.accumulate > 1)
    if not distribution.is_first_process():
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # each line is printed once
    keras.utils.set_random_seed(options.seed)
    keras.config.set_dtype_policy(
        "float32" if options.precision == "float32" else f"mixed_{options.precision}"
    )


def make_optimizer(options: TrainingOptions, num_batches: int) -> keras.optimizers.Adam:
    """Adam with a learning rate that rises to its peak and then decays.

    Schedules and moving averages of Keras count batches. The options count updates: one per
    --accumulate batches.

    Args:
        options: `TrainingOptions`.
        num_batches: int, batches of all epochs.
    """
    warmup_steps = options.warmup_steps * options.accumulate
    if options.schedule == "cosine":
        learning_rate = keras.optimizers.schedules.CosineDecay(
            initial_learning_rate=0.0,
            warmup_target=options.learning_rate,
            warmup_steps=warmup_steps,
            decay_steps=max(1, num_batches - warmup_steps),
        )
    else:
        learning_rate = kt.WarmupSchedule.with_peak(options.learning_rate, warmup_steps)
    return kt.paper_optimizer(
        learning_rate,
        global_clipnorm=options.clip_norm,
        use_ema=bool(options.ema),
        ema_momentum=(options.ema or 0.99) ** (1 / options.accumulate),
        gradient_accumulation_steps=options.accumulate if options.accumulate > 1 else None,
    )


def prepare_words(
    options: Any,
    model_class: type[keras.Model],
    sentences: Sequence[list[list[str]]],
    label_ids: Sequence[list],
    num_labels: int,
    initial: Any,
) -> tuple[keras.Model, kt.WordVocabulary, kt.WordBatches, kt.WordBatches]:
    """Model and batches from words, for a tagger or a classifier.

    Args:
        options: `LabelOptions`.
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
        limits = options.min_count, options.max_characters
        vocabulary = kt.WordVocabulary.learn(sentences[0], *limits)

    word_ids, character_ids = vocabulary.encode(sentences[0])

    def resample(epoch):  # word dropout: other words become unknown in every epoch
        kept = kt.word_dropout(word_ids, options.forget, (options.seed, epoch))
        return kept, character_ids, label_ids[0]

    with naming_lines(options, "training", sentences[0]):
        train = kt.WordBatches(
            word_ids,
            character_ids,
            label_ids[0],
            seed=options.seed,
            resample=resample if options.forget else None,
            **options.budget,
        )
    encoded = vocabulary.encode(sentences[1])
    with naming_lines(options, "validation", sentences[1]):
        valid = kt.WordBatches(*encoded, label_ids[1], shuffle=False, **options.budget)

    sizes = vocabulary.num_words, vocabulary.num_characters, num_labels, vocabulary.max_characters
    model = model_class(*sizes, options.word_stddev, options.model)
    if initial:
        model.initialize_from(initial.model, labels=type(initial).__name__ == options.TASK)
    options.adapt(model)
    return model, vocabulary, train, valid


def known_labels(options: FineTuningOptions, initial: Any, labels: set[str]) -> list[str]:
    """The labels of the data, or those of the model of --init-from, if it has labels of this kind.

    Raises:
        ValueError: The data has a label that the model does not have.
    """
    if type(initial).__name__ != options.TASK:
        return sorted(labels)
    lacks = sorted(labels - set(initial.labels))
    check(
        not lacks,
        f"The labels must be among those of {options.init_from}, {', '.join(initial.labels)}",
        labels=", ".join(lacks),
    )
    return initial.labels


def check_initial_vocabulary(
    options: FineTuningOptions, tokenizers: Sequence[Any], initial: Sequence[Any] | None
) -> None:
    """Raises a ValueError if the corpora of --prepared have another vocabulary than --init-from.

    Args:
        options: `FineTuningOptions`.
        tokenizers: those of the corpora, one per side.
        initial: those of the initial model; None without one.
    """
    if not initial:
        return
    if not all(isinstance(each, kt.SentencePieceTokenizer) for each in initial):
        raise ValueError(
            f"--prepared holds ids of SentencePiece; {options.init_from} has another kind of "
            "vocabulary. Give it training data as files."
        )
    if [each.proto for each in initial] != [each.proto for each in tokenizers]:
        raise ValueError(
            f"--prepared must have the vocabulary of {options.init_from}: prepare the corpus with "
            f"--vocabulary-from {options.init_from}."
        )


def _check_tensorboard():
    """The callback of Keras would find out after the first epoch."""
    try:
        import tensorboard  # noqa: F401
        import tensorflow  # noqa: F401
    except ImportError:
        raise ImportError(
            "--tensorboard needs TensorFlow and TensorBoard: pip install tensorflow tensorboard. "
            "history.csv contains the same numbers."
        ) from None
