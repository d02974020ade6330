"""Options of the training scripts: groups of fields, and the command line that sets them.

An option is a field of a dataclass: `batch_size: int | None` of `TrainingOptions` is
`--batch-size`. Its help is its entry in the docstring, and its default comes from a recipe. The
options of a task, in recipes.py, are composed of such groups.
"""

import argparse
import dataclasses
import functools
import inspect
import os
import pathlib
import re
import sys
import types
import typing
from typing import Annotated, Any, Literal, Self

import keras

from keras_transformer import check_file, data, training
from keras_transformer.checks import (
    check,
    check_above_0,
    check_at_least,
    check_from_0,
    check_rates,
    option_names,
)
from keras_transformer.cli.files import load_task
from keras_transformer.cli.parser import Parser
from keras_transformer.data.lengths import LONGEST
from keras_transformer.models.configuration import TransformerConfig
from keras_transformer.tasks.saved_files import ADDED_OPTIONS, FileSummary
from keras_transformer.training import Run
from keras_transformer.training.run import FILES, read_settings

# The type of an option, and the word for its value in --help or the check of its range.
File, Folder = Annotated[str | None, "FILE"], Annotated[str | None, "FOLDER"]
From0 = Annotated[int, functools.partial(check_at_least, 0)]
From1 = Annotated[int, functools.partial(check_at_least, 1)]
OptionalFrom1 = Annotated[int | None, functools.partial(check_at_least, 1)]

SEARCH = ("beams", "length_penalty")  # a model file provides them, and they may change
# Options newer than some runs, and what these do without them.
IN_OLDER_RUNS = {"num_buckets": 8, **{n: getattr(TransformerConfig, n) for n in ADDED_OPTIONS}}
REMOVED = {"steps_per_execution": 1, "data_dir": None}  # of older runs, and what is done today
# Of each pair, the one on the command line replaces the other one of the recipe.
ALTERNATIVES = {"batch_size": None, "tokens_per_batch": None}, {"ema": None, "average": 0}
# What --help leaves to --help-all.
RARE = set(
    "compilation_cache devices model_parallel tensorboard num_buckets logits_in_pieces activation "
    "attention_dropout layer_norm_epsilon logits_bias max_length lora_rank freeze mix_share mix_in "
    "mix_source mix_target mix_pairs test_pairs valid_pairs prepared weights download tokens tags "
    "feature column word_stddev normalization lowercase max_ratio unique bleu_sentences "
    "subword_alpha diversify checkpoint_every ema length_penalty max_characters".split()
)


NONE = "An option with the default none also takes that value: --clip-norm none."


