"""The pages of the chapters: docs/pages.py, and what lies in the repository."""

import html
import pathlib
import re
import urllib.parse

import pytest

from programs import module_of

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parents[2]
CHAPTERS = ROOT / "chapters"
pages = module_of(ROOT / "docs" / "pages.py")
PROGRAMS = sorted(CHAPTERS.glob("[0-9]*.py"))
LANGUAGES = (pages.ENGLISH, pages.CHINESE)

PROGRAM = """\
# %% [markdown]
# # 3 · Attention
#
# Where $d_k$ and $x\\,y$ are, and
# $$a^2
#   + b$$
# as in [chapter 4](04_heads.py).

# %%
x = 1

# %% [markdown]
# ![Three words](../docs/drawings/attention.svg)

# %%
# extra code – the weights as bars
y = 2

# %% [markdown]
# ## Answers
#
# 1. Yes.

# %% [markdown]
# 2\\. No.
#
# *Broken:* It stops.

# %%
z = 3

# %% [markdown]
# ## In short
"""
TRANSLATION = """\
<!-- 00000000 -->
# 3 · 注意力

见[第 4 章](04_heads.md)。

<!-- 00000000 -->
![三个词](../docs/drawings/attention.svg)

<!-- 00000000 -->
## 答案

**1.** 是。

**2.** 否。

*弄坏之后*：停了。

<!-- 00000000 -->
## 小结
"""
OUTPUTS = [
    {"text": "one\n", "pictures": []},
    {"text": "", "pictures": ["03_bars"]},
    {"text": "".join(f"line {number}\n" for number in range(30)), "pictures": []},
]
ENGLISH_PAGE = """\
<!-- Made by .ci/refresh_chapters.py from 03_attention.py: change that, not this page. -->

# 3 · Attention

English · [简体中文](03_attention.zh-CN.md) · [program](03_attention.py) · [all chapters](README.md)

Where $d_k$ and $`x\\,y`$ are, and
```math
a^2
  + b
```
as in [chapter 4](04_heads.md).

```python
x = 1
```

```text
one
```

![Three words](../docs/drawings/attention.svg)

<details>
<summary>extra code – the weights as bars</summary>

```python
# extra code – the weights as bars
y = 2
```

</details>

![the weights as bars](../docs/chapters/03_bars.png)

## Answers

<details>
<summary>Answer 1</summary>

1. Yes.

</details>

<details>
<summary>Answer 2</summary>

2\\. No.

</details>

<details>
<summary>Broken</summary>

*Broken:* It stops.

```python
z = 3
```

```text
{printed}
```

</details>

## In short
"""


def test_a_page_has_prose_code_outputs_pictures_and_folded_answers():
    lines = [f"line {number}" for number in range(30)]
    printed = "\n".join([*lines[: pages.LINES - 4], "...", *lines[-3:]])
    expected = ENGLISH_PAGE.replace("{printed}", printed)
    assert pages.page(pages.cells(PROGRAM), OUTPUTS, "03_attention", pages.ENGLISH) == expected


def test_a_chinese_page_differs_in_prose_links_and_pictures_alone():
    cells = pages.in_chinese(pages.cells(PROGRAM), TRANSLATION)
    page = pages.page(cells, OUTPUTS, "03_attention", pages.CHINESE)
    assert "# 3 · 注意力\n\n[English](03_attention.md) · 简体中文 · [程序](03_attention.py)" in page
    assert "见[第 4 章](04_heads.zh-CN.md)。" in page and "<summary>答案 2</summary>" in page
    assert "<summary>弄坏之后</summary>\n\n*弄坏之后*：停了。" in page
    assert "![三个词](../docs/drawings/zh/attention.svg)" in page
    assert "](../docs/chapters/zh/03_bars.png)" in page and "00000000" not in page
    english = pages.page(pages.cells(PROGRAM), OUTPUTS, "03_attention", pages.ENGLISH)
    blocks = [re.findall(r"^```[a-z]+\n.*?^```$", text, re.M | re.S) for text in (english, page)]
    assert [block for block in blocks[0] if "math" not in block] == blocks[1] != []


def test_a_translation_without_a_piece_is_an_error():
    with pytest.raises(ValueError, match="4 pieces of prose in English, 3 in Chinese"):
        pages.in_chinese(
            pages.cells(PROGRAM), TRANSLATION.removesuffix("<!-- 00000000 -->\n## 小结\n")
        )


def test_a_piece_is_to_be_looked_at_when_its_english_changes():
    english = pages.cells(PROGRAM)
    assert len(pages.to_look_at(english, TRANSLATION)) == 4
    unmarked = TRANSLATION.removeprefix("<!-- 00000000 -->\n")
    assert pages.in_chinese(english, unmarked) == pages.in_chinese(english, TRANSLATION)
    noted = pages.looked_at(english, TRANSLATION)
    assert pages.to_look_at(english, noted) == []
    assert pages.looked_at(english, noted) == noted
    wrapped = pages.cells(PROGRAM.replace("as in [chapter", "as in\n# [chapter"))
    assert pages.to_look_at(wrapped, noted) == []
    changed = pages.cells(PROGRAM.replace("1. Yes.", "1. Perhaps."))
    assert pages.to_look_at(changed, noted) == ["## Answers"]


