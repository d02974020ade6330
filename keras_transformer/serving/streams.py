"""Answers that are sent while they are written."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi.responses import StreamingResponse


async def stream(objects: AsyncIterator[Any]) -> StreamingResponse:
    """Server-sent events: each object as JSON, then [DONE].

    It waits for the first object, so that a refusal still has a status of its own.
    """
    first = await anext(objects, None)

    async def events():
        if first is not None:
            yield f"data: {json.dumps(first)}\n\n"
        async for each in objects:
            yield f"data: {json.dumps(each)}\n\n"
        yield "data: [DONE]\n\n"

    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(events(), media_type="text/event-stream", headers=headers)


class Stops:
    """Texts that end an answer, and are not part of it.

    Args:
        stops: list of str.

    Attributes:
        found: bool, whether the answer has come to one of them.
    """

    def __init__(self, stops: Sequence[str]):
        self.stops = [stop for stop in stops if stop]
        self.found = False
        self._unsent = ""

    def add(self, piece: str) -> str:
        """The text that is known to precede all stops, once a piece more has been written.

        The stop that is complete first counts, so that pieces of any length give the same text.
        """
        text = self._unsent + piece
        found = [(text.index(stop) + len(stop), -len(stop)) for stop in self.stops if stop in text]
        self.found = bool(found)
        longest = max(map(len, self.stops), default=1)
        end = sum(min(found)) if found else max(0, len(text) - longest + 1)
        self._unsent = "" if found else text[end:]
        return text[:end]

    def rest(self) -> str:
        """The last text that `add` has held back."""
        return self._unsent
