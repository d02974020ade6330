"""Requirements of all chapters. The gate runs them: .ci/chapter.py."""

import ast
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import types

import pytest

import keras_transformer as kt
from keras_transformer import plots

ROOT = pathlib.Path(__file__).parents[2]
CHAPTERS = sorted((ROOT / "chapters").glob("[0-9]*.py"))
CORE = CHAPTERS[2:11]
GALLERY = ROOT / "chapters" / "README.md"


def program(name):
    """A program of the gate as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


chapter, refresh_chapters = program("chapter"), program("refresh_chapters")
every_chapter = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)


def cells(path, kind):
    """The texts of the cells that begin with a line `# %%` and this kind."""
    parts = re.split(r"^# %%(.*)\n", path.read_text("utf-8"), flags=re.M)[1:]
    return [
        text for mark, text in zip(parts[::2], parts[1::2], strict=True) if mark.strip() == kind
    ]


def names_in(path):
    tree = ast.parse(path.read_text("utf-8"))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def public_names():
    """The names that `import keras_transformer` offers, without its modules."""
    public = {name: value for name, value in vars(kt).items() if not name.startswith("_")}
    return {name for name, value in public.items() if not isinstance(value, types.ModuleType)}


def test_there_is_a_chapter_for_each_number():
    assert [int(path.name[:2]) for path in CHAPTERS] == list(range(1, len(CHAPTERS) + 1))
    assert len(CHAPTERS) == 18


@every_chapter
def test_a_title_cell_asks_a_question_and_says_where_it_stands(path):
    title = re.sub(r"\s*\n# ?", " ", cells(path, "[markdown]")[0])
    assert title.startswith(f"# # {int(path.name[:2])} · ")
    assert re.search(r"\*\*[^*]+\?\*\*", title), "a question in bold"
    assert re.search(r"[Rr]un time: (about|under) \d+ s", title)
    assert "Paper: " in title and "Géron" in title and "rticle" in title


@every_chapter
def test_a_chapter_opens_in_plain_words_and_closes_in_short(path):
    first, *_, last = cells(path, "[markdown]")
    plain = re.search(r"^# \*In plain words:\*.*\n(?:# .*\n)*", first, re.M)[0]
    assert 2 <= plain.count("\n") <= 4
    assert last.startswith("# ## In short\n") and len(re.findall("^# - ", last, re.M)) == 3
    assert "# **Next**: " in last


@every_chapter
def test_no_cell_is_too_long_for_one_reading(path):
    for code in cells(path, ""):
        lines = [line for line in code.splitlines() if line.strip()]
        assert len(lines) <= 25 or lines[0].startswith("# extra code – "), lines[0]


@every_chapter
def test_three_exercises_have_answers(path):
    text = "\n".join(cells(path, "[markdown]"))
    exercises, answers = text.split("# ## Exercises")[1].split("# ## Answers")
    assert re.findall(r"^# (\d)\.", exercises, re.M) == ["1", "2", "3"]
    for number in "123":
        assert re.search(rf"^# (\*\*)?{number}\\?\.", answers, re.M)


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.stem)
def test_a_core_chapter_asks_for_a_guess_breaks_something_and_adds_to_the_translator(path):
    text = "\n".join(cells(path, "[markdown]"))
    assert len(re.findall(r"\*Predict before you run:\*", text)) == 1
    assert len(re.findall(r"\*Break it:\*", text)) == 1
    story = text.split("# ## What we have so far\n")[1].split("# ## Exercises")[0]
    assert "\n# ## " not in story and f'"{path.name[:2]}_so_far")' in path.read_text("utf-8")


@every_chapter
def test_plotting_is_marked_and_keras_is_the_only_backend(path):
    for code in cells(path, ""):
        if "figures.show(" in code:
            assert code.lstrip().startswith("# extra code – "), code[:80]
    assert not {"tensorflow", "tf", "torch", "jax"} & names_in(path)


@every_chapter
def test_the_gallery_has_its_question_its_figure_and_its_finding(path):
    sections = re.split(r"^## ", GALLERY.read_text("utf-8"), flags=re.M)
    mine = [section for section in sections if f"({path.stem}.md)" in section.splitlines()[0]]
    assert len(mine) == 1, f"chapters/README.md has {len(mine)} sections for {path.name}"
    _, question, picture, finding, *_ = re.split(r"\n\n+", mine[0])
    assert re.fullmatch(rf"\*\*.+\?\*\* \(\[program\]\({path.name}\)\)", question)
    assert re.search(r"\d", finding)
    figure = GALLERY.parent / re.search(r"\(([^)]+\.png)\)", picture)[1]
    assert figure.exists() and f'"{figure.stem}"' in path.read_text("utf-8")


def names_recorded(path):
    """The names that a chapter passes to `figures.record`."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "figures.record":
            yield from (keyword.arg for keyword in node.keywords)


