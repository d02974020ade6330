"""The checker of learners' layers: learners.py and submissions.py have right and wrong ones."""

import pathlib
import re
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_transformer as kt
import oracle
import submissions
from keras_transformer.cli import grade, main
from keras_transformer.cli.grading import (
    CHAPTERS,
    KINDS,
    CannotCheck,
    check_layer,
    faults,
    formulas,
    guess_kind,
)
from learners import REMARKED, RIGHT, TWICE_WRONG, WRONG, Encoder, MultiHead

ROOT = pathlib.Path(__file__).parents[2]


SLOW = [pytest.mark.slow]  # a part of them stays in the quick suite


@pytest.mark.parametrize(
    "layer, kind",
    [pytest.param(*each, marks=SLOW * (n % 2)) for n, each in enumerate(RIGHT)],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_a_right_one_passes(layer, kind):
    report = check_layer(layer, kind)
    assert report.passed, str(report)
    assert len(report.checked) > 2


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=SLOW * (n % 5 > 0)) for n, name in enumerate(WRONG)]
)
def test_a_wrong_one_is_named(name):
    layer, kind, words, chapter = WRONG[name]
    report = check_layer(layer, kind)
    assert not report.passed
    assert words in report.fault.sentence, str(report)
    assert report.fault.chapter == chapter


def some_slow(names):
    return [pytest.param(name, marks=SLOW * (n % 6 > 0)) for n, name in enumerate(names)]


@pytest.mark.parametrize("name", some_slow(submissions.RIGHT))
def test_right_values_pass_in_any_style(name):
    layer, kind, words = submissions.RIGHT[name]
    report = check_layer(layer, kind)
    assert report.passed, str(report)
    assert all(each in str(report) for each in words), str(report)
    if not any("saved" in each for each in words):
        assert "saved" not in str(report)


@pytest.mark.parametrize("name", some_slow(submissions.WRONG))
def test_what_is_wrong_is_named_in_any_style(name):
    layer, kind, words = submissions.WRONG[name]
    report = check_layer(layer, kind)
    assert not report.passed and words in report.fault.sentence, str(report)


@pytest.mark.parametrize("name", REMARKED)
def test_a_layer_that_cannot_be_saved_passes_with_a_remark(name):
    layer, kind, words = REMARKED[name]
    report = check_layer(layer, kind)
    assert report.passed and words in str(report), str(report)


def test_a_checked_layer_keeps_its_weights():
    layer = MultiHead(12, 3)
    x = keras.random.normal((2, 5, 12), seed=0)
    before = keras.ops.convert_to_numpy(layer(x, x))
    assert check_layer(layer, "multi_head_attention").passed
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(layer(x, x)), before)


@pytest.mark.parametrize(
    "layer, kind, words",
    [pytest.param(*each, marks=SLOW * (n % 2)) for n, each in enumerate(TWICE_WRONG)],
    ids=["attention", "heads", "block"],
)
def test_two_faults_are_both_named(layer, kind, words):
    sentence = check_layer(layer, kind).fault.sentence
    assert all(each in sentence for each in words), sentence


def test_what_no_fault_explains_is_measured():
    def attention(query, key, value):
        return 1.5 * kt.scaled_dot_product_attention(query, key, value)[0]

    report = check_layer(attention)
    assert re.search(r"values differ from softmax.* by up to [01]\.\d+", report.fault.sentence)


@pytest.mark.parametrize(
    "layer, kind",
    [
        (kt.scaled_dot_product_attention, "attention"),
        (kt.MultiHeadAttention, "multi_head_attention"),
        (kt.look_ahead_mask, "look_ahead_mask"),
        (kt.padding_mask, "padding_mask"),
        (kt.sinusoids, "positional_encoding"),
        (kt.PositionalEncoding, "positional_encoding"),
        (kt.FeedForward, "feed_forward"),
        (kt.EncoderBlock, "encoder_block"),
        (lambda: kt.EncoderBlock(2, 20, norm_first=True), "encoder_block"),
        (kt.DecoderBlock, "decoder_block"),
    ],
)
def test_the_package_passes(layer, kind):
    assert check_layer(layer, kind).passed


def test_each_fault_has_a_learner_who_makes_it():
    named = {words for _, _, words, *_ in (*WRONG.values(), *submissions.WRONG.values())}
    remarked = {words for _, _, each in submissions.RIGHT.values() for words in each}
    remarked |= {words for _, _, words in REMARKED.values()}
    for field, table in faults.FAULTS.items():
        for fault in table.values():
            words = remarked if field == "remarks" else named
            assert any(each in fault.sentence for each in words), fault


