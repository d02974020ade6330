"""The command line of the training scripts, which sets the options of a task."""

import argparse
import dataclasses
import inspect
import itertools
import os
import pathlib
import re
import sys
import types
import typing
from typing import Annotated, Any, Literal

from keras_transformer import check_file
from keras_transformer.checks import check
from keras_transformer.cli.parser import Parser, option_names
from keras_transformer.data.lines import NOT_THERE
from keras_transformer.models.configuration import DEPTHS, TransformerConfig
from keras_transformer.tasks.saved_files import ADDED_OPTIONS
from keras_transformer.training import Run
from keras_transformer.training.run import FILES, read_settings
from options import ALTERNATIVES, DATA, OF_TAGS, PairOptions, TrainingOptions, Translation, flags

SEARCH = ("beams", "length_penalty")  # a model file provides them, and they may change
# Options newer than some runs, and what these do without them.
IN_OLDER_RUNS = {n: getattr(TransformerConfig, n) for n in ADDED_OPTIONS}
NEWER = ("num_buckets", "optimizer", "weight_decay", "decay_share", "simcut", "cutoff")
IN_OLDER_RUNS |= {n: getattr(TrainingOptions, n) for n in NEWER}
OF_TEACHERS = ("distill_from", "monolingual", "back_translator", "back_tag", "engine")
IN_OLDER_RUNS |= {n: getattr(Translation, n) for n in OF_TEACHERS}
IN_OLDER_RUNS |= {"callback": (), "quoted": False, "clean": False, "reserve": ()}
IN_OLDER_RUNS |= {n: getattr(PairOptions, n) for n in ("placeholders", "language_tags", *OF_TAGS)}
REMOVED = {"steps_per_execution": 1, "data_dir": None}  # from older runs, and their effect today
WORDS = {"None": "none", "()": "empty", "": "empty", "True": "on", "False": "off"}
NONE = "An option with the default none also takes that value: --clip-norm none."
# Options of `TransformerConfig` that --help leaves to --help-all.
RARE = (
    "activation",
    "attention_dropout",
    "layer_norm_epsilon",
    "logits_bias",
    "max_length",
    *DEPTHS,
)


def parse(description: str, recipes: dict[str, Any]) -> Any:
    """Options from the command line; those that it does not give are the recipe's.

    With --config, they are those of another run, and with --resume those of the run in --output, of
    which only --epochs may change.

    Args:
        description: docstring of the script, for --help.
        recipes: options by name; the first are the default without data, the second with data,
            unless they fine-tune.

    Returns:
        Options of the same class.

    Raises:
        ValueError: If an option is out of range, may not change, is given twice, or is not used
            with the others.
    """
    first = next(iter(recipes.values()))
    option_names(sys.argv[1:])
    given = _tuples(vars(_parser(description, recipes).parse_args()))
    empty = [name for name, value in given.items() if value in ("", ("",)) and name != "prompt"]
    check(not empty, "Each option must have a value, or be left out", empty=flags(empty))
    config = _read_config(given, first) if "config" in given else {}
    named, resume = config | given, given.get("resume")
    initial = None if resume else _check_initial(named.get("init_from"), first)
    without_data, with_data = _default_names(recipes)
    default = with_data if any(map(named.get, DATA)) else without_data
    if initial and initial.task == first.TASK:
        default = "fine-tune"
    recipe = named.get("recipe") or default
    check(recipe in recipes, f"recipe must be one of {', '.join(recipes)}", recipe=recipe)
    values = recipes[recipe].flat() | {"recipe": recipe} | config
    if resume:
        return _resume(given, given.get("output") or values["output"], first)
    provided = first.of(**values).provided_by(initial) if initial else {}
    values |= {n: v for n, v in provided.items() if not (n in SEARCH and n in config)}
    for pair in ALTERNATIVES:
        if any(name in given and given[name] != value for name, value in pair.items()):
            values |= pair
    options = first.of(**values | given)
    flat = options.flat()
    check(flat["output"], "--output must name a folder", output=flat["output"])
    fixed = [n for n, value in provided.items() if flat[n] != value and n not in SEARCH]
    if fixed:
        raise ValueError(f"--init-from provides these options; leave out {flags(fixed)}.")
    unused = options.unused(initial)
    for name in filter(unused.get, given):
        needs = f"it needs {unused[name]}. Leave it out."
        raise ValueError(f"{flags([name])} would not be used: {needs}")
    if flat["overwrite"]:
        values = itertools.chain(*(v if isinstance(v, tuple) else [v] for v in flat.values()))
        FILES.check_inputs(flat["output"], [each for each in values if isinstance(each, str)])
    return options


def _default_names(recipes):
    """The names of the recipes without data and with data."""
    names = [name for name in recipes if name != "fine-tune"]
    return names[0], names[:2][-1]


def _check_initial(path, options):
    """The summary of --init-from, a model of this task or of a related one; None without it."""
    if not path:
        return None
    summary, expected = check_file(path), (options.TASK, *options.RELATED)
    if summary.task not in expected:
        must = f"--init-from must be a {' or a '.join(expected)}"
        raise ValueError(f"{must}; {path} holds a {summary.task}.")
    return summary


