"""Push a saved model to the Hugging Face Hub, with a model card.

  keras-transformer push runs/en-de hf://USER/en-de --language en de
  keras-transformer push runs/labels/model.keras hf://USER/labels --private --scores scores.json

It needs pip install "keras3-transformer[hub]", and a token: hf auth login, or HF_TOKEN. The card,
README.md in the repository, shows how to load the model, what its file holds, and its scores. Add
data, license and limits there; the next push keeps your text.
"""

import argparse

from ..tasks.sharing import push
from .files import MODEL


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a parser."""
    add = parser.add_argument
    add("model", metavar="MODEL", help=f"folder of a run, or {MODEL}")
    add("address", metavar="ADDRESS", help="hf://USER/MODEL, which is created if it does not exist")
    add("--private", action="store_true", default=None, help="make a new repository private")
    scores = "JSON file of scores (default: the scores.json next to a model.keras)"
    add("--scores", metavar="FILE", help=scores)
    language = "ISO 639 code of the language, or those of source and target"
    add("--language", nargs="+", default=[], metavar="CODE", help=language)


def run(options: argparse.Namespace) -> None:
    """Prints where the model is."""
    names = ("private", "scores", "language")
    url = push(options.model, options.address, **{name: getattr(options, name) for name in names})
    print(f'{url} holds the model; keras_transformer.load("{options.address}") loads it.')