def test_there_are_enough_of_both():
    assert len(submissions.RIGHT) >= 16 and len(submissions.WRONG) >= 39
    assert {kind for _, kind, _, _ in WRONG.values()} == {kind for _, kind in RIGHT} == set(KINDS)


def test_the_formulas_are_those_of_the_oracle():
    rng = np.random.default_rng(0)
    x, memory = rng.normal(size=(2, 4, 6)), rng.normal(size=(2, 5, 6))
    mask = rng.random((2, 4, 5)) < 0.7
    mask[..., 0] = True
    for mine, its in zip(
        formulas.attention(x, memory, memory, mask),
        oracle.attention(x, memory, memory, mask),
        strict=True,
    ):
        np.testing.assert_allclose(mine, its)
    np.testing.assert_allclose(formulas.layer_norm(x), oracle.layer_norm(x, 1, 0))
    np.testing.assert_allclose(formulas.sinusoids(9, 8), oracle.positional_encoding(9, 8))
    np.testing.assert_array_equal(formulas.look_ahead(4), oracle.look_ahead_mask(4))


@pytest.mark.parametrize("pre_norm", [False, True])
def test_the_block_is_that_of_the_oracle(pre_norm):
    rng = np.random.default_rng(0)
    x, memory = rng.normal(size=(2, 4, 6)), rng.normal(size=(2, 5, 6))
    names = ("query", "key", "value", "output")
    kernels = {part: {n: rng.normal(size=(6, 6)) for n in names} for part in ("self", "cross")}
    kernels |= {"inner": rng.normal(size=(6, 8)), "outer": rng.normal(size=(8, 6))}
    dense = {
        part: {name: {"kernel": kernel, "bias": 0.0} for name, kernel in kernels[part].items()}
        for part in ("self", "cross")
    }
    norm = {"gamma": 1.0, "beta": 0.0}
    weights = {
        "self_attention": dense["self"],
        "cross_attention": dense["cross"],
        "feed_forward": {n: {"kernel": kernels[n], "bias": 0.0} for n in ("inner", "outer")},
        **dict.fromkeys(("self_attention_norm", "cross_attention_norm", "feed_forward_norm"), norm),
    }
    source_mask = np.array([[[1, 1, 1, 1, 1]], [[1, 1, 1, 0, 0]]], dtype=bool)
    expected = oracle.decoder_block(
        x, memory, weights, 2, source_mask=source_mask, pre_norm=pre_norm
    )
    formula = formulas.Formula(norm="before" if pre_norm else "after")
    given = {"query": x, "memory": memory, "mask": source_mask}
    found = formulas.layer("decoder_block", given, kernels, 2, formula)
    np.testing.assert_allclose(found, expected)


def test_chapters_have_the_titles_that_a_fault_names():
    for number, title in CHAPTERS.items():
        (path,) = (ROOT / "chapters").glob(f"{number:02}_*.py")
        assert path.read_text("utf-8").startswith(f"# %% [markdown]\n# # {number} · {title}\n")


@pytest.mark.parametrize(
    "name, kind",
    [
        ("MyMultiHeadAttention", "multi_head_attention"),
        ("SelfAttention", "multi_head_attention"),
        ("CausalSelfAttention", "multi_head_attention"),
        ("MaskedMultiHeadAttention", "multi_head_attention"),
        ("TransformerEncoderLayer", "encoder_block"),
        ("DecoderBlock", "decoder_block"),
        ("SinusoidalPositions", "positional_encoding"),
        ("FFN", "feed_forward"),
        ("Unclear", None),
    ],
)
def test_a_kind_is_guessed_from_the_name_of_a_class(name, kind):
    assert guess_kind(type(name, (keras.layers.Layer,), {})) == kind


def test_a_function_of_attention_is_not_a_layer():
    def my_attention(q, k, v): ...

    def masked_attention(q, k, v, mask): ...

    def attention_mask(length): ...

    assert guess_kind(my_attention) == guess_kind(masked_attention) == "attention"
    assert guess_kind(attention_mask) == "look_ahead_mask"


def test_an_instance_of_a_layer_is_checked():
    assert check_layer(MultiHead(12, 3), "multi_head_attention").passed
    assert check_layer(Encoder(12, 2, 20), "encoder_block").passed


