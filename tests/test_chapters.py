"""What all chapters have in common. The gate runs them: .ci/chapter.py."""

import ast
import pathlib
import re
import types

import pytest

import keras_transformer as kt
from keras_transformer import plots

ROOT = pathlib.Path(__file__).parents[1]
CHAPTERS = sorted((ROOT / "chapters").glob("[0-9]*.py"))
GALLERY = ROOT / "chapters" / "README.md"

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
    """What `import keras_transformer` offers, but for its modules."""
    public = {name: value for name, value in vars(kt).items() if not name.startswith("_")}
    return {name for name, value in public.items() if not isinstance(value, types.ModuleType)}


def test_there_is_a_chapter_for_each_number():
    assert [int(path.name[:2]) for path in CHAPTERS] == list(range(1, len(CHAPTERS) + 1))
    assert len(CHAPTERS) == 15


@every_chapter
def test_a_title_cell_asks_a_question_and_says_where_it_stands(path):
    title = re.sub(r"\s*\n# ?", " ", cells(path, "[markdown]")[0])
    assert title.startswith(f"# # {int(path.name[:2])} · ")
    assert re.search(r"\*\*[^*]+\?\*\*", title), "a question in bold"
    assert re.search(r"[Rr]un time: (about|under) \d+ s", title)
    assert "Paper: " in title and "Géron" in title and "rticle" in title


@every_chapter
def test_three_exercises_have_answers(path):
    text = "\n".join(cells(path, "[markdown]"))
    exercises, answers = text.split("# ## Exercises")[1].split("# ## Answers")
    assert re.findall(r"^# (\d)\.", exercises, re.M) == ["1", "2", "3"]
    for number in "123":
        assert re.search(rf"^# (\*\*)?{number}\\?\.", answers, re.M)


@every_chapter
def test_plotting_is_marked_and_keras_is_the_only_backend(path):
    for code in cells(path, ""):
        if "figures.show(" in code:
            assert code.lstrip().startswith("# extra code – "), code[:80]
    assert not {"tensorflow", "tf", "torch", "jax"} & names_in(path)


@every_chapter
def test_the_gallery_has_its_question_its_figure_and_its_finding(path):
    sections = re.split(r"^## ", GALLERY.read_text("utf-8"), flags=re.M)
    mine = [section for section in sections if f"({path.name})" in section.splitlines()[0]]
    assert len(mine) == 1, f"chapters/README.md has {len(mine)} sections for {path.name}"
    _, question, picture, finding, *_ = re.split(r"\n\n+", mine[0])
    assert re.fullmatch(r"\*\*.+\?\*\*", question) and re.search(r"\d", finding)
    figure = GALLERY.parent / re.search(r"\(([^)]+\.png)\)", picture)[1]
    assert figure.exists() and f'"{figure.stem}"' in path.read_text("utf-8")


def test_the_gallery_links_to_what_exists():
    for page in (GALLERY, ROOT / "docs" / "index.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_public_name_is_used_by_a_chapter():
    used = set().union(*map(names_in, CHAPTERS))
    used |= {
        name for path in CHAPTERS for name in re.findall(r"`kt\.(\w+)`", path.read_text("utf-8"))
    }
    pictures = {name for name in vars(plots) if name.startswith("plot_")}
    assert not (public_names() | pictures) - used


def test_the_chinese_readme_runs_the_same_code():
    def code_of(name):
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text("utf-8"), re.S)
        return [re.sub(r" *#.*", "", block) for block in blocks]

    assert code_of("README.zh-CN.md") == code_of("README.md") != []