class Group:
    """Base of a group of options, whose ranges are checked."""

    def __post_init__(self):
        for name, hint in typing.get_type_hints(type(self), include_extras=True).items():
            for range_check in getattr(hint, "__metadata__", ()):
                if callable(range_check) and getattr(self, name) is not None:
                    range_check(**{name: getattr(self, name)})
            if typing.get_origin(hint) is Literal:  # settings.json may hold anything
                choices = typing.get_args(hint)
                expected = f"{name} must be one of {', '.join(map(str, choices))}"
                check(getattr(self, name) in choices, expected, **{name: getattr(self, name)})


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(Group):
    """The run as a whole.

    Args:
        recipe: Recipe that provides the defaults.
        output: Run folder.
        resume: Resume the run in --output with its original settings; only --epochs may change, and
            only with --schedule paper.
        overwrite: Replace a run that --output already contains.
        seed: Random seed (data, weights, shuffling, dropout).
        deterministic: Bit-exact reproducibility, slightly slower.
        precision: Compute dtype; weights stay float32.
        threads: Intra-op threads on TensorFlow and PyTorch; none: all cores.
        devices: Number of devices, over all processes, that share each batch (docs/devices.md).
        model_parallel: Number of devices over which the weights are split, a divisor of --devices
            (JAX only).
        compilation_cache: Folder that keeps compiled programs for later runs (JAX only).
        tensorboard: Write TensorBoard logs; needs TensorFlow and TensorBoard.
    """

    recipe: str | None = None
    output: Folder = None
    resume: bool = False
    overwrite: bool = False
    seed: From0 = 0
    deterministic: bool = False
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    threads: OptionalFrom1 = None
    devices: From1 = 1
    model_parallel: From1 = 1
    compilation_cache: Folder = None
    tensorboard: bool = False

    def __post_init__(self):
        super().__post_init__()
        if self.tensorboard:
            _check_tensorboard()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions(Group):
    """Batches, updates and when to stop.

    Args:
        epochs: Passes over the training data.
        learning_rate: Peak learning rate.
        warmup_steps: Linear warm-up, in updates.
        schedule: Decay after the warm-up: paper (as 1/sqrt(step)) or cosine (to 0).
        batch_size: Examples per batch (alternative: --tokens-per-batch).
        tokens_per_batch: Maximum (target) tokens per batch, padding included.
        num_buckets: Length buckets, that is shapes of batches. More buckets mean less padding, but
            JAX compiles each shape.
        accumulate: Gradient accumulation, in batches per update.
        label_smoothing: Share of the probability spread over the vocabulary.
        clip_norm: Maximum global gradient norm.
        ema: Momentum of an exponential moving average of the weights, which is saved.
        average: Checkpoint averaging: number of last epochs whose mean is saved; 0: none.
        r_drop: R-Drop: weight of the divergence between two dropout passes (paper: 5).
        patience: Early stopping: epochs without improvement of the validation perplexity (of
            labels: accuracy; of translations, on request: BLEU). The best epoch is saved, or with
            --average the mean of the last ones (with a recipe that averages, add --average 0 to
            keep the best epoch).
        checkpoint_every: Updates after which a checkpoint is also saved within an epoch.
    """

    epochs: From1
    learning_rate: Annotated[float, check_above_0]
    warmup_steps: From1
    schedule: Literal["paper", "cosine"] = "paper"
    batch_size: OptionalFrom1 = None
    tokens_per_batch: OptionalFrom1 = None
    num_buckets: From1 = 8
    accumulate: From1 = 1
    label_smoothing: Annotated[float, check_rates] = 0.1
    clip_norm: Annotated[float | None, check_above_0] = None
    ema: Annotated[float | None, check_rates] = None
    average: From0 = 0
    r_drop: Annotated[float | None, check_from_0] = None
    patience: OptionalFrom1 = None
    checkpoint_every: OptionalFrom1 = None

    def __post_init__(self):
        super().__post_init__()
        if self.batch_size and self.tokens_per_batch:
            raise ValueError("Give --batch-size or --tokens-per-batch, not both.")
        if self.ema and self.average:
            raise ValueError("Give --ema or --average, not both: each replaces the weights.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningOptions(Group):
    """Fine-tuning: training a saved model further on other data.

    Args:
        init_from: Saved model, or the name of one that comes with the package, that provides
            vocabulary, sizes and initial weights. Without --recipe a model of the same task uses
            the recipe fine-tune.
        freeze: Layers that keep their weights: embedding, encoder, decoder/block_1, ...
        lora_rank: LoRA: rank of the updates to the kernels of attention and feed-forward network;
            all other weights are kept.
        mix_share: Share of the training data that is drawn from the data to mix in, against
            forgetting.
    """

    init_from: Annotated[str | None, "MODEL"] = None
    freeze: Annotated[tuple[str, ...], "LAYER"] = ()
    lora_rank: OptionalFrom1 = None
    mix_share: Annotated[float, check_rates] = 0.25


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Base of the options of a task: groups that all tasks share. A task adds others."""

    run: RunOptions
    model: TransformerConfig
    training: TrainingOptions
    fine_tuning: FineTuningOptions

    TASK = ""  # what the script trains
    RELATED = ()  # other tasks that it can be initialized from
    FILES = ()  # the options that name data
    MIX = ()  # the options that name data to mix in

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Options from values by name; others have the defaults of their groups."""
        own = {}
        for field in dataclasses.fields(cls):
            if dataclasses.is_dataclass(field.type):
                names = [each.name for each in dataclasses.fields(field.type)]
                own[field.name] = field.type(**{n: values.pop(n) for n in names if n in values})
        return cls(**own, **values)

    def flat(self) -> dict[str, Any]:
        """All options by name, as settings.json contains them."""
        flat = {}
        for name, value in vars(self).items():
            flat |= vars(value) if dataclasses.is_dataclass(value) else {name: value}
        return flat

    def replace(self, **changes: Any) -> Self:
        """A copy with some options changed, by name."""
        return self.of(**self.flat() | changes)

    def __post_init__(self):
        model, output = self.fine_tuning.init_from, self.run.output
        if model and output:
            inside = pathlib.Path(output).resolve() in pathlib.Path(model).resolve().parents
            check(not inside, "--init-from must not be within --output", init_from=model)

    @property
    def has_data(self) -> bool:
        """Whether the command line names any data."""
        return any(self.flat()[name] for name in self.FILES)

    def unused(self, initial: FileSummary | None) -> dict[str, str]:
        """The options that this combination does not use, by name, each with what uses it.

        Args:
            initial: summary of the file of --init-from; None without.
        """
        unused = {} if self.has_data else dict.fromkeys(self.MIX, "training data")
        if not any(self.flat()[name] for name in self.MIX):
            unused["mix_share"] = "data to mix in"
        return unused

    def provided_by(self, summary: FileSummary) -> dict[str, Any]:
        """The options that a model file provides."""
        sizes = dataclasses.asdict(summary.config)
        return {name: value for name, value in sizes.items() if name not in self.rates}

    @property
    def rates(self) -> dict[str, float]:
        """The dropout rates: options of the training, not of a model to initialize from."""
        return {name: getattr(self.model, name) for name in ("dropout", "attention_dropout")}

    @property
    def budget(self) -> dict[str, int | None]:
        """The sizes of batches, and the longest text that the finished task reads."""
        names = ("batch_size", "tokens_per_batch", "num_buckets")
        sizes = {name: getattr(self.training, name) for name in names}
        return sizes | {"max_length": self.model.max_length or LONGEST}

    @property
    def for_callbacks(self) -> dict[str, Any]:
        """The options that `Run.callbacks` takes."""
        every = self.training.checkpoint_every
        return {
            "seed": self.run.seed,
            "average": self.training.average,
            "patience": self.training.patience,
            "tensorboard": self.run.tensorboard,
            "checkpoint_every": every and every * self.training.accumulate,  # in batches
        }

    def load_initial(self) -> Any:
        """The task of --init-from; None without."""
        return self.fine_tuning.init_from and load_task(self.fine_tuning.init_from)

    def adapt(self, model: keras.Model) -> None:
        """Freezes what --freeze and --lora-rank ask for."""
        training.freeze(model, self.fine_tuning.freeze)
        if self.fine_tuning.lora_rank:
            training.enable_lora(model, self.fine_tuning.lora_rank)

    def read_mix(self) -> Any:
        """The data to mix in; None without."""
        raise NotImplementedError

    def mix(self, train: Any) -> Any:
        """The training data, with a share of that to mix in."""
        others, share = self.read_mix(), self.fine_tuning.mix_share
        return train if others is None else data.mix(train, others, share, self.run.seed)


def parse(description: str, recipes: dict[str, Any]) -> Any:
    """Options from the command line; those that it does not give are the recipe's.

    With --config, they are those of another run, and with --resume those of the run in --output, of
    which only --epochs may change.

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
    first = recipes[without_data]
    option_names(words)
    given = vars(_parser(description, recipes).parse_args(words))
    given = {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
    empty = [name for name, value in given.items() if value in ("", ("",)) and name != "prompt"]
    check(not empty, "Each option must have a value, or be left out", empty=_flags(empty))
    config = _read_config(given, first) if "config" in given else {}
    initial = None
    if not given.get("resume"):
        initial = _check_initial((config | given).get("init_from"), first)
    has_data = any((config | given).get(name) for name in first.FILES)
    default = others[0] if others and has_data else without_data
    if initial and initial.task == first.TASK:
        default = "fine-tune"
    recipe = (config | given).get("recipe") or default
    check(recipe in recipes, f"recipe must be one of {', '.join(recipes)}", recipe=recipe)
    values = recipes[recipe].flat() | {"recipe": recipe} | config
    if given.get("resume"):
        return _resume(given, given.get("output") or values["output"], first)
    provided = first.of(**values).provided_by(initial) if initial else {}
    values |= {n: v for n, v in provided.items() if not (n in SEARCH and n in config)}
    for pair in ALTERNATIVES:
        if any(name in given and given[name] != value for name, value in pair.items()):
            values |= pair
    options = first.of(**values | given)
    check(options.run.output, "--output must name a folder", output=options.run.output)
    fixed = [n for n, value in provided.items() if options.flat()[n] != value and n not in SEARCH]
    if fixed:
        raise ValueError(f"--init-from provides these options; leave out {_flags(fixed)}.")
    unused = options.unused(initial)
    for name in given:
        if name in unused:
            raise ValueError(
                f"{_flags([name])} would not be used: it needs {unused[name]}. Leave it out."
            )
    if options.run.overwrite:
        values = (each if isinstance(each, tuple) else [each] for each in options.flat().values())
        inputs = [each for value in values for each in value if isinstance(each, str)]
        FILES.check_inputs(options.run.output, inputs)
    return options


def _check_initial(path, options):
    """The summary of --init-from, a model of this task or of a related one; None without it."""
    if not path:
        return None
    summary = check_file(path)
    expected = (options.TASK, *options.RELATED)
    if summary.task not in expected:
        raise ValueError(
            f"--init-from must be a {' or a '.join(expected)}; {path} holds a {summary.task}."
        )
    return summary


def _flags(names):
    return ", ".join("--" + name.replace("_", "-") for name in names)


def _saved(settings):
    """The options in the content of a settings.json, without those that no longer exist."""
    saved = {k: tuple(v) if isinstance(v, list) else v for k, v in settings["arguments"].items()}
    return {n: v for n, v in saved.items() if n not in REMOVED or v != REMOVED[n]}


def _read_config(given, options):
    """The options of --config, which is left out of those given."""
    path = pathlib.Path(given.pop("config"))
    for name in ("recipe", "resume"):
        expected = "--config begins a new run: leave out --recipe and --resume"
        check(name not in given, expected, option=f"--{name}")
    config = _saved(read_settings(path)) | {"resume": False, "overwrite": False}
    unknown = config.keys() - options.flat().keys()
    check(not unknown, f"{path} must hold options of this task", unknown=_flags(sorted(unknown)))
    return config


def _resume(given, output, options):
    known = options.flat().keys()
    saved = {name: value for name, value in IN_OLDER_RUNS.items() if name in known}
    saved |= _saved(Run(output, resume=True).settings)
    if saved.keys() != known:
        raise ValueError(f"The options in {output} are of another version; start a new run.")
    try:
        options.of(**saved)
    except (TypeError, ValueError) as error:  # only if the file was edited or damaged
        raise ValueError(f"{output}/settings.json holds an impossible option: {error}") from None
    changed = [name for name, value in given.items() if value != saved[name]]
    fixed = [name for name in changed if name not in ("epochs", "output", "resume")]
    if fixed:
        raise ValueError(
            f"A resumed run keeps its settings, except --epochs; leave out {_flags(fixed)}."
        )
    if "epochs" in changed and saved["schedule"] == "cosine":
        raise ValueError(
            "With --schedule cosine the learning rate is 0 after the last epoch; leave out "
            "--epochs."
        )
    return options.of(**saved | given)


def _parser(description, recipes):
    """A parser with a group of options per dataclass; only options that are given have values."""
    parser = Parser(
        prog=os.path.basename(sys.argv[0]),
        usage="%(prog)s [OPTION ...]",
        description=f"{description.strip()}\n\n{NONE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--help-all", action="help", help="help with the less common options")
    config = "settings.json of another run, whose options this new run starts from"
    unless = "not with --recipe or --resume"
    parser.add_argument("--config", metavar="FILE", help=f"{config}; {unless}")
    task = type(next(iter(recipes.values())))
    own = _docs(task)
    groups = [f.type for f in dataclasses.fields(task) if dataclasses.is_dataclass(f.type)]
    for cls in (*groups, task):
        group = parser.add_argument_group(str(cls.__doc__).splitlines()[0].rstrip("."))
        for name, hint in typing.get_type_hints(cls, include_extras=True).items():
            if not dataclasses.is_dataclass(hint):
                doc = own.get(name) or _docs(cls)[name]
                text = f"{doc} {_defaults(name, recipes)}".replace("%", "%%")
                if name in RARE and "--help-all" not in sys.argv:
                    text = argparse.SUPPRESS
                arguments = _argument(hint) if name != "recipe" else {"choices": [*recipes]}
                group.add_argument("--" + name.replace("_", "-"), help=text, **arguments)
    return parser


def _docs(cls):
    """Descriptions of the fields, from the docstring of a dataclass."""
    text = (inspect.getdoc(cls) or "").partition("Args:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", text, re.MULTILINE)
    return {name: " ".join(description.split()) for name, description in found}


def _argument(hint):
    """The arguments of `add_argument` for a type; `Annotated` adds the word for a value."""
    word = None
    if typing.get_origin(hint) is Annotated:
        word = next((each for each in hint.__metadata__ if isinstance(each, str)), None)
        hint = hint.__origin__
    optional = isinstance(hint, types.UnionType)
    (kind,) = [k for k in typing.get_args(hint) if k is not type(None)] if optional else [hint]
    if kind is bool:
        return {"action": argparse.BooleanOptionalAction}
    if typing.get_origin(kind) is Literal:
        return {"choices": typing.get_args(kind)}
    arguments = {}
    if typing.get_origin(kind) is tuple:
        kind, other = typing.get_args(kind)
        arguments["nargs"] = "+" if other is ... else 2
    described = {int: "an integer", float: "a number", str: "a text"}[kind]

    def convert(text):
        if optional and text.lower() == "none":
            return None
        try:
            return kind(text)
        except ValueError:
            message = f"expected {described}; received {text!r}"
            raise argparse.ArgumentTypeError(message) from None

    word = word or {int: "INT", float: "FLOAT", str: "NAME"}[kind]
    metavar = tuple(word.split()) if arguments.get("nargs") == 2 else word
    return arguments | {"type": convert, "metavar": metavar}


def _defaults(name, recipes):
    """The default of an option, or its value in each recipe."""
    first, *others = recipes
    if name == "recipe":
        return f"(default: {first}{f'; with data: {others[0]}' if others else ''})"
    recipes_of = {}
    for recipe, options in recipes.items():
        recipes_of.setdefault(_text(options.flat()[name]), []).append(recipe)
    if len(recipes_of) == 1:
        return f"(default: {next(iter(recipes_of))})"
    values = "; ".join(f"{', '.join(names)}: {text}" for text, names in recipes_of.items())
    return f"({values})"


def _text(value):
    if isinstance(value, bool):
        return "on" if value else "off"
    return {None: "none", (): "empty", "": "empty"}.get(value, str(value))


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