def test_unknown_kinds_and_arguments_are_refused():
    with pytest.raises(CannotCheck, match="kind must be one of padding_mask"):
        check_layer(lambda x: x)
    with pytest.raises(CannotCheck, match="kind must be one of"):
        check_layer(lambda x: x, "convolution")
    with pytest.raises(CannotCheck, match="argument 'wavelength'"):
        check_layer(lambda length, d_model, wavelength: None, "positional_encoding")

    class Attention(keras.layers.Layer):
        def __init__(self, temperature):
            super().__init__()

    with pytest.raises(CannotCheck, match="argument 'temperature' whose meaning is not clear"):
        check_layer(Attention)


def test_code_that_fails_gets_one_sentence():
    def attention(query, key, value):
        return query @ key

    report = check_layer(attention)
    assert not report.passed and "It fails with" in str(report) and "chapter 3" in str(report)


def test_a_report_is_one_sentence():
    right, wrong = check_layer(kt.look_ahead_mask), check_layer(*WRONG["leak by one"][:2])
    assert str(right).startswith("look_ahead_mask is right: shape, polarity")
    assert re.search("leaks by one.* See chapter 6, Masks, and the target", repr(wrong))


def test_the_command_for_models_refuses_a_program():
    with pytest.raises(SystemExit, match=r"keras-transformer grade my_layer\.py"):
        main(["check", "my_layer.py"])


COMMAND = "import sys; from keras_transformer.cli import main; main(['grade', *sys.argv[1:]])"
PROGRAM = """
import numpy as np
from keras_transformer import padding_mask  # imported: not the learner's own

def look_ahead_mask(n):
    return np.tri(n, k=1, dtype=bool)

def positional_encoding(length, d_model):
    angle = np.arange(length)[:, None] / 10000 ** (np.arange(d_model) // 2 * 2 / d_model)
    return np.where(np.arange(d_model) % 2, np.cos(angle), np.sin(angle))

def table(length, d_model):
    return positional_encoding(length, d_model)[::-1]
"""

MASK_OF_TWO_FILES = """
import numpy as np
import diagonal

def causal_mask(length):
    return np.tri(length, k=diagonal.last, dtype=bool)
"""


@pytest.mark.once
def test_the_help_of_the_command_lists_the_kinds():
    listed = re.search("The\\skinds\\sare\\s([^.]*)", grade.__doc__)[1]
    assert set(re.findall(r"\w+", listed)) - {"and"} == set(KINDS)


def graded(capsys, *arguments):
    """The code with which the command ends, and what it prints."""
    with pytest.raises(SystemExit) as end:
        main(["grade", *map(str, arguments)])
    return end.value.code, capsys.readouterr().out


