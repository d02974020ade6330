import asyncio
import concurrent.futures
import json
import logging
import math
import random
import re
import threading

import numpy as np
import pytest
from servers import Classifier, client_of, wait_until

import keras_transformer as kt
from keras_transformer import backend
from keras_transformer.cli import main
from keras_transformer.serving.app import make_app
from keras_transformer.serving.configuration import LOG, Limits
from keras_transformer.serving.streams import Stops
from keras_transformer.tasks.translation import Hypothesis

JSON = "application/json"

LABELS = ["NOUN", "VERB", "OTHER"]
LONG = "x " * 600


@pytest.fixture(scope="module")
def models(dates_translator, small_tasks):
    return {"zh-en": dates_translator, "shakespeare": small_tasks["generator"], **small_tasks}


@pytest.fixture(scope="module")
def client(models):
    with client_of(models) as client:
        yield client


def answers(client, task, **question):
    response = client.post(f"/api/{task}", json=question)
    assert response.status_code == 200, response.text
    return response.json()["answers"]


def events(response):
    """The data of server-sent events, after checking that [DONE] ends them."""
    assert response.headers["content-type"].startswith("text/event-stream")
    *data, done = [line[len("data: ") :] for line in response.text.split("\n\n") if line]
    assert done == "[DONE]"
    return list(map(json.loads, data))


# Answers


def test_translations_are_those_of_the_task(client, models, dates):
    texts, translator = dates.test.source[:8], models["zh-en"]
    assert answers(client, "translate", texts=texts) == translator.translate(texts)
    best = translator.translate(texts[:3], beams=4, n_best=2)
    assert answers(client, "translate", texts=texts[:3], beams=4, n_best=2) == best
    scored = answers(client, "translate", texts=texts[:3], beams=4, n_best=2, scores=True)
    assert [[each["text"] for each in found] for found in scored] == best
    (one,) = answers(client, "translate", texts=texts[:1], scores=True)
    (expected,) = translator.translate(texts[:1], return_scores=True)
    whole = client.post("/api/translate", json={"texts": texts, "beams": 4, "n_best": 2}).json()
    found = translator.translate(texts, beams=4, n_best=2, return_finished=True)
    assert whole["finished"] == [[each.finished for each in hypotheses] for hypotheses in found]
    assert one["score"] == pytest.approx(expected.score, abs=1e-4) and one["finished"]


def test_sentences_and_placeholders_are_options(client, models):
    texts, translator = ["May 5, 2019\nJune 6, 2018 {x}"], models["zh-en"]
    options = {"sentences": "always", "placeholders": ["tag"]}
    (found,) = answers(client, "translate", texts=texts, **options)
    assert [found] == translator.translate(texts, **options)
    assert found.count("\n") == found.count("{x}") == 1


def test_a_text_longer_than_the_positions_is_answered_where_it_is_split():
    tokenizer = kt.train_tokenizer(["abc. "], model_type="char")
    sizes = dict(num_layers=1, d_model=8, num_heads=1, d_ff=8, max_length=8)
    model = kt.Transformer(tokenizer.vocabulary_size(), **sizes)
    with client_of({"m": kt.Translator(model, tokenizer)}) as client:
        question = {"texts": ["Abc. abc, abc. Abc."]}
        refused = client.post("/api/translate", json=question)
        assert "must have at most 8 tokens" in refused.json()["error"]
        question |= {"sentences": "always", "scores": True}
        (found,) = client.post("/api/translate", json=question).json()["answers"]
        assert not found["finished"]


def test_a_translation_that_was_cut_off_has_a_field_that_says_so(client, models, monkeypatch):
    translator = models["zh-en"]
    monkeypatch.setattr(translator, "config", translator.config.replace(max_length_ratio=0.3))
    monkeypatch.setattr("keras_transformer.generation.configuration.MORE_TOKENS", 0)
    response = client.post("/api/translate", json={"texts": ["May 3, 2019", ""]}).json()
    assert response["finished"] == [False, True] and response["answers"][0]


def test_requests_at_the_same_time_get_their_own_answers(client, models, dates):
    texts = dates.test.source[:16]
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda text: answers(client, "translate", texts=[text]), texts))
    assert [answer for (answer,) in found] == models["zh-en"].translate(texts)


