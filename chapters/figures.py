"""Shared by the chapters: figures in one style, a font for Chinese, numbers, headings, run time."""

import atexit
import json
import logging
import os
import pathlib
import re
import sys
import time

import keras
import numpy as np
from keras import ops
from matplotlib import rcParams
from matplotlib.category import StrCategoryLocator
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator

from keras_transformer import backend, plots

# Okabe and Ito's colors: distinct for color-blind readers, and as shades of gray.
BLUE, ORANGE, GREEN, PURPLE, BLACK = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000"

CHAPTER = pathlib.Path(sys.argv[0]).stem
ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "runs" / "chapters"
LANGUAGE = "en"  # of the words on figures: "zh" in the notebooks of the Chinese edition
START = time.perf_counter()
NUMBERS = {}
FULL = bool(os.environ.get("FULL"))  # slow halves too, whose numbers the gallery shows
STARTS = 3 if FULL else 1  # of the trainings that a chapter compares

if keras.backend.backend() != "tensorflow":
    # keras.utils.set_random_seed imports TensorFlow where it is installed: 2 s, and its log
    sys.modules.setdefault("tensorflow", None)
logging.getLogger("tensorflow").setLevel(logging.ERROR)  # it warns when it traces several shapes
backend.speed_up_training()
backend.set_num_threads(1)  # the models of the chapters are so small that two take longer


class WithHeadings:
    """The output of a chapter that runs as a program, each section under its heading.

    A heading is printed before the first output of the cells below it. (A notebook shows it.)
    """

    def __init__(self, stream, chapter):
        lines = enumerate(chapter.read_text("utf-8").splitlines(), start=1)
        self.headings = [(number, line[2:]) for number, line in lines if re.match("# ##? ", line)]
        self.stream, self.name = stream, chapter.name

    def write(self, text):
        frame = sys._getframe(1)  # whoever prints: go back to the line of the chapter that calls it
        while frame and not self.is_chapter(frame.f_code):
            frame = frame.f_back
        while frame and self.headings and self.headings[0][0] < frame.f_lineno:
            self.stream.write(f"\n{self.headings.pop(0)[1]}\n\n")
        return self.stream.write(text)

    def is_chapter(self, code):
        return code.co_name == "<module>" and pathlib.Path(code.co_filename).name == self.name

    def __getattr__(self, name):
        return getattr(self.stream, name)


def panels(columns=1, rows=1, width=4.0, height=3.0):
    """A figure and its panels of `width` by `height` inches: one panel, a row or a grid."""
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for panel in axes.flat:
        panel.spines[["top", "right"]].set_visible(False)
    if rows > 1:
        return figure, axes
    return figure, axes[0] if columns > 1 else axes[0, 0]


def show(figure, name):
    """Writes runs/chapters/<name>.png, and displays it in a notebook."""
    if LANGUAGE == "zh":
        translate(figure)
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.png"
    figure.savefig(path, dpi=120)
    if "ipykernel" in sys.modules:
        from IPython.display import Image, display

        display(Image(path, width=round(figure.get_figwidth() * 80)))
    else:
        print(f"figure: {path.relative_to(ROOT)}")


def translate(figure):
    """Changes the words on a figure to Chinese."""
    import labels

    for panel in figure.axes:
        for axis in (panel.xaxis, panel.yaxis):
            if isinstance(axis.get_major_locator(), FixedLocator | StrCategoryLocator):  # words
                ticks = [text.get_text() for text in axis.get_ticklabels()]
                if (chinese := list(map(labels.in_chinese, ticks))) != ticks:
                    axis.set_ticks(axis.get_ticklocs(), chinese)
    for text in figure.findobj(Text):
        text.set_text(labels.in_chinese(text.get_text()))


def plot_alignment(weights, source_tokens, target_tokens, alignment=()):
    """Attention averaged over the heads: a dot marks the largest weight of each row.

    Args:
        weights: (target, source) or (heads, target, source), the cross-attention of one example.
        source_tokens: tokens of the columns.
        target_tokens: tokens of the rows.
        alignment: pairs (target index, source index) that are known, each drawn as a ring.

    Source: after Bahdanau et al. (2015), figure 3.
    """
    mean = ops.convert_to_numpy(weights).reshape(-1, len(target_tokens), len(source_tokens)).mean(0)
    row_label = plots.BEING_WRITTEN
    figure = plots.plot_attention(mean, source_tokens, target_tokens, row_label=row_label)
    panel = figure.axes[0]
    for target, source in alignment:
        panel.plot(source, target, "o", markersize=13, fillstyle="none", color=ORANGE)
    panel.plot(mean.argmax(axis=1), range(len(mean)), ".", color="white", markeredgecolor="black")
    marks = "dot: largest weight" + ("; ring: known link" if alignment else "")
    panel.set_xlabel(f"{panel.get_xlabel()}\n({marks})")
    return figure


def plot_positional_encoding(table):
    """A table (length, d_model): each column is the vector added at one position.

    Source: after Géron (2022), "Hands-On Machine Learning", 3rd edition, figure 16-9.
    """
    table = ops.convert_to_numpy(table)
    figure = Figure(figsize=(9, 4), layout="constrained")
    panel = figure.add_subplot(xlabel="position", ylabel="dimension")
    limit = np.abs(table).max()  # white stands for zero
    image = panel.imshow(table.T, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    panel.locator_params(integer=True)
    figure.colorbar(image, label="value added to the embedding", pad=0.02)
    return figure


def who_moves(call, tokens, smallest=1e-5):
    """[i, j]: whether output i of `call` moves when token j changes; tokens (1, length, width)."""
    before, columns = ops.convert_to_numpy(call(tokens)), []
    for j in range(tokens.shape[1]):
        changed = tokens.copy()
        changed[:, j] += 1.0
        change = np.abs(ops.convert_to_numpy(call(changed)) - before)[0]
        columns.append(change.max(axis=-1) > smallest)
    return np.stack(columns, axis=1)


def record(tolerance=0.0, **numbers):
    """Prints numbers, and notes them for the gallery, which quotes them by chapter and name.

    A number may differ by `tolerance` on another machine; by none if it is counted or computed.
    """
    for name, number in numbers.items():
        NUMBERS[name] = [float(number), tolerance]
        print(f"for the gallery: {name} = {float(number):.6g}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{CHAPTER}.json").write_text(json.dumps(NUMBERS, indent=1) + "\n", "utf-8")


def sonnets():
    """Forty of Shakespeare's sonnets (1609, public domain), each a str of 14 lines."""
    path = ROOT / "chapters" / "sonnets.txt"
    return path.read_text("utf-8").strip().split("\n\n")


def glossed(word, gloss):
    """'我 (I)', or the gloss alone where no font has the characters."""
    return f"{word} ({gloss})" if CHINESE else gloss


def _has_chinese(families):
    fonts = [get_font(findfont(FontProperties(family=[family]))) for family in families]
    return any(font.get_char_index(ord("我")) for font in fonts)


rcParams["font.family"] = plots.font_families()
rcParams["font.size"] = 9
rcParams["legend.frameon"] = False
CHINESE = _has_chinese(rcParams["font.family"])
if not CHINESE:
    print('No Chinese font: figures show glosses; pip install ".[chapters]".', file=sys.stderr)
atexit.register(lambda: print(f"{CHAPTER}: {time.perf_counter() - START:.0f} s"))
PROGRAM = pathlib.Path(sys.argv[0])
if "ipykernel" not in sys.modules and re.match(r"\d\d_", CHAPTER) and PROGRAM.is_file():
    sys.stdout = WithHeadings(sys.stdout, PROGRAM)
