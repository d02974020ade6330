"""The chapters and the page of the check as executed notebooks that need only the package.

The command that writes them to runs/notebooks: python docs/notebooks.py

The title has the map of the Transformer. A first cell installs the package in Colab, a second one
writes the files that the chapter shares with others (figures.py, texts) to a folder of its own.
GITHUB_REPOSITORY=OWNER/NAME, which a workflow of GitHub sets, adds links that open a notebook in
Colab.
"""

import argparse
import base64
import itertools
import os
import pathlib
import re
import sys
import tempfile

import nbformat

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "docs"))

import drawings  # noqa: E402, beside this file
import pages  # noqa: E402, beside this file

CHAPTERS = ROOT / "chapters"
DISTRIBUTION = "keras3-transformer[chapters]"
PAGE = "grading"  # of docs/, a notebook as well
FOLDER_OF_ALL = ROOT / "runs" / "notebooks"
BRANCH = "notebooks"  # where .github/workflows/pages.yml puts them, for Colab

INSTALL = """\
# extra code – installs the package in Colab
import sys

if "google.colab" in sys.modules:
    %pip install --quiet {requirement}"""

SHARED = """\
# extra code – what the chapters share, written to the folder {folder}
import pathlib
import sys

for name, text in {{
{files}
}}.items():
    path = pathlib.Path("{folder}", name).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
sys.path.insert(0, str(pathlib.Path("{folder}", "chapters").resolve()))
sys.argv[0] = "{chapter}.py\""""
IN_CHINESE = """
import figures

figures.LANGUAGE = "zh\""""
FOLDER = "keras_transformer_chapters"


def shared_files(source, language):
    """The files of chapters/ and scripts/ that a chapter imports or reads."""
    modules = [*sorted(CHAPTERS.glob("[a-z]*.py")), *sorted((ROOT / "scripts").glob("*.py"))]
    imported = [path for path in modules if re.search(rf"^import {path.stem}$", source, re.M)]
    if language is pages.CHINESE:
        imported.append(CHAPTERS / "labels.py")  # of the figures
    texts = [path for path in sorted(CHAPTERS.glob("*.*")) if path.suffix in (".txt", ".tsv")]
    # figures.sonnets() reads sonnets.txt: only a chapter that calls it, or names it, needs the text
    return imported + [path for path in texts if f".{path.stem}(" in source or path.name in source]


def colab_link(name):
    """The address that opens a notebook in Colab, or None where no repository is known."""
    repository = os.environ.get("GITHUB_REPOSITORY")
    address = "https://colab.research.google.com/github"
    return f"{address}/{repository}/blob/{BRANCH}/{name}.ipynb" if repository else None


def requirement():
    """What pip installs: from the repository, where one is known."""
    repository = os.environ.get("GITHUB_REPOSITORY")
    origin = f" @ git+https://github.com/{repository}" if repository else ""
    return f'"{DISTRIBUTION}{origin}"'


def from_chapter(program, language=pages.ENGLISH):
    """The notebook of a chapter, without outputs, with what it needs from the files around it.

    Args:
        program: pathlib.Path of the chapter.
        language: `pages.ENGLISH` or `pages.CHINESE`.
    """
    name, source = f"{program.stem}{language.suffix}", program.read_text("utf-8")
    chapter = pages.cells(source)
    if language is pages.CHINESE:
        translation = CHAPTERS / "zh" / f"{program.stem}.md"
        chapter = pages.in_chinese(chapter, translation.read_text("utf-8"))
    new = {True: nbformat.v4.new_code_cell, False: nbformat.v4.new_markdown_cell}
    cells = [new[cell.is_code](cell.text) for cell in chapter]
    link = colab_link(name)
    if link:
        cells[0].source += f"\n\n[Open in Colab]({link})"
    for cell in cells:
        if cell.cell_type == "markdown":
            illustrate(cell, language)
    show_map(cells[0], int(name[:2]), language)
    files = ",\n".join(
        f"    {path.relative_to(ROOT).as_posix()!r}: {as_literal(path.read_text('utf-8'))}"
        for path in shared_files(source, language)
    )
    shared = SHARED.format(folder=FOLDER, files=files, chapter=program.stem)
    if language is pages.CHINESE:
        shared += IN_CHINESE
    cells[1:1] = [
        nbformat.v4.new_code_cell(INSTALL.format(requirement=requirement())),
        nbformat.v4.new_code_cell(shared, metadata={"jupyter": {"source_hidden": True}}),
    ]
    return of_cells(cells)


