"""Runs chapters as a reader would, and checks them: python .ci/chapter.py chapters/NN_name.py ...

Each must pass every assertion of its text, draw figures that are not blank and lack no character,
print every number that its prose quotes, and take less than LIMIT seconds of processor time (a
reader's run, one at a time, is over within a minute). Several run two at a time, each in a process
of its own, which inherits the libraries that this one has imported.
"""

import ast
import contextlib
import io
import json
import multiprocessing
import os
import pathlib
import re
import sys
import tempfile
import time
import traceback
import warnings
from concurrent import futures

# The gate runs two at once, on whatever machine. FULL=1 trains from three starts instead of one.
LIMIT = 540 if os.environ.get("FULL") else 180
ROOT = pathlib.Path(__file__).parents[1]


# What looks like a measurement: 0.25, 1,336,320, 38 %. Formulas, code and sections are none.
QUOTED = re.compile(r"(?<![\w.,/])(\d{1,3}(?:,\d{3})+(?![\d,])|\d+\.\d+(?![\d.])|\d+(?= %))( %)?")
NO_QUOTES = re.compile(r"\$\$.*?\$\$|\$[^$]*\$|`[^`]*`|[Ss]ections? \d\.\d(?:\.\d)?", re.DOTALL)
PRINTED = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]\d+)?")


def prose_and_code(text):
    """The Markdown cells but for the first, as one text, and the code cells, as another."""
    cells = re.split(r"^# %%(.*)\n", text, flags=re.MULTILINE)[1:]
    pairs = list(zip(cells[::2], cells[1::2], strict=True))
    prose = [re.sub(r"\s*\n# ?", " ", cell) for mark, cell in pairs if mark.strip()]
    return "\n".join(prose[1:]), "\n".join(cell for mark, cell in pairs if not mark.strip())


def code_cells(text):
    """The code cells of a chapter, each after as many empty lines as there are lines above it."""
    lines, found = text.splitlines(keepends=True), []
    marks = [place for place, line in enumerate(lines) if line.startswith("# %%")]
    for mark, end in zip(marks, [*marks[1:], len(lines)], strict=True):
        if lines[mark].strip() == "# %%":
            found.append("\n" * (mark + 1) + "".join(lines[mark + 1 : end]))
    return found


def unprinted(text, output):
    """The numbers in a chapter's prose that neither its code contains nor its output shows."""
    prose, code = prose_and_code(text)
    code = code.replace("_", "")
    shown = [float(each.replace(",", "")) for each in PRINTED.findall(output + "\n" + code)]
    missing = []
    for number, percent in QUOTED.findall(NO_QUOTES.sub(" ", prose)):
        decimals, value = len(number.partition(".")[2]), float(number.replace(",", ""))
        scales = (1, 100) if percent else (1,)
        if not any(round(scale * each, decimals) == value for scale in scales for each in shown):
            missing.append(number + percent)
    return missing


class Tee(io.TextIOBase):
    """Writes to several streams."""

    def __init__(self, *streams):
        self.streams = streams

    def write(self, text):
        for stream in self.streams:
            stream.write(text)
        return len(text)


class Counting(ast.NodeTransformer):
    """Records after each assertion, `assert` or `np.testing.assert_...`, that it has passed."""

    def __init__(self):
        self.lines = set()

    def _counted(self, node):
        self.lines.add(node.lineno)
        return [node, *ast.parse(f"_passed.add({node.lineno})").body]

    visit_Assert = _counted

    def visit_Expr(self, node):
        called = ast.unparse(node.value.func) if isinstance(node.value, ast.Call) else ""
        return self._counted(node) if ".assert_" in called else node


def main():
    paths = [pathlib.Path(each).resolve() for each in sys.argv[1:]]
    if len(paths) == 1:
        run(paths[0])
        return
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["keras_transformer", "matplotlib.figure"])
    with futures.ProcessPoolExecutor(2, processes, max_tasks_per_child=1) as pool:
        failed = []
        for path, (passed, output) in zip(paths, pool.map(run_quietly, paths), strict=True):
            print(output.splitlines()[-1] if passed else output, flush=True)
            failed += [] if passed else [path.name]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def run_quietly(path):
    """Runs one chapter: whether it passed, and what it printed."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
        try:
            run(path)
            passed = True
        except BaseException:
            traceback.print_exc()
            passed = False
        sys.stdout.flush()
        log.seek(0)
        return passed, log.read()


def run(path):
    """Runs and checks one chapter in this process."""
    sys.argv = [str(path)]
    sys.path.insert(0, str(path.parent))
    warnings.filterwarnings("error", message="Glyph .* missing")

    import figures

    assert figures.CHINESE, "the font for Chinese is missing"
    shown, show = [], figures.show

    def show_and_note(figure, name):
        show(figure, name)
        shown.append(name)
        figures.translate(figure)  # the same figure for the Chinese page
        (figures.FOLDER / "zh").mkdir(exist_ok=True)
        figure.savefig(figures.FOLDER / "zh" / f"{name}.png", dpi=120)

    figures.show = show_and_note
    counting, passed, outputs = Counting(), set(), []
    namespace = {"__name__": "__main__", "__file__": str(path), "_passed": passed}
    for code in code_cells(path.read_text("utf-8")):
        tree = counting.visit(ast.parse(code, path.name))
        program = compile(ast.fix_missing_locations(tree), path, "exec")
        printed, before = io.StringIO(), len(shown)
        with contextlib.redirect_stdout(Tee(sys.stdout, printed)):
            exec(program, namespace)
        output = {"code": code.strip(), "text": printed.getvalue(), "pictures": shown[before:]}
        outputs.append(output)

    seconds = time.process_time()
    skipped = sorted(counting.lines - passed)
    assert counting.lines and not skipped, f"assertions that did not run: lines {skipped}"
    printed = "".join(output["text"] for output in outputs)
    missing = unprinted(path.read_text("utf-8"), printed)
    assert not missing, f"numbers in prose that the program does not print: {missing}"
    assert shown and all(name.startswith(path.name[:3]) for name in shown), f"figures: {shown}"
    for name in shown:
        check_picture(figures.FOLDER / f"{name}.png")
    assert seconds < LIMIT, f"{seconds:.0f} s; a chapter takes less than {LIMIT}"
    (figures.FOLDER / f"{path.stem}.outputs").write_text(json.dumps(outputs), "utf-8")
    print(f"{path.stem}: {len(passed)} assertions, {len(shown)} figures, {seconds:.0f} s")


def check_picture(path):
    from matplotlib.image import imread

    pixels = imread(path)[..., :3]
    assert pixels.std() > 0.02, f"{path.name} is blank"
    assert pixels.shape[1] >= 300, f"{path.name} is {pixels.shape[1]} pixels wide"


if __name__ == "__main__":
    main()