def test_a_number_that_a_text_quotes_is_recorded_by_the_chapter_that_it_names():
    recorded = {(path.name[:2], name) for path in CHAPTERS for name in names_recorded(path)}
    quoted = {
        (number, name)
        for path in refresh_chapters.texts()
        for _, _, number, name in refresh_chapters.QUOTED.findall(path.read_text("utf-8"))
    }
    assert len(quoted) > 80 and not quoted - recorded
    assert all(len(set(names_recorded(path))) == len([*names_recorded(path)]) for path in CHAPTERS)


def test_every_measured_number_of_the_gallery_is_quoted():
    text = GALLERY.read_text("utf-8").split("## [1 ·")[1]
    text = re.sub(r"\]\([^)]+\)", "]", refresh_chapters.QUOTED.sub("", text))
    typed = [number + percent for number, percent in chapter.QUOTED.findall(text)]
    given = {"90 %", "1,600", "37,000"}  # what was asked for, not what was found
    assert not set(typed) - given


def sayings():
    """(number, saying, verdict, what was measured, chapters) of each row of the sayings."""
    text = (GALLERY.parent / "sayings.md").read_text("utf-8")
    for row in re.findall(r"^\| (\d+ \|.*)\|$", text, re.M):
        yield [cell.strip() for cell in row.split(" | ")]


def test_each_saying_has_a_verdict_and_a_number_of_the_chapters_that_it_leads_to():
    rows = list(sayings())
    assert [int(row[0]) for row in rows] == list(range(1, 34))
    for number, _, verdict, measured, chapters in rows:
        assert verdict in ("wrong", "loose", "true, but not the whole story"), number
        quoted = {chapter for *_, chapter, _ in refresh_chapters.QUOTED.findall(measured)}
        linked = {name[:2] for name in re.findall(r"\]\((\d\d_\w+\.md)\)", chapters)}
        assert quoted and quoted <= linked, number
        typed = refresh_chapters.QUOTED.sub("", measured)
        assert not re.search(r"\d+\.\d|\d %", typed), f"{number}: a number without its name"
    verdicts = {row[0]: row[2] for row in rows}
    assert "wrong" not in [verdicts[number] for number in ("12", "19", "20", "29")]  # a question,
    # the result of masking, and the paper's own model


def test_every_public_name_is_used_by_a_chapter():
    used = set().union(*map(names_in, CHAPTERS))
    used |= {
        name for path in CHAPTERS for name in re.findall(r"`kt\.(\w+)`", path.read_text("utf-8"))
    }
    pictures = {name for name in vars(plots) if name.startswith("plot_")}
    assert not (public_names() | pictures) - used


@pytest.mark.parametrize("page", ["README", "docs/training"])
def test_a_page_in_chinese_runs_the_same_code(page):
    def code_of(name):
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text("utf-8"), re.S)
        return [re.sub(r" *#.*", "", block) for block in blocks]

    assert code_of(f"{page}.zh-CN.md") == code_of(f"{page}.md") != []


# The command that keeps numbers and pictures: .ci/refresh_chapters.py

MEASURED = {
    ("03", "ratio"): (33.7, 0),
    ("05", "share"): (0.873, 0.02),
    ("09", "ids"): (40_996, 0),
}


@pytest.mark.parametrize(
    "text, fresh",
    [
        ("12<!--03.ratio--> times", "34<!--03.ratio--> times"),
        ("12.00<!--03.ratio-->", "33.70<!--03.ratio-->"),
        ("5 %<!--05.share--> and 0.1<!--05.share-->", "87 %<!--05.share--> and 0.9<!--05.share-->"),
        ("1,000<!--09.ids--> ids", "40,996<!--09.ids--> ids"),
        ("7<!--03.other-->, 7, 7 %", "7<!--03.other-->, 7, 7 %"),
    ],
)
def test_a_refresh_rewrites_a_number_in_the_form_that_it_had(text, fresh):
    assert refresh_chapters.refreshed(text, MEASURED) == fresh
    assert refresh_chapters.refreshed(fresh, MEASURED) == fresh


