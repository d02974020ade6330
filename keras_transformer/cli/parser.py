"""The parser of the command line, of the commands and of the training scripts."""

import argparse
import collections
import difflib
import re
from collections.abc import Iterable
from typing import Any, NoReturn

from .. import __version__
from ..checks import check

SYNONYMS = {  # names that options have in other commands and toolkits
    "--columns": "--sides",
    "--sides": "--columns",
    "--lr": "--learning-rate",
    "--layers": "--num-layers",
    "--heads": "--num-heads",
}


class Parser(argparse.ArgumentParser):
    """An error is one line; argparse writes the whole usage before it. No name may be cut short."""

    def __init__(self, prog: str | None = None, description: str | None = None, **kwargs: Any):
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(prog, description=description, allow_abbrev=False, **kwargs)
        version, shown = f"keras-transformer {__version__}", "show the version and exit"
        self.add_argument("--version", action="version", version=version, help=shown)

    def error(self, message: str) -> NoReturn:
        """Ends with code 2; an unknown option is answered with those of a similar name."""
        hint = ""
        if unknown := re.match("unrecognized arguments: (--[^ =]+)", message):
            options = [x for x in self._option_string_actions if not x.startswith("--help")]
            named = SYNONYMS.get(unknown[1])
            near = [named] if named in options else difflib.get_close_matches(unknown[1], options)
            hint = f". Perhaps you meant {' or '.join(near)}" if near else ""
        self.exit(2, f"{self.prog}: {message.rstrip('.')}{hint}. See {self.prog} --help.\n")


def option_names(words: Iterable[str]) -> list[str]:
    """The options on a command line, each given once: "seed" of --seed=3, "rotary" of --no-rotary.

    Raises:
        ValueError: One is given twice, so that its first value would be lost.
    """
    names = []
    for word in words:
        if word == "--":  # what follows is text
            break
        if word.startswith("--"):
            name = word.partition("=")[0].replace("_", "-")
            names.append(name.removeprefix("--").removeprefix("no-").replace("-", "_"))
    for name, count in collections.Counter(names).items():
        option = "--" + name.replace("_", "-")
        check(
            count == 1, f"Give {option} once, with all of its values", **{option: f"{count} times"}
        )
    return names