def _tuples(values):
    values = {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
    several = [n for n, v in values.items() if isinstance(v, tuple) and None in v and len(v) > 1]
    expected = "none must stand alone; for a file of that name, write ./none"
    check(not several, expected, options=flags(several))
    return {n: None if v == (None,) else v for n, v in values.items()}  # --valid none


def _saved(settings, known):
    """The options in a settings.json, and the known ones that were added since, as it had them."""
    saved = _tuples(settings["arguments"])
    saved = {n: v for n, v in saved.items() if n not in REMOVED or v != REMOVED[n]}
    return {n: v for n, v in IN_OLDER_RUNS.items() if n in known} | saved


def _read_config(given, options):
    """The options of --config, which is left out of those given."""
    path = pathlib.Path(given.pop("config"))
    expected = "--config has the options of a recipe and more: leave out --recipe"
    check("recipe" not in given, expected, recipe=given.get("recipe"))
    path = path / "settings.json" if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(NOT_THERE.format(path))
    known = options.flat().keys()
    config = _saved(read_settings(path), known) | {"resume": False, "overwrite": False}
    unknown = config.keys() - known
    names = flags(sorted(unknown))
    check(not unknown, f"{path} must hold options of this task", unknown=f"{names:.80}")
    return config


def _resume(given, output, options):
    known = options.flat().keys()
    saved = _saved(Run(output, resume=True).settings, known)
    if saved.keys() != known:
        raise ValueError(f"The options in {output} are of another version; start a new run.")
    try:
        saved = options.of(**saved).flat()
    except (TypeError, ValueError) as error:  # only if the file was edited or damaged
        raise ValueError(f"{output}/settings.json holds an impossible option: {error}") from None
    changed = [name for name, value in given.items() if value != saved[name]]
    fixed = [name for name in changed if name not in ("epochs", "output", "resume")]
    if fixed:
        kept = "A resumed run keeps its settings, except --epochs"
        raise ValueError(f"{kept}; leave out {flags(fixed)}.")
    if "epochs" in changed and saved["schedule"] in ("cosine", "wsd"):
        ended = f"With --schedule {saved['schedule']} the learning rate is 0 after the last epoch"
        raise ValueError(f"{ended}; leave out --epochs.")
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
    config = "another run, or its settings.json, whose options this new run starts from"
    unless = "not with --recipe; a resumed run has its own"
    parser.add_argument("--config", metavar="RUN", help=f"{config}; {unless}")
    task = type(next(iter(recipes.values())))
    own, hidden = described(task)
    groups = [f.type for f in dataclasses.fields(task) if dataclasses.is_dataclass(f.type)]
    for cls in (*groups, task):
        docs, rare = described(cls)
        group = parser.add_argument_group(str(cls.__doc__).splitlines()[0].rstrip("."))
        for name, hint in typing.get_type_hints(cls, include_extras=True).items():
            if not dataclasses.is_dataclass(hint):
                text = f"{(docs | own)[name]} {_defaults(name, recipes)}".replace("%", "%%")
                if name in (*rare, *hidden, *RARE) and "--help-all" not in sys.argv:
                    text = argparse.SUPPRESS
                arguments = _argument(hint) if name != "recipe" else {"choices": [*recipes]}
                group.add_argument(*flags([name]).split(), help=text, **arguments)
    return parser


def described(cls: type) -> tuple[dict[str, str], list[str]]:
    """Descriptions of the fields of a dataclass, and the names of the rare ones."""
    found: dict[str, dict[str, str]] = {"Args": {}, "Rare": {}}
    for section, lines in re.findall(r"^(Args|Rare):\n((?: {4}.*\n?)+)", inspect.getdoc(cls), re.M):
        entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", lines, re.M)
        found[section] = {name: " ".join(text.split()) for name, text in entries}
    return found["Args"] | found["Rare"], [*found["Rare"]]


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
    expected = {int: "an integer", float: "a number", str: "a text"}[kind]

    def convert(text):
        if optional and text.lower() == "none":
            return None
        try:
            return kind(text)
        except ValueError:
            message = f"expected {expected}; received {text!r}"
            raise argparse.ArgumentTypeError(message) from None

    word = word or {int: "INT", float: "FLOAT", str: "NAME"}[kind]
    metavar = tuple(word.split()) if arguments.get("nargs") == 2 else word
    return arguments | {"type": convert, "metavar": metavar}


def _defaults(name, recipes):
    """The default of an option, or its value in each recipe."""
    values = {recipe: options.flat()[name] for recipe, options in recipes.items()}
    if name == "recipe":
        without_data, with_data = _default_names(recipes)
        values = {"default": without_data, "with data": with_data}
    names = {}
    for recipe, value in values.items():
        names.setdefault(WORDS.get(str(value), str(value)), []).append(recipe)
    if len(names) == 1:
        names = {text: ["default"] for text in names}
    return "({})".format("; ".join(f"{', '.join(of)}: {text}" for text, of in names.items()))
