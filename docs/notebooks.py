"""The chapters as executed notebooks that stand alone: the package is all that they need.

The command that writes them to runs/notebooks: python docs/notebooks.py

The title has the map of the Transformer. A first cell installs the package in Colab, a second one
writes the files that the chapter shares with others (figures.py, texts) to a folder of its own.
GITHUB_REPOSITORY=OWNER/NAME, which a workflow of GitHub sets, adds links that open a notebook in
Colab.
"""

import argparse
import base64
import os
import pathlib
import re
import sys
import tempfile

import jupytext
import nbformat

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "docs"))

import drawings  # noqa: E402, beside this file

CHAPTERS = ROOT / "chapters"
DISTRIBUTION = "keras3-transformer[chapters]"
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
FOLDER = "keras_transformer_chapters"


def reads(text, fmt):
    """The notebook of a chapter, for the site: code outside the lesson is folded."""
    notebook = jupytext.reads(text, fmt=fmt)
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.source.startswith("# extra code"):
            cell.metadata["tags"] = ["hide-input"]
    return notebook


def shared_files(source):
    """The files of chapters/ and scripts/ that a chapter imports or reads."""
    modules = [*sorted(CHAPTERS.glob("[a-z]*.py")), *sorted((ROOT / "scripts").glob("*.py"))]
    imported = [path for path in modules if re.search(rf"^import {path.stem}$", source, re.M)]
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


def standalone(notebook, path):
    """A notebook of a chapter, executed or not, with what it needs from beside it.

    Args:
        notebook: nbformat notebook, as made from `path`; it is changed.
        path: pathlib.Path of the chapter, of the program or of its Chinese edition.

    Returns:
        The notebook.
    """
    name = path.name.removesuffix(".py").removesuffix(".md")
    program = CHAPTERS / f"{name.removesuffix('.zh')}.py"
    source = program.read_text("utf-8")
    files = ",\n".join(
        f"    {path.relative_to(ROOT).as_posix()!r}: {as_literal(path.read_text('utf-8'))}"
        for path in shared_files(source)
    )
    shared = SHARED.format(folder=FOLDER, files=files, chapter=program.stem)
    cells = [nbformat.v4.new_code_cell(INSTALL.format(requirement=requirement()))]
    cells.append(nbformat.v4.new_code_cell(shared, metadata={"jupyter": {"source_hidden": True}}))
    link = colab_link(name)
    if link:
        notebook.cells[0].source += f"\n\n[Open in Colab]({link})"
    for cell in notebook.cells:  # notebooks lie in one folder, as chapters do
        if cell.cell_type == "markdown":
            cell.source = re.sub(
                r"\]\((\d\d_\w+)(?:\.py|(\.zh)\.md)\)", r"](\1\2.ipynb)", cell.source
            )
            for schematic, draw in drawings.SCHEMATICS.items():
                if (link := f"](../docs/drawings/{schematic}.svg)") in cell.source:
                    cell.source = cell.source.replace(link, f"](attachment:{schematic}.svg)")
                    attach(cell, f"{schematic}.svg", draw())
    show_map(notebook.cells[0], int(name[:2]))
    notebook.cells[1:1] = cells
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # the same in every build
    notebook.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
    }
    return notebook


def show_map(title, number):
    """Adds the map of the Transformer, "you are here", to the title cell."""
    title.source += f"\n\n![You are here: chapter {number}](attachment:map.svg)"
    attach(title, "map.svg", drawings.Map(number))


def attach(cell, name, drawing):
    """Makes a drawing an attachment of a cell."""
    svg = base64.b64encode(drawing.svg().encode()).decode()
    cell.setdefault("attachments", {})[name] = {"image/svg+xml": svg}


def as_literal(text):
    """A raw string in three quotes, which is legible, or whatever Python writes."""
    quote = "'''"
    plain = quote not in text and not text.endswith(("'", "\\"))
    return f"r{quote}{text}{quote}" if plain else repr(text)


def from_chapter(path):
    """The notebook of a chapter, of the program or of its Chinese edition, without outputs."""
    return standalone(jupytext.read(path, fmt="md" if path.suffix == ".md" else "py:percent"), path)


def executed(notebook, folder):
    """Runs a notebook in a folder."""
    from nbclient import NotebookClient

    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times
    return without_notices(notebook)


def without_notices(notebook):
    """A notebook without what its cells wrote to stderr: backends write there as they start."""
    for cell in notebook.cells:
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("chapters", nargs="*", type=int, metavar="N", help="numbers (default: all)")
    parser.add_argument("--output", default=ROOT / "runs" / "notebooks", type=pathlib.Path)
    parser.add_argument("--not-executed", action="store_true", help="cells without outputs")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for path in sorted([*CHAPTERS.glob("[0-9]*.py"), *CHAPTERS.glob("[0-9]*.zh.md")]):
        if options.chapters and int(path.name[:2]) not in options.chapters:
            continue
        notebook = from_chapter(path)
        if not options.not_executed:
            with tempfile.TemporaryDirectory() as folder:  # nothing lies beside it
                executed(notebook, folder)
        target = options.output / f"{path.name.removesuffix(path.suffix)}.ipynb"
        nbformat.write(notebook, target)
        print(target, file=sys.stdout, flush=True)


if __name__ == "__main__":
    main()
