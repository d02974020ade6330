"""Runs all chapters, and writes their pages, their pictures, and the numbers in other texts.

python .ci/refresh_chapters.py                  run all chapters, then write
python .ci/refresh_chapters.py 10 13            the same for chapters 10 and 13
python .ci/refresh_chapters.py --write 10       write from the last run
python .ci/refresh_chapters.py --check          compare with the last run; write nothing
python .ci/refresh_chapters.py --translated 10  say that the Chinese of chapter 10 has been read
                                                again after a change of its English

A page has the prose of a chapter, its code, and what this printed and drew: see docs/pages.py.

A chapter that asks for `figures.FULL` has a slow half, which runs with FULL=1: it trains from three
starts. A refresh runs it. A check without FULL=1 leaves its pictures, its outputs, and the numbers
that only the slow half records, to the nightly job.

A text quotes a number of a chapter as `0.0625<!--03.row_sum-->`: the comment names the number that
`figures.record` has noted, and is invisible where Markdown is rendered. A refresh rewrites the
number in front of it, with as many decimals as before, and as a percentage if "%" follows it.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "docs"))

import pages  # noqa: E402, of docs/

CHAPTERS = ROOT / "chapters"
RUNS = ROOT / "runs" / "chapters"
PICTURES = ROOT / "docs" / "chapters"
QUOTED = re.compile(r"(-?\d[\d,]*(?:\.\d+)?)( ?%)?<!--(\d\d)\.(\w+)-->")
MOST_DIFFERENT = 0.05  # of two pictures, in shades from 0 to 1: see `difference`


def texts():
    """The files that quote numbers of chapters: Markdown, and what the chapters share."""
    docs = ROOT / "docs"
    files = [*CHAPTERS.glob("*.md"), *CHAPTERS.glob("[a-z]*.py"), *docs.glob("*.md")]
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


def pictures():
    """The names of the pictures that the chapters drew in their last runs."""
    return sorted(path.name for path in RUNS.glob("[0-9]*.png"))


def fresh_pages(program):
    """Yields the path and the text of each page of a chapter, from its last run."""
    path = RUNS / f"{program.stem}.outputs"
    if not path.exists():
        raise ValueError("it has not been run")
    outputs = json.loads(path.read_text("utf-8"))
    for output in outputs:
        output["text"] = legible(output["text"])
    english = pages.cells(program.read_text("utf-8"))
    if [output["code"] for output in outputs] != [cell.text for cell in english if cell.is_code]:
        raise ValueError("its code has changed since its last run")
    translation = CHAPTERS / "zh" / f"{program.stem}.md"
    chinese = pages.in_chinese(english, translation.read_text("utf-8"))
    for cells, language in ((english, pages.ENGLISH), (chinese, pages.CHINESE)):
        text = pages.page(cells, outputs, program.stem, language)
        yield CHAPTERS / f"{program.stem}{language.suffix}.md", text


def legible(printed):
    """What a cell printed, without the lines that its page replaces, and without folders."""
    printed = re.sub(r"^(?:for the gallery|figure): .*\n", "", printed, flags=re.M)
    return printed.replace(f"{ROOT}/", "")


def check():
    complaints, numbers, unfinished = [], recorded(), quick()
    for path in texts():
        sentences = stale(path.read_text("utf-8"), numbers, unfinished)
        complaints += [f"{path.relative_to(ROOT)}: {sentence}" for sentence in sentences]
    for program in sorted(CHAPTERS.glob("[0-9]*.py")):
        try:
            for path, text in fresh_pages(program):
                kept = path.read_text("utf-8") if path.exists() else ""
                is_whole = program.name[:2] not in unfinished
                sentences = pages.complaints(kept, text, is_whole)
                complaints += [f"{path.name} {sentence}" for sentence in sentences]
        except ValueError as error:
            complaints.append(f"{program.name}: {error}")
    for name in pictures():
        if name[:2] in unfinished:
            continue
        if not (PICTURES / name).exists() or not (PICTURES / "zh" / name).exists():
            complaints.append(f"{name} is missing in docs/chapters or in docs/chapters/zh")
        elif (off := difference(PICTURES / name, RUNS / name)) > MOST_DIFFERENT:
            complaints.append(f"{name} differs by {off:.3f} from the one drawn last")
    return complaints


def run(chapters):
    command = [sys.executable, ROOT / ".ci" / "chapter.py", *chapters]
    if subprocess.run(command, cwd=ROOT, env={**os.environ, "FULL": "1"}).returncode:
        sys.exit(1)


def chosen(numbers):
    """The programs of the chapters with these numbers; of all, if there are none."""
    programs = sorted(CHAPTERS.glob("[0-9]*.py"))
    return [path for path in programs if not numbers or int(path.name[:2]) in numbers]


def refresh(programs):
    """Runs chapters, and writes what they print and draw."""
    for program in programs:
        for path in RUNS.glob(f"**/{program.name[:2]}_*"):
            path.unlink()
    run(programs)
    write(programs)


def write(programs):
    """Writes the pages and the pictures of chapters, and their numbers in other texts."""
    prefixes = [program.name[:2] for program in programs]
    numbers = {key: number for key, number in recorded().items() if key[0] in prefixes}
    for path in texts():
        path.write_text(refreshed(path.read_text("utf-8"), numbers), "utf-8")
    for folder in (PICTURES, PICTURES / "zh"):
        folder.mkdir(exist_ok=True)
        for path in folder.glob("[0-9]*.png"):
            if path.name[:2] in prefixes and path.name not in pictures():
                path.unlink()
    for name in pictures():
        if name[:2] in prefixes:
            store(RUNS / name, PICTURES / name)
            store(RUNS / "zh" / name, PICTURES / "zh" / name)
    failed = []
    for program in programs:
        try:
            for path, text in fresh_pages(program):
                path.write_text(text, "utf-8")
        except ValueError as error:
            failed.append(f"{program.name}: {error}")
    if failed:
        sys.exit("\n".join(failed))


def store(drawn, kept):
    """Copies a picture with 256 colors, which needs a third of the bytes."""
    from PIL import Image

    with Image.open(drawn) as picture:
        colors = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        colors.save(kept, optimize=True)


def note_translated(programs):
    for program in programs:
        path = CHAPTERS / "zh" / program.with_suffix(".md").name
        english = pages.cells(program.read_text("utf-8"))
        translation = path.read_text("utf-8")
        for line in pages.to_look_at(english, translation):
            print(f"{path.relative_to(ROOT)}: {line}")
        path.write_text(pages.looked_at(english, translation), "utf-8")


def main():
    options = [word for word in sys.argv[1:] if not word.isdigit()]
    programs = chosen({int(word) for word in sys.argv[1:] if word.isdigit()})
    if options == ["--check"]:
        complaints = check()
        print(*complaints, sep="\n")
        if complaints:
            sys.exit("Stale; run: python .ci/refresh_chapters.py")
    elif options == ["--write"]:
        write(programs)
    elif options == ["--translated"]:
        note_translated(programs)
    elif options:
        sys.exit(__doc__)
    else:
        refresh(programs)


if __name__ == "__main__":
    main()