def test_tags_labels_and_words_are_those_of_the_tasks(client, models):
    texts = ["The dog barks.", "a cat"]
    tagged = answers(client, "tag", texts=texts)
    pairs = [[(each["word"], each["label"]) for each in words] for words in tagged]
    assert pairs == models["tagger"].tag(texts)
    for found, label in zip(
        answers(client, "classify", texts=texts), models["classifier"].classify(texts), strict=True
    ):
        assert found == {
            "label": label.label,
            "probability": pytest.approx(label.probability, abs=1e-4),
        }
    (words,) = answers(client, "fill", texts=["the [MASK] barks"], number=3)
    (expected,) = models["filler"].fill(["the [MASK] barks"], number=3)
    assert [each["word"] for each in words] == [each.label for each in expected]


def test_continuations_are_those_of_the_task_also_as_events(client, models):
    options = dict(max_tokens=12, temperature=0.7, top_k=5, top_p=0.9, seed=4)
    texts = ["the dog", "a cat"]
    assert answers(client, "generate", texts=texts, **options) == models["shakespeare"].generate(
        texts, **options
    )
    question = dict(texts=texts[:1], stream=True, **options)
    pieces = events(client.post("/api/generate", json=question))
    joined = texts[0] + "".join(piece["text"] for piece in pieces)
    assert [joined] == models["shakespeare"].generate(texts[:1], **options)
    assert len(pieces) > 5


@pytest.mark.parametrize("task, text", [("translate", "May 3, 2019"), ("generate", "the dog")])
def test_what_is_suppressed_is_not_written(client, task, text):
    def written(**options):
        (answer,) = answers(client, task, texts=[text], **options)
        return answer.removeprefix(text)

    first = next(filter(str.isalnum, written()))
    assert first not in written(suppress=[first])


def test_models_are_listed_with_their_sizes(client):
    found = {model["name"]: model for model in client.get("/api/models").json()}
    assert found["zh-en"]["task"] == "Translator"
    assert (found["zh-en"]["layers"], found["zh-en"]["heads"]) == (2, 4)
    assert found["tagger"]["labels"] == LABELS and found["zh-en"]["ready"]


@pytest.mark.parametrize(
    "tags, number",
    [
        (["models", "OpenAI", "LibreTranslate"], 8),
        pytest.param(["inspection"], 4, marks=pytest.mark.slow),
    ],
)
def test_every_example_of_the_page_of_requests_runs(client, tags, number):
    page = client.get("/openapi.json").json()
    tried = 0
    for path, methods in page["paths"].items():
        operation = methods.get("post", {})
        if operation.get("tags", [None])[0] not in tags:
            continue
        for media, body in operation["requestBody"]["content"].items():
            name = body["schema"].get("$ref", "").rpartition("/")[-1]
            schema = page["components"]["schemas"].get(name, body["schema"])
            for example in schema["examples"]:
                is_json = media == "application/json"
                response = client.post(path, **{"json" if is_json else "data": example})
                assert response.status_code == 200, (path, response.text)
                tried += 1
    assert tried == number


def test_the_page_of_requests_is_the_servers_own(client):
    assert '<script type="module" src="docs.js">' in client.get("/docs").text
    assert client.get("/redoc").status_code == 404


# Other interfaces


def test_libretranslate_takes_json_and_forms(dates_translator):
    with client_of({"en-iso": dates_translator}, api_key="key") as client:
        question = dict(q="April 22, 2019", source="en", target="iso", api_key="key")
        expected = {"translatedText": "2019-04-22"}
        assert client.post("/translate", json=question).json() == expected
        assert client.post("/translate", data=question).json() == expected
        for media_type in ("Application/JSON", f"{JSON}; charset=utf-8"):
            asked = dict(content=json.dumps(question), headers={"Content-Type": media_type})
            assert client.post("/translate", **asked).json() == expected
        several = client.post("/translate", json=question | {"q": ["May 1, 1999"] * 2}).json()
        assert several == {"translatedText": ["1999-05-01"] * 2}
        more = client.post(
            "/translate", json=question | {"alternatives": 2, "source": "auto"}
        ).json()
        assert more["translatedText"] == "2019-04-22" and len(more["alternatives"]) == 2
        assert more["detectedLanguage"]["language"] == "en"
        languages = client.get("/languages").json()
        assert {each["code"]: each["targets"] for each in languages} == {"en": ["iso"], "iso": []}
        wrong = client.post("/translate", json=question | {"target": "fr"})
        assert wrong.status_code == 400
        assert wrong.json()["error"] == "en-fr is not served; expected one of: en-iso."
        assert client.post("/translate", json=question | {"api_key": "other"}).status_code == 401


