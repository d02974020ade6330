"""Chapters as notebooks that stand alone: docs/notebooks.py."""

import ast
import base64
import json
import pathlib
import re
import subprocess
import sys

import pytest

from programs import module_of

ROOT = pathlib.Path(__file__).parents[2]
CHAPTERS = sorted((ROOT / "chapters").glob("[0-9]*.py"))

pytest.importorskip("nbformat", reason="notebooks need the extra docs")


@pytest.fixture(scope="module")
def notebooks():
    return module_of(ROOT / "docs" / "notebooks.py")


def sources(notebook, kind):
    return [cell.source for cell in notebook.cells if cell.cell_type == kind]


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_notebook_has_the_cells_of_its_chapter_and_two_more(notebooks, path):
    install, shared, *own = sources(notebooks.from_chapter(path), "code")
    assert "google.colab" in install and '"keras3-transformer[chapters]' in install
    ast.parse(shared)
    assert (ROOT / "chapters" / "figures.py").read_text("utf-8") in shared
    text = path.read_text("utf-8")
    assert own and all(source in text for source in own)


@pytest.mark.slow
def test_the_shared_files_are_written_where_they_can_be_imported(notebooks, tmp_path):
    _, shared, *_ = sources(notebooks.from_chapter(CHAPTERS[2]), "code")
    program = f"{shared}\nimport figures\nprint(figures.FOLDER)"
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    folder = tmp_path / "keras_transformer_chapters"
    assert str(folder / "runs" / "chapters") in result.stdout
    figures = ROOT / "chapters" / "figures.py"
    assert (folder / "chapters" / "figures.py").read_bytes() == figures.read_bytes()


def test_a_notebook_brings_what_its_chapter_imports_and_reads(notebooks):
    def brought(number):
        (path,) = (path for path in CHAPTERS if path.name.startswith(number))
        files = notebooks.shared_files(path.read_text("utf-8"), notebooks.pages.ENGLISH)
        return {path.relative_to(ROOT).as_posix() for path in files}

    figures = "chapters/figures.py"
    assert brought("02") == {figures}
    assert brought("03") == {figures, "chapters/weather.py"}
    assert brought("15") == {figures, "scripts/generated_english.py"}
    for number in ("16", "17", "18"):
        assert brought(number) == {figures, "chapters/sonnets.txt"}


def test_the_title_shows_where_the_reader_is(notebooks):
    title = notebooks.from_chapter(CHAPTERS[6]).cells[0]
    assert "](attachment:map.svg)" in title.source
    svg = base64.b64decode(title.attachments["map.svg"]["image/svg+xml"]).decode()
    assert svg.startswith("<svg") and "you are in chapter 7" in svg


def test_a_schematic_is_an_attachment_of_the_cell_that_speaks_of_it(notebooks):
    (path,) = (path for path in CHAPTERS if path.name.startswith("06"))
    cells = [cell for cell in notebooks.from_chapter(path).cells if "attachments" in cell]
    assert [list(cell["attachments"]) for cell in cells[1:]] == [
        ["mask.svg"],
        ["teacher_forcing.svg"],
    ]
    assert all("../docs/drawings" not in cell.source for cell in cells)


def test_links_to_colab_need_a_repository(notebooks, monkeypatch):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    assert "Colab" not in sources(notebooks.from_chapter(CHAPTERS[0]), "markdown")[0]
    monkeypatch.setenv("GITHUB_REPOSITORY", "someone/transformer")
    notebook = notebooks.from_chapter(CHAPTERS[0])
    address = "https://colab.research.google.com/github/someone/transformer/blob/notebooks"
    assert f"({address}/{CHAPTERS[0].stem}.ipynb)" in sources(notebook, "markdown")[0]
    assert "@ git+https://github.com/someone/transformer" in sources(notebook, "code")[0]


