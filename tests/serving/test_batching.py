import asyncio

import pytest
from servers import Classifier, as_before

import keras_transformer as kt
from keras_transformer import backend
from keras_transformer.serving.batching import Batcher
from keras_transformer.serving.configuration import Limits
from keras_transformer.serving.limits import Refused
from keras_transformer.serving.metrics import Metrics


@pytest.fixture
def models_that_write(small_tasks, dates_translator):
    return {"translate": dates_translator, "generate": small_tasks["generator"]}


BEAMS = {"beams": 4, "return_scores": True}


def answers_to(task, requests, cancelled=(), **limits):
    """The answers to requests, pairs of texts and options, that all wait before the first batch."""

    async def session():
        batcher = Batcher("model", task, Limits(**limits), Metrics())
        batcher.compile = lambda: None
        batcher.ready = True
        asked = []
        for request in requests:
            waiting = len(batcher._waiting)
            asked.append(asyncio.create_task(batcher.ask(*request)))
            while len(batcher._waiting) == waiting and not asked[-1].done():
                await asyncio.sleep(0)
        for number in cancelled:
            asked[number].cancel()
        running = asyncio.create_task(batcher.run())
        found = await asyncio.gather(*asked, return_exceptions=True)
        running.cancel()
        await asyncio.wait([running])
        return found

    with as_before([task]):
        return asyncio.run(session())


def test_texts_of_several_requests_share_batches_and_are_answered_in_order():
    task = Classifier()
    texts = [f"text {n}" for n in range(20)]
    found = answers_to(task, [([text], {}) for text in texts], max_batch=8)
    assert [answer for (answer,) in found] == texts
    assert sorted(map(len, task.seen)) == [4, 8, 8] and task.expects_many


def test_a_batch_has_the_text_that_waits_longest_and_those_nearest_in_length():
    task = Classifier()
    lengths = [3, 9, 2, 8, 9, 4]
    texts = [" ".join([f"{number}"] * length) for number, length in enumerate(lengths)]
    found = answers_to(task, [([text], {}) for text in texts], max_batch=3)
    assert [answer for (answer,) in found] == texts
    assert [sorted(len(text.split()) for text in batch) for batch in task.seen] == [
        [2, 3, 4],
        [8, 9, 9],
    ]


def test_texts_with_other_options_have_batches_of_their_own(dates_translator, dates):
    texts = dates.test.source[:12]
    requests = [([text], options) for text, options in zip(texts, [{}, BEAMS] * 6, strict=True)]
    found = [answer for (answer,) in answers_to(dates_translator, requests)]
    assert found[::2] == dates_translator.translate(texts[::2])
    best = dates_translator.translate(texts[1::2], beams=4, return_scores=True)
    assert [each.text for each in found[1::2]] == [each.text for each in best]
    scores = [each.score for each in found[1::2]]
    assert scores == pytest.approx([each.score for each in best], abs=1e-4)


def test_a_text_without_answer_is_named_and_the_others_are_answered(small_tasks):
    texts = ["The [MASK] barks.", "no mask", "a [MASK] dog"]
    filler, options = small_tasks["filler"], {"number": 2}
    found = answers_to(filler, [(texts[:1], options), (texts[1:], options)])
    assert [[word.label for word in answer] for answer in found[0]] == [
        [word.label for word in filler.fill(texts[:1], 2)[0]]
    ]
    assert isinstance(found[1], Refused) and found[1].status == 422
    assert found[1].reason == "Text 0 must have one [MASK]; received 0 in 'no mask'."


def test_an_error_of_the_task_fails_its_batch_alone():
    task = Classifier()
    requests = [([text], {}) for text in ("a", "fail", "b", "c")]
    first, second, third, fourth = answers_to(task, requests, max_batch=2)
    assert isinstance(first, RuntimeError) and isinstance(second, RuntimeError)
    assert (third, fourth) == (["b"], ["c"])


