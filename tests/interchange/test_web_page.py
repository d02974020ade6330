"""An exported page in headless Chromium: a static server, a path below its root, no other host.

KERAS_TRANSFORMER_RUNTIME names the folder of the npm package onnxruntime-web.
"""

import functools
import http.server
import itertools
import os
import threading
import time

import numpy as np
import pytest

import keras_transformer as kt
from browser import LONGEST, Reader, needs_browser
from engines import require
from keras_transformer import interchange
from keras_transformer.serving.inspection import Inspector

RUNTIME = os.environ.get("KERAS_TRANSFORMER_RUNTIME")
ALONE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
DATE = "April 22, 2019"
PATH = "pages/of/somebody"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.once,
    needs_browser,
    pytest.mark.skipif(not RUNTIME, reason="KERAS_TRANSFORMER_RUNTIME names no onnxruntime-web"),
]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    root = tmp_path_factory.mktemp("static")
    handler = functools.partial(Quiet, directory=root)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield root / PATH, f"http://127.0.0.1:{server.server_port}/{PATH}"
        server.shutdown()


@pytest.fixture(scope="module")
def page_of(address):
    """The address of a task's page, written once."""
    require("web")
    folder, at = address

    def page_of(task, name, quantization=None):
        if not (folder / name).exists():
            interchange.export(task, folder / name, "web", quantization, runtime=RUNTIME, name=name)
        return f"{at}/{name}/"

    return page_of


@pytest.fixture
def read(page_of):
    readers = []

    def read(task, name, quantization=None, **window):
        readers.append(Reader(page_of(task, name, quantization), flags=[ALONE], **window))
        return readers[-1]

    yield read
    for reader in readers:
        origin = reader.address.partition("/pages")[0]
        loaded = reader.run("return performance.getEntriesByType('resource').map((x) => x.name)")
        errors = reader.errors()
        reader.driver.quit()
        assert not errors and all(name.startswith((origin, "data:", "blob:")) for name in loaded)


def ask(page, route, questions):
    """The answers of the page's model, by the module that its views ask."""
    page.driver.set_script_timeout(10 * LONGEST)
    code = """
        const [route, questions, done] = arguments;
        import(new URL("api.js", document.baseURI)).then(async ({ ask }) => {
            const answers = [];
            for (const question of questions) answers.push(await ask(route, question));
            done(answers);
        }).catch((error) => done(String(error)));
    """
    answers = page.driver.execute_async_script(code, route, questions)
    assert isinstance(answers, list), answers
    return answers


def translations(page, texts):
    found = ask(page, "translate", [{"texts": [text]} for text in texts])
    return [each["answers"][0] for each in found]


def test_dates_are_answered_as_by_the_package_and_soon(dates_translator, dates, read):
    page = read(dates_translator, "dates")
    page.open(view="translation", text=DATE)
    page.wait_for_text(".answer", "2019-04-22")
    assert not page.run("return crossOriginIsolated")
    assert "in your browser" in page.text("footer")
    texts = [*dates.test.source[:200], "", "  ", "May ☃ 5, 2020"]
    assert translations(page, texts) == dates_translator.translate(texts)
    start = time.monotonic()
    page.driver.refresh()
    page.wait_for_text(".answer", "2019-04-22")
    print(f"{time.monotonic() - start:.1f} s from a reload to its first answer")
    assert not page.violations()


SUBJECTS, VERBS, OBJECTS, ENDS = (
    "我 你 他 她 我们".split(),
    "喜欢 想要 看见 知道".split(),
    "茶 英语 这本书 那只猫 他的朋友".split(),
    "。 吗？".split(),
)


def test_chinese_sentences_are_translated_as_by_the_package(read):
    translator = kt.load("zh-en")
    page = read(translator, "zh-en")
    page.open(view="translation", text="我喜欢喝茶。")
    page.wait_for(".token")
    texts = ["".join(parts) for parts in itertools.product(SUBJECTS, VERBS, OBJECTS, ENDS)]
    assert len(texts) == 200
    answers, expected = translations(page, texts), translator.translate(texts)
    differ = [x for x in zip(texts, answers, expected, strict=True) if x[1] != x[2]]
    assert len(differ) <= 2, differ
    for text, answer, own in differ:  # a tie
        assert translator.score([text], [answer]) == pytest.approx(
            translator.score([text], [own]), abs=1e-3
        )


