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
    assert {path.name for path in (ROOT / "docs" / "drawings").iterdir()} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_a_drawing_has_a_title_and_lies_on_its_page(name):
    root = ElementTree.fromstring(FILES[name])
    _, _, width, height = map(float, root.get("viewBox").split())
    assert root.find(f"{SVG}title").text
    for text in root.iter(f"{SVG}text"):
        x, y, size = (float(text.get(key)) for key in ("x", "y", "font-size"))
        reach = 0.56 * size * len(text.text)  # of the widest usual letters
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
    links = {number: f"{stem}.html" for number, (_, stem) in titles.items()}
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
    for page in (ROOT / "README.md", ROOT / "chapters" / "README.md"):
        pictures = re.findall(r"!\[[^\]]+\]\(([^)]+transformer\.svg)\)", page.read_text("utf-8"))
        assert pictures and all((page.parent / picture).exists() for picture in pictures)
