"""The server's own interface: one route per task."""

import math
import operator
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from .limits import Refused
from .models import Models
from .schemas import Fill, Generate, Texts, Translate
from .streams import stream


def as_dict(found):
    """The fields of an answer; a score that is not a number of JSON is null."""
    fields = found._asdict()
    return fields | {"score": None} if fields.get("score") == -math.inf else fields


def router_of(models: Models) -> APIRouter:
    """The routes below /api.

    Args:
        models: `Models`.
    """
    router = APIRouter(prefix="/api", tags=["models"])

    async def answer(kind, question, options, seed=None, **fields):
        """The response: what functions take from the answer to each text, or each of its list."""
        batcher = models.find(question.model, kind)
        answers = await batcher.ask(question.texts, options, seed)

        def taken(take):
            return [list(map(take, x)) if isinstance(x, list) else take(x) for x in answers]

        found = {name: taken(take) for name, take in fields.items()}
        return JSONResponse({"model": batcher.name, **found})

    @router.get("/models")
    async def list_models() -> list[dict[str, Any]]:
        """The models of this server."""
        return models.describe()

    @router.post("/translate")
    async def translate(question: Translate) -> Response:
        """Translates texts; a list per text with `n_best`, objects with `scores`.

        "finished" is false where a translation was cut off at the length limit.
        """
        options = question.options("target", "scores") | {"to": question.target}
        options |= {"return_finished": True, "return_scores": question.scores}
        if question.scores:
            return await answer("Translator", question, options, answers=as_dict)
        text, finished = map(operator.attrgetter, ("text", "finished"))
        return await answer("Translator", question, options, answers=text, finished=finished)

    @router.post("/tag")
    async def tag(question: Texts) -> Response:
        """Labels each word of texts."""
        return await answer("Tagger", question, {}, answers=lambda x: {"word": x[0], "label": x[1]})

    @router.post("/classify")
    async def classify(question: Texts) -> Response:
        """Predicts the label of each text, with its probability."""
        return await answer("Classifier", question, {}, answers=as_dict)

    @router.post("/fill")
    async def fill(question: Fill) -> Response:
        """Predicts the masked word of each text, most probable first."""

        def word(found):
            return {"word": found.label, "probability": found.probability}

        return await answer("MaskFiller", question, question.options(), answers=word)

    @router.post("/generate")
    async def generate(question: Generate) -> Response:
        """Continues prompts; the answers begin with them. Events have the parts after it."""
        if not question.stream:
            options, seed = question.options("stream", "seed"), question.seed
            return await answer("TextGenerator", question, options, seed, answers=str)
        if len(question.texts) > 1:
            raise Refused(422, f"One text is streamed; received {len(question.texts)}.")
        batcher = models.find(question.model, "TextGenerator")
        pieces = batcher.stream(question.texts[0], question.options("stream"))
        return await stream({"text": piece} async for piece in pieces if piece)

    return router
