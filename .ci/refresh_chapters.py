"""Runs all chapters, and puts their pictures and numbers where they are shown.

python .ci/refresh_chapters.py            run, then write docs/chapters and the numbers in the texts
python .ci/refresh_chapters.py 10 13      the same for chapters 10 and 13
python .ci/refresh_chapters.py --check    compare what is shown with the last run; write nothing

A chapter that asks for `figures.FULL` has a slow half, which runs with FULL=1: it trains from three
starts. A refresh runs it. A check without FULL=1 leaves its picture, and the numbers that only the
slow half records, to the nightly job.

A text quotes a number of a chapter as `0.0625<!--03.row_sum-->`: the comment names the number that
`figures.record` has noted, and is invisible where Markdown is rendered. A refresh rewrites the
number in front of it, with as many decimals as before, and as a percentage if "%" follows it.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
RUNS = ROOT / "runs" / "chapters"
PICTURES = ROOT / "docs" / "chapters"
QUOTED = re.compile(r"(-?\d[\d,]*(?:\.\d+)?)( ?%)?<!--(\d\d)\.(\w+)-->")
MOST_DIFFERENT = 0.05  # of two pictures, in shades from 0 to 1: see `difference`


def texts():
    """The files that quote numbers of chapters: Markdown, and what the chapters share."""
    chapters, docs = ROOT / "chapters", ROOT / "docs"
    files = [*chapters.glob("*.md"), *chapters.glob("[a-z]*.py"), *docs.glob("*.md")]
    return [path for path in sorted(files) if QUOTED.search(path.read_text("utf-8"))]


def recorded():
    """{(chapter, name): (number, tolerance)} of the last run of each chapter."""
    return {
        (path.name[:2], name): tuple(noted)
        for path in sorted(RUNS.glob("[0-9]*.json"))
        for name, noted in json.loads(path.read_text("utf-8")).items()
    }


def quick():
    """The numbers of the chapters whose slow half the last run has left out."""
    if os.environ.get("FULL"):
        return set()
    chapters = sorted((ROOT / "chapters").glob("[0-9]*.py"))
    return {path.name[:2] for path in chapters if "figures.FULL" in path.read_text("utf-8")}


def written_like(quoted, percent, number):
    """The number with the decimals, separators and unit of the quoted one."""
    decimals = len(quoted.partition(".")[2])
    separator = "," if "," in quoted or abs(number) >= 10_000 else ""
    return f"{number * (100 if percent else 1):{separator}.{decimals}f}"


def refreshed(text, numbers):
    """The text with each quoted number as `numbers` has it."""

    def rewrite(found):
        quoted, percent, chapter, name = found.groups()
        if (chapter, name) not in numbers:
            return found[0]
        number, _ = numbers[chapter, name]
        new = written_like(quoted, percent, number)
        return f"{new}{percent or ''}<!--{chapter}.{name}-->"

    return QUOTED.sub(rewrite, text)


def stale(text, numbers, unfinished=()):
    """Yields a sentence for each quoted number that was not recorded, or not as quoted."""
    for quoted, percent, chapter, name in QUOTED.findall(text):
        if (chapter, name) not in numbers:
            if chapter not in unfinished:
                yield f"chapter {chapter} has not recorded {name}"
            continue
        number, tolerance = numbers[chapter, name]
        scale = 100 if percent else 1
        rounding = 0.5 * 10.0 ** -len(quoted.partition(".")[2])
        off = abs(float(quoted.replace(",", "")) - scale * number)
        if off > scale * tolerance + 1.001 * rounding:
            new = written_like(quoted, percent, number) + percent
            yield f"{name} of chapter {chapter} is quoted as {quoted}{percent}, and is {new}"


def difference(one, other):
    """How different two pictures are, 0 to 1: the mean over squares of a coarse grid, in grey.

    A curve that ends a little higher moves it by less than 0.02, another picture by over 0.08.
    """
    import numpy as np
    from matplotlib.image import imread

    grids = []
    for path in (one, other):
        shades = imread(path)[..., :3].mean(axis=-1)
        rows, columns = (np.array_split(np.arange(size), 24) for size in shades.shape)
        grids.append([[shades[np.ix_(row, column)].mean() for column in columns] for row in rows])
    return float(np.abs(np.subtract(*grids)).mean())


def shown_pictures():
    """The pictures that the gallery shows."""
    gallery = (ROOT / "chapters" / "README.md").read_text("utf-8")
    return [PICTURES / name for name in re.findall(r"docs/chapters/(\w+\.png)", gallery)]


def check():
    complaints, numbers, unfinished = [], recorded(), quick()
    for path in texts():
        sentences = stale(path.read_text("utf-8"), numbers, unfinished)
        complaints += [f"{path.relative_to(ROOT)}: {sentence}" for sentence in sentences]
    for path in shown_pictures():
        if path.name[:2] in unfinished:
            continue
        drawn = RUNS / path.name
        if not path.exists() or not drawn.exists():
            complaints.append(f"{path.name} is missing in docs/chapters or in runs/chapters")
        elif (off := difference(path, drawn)) > MOST_DIFFERENT:
            complaints.append(f"{path.name} differs by {off:.3f} from the one drawn last")
    return complaints


def run(chapters):
    command = [sys.executable, ROOT / ".ci" / "chapter.py", *chapters]
    if subprocess.run(command, cwd=ROOT, env={**os.environ, "FULL": "1"}).returncode:
        sys.exit(1)


def refresh(chosen):
    chapters = sorted((ROOT / "chapters").glob("[0-9]*.py"))
    run([path for path in chapters if not chosen or path.name[:2] in chosen])
    numbers = {key: n for key, n in recorded().items() if not chosen or key[0] in chosen}
    for path in texts():
        path.write_text(refreshed(path.read_text("utf-8"), numbers), "utf-8")
    for path in shown_pictures():
        if not chosen or path.name[:2] in chosen:
            shutil.copyfile(RUNS / path.name, path)


def main():
    if sys.argv[1:] == ["--check"]:
        complaints = check()
        print(*complaints, sep="\n")
        if complaints:
            sys.exit("Stale; run: python .ci/refresh_chapters.py")
    else:
        refresh({f"{int(number):02}" for number in sys.argv[1:]})


if __name__ == "__main__":
    main()
