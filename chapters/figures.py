"""What the chapters share: figures in one style, written and shown; Chinese; the time it took."""

import atexit
import importlib.util
import pathlib
import sys
import time

from matplotlib import font_manager, rcParams
from matplotlib.figure import Figure

# Okabe and Ito's colours: told apart by everyone, and as shades of grey.
BLUE, ORANGE, GREEN, PURPLE, BLACK = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000"

CHAPTER = pathlib.Path(sys.argv[0]).stem
FOLDER = pathlib.Path(__file__).parents[1] / "runs" / "chapters"
START = time.perf_counter()


def panels(columns=1, rows=1, width=4.0, height=3.0):
    """A figure and its panels, `width` by `height` inches each: one panel, a row or a grid."""
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for panel in axes.flat:
        panel.spines[["top", "right"]].set_visible(False)
    if rows > 1:
        return figure, axes
    return figure, axes[0] if columns > 1 else axes[0, 0]


def show(figure, name):
    """Writes runs/chapters/<name>.png; a notebook shows it, too."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.png"
    figure.savefig(path, dpi=120)
    if "ipykernel" in sys.modules:
        from IPython.display import Image, display

        display(Image(path, width=round(figure.get_figwidth() * 80)))
    else:
        print(f"figure: {path.relative_to(FOLDER.parents[1])}")


def glossed(word, gloss):
    """'我 (I)', or only the gloss where no font has the characters."""
    return f"{word} ({gloss})" if CHINESE else gloss


def _add_chinese_font():
    """True if the font of the package mplfonts is there; Matplotlib's own has no Chinese."""
    package = importlib.util.find_spec("mplfonts")
    if package is None:
        print('No Chinese font: figures show glosses; pip install ".[chapters]".', file=sys.stderr)
        return False
    path = pathlib.Path(package.origin).parent / "fonts" / "NotoSansCJKsc-Regular.otf"
    font_manager.fontManager.addfont(path)
    name = font_manager.FontProperties(fname=path).get_name()
    rcParams["font.sans-serif"] = [*rcParams["font.sans-serif"], name]
    rcParams["font.family"] = ["DejaVu Sans", name]
    return True


CHINESE = _add_chinese_font()
rcParams["font.size"] = 9
rcParams["legend.frameon"] = False
atexit.register(lambda: print(f"{CHAPTER}: {time.perf_counter() - START:.0f} s"))
