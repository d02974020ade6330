"""Saved tasks on the Hugging Face Hub: the file and a model card, in one commit."""

import json
import os
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from .. import __version__
from ..checks import check
from . import addresses
from .saved_files import check_file

CARD = "README.md"
MEASURED = "## The file\n"  # what follows it is replaced by the next push
SCORES = "scores.json"  # in the folder of a run
BAR = r"\|"  # within a table
USES = {  # the task of the Hub, and a first question
    "Classifier": ("text-classification", 'classify(["..."])'),
    "MaskFiller": ("fill-mask", 'fill(["The [MASK] barks."])'),
    "Tagger": ("token-classification", 'tag(["..."])'),
    "TextGenerator": ("text-generation", 'generate(["..."])'),
    "Translator": ("translation", 'translate(["..."])'),
}
CARD_TEXT = """---
{metadata}
---

# {name}

A `{task}` for [Keras](https://keras.io), which answers the same on TensorFlow, JAX and PyTorch. The
author has not described its data, license and limits yet.

```python
import keras_transformer

task = keras_transformer.load("{address}")
print(task.{question})
```

"""


def push(
    path: str | os.PathLike,
    address: str,
    *,
    private: bool | None = None,
    scores: Mapping[str, Any] | str | os.PathLike | None = None,
    language: Iterable[str] = (),
    overwrite: bool = True,
) -> str:
    """Uploads a saved task with a model card.

    The card of a repository that has one keeps its text; the tables at its end, of the file and of
    its scores, are replaced.

    Args:
        path: the file, the folder of a run, an address, or the name of a model that comes with the
            package.
        address: "hf://USER/MODEL", whose repository is created if it does not exist.
        private: bool, whether a new repository is private; None: as the owner has set.
        scores: dict, or the JSON file of one; None: the scores.json next to a model.keras, if any.
        language: list of str, ISO 639 codes of the language or languages, such as ["zh", "en"];
            empty: those of the card that is there, if any.
        overwrite: bool, whether the repository may exist.

    Returns:
        str, the URL of the repository.

    Raises:
        ValueError: `address` is not one of a repository, or see `check_file`.
        OSError: The upload failed.
        ImportError: huggingface_hub is not installed.
    """
    expected = 'Languages are a list of codes, such as ["zh", "en"]'
    check(not isinstance(language, str), expected, language=language)
    target = addresses.of_hub(address)
    check(target["revision"] is None, "Push to an address without @REVISION", address=address)
    repository = target["repo_id"]
    if os.path.isdir(path):
        path = pathlib.Path(path, addresses.FILE)
    rows = list(_rows(_scores(path, scores)))
    hub = addresses.library(address)
    api = hub.HfApi(library_name="keras_transformer", library_version=__version__)
    with addresses.found(path) as file:
        summary = check_file(file)
        with addresses.one_sentence(address):
            url = api.create_repo(repository, private=private, exist_ok=overwrite)
            text = _introduction(hub, address, summary, list(language))
            if api.file_exists(repository, CARD):
                text = pathlib.Path(api.hf_hub_download(repository, CARD)).read_text("utf-8")
                if language:
                    card = hub.ModelCard(text)
                    card.data.language = list(language)
                    text = str(card)
            before = re.split(rf"^{MEASURED}", text, maxsplit=1, flags=re.MULTILINE)[0]
            content = f"{before.rstrip()}\n\n{_measured(summary, rows)}"
            api.create_commit(
                repository,
                [
                    hub.CommitOperationAdd(addresses.FILE, file),
                    hub.CommitOperationAdd(CARD, content.encode()),
                ],
                commit_message=f"{summary.task} of keras_transformer {__version__}",
            )
    return str(url)


def _scores(path, scores):
    """The scores of a model as a dict."""
    if scores is None:
        of_run = pathlib.Path(path).parent / SCORES
        scores = of_run if pathlib.Path(path).name == addresses.FILE and of_run.exists() else {}
    if isinstance(scores, Mapping):
        return scores
    text = pathlib.Path(scores).read_text("utf-8")
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    check(isinstance(content, dict), "Scores must be one JSON object", file=str(scores))
    return content


def _rows(scores, prefix=""):
    """Names and values of scores, those of a group included, without tables of classes."""
    for name, value in scores.items():
        name = f"{prefix}{name}".replace("_", " ")
        if isinstance(value, Mapping) and not any(isinstance(v, Mapping) for v in value.values()):
            yield from _rows(value, f"{name}, ")
        elif isinstance(value, (str, int)):
            yield name, str(value)
        elif isinstance(value, float):
            yield name, f"{value:,.4f}"


def _introduction(hub, address, summary, language):
    """The text of a new card."""
    pipeline, question = USES[summary.task]
    metadata = hub.ModelCardData(
        language=language or None,
        library_name="keras",
        pipeline_tag=pipeline,
        tags=["keras_transformer"],
    )
    return CARD_TEXT.format(
        metadata=metadata.to_yaml(),
        name=addresses.local_name(address),
        task=summary.task,
        address=address,
        question=question,
    )


def _measured(summary, rows):
    """The table of a file and the one of its scores."""
    parts = [MEASURED, _table(summary.lines().items())]
    if rows:
        parts += ["## Scores\n", _table(rows)]
    return "\n".join(parts)


def _table(rows):
    lines = (f"| {name} | {text.replace('|', BAR)} |" for name, text in rows)
    return "\n".join(["| | |", "|---|---|", *lines, ""])
