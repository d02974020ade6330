"""The Chinese edition says the same as the English one: pages side by side."""

import pathlib
import re

import pytest

from programs import module_of

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parents[2]
CHAPTERS = ROOT / "chapters"
PAGES = ["README.md", *(f"docs/{name}.md" for name in ("comparison", "installation", "training"))]
TRANSLATED = sorted((CHAPTERS / "zh").glob("*.md"))
pages = module_of(ROOT / "docs" / "pages.py")
every_chapter = pytest.mark.parametrize("path", TRANSLATED, ids=lambda path: path.stem)
NAMED = re.compile(r"(-?\d[\d,]*(?:\.\d+)?(?: ?%)?)<!--(\d\d\.\w+)-->")
# What looks like a measurement: 0.25, 1,336,320, 38 %; 65 million is 6,500 万, and left out.
NUMBER = re.compile(
    r"(?<![\w.,/])(?:\d{1,3}(?:,\d{3})+(?!,?\d)|\d+\.\d+(?!\.?\d)|\d+(?= ?%))(?! ?[万亿])"
)
NOT_PROSE = re.compile(r"\$\$.*?\$\$|\$[^$]*\$|`[^`]*`|[Ss]ections? [\d.]+|[\d.]+ 节", re.DOTALL)
VERDICTS = {"错": "wrong", "不严谨": "loose", "对，但不完整": "true, but not the whole story"}


def text_of(name):
    return (ROOT / name).read_text("utf-8")


def english(path):
    """The cells of the chapter of a translation."""
    return pages.cells((CHAPTERS / f"{path.stem}.py").read_text("utf-8"))


def pairs(path):
    """(English, Chinese) of each piece of prose."""
    both = pages.paired(english(path), path.read_text("utf-8"))
    return [(ours, theirs) for ours, (_, theirs) in both]


def numbers(text):
    """The numbers of a text outside code and formulas, in ascending order."""
    return sorted(NUMBER.findall(NOT_PROSE.sub(" ", text)))


def sections(name):
    """The sections of a page, without its blocks of code."""
    text = re.sub(r"^```.*?^```$", "", text_of(name), flags=re.M | re.S)
    return re.split(r"^## ", text, flags=re.M)


def test_each_chapter_has_a_chinese_edition():
    chapters = [path.stem for path in sorted(CHAPTERS.glob("[0-9]*.py"))]
    assert [path.stem for path in TRANSLATED] == chapters != []


@every_chapter
def test_a_translation_has_been_looked_at_since_its_english_changed(path):
    changed = pages.to_look_at(english(path), path.read_text("utf-8"))
    command = f"python .ci/refresh_chapters.py --translated {int(path.name[:2])}"
    assert not changed, f"look at the Chinese of these, then run: {command}"


@every_chapter
def test_a_translated_chapter_has_the_headings_and_numbers_of_the_english_one(path):
    for place, (ours, theirs) in enumerate(pairs(path)):
        assert len(re.findall("^## ", ours, re.M)) == len(re.findall("^## ", theirs, re.M))
        if place > 0:  # a title names sections of the paper in its own way
            assert numbers(ours) == numbers(theirs), theirs[:40]


@every_chapter
def test_a_translated_chapter_has_its_title_its_question_and_its_exercises(path):
    ours, theirs = ("\n\n".join(texts) for texts in zip(*pairs(path), strict=True))
    assert theirs.startswith(f"# {int(path.name[:2])} · ")
    assert re.search(r"^\*\*.+？\*\* ", theirs, re.M)
    assert re.findall(r"^## (练习|答案|小结)$", theirs, re.M) == ["练习", "答案", "小结"]
    assert "\n*直观地说*：" in theirs and "\n**接下来**：" in theirs.split("## 小结")[1]
    assert len(re.findall("[\u4e00-\u9fff]", theirs)) > len(ours.split())
    for number in "123":
        assert re.search(rf"^{number}\. ", theirs, re.M)
        assert re.search(rf"^\*\*{number}\.\*\*", theirs, re.M)


def test_the_gallery_has_the_same_chapters_and_pictures():
    def parts(name):
        text = text_of(name)
        headings = re.findall(r"^## \[(\d+) · .+\]\((\d\d_\w+)", text, re.M)
        pictures = re.findall(r"\.\./docs/\S+?\.(?:png|svg)", text)
        return headings, [picture.replace("/zh/", "/") for picture in pictures]

    assert parts("chapters/README.zh-CN.md") == parts("chapters/README.md")


def test_both_galleries_quote_the_same_numbers_of_each_chapter():
    english, chinese = sections("chapters/README.md"), sections("chapters/README.zh-CN.md")
    for ours, theirs in zip(english, chinese, strict=True):
        assert sorted(NAMED.findall(ours)) == sorted(NAMED.findall(theirs)), ours[:40]


