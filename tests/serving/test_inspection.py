import pathlib
import re

import numpy as np
import pytest
from fastapi.testclient import TestClient
from servers import as_before

import keras_transformer as kt
from keras_transformer import serving
from keras_transformer.serving.app import make_app
from keras_transformer.serving.inspection import Inspector

ROOT = pathlib.Path(__file__).parents[2]
PAGE = pathlib.Path(serving.__file__).parent / "page"
TEXT = "April 22, 2019"
CROSS = "decoder/block_{}/cross_attention"


@pytest.fixture(scope="module")
def models(dates_translator, small_tasks):
    return {"dates": dates_translator, **small_tasks}


def idle_client(models):
    """A client of an application that does not run: no batch is computed."""
    with as_before(models.values()):
        return TestClient(make_app(models))


@pytest.fixture(scope="module")
def ask(models):
    client = idle_client(models)

    def ask(route, model, text, status=200, **options):
        question = {"model": model, "text": text, **options}
        response = client.post(f"/api/{route}", json=question)
        assert response.status_code == status, response.text
        return response.json()

    return ask


def test_maps_are_the_weights_of_every_layer_and_head(ask, dates_translator):
    found = ask("attention", "dates", TEXT)
    expected = dates_translator.attention(TEXT, found["answer"])
    maps = {each["name"]: np.array(each["weights"]) for each in found["maps"]}
    assert found["answer"] == "2019-04-22" and len(maps) == 6
    cross = [maps[CROSS.format(layer)] for layer in (1, 2)]
    np.testing.assert_allclose(cross, expected.weights, atol=2e-3)  # rounded
    assert found["tokens"]["source"] == expected.source_tokens
    assert found["tokens"]["target"] == expected.target_tokens
    assert found["tokens"]["before"] == ["<s>", *expected.target_tokens[:-1]]
    for weights in maps.values():
        np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=0.02)
    looks_ahead = np.triu(maps["decoder/block_2/self_attention"], 1)
    assert not looks_ahead.any()
    kinds = [(each["kind"], each["layer"]) for each in found["maps"]]
    assert kinds[:2] == [("encoder", 1), ("encoder", 2)] and kinds[-1] == ("cross", 2)


def test_without_cross_attention_the_answer_knows_nothing_of_the_source(ask):
    off = {CROSS.format(layer): [0, 1, 2, 3] for layer in (1, 2)}
    texts = [TEXT, "August 7, 1983"]
    assert len({ask("attention", "dates", text)["answer"] for text in texts}) == 2
    assert len({ask("attention", "dates", text, off=off)["answer"] for text in texts}) == 1
    assert ask("attention", "dates", TEXT)["answer"] == "2019-04-22"  # the model is unchanged


def test_a_given_answer_is_the_one_that_is_shown(ask):
    found = ask("attention", "dates", TEXT, answer="1999-12-31")
    assert found["answer"] == "1999-12-31"
    assert "".join(found["tokens"]["target"]) == "1999-12-31</s>"


@pytest.mark.parametrize("name, answer", [("dates", "2019-04-22"), ("generator", None)])
def test_without_the_look_ahead_mask_the_decoder_sees_what_follows(ask, name, answer):
    text = TEXT if answer else "the dog barks"
    given = {} if answer is None else {"answer": answer}
    first = "decoder/block_1/self_attention"
    masked, whole = (
        {
            each["name"]: np.array(each["weights"])
            for each in ask("attention", name, text, look_ahead=look_ahead, **given)["maps"]
        }
        for look_ahead in (True, False)
    )
    assert not np.triu(masked[first], 1).any() and np.triu(whole[first], 1).max() > 0.01
    # The scores of the first block are the same: with the mask, what is left sums to 1.
    left = np.tril(whole[first])
    np.testing.assert_allclose(
        masked[first] * left.sum(-1, keepdims=True), left, atol=0.03
    )  # rounded
    np.testing.assert_allclose(whole[first].sum(-1), 1, atol=0.02)  # none of it on padding
    for path in masked:
        if path.startswith("encoder"):
            np.testing.assert_array_equal(masked[path], whole[path])


