"""The server's own interface: one route per task."""

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response, StreamingResponse

from .batching import METHODS, Call
from .limits import Limits, Refused
from .models import Models
from .schemas import Fill, Generate, Question, Translate


def router_of(models: Models, limits: Limits) -> APIRouter:
    """The routes below /api.

    Args:
        models: `Models`.
        limits: `Limits`.
    """
    router = APIRouter(prefix="/api", tags=["models"])

    async def answers_of(kind, question, options, own=None):
        batcher = models.find(question.model, kind)
        check_texts(question.texts, limits)
        call = Call(METHODS[kind], tuple(sorted(options.items())))
        return batcher.name, await batcher.ask(call, question.texts, own)

    def respond(name, answers):
        return JSONResponse({"model": name, "answers": answers})

    @router.get("/models")
    async def list_models() -> list[dict[str, Any]]:
        """The models of this server."""
        return models.describe()

    @router.post("/translate")
    async def translate(question: Translate) -> Response:
        """Translates texts; a list per text with `n_best`, objects with `scores`."""
        options = question.options()
        options["return_scores"] = scores = options.pop("scores")
        name, answers = await answers_of("Translator", question, options)
        if scores and question.n_best is None:
            answers = [found._asdict() for found in answers]
        elif scores:
            answers = [[each._asdict() for each in found] for found in answers]
        return respond(name, answers)

    @router.post("/tag")
    async def tag(question: Question) -> Response:
        """Labels each word of texts."""
        name, answers = await answers_of("Tagger", question, {})
        words = [[{"word": word, "label": label} for word, label in found] for found in answers]
        return respond(name, words)

    @router.post("/classify")
    async def classify(question: Question) -> Response:
        """Predicts the label of each text, with its probability."""
        name, answers = await answers_of("Classifier", question, {})
        return respond(name, [found._asdict() for found in answers])

    @router.post("/fill")
    async def fill(question: Fill) -> Response:
        """Predicts the masked word of each text, most probable first."""
        name, answers = await answers_of("MaskFiller", question, question.options())
        words = [
            [dict(word=each.label, probability=each.probability) for each in found]
            for found in answers
        ]
        return respond(name, words)

    @router.post("/generate")
    async def generate(question: Generate) -> Response:
        """Continues prompts; the answers begin with them. Events have the parts after it."""
        options = question.options()
        if options.pop("stream"):
            batcher = models.find(question.model, "TextGenerator")
            if len(question.texts) > 1:
                raise Refused(422, f"One text is streamed; received {len(question.texts)}.")
            pieces = await first_of(batcher.stream(question.texts[0], options))
            return stream({"text": piece} async for piece in pieces)
        seed = options.pop("seed")
        own = [{"seed": seed, "first": number} for number in range(len(question.texts))]
        return respond(*await answers_of("TextGenerator", question, options, own))

    return router


def check_texts(texts: list[str], limits: Limits) -> None:
    """Refuses too many texts."""
    if len(texts) > limits.texts:
        limit = f"A request may have {limits.texts} texts; received {len(texts)}."
        raise Refused(422, f"{limit} Send them in several requests.")


async def first_of(pieces):
    """An iterator of the same pieces, once the first is there: what is refused has a status."""
    first = [piece async for piece in _one(pieces)]

    async def all_of():
        for piece in first:
            yield piece
        async for piece in pieces:
            yield piece

    return all_of()


async def _one(pieces):
    async for piece in pieces:
        yield piece
        return


def stream(objects: AsyncIterator[Any]) -> StreamingResponse:
    """Server-sent events: each object as JSON, then [DONE]."""

    async def events():
        async for each in objects:
            yield f"data: {json.dumps(each, ensure_ascii=False)}\n\n"
        yield "data: [DONE]\n\n"

    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(events(), media_type="text/event-stream", headers=headers)
