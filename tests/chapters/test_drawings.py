"""The drawings: docs/drawings.py writes them."""

import pathlib
import re
import xml.etree.ElementTree as ElementTree

import pytest

from programs import module_of

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"


drawings = module_of(ROOT / "docs" / "drawings.py")
FILES = drawings.drawings()


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_what_the_program_draws(name):
    stored = (ROOT / "docs" / "drawings" / name).read_text("utf-8")
    assert stored == FILES[name], "run: python docs/drawings.py"


def test_there_is_no_other_file():
    folder = ROOT / "docs" / "drawings"
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.svg")} == set(FILES)


def test_a_chinese_drawing_differs_in_its_words_alone():
    for name in (name for name in FILES if name.startswith("zh/")):
        english, chinese = (
            re.sub(r">[^<]+</t", "></t", FILES[each]) for each in (name.removeprefix("zh/"), name)
        )
        assert english == chinese
        words = re.findall(r"<(?:text|title)[^>]*>([^<]+)", FILES[name])
        assert re.search("[\u4e00-\u9fff]", words[0])
        english = [
            each for each in words if re.fullmatch("[\\x20-\\x7e]*[a-z]{3,} [\\x20-\\x7e]+", each)
        ]
        assert not english, f"without Chinese in chapters/labels.py: {english}"


@pytest.mark.parametrize("name", FILES)
def test_a_drawing_has_a_title_and_lies_on_its_page(name):
    root = ElementTree.fromstring(FILES[name])
    _, _, width, height = map(float, root.get("viewBox").split())
    assert root.find(f"{SVG}title").text
    for text in root.iter(f"{SVG}text"):
        x, y, size = (float(text.get(key)) for key in ("x", "y", "font-size"))
        is_wide = [letter >= "\u2e80" for letter in text.text]  # Chinese letters are square
        reach = size * (0.56 * len(is_wide) + 0.44 * sum(is_wide))
        left = {"start": x, "middle": x - reach / 2, "end": x - reach}[text.get("text-anchor")]
        assert left >= 0 and left + reach <= width and 0 < y < height, text.text


@pytest.mark.parametrize("name", FILES)
def test_each_color_has_a_light_and_a_dark_shade(name):
    light, dark = FILES[name].split("@media(prefers-color-scheme:dark)")
    used = set(re.findall(r"\b([fs]-\w+)", " ".join(re.findall(r'class="([^"]+)"', dark))))
    assert used
    for color in used:
        assert f".{color}{{" in light and f".{color}{{" in dark.split("}}")[0] + "}"


def contrast(one, other):
    def luminance(color):
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("shade", [0, 1])
def test_words_can_be_read_on_every_fill(shade):
    colors = {name: shades[shade] for name, shades in drawings.COLORS.items()}
    for fill in ("paper", "blank", *(name for name in colors if name.startswith("pale_"))):
        assert contrast(colors["ink"], colors[fill]) > 7
    assert contrast(colors["faint"], colors["paper"]) > 4.5


def test_the_map_has_a_number_for_each_chapter_and_leads_to_it():
    titles = drawings.titles()
    links = {number: f"{stem}.html" for number, (_, _, stem) in titles.items()}
    root = ElementTree.fromstring(drawings.Map(links=links).svg())
    targets = {}
    for link in root.iter(f"{SVG}a"):
        words = [text.text for text in link.iter(f"{SVG}text")]
        targets[next(int(word) for word in words if word.isdigit())] = link.get("href")
    assert targets == links and len(titles) >= 15


def test_the_map_says_where_the_reader_is():
    for number in drawings.titles():
        here, nowhere = drawings.Map(number), drawings.Map()
        assert f"you are in chapter {number}" in here.svg()
        badge = 'class="f-orange s-paper"'
        assert badge in here.svg() and badge not in nowhere.svg()


def test_readme_and_gallery_show_the_map():
    for page in [*ROOT.glob("README*.md"), *(ROOT / "chapters").glob("README*.md")]:
        pictures = re.findall(r"!\[[^\]]+\]\(([^)]+transformer\.svg)\)", page.read_text("utf-8"))
        assert pictures and all((page.parent / picture).exists() for picture in pictures)


# The moving picture of the README: docs/writing.py

MOVING = (ROOT / "docs" / "writing.svg").read_text("utf-8")


def test_the_moving_picture_writes_a_date_and_stands_still_for_who_prefers_that():
    root = ElementTree.fromstring(MOVING)
    assert len(MOVING) < 300_000
    rows = root.findall(f"{SVG}g")
    shown = [row for row in rows if row.get("opacity") != "0"]  # the others: frames of a moment
    written = [row.find(f"{SVG}text").text for row in shown]
    assert "".join(written[:-1]) == "3023-10-13" and written[-1] == "end"
    before, after = MOVING.split("@media(prefers-reduced-motion:no-preference){")
    assert "animation" not in before and ".moving{animation" in after
    for row in shown[:4]:  # the year is copied: the largest weight is on the digit that is written
        weights = [float(cell.get("fill-opacity") or 0) for cell in row.findall(f"{SVG}rect")]
        assert max(weights) > 0.3


def test_the_readme_begins_with_the_moving_picture():
    for name in ("README.md", "README.zh-CN.md"):
        assert "](docs/writing.svg)" in (ROOT / name).read_text("utf-8").split("\n## ")[0]
