"""The Chinese edition says the same as the English one: pages side by side."""

import pathlib
import re

import pytest

from programs import module_of

ROOT = pathlib.Path(__file__).parents[1]
CHAPTERS = ROOT / "chapters"
TRANSLATED = sorted(CHAPTERS.glob("[0-9]*.zh.md"))
VERDICTS = {"错": "wrong", "不严谨": "loose", "对，但不完整": "true, but not the whole story"}


@pytest.fixture(scope="module")
def chinese():
    return module_of(ROOT / "docs" / "chinese.py")


def text_of(name):
    return (ROOT / name).read_text("utf-8")


def code_cells(path):
    """The code of a chapter: cells of a program, fenced blocks of Markdown."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return [code.strip() for code in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)]
    parts = re.split(r"^# %%(.*)\n", text, flags=re.M)[1:]
    cells = zip(parts[::2], parts[1::2], strict=True)
    return [code.strip() for mark, code in cells if not mark.strip()]


def test_a_chapter_of_the_core_is_there():
    assert {path.name[:2] for path in TRANSLATED} >= {"03", "04", "05", "06", "07", "09", "11"}


@pytest.mark.parametrize("path", TRANSLATED, ids=lambda path: path.name)
def test_a_translated_chapter_has_the_code_of_the_english_one(path):
    english = path.with_name(path.name.removesuffix(".zh.md") + ".py")
    assert code_cells(path) == code_cells(english), "run: python docs/chinese.py"


@pytest.mark.parametrize("path", TRANSLATED, ids=lambda path: path.name)
def test_a_translated_chapter_has_its_title_its_question_and_its_exercises(path):
    chinese = re.sub(r"^```python\n.*?^```$", "", path.read_text("utf-8"), flags=re.M | re.S)
    assert chinese.startswith(f"# {int(path.name[:2])} · ")
    assert re.search(r"^\*\*.+？\*\* ", chinese, re.M)
    assert "## 练习" in chinese and "## 答案" in chinese
    assert len(re.findall("[\u4e00-\u9fff]", chinese)) > 1200
    for number in "123":
        assert re.search(rf"^{number}\. ", chinese, re.M)
        assert re.search(rf"^\*\*{number}\.\*\*", chinese, re.M)


def test_the_gallery_has_the_same_chapters_and_pictures():
    def parts(name):
        text = text_of(name)
        headings = re.findall(r"^## \[(\d+) · .+\]\((.+)\)$", text, re.M)
        return headings, re.findall(r"\.\./docs/\S+?\.(?:png|svg)", text)

    assert parts("chapters/README.zh-CN.md") == parts("chapters/README.md")


def test_both_galleries_lead_to_the_same_rows_of_concepts():
    def chapters(name, title):
        (section,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", text_of(name), re.M | re.S)
        return [re.findall(r"\d+", row) for row in re.findall(r"\| ([\d, 、]+) \|$", section, re.M)]

    english = chapters("chapters/README.md", "Where each concept is")
    assert chapters("chapters/README.zh-CN.md", "概念在哪一章") == english != []


def sayings(name):
    """(number, verdict, the numbers that were measured, notes, chapters) of each row."""
    text = re.sub(r"<!--.*?-->", "", text_of(name))  # which name the numbers
    for row in re.findall(r"^\| (\d+ \|.*)\|$", text, re.M):
        number, saying, verdict, measured, chapters = (cell.strip() for cell in row.split(" | "))
        numbers = re.findall(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e-\d+)?", measured)
        notes = re.findall(r"\[\^\d\]", saying)
        yield number, VERDICTS.get(verdict, verdict), sorted(numbers), notes, chapters


ENGLISH = list(sayings("chapters/sayings.md"))


def test_the_sayings_are_the_same_in_both_languages():
    chinese = list(sayings("chapters/sayings.zh-CN.md"))
    for ours, theirs in zip(ENGLISH, chinese, strict=True):
        for mine, its in zip(ours[:4], theirs[:4], strict=True):
            assert mine == its, ours[0]
        assert re.findall(r"\]\(.+?\)", ours[4]) == re.findall(r"\]\(.+?\)", theirs[4])


@pytest.mark.parametrize("name", ["chapters/sayings.md", "chapters/sayings.zh-CN.md"])
def test_the_sayings_are_counted(name):
    assert [int(row[0]) for row in ENGLISH] == list(range(1, 30))
    counts = {verdict: [row[1] for row in ENGLISH].count(verdict) for verdict in VERDICTS.values()}
    assert sum(counts.values()) == 29
    introduction = text_of(name).split("\n## ")[0]
    assert "29" in introduction
    stated = re.search(r"(\d+) (?:are wrong|句错)\D+(\d+)\D+(\d+)", introduction).groups()
    assert [int(number) for number in stated] == list(counts.values())


@pytest.mark.parametrize("name", ["chapters/sayings.md", "chapters/sayings.zh-CN.md"])
def test_the_sayings_lead_to_chapters(name):
    for label, target in re.findall(r"\[(\d+)\]\((\d\d_\w+\.py)\)", text_of(name)):
        assert (CHAPTERS / target).exists() and int(label) == int(target[:2])
    links = re.findall(r"\]\(([^)]+\.md)\)", text_of(name))
    assert links and all((CHAPTERS / link).exists() for link in links)


def table(name, heading):
    (section,) = re.findall(rf"^## {heading}\n(.*?)^## ", text_of(name), re.M | re.S)
    return re.findall(r"^\| (.+) \|$", section, re.M)[2:]


def test_the_readme_in_chinese_has_the_same_results():
    def numbers(rows):
        return [re.findall(r"\d+\.\d+(?: ?%)?", row) for row in rows]

    english = numbers(table("README.md", "Results"))
    chinese = numbers(table("README.zh-CN.md", "结果"))
    assert chinese == english != []


def test_the_readme_in_chinese_has_the_same_modules():
    def modules(rows):
        return [re.findall(r"`([\w/]+)`", row.split(" | ")[0]) for row in rows]

    assert modules(table("README.zh-CN.md", "模块")) == modules(table("README.md", "Modules")) != []


def test_the_code_is_copied_also_where_a_cell_was_added(chinese):
    program = "# %% [markdown]\n# A\n\n# %%\na = 1\n\n# %% [markdown]\n# B\n\n# %%\nb = 2\n"
    markdown = "甲\n\n```python\na = 0\n```\n\n乙\n\n```python\nb = 2\n```\n"
    assert chinese.in_step(markdown, program) == markdown.replace("a = 0", "a = 1")
    longer = program.replace("# B\n", "# B\n\n# %%\nnew = 3\n")
    found = chinese.in_step(markdown.replace("a = 0", "a = 1"), longer)
    assert re.findall(r"^\w+ = \d|[甲乙]", found, re.M) == ["甲", "a = 1", "new = 3", "乙", "b = 2"]
    shorter = program.replace("# %%\na = 1\n\n", "")
    assert re.findall(r"^\w+ = \d", chinese.in_step(markdown, shorter), re.M) == ["b = 2"]


def test_the_gallery_leads_to_the_translated_chapters():
    links = re.findall(r"\[中文版\]\((.+?)\)", text_of("chapters/README.zh-CN.md"))
    assert links == [path.name for path in TRANSLATED]
