"""OpenAI's completions for a text generator, so that existing clients work unchanged."""

import asyncio
import secrets
import time
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from .limits import Refused
from .models import Models
from .schemas import Completion
from .streams import Stops, stream

KIND = "TextGenerator"


def router_of(models: Models) -> APIRouter:
    """The routes below /v1.

    Args:
        models: `Models`.
    """
    router = APIRouter(prefix="/v1", tags=["OpenAI"])

    @router.get("/models")
    async def list_models() -> dict[str, Any]:
        """The text generators."""
        return {"object": "list", "data": [_model(each.name) for each in models.of_kind(KIND)]}

    @router.get("/models/{name}")
    async def model(name: str) -> dict[str, Any]:
        """One text generator."""
        return _model(models.find(name, KIND).name)

    @router.post("/completions")
    async def complete(request: Completion) -> Response:
        """Continues prompts; the answers begin after them, unless `echo` is true."""
        batcher = models.find(request.model, KIND)
        prompts = [request.prompt] if isinstance(request.prompt, str) else request.prompt
        batcher.check_number(len(prompts) * request.n)
        prompts = [prompt for prompt in prompts for _ in range(request.n)]
        stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
        seed = secrets.randbits(32) if request.seed is None else request.seed
        options = request.model_dump(include={"max_tokens", "temperature", "top_p"})
        options |= {"return_ends": True}
        whole: dict[str, Any] = dict(id=f"cmpl-{secrets.token_hex(12)}", object="text_completion")
        whole |= dict(created=int(time.time()), model=batcher.name)

        def choice(text, index, reason):
            return {"text": text, "index": index, "logprobs": None, "finish_reason": reason}

        if request.stream:
            if len(prompts) > 1:
                raise Refused(422, f"One completion is streamed; received {len(prompts)}.")
            pieces = batcher.stream(prompts[0], {**options, "seed": seed})

            async def chunks():
                end, finished, echo = Stops(stops), True, request.echo
                async for piece in pieces:
                    if echo:  # not before the first piece: a refusal has a status of its own
                        yield whole | {"choices": [choice(prompts[0], 0, None)]}
                        echo = False
                    if not isinstance(piece, str):  # the last one
                        finished = piece.finished
                    elif new := end.add(piece):
                        yield whole | {"choices": [choice(new, 0, None)]}
                    if end.found:
                        break
                yield whole | {"choices": [choice(end.rest(), 0, _reason(end, finished))]}

            return await stream(chunks())

        written = await batcher.ask(prompts, options, seed)

        def completed():
            choices, new = [], 0
            before = batcher.task.normalized(prompts)
            for index, (found, prompt) in enumerate(zip(written, before, strict=True)):
                end = Stops(stops)
                text = end.add(found.text[len(prompt) :]) + end.rest()
                new += batcher.task.num_tokens([text])[0] - 1 if end.found else found.tokens
                reason = _reason(end, found.finished)
                choices.append(choice(prompt + text if request.echo else text, index, reason))
            read = sum(batcher.task.num_tokens(prompts)) - len(prompts)
            usage = {"prompt_tokens": read, "completion_tokens": new, "total_tokens": read + new}
            return JSONResponse(whole | {"choices": choices, "usage": usage})

        return await asyncio.to_thread(completed)

    return router


def _model(name):
    return {"id": name, "object": "model", "created": 0, "owned_by": "keras_transformer"}


def _reason(stops, finished):
    """The reason for which an answer ended: "length", or "stop" for END or one of `stops`."""
    return "stop" if finished or stops.found else "length"