def test_a_name_says_its_languages_only_as_codes(dates_translator):
    question = dict(q="April 22, 2019", source="en", target="iso")
    names = {"en-iso-big": ["iso"], "en-iso.2": ["iso"], "my-model": None, "dates": None}
    for name, targets in names.items():
        with client_of({name: dates_translator}) as client:
            found = client.get("/languages").json()
            assert [each["targets"] for each in found[:1]] == ([targets] if targets else [])
            answer = client.post("/translate", json=question).json()
            assert answer == {"translatedText": "2019-04-22"}, name


def test_more_completions_than_texts_of_a_request_are_refused_before_they_are_made(client):
    question = dict(model="shakespeare", prompt=[""] * 1000, n=128)
    refused = client.post("/v1/completions", json=question)
    assert refused.status_code == 422
    assert "texts; received 128000." in refused.json()["error"]["message"]


def test_a_model_with_language_tags_translates_into_the_target_of_each_request(
    randomize, monkeypatch
):
    reserve = ["<2de>", "<2fr>"]
    tokenizer = kt.train_tokenizer(["abcdef gh"], model_type="char", reserve=reserve)
    sizes = dict(num_layers=1, d_model=16, num_heads=2, d_ff=16)
    model = randomize(kt.Transformer(tokenizer.vocabulary_size(), **sizes))
    translator, asked = kt.Translator(model, tokenizer, directions=["en-de", "en-fr"]), []
    translate = translator.translate

    def recorded(texts, **options):
        asked.append((texts[0], options.get("to")))
        return translate(texts, **options)

    monkeypatch.setattr(translator, "translate", recorded)
    with client_of({"many": translator}) as client:
        for to in ("de", "fr"):
            answers(client, "translate", texts=["abc"], target=to)
            question = dict(q="abc", source="en", target=to)
            assert client.post("/translate", json=question).status_code == 200
        assert asked == [("abc", to) for to in ("de", "de", "fr", "fr")]
        languages = client.get("/languages").json()
        assert languages[0] == {"code": "en", "name": "en", "targets": ["de", "fr"]}
        for question, reason in (
            ({}, "this model translates into de, fr"),
            ({"target": "es"}, "must be one of de, fr"),
        ):
            refused = client.post("/api/translate", json={"texts": ["abc"]} | question)
            assert refused.status_code == 422 and reason in refused.json()["error"]


def test_completions_are_what_comes_after_the_prompt(client, models):
    question = dict(model="shakespeare", prompt="the dog", max_tokens=12, seed=3)
    (text,) = models["shakespeare"].generate(["the dog"], 12, seed=3)
    text = text.removeprefix("the dog")
    whole = client.post("/v1/completions", json=question).json()
    assert [each["text"] for each in whole["choices"]] == [text]
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["usage"] == {"prompt_tokens": 7, "completion_tokens": 12, "total_tokens": 19}
    chunks = events(client.post("/v1/completions", json=question | {"stream": True}))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == text
    stop = text[5:7]
    for more in (dict(stop=stop, echo=True), dict(stop=[stop, "never"], echo=True, stream=True)):
        response = client.post("/v1/completions", json=question | more)
        parts = events(response) if "stream" in more else [response.json()]
        assert (
            "".join(part["choices"][0]["text"] for part in parts)
            == "the dog" + text[: text.index(stop)]
        )
        assert parts[-1]["choices"][0]["finish_reason"] == "stop"
    assert [each["id"] for each in client.get("/v1/models").json()["data"]] == [
        "shakespeare",
        "generator",
    ]
    wrong = client.post("/v1/completions", json=question | {"model": "zh-en"}).json()
    assert wrong["error"]["message"].startswith("zh-en is a Translator; expected a TextGenerator")


