"""The tables of kinds.toml and faults.toml: what is marked, and the faults that learners make."""

import dataclasses
import importlib.resources
import tomllib
from typing import Any


def read_table(name: str) -> dict[str, Any]:
    """The table of a .toml file of this folder.

    Args:
        name: str, of the file.
    """
    return tomllib.loads(importlib.resources.files(__package__).joinpath(name).read_text("utf-8"))


@dataclasses.dataclass(frozen=True)
class Fault:
    """One thing that is wrong, or that is remarked.

    Args:
        sentence: str, what is wrong.
        chapter: int, the chapter that explains it.
        changes: dict, the choices of a `Formula` that the wrong form changes.
    """

    sentence: str
    chapter: int
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.sentence} See chapter {self.chapter}, {CHAPTERS[self.chapter]}."


KINDS = read_table("kinds.toml")
FAULTS = read_table("faults.toml")
CHAPTERS = {int(number): title for number, title in FAULTS.pop("chapters").items()}
for field, table in FAULTS.items():  # by the field of a `Formula` and its wrong form
    for form, (chapter, sentence) in table.items():
        table[form] = Fault(sentence, chapter, {field: form})
OTHERS, REMARKS = FAULTS["others"], FAULTS["remarks"]


def wrong_forms(*fields: str) -> list[Fault]:
    """The faults of some choices.

    Args:
        *fields: str, fields of `Formula`.

    Returns:
        list of `Fault`, in this order.
    """
    return [fault for field in fields for fault in FAULTS[field].values()]