def test_both_galleries_have_the_same_routes_and_notation():
    def rows(name):
        routes, *_, notation, _ = sections(name)[1:]
        lines = (routes + notation).splitlines()
        return [re.findall(r"\$.+?\$|`.+?`|\d+", line) for line in lines if line[:1] == "|"]

    assert rows("chapters/README.zh-CN.md") == rows("chapters/README.md") != []


def test_both_galleries_lead_to_the_same_rows_of_concepts():
    def chapters(name, title):
        (section,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", text_of(name), re.M | re.S)
        return [re.findall(r"\d+", row) for row in re.findall(r"\| ([\d, 、]+) \|$", section, re.M)]

    english = chapters("chapters/README.md", "Where each concept is")
    assert chapters("chapters/README.zh-CN.md", "概念在哪一章") == english != []


def sayings(name):
    """(number, verdict, the numbers that were measured, notes, chapters) of each row."""
    for row in re.findall(r"^\| (\d+ \|.*)\|$", text_of(name), re.M):
        number, saying, verdict, measured, chapters = (cell.strip() for cell in row.split(" | "))
        plain = re.sub(r"<!--.*?-->", "", measured)
        found = sorted(re.findall(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e-\d+)?", plain))
        notes = re.findall(r"\[\^\d\]", saying)
        named = sorted(NAMED.findall(measured))
        yield number, VERDICTS.get(verdict, verdict), (found, named), notes, chapters


ENGLISH = list(sayings("chapters/sayings.md"))


def test_the_sayings_are_the_same_in_both_languages():
    chinese = list(sayings("chapters/sayings.zh-CN.md"))
    for ours, theirs in zip(ENGLISH, chinese, strict=True):
        for mine, its in zip(ours[:4], theirs[:4], strict=True):
            assert mine == its, ours[0]
        links = [re.findall(r"\]\((\d\d_\w+)([^)]*)\)", row[4]) for row in (ours, theirs)]
        assert links[1] == [(chapter, ".zh-CN.md") for chapter, _ in links[0]] != []


@pytest.mark.parametrize("name", ["chapters/sayings.md", "chapters/sayings.zh-CN.md"])
def test_the_sayings_are_counted(name):
    assert [int(row[0]) for row in ENGLISH] == list(range(1, 34))
    counts = {verdict: [row[1] for row in ENGLISH].count(verdict) for verdict in VERDICTS.values()}
    assert sum(counts.values()) == 33
    introduction = text_of(name).split("\n## ")[0]
    assert "33" in introduction
    stated = re.search(r"(\d+) (?:are wrong|句错)\D+(\d+)\D+(\d+)", introduction).groups()
    assert [int(number) for number in stated] == list(counts.values())


@pytest.mark.parametrize("name", ["chapters/sayings.md", "chapters/sayings.zh-CN.md"])
def test_the_sayings_lead_to_chapters(name):
    for label, target in re.findall(r"\[(\d+)\]\((\d\d_\w+(?:\.zh-CN)?\.md)\)", text_of(name)):
        assert (CHAPTERS / target).exists() and int(label) == int(target[:2])
    links = re.findall(r"\]\(([^)]+\.md)\)", text_of(name))
    assert links and all((CHAPTERS / link).exists() for link in links)


def table(name, heading):
    (section,) = re.findall(rf"^## {heading}\n(.*?)^## ", text_of(name), re.M | re.S)
    return re.findall(r"^\| (.+) \|$", section, re.M)[2:]


def test_the_readme_in_chinese_has_the_same_results():
    def results(rows):
        return [re.findall(r"\d+\.\d+(?: ?%)?", row) for row in rows]

    english = results(table("README.md", "Results"))
    chinese = results(table("README.zh-CN.md", "结果"))
    assert chinese == english != []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_in_chinese_states_the_same_numbers_in_each_section(page):
    chinese = page.replace(".md", ".zh-CN.md")
    for ours, theirs in zip(sections(page), sections(chinese), strict=True):
        assert numbers(ours) == numbers(theirs), ours[:40]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_in_chinese_leads_to_the_english_one_and_back(page):
    name, chinese = pathlib.Path(page).name, page.replace(".md", ".zh-CN.md")
    assert f"]({name.replace('.md', '.zh-CN.md')})" in text_of(page).split("\n## ")[0]
    assert f"]({name})" in text_of(chinese).split("\n## ")[0]


def test_the_gallery_leads_to_the_translated_chapters_and_to_the_programs():
    text = text_of("chapters/README.zh-CN.md")
    for kind, suffix in ((r"^## \[\d+ · .+\]", ".zh-CN.md"), (r"（\[程序\]", ".py")):
        links = re.findall(rf"{kind}\((.+?)\)", text, re.M)
        assert links == [f"{path.stem}{suffix}" for path in TRANSLATED]