@pytest.mark.parametrize("number", [*range(20)])
@pytest.mark.once
def test_a_text_ends_at_the_same_stop_in_whatever_pieces_it_comes(number):
    generator = random.Random(number)
    text = "".join(generator.choices("abc", k=30))
    stops = ["".join(generator.choices("abc", k=generator.randint(1, 4))) for _ in range(3)]
    stops[0] += "!" * (number % 2)
    stops += [stops[1][:2], stops[1] + "a"]

    def written(sizes):
        end, parts, at = Stops(stops), [], 0
        while at < len(text) and not end.found:
            size = next(sizes)
            parts.append(end.add(text[at : at + size]))
            at += size
        return "".join([*parts, end.rest()]), end.found

    whole = written(iter([99]))
    assert whole == written(iter([1] * 99)) == written(iter(generator.choices([1, 2, 5], k=99)))
    ends = [text.index(stop) + len(stop) for stop in stops if stop in text]
    assert whole[1] == bool(ends)
    if ends:  # the stop that is complete first; of several, the longest
        ended = text[: min(ends)]
        stop = max((stop for stop in stops if ended.endswith(stop)), key=len)
        assert whole[0] == ended.removesuffix(stop)


def test_an_echo_hides_no_refusal(client):
    question = dict(model="shakespeare", max_tokens=3, stream=True, echo=True)
    long = client.post("/v1/completions", json=question | {"prompt": "a " * 2000})
    assert long.status_code == 422 and "must have at most" in long.json()["error"]["message"]
    body = '{"model": "shakespeare", "prompt": "\\ud800", "stream": true, "echo": true}'
    wrong = client.post("/v1/completions", content=body, headers={"Content-Type": JSON})
    assert wrong.status_code == 422


def test_an_answer_that_does_not_exist_is_not_given(client, models, monkeypatch):
    written = [Hypothesis("0", -1.5, True), Hypothesis("", -math.inf, False)]
    translator, hypotheses = models["zh-en"], [written] * 2
    monkeypatch.setattr(translator, "_hypotheses", lambda texts, *_: hypotheses[: len(texts)])
    question = {"texts": ["a"], "beams": 2, "n_best": 2, "model": "zh-en"}
    assert answers(client, "translate", **question) == [["0"]]
    (found,) = answers(client, "translate", **question, scores=True)
    assert found == [{"text": "0", "score": -1.5, "finished": True}]
    hypotheses[0] = written[1:]
    (found,) = answers(client, "translate", texts=["a"], model="zh-en", scores=True)
    assert found == {"text": "", "score": None, "finished": False}
    assert answers(client, "translate", **question) == [[""]]


def test_a_completion_ends_by_length_or_by_the_end_that_the_model_writes():
    tokenizer = kt.train_tokenizer(["the cat sat on the mat and the dog sat on a log"], 50)
    sizes = dict(num_layers=1, d_model=16, num_heads=2, d_ff=32)
    model = kt.LanguageModel(tokenizer.vocabulary_size(), **sizes)
    for weight in model.weights:
        weight.assign(np.zeros(weight.shape))  # every token is as probable as any other
    generator, reasons = kt.TextGenerator(model, tokenizer, window=64), set()
    with client_of({"generator": generator}) as client:
        for seed in range(8):
            options = dict(max_tokens=40, seed=seed, temperature=2.0)
            (found,) = generator.generate(["the"], **options, return_ends=True)
            assert found.tokens == 40 or found.finished
            question = dict(model="generator", prompt="the", **options)
            whole = client.post("/v1/completions", json=question).json()
            assert whole["usage"]["completion_tokens"] == found.tokens <= 40
            streamed = events(client.post("/v1/completions", json=question | {"stream": True}))
            for last in (whole, streamed[-1]):
                (choice,) = last["choices"]
                assert choice["finish_reason"] == ("stop" if found.finished else "length")
            text = "the" + "".join(each["choices"][0]["text"] for each in streamed)
            assert text == found.text == "the" + whole["choices"][0]["text"]
            reasons.add(choice["finish_reason"])
    assert reasons == {"stop", "length"}


# Limits


