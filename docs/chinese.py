"""Copies the code and the numbers of the chapters into their Chinese edition.

The command, after a change of a chapter: python docs/chinese.py

The Chinese prose of chapters/NN_name.py is in chapters/zh/NN_name.md between its code. Code
cells are compared in order; where a chapter has more of them or fewer, blocks are added or removed
where the two differ, and the prose around them is left to the translator. In the gallery and the
sayings, a number with a name (`0.0625<!--03.row_sum-->`) becomes that of the English page.
"""

import difflib
import pathlib
import re

CHAPTERS = pathlib.Path(__file__).resolve().parents[1] / "chapters"
PAGES = {"README.md": "README.zh-CN.md", "sayings.md": "sayings.zh-CN.md"}
NAMED = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?: ?%)?<!--(\d\d\.\w+)-->")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


def code_of(program):
    """The code cells of a program in percent cells."""
    parts = re.split(r"^# %%(.*)\n", program, flags=re.M)[1:]
    cells = zip(parts[::2], parts[1::2], strict=True)
    return [code.strip() + "\n" for mark, code in cells if not mark.strip()]


def block(code):
    return f"```python\n{code}```"


def in_step(markdown, program):
    """The Markdown with the code of the program."""
    prose = BLOCK.split(markdown)[::2]
    old, new = BLOCK.findall(markdown), code_of(program)
    codes = [[] for _ in old]
    opcodes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    for _, start, end, first, last in opcodes:
        cells = new[first:last]
        for place in range(start, end):
            is_last = place == end - 1
            codes[place] += cells if is_last else cells[:1]
            cells = [] if is_last else cells[1:]
        if start == end:
            codes[max(start - 1, 0)] += cells
    text = prose[0]
    for cells, after in zip(codes, prose[1:], strict=True):
        text += "\n\n".join(map(block, cells)) + after
    return text


def with_numbers(chinese, english):
    """The Chinese page with the named numbers of the English one."""
    numbers = {found[1]: found[0] for found in NAMED.finditer(english)}
    return NAMED.sub(lambda found: numbers.get(found[1], found[0]), chinese)


def write(path, text):
    changed = text != path.read_text("utf-8")
    path.write_text(text, "utf-8")
    print(f"{path.name}: {'changed' if changed else 'in step'}")


if __name__ == "__main__":
    for path in sorted((CHAPTERS / "zh").glob("*.md")):
        program = CHAPTERS / path.with_suffix(".py").name
        if BLOCK.search(path.read_text("utf-8")):
            write(path, in_step(path.read_text("utf-8"), program.read_text("utf-8")))
    for english, chinese in PAGES.items():
        texts = [(CHAPTERS / name).read_text("utf-8") for name in (chinese, english)]
        write(CHAPTERS / chinese, with_numbers(*texts))
