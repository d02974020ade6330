"""Pictures of what a Transformer does: attention maps, positions, learning curves, mistakes.

Each function returns a `matplotlib.figure.Figure` made without `pyplot`: no window, no display
and no global state. `figure.savefig("attention.png", dpi=150)` writes it; a notebook shows it.
"""

import csv
import math
import os

import keras
import numpy as np

_MAX_WIDTH = 10  # inches; the text of a wider figure is too small in a README
_GAP = 0.15  # inches between panels
_LETTER = 0.08  # width of a letter of the labels in inches
_SHORT = 2  # characters; longer labels of columns are turned
_TRAINING, _VALIDATION = "#0072B2", "#D55E00"  # the blue and vermilion of Okabe and Ito
_MEASURES = {
    "loss": "loss (nats per token)",
    "perplexity": "perplexity (log scale)",
    "token_accuracy": "token accuracy (%)",
}


# Attention


def plot_attention(weights, source_tokens, target_tokens, title=None):
    """Heat maps of attention weights, one panel a head; a row shows where one token looks.

    All panels share one scale from 0 to 1, so that the same blue is the same weight. A
    character that no installed font can draw is written as its code point, such as U+6211.

    Args:
        weights: Float array or tensor (target, source) or (heads, target, source) of one
            example, or a dict from the name of a layer to such an array.
        source_tokens: List of str, the tokens attended to, one a column.
        target_tokens: List of str, the tokens that attend, one a row.
        title: str above the panels, or `None`.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        ValueError: If the shape of the weights does not fit the tokens, or a weight lies
            outside 0 to 1, as scores before the softmax do.
    """
    from matplotlib.figure import Figure

    layers = weights if isinstance(weights, dict) else {"": weights}
    if not layers:
        raise ValueError("weights must hold at least one layer; received an empty dict.")
    shape = (len(target_tokens), len(source_tokens))
    layers = {name: _check_weights(layer, shape) for name, layer in layers.items()}

    source_labels, target_labels = _drawable(source_tokens), _drawable(target_tokens)

    most_heads = max(len(heads) for heads in layers.values())
    num_columns = _num_columns(source_labels[0], target_labels[0], most_heads)
    num_rows = sum(math.ceil(len(heads) / num_columns) for heads in layers.values())
    size = _figure_size(source_labels[0], target_labels[0], num_rows, num_columns)
    figure = Figure(figsize=size, layout="compressed")
    grid = figure.add_gridspec(num_rows, num_columns)

    panels, lowest, first_row = [], {}, 0
    for name, heads in layers.items():
        for index, head in enumerate(heads):
            row, column = divmod(index, num_columns)
            panel = figure.add_subplot(grid[first_row + row, column])
            image = panel.imshow(head, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
            head_name = f"head {index + 1}" if len(heads) > 1 else ""
            panel_title = ", ".join(part for part in (str(name), head_name) if part)
            panel.set_title(panel_title, fontsize=10, parse_math=False)
            panel.set(xticks=[], yticks=[])
            panel.tick_params(length=0)
            if column == 0:
                panel.set_ylabel("token that looks (query)")
                _write_tokens(panel.yaxis, *target_labels)
            panels.append(panel)
            lowest[column] = panel
        first_row += math.ceil(len(heads) / num_columns)
    for panel in lowest.values():
        panel.set_xlabel("token looked at (key)")
        _write_tokens(panel.xaxis, *source_labels)

    if title is not None:
        figure.suptitle(title, fontsize=12, parse_math=False)
    figure.colorbar(image, ax=panels, label="attention weight", fraction=0.05, pad=0.02)
    return figure


def plot_alignment(weights, source_tokens, target_tokens, alignment=None, title=None):
    """Heat map of the mean over heads; a dot in each row marks the token looked at most.

    Args:
        weights: Float array or tensor (target, source) or (heads, target, source) of one
            example: one layer's cross-attention.
        source_tokens: List of str, one a column.
        target_tokens: List of str, one a row.
        alignment: List of pairs (target index, source index) that are known to belong
            together; each gets a ring. `None`: nothing is known.
        title: str above the panel, or `None`.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        ValueError: As `plot_attention`; or a pair of the alignment lies outside the weights.

    Source:
        After Bahdanau et al. (2015), "Neural Machine Translation by Jointly Learning to Align
        and Translate", figure 3.
    """
    shape = (len(target_tokens), len(source_tokens))
    heads = _check_weights(weights, shape)
    mean = heads.mean(axis=0)
    figure = plot_attention(mean, source_tokens, target_tokens, title)
    panel = figure.axes[0]
    for pair in alignment or ():
        if not all(0 <= index < size for index, size in zip(pair, shape, strict=True)):
            raise ValueError(
                "alignment must hold pairs (target index, source index) below "
                f"{shape}; received {tuple(pair)}."
            )
        panel.plot(*pair[::-1], "o", markersize=13, fillstyle="none", color=_VALIDATION)
    panel.plot(mean.argmax(axis=1), range(shape[0]), ".", color="white", markeredgecolor="black")
    return figure


def _check_weights(weights, shape):
    """The weights as an array (heads, target, source)."""
    weights = np.asarray(keras.ops.convert_to_numpy(weights), dtype="float64")
    if weights.ndim not in (2, 3) or weights.shape[-2:] != shape or not weights.size:
        raise ValueError(
            "weights must be (target, source) or (heads, target, source) of one example, "
            f"for {shape[0]} target and {shape[1]} source tokens; "
            f"received shape {weights.shape}."
        )
    # bfloat16 rounds to 1/256; NaN fails the comparison too.
    if not (weights.min() >= 0 and weights.max() <= 1.01):
        raise ValueError(
            "weights must lie in 0 to 1, as after a softmax; "
            f"received values from {weights.min():.3g} to {weights.max():.3g}."
        )
    return weights.reshape(-1, *shape)


def _panel_size(source_texts, target_texts):
    """Width and height of a panel in inches, without its labels."""
    cell = 0.25 if _are_characters(source_texts) else 0.3
    # The words along an axis need some room even where the tokens do not.
    return max(cell * len(source_texts), 1.6), max(cell * len(target_texts), 1.7)


def _num_columns(source_texts, target_texts, num_heads):
    """As many panels side by side as stay legible, no row much shorter than the others."""
    margin, _ = _figure_size(source_texts, target_texts, 0, 0)
    width, _ = _panel_size(source_texts, target_texts)
    most = max(1, int((_MAX_WIDTH - margin) / (width + _GAP)))
    return math.ceil(num_heads / math.ceil(num_heads / most))


def _figure_size(source_texts, target_texts, num_rows, num_columns):
    """Width and height in inches: panels, labels, title and colour bar."""
    width, height = _panel_size(source_texts, target_texts)
    longest_source = max(len(text) for text in source_texts)
    longest_target = max(len(text) for text in target_texts)
    turned = 0.7 * _LETTER * longest_source if longest_source > _SHORT else 0
    return (
        num_columns * (width + _GAP) + _LETTER * longest_target + 1.2,
        num_rows * (height + 0.25) + turned + 0.7,
    )


def _are_characters(texts):
    return np.median([len(text) for text in texts]) <= _SHORT


def _write_tokens(axis, texts, fonts):
    axis.set_ticks(range(len(texts)), texts, fontsize=9, fontfamily=fonts)
    angle = 90 if _are_characters(texts) else 45  # words read better at 45 degrees
    for label in axis.get_ticklabels():
        label.set_parse_math(False)  # "$" is a token, not the beginning of a formula
        if axis.axis_name == "x" and len(label.get_text()) > _SHORT:
            anchor = {"ha": "right", "va": "center", "rotation_mode": "anchor"}
            label.set(rotation=angle, **anchor)


# Fonts


def _drawable(tokens):
    """The tokens as texts that can be drawn, and the names of the fonts that draw them.

    Matplotlib's own font has no Chinese: it prints empty boxes, and no error.
    """
    from matplotlib.font_manager import FontProperties

    # A token of nothing but spaces would leave no mark.
    texts = [str(token) if str(token).strip(" ") else "␣" * len(token) for token in tokens]
    characters = {character for text in texts for character in text}
    unprintable = {character for character in characters if not character.isprintable()}
    missing = characters - unprintable
    fonts = list(FontProperties().get_family())
    for name in fonts:
        missing -= _characters_in(name, missing)
    for name in _other_fonts(missing):
        drawn = _characters_in(name, missing)
        if drawn:
            fonts.append(name)
            missing -= drawn
    return [_with_code_points(text, missing | unprintable) for text in texts], fonts


def _characters_in(font_name, characters):
    from matplotlib.font_manager import FontProperties, findfont, get_font

    # A name can stand for several files: look into the one that will be used.
    font = get_font(findfont(FontProperties(family=[font_name])))
    return {character for character in characters if font.get_char_index(ord(character))}


def _other_fonts(characters):
    """Names of the installed fonts with any of the characters, those with the most first."""
    from matplotlib.font_manager import fontManager, get_font

    if not characters:
        return []
    coverage = {}
    for entry in fontManager.ttflist:
        # "Last Resort" has every character of Unicode, each one a box.
        if entry.name.replace(" ", "").lower().startswith((".lastresort", "lastresort")):
            continue
        try:
            font = get_font(entry.fname)
        except (OSError, RuntimeError):  # a damaged file, or one of bitmaps such as emoji
            continue
        count = sum(font.get_char_index(ord(character)) > 0 for character in characters)
        coverage[entry.name] = max(count, coverage.get(entry.name, 0))
    useful = [name for name, count in coverage.items() if count]
    return sorted(useful, key=lambda name: (-coverage[name], name))


def _with_code_points(text, missing):
    parts = [f" U+{ord(c):04X} " if c in missing else c for c in text]
    return "".join(parts).replace("  ", " ").strip(" ")


# Positions


def plot_positional_encoding(table):
    """Heat map of a table of positions: each column is what is added to one position.

    In the paper's table the waves grow longer from dimension to dimension, sine and cosine by
    turns.

    Args:
        table: Float array or tensor (length, d_model).

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        ValueError: If the table has not two axes, or is empty.

    Source:
        After Géron (2022), "Hands-On Machine Learning", 3rd edition, figure 16-9.
    """
    from matplotlib.figure import Figure

    table = np.asarray(keras.ops.convert_to_numpy(table), dtype="float64")
    if table.ndim != 2 or not table.size:
        raise ValueError(f"table must be (length, d_model); received shape {table.shape}.")

    figure = Figure(figsize=(9, 4), layout="constrained")
    panel = figure.add_subplot()
    limit = np.abs(table).max() or 1.0  # white stands for zero, whatever was learnt
    image = panel.imshow(table.T, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    panel.set_xlabel("position (token)")
    panel.set_ylabel("dimension")
    panel.xaxis.get_major_locator().set_params(integer=True)
    panel.yaxis.get_major_locator().set_params(integer=True)
    figure.colorbar(image, label="value added to the embedding", pad=0.02)
    return figure


# Learning curves


def plot_history(history):
    """Learning curves of loss, perplexity and token accuracy, as far as they were recorded.

    Args:
        history: The `keras.callbacks.History` that `fit` returns, its dict of lists, or the
            path of a CSV file written by `keras.callbacks.CSVLogger`. Keys: loss, perplexity,
            token_accuracy, and the same after val_. A `CSVLogger` counts epochs from 0, the
            picture from 1; where a resumed run wrote an epoch twice, the last one counts.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        ValueError: If none of the keys is there, or a list has not one value an epoch.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    epochs, curves = _read_history(history)
    names = [name for name in _MEASURES if name in curves or f"val_{name}" in curves]
    if not names:
        raise ValueError(
            f"history must hold at least one of {', '.join(_MEASURES)}; "
            f"received {', '.join(curves) or 'nothing'}."
        )

    figure = Figure(figsize=(0.6 + 3.1 * len(names), 3.1), layout="constrained")
    for panel, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        marker = "o" if len(epochs) <= 20 else ""  # one epoch is a point, not a line
        for key, label, colour, line in (
            (name, "training", _TRAINING, "-"),
            (f"val_{name}", "validation", _VALIDATION, "--"),
        ):
            if key in curves:
                values = curves[key] * (100 if name == "token_accuracy" else 1)
                panel.plot(
                    epochs, values, line, color=colour, label=label, marker=marker, markersize=4
                )
        if name == "perplexity":
            _set_log_scale(panel)
        panel.set_xlabel("epoch")
        panel.set_ylabel(_MEASURES[name])
        panel.set_xlim(epochs[0] - 0.5, epochs[-1] + 0.5)
        panel.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
        panel.grid(color="0.9")
        panel.spines[["top", "right"]].set_visible(False)
    # Validation alone may be what a panel holds: collect the labels of all of them.
    handles = {h.get_label(): h for panel in figure.axes for h in panel.get_lines()}
    figure.legend(handles=handles.values(), loc="outside upper center", ncols=2, frameon=False)
    return figure


def _set_log_scale(panel):
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

    panel.set_yscale("log")
    low, high = panel.get_ylim()
    # Within one power of ten the ticks of a logarithmic axis would be one, or none.
    locator = LogLocator(subs=(1, 2, 5)) if high / low > 10 else MaxNLocator(5)
    panel.yaxis.set_major_locator(locator)
    panel.yaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))


def _read_history(history):
    """Epochs from 1, and a dict of float arrays with one value an epoch, NaN where none."""
    if isinstance(history, keras.callbacks.History):
        history = history.history
    if isinstance(history, (str, os.PathLike)):
        return _read_csv(history)
    curves = {key: np.asarray(values, dtype="float64") for key, values in history.items()}
    lengths = {key: curve.size for key, curve in curves.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(
            "history must hold one value an epoch for each key; received "
            + ", ".join(f"{length} for {key}" for key, length in lengths.items())
            + ": validate after each epoch, or pass the path of the CSV file."
        )
    num_epochs = max(lengths.values(), default=0)
    return np.arange(1, num_epochs + 1), {k: c for k, c in curves.items() if c.size}


def _read_csv(path):
    with open(path, newline="", encoding="utf-8") as file:
        rows = {int(row["epoch"]): row for row in csv.DictReader(file)}
    epochs = sorted(rows)
    keys = list(next(iter(rows.values()), {}))
    curves = {key: np.array([_number(rows[e][key]) for e in epochs]) for key in keys}
    # A `CSVLogger` without validation writes its columns all the same, filled with NA.
    curves = {k: c for k, c in curves.items() if k != "epoch" and not np.isnan(c).all()}
    return np.array(epochs) + 1, curves


def _number(text):
    try:
        return float(text)
    except (TypeError, ValueError):  # "NA", or a line cut short when a run was killed
        return math.nan


# Mistakes


def plot_confusion(matrix, labels):
    """Heat map of what was taken for what: a row holds what has one label, and sums to 100 %.

    The number in a cell counts; a cell of nothing is left empty.

    Args:
        matrix: int array (expected, predicted), such as `TaggingScores.confusion`.
        labels: List of str, one a row and column.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        ValueError: If the matrix is not square with a row a label, or holds negative numbers.
    """
    from matplotlib.figure import Figure

    matrix = np.asarray(matrix)
    labels = list(labels)
    if not labels or matrix.shape != (len(labels), len(labels)):
        raise ValueError(
            f"matrix must be (expected, predicted) for {len(labels)} labels; "
            f"received shape {matrix.shape}."
        )
    if not matrix.min() >= 0:
        raise ValueError(f"matrix must hold counts; received {matrix.min():g}.")
    texts, fonts = _drawable(labels)
    shares = 100 * matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    cell = max(0.36, 0.09 * max(len(f"{count}") for count in matrix.flat))  # room for the numbers
    margin = _LETTER * max(map(len, texts)) + 0.5
    width = max(cell * len(texts), 1.6)
    figure = Figure(figsize=(width + margin + 1.0, width + margin), layout="compressed")
    panel = figure.add_subplot()
    image = panel.imshow(shares, cmap="Blues", vmin=0, vmax=100, interpolation="nearest")
    for row, column in np.argwhere(matrix):
        colour = "white" if shares[row, column] > 50 else "black"
        count = f"{matrix[row, column]:g}"
        panel.text(column, row, count, ha="center", va="center", fontsize=7, color=colour)
    panel.tick_params(length=0)
    panel.set(xlabel="predicted", ylabel="expected")
    _write_tokens(panel.xaxis, texts, fonts)
    _write_tokens(panel.yaxis, texts, fonts)
    figure.colorbar(image, label="share of the row (%)", fraction=0.05, pad=0.02)
    return figure


def plot_calibration(table):
    """How often a model is right against how sure it is, and below, how many answers that are.

    On the grey line it is right as often as it says; below the line it is too sure of itself.

    Args:
        table: List of `evaluation.Bin`, such as `Calibration.table`.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        ValueError: If no bin holds a prediction.

    Source: After Guo et al. (2017), "On Calibration of Modern Neural Networks", figure 1.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    filled = [part for part in table if part.count]
    if not filled:
        raise ValueError("table must hold a bin with predictions; received none.")
    total = sum(part.count for part in filled)
    figure = Figure(figsize=(3.6, 4.6), layout="constrained")
    upper, lower = figure.subplots(2, sharex=True, height_ratios=[3, 1])
    upper.plot([0, 100], [0, 100], color="0.6", label="as sure as right")
    confidence, accuracy = ([100 * part[i] for part in filled] for i in (2, 3))
    upper.plot(confidence, accuracy, "o-", color=_TRAINING, markersize=4, label="the model")
    upper.set(ylabel="right answers (%)", xlim=(0, 100), ylim=(0, 103))
    upper.legend(frameon=False, loc="upper left")
    lower.bar(
        [100 * part.low for part in filled],
        [100 * part.count / total for part in filled],
        width=[100 * (part.high - part.low) for part in filled],
        align="edge",
        color=_TRAINING,
        edgecolor="white",
    )
    lower.set(xlabel="probability that it claims (%)", ylabel="answers (%)")
    lower.yaxis.set_major_locator(MaxNLocator(3))
    for panel in (upper, lower):
        panel.grid(color="0.9")
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    return figure