def test_a_temperature_divides_the_logits_of_a_token_of_a_translation(ask, models):
    translator, position = models["dates"], 4
    source = [*translator.source_tokenizer.encode([TEXT])[0], kt.END]
    target = translator.target_tokenizer.encode(["2019-04-22"])[0]
    inputs = {"source_ids": [source], "target_ids": [[kt.START, *target]]}
    logits = translator.transformer.predict(
        {name: np.array(ids) for name, ids in inputs.items()}, verbose=0
    )[0, position]
    logits[[kt.PADDING, kt.START]] = -np.inf
    for temperature in (0.5, 1, 5):
        found = ask("next", "dates", TEXT, temperature=temperature, position=position)
        p = np.exp(logits / temperature)
        p = np.sort(p / p.sum())[::-1]
        got = [each["probability"] for each in found["tokens"]]
        np.testing.assert_allclose(got, p[: len(got)], atol=1e-4)
        assert "".join(found["answer"]) == "2019-04-22</s>"
        assert found["tokens"][0]["text"] == "2019-"
    refused = ask("next", "dates", TEXT, position=11, status=422)["error"]
    assert "Expected a position below 11" in refused


def test_another_temperature_needs_no_pass(models, monkeypatch):
    inspector, passes = Inspector(models["dates"]), []
    run = inspector.run
    monkeypatch.setattr(inspector, "run", lambda *given: passes.append(given) or run(*given))
    given = dict(number=3, position=2, off={}, look_ahead=True)
    hot, cold = (inspector.next(TEXT, temperature, **given) for temperature in (5.0, 0.1))
    assert len(passes) == 11 and hot["entropy"] > cold["entropy"]
    inspector.next("May 3, 2020", 1.0, **given)
    assert len(passes) == 22


@pytest.mark.slow
def test_a_beam_tree_has_the_answers_of_the_search_and_branches_that_die(ask, dates_translator):
    for lines in (f"{TEXT}\n{TEXT}", TEXT):  # several lines are also one search
        found = ask("beams", "dates", lines, beams=3)
        ends = {
            each["text"] for step in found["steps"] for each in step if each["state"] == "finished"
        }
        assert {each["text"] for each in found["answers"]} <= ends
    expected = dates_translator.translate([TEXT], beams=3, n_best=3, return_scores=True)[0]
    assert [each["text"] for each in found["answers"]] == [each.text for each in expected]
    branches = [branch for step in found["steps"] for branch in step]
    finished = {each["text"]: each["score"] for each in branches if each["state"] == "finished"}
    for each in expected:
        assert finished[each.text] == pytest.approx(each.score, abs=1e-4)
    assert {each["state"] for each in branches} == {"alive", "dead", "finished"}
    for before, after in zip(found["steps"], found["steps"][1:], strict=False):
        alive = {number for number, each in enumerate(before) if each["state"] == "alive"}
        assert alive == {each["parent"] for each in after}


def test_a_temperature_divides_the_logits_of_the_next_token(ask, models):
    generator, text = models["generator"], "the dog"
    ids = generator.tokenizer.encode([text])[0][1 - generator.window :]
    logits = np.array(generator.model.predict(np.array([[kt.START, *ids]]), verbose=0))[0, -1]
    logits[[kt.PADDING, kt.START, kt.END]] = -np.inf  # append_end is False
    for temperature in (0.5, 1, 2):
        found = ask("next", "generator", text, temperature=temperature)
        p = np.exp(logits / temperature)
        p = np.sort(p / p.sum())[::-1]
        got = [each["probability"] for each in found["tokens"]]
        np.testing.assert_allclose(got, p[: len(got)], atol=1e-4)
        entropy = -(p[p > 0] * np.log2(p[p > 0])).sum()
        assert found["entropy"] == pytest.approx(entropy, abs=1e-2)
    coldest = ask("next", "generator", text, temperature=0)
    assert coldest["entropy"] == 0 and coldest["tokens"][0]["probability"] == 1
    texts = [each["text"] for each in coldest["tokens"] if each["text"] is not None]
    assert len(texts) >= len(coldest["tokens"]) - 1
    assert all(longer.startswith(text) for longer in texts)


