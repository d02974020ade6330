"""Figures: attention maps, learning curves, confusion and calibration.

Each function returns a `matplotlib.figure.Figure` made without `pyplot`: no window, no display and
no global state. `figure.savefig("attention.png", dpi=150)` writes it; a notebook shows it.

Texts may be in any script that `font_families` covers. A character without a font is drawn as a
box, with Matplotlib's warning that names it: `pip install mplfonts` installs a font with Chinese,
Japanese and Korean; any other font goes into `matplotlib.rcParams["font.family"]`.
"""

import csv
import importlib.util
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from .checks import check

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_LABELS = 60  # of a confusion matrix
_MAX_WIDTH = 10  # inches; the text of a wider figure is too small in a README
_CELL = 0.28  # inches per token
_LETTER = 0.08  # inches per letter of a label
_GAP = 0.2  # inches between panels
BEING_WRITTEN = "token being written"  # a row of cross-attention: its query is the token before
_BLUE, _VERMILION = "#0072B2", "#D55E00"  # of Okabe and Ito's color-blind-safe palette
_MEASURES = {
    "loss": "loss (nats per token)",
    "perplexity": "perplexity (log scale)",
    "token_accuracy": "token accuracy (%)",
    "bleu": "BLEU",
}
_FALLBACK_FONTS = (
    "DejaVu Sans",  # comes with Matplotlib: Latin, Greek, Cyrillic, Arabic, Georgian, symbols
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",  # the face that Matplotlib reads of a collection of all Noto CJK fonts
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "Microsoft YaHei",
    "PingFang SC",
    "Hiragino Sans GB",
    "Malgun Gothic",
    "Arial Unicode MS",
)


def _new_figure(width, height, layout="constrained"):
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout=layout)


# Text


def font_families() -> list[str]:
    """Font families for text in any script: those of `rcParams["font.family"]`, then others.

    Matplotlib draws each character in the first family that has it. The others are the installed
    ones of a list of common fonts; the font of the package mplfonts, where present, is one of them.

    Returns:
        List of str, for `fontfamily=` or `rcParams["font.family"]`.
    """
    from matplotlib import rcParams
    from matplotlib.font_manager import fontManager

    package = importlib.util.find_spec("mplfonts")
    if package and package.origin and "Noto Sans CJK SC" not in fontManager.get_font_names():
        folder = pathlib.Path(package.origin).parent / "fonts"
        for path in folder.glob("NotoSansCJKsc-Regular.otf"):
            fontManager.addfont(path)

    families = list(rcParams["font.family"])
    available = set(fontManager.get_font_names()) - set(families)
    return families + [name for name in _FALLBACK_FONTS if name in available]


def _text_style():
    return {"fontfamily": font_families(), "parse_math": False}  # "$" is a token, not a formula


def _visible(tokens):
    r"""The tokens with a mark for what would leave none: "␣" for a space, "\n" for a newline."""
    tokens = [str(token) if str(token).strip(" ") else "␣" * len(token) for token in tokens]
    return ["".join(c if c.isprintable() else repr(c)[1:-1] for c in token) for token in tokens]


def _label_ticks(axis, texts):
    axis.set_ticks(range(len(texts)), texts, fontsize=9, **_text_style())
    axis.set_tick_params(length=0)
    are_words = np.median([len(text) for text in texts]) > 2
    for label, text in zip(axis.get_ticklabels(), texts, strict=True):
        if axis.axis_name == "x" and (are_words or len(text) > 2):
            # At 45 degrees one long label among single characters would cover its neighbors.
            label.set(rotation=45 if are_words else 90, rotation_mode="anchor")
            label.set(horizontalalignment="right", verticalalignment="center")


def _label_width(texts):
    return _LETTER * max(len(text) for text in texts)


# Attention