def test_heads_and_beams_are_those_of_the_package(dates_translator, read):
    page = read(dates_translator, "dates")
    page.open(view="attention", text=DATE)
    page.wait_for(".head", 8)
    (found,) = ask(page, "attention", [{"text": DATE}])
    expected = dates_translator.attention(DATE, "2019-04-22")
    maps = {each["name"]: each["weights"] for each in found["maps"]}
    cross = [maps[f"decoder/block_{layer}/cross_attention"] for layer in (1, 2)]
    np.testing.assert_allclose(cross, expected.weights, atol=1e-3)
    assert found["tokens"]["target"] == expected.target_tokens
    off = {f"decoder/block_{layer}/cross_attention": [0, 1, 2, 3] for layer in (1, 2)}
    blind = ask(page, "attention", [{"text": text, "off": off} for text in (DATE, "May 3, 2020")])
    assert len({each["answer"] for each in blind}) == 1  # nothing is known of the source
    question = {"text": DATE, "answer": "2019-04-22", "look_ahead": False}
    (found,) = ask(page, "attention", [question])
    whole = Inspector(dates_translator).attention(DATE, "2019-04-22", {}, look_ahead=False)
    for own, each in zip(whole["maps"], found["maps"], strict=True):
        assert own["name"] == each["name"]
        np.testing.assert_allclose(each["weights"], own["weights"], atol=2e-3)
    given = dict(number=5, position=3)
    hot, cold = ask(page, "next", [{"text": DATE, "temperature": T, **given} for T in (5, 0.5)])
    for temperature, tokens in ((5, hot["tokens"]), (0.5, cold["tokens"])):
        own = Inspector(dates_translator).next(DATE, temperature, off={}, look_ahead=True, **given)
        assert tokens[0]["text"] == own["tokens"][0]["text"] == "2019"
        expected = [each["probability"] for each in own["tokens"]]
        assert [x["probability"] for x in tokens] == pytest.approx(expected, abs=1e-3)
    page.click(".head [role=switch]")
    page.wait_for(".head.off")
    page.open(view="beams", text=DATE)
    page.wait_for(".tree .finished.best")
    (found,) = ask(page, "beams", [{"text": DATE, "beams": 4, "length_penalty": 0.6}])
    options = dict(n_best=4, beams=4, length_penalty=0.6)
    (expected,) = dates_translator.translate([DATE], return_scores=True, **options)
    best, own = found["answers"][0], expected[0]
    assert best["text"] == own.text == "2019-04-22"
    assert best["score"] == pytest.approx(own.score, abs=1e-3)
    tree = dates_translator.beam_tree(DATE, **options)
    assert [branches[0]["score"] for branches in found["steps"]][:8] == pytest.approx(
        [branches[0].score for branches in tree][:8], abs=1e-3
    )


def test_words_have_labels_and_texts_are_continued(small_tasks, read):
    tagger = small_tasks["tagger"]
    page = read(tagger, "tags")
    page.open(view="labels", text="The dog barks.")
    page.wait_for(".words button", 4)
    (found,) = ask(page, "labels", [{"text": "The dog barks."}])
    assert [(x["word"], x["labels"][0]["label"]) for x in found] == tagger.tag(["The dog barks."])[
        0
    ]
    generator = small_tasks["generator"]
    page = read(generator, "text")
    page.open(view="text", text="the")
    page.wait_for(".bars button", 12)
    question = {"texts": ["the dog"], "max_tokens": 15, "temperature": 0}
    (found,) = ask(page, "generate", [question])
    expected = generator.generate(["the dog"], max_tokens=15, temperature=0)
    assert found["answers"] == expected
    page.click(".solid")
    page.wait_for(".answer .given")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_is_wider_than_the_screen(dates_translator, read, scheme):
    page = read(dates_translator, "dates", width=390, scheme=scheme)
    page.open(view="attention", text=DATE)
    page.wait_for(".head", 8)
    page.click("#language")
    page.wait_for(".head", 8)
    assert page.run("return document.documentElement.scrollWidth") == 390
    assert not page.violations()
