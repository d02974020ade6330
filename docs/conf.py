"""The site: the README, the results, the API reference, and the pages of the chapters.

The command that builds it: sphinx-build -W -c docs . runs/site. Notebooks that
`python docs/notebooks.py` has written before are offered on the pages of their chapters.
"""

import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys

import sphinx.search
import sphinx.util.logging
from sphinx.search.en import SearchEnglish

ROOT = pathlib.Path(__file__).parents[1]
# The API reference and the exported page import this tree's package, installed or not.
os.environ["PYTHONPATH"] = str(ROOT)
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import drawings  # noqa: E402, beside this file
import notebooks  # noqa: E402
import pages  # noqa: E402

project = html_title = "keras_transformer"
author = "The keras_transformer developers"
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/api/*.md",
    "keras_transformer/tasks/pretrained/*.md",
    "chapters/*.md",
]

extensions = [
    "myst_parser",
    "sphinx-mathjax-offline",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "docstrings",  # beside this file
]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

# The API reference: Google-style docstrings with Keras's and this project's own sections.
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_inherit_docstrings = False  # Keras's own methods are documented by Keras
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
add_module_names = False
toc_object_entries_show_parents = "hide"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Call arguments", "params_style"), "Returns", "Source", "Departs"]
default_role = "code"  # docstrings have Markdown's single backticks
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80


class SearchBoth(SearchEnglish):
    """English words, and of Chinese, which has no spaces, each two to four characters."""

    def split(self, text):
        runs = re.findall("[\u4e00-\u9fff]+", text)
        parts = [
            run[start : start + size]
            for run in runs
            for size in (2, 3, 4)
            for start in range(len(run) - size + 1)
        ]
        return super().split(text) + parts


sphinx.search.languages["en"] = SearchBoth

html_theme = "sphinx_book_theme"
html_theme_options = {"home_page_in_toc": True, "navbar_persistent": []}  # one search box, not two
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system
html_favicon = html_logo = "icon.svg"
html_sourcelink_suffix = ""
# On a telephone long names break, formulas and tables scroll, and nothing pushes a page sideways.
NARROW = """<style>
h1, code, code .pre, .sig, .sig .pre, .prev-next-title {
    overflow-wrap: anywhere !important; white-space: normal !important
}
mjx-container:not([display]) {
    display: inline-block; max-width: 100%; overflow: auto hidden; vertical-align: middle;
    scrollbar-width: none
}
details {margin-bottom: 1.15rem}
.highlight-text pre {border-left: 3px solid var(--pst-color-border); font-size: 0.8em}
@media (min-width: 1200px) {  /* 100 columns of code fit */
    .highlight pre {font-size: 0.76em}
    .highlight-none pre, .highlight-text pre {white-space: pre-wrap}  /* commands, outputs */
    .bd-sidebar-secondary {width: 11rem !important; flex: 0 0 11rem !important}
    .bd-main .bd-content .bd-article-container {max-width: calc(100% - 11rem) !important}
}
.indextable {display: block; overflow-x: auto}
.panels, .sideways {display: block; overflow-x: auto}
@media (max-width: 600px) {
    h1 {font-size: 1.9rem !important}
    .panels img {max-width: none; width: 600px}
    .panels::before, .sideways::before {content: "↔"; display: block; position: sticky; left: 0}
    .prev-next-area a, .prev-next-info {min-width: 0 !important; max-width: 100% !important}
}
</style>"""
# Each row of the sayings is a card: number, saying, verdict; what was measured; the chapter.
CARDS = """<style>
.bd-article table, .bd-article tbody {display: block; border: none}
.bd-article table thead {display: none}
.bd-article table tr {
    display: grid; grid-template-columns: 2rem 1fr auto; gap: 0.4rem 0.8rem;
    margin-bottom: 0.8rem; padding: 0.8rem;
    border: 1px solid var(--pst-color-border) !important; border-radius: 8px
}
.bd-article table td {border: none !important; padding: 0 !important}
.bd-article table td:nth-child(2) {font-weight: 600}
.bd-article table td:nth-child(3) {color: var(--pst-color-accent); max-width: min(9rem, 28vw)}
.bd-article table td:nth-child(4), .bd-article table td:nth-child(5) {grid-column: 2 / 4}
.bd-article table td:nth-child(5)::before {content: "→ "}
.bd-article table td:nth-child(5) p {display: inline}
</style>"""
# Pages that link to a view of the dates model, if the site has it.
TRIED = {
    "docs/web": "attention",
    "04_multi_head_attention": "attention",
    "06_masks": "attention&kind=decoder",
    "07_cross_attention": "translation",
    "11_decoding": "beams",
}
logger = sphinx.util.logging.getLogger(__name__)
highlight_language = "none"  # commands are no Python


def setup(app):
    app.connect("builder-inited", export_page)
    app.connect("source-read", for_sphinx)
    app.connect("html-page-context", draw)
    app.connect("build-finished", copy_notebooks)
    app.connect("build-finished", lead_home)


def export_page(app):
    """The dates model as a page that runs it in the reader's browser, where that can be built.

    KERAS_TRANSFORMER_RUNTIME names the folder of the npm package onnxruntime-web.
    """
    runtime, folder = os.environ.get("KERAS_TRANSFORMER_RUNTIME"), pathlib.Path(app.outdir, "try")
    if app.builder.name != "html" or folder.exists():
        return
    command = [sys.executable, "-c", "from keras_transformer.cli import main; main()"]
    command += ["export", "dates", "--format", "web", "--output", str(folder)]
    command += ["--runtime", str(runtime)]
    done = subprocess.run(command, capture_output=True, text=True) if runtime else None
    if done is None or done.returncode:
        reason = done.stderr.strip() if done else "KERAS_TRANSFORMER_RUNTIME is not set."
        logger.info("The page of the dates model is left out: %s", reason)


def ways_to_try(app, page):
    """Links to the page of the dates model, on the pages that it illustrates."""
    stem = page.rpartition("/")[2]
    view = TRIED.get(page, TRIED.get(stem.removesuffix(pages.CHINESE.suffix)))
    if view is None or not pathlib.Path(app.outdir, "try").exists():
        return ""
    words = (
        "在浏览器里试试日期模型"
        if stem.endswith(pages.CHINESE.suffix)
        else "Try it: the dates model in your browser"
    )
    target = f"{'../' * page.count('/')}try/index.html#view={view}"
    return f'<p><a href="{target}">{words}</a></p>'


def for_sphinx(app, page, source):
    """Formulas as MyST has them; a link to a program, which is no page, downloads it."""
    text = re.sub(r"\$`([^`]+)`\$", r"$\1$", source[0])
    text = re.sub(r"^```math\n(.+?)\n```$", r"$$\n\1\n$$", text, flags=re.M | re.S)
    source[0] = re.sub(r"\]\(((?:[\w./]+/[a-z_]+|\d\d_\w+)\.py)\)", r"](path:\1)", text)


def chapter_of(page):
    """The program of a page that is a chapter, and its language, or None."""
    language = pages.CHINESE if page.endswith(pages.CHINESE.suffix) else pages.ENGLISH
    path = ROOT / f"{page.removesuffix(language.suffix)}.py"
    is_chapter = path.exists() and path.parent.name == "chapters"
    return (path if is_chapter else None), language


def draw(app, page, template, context, doctree):
    """Drawings that follow light and dark; the map, each box a link, also opens in each chapter."""
    cards = CARDS if page.startswith("chapters/sayings") else ""
    context["metatags"] = context.get("metatags", "") + NARROW + cards
    if "body" not in context:
        return
    program, language = chapter_of(page)
    links = {
        number: app.builder.get_relative_uri(page, f"chapters/{stem}{language.suffix}")
        for number, (_, _, stem) in drawings.titles().items()
    }
    here, is_chinese = program and int(program.name[:2]), language is pages.CHINESE
    the_map = drawings.Map(here, links).svg(is_chinese)
    on_pages = {name: draw().svg(is_chinese) for name, draw in drawings.SCHEMATICS.items()}
    on_pages["transformer"] = the_map
    body = re.sub(
        rf"<img[^>]*/({'|'.join(on_pages)})\d*\.svg[^>]*>",
        lambda image: on_a_page(on_pages[image[1]]),
        context["body"],
    )
    sources = {name: source for source, name in app.builder.images.items()}

    def scrolling(image):
        """A picture of several panels, which on a telephone is moved sideways."""
        with open(ROOT / sources[image[1]], "rb") as file:
            (width,) = struct.unpack(">16xI", file.read(20))
        return f'<span class="panels">{image[0]}</span>' if width >= 900 else image[0]

    body = re.sub(r"<img[^>]*/_images/(\d\d_\w+\.png)[^>]*>", scrolling, body)
    if here:
        words = language.here.format(here)
        strip = f"<details><summary>{words}</summary>{on_a_page(the_map)}</details>"
        strip = way_to_the_notebook(page, language) + ways_to_try(app, page) + strip
        # Below the question of the chapter, its first paragraph in bold.
        body = re.sub(r"<p><strong>.*?</p>", lambda p: p[0] + strip, body, count=1, flags=re.S)
    elif page in TRIED:
        body = body.replace("</h1>", f"</h1>{ways_to_try(app, page)}", 1)
    elif page.removesuffix(language.suffix) == f"docs/{notebooks.PAGE}":
        body = body.replace("</h1>", f"</h1>{way_to_the_notebook(page, language)}", 1)
    context["body"] = body


def on_a_page(drawing):
    """A drawing that shrinks with the page; on a telephone it is moved sideways."""
    drawing = drawing.replace(
        "<svg ", '<svg style="max-width:100%;min-width:600px;height:auto" ', 1
    )
    return f'<div class="sideways" style="margin:1em 0">{drawing}</div>'


def way_to_the_notebook(page, language):
    """Links to download the notebook of a page and to open it in Colab."""
    name = page.rpartition("/")[2]
    if not (notebooks.FOLDER_OF_ALL / f"{name}.ipynb").exists():
        return ""
    download, in_colab = "Download notebook", "Open in Colab"
    if language is pages.CHINESE:
        download, in_colab = "下载 notebook", "在 Colab 中打开"
    links = [f'<a href="../notebooks/{name}.ipynb" download>{download}</a>']
    if notebooks.colab_link(name):
        links.append(f'<a href="{notebooks.colab_link(name)}">{in_colab}</a>')
    return f"<p>{' · '.join(links)}</p>"


def copy_notebooks(app, exception):
    if exception is None and app.builder.name == "html" and notebooks.FOLDER_OF_ALL.exists():
        shutil.copytree(
            notebooks.FOLDER_OF_ALL, pathlib.Path(app.outdir, "notebooks"), dirs_exist_ok=True
        )


def lead_home(app, exception):
    if exception is None and app.builder.name == "html":
        home = (
            '<link rel="icon" href="_static/icon.svg">\n'
            f'<meta http-equiv="refresh" content="0; url={root_doc}.html">\n'
        )
        pathlib.Path(app.outdir, "index.html").write_text(home, "utf-8")