@pytest.mark.parametrize(
    "path, content, status, reason",
    [
        (
            "translate",
            {"texts": ["a"], "model": "x"},
            404,
            "There is no Translator 'x' here; expect",
        ),
        (
            "translate",
            {"texts": ["a"], "model": "tagger"},
            422,
            "tagger is a Tagger; expected a Tr",
        ),
        ("translate", {"texts": []}, 422, "body.texts: List should have at least 1 item"),
        ("translate", {"texts": "a"}, 422, "body.texts: Input should be a valid list"),
        ("translate", {"texts": [None]}, 422, "body.texts.0: Input should be a valid string"),
        ("translate", {"texts": ["a"], "beam": 3}, 422, "body.beam: Extra inputs are not permit"),
        ("translate", {"texts": ["a"], "beams": 2, "n_best": 3}, 422, "n_best must be from 1 to b"),
        ("translate", {"texts": ["a"], "beams": 10**9}, 422, "body.beams: Input should be less th"),
        ("translate", {"texts": ["a"] * 129}, 422, "A request may have 128 texts; received 129"),
        ("translate", {"texts": ["a", LONG]}, 422, "Text 1 must have at most 512 tokens; received"),
        (
            "translate",
            {"texts": ["a", "%" * 32_769]},
            422,
            "Text 1 must have at most 32768 charact",
        ),
        (
            "generate",
            {"texts": ["a"], "suppress": ["1" * 129]},
            422,
            "body.suppress.0: String should",
        ),
        (
            "translate",
            {"texts": ["a"], "placeholders": ["url"] * 7},
            422,
            "body.placeholders: List",
        ),
        ("translate", {"texts": ["\ud800"]}, 422, "has half a surrogate pair"),
        ("translate", {"\ud800": "\ud800"}, 422, "body"),
        ("fill", {"texts": ["no mask"]}, 422, "Text 0 must have one [MASK]; received 0"),
        (
            "generate",
            {"texts": ["a", "b"], "stream": True},
            422,
            "One text is streamed; received 2",
        ),
        ("generate", {"texts": ["a"], "temperature": 1e999}, 422, "body.temperature: Input should"),
        ("generate", {"texts": ["a"], "seed": -1}, 422, "body.seed: Input should be greater than"),
        ("translate", b"", 422, "body: Field required"),
        ("translate", b"{", 422, "body.1: JSON decode error"),
        ("translate", b"\xff\xff", 400, "There was an error parsing the body"),
        ("translate", b"[" * 100_000, 400, "There was an error parsing the body"),
        ("translate", b'{"texts": [' + b"9" * 5000 + b"]}", 400, "There was an error parsing the"),
        ("translate", b" " * (2**20 + 1), 413, "A request may have 1048576 bytes"),
    ],
)
def test_a_wrong_request_gets_one_sentence(client, path, content, status, reason):
    if isinstance(content, dict):
        content = json.dumps(content).encode()
    headers = {"Content-Type": "application/json"}
    response = client.post(f"/api/{path}", content=content, headers=headers)
    assert (response.status_code, list(response.json())) == (status, ["error"]), response.text
    assert reason in response.json()["error"]


def test_a_text_may_hold_any_character(client):
    assert len(answers(client, "translate", texts=["\0", "\n", "\U0001f600", "", " \u2028"])) == 5


def test_two_batches_are_computed_at_a_time(monkeypatch):
    task = Classifier()
    monkeypatch.setattr(backend, "num_cores", lambda: 2)
    with client_of({"model": task}) as client, concurrent.futures.ThreadPoolExecutor() as threads:
        task.go.clear()
        ask = lambda text: client.post("/api/classify", json={"texts": [text]})  # noqa: E731
        asked = []
        for text in ("first", "second"):
            asked.append(threads.submit(ask, text))
            wait_until(lambda text=text: [text] in task.seen)
        task.go.set()
        assert [each.result().status_code for each in asked] == [200, 200]


def test_what_takes_too_long_is_answered_and_leaves_the_queue(monkeypatch):
    task = Classifier()
    monkeypatch.setattr(backend, "num_cores", lambda: 1)
    with client_of({"model": task}, timeout=0.3) as client:
        task.go.clear()
        response = client.post("/api/classify", json={"texts": ["first"]})
        assert response.status_code == 504 and response.headers["Retry-After"] == "1"
        assert response.json()["error"].startswith("The answer took longer than 0.3 s.")
        assert client.post("/api/classify", json={"texts": ["second"]}).status_code == 504
        task.go.set()
        ask = lambda: client.post("/api/classify", json={"texts": ["third"]})  # noqa: E731
        wait_until(lambda: ask().status_code == 200)  # on a slow machine not at once
    seen = {text for batch in task.seen for text in batch}
    assert {"first", "third"} <= seen and "second" not in seen