def test_labels_have_the_probabilities_of_the_task(ask, models):
    text = "the dog barks"
    (found,) = ask("labels", "classifier", text)
    expected = np.sort(models["classifier"].probabilities([text])[0])[::-1]
    got = [each["probability"] for each in found["labels"]]
    np.testing.assert_allclose(got, expected[: len(got)], atol=1e-4)

    words = ask("labels", "tagger", text)
    assert [each["word"] for each in words] == text.split()
    for each in words:
        assert sum(label["probability"] for label in each["labels"]) == pytest.approx(1, abs=1e-5)

    (filled,) = ask("labels", "filler", "the [MASK] barks")
    predictions = {
        x.label: x.probability for x in models["filler"].fill(["the [MASK] barks"], number=20)[0]
    }
    for label in filled["labels"]:
        assert predictions[label["label"]] == pytest.approx(label["probability"], abs=1e-4)


def test_heads_of_any_task_can_be_switched_off(ask, models):
    text = "the [MASK] barks"
    for name in ("tagger", "classifier", "filler"):
        found = ask("attention", name, text)
        assert {each["kind"] for each in found["maps"]} == {"encoder"}
        off = {each["name"]: list(range(len(each["weights"]))) for each in found["maps"]}
        before, after = ask("labels", name, text), ask("labels", name, text, off=off)
        assert before != after and before == ask("labels", name, text)


def test_what_cannot_be_shown_is_refused_in_a_sentence(ask):
    def reason(*question, status=422, **options):
        return str(ask(*question, status=status, **options)["error"])

    assert "at most 64 tokens to be shown" in reason("attention", "dates", "1" * 99)
    assert "Answer must have at most" in reason("attention", "dates", "1", answer="1" * 99)
    assert "There is no model 'moon' here; expected one of: dates, " in reason(
        "attention", "moon", "1", status=404
    )
    assert "has heads 0 to 3" in reason("attention", "dates", "1", off={CROSS.format(1): [4]})
    assert "Expected one of encoder/block_1" in reason("attention", "dates", "1", off={"x": [0]})
    assert (
        reason("beams", "tagger", "a")
        == "tagger is a Tagger; expected a Translator, one of: dates."
    )
    assert "expected a TextGenerator or Translator, one of: " in reason("next", "tagger", "a")
    assert "expected a Tagger or Classifier or MaskFiller, one of: " in reason(
        "labels", "dates", "a"
    )
    assert "with a word" in reason("labels", "tagger", " ")
    for route in ("attention", "beams", "next"):
        for blank in ("", "  ", "\n"):
            assert "with a word" in reason(route, "dates", blank)
    assert "with [MASK]" in reason("labels", "filler", "the dog")
    assert "less than or equal to 8" in reason("beams", "dates", "a", beams=9)


@pytest.mark.slow
@pytest.mark.parametrize("route", ["attention", "beams", "next", "labels"])
@pytest.mark.parametrize("text", ["", " ", "\0", "\ud800", "[MASK][MASK]", "\n\u2028\U0001f642"])
def test_an_odd_text_has_an_answer_or_a_reason(models, route, text):
    client = idle_client(models)
    for model in models:
        body = f'{{"model": "{model}", "text": "{"".join(escaped(text))}"}}'
        headers = {"Content-Type": "application/json"}
        assert client.post(f"/api/{route}", content=body, headers=headers).status_code in (200, 422)


def escaped(text):
    for unit in np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2"):
        yield f"\\u{unit:04x}"


@pytest.mark.once
def test_the_page_says_the_same_things_in_both_languages():
    def names(path):
        lines = re.sub(r'"[^"]*"', '""', path.read_text("utf-8")).splitlines()
        return [re.findall(r"(\w+):", line) for line in lines]

    assert names(PAGE / "words" / "en.js") == names(PAGE / "words" / "zh.js")


@pytest.mark.once
def test_the_page_is_small_and_fetches_nothing_from_elsewhere():
    files = [path for path in PAGE.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".html", ".css", ".js", ".svg"}
    size = sum(path.stat().st_size for path in files)
    assert f"is {size / 1000:.0f} KB" in (ROOT / "docs" / "serving.md").read_text("utf-8")
    addresses = {
        address
        for path in files
        for address in re.findall(r"(?:https?:)?//[\w.]+\.\w+[^\s\"']*", path.read_text("utf-8"))
    }
    assert addresses == {"http://www.w3.org/2000/svg"}