@pytest.mark.parametrize(
    "text, complaints",
    [
        ("34<!--03.ratio-->, 33.7<!--03.ratio-->", 0),
        ("35<!--03.ratio-->", 1),
        ("33<!--03.ratio--> and 33.5<!--03.ratio-->", 2),
        ("89 %<!--05.share-->, 85.5 %<!--05.share-->, 0.89<!--05.share-->", 0),
        ("91 %<!--05.share--> or 0.90<!--05.share-->", 2),
        ("12<!--05.none-->", 1),
        ("41,000", 0),
    ],
)
def test_a_quoted_number_is_stale_beyond_its_tolerance_and_its_rounding(text, complaints):
    assert len([*refresh_chapters.stale(text, MEASURED)]) == complaints


def test_a_check_leaves_the_slow_half_of_a_chapter_to_a_full_run(tmp_path, monkeypatch):
    monkeypatch.setattr(refresh_chapters, "ROOT", tmp_path)
    (tmp_path / "chapters").mkdir()
    (tmp_path / "chapters" / "03_slow.py").write_text("if figures.FULL:\n    pass\n", "utf-8")
    (tmp_path / "chapters" / "05_quick.py").write_text("pass\n", "utf-8")
    text = "7<!--03.of_three_starts-->, 35<!--03.ratio-->, 7<!--05.none-->"

    def complaints():
        return [*refresh_chapters.stale(text, MEASURED, refresh_chapters.quick())]

    monkeypatch.setenv("FULL", "")
    assert len(complaints()) == 2 and "of_three_starts" not in str(complaints())
    monkeypatch.setenv("FULL", "1")
    assert len(complaints()) == 3


def test_a_check_complains_of_a_stale_picture_and_a_stale_number(tmp_path, monkeypatch):
    shown, drawn = tmp_path / "docs" / "chapters", tmp_path / "runs" / "chapters"
    for folder in (shown, drawn, tmp_path / "chapters"):
        folder.mkdir(parents=True)
    (shown / "zh").mkdir()
    paths = {"ROOT": tmp_path, "RUNS": drawn, "PICTURES": shown, "CHAPTERS": tmp_path / "chapters"}
    for name, value in paths.items():
        monkeypatch.setattr(refresh_chapters, name, value)
    gallery = tmp_path / "chapters" / "README.md"
    gallery.write_text("![](../docs/chapters/01_a.png) 5<!--01.five-->", "utf-8")
    (drawn / "01_sets.json").write_text(json.dumps({"five": [5, 0]}), "utf-8")

    def draw(folder, heights):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(3, 2))
        figure.subplots().bar(range(len(heights)), heights)
        figure.savefig(folder / "01_a.png")

    draw(drawn, [1, 2.05, 3, 4])
    assert len(refresh_chapters.check()) == 1  # not shown
    draw(shown, [1, 2, 3, 4])
    draw(shown / "zh", [1, 2, 3, 4])
    assert refresh_chapters.check() == []
    draw(drawn, [4, 1, 0.5, 0.3])
    gallery.write_text(gallery.read_text("utf-8").replace("5<", "6<"), "utf-8")
    number, picture = refresh_chapters.check()
    assert "five" in number and "01_a.png" in picture


def test_a_page_is_made_from_a_run_of_the_same_code(tmp_path, monkeypatch):
    for name, value in (("ROOT", tmp_path), ("RUNS", tmp_path), ("CHAPTERS", tmp_path)):
        monkeypatch.setattr(refresh_chapters, name, value)
    program = tmp_path / "01_short.py"
    program.write_text("# %% [markdown]\n# # 1 · Short\n\n# %%\nprint(__file__)\n", "utf-8")
    (tmp_path / "zh").mkdir()
    (tmp_path / "zh" / "01_short.md").write_text("# 1 · 短\n", "utf-8")
    with pytest.raises(ValueError, match="it has not been run"):
        list(refresh_chapters.fresh_pages(program))
    printed = f"{tmp_path}/01_short.py\nfor the gallery: a = 1\nfigure: runs/chapters/01_a.png\n"
    output = {"code": "print(__file__)", "text": printed, "pictures": ["01_a"]}
    (tmp_path / "01_short.outputs").write_text(json.dumps([output]), "utf-8")
    (path, english), (_, chinese) = refresh_chapters.fresh_pages(program)
    assert path == tmp_path / "01_short.md" and "# 1 · 短" in chinese
    assert "```text\n01_short.py\n```\n\n![](../docs/chapters/01_a.png)" in english
    program.write_text(program.read_text("utf-8") + "print(1)\n", "utf-8")
    with pytest.raises(ValueError, match="its code has changed since its last run"):
        list(refresh_chapters.fresh_pages(program))


