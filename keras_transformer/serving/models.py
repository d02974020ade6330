"""The models of a server, by name."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from .. import interchange, tasks
from ..checks import check
from ..tasks import addresses, saved_files
from .batching import Batcher
from .limits import Refused

LANGUAGES = re.compile(r"[a-z]{2,3}-[a-z]{2,3}(?![a-z])")  # en-de, en-de-big, not my-model


def load_models(names: Iterable[str], engine: str = "keras") -> dict[str, "tasks.Task"]:
    """Loads models.

    Args:
        names: list of str: a .keras file, its address, a name in `tasks.pretrained`, or NAME=FILE.
            A file without a name has that of its folder if it is called model.keras, else its own.
        engine: str, what decodes, see `interchange.set_engine`.

    Returns:
        dict from a name to a `Task`, in the same order.

    Raises:
        FileNotFoundError, ValueError: See `tasks.saved_files.load`; or two have the same name.
        ImportError: The engine is not installed.
    """
    models: dict[str, Any] = {}
    for each in names:
        name, equals, file = each.partition("=")
        if not equals or "/" in name:  # in a path or an address
            name, file = "", each
        name = name or addresses.model_name(file)
        check(name not in models, "Models must have different names, as NAME=FILE", name=name)
        models[name] = saved_files.load(file)
        if engine != "keras":
            interchange.set_engine(models[name], engine)
    return models


class Models:
    """Finds the model that a request means.

    Args:
        batchers: dict from a name to a `Batcher`.
    """

    def __init__(self, batchers: Mapping[str, Batcher]):
        self.batchers = batchers

    def of_kind(self, *kinds: str) -> list[Batcher]:
        """The models of some kinds of task, or all, in the order of the command line."""
        return [each for each in self.batchers.values() if not kinds or each.kind in kinds]

    def find(self, name: str | None, *kinds: str) -> Batcher:
        """The model of a name, or the first of its kind.

        Args:
            name: str; None: the first one.
            *kinds: str, the classes that its task may have; none: any.

        Raises:
            Refused: There is no such model, or it has another task.
        """
        of_kind = self.of_kind(*kinds)
        for batcher in of_kind:
            if name in (None, batcher.name):
                return batcher
        expected = " or ".join(kinds) or "model"
        known = ", ".join(each.name for each in of_kind) or "none"
        if other := self.batchers.get(name or ""):
            problem = f"{name} is a {other.kind}; expected a {expected}, one of: {known}."
            raise Refused(422, problem)
        named = "" if name is None else f" {name!r:.60}"
        raise Refused(404, f"There is no {expected}{named} here; expected one of: {known}.")

    def pairs(self) -> dict[tuple[str, str], Batcher]:
        """The translators of pairs of languages, which language tags or names such as zh-en say."""
        pairs = {}
        for batcher in self.of_kind("Translator"):
            named = LANGUAGES.match(batcher.name)
            for direction in batcher.task.directions or ([named[0]] if named else []):
                source, dash, target = direction.partition("-")
                if dash and 2 <= len(source) <= 3:
                    pairs[source, target] = batcher
        return pairs

    def describe(self) -> list[dict[str, Any]]:
        """The name, task, sizes and options of each model."""
        return [_described(each) for each in self.batchers.values()]


def _described(batcher):
    model, task = batcher.task.model, batcher.task
    config = model.config
    return {
        "name": batcher.name,
        "task": batcher.kind,
        "ready": batcher.ready,
        "layers": config.depth("encoder"),
        "decoder_layers": config.depth("decoder") if batcher.kind == "Translator" else None,
        "heads": config.num_heads,
        "d_model": config.d_model,
        "d_ff": config.d_ff,
        "parameters": model.count_params(),
        "longest_input": task.longest_input,
        "labels": list(task.labels) if batcher.kind in ("Tagger", "Classifier") else None,
    }
