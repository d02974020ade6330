"""LibreTranslate's interface, so that its clients and browser extensions work unchanged."""

import urllib.parse
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError

from .limits import Refused
from .models import Models
from .schemas import LibreTranslate

JSON, FORM = "application/json", "application/x-www-form-urlencoded"
CONTENT = {kind: {"schema": LibreTranslate.model_json_schema()} for kind in (JSON, FORM)}
BODY = {"requestBody": {"required": True, "content": CONTENT}}  # for the OpenAPI page


def router_of(models: Models, check_key: Callable[[bytes], None]) -> APIRouter:
    """The routes /translate and /languages.

    Args:
        models: `Models`; the name of a translator says its languages, such as zh-en.
        check_key: function that refuses a wrong API key, which is part of the body.
    """
    router = APIRouter(tags=["LibreTranslate"])

    @router.get("/languages")
    async def languages() -> list[dict[str, Any]]:
        """The source languages, each with its targets."""
        targets: dict[str, list[str]] = {}
        for source, target in models.pairs():
            targets.setdefault(source, []).append(target)
            targets.setdefault(target, [])
        return [{"code": code, "name": code, "targets": targets[code]} for code in targets]

    @router.post("/translate", openapi_extra=BODY)
    async def translate(request: Request) -> Response:
        """Translates one text, or a list of texts."""
        asked = await _body_of(request)
        check_key(asked.api_key.encode("utf-8", "replace"))
        source, batcher = _translator(models, asked.source, asked.target)
        texts = [asked.q] if isinstance(asked.q, str) else asked.q
        options: dict[str, Any] = {}
        if batcher.task.directions:
            options["to"] = asked.target
        if asked.alternatives:
            number = asked.alternatives + 1
            options |= dict(beams=max(number, batcher.task.config.beams), n_best=number)
        answers = await batcher.ask(texts, options)
        found = {"translatedText": answers}
        if asked.alternatives:
            found["translatedText"] = [best for best, *_ in answers]
            found["alternatives"] = [others for _, *others in answers]
        if asked.source == "auto":
            found["detectedLanguage"] = [{"language": source, "confidence": 0}] * len(texts)
        if isinstance(asked.q, str):
            found = {name: values[0] for name, values in found.items()}
        return JSONResponse(found)

    return router


async def _body_of(request):
    """The body, which is JSON or a form."""
    body = await request.body()
    try:
        media_type = request.headers.get("Content-Type", "").partition(";")[0]
        if media_type.strip().lower() == JSON:
            return LibreTranslate.model_validate_json(body)
        fields = urllib.parse.parse_qs(body.decode(), keep_blank_values=True, max_num_fields=1000)
        several = {name: found for name, found in fields.items() if name == "q" and found[1:]}
        form = {name: found[0] for name, found in fields.items()} | several
        return LibreTranslate.model_validate(form)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_context=False)) from None
    except ValueError:
        raise Refused(400, "Expected JSON or a form in UTF-8.") from None


def _translator(models, source, target):
    """The source language, and the translator of a pair, or the only one if it names no pair."""
    pairs = models.pairs()
    for (known_source, known_target), batcher in pairs.items():
        if target == known_target and source in (known_source, "auto"):
            return known_source, batcher
    others = [each for each in models.of_kind("Translator") if each not in pairs.values()]
    if not pairs and len(others) == 1:
        return source, others[0]
    known = ", ".join("-".join(pair) for pair in pairs) or "none"
    raise Refused(400, f"{source:.20}-{target:.20} is not served; expected one of: {known}.")