@pytest.mark.once
@pytest.mark.parametrize("language", ["ENGLISH", "CHINESE"])
def test_each_link_leads_to_a_notebook_or_to_an_attachment(notebooks, monkeypatch, language):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    language = getattr(notebooks.pages, language)
    known = {f"{name}{language.suffix}.ipynb" for name in (*(p.stem for p in CHAPTERS), "grading")}
    for path in CHAPTERS:
        for cell in notebooks.from_chapter(path, language).cells:
            if cell.cell_type == "markdown":
                attached = {f"attachment:{name}" for name in cell.get("attachments", ())}
                assert {*re.findall(r"\]\(([^)]+)\)", cell.source)} <= known | attached


def test_a_link_to_another_page_of_the_repository_needs_one(notebooks, monkeypatch):
    def prose():
        return "\n".join(sources(notebooks.from_chapter(CHAPTERS[10]), "markdown"))

    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    assert "view=beams` (A server)." in prose()
    monkeypatch.setenv("GITHUB_REPOSITORY", "someone/transformer")
    page = "https://github.com/someone/transformer/blob/HEAD/docs/serving.md#the-page"
    assert f"view=beams` ([A server]({page}))." in prose()


def test_any_text_becomes_a_literal(notebooks):
    for text in ("a\n", "\\n 'a' \"b\"\n", "'''\n", "ends with '", "ends with \\"):
        assert ast.literal_eval(notebooks.as_literal(text)) == text


@pytest.mark.parametrize("suffix", ["", ".zh-CN"])
def test_the_page_of_the_check_is_a_notebook_in_which_each_layer_is_checked(notebooks, suffix):
    language = notebooks.pages.CHINESE if suffix else notebooks.pages.ENGLISH
    notebook = notebooks.from_page(language)
    install, *own = sources(notebook, "code")
    page = (ROOT / "docs" / f"grading{suffix}.md").read_text("utf-8")
    assert "google.colab" in install and len(own) == 4
    assert all(source in page and "\nkt.check_layer(" in source for source in own)
    prose = "\n".join(sources(notebook, "markdown"))
    assert f"](04_multi_head_attention{suffix}.ipynb)" in prose
    assert "```text" not in prose and "](../" not in prose and ".md)" not in prose


def test_a_chapter_leads_to_the_notebook_of_the_check(notebooks):
    for language, name in (("ENGLISH", "grading"), ("CHINESE", "grading.zh-CN")):
        notebook = notebooks.from_chapter(CHAPTERS[3], getattr(notebooks.pages, language))
        assert f"]({name}.ipynb)" in "\n".join(sources(notebook, "markdown"))


@pytest.mark.slow
@pytest.mark.once
def test_a_notebook_runs_in_a_folder_without_other_files(tmp_path):
    pytest.importorskip("nbclient", reason="executing notebooks needs the extra docs")
    pytest.importorskip("ipykernel", reason="executing notebooks needs the extra docs")
    command = [sys.executable, ROOT / "docs" / "notebooks.py", "16", "--output", tmp_path]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr[-2000:]
    paths = list(tmp_path.glob("16_*.ipynb"))
    assert len(paths) == 2  # in English and in Chinese
    for path in paths:
        cells = json.loads(path.read_text("utf-8"))["cells"]
        outputs = [output for cell in cells for output in cell.get("outputs", [])]
        assert any("image/png" in output.get("data", {}) for output in outputs)
        assert not any(output["output_type"] == "error" for output in outputs)


def test_a_chinese_notebook_has_its_own_prose_figures_and_links(notebooks):
    notebook = notebooks.from_chapter(CHAPTERS[2], notebooks.pages.CHINESE)
    english = notebooks.from_chapter(CHAPTERS[2])
    prose = "\n".join(sources(notebook, "markdown"))
    assert "](04_multi_head_attention.zh-CN.ipynb)" in prose and ".md)" not in prose
    assert "# 3 · 缩放点积注意力" in prose and "第 3 章](attachment:map.svg)" in prose
    _, shared, *code = sources(notebook, "code")
    assert code == sources(english, "code")[2:]
    assert "chapters/labels.py" in shared and shared.endswith('figures.LANGUAGE = "zh"')
