"""The server's page in headless Chromium: see tests/browser.py."""

import json
import socket
import threading
import time
import urllib.error
import urllib.request

import pytest
import uvicorn
from servers import as_before

import keras_transformer as kt
from browser import Reader, needs_browser
from keras_transformer.serving.app import make_app

DATE = "April 22, 2019"

pytestmark = [pytest.mark.slow, needs_browser]


@pytest.fixture(scope="module")
def address(dates_translator, small_tasks):
    models = {"dates": dates_translator, "zh-en": kt.load("zh-en"), **small_tasks}
    with as_before(models.values()), socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(make_app(models), log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        page = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        while not is_ready(page):
            time.sleep(0.1)
        yield page
        server.should_exit = True
        thread.join()


def is_ready(page):
    try:
        return urllib.request.urlopen(f"{page}ready").status == 200
    except urllib.error.URLError:  # also 503
        return False


@pytest.fixture
def read(address):
    readers = []

    def read(**window):
        readers.append(Reader(address, **window))
        return readers[-1]

    yield read
    for reader in readers:
        errors = reader.errors()
        reader.driver.quit()
        assert not errors, json.dumps(errors)


def test_a_text_is_translated_while_one_types_and_tokens_show_what_they_read(read):
    page = read()
    page.open(model="dates", view="translation", text=DATE)
    page.wait_for_text(".answer", "2019-04-22")
    page.write("May 3, 2020")
    page.wait_for_text(".answer", "2020-05-03")
    before = page.text(".readout")
    page.click(".reading:last-of-type .token:nth-child(6)")
    assert page.text(".readout") != before
    page.write("  ")
    page.wait_for_text(".answer", "")


def test_beams_branch_die_and_can_be_walked_with_the_arrow_keys(read):
    page = read()
    page.open(model="dates", view="beams", text=DATE)
    page.wait_for(".tree .finished.best")
    assert page.all(".tree .dead") and page.all(".tree .alive")
    assert page.text("td") == "2019-04-22"
    four = len(page.all(".tree .branch"))
    page.run("document.querySelector('.tree .branch').focus()")
    for _ in "2019":
        page.driver.switch_to.active_element.send_keys("\ue014")  # arrow right
    assert page.text(".readout q") == "2019"
    page.run(
        "const slider = document.querySelector('input[type=range]'); slider.value = 1;"
        "slider.dispatchEvent(new Event('change'))"
    )
    page.wait(lambda: not page.busy() and len(page.all(".tree .branch")) < four, "one beam")


def test_maps_and_arcs_show_both_directions_and_a_head_can_be_switched_off(read):
    page = read()
    page.open(model="dates", view="attention", text=DATE)
    page.wait_for(".head", 8)
    assert len(page.all(".arcs .column:first-child .token")) == len("2019-04-22") + 1
    page.click(".arcs .column:first-child .token")
    assert "reads" in page.text(".readout")
    page.click(".arcs .column:last-child .token")
    assert "is read by" in page.text(".readout")
    for head in range(8):
        page.run("document.querySelectorAll('.head [role=switch]')[arguments[0]].click()", head)
        page.wait(lambda n=head: not page.busy() and len(page.all(".head.off")) == n + 1, "off")
    page.wait(lambda: page.all(".effects .changed") and not page.busy(), "another answer")
    assert page.text(".effects dt:nth-of-type(2)") == "8 heads off"
    page.click(".effects .plain")
    page.wait(lambda: not page.all(".head.off") and not page.busy(), "all heads on")
    for kind, maps in (("encoder", 8), ("decoder", 8)):
        page.click(f".choice .kind-{kind}")
        assert len(page.all(f".kind-{kind} .head")) == maps


def test_two_models_are_shown_side_by_side(read):
    page = read()
    page.open(model="dates", view="translation", text=DATE)
    page.wait_for_text(".answer", "2019-04-22")
    page.click("#compare")
    page.wait(lambda: len(page.all(".pane .token")) > 40 and not page.busy(), "two panes")
    assert [each.text for each in page.all(".pane > h2")] == ["dates", "zh-en"]
    left, right = (pane.rect["x"] for pane in page.all(".pane"))
    assert right > left + 400


def test_labels_and_the_next_token_have_probabilities(read):
    page = read()
    page.open(model="tagger", view="labels", text="the dog barks")
    page.wait_for(".words button", 3)
    assert len(page.all(".bars li")) == 3
    page.open(model="generator", view="text", text="the")
    page.wait_for(".bars button", 12)

    def values(temperature):
        move(page, temperature)
        page.wait(lambda: not page.busy(), "a distribution")
        return [float(each.text.rstrip("%")) for each in page.all(".bars .value")]

    assert values(0)[:2] == [100, 0]
    assert 100 > values(2)[0] > 100 / 12 > values(2)[-1]
    page.click(".solid")
    page.wait_for(".answer .given")
    page.click(".bars button")
    page.wait(lambda: page.run("return document.querySelector('#text').value.length") > 3, "longer")


def test_without_the_look_ahead_mask_the_maps_of_the_decoder_show_what_follows(read):
    page = read()
    page.open(model="dates", view="attention", kind="decoder", text=DATE)
    page.wait_for(".kind-decoder .head", 8)
    ahead = (
        "return [...document.querySelectorAll('.head canvas')].some((map) =>"
        "map.weights.some((row, i) => row.some((weight, j) => j > i && weight > 0.05)))"
    )
    note = page.text(".kind-decoder .note")
    assert not page.run(ahead)
    switch = page.run("return document.querySelector('[data-switch=mask]')")
    switch.send_keys(" ")  # the keyboard does it
    page.wait(lambda: page.run(ahead) and not page.busy(), "weights above the diagonal")
    assert page.text(".kind-decoder .note") != note
    assert page.run("return document.activeElement.dataset.switch") == "mask"
    assert page.text(".effects dt:nth-of-type(2)") == "Without the look-ahead mask"
    page.click(".effects .plain")
    page.wait(lambda: not page.run(ahead) and not page.busy(), "the mask again")


def move(page, temperature):
    code = "const slider = document.querySelector('input[type=range]');"
    code += "slider.value = arguments[0]; slider.dispatchEvent(new Event('input'))"
    page.run(code, temperature)


def test_each_token_of_a_translation_has_a_distribution_under_a_temperature(read):
    page = read()
    page.open(model="dates", view="text", text=DATE)
    page.wait_for(".bars li", 12)
    assert page.text(".reading") == "2019-04-22</s>" and not page.all(".bars button")
    page.run("document.querySelector('.reading .token').focus()")
    for expected in "019":
        page.driver.switch_to.active_element.send_keys("\ue014")  # arrow right
        page.wait_for_text(".bars .name", expected)
    assert len(page.all(".reading [aria-pressed=true]")) == 1
    sure = page.text(".bars .value")
    move(page, 2)
    page.wait(lambda: page.text(".bars .value") != sure and not page.busy(), "less sure")
    assert page.text(".bars .name") == "9"
    page.write("May 3, 2020")
    page.wait_for_text(".reading", "2020-05-03</s>")


@pytest.mark.parametrize("view", ["translation", "beams", "attention", "text"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_in_chinese_nothing_is_wider_than_the_screen(read, view, scheme):
    page = read(width=390, scheme=scheme)
    page.open(model="zh-en", view=view, text="他昨天给我写了一封信。")
    result = {"translation": ".token", "beams": ".tree", "attention": ".head", "text": ".bars li"}[
        view
    ]
    page.wait_for(result)
    page.click("#language")
    page.wait_for(result)
    assert page.text("h1") == "看 Transformer 怎样阅读"
    assert page.run("return document.documentElement.lang") == "zh-Hans"
    assert page.run("return document.documentElement.scrollWidth") == 390
    paper = page.run("return getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(18, 23, 29)")


def test_the_colors_can_be_chosen_and_are_kept(read):
    page = read()
    page.open(model="dates", view="translation", text=DATE)
    page.wait_for(".token")
    page.click("#theme")
    page.click("#theme")
    page.open(model="dates", view="translation", text=DATE)
    page.wait_for(".token")
    paper = page.run("return getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(18, 23, 29)"


def open_requests(page):
    page.driver.get(f"{page.address}docs")
    page.wait_for("details", 15)
    page.run("for (const each of document.querySelectorAll('details')) each.open = true")


def test_the_page_of_requests_sends_its_examples(read):
    page = read(width=390)
    open_requests(page)
    find = (
        "return [...document.querySelectorAll('details')]"
        ".find((each) => each.textContent.startsWith(arguments[0]))"
    )
    for name, answer in [
        ("GET /ready", '"status": "ready"'),
        ("POST /api/translate", '"text": "2019-04-22"'),
        ("POST /api/attention", '"answer": "2019-04-22"'),
        ("POST /translate", '"translatedText"'),
    ]:
        request = page.run(find, name)
        request.find_element("css selector", ".solid").click()
        shown = request.find_element("css selector", "pre")
        page.wait(lambda shown=shown: len(shown.text) > 3, name)
        assert shown.text.startswith("200") and answer in shown.text
    assert page.run("return document.documentElement.scrollWidth") == 390
    loaded = "return performance.getEntriesByType('resource').map((each) => each.name)"
    assert all(each.startswith(page.address) for each in page.run(loaded))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_any_view(read, scheme):
    page = read(scheme=scheme)
    for model, view, text, result in [
        ("dates", "beams", DATE, ".tree .finished.best"),
        ("dates", "attention", DATE, ".head"),
        ("dates", "text", DATE, ".bars li"),
        ("tagger", "labels", "the dog barks", ".words button"),
        ("generator", "text", "the", ".bars button"),
        ("dates", "translation", DATE, ".token"),
    ]:
        page.open(model=model, view=view, text=text)
        page.wait_for(result)
        assert page.violations() == [], view
    page.click("#compare")
    page.wait_for(".pane .token", 40)
    assert page.violations() == [], "two models"
    open_requests(page)
    assert page.violations() == [], "requests"