def test_a_number_in_prose_must_be_printed_or_in_the_code():
    title, code = "# %% [markdown]\n# # Title, 9 %\n\n", "# %%\nn = 1_500\n"
    text = title + "# %% [markdown]\n# It is {} of all.\n\n" + code
    for quoted, output in (("0.25", "0.2513"), ("25 %", "25%"), ("25 %", "0.249"), ("1,500", "")):
        assert not chapter.unprinted(text.format(quoted), output)
    for quoted, output in (("0.25", "0.24"), ("25 %", "0.26"), ("1,501", "1,500"), ("0.3", "3")):
        assert chapter.unprinted(text.format(quoted), output) == [quoted]
    assert not chapter.unprinted(text.format("$0.7$, `0.8`, section 3.4, chapter 5,"), "")


PROGRAM = """
# %% [markdown]
# # 1 · A title

# %%
import figures  # this prints nothing

# %% [markdown]
# ## First
#
# Prose.


# %%
def speak():
    print("spoken", end=" ")


speak()
print("twice")

# %% [markdown]
# ## Second
# ### Not a section

# %%
speak()
"""


@pytest.mark.once
@pytest.mark.slow
def test_a_program_prints_the_heading_of_a_section_before_its_first_output(tmp_path):
    chapter = tmp_path / "01_short.py"
    chapter.write_text(PROGRAM, "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "chapters"), "PYTHONUTF8": "1"}
    command = [sys.executable, chapter]
    printed = subprocess.run(
        command, env=environment, capture_output=True, check=True, encoding="utf-8", timeout=300
    )
    *lines, last = (line for line in printed.stdout.splitlines() if line)
    assert lines == ["# 1 · A title", "## First", "spoken twice", "## Second"]
    assert last.startswith("spoken ")


DRAWN = """
import numpy as np, figures
heads = np.array([[[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]], [[0.0, 0.05, 0.45], [0.25, 0.15, 0.1]]])
panel = figures.plot_alignment(heads, "abc", "xy", [(1, 1), (0, 2)]).axes[0]
*rings, dots = panel.get_lines()
assert [tuple(ring.get_xydata()[0]) for ring in rings] == [(1, 1), (2, 0)]  # x is the source
assert dots.get_xydata().tolist() == [[0, 0], [2, 1]]
assert panel.get_ylabel() == "token being written"
image, = figures.plot_positional_encoding(np.array([[-0.2, 0.1]])).axes[0].get_images()
assert image.get_clim() == (-0.2, 0.2) and image.get_array().tolist() == [[-0.2], [0.1]]
"""


@pytest.mark.once
@pytest.mark.slow
def test_known_links_are_ringed_and_white_is_zero_in_a_table_of_positions():
    command = [sys.executable, "-c", DRAWN]
    subprocess.run(command, cwd=ROOT / "chapters", check=True, timeout=300)


WRITTEN = """
import numpy as np, weather
assert all(weather.RECORDED.fullmatch(line) for line in weather.SO_FAR.values())
sources = [{" ".join(pair[0]) for pair in pairs} for pairs in (weather.TEST, weather.TRAIN)]
assert not sources[0] & sources[1]

class Knows:
    def __init__(self, labels):
        self.logits = np.eye(weather.VOCABULARY_SIZE)[labels]

    def predict(self, inputs, **_):
        return self.logits

_, labels = weather.lines(weather.TEST)
assert weather.share_written(Knows(labels)) == 1
assert weather.share_written(Knows(np.roll(labels, 1, axis=0))) < 0.05
source, target, links, _ = weather.TEST[0]
(ids,), (labels,) = weather.lines(weather.TEST[:1])
assert [weather.WORDS[i] for i in ids[ids > 0]] == [*source, "<s>", *target, "</s>"]
assert [weather.WORDS[i] for i in labels[labels > 0]] == [*target, "</s>"]
assert not labels[: len(source)].any()
"""


@pytest.mark.once
@pytest.mark.slow
def test_the_small_translator_is_asked_for_the_english_and_judged_by_whole_sentences():
    command = [sys.executable, "-c", WRITTEN]
    subprocess.run(command, cwd=ROOT / "chapters", check=True, timeout=300)