@pytest.mark.once
def test_the_command_checks_a_program(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(PROGRAM, "utf-8")
    code, output = graded(capsys, path)
    first, second = output.splitlines()
    assert code and first.startswith("look_ahead_mask: The future leaks by one")
    assert second.startswith("positional_encoding is right")
    code, output = graded(capsys, path, "positional_encoding")
    assert not code and output.startswith("positional_encoding is right")
    code, output = graded(capsys, path, "table=positional_encoding")
    assert code and "differs from the sinusoids" in output
    code, _ = graded(capsys, path, "absent")
    assert code == f"There is no absent in {path}."
    (tmp_path / "model.keras").write_text("")
    code, _ = graded(capsys, tmp_path / "model.keras")
    assert code == 2


@pytest.mark.once
def test_one_that_cannot_be_examined_does_not_end_the_file(tmp_path, capsys):
    unclear = "def positions(length, d_model, wavelength): ...\n\nprint('mine')\n"
    (tmp_path / "mine.py").write_text(unclear + PROGRAM, "utf-8")
    code, output = graded(capsys, tmp_path / "mine.py")
    lines = output.splitlines()
    assert code and len(lines) == 3
    assert lines[0].startswith("positions was not examined. The meaning of the argument 'wavelen")


@pytest.mark.once
def test_a_folder_becomes_a_table(tmp_path, capsys):
    for name, last in {"ann": -1, "bob": 0}.items():  # each imports a module of the same name
        (tmp_path / name).mkdir()
        (tmp_path / name / "diagonal.py").write_text(f"last = {last}\n", "utf-8")
        (tmp_path / name / "mask.py").write_text(MASK_OF_TWO_FILES, "utf-8")
    (tmp_path / "cat.py").write_text("raise OSError('no such file')", "utf-8")
    code, output = graded(capsys, tmp_path)
    rows = [line.strip("| ").split(" | ") for line in output.splitlines()]
    assert code and rows[0] == ["file", "right", "sentence"]
    table = {file: (right, sentence) for file, right, sentence in rows[2:]}
    assert table["ann/mask.py"][0] == "no" and "does not see itself" in table["ann/mask.py"][1]
    assert table["bob/mask.py"][0] == "yes"
    assert table["cat.py"] == ("no", "The file does not run: OSError: no such file.")
    assert "NAME=KIND" in table["ann/diagonal.py"][1]


@pytest.mark.once
def test_what_a_program_changes_is_as_before_for_the_next_one(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    changes = [
        "import os, sys, keras",
        "os.chdir(os.path.dirname(os.path.abspath(__file__)))",
        "sys.path.insert(0, 'mine')",
        "keras.config.set_dtype_policy('mixed_bfloat16')",
        "keras.config.set_floatx('float64')",
    ]
    before = keras.config.dtype_policy(), keras.config.floatx(), [*sys.path]
    for name in ("ann", "bob"):
        (tmp_path / "all" / name).mkdir(parents=True)
        (tmp_path / "all" / name / "mine.py").write_text("\n".join([*changes, PROGRAM]), "utf-8")
    (tmp_path / "all" / "cat.py").write_text("1.0 | True", "utf-8")
    _, output = graded(capsys, "all", "positional_encoding")
    rows = [re.split(r" (?<!\\\\)\| ", line.strip("| ")) for line in output.splitlines()[2:]]
    assert [(file, right) for file, right, _ in rows] == [
        ("ann/mine.py", "yes"),
        ("bob/mine.py", "yes"),
        ("cat.py", "no"),
    ]
    assert rows[2][2].startswith(
        r"The file does not run: TypeError: unsupported operand type(s) for \|"
    )
    assert (keras.config.dtype_policy(), keras.config.floatx(), [*sys.path]) == before


@pytest.mark.once
def test_a_program_that_ends_by_itself_is_not_right(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(f"{PROGRAM}\nimport sys\nsys.exit()", "utf-8")
    code, output = graded(capsys, tmp_path / "mine.py")
    assert code.startswith("The file does not run: SystemExit") and not output


def test_a_gain_may_have_any_shape():
    class LayerNorm(keras.layers.Layer):
        def build(self, shape):
            self.gain = self.add_weight(shape=(1, 1, shape[-1]), initializer="ones")

        def call(self, x):
            mean = keras.ops.mean(x, -1, keepdims=True)
            variance = keras.ops.mean((x - mean) ** 2, -1, keepdims=True)
            return self.gain * (x - mean) / keras.ops.sqrt(variance + 1e-6)

    assert check_layer(LayerNorm).passed, str(check_layer(LayerNorm))


@pytest.mark.slow
@pytest.mark.once
def test_the_command_ends_with_a_code(tmp_path):
    (tmp_path / "mine.py").write_text(PROGRAM, "utf-8")
    command = [sys.executable, "-c", COMMAND, "mine.py"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert result.returncode == 1 and "Traceback" not in result.stderr, result.stderr
    assert result.stdout.startswith("look_ahead_mask: The future leaks by one")


PAGES = [ROOT / "docs" / f"grading{suffix}.md" for suffix in ("", ".zh-CN")]
CHECKED = re.compile(
    r"^```python\n(.*?)\n\nkt\.check_layer\((\w+)\)\n```\n\n```text\n(.*?)^```$", re.M | re.S
)


def test_the_page_of_the_check_shows_its_sentences_and_the_table_of_a_folder(tmp_path, capsys):
    english, chinese = (page.read_text("utf-8") for page in PAGES)
    checked = CHECKED.findall(english)
    assert len(checked) == 4 and CHECKED.findall(chinese) == checked
    imports, names = checked[0][0].partition("\n\n\n")[0], {"__name__": "page"}
    for code, name, sentence in checked:
        exec(code, names)
        assert str(check_layer(names[name])) == " ".join(sentence.split())
        (tmp_path / f"{name}.py").write_text(f"{imports}\n{code}")
    code, table = graded(capsys, tmp_path)
    assert code == 1 and table.strip() in english and table.strip() in chinese


def test_the_page_of_the_check_names_each_kind():
    for page in PAGES:
        rows = re.findall(r"^\| (`\w+`.*?) \|", page.read_text("utf-8"), re.M)
        assert set(re.findall(r"\w+", "".join(rows))) == set(KINDS)
