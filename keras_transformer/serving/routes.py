"""The server's own interface: one route per task."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from .limits import Refused
from .models import Models
from .schemas import Fill, Generate, Texts, Translate
from .streams import stream


def router_of(models: Models) -> APIRouter:
    """The routes below /api.

    Args:
        models: `Models`.
    """
    router = APIRouter(prefix="/api", tags=["models"])

    async def answers_of(kind, question, options, seed=None):
        batcher = models.find(question.model, kind)
        return batcher.name, await batcher.ask(question.texts, options, seed)

    def respond(name, answers, **others):
        return JSONResponse({"model": name, "answers": answers, **others})

    @router.get("/models")
    async def list_models() -> list[dict[str, Any]]:
        """The models of this server."""
        return models.describe()

    @router.post("/translate")
    async def translate(question: Translate) -> Response:
        """Translates texts; a list per text with `n_best`, objects with `scores`.

        "finished" is false where a translation was cut off at the length limit.
        """
        options = question.options() | {"return_finished": True}
        options["return_scores"] = scores = options.pop("scores")
        options["to"] = options.pop("target", None)
        name, found = await answers_of("Translator", question, options)

        def of_each(take):
            if question.n_best is None:
                return [take(each) for each in found]
            return [[take(each) for each in hypotheses] for hypotheses in found]

        if scores:
            return respond(name, of_each(lambda each: each._asdict()))
        finished = of_each(lambda each: each.finished)
        return respond(name, of_each(lambda each: each.text), finished=finished)

    @router.post("/tag")
    async def tag(question: Texts) -> Response:
        """Labels each word of texts."""
        name, answers = await answers_of("Tagger", question, {})
        words = [[{"word": word, "label": label} for word, label in found] for found in answers]
        return respond(name, words)

    @router.post("/classify")
    async def classify(question: Texts) -> Response:
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
        if not options.pop("stream"):
            seed = options.pop("seed")
            return respond(*await answers_of("TextGenerator", question, options, seed))
        if len(question.texts) > 1:
            raise Refused(422, f"One text is streamed; received {len(question.texts)}.")
        batcher = models.find(question.model, "TextGenerator")
        pieces = batcher.stream(question.texts[0], options)
        return await stream({"text": piece} async for piece in pieces if piece)

    return router