def plot_attention(
    weights: Any,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    title: str | None = None,
    row_label: str = "query token",
) -> "Figure":
    """Heat maps of attention weights, one panel per head; a row is one query's distribution.

    All panels share one color scale from 0 to 1.

    Args:
        weights: Float array or tensor (target, source) or (heads, target, source) of one
            example, or a dict from the name of a layer to such an array.
        source_tokens: List of str, the tokens of the keys, one per column.
        target_tokens: List of str, the tokens of the queries, one per row.
        title: str above the panels, or `None`.
        row_label: str, label of the rows. While a decoder writes, the query of a row comes from the
            token before, and `BEING_WRITTEN` says what the row belongs to.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        ValueError: If the shape of the weights does not fit the tokens, or a weight lies
            outside 0 to 1, as scores before the softmax do.
    """
    layers = weights if isinstance(weights, dict) else {"": weights}
    check(layers, "weights must hold at least one layer", weights=layers)
    shape = (len(target_tokens), len(source_tokens))
    titled = [_titled_heads(name, _check_weights(layer, shape)) for name, layer in layers.items()]
    source_labels, target_labels = _visible(source_tokens), _visible(target_tokens)

    height, width = (max(_CELL * size, 1.7) for size in shape)
    margin = _label_width(target_labels) + 1.2
    num_columns = _num_columns(max(map(len, titled)), (_MAX_WIDTH - margin) / (width + _GAP))
    rows = [
        heads[i : i + num_columns] for heads in titled for i in range(0, len(heads), num_columns)
    ]
    figure = _new_figure(
        num_columns * (width + _GAP) + margin,
        len(rows) * (height + 0.25) + 0.7 * _label_width(source_labels) + 0.7,
        layout="compressed",
    )
    grid = figure.add_gridspec(len(rows), num_columns)
    lowest = {}
    for row, heads in enumerate(rows):
        for column, (name, head) in enumerate(heads):
            panel = figure.add_subplot(grid[row, column], xticks=[], yticks=[])
            panel.set_title(name, fontsize=10, **_text_style())
            image = panel.imshow(head, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
            lowest[column] = panel
            if column == 0:
                panel.set_ylabel(row_label)
                _label_ticks(panel.yaxis, target_labels)
    for panel in lowest.values():
        panel.set_xlabel("key token")
        _label_ticks(panel.xaxis, source_labels)
    if title is not None:
        figure.suptitle(title, fontsize=12, **_text_style())
    figure.colorbar(image, ax=figure.axes, label="attention weight", fraction=0.05, pad=0.02)
    return figure


def _check_weights(weights, shape):
    """The weights as an array (heads, target, source)."""
    weights = np.asarray(keras.ops.convert_to_numpy(weights), dtype="float64")
    fits = weights.ndim in (2, 3) and weights.shape[-2:] == shape and weights.size > 0
    rule = (
        "weights must be (target, source) or (heads, target, source) of one example, "
        f"for {shape[0]} target and {shape[1]} source tokens"
    )
    check(fits, rule, shape=weights.shape)
    low, high = float(weights.min()), float(weights.max())  # both are NaN if one is
    rule = "weights must lie in 0 to 1, as after a softmax"
    check(low >= 0 and high <= 1.01, rule, min=low, max=high)  # bfloat16 rounds to 1/256
    return weights.reshape(-1, *shape)


def _titled_heads(layer_name, heads):
    if len(heads) == 1:
        return [(layer_name, heads[0])]
    prefix = f"{layer_name}, " if layer_name else ""
    return [(f"{prefix}head {number}", head) for number, head in enumerate(heads, start=1)]


def _num_columns(num_heads, limit):
    """At most `limit` panels per row, and no row much shorter than the others."""
    num_rows = math.ceil(num_heads / max(1, int(limit)))
    return math.ceil(num_heads / num_rows)


# Learning curves


def plot_history(
    history: keras.callbacks.History | Mapping[str, Any] | str | os.PathLike,
) -> "Figure":
    """Learning curves of loss, perplexity, token accuracy and BLEU, as far as recorded.

    Args:
        history: The `keras.callbacks.History` that `fit` returns, its dict of lists, or the
            path of a CSV file written by `keras.callbacks.CSVLogger`. Keys: loss, perplexity,
            token_accuracy, bleu, and the same after val_. A `CSVLogger` counts epochs from 0, the
            figure from 1; where a resumed run wrote an epoch twice, the last line counts.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        ValueError: If none of the keys is present, or the lists differ in length.
    """
    epochs, curves = _read_history(history)
    names = [name for name in _MEASURES if name in curves or f"val_{name}" in curves]
    check(names, f"history must hold at least one of {', '.join(_MEASURES)}", keys=list(curves))

    figure = _new_figure(0.6 + 3.1 * len(names), 3.1)
    for panel, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        scale = 100 if name == "token_accuracy" else 1
        marker = "o" if len(epochs) <= 20 else ""  # one epoch is a point, not a line
        if name in curves:
            style = {"color": _BLUE, "label": "training", "markersize": 4}
            panel.plot(epochs, scale * curves[name], f"{marker}-", **style)
        if f"val_{name}" in curves:
            style = {"color": _VERMILION, "label": "validation", "markersize": 4}
            panel.plot(epochs, scale * curves[f"val_{name}"], f"{marker}--", **style)
        if name == "perplexity":
            _set_log_scale(panel)
        panel.set(xlabel="epoch", ylabel=_MEASURES[name])
        panel.set_xlim(epochs[0] - 0.5, epochs[-1] + 0.5)
        panel.locator_params(axis="x", nbins=6, integer=True, min_n_ticks=1)
        _open_axes(panel)
    # Validation may be all that a panel holds: the legend takes the labels of all panels.
    handles = {line.get_label(): line for panel in figure.axes for line in panel.get_lines()}
    figure.legend(handles=handles.values(), loc="outside upper center", ncols=2, frameon=False)
    return figure


def _set_log_scale(panel):
    from matplotlib.ticker import LogLocator

    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    panel.yaxis.set_major_formatter("{x:g}")
    panel.minorticks_off()


def _open_axes(panel):
    panel.grid(color="0.9")
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def _read_history(history):
    """Epochs from 1, and a dict of float arrays with one value per epoch, NaN where missing."""
    if isinstance(history, (str, os.PathLike)):
        return _read_csv(history)
    history = getattr(history, "history", history)
    lengths = {key: len(values) for key, values in history.items()}
    rule = (
        "history must hold one value per epoch for each key (validate after each epoch, or pass "
        "the path of the CSV file)"
    )
    check(len(set(lengths.values())) <= 1, rule, lengths=lengths)
    curves = {key: np.asarray(values, "float64") for key, values in history.items() if len(values)}
    return 1 + np.arange(max(lengths.values(), default=0)), curves


def _read_csv(path):
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        keys = [key for key in reader.fieldnames or () if key != "epoch"]
        rows = [row for row in reader if row.get("epoch", "").isdigit()]
    # A number without values may be the beginning of another, cut short when a run was killed.
    rows = {int(row["epoch"]): row for row in rows if any(row[key] for key in keys)}
    epochs = sorted(rows)
    curves = {key: np.array([_number(rows[epoch][key]) for epoch in epochs]) for key in keys}
    # Without validation a `CSVLogger` may still write the columns, filled with NA.
    return 1 + np.array(epochs), {k: c for k, c in curves.items() if not np.isnan(c).all()}


def _number(text):
    try:
        return float(text)
    except (TypeError, ValueError):  # "NA", or a line cut short when a run was killed
        return math.nan


# Predictions


def plot_confusion(matrix: Any, labels: Sequence[str]) -> "Figure":
    """Heat map of a confusion matrix: colors are shares of the row, numbers are counts.

    Zeros are left empty, unlike in scikit-learn's `ConfusionMatrixDisplay`, which also colors by
    count, so that a rare label's row stays pale. Of more than 60 labels, it shows the 60 that are
    most often wrong or predicted for others: with hundreds, a figure takes gigabytes to draw.

    Args:
        matrix: int array (expected, predicted), such as `ClassificationScores.confusion`.
        labels: List of str, one per row and column.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        ValueError: If the matrix is not square with one row per label, or holds negative numbers.
    """
    matrix = np.asarray(matrix)
    rule = f"matrix must be (expected, predicted) for {len(labels)} labels"
    fits = matrix.size > 0 and matrix.shape == (len(labels), len(labels))
    check(fits, rule, shape=matrix.shape)
    check(matrix.min() >= 0, "matrix must hold counts", min=matrix.min().item())

    shares = 100 * matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    errors = matrix.sum(axis=0) + matrix.sum(axis=1) - 2 * matrix.diagonal()
    shown = np.sort(np.argsort(-errors, kind="stable")[:_MOST_LABELS])
    matrix, shares = matrix[np.ix_(shown, shown)], shares[np.ix_(shown, shown)]
    texts = _visible([labels[number] for number in shown])
    cell = max(0.36, 0.09 * len(f"{matrix.max():g}"))  # inches
    width = max(cell * len(texts), 1.6) + _label_width(texts) + 0.5
    figure = _new_figure(width + 1.0, width, layout="compressed")
    panel = figure.add_subplot(xlabel="predicted", ylabel="expected")
    if len(shown) < len(labels):
        panel.set_title(f"the {len(shown)} of {len(labels)} labels with the most errors")
    image = panel.imshow(shares, cmap="Blues", vmin=0, vmax=100, interpolation="nearest")
    for row, column in np.argwhere(matrix):
        style = {"color": "white" if shares[row, column] > 50 else "black", "fontsize": 7}
        panel.text(column, row, f"{matrix[row, column]:g}", ha="center", va="center", **style)
    _label_ticks(panel.xaxis, texts)
    _label_ticks(panel.yaxis, texts)
    figure.colorbar(image, label="share of the row (%)", fraction=0.05, pad=0.02)
    return figure


def plot_calibration(table: Sequence[Any]) -> "Figure":
    """Reliability diagram: accuracy against confidence, above the distribution of confidence.

    A calibrated model lies on the gray diagonal, an overconfident one below it.

    Args:
        table: List of `evaluation.Bin`, such as `Calibration.table`.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        ValueError: If no bin holds a prediction.

    Source: After Guo et al. (2017), "On Calibration of Modern Neural Networks", figure 1.
    """
    filled = [part for part in table if part.count]
    check(filled, "table must hold a bin with predictions", filled=filled)

    low, high, confidence, accuracy, count = np.array(filled).T
    figure = _new_figure(3.6, 4.6)
    upper, lower = figure.subplots(2, sharex=True, height_ratios=[3, 1])
    upper.plot([0, 100], [0, 100], color="0.6", label="perfect calibration")
    upper.plot(100 * confidence, 100 * accuracy, "o-", color=_BLUE, markersize=4, label="model")
    upper.set(ylabel="accuracy (%)", xlim=(0, 100), ylim=(0, 103))
    upper.legend(frameon=False)
    shares, widths = 100 * count / count.sum(), 100 * (high - low)
    lower.bar(100 * low, shares, widths, align="edge", color=_BLUE, edgecolor="white")
    lower.set(xlabel="confidence (%)", ylabel="predictions (%)")
    lower.locator_params(axis="y", nbins=3)
    for panel in (upper, lower):
        _open_axes(panel)
    return figure