def test_no_option_of_a_request_ends_the_answers_to_others(models_that_write):
    for kind, task in models_that_write.items():
        wrong = {"suppress": ["a", "\ud800"]}
        first, second = answers_to(task, [(["the"], wrong), (["the"], {})])
        assert isinstance(first, Refused) and first.status == 422, kind
        assert first.reason.startswith("suppress: Every text must be valid Unicode; item 1 has"), (
            kind
        )
        assert len(second) == 1, kind


def test_whatever_an_answer_raises_the_next_batch_is_answered(monkeypatch):
    task = Classifier()
    answer = Batcher._answer

    def broken(batcher, batch):
        answers = answer(batcher, batch)
        if batch[0].text == "b":
            raise IndexError("a bug of the server")
        return answers

    monkeypatch.setattr(Batcher, "_answer", broken)
    requests = [([text], {}) for text in ("a", "b", "c")]
    first, second, third = answers_to(task, requests, max_batch=1)
    assert (first, third) == (["a"], ["c"]) and isinstance(second, IndexError)


def test_a_model_that_answers_no_more_is_not_ready():
    async def session():
        batcher = Batcher("model", Classifier(), Limits(max_batch=1, max_compiled=16), Metrics())
        running = asyncio.create_task(batcher.run())
        while not batcher.ready:
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        return batcher.ready

    assert not asyncio.run(session())


def test_the_shapes_of_a_vocabulary_without_digits_and_blanks_are_compiled(monkeypatch):
    task = Classifier()
    monkeypatch.setattr(task, "num_tokens", lambda texts: [2] * len(texts))  # unknown, and END
    Batcher("model", task, Limits(max_batch=1, max_compiled=40), Metrics()).compile()
    assert len(task.seen) == 1


def test_a_request_that_is_over_leaves_the_queue():
    task = Classifier()
    requests = [([f"{n} a", f"{n} b"], {}) for n in range(3)]
    first, second, third = answers_to(task, requests, cancelled=[1])
    assert (first, third) == (requests[0][0], requests[2][0])
    assert isinstance(second, asyncio.CancelledError)
    assert task.seen == [["0 a", "0 b", "2 a", "2 b"]]


def test_every_shape_of_a_batch_is_computed_before_the_first_request(monkeypatch):
    task, limits = Classifier(), Limits(max_batch=4, max_compiled=40)
    monkeypatch.setattr(backend, "name", lambda: "jax")
    Batcher("model", task, limits, Metrics()).compile()
    lengths = [len(texts[0].split()) for texts in task.seen]
    rows = [len(texts) for texts in task.seen]
    expected = [(length, size) for length in (16, 32, 40) for size in (1, 2, 4)]
    assert list(zip(lengths, rows, strict=True)) == expected
    task.seen.clear()
    monkeypatch.setattr(backend, "name", lambda: "torch")
    Batcher("model", task, limits, Metrics()).compile()
    assert list(map(len, task.seen)) == [1]


def test_a_full_queue_refuses_and_says_when_to_come_back():
    requests = [(["a", "b"], {}), (["c", "d"], {})]
    found = answers_to(Classifier(), requests, max_queue=3)
    assert found[0] == ["a", "b"]
    assert found[1].status == 429 and found[1].headers == {"Retry-After": "1"}
    (found,) = answers_to(Classifier(), [(["a", "b", "c", "d"], {})], max_queue=3)
    assert found.status == 422  # it would never fit


def test_programs_of_a_model_with_language_tags_are_compiled_with_a_tag(monkeypatch):
    tokenizer = kt.train_tokenizer(["1 2"], model_type="char", reserve=["<2de>"])
    model = kt.Transformer(
        tokenizer.vocabulary_size(), num_layers=1, d_model=8, num_heads=1, d_ff=8
    )
    translator, seen = kt.Translator(model, tokenizer, directions=["en-de"]), []
    monkeypatch.setattr(translator, "translate", lambda texts: seen.extend(texts))
    Batcher("many", translator, Limits(max_batch=4, max_compiled=40), Metrics()).compile()
    assert seen and all(text.startswith("<2de> 1") for text in seen)
    translator.check_texts(seen)