def from_page(language=pages.ENGLISH):
    """The notebook of docs/grading.md, whose code is that of its cells, without outputs."""
    page = ROOT / "docs" / f"{PAGE}{language.suffix}.md"
    text = pages.OUTPUT.sub("", page.read_text("utf-8"))
    text = re.sub(r"^.*\]\(grading[\w.-]*\.md\).*\n\n", "", text, count=1, flags=re.M)  # languages
    parts = re.split(r"^```python\n(.*?)^```$", text, flags=re.M | re.S)
    new = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell
    cells = [new[n % 2](part.strip()) for n, part in enumerate(parts) if part.strip()]
    for cell in cells:
        if cell.cell_type == "markdown":
            illustrate(cell, language)
    cells.insert(1, nbformat.v4.new_code_cell(INSTALL.format(requirement=requirement())))
    return of_cells(cells)


def of_cells(cells):
    """The notebook of cells, the same in every build."""
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
    }
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


def illustrate(cell, language):
    """Links to other chapters become links to notebooks, drawings become attachments."""
    cell.source = re.sub(
        rf"\]\((?:\.\./\w+/)?(\d\d_\w+|{PAGE})(?:\.zh-CN)?\.(?:py|md)\)",
        rf"](\1{language.suffix}.ipynb)",
        cell.source,
    )
    for schematic, draw in drawings.SCHEMATICS.items():
        if (link := f"]({pages.DRAWINGS}{schematic}.svg)") in cell.source:
            cell.source = cell.source.replace(link, f"](attachment:{schematic}.svg)")
            attach(cell, f"{schematic}.svg", draw(), language)
    cell.source = re.sub(r"\[([^\]]*)\]\(\.\./([^)]+)\)", elsewhere, cell.source)


def elsewhere(link):
    """A link to a page that is no notebook: to the repository, or its words where none is known."""
    words, path = link.groups()
    repository = os.environ.get("GITHUB_REPOSITORY")
    return f"[{words}](https://github.com/{repository}/blob/HEAD/{path})" if repository else words


def show_map(title, number, language):
    """Adds the map of the Transformer, "you are here", to the title cell."""
    title.source += f"\n\n![{language.here.format(number)}](attachment:map.svg)"
    attach(title, "map.svg", drawings.Map(number), language)


def attach(cell, name, drawing, language):
    """Makes a drawing an attachment of a cell."""
    svg = base64.b64encode(drawing.svg(language is pages.CHINESE).encode()).decode()
    cell.setdefault("attachments", {})[name] = {"image/svg+xml": svg}


def as_literal(text):
    """A raw string in three quotes, which is legible, or whatever Python writes."""
    quote = "'''"
    plain = quote not in text and not text.endswith(("'", "\\"))
    return f"r{quote}{text}{quote}" if plain else repr(text)


def executed(notebook, folder):
    """Runs a notebook in a folder."""
    from nbclient import NotebookClient

    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times
        if "outputs" in cell:  # backends write to stderr as they start
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("chapters", nargs="*", type=int, metavar="N", help="numbers (default: all)")
    parser.add_argument("--output", default=FOLDER_OF_ALL, type=pathlib.Path)
    parser.add_argument("--not-executed", action="store_true", help="cells without outputs")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    programs = [*sorted(CHAPTERS.glob("[0-9]*.py")), None]
    for program, language in itertools.product(programs, (pages.ENGLISH, pages.CHINESE)):
        if options.chapters and not (program and int(program.name[:2]) in options.chapters):
            continue
        notebook = from_chapter(program, language) if program else from_page(language)
        if not options.not_executed:
            with tempfile.TemporaryDirectory() as folder:  # nothing lies beside it
                executed(notebook, folder)
        name = program.stem if program else PAGE
        target = options.output / f"{name}{language.suffix}.ipynb"
        nbformat.write(notebook, target)
        print(target, file=sys.stdout, flush=True)


if __name__ == "__main__":
    main()