def test_a_client_that_leaves_takes_its_text_with_it(monkeypatch):
    task = Classifier()
    monkeypatch.setattr(backend, "num_cores", lambda: 1)
    app = make_app({"model": task}, Limits(max_compiled=1))

    async def response_to(method, path, text="", leaves=None):
        """The status and the body; None and b"" if the client left before."""
        content = json.dumps({"texts": [text]}).encode()
        scope = {"type": "http", "http_version": "1.1", "method": method, "path": path}
        scope |= {"query_string": b"", "headers": [(b"content-type", b"application/json")]}
        given, sent = [{"type": "http.request", "body": content}], [{}]

        async def receive():
            if given:
                return given.pop()
            await (leaves or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        await app(scope, receive, send)
        status = next((each["status"] for each in sent if "status" in each), None)
        return status, b"".join(each.get("body", b"") for each in sent)

    async def waits():
        _, page = await response_to("GET", "/metrics")
        return b'waiting_texts{model="model"} 1.0' in page

    def ask(*given):
        return asyncio.create_task(response_to("POST", "/api/classify", *given))

    async def session():
        async with app.router.lifespan_context(app):
            while (await response_to("GET", "/ready"))[0] != 200:
                await asyncio.sleep(0.005)
            task.go.clear()
            first = ask("first")
            while ["first"] not in task.seen:
                await asyncio.sleep(0.005)
            leaves = asyncio.Event()
            second = ask("second", leaves)
            while not await waits():
                await asyncio.sleep(0.005)
            leaves.set()
            assert await second == (None, b"") and not await waits()
            task.go.set()
            assert [(await each)[0] for each in (first, ask("third"))] == [200, 200]

    asyncio.run(asyncio.wait_for(session(), 600))
    seen = {text for batch in task.seen for text in batch}
    assert {"first", "third"} <= seen and "second" not in seen


def test_the_options_of_the_command_reach_the_application(monkeypatch):
    given = []
    for name, value in (("propagate", True), ("handlers", []), ("level", 0)):
        monkeypatch.setattr(LOG, name, value)
    monkeypatch.setenv("KERAS_TRANSFORMER_API_KEY", "key")
    monkeypatch.setattr(backend, "set_num_threads", lambda number: None)
    monkeypatch.setattr("keras_transformer.serving.app.make_app", lambda *each: given.append(each))
    monkeypatch.setattr("keras_transformer.serving.models.load_models", lambda *each: {})
    monkeypatch.setattr("uvicorn.Server.run", lambda *each, **options: None)
    origins = ["https://a.example", "http://b.example"]
    command = ["serve", "dates", "--port", "0", "--cors", *origins, "--max-texts", "3"]
    main([*command, "--timeout", "9", "--log-texts"])
    assert LOG.level == logging.DEBUG
    main([*command, "--api-key", "other"])
    assert LOG.level == logging.INFO
    (_, first, *one), (_, second, *other) = given
    assert (first, second) == (Limits(max_texts=3, timeout=9.0), Limits(max_texts=3))
    assert (one, other) == (["key", origins], ["other", origins])
    with pytest.raises(SystemExit, match="The API key must not be empty: leave it out, or unset"):
        main([*command, "--api-key", ""])
    monkeypatch.setenv("KERAS_TRANSFORMER_API_KEY", "")
    with pytest.raises(SystemExit, match="must not be empty"):
        main(command)
    assert len(given) == 2


def test_a_full_queue_is_answered_with_when_to_come_back(monkeypatch):
    task = Classifier()
    monkeypatch.setattr(backend, "num_cores", lambda: 1)
    with (
        client_of({"model": task}, max_queue=2) as client,
        concurrent.futures.ThreadPoolExecutor() as threads,
    ):
        task.go.clear()
        ask = lambda text: client.post("/api/classify", json={"texts": [text] * 2})  # noqa: E731
        first = threads.submit(ask, "first")
        wait_until(lambda: ["first"] * 2 in task.seen)
        second = threads.submit(ask, "second")
        wait_until(lambda: 'waiting_texts{model="model"} 2.0' in client.get("/metrics").text)
        refused = ask("third")
        assert refused.status_code == 429 and refused.headers["Retry-After"] == "1"
        task.go.set()
        assert first.result().status_code == second.result().status_code == 200


def test_a_key_opens_all_but_health(models):
    with client_of({"dates": models["zh-en"]}, api_key="gehe\u00efm") as client:
        wrong = [None, "", "Bearer", "Bearer other", "Basic gehe\u00efm"]
        for path in ("/api/models", "/v1/models", "/metrics"):
            for header in wrong:
                headers = {} if header is None else {"Authorization": header.encode()}
                assert client.get(path, headers=headers).status_code == 401, (path, header)
            right = {"Authorization": "Bearer gehe\u00efm".encode()}
            assert client.get(path, headers=right).status_code == 200
        assert client.post("/translate", json={"q": "a", "target": "b"}).status_code == 401
        paths = client.get("/openapi.json").json()["paths"]
        assert {"/api/translate", "/api/attention", "/v1/completions"} <= {*paths}
        for path in paths.keys() - {"/health", "/ready", "/languages", "/translate"}:
            for method in paths[path]:
                assert client.request(method, path, json={}).status_code == 401, path
        for path in ("/health", "/ready", "/languages", "/", "/docs", "/openapi.json"):
            assert client.get(path).status_code == 200, path


def test_pages_of_other_sites_may_ask_only_if_they_are_named(client, models):
    headers = {"Origin": "https://a.example"}
    assert "access-control-allow-origin" not in client.get("/api/models", headers=headers).headers
    with client_of({"dates": models["zh-en"]}, origins=["https://a.example"]) as other:
        long = {"texts": ["a" * 2_000_000]}
        for allowed in (
            other.get("/api/models", headers=headers),
            other.post("/api/translate", json=long, headers=headers),  # which the guard refuses
        ):
            assert allowed.headers["access-control-allow-origin"] == "https://a.example"
        assert allowed.status_code == 413


def test_the_log_has_no_text_unless_asked(caplog):
    caplog.set_level(logging.INFO, "keras_transformer.serving")
    with client_of({"model": Classifier()}) as client:
        assert client.post("/api/classify", json={"texts": ["secret"]}).status_code == 200
        failed = client.post("/api/classify", json={"texts": ["secret", "fail"]})
        assert failed.status_code == 500 and "secret" not in failed.text
        assert client.post("/api/secret", json={"texts": ["secret"]}).status_code in (404, 405)
        client.get("/secret?secret=secret")
        assert "RuntimeError" in caplog.text and "POST /api/classify 500" in caplog.text
        assert "secret" not in caplog.text
        caplog.set_level(logging.DEBUG, "keras_transformer.serving")
        client.post("/api/classify", json={"texts": ["secret"]})
        assert "secret" in caplog.text


def test_metrics_count_requests_batches_and_tokens():
    with client_of({"model": Classifier()}) as client:
        client.post("/api/classify", json={"texts": ["one two", "three"]})
        client.post("/api/classify", json={})
        page = client.get("/metrics").text
    name = "keras_transformer_"
    assert f'{name}tokens_total{{model="model"}} 3.0' in page
    labels = 'method="POST",route="/api/classify"'
    assert f'{name}requests_total{{{labels},status="200"}} 1.0' in page
    assert f'{name}requests_total{{{labels},status="422"}} 1.0' in page
    assert f"{name}request_seconds_count{{{labels}}} 2.0" in page
    assert f'{name}batch_texts_sum{{model="model"}} 2.0' in page
    assert re.search(rf'{name}batch_seconds_count{{model="model"}} [12]\.0', page)


def test_too_many_streams_are_refused(small_tasks):
    go = threading.Event()

    class TextGenerator(type(small_tasks["generator"])):
        def stream(self, prompt, **options):
            go.wait()
            yield "written"

    generator = TextGenerator(small_tasks["generator"].model, small_tasks["generator"].tokenizer)
    question = {"texts": ["a"], "stream": True}
    with (
        client_of({"model": generator}, max_streams=1) as client,
        concurrent.futures.ThreadPoolExecutor() as threads,
    ):
        first = threads.submit(client.post, "/api/generate", json=question)
        wait_until(lambda: 'streams{model="model"} 1.0' in client.get("/metrics").text)
        assert client.post("/api/generate", json=question).status_code == 429
        go.set()
        assert events(first.result()) == [{"text": "written"}]
