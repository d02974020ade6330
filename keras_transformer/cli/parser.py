"""The parser of the command line, of the commands and of the training scripts."""

import argparse
import difflib
import re
from typing import Any, NoReturn

from .. import __version__


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
            near = difflib.get_close_matches(unknown[1], self._option_string_actions)
            hint = f". Perhaps you meant {' or '.join(near)}" if near else ""
        self.exit(2, f"{self.prog}: {message.rstrip('.')}{hint}. See {self.prog} --help.\n")
