"""Small trained models that come with the package, each a .keras file with its model card.

`keras_transformer.load("dates")` loads one; wherever a command takes a model, its name will do.
"""

import os
import pathlib

FOLDER = pathlib.Path(__file__).parent
NAMES = sorted(file.stem for file in FOLDER.glob("*.keras"))


def find(path: str | os.PathLike) -> pathlib.Path:
    """The file of a model that comes with the package, or of any other.

    Args:
        path: a name in `NAMES`, or a path. An existing file or folder overrides the name.

    Returns:
        pathlib.Path, which need not exist.
    """
    if str(path) in NAMES and not pathlib.Path(path).exists():
        return FOLDER / f"{path}.keras"
    return pathlib.Path(path)
