import csv
import io
import sys
import warnings

import keras
import numpy as np
import pytest

from keras_transformer import plots
from keras_transformer.evaluation import Bin
from keras_transformer.plots import (
    font_families,
    plot_attention,
    plot_calibration,
    plot_confusion,
    plot_history,
)
from programs import module_of

WEIGHTS = np.array([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]])
SOURCE, TARGET = ["a", "b", "c"], ["x", "y"]
HISTORY = {
    "loss": [3.0, 2.0, 1.5],
    "perplexity": [20.0, 7.0, 4.0],
    "token_accuracy": [0.25, 0.5, 0.75],
}


def save(figure):
    """The figure's PNG; a glyph that no font has is a warning, and fails."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.savefig(file, dpi=40)
    return file.getvalue()


def panels(figure):
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def texts(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def ticks(axis):
    low, high = sorted(axis.get_view_interval())
    return [tick for tick in axis.get_ticklocs() if low <= tick <= high]


def image(panel):
    return panel.get_images()[0]


def curves(panel):
    return {line.get_label(): (*line.get_data(), line) for line in panel.get_lines()}


@pytest.fixture
def no_system_fonts(monkeypatch):
    from matplotlib.font_manager import fontManager

    bundled = [font for font in fontManager.ttflist if "mpl-data" in font.fname]
    monkeypatch.setattr(fontManager, "ttflist", bundled)


@pytest.fixture
def bundled_fonts_only(no_system_fonts, monkeypatch):
    """The fonts that come with Matplotlib, on any machine: they have no Chinese."""
    monkeypatch.setitem(sys.modules, "mplfonts", None)


# Attention


def test_each_panel_is_one_head_with_its_weights_in_place():
    weights = np.stack([WEIGHTS, WEIGHTS[:, ::-1]])
    figure = plot_attention(weights, SOURCE, TARGET)
    assert [panel.get_title() for panel in panels(figure)] == ["head 1", "head 2"]
    for panel, head in zip(panels(figure), weights, strict=True):
        np.testing.assert_array_equal(image(panel).get_array(), head)
    assert save(figure)


def test_sources_are_columns_and_targets_are_rows_from_the_top():
    panel = panels(plot_attention(WEIGHTS, SOURCE, TARGET))[0]
    assert (texts(panel.xaxis), texts(panel.yaxis)) == (SOURCE, TARGET)
    assert panel.get_xlabel() == "key token"
    assert panel.get_ylabel() == "query token"
    bottom, top = panel.get_ylim()
    assert bottom > top


def test_all_heads_share_one_scale_from_0_to_1_that_is_explained():
    figure = plot_attention([WEIGHTS, WEIGHTS / 2], SOURCE, TARGET)
    assert [image(panel).get_clim() for panel in panels(figure)] == [(0, 1), (0, 1)]
    (bar,) = set(figure.axes) - set(panels(figure))
    assert bar.get_ylabel() == "attention weight"


def test_layers_are_named_and_each_begin_a_row():
    heads = np.stack([WEIGHTS] * 3)
    figure = plot_attention({"block 1": heads, "block 2": WEIGHTS}, SOURCE, TARGET)
    titles = [panel.get_title() for panel in panels(figure)]
    assert titles == ["block 1, head 1", "block 1, head 2", "block 1, head 3", "block 2"]
    places = [panel.get_subplotspec() for panel in panels(figure)]
    assert places[3].rowspan.start > places[2].rowspan.start
    assert places[3].colspan.start == 0


@pytest.mark.parametrize("num_heads", [*range(1, 8), pytest.param(8, marks=pytest.mark.slow)])
def test_the_lowest_panel_of_each_column_names_the_source_tokens(num_heads):
    size = 12  # two panels side by side
    figure = plot_attention(np.full((num_heads, size, size), 1 / size), ["s"] * size, ["t"] * size)
    lowest = {panel.get_subplotspec().colspan.start: panel for panel in panels(figure)}
    for panel in panels(figure):
        labeled = panel in lowest.values()
        assert texts(panel.xaxis) == (["s"] * size if labeled else [])


def test_the_figure_grows_with_tokens_and_heads_but_stays_within_a_page():
    def size(num_heads, length):
        weights = np.zeros((num_heads, length, length))
        return plot_attention(weights, ["s"] * length, ["t"] * length).get_size_inches()

    assert all(size(1, 20) > size(1, 10))
    assert size(8, 10)[1] > size(2, 10)[1]
    assert size(16, 10)[0] <= 10


def test_weights_may_be_a_tensor_of_the_backend():
    tensor = keras.ops.cast(keras.ops.convert_to_tensor(WEIGHTS), "bfloat16")
    panel = panels(plot_attention(tensor, SOURCE, TARGET))[0]
    np.testing.assert_allclose(image(panel).get_array(), WEIGHTS, atol=1 / 256)


@pytest.mark.parametrize("shape", [(3, 2), (1, 4, 2, 3), (3,), (2, 2, 2), (0, 2, 3)])
def test_weights_that_do_not_fit_the_tokens_are_an_error(shape):
    with pytest.raises(ValueError, match="2 target and 3 source tokens; received shape="):
        plot_attention(np.zeros(shape), SOURCE, TARGET)


@pytest.mark.parametrize("wrong", [-0.1, 1.5, np.nan])
def test_scores_are_not_taken_for_weights(wrong):
    with pytest.raises(ValueError, match="in 0 to 1, as after a softmax; received min="):
        plot_attention(np.where(WEIGHTS == 0.9, wrong, WEIGHTS), SOURCE, TARGET)


def test_no_layer_at_all_is_an_error():
    with pytest.raises(ValueError, match="at least one layer"):
        plot_attention({}, SOURCE, TARGET)


def test_a_chinese_character_is_drawn_in_the_font_of_mplfonts(no_system_fonts):
    pytest.importorskip("mplfonts")
    assert font_families() == ["sans-serif", "DejaVu Sans", "Noto Sans CJK SC"]
    assert save(plot_attention(WEIGHTS, ["我", "我们", "a我"], ["é", "y"], title="我们"))


def test_a_character_without_a_font_is_a_box_and_a_warning_that_names_it(bundled_fonts_only):
    figure = plot_attention(WEIGHTS, ["我", "b", "c"], TARGET)
    assert texts(panels(figure)[0].xaxis) == ["我", "b", "c"]
    with pytest.warns(UserWarning, match="CJK UNIFIED IDEOGRAPH-6211.* missing from font"):
        figure.savefig(io.BytesIO(), dpi=40)


def test_only_installed_fonts_are_asked_for_and_those_of_matplotlib_come_first(
    bundled_fonts_only, caplog
):
    import matplotlib

    assert font_families() == ["sans-serif", "DejaVu Sans"]
    with matplotlib.rc_context({"font.family": ["DejaVu Sans", "STIXGeneral"]}):
        assert font_families() == ["DejaVu Sans", "STIXGeneral"]
        assert save(plot_attention(WEIGHTS, SOURCE, TARGET))
    assert "findfont" not in caplog.text


def test_a_character_that_another_font_has_is_drawn_in_that_font(bundled_fonts_only):
    import matplotlib

    with matplotlib.rc_context({"font.family": "STIXGeneral"}):  # it has no Georgian
        figure = plot_attention(WEIGHTS, ["ა", "ბ", "c"], TARGET)
        (label, *_) = panels(figure)[0].get_xticklabels()
        assert label.get_text() == "ა"
        assert label.get_fontfamily()[0] == "STIXGeneral"
        assert any(name.startswith("DejaVu") for name in label.get_fontfamily())
        assert save(figure)


def test_tokens_that_cannot_be_seen_are_made_visible():
    panel = panels(plot_attention(WEIGHTS, [" ", "\n", ""], ["\t", "a b"]))[0]
    assert texts(panel.xaxis) == ["␣", r"\n", ""]
    assert texts(panel.yaxis) == [r"\t", "a b"]
    assert texts(panels(plot_attention(WEIGHTS, ["  ", "\u3000", "\u200b"], TARGET))[0].xaxis) == [
        "␣␣",
        r"\u3000",
        r"\u200b",
    ]


@pytest.mark.parametrize(
    "tokens, rotations",
    [(["a", "b", "</s>"], [0, 0, 90]), (["the", "dog", "."], [45, 45, 45]), ("abc", [0, 0, 0])],
)
def test_labels_of_columns_are_rotated_where_they_would_touch(tokens, rotations):
    panel = panels(plot_attention(WEIGHTS, tokens, TARGET))[0]
    assert [label.get_rotation() for label in panel.get_xticklabels()] == rotations
    assert [label.get_rotation() for label in panel.get_yticklabels()] == [0, 0]


def test_a_dollar_is_a_token_and_not_a_formula():
    figure = plot_attention(WEIGHTS, ["$", r"$\frac$", "$$"], TARGET, title="$x_$")
    assert texts(panels(figure)[0].xaxis)[1] == r"$\frac$"
    assert save(figure)


def test_a_row_of_cross_attention_is_named_by_what_is_written_not_by_its_query():
    figure = plot_attention(WEIGHTS, SOURCE, TARGET, row_label=plots.BEING_WRITTEN)
    assert panels(figure)[0].get_ylabel() == "token being written"


# Learning curves


def test_curves_show_what_was_recorded_in_the_units_of_their_axes():
    figure = plot_history(HISTORY)
    loss, perplexity, accuracy = panels(figure)
    assert loss.get_ylabel() == "loss (nats per token)"
    assert perplexity.get_yscale() == "log"
    assert accuracy.get_ylabel() == "token accuracy (%)"
    for panel, values in ((loss, [3, 2, 1.5]), (perplexity, [20, 7, 4]), (accuracy, [25, 50, 75])):
        epochs, plotted, _ = curves(panel)["training"]
        assert (list(epochs), list(plotted)) == ([1, 2, 3], values)
    assert save(figure)


def test_training_and_validation_differ_without_color():
    validation = {f"val_{key}": values for key, values in HISTORY.items()}
    figure = plot_history(HISTORY | validation)
    for panel in panels(figure):
        lines = curves(panel)
        assert set(lines) == {"training", "validation"}
        assert len({line.get_linestyle() for *_, line in lines.values()}) == 2
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["training", "validation"]


def test_one_epoch_is_a_point_above_a_whole_number():
    figure = plot_history({key: values[:1] for key, values in HISTORY.items()})
    assert save(figure)
    for panel in panels(figure):
        assert curves(panel)["training"][2].get_marker() == "o"
        assert ticks(panel.xaxis) == [1]


@pytest.mark.parametrize("num_epochs", [2, 7, 40])
def test_epochs_are_whole_numbers_from_1(num_epochs):
    figure = plot_history({"loss": np.linspace(5, 1, num_epochs)})
    save(figure)
    (panel,) = panels(figure)
    assert all(tick == int(tick) and tick >= 1 for tick in ticks(panel.xaxis))
    assert len(ticks(panel.xaxis)) >= 2


@pytest.mark.parametrize("perplexity", [[900.0, 3.0], [30.0, 8.0], [1.02, 1.001], [4.0]])
def test_a_perplexity_axis_has_ticks_to_read_it_by(perplexity):
    figure = plot_history({"perplexity": perplexity})
    save(figure)
    (panel,) = panels(figure)
    assert len(ticks(panel.yaxis)) >= 3
    assert not any("^" in text or "\N{MULTIPLICATION SIGN}" in text for text in texts(panel.yaxis))


def test_only_the_measures_that_were_recorded_have_a_panel():
    figure = plot_history({"val_token_accuracy": [0.5], "learning_rate": [0.1], "loss": [1.0]})
    assert [panel.get_ylabel().split(" (")[0] for panel in panels(figure)] == [
        "loss",
        "token accuracy",
    ]


def write_csv(path, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def test_a_csv_file_gives_the_picture_of_the_dict(tmp_path):
    rows = [["epoch", *HISTORY], *zip(range(3), *HISTORY.values(), strict=True)]
    path = write_csv(tmp_path / "history.csv", rows)
    for argument in (path, str(path)):
        assert save(plot_history(argument)) == save(plot_history(HISTORY))


def test_the_last_line_of_an_epoch_counts_and_gaps_stay_gaps(tmp_path):
    header = ["epoch", "loss", "val_loss", "perplexity"]
    rows = [header, [0, 9, "NA", "NA"], [1, 8, 7, "NA"], [1, 5, 4, "NA"], [2, 3]]
    (panel,) = panels(plot_history(write_csv(tmp_path / "history.csv", rows)))
    epochs, loss, _ = curves(panel)["training"]
    assert (list(epochs), list(loss)) == ([1, 2, 3], [9, 5, 3])
    np.testing.assert_array_equal(curves(panel)["validation"][1], [np.nan, 4, np.nan])


@pytest.mark.slow
def test_what_keras_writes_can_be_plotted(tmp_path):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    logger = keras.callbacks.CSVLogger(tmp_path / "history.csv")
    x = np.ones((2, 1))
    history = model.fit(x, x, epochs=2, verbose=0, callbacks=[logger])
    expected = history.history["loss"]
    for argument in (history, history.history, tmp_path / "history.csv"):
        (panel,) = panels(plot_history(argument))
        epochs, loss, _ = curves(panel)["training"]
        assert list(epochs) == [1, 2]
        np.testing.assert_allclose(loss, expected, rtol=1e-6)
        assert "validation" not in curves(panel)


@pytest.mark.parametrize("history", [{}, {"accuracy": [1.0]}, {"loss": []}])
def test_a_history_without_a_known_measure_is_an_error(history):
    with pytest.raises(ValueError, match="at least one of loss, perplexity, token_accuracy, bleu"):
        plot_history(history)


@pytest.mark.parametrize("rows", [[], [["epoch", "loss"]], [["epo"]], [["a", "b"], [1, 2]]])
def test_a_csv_file_without_an_epoch_is_an_error(tmp_path, rows):
    with pytest.raises(ValueError, match=r"at least one of .*; received keys=\[\]"):
        plot_history(write_csv(tmp_path / "history.csv", rows))


@pytest.mark.parametrize("cut", ["", "1", "1,", "1,2.5,", "1,2.5,3e-", "\0\0\0"])
def test_a_line_cut_short_by_a_kill_costs_nothing_but_its_own_values(tmp_path, cut):
    path = tmp_path / "history.csv"
    path.write_text(f"epoch,loss,val_loss\n0,3.5,4.5\n{cut}")
    (panel,) = panels(plot_history(path))
    for label, value in (("training", 3.5), ("validation", 4.5)):
        epochs, values, _ = curves(panel)[label]
        assert (epochs[0], values[0]) == (1, value)


def test_an_epoch_cut_from_12_to_1_does_not_erase_epoch_1(tmp_path):
    path = tmp_path / "history.csv"
    path.write_text("epoch,loss\n" + "".join(f"{n},{n}.5\n" for n in range(12)) + "1")
    (panel,) = panels(plot_history(path))
    epochs, loss, _ = curves(panel)["training"]
    assert (list(epochs), list(loss)) == (list(range(1, 13)), [n + 0.5 for n in range(12)])


def test_validation_bleu_is_drawn_where_it_was_recorded(tmp_path):
    history = {"loss": [2.0, 1.0], "val_bleu": [10.5, 20.25]}
    rows = [["epoch", *history], *zip(range(2), *history.values(), strict=True)]
    for argument in (history, write_csv(tmp_path / "history.csv", rows)):
        _, bleu = panels(plot_history(argument))
        assert bleu.get_ylabel() == "BLEU"
        assert list(curves(bleu)) == ["validation"]
        epochs, values, _ = curves(bleu)["validation"]
        assert (list(epochs), list(values)) == ([1, 2], [10.5, 20.25])


def test_lists_of_different_length_are_an_error_that_names_them():
    with pytest.raises(ValueError, match=r"validate after .* received lengths=.*2.*'val_loss': 1"):
        plot_history({"loss": [2.0, 1.0], "val_loss": [2.0]})


# Mistakes


def test_a_row_of_the_confusion_is_what_was_expected_and_sums_to_100():
    figure = plot_confusion([[6, 2], [0, 4]], ["NOUN", "$"])
    panel = panels(figure)[0]
    np.testing.assert_array_equal(image(panel).get_array(), [[75, 25], [0, 100]])
    assert image(panel).get_clim() == (0, 100)
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("predicted", "expected")
    assert texts(panel.xaxis) == texts(panel.yaxis) == ["NOUN", "$"]
    counts = {text.get_position(): text.get_text() for text in panel.texts}
    assert counts == {(0, 0): "6", (1, 0): "2", (1, 1): "4"}  # x is the predicted one
    assert save(figure)


def test_of_many_labels_those_with_the_most_errors_are_shown():
    matrix, labels = np.diag([4] * 62), [f"label {number}" for number in range(62)]
    matrix[61, 3] = 4  # half of the row
    matrix[30, 30], matrix[7, 7] = 0, 9  # of labels without errors the first ones stay
    panel = panels(plot_confusion(matrix, labels))[0]
    shown = [*range(59), 61]
    assert texts(panel.xaxis) == texts(panel.yaxis) == [labels[number] for number in shown]
    shares = image(panel).get_array()
    assert shares.shape == (60, 60) and shares[59, 3] == shares[59, 59] == 50
    assert panel.get_title() == "the 60 of 62 labels with the most errors"
    figure = plot_confusion(matrix[:60, :60], labels[:60])
    assert texts(panels(figure)[0].xaxis) == labels[:60] and not panels(figure)[0].get_title()


def test_what_is_not_shown_of_the_confusion_counts_in_the_shares():
    matrix = np.diag([1] * 61)
    matrix[0, 60] = 3  # what is confused with label 0 comes last, and others have more errors
    matrix[1:60, 1] = 4
    panel = panels(plot_confusion(matrix, [f"label {number}" for number in range(61)]))[0]
    assert "label 60" not in texts(panel.xaxis) and image(panel).get_array()[0, 0] == 25


def test_a_label_that_was_never_expected_is_an_empty_row():
    panel = panels(plot_confusion([[3, 1], [0, 0]], ["A", "B"]))[0]
    np.testing.assert_array_equal(image(panel).get_array()[1], [0, 0])


@pytest.mark.parametrize(
    "matrix, labels, message",
    [
        ([[1, 2]], ["A", "B"], r"for 2 labels; received shape=\(1, 2\)"),
        (np.zeros((0, 0)), [], "for 0 labels"),
        ([[1, -2], [0, 1]], ["A", "B"], "counts; received min=-2"),
    ],
)
def test_what_is_not_a_confusion_of_the_labels_is_an_error(matrix, labels, message):
    with pytest.raises(ValueError, match=message):
        plot_confusion(matrix, labels)


def test_a_bin_is_a_point_of_its_claim_and_its_truth_and_a_bar_of_its_count():
    table = [
        Bin(0.0, 0.5, float("nan"), float("nan"), 0),
        Bin(0.5, 0.75, 0.6, 0.5, 1),
        Bin(0.75, 1.0, 0.9, 0.75, 3),
    ]
    figure = plot_calibration(table)
    upper, lower = panels(figure)
    for label, x, y in (
        ("model", [60, 90], [50, 75]),
        ("perfect calibration", [0, 100], [0, 100]),
    ):
        plotted_x, plotted_y, _ = curves(upper)[label]
        assert (list(plotted_x), list(plotted_y)) == (x, y)
    bars = [(bar.get_x(), bar.get_width(), bar.get_height()) for bar in lower.patches]
    assert bars == [(50, 25, 25), (75, 25, 75)]
    assert [upper.get_ylabel(), lower.get_xlabel(), lower.get_ylabel()] == [
        "accuracy (%)",
        "confidence (%)",
        "predictions (%)",
    ]
    assert save(figure)


def test_a_table_of_no_predictions_is_an_error():
    with pytest.raises(ValueError, match=r"a bin with predictions; received filled=\[\]"):
        plot_calibration([Bin(0.0, 1.0, float("nan"), float("nan"), 0)])


# The module


def test_plots_work_without_pyplot_and_its_global_state(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    assert save(plot_attention(WEIGHTS, SOURCE, TARGET))
    assert save(plot_history(HISTORY))
    assert save(plot_confusion([[1]], ["A"]))
    assert save(plot_calibration([Bin(0.0, 1.0, 0.5, 1.0, 3)]))


def test_the_module_can_be_imported_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    module = module_of(plots.__file__, "keras_transformer.again")
    assert "plot_attention" in vars(module)