@pytest.mark.parametrize(
    "old, new, complaint",
    [
        ("", "", None),
        ("line 3\n", "line 4\n", None),  # printed numbers depend on the processor
        ("x = 1", "x = 2", "has 'x = 1' where the chapter has 'x = 2'"),
        ("In short", "Briefly", "has '## In short' where the chapter has '## Briefly'"),
        ("03_bars", "03_lines", "03_bars.png.* where the chapter has .*03_lines.png"),
        ("line", "row", "has .*% of the words and 100% of the numbers of the last outputs"),
        ("line 1", "line 9", "has 100% of the words and .*% of the numbers of the last outputs"),
    ],
)
def test_the_check_compares_text_exactly_and_outputs_roughly(old, new, complaint):
    page = pages.page(pages.cells(PROGRAM), OUTPUTS, "03_attention", pages.ENGLISH)
    found = list(pages.complaints(page, page.replace(old, new) if old else page))
    if complaint is None:
        assert found == []
    else:
        assert len(found) == 1 and re.search(complaint, found[0])


def test_the_check_of_a_chapter_without_its_slow_half_compares_prose_and_code():
    page = pages.page(pages.cells(PROGRAM), OUTPUTS, "03_attention", pages.ENGLISH)
    nothing = [{"text": "", "pictures": []}] * 3
    quick = pages.page(pages.cells(PROGRAM), nothing, "03_attention", pages.ENGLISH)
    assert list(pages.complaints(page, quick, is_whole=False)) == []
    assert len(list(pages.complaints(page, quick.replace("x = 1", "x = 2"), False))) == 1


def test_close_numbers_are_the_same():
    assert pages.shared("loss 1.00 at 200", "loss 1.08 at 210") == (1, 1)
    assert pages.shared("loss 1.00 at 200", "loss 1.20 at 210") == (1, 0.5)
    assert pages.shared("a 1 b", "a 2 c") == pytest.approx((2 / 3, 0))


# What lies in the repository


def page_of(program, language):
    return (CHAPTERS / f"{program.stem}{language.suffix}.md").read_text("utf-8")


@pytest.mark.parametrize("language", LANGUAGES, ids=["English", "Chinese"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_every_chapter_has_its_page_with_outputs_and_pictures(program, language):
    page = page_of(program, language)
    assert page.startswith("<!-- Made by .ci/refresh_chapters.py from ")
    assert pages.OUTPUT.search(page) and f"](../docs/chapters/{language.folder}" in page
    assert page.count("<details>") == page.count("</details>") >= 3
    assert not re.search(r"/(?:home|tmp|work|root)/|0x[0-9a-f]{6}", page)  # nothing of a machine


def test_pages_show_every_picture_that_is_kept():
    for language in LANGUAGES:
        shown = set(
            re.findall(
                rf"\(../docs/chapters/{language.folder}(\w+\.png)\)",
                "".join(page_of(program, language) for program in PROGRAMS),
            )
        )
        folder = ROOT / "docs" / "chapters" / language.folder
        assert shown == {path.name for path in folder.glob("*.png")}


READ = [
    *ROOT.glob("*.md"),
    *CHAPTERS.glob("*.md"),
    *(ROOT / "docs").glob("**/*.md"),
    *(ROOT / "keras_transformer" / "tasks" / "pretrained").glob("*.md"),
]


def anchors(page):
    """The anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^(```|~~~).*?^\1", "", page.read_text("utf-8"), flags=re.M | re.S)
    found = []
    for heading in re.findall(r"^#+ (.+)$", text, re.M):
        plain = re.sub(r"\[([^\]]+)\]\([^)]*\)|[`*]", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
    return found


@pytest.mark.parametrize("page", sorted(READ), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_internal_link_and_picture_resolves(page):
    text = re.sub(r"^(```|~~~).*?^\1|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.M | re.S)
    targets = re.findall(r"\]\(([^()\s]+)\)|<(?:img|a)[^>]+(?:src|href)=\"([^\"]+)\"", text)
    for target in (html.unescape(one or other) for one, other in targets):
        path, fragment = urllib.parse.urldefrag(urllib.parse.unquote(target))
        if ":" in path:
            continue  # another site
        file = page.parent / path if path else page
        assert file.exists(), target
        if fragment and file.suffix == ".md":
            assert fragment in anchors(file), target


@pytest.mark.parametrize("language", LANGUAGES, ids=["English", "Chinese"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_markdown_leaves_each_formula_alone(program, language):
    code = r"^```.*?^```$|\$`[^`]+`\$|`[^`]*`"
    page = re.sub(code, "", page_of(program, language), flags=re.M | re.S)
    for formula in re.findall(r"\$([^$]+)\$", page):
        assert "\n" not in formula and not pages.SPECIAL.search(formula), formula
    assert page.count("$") % 2 == 0
