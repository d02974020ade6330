"""Refusals, and the guard that bounds each request."""

import asyncio
import time
import traceback
from typing import Any

from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect, Request

from .configuration import LOG, Limits

RETRY_AFTER = "1"  # seconds


class Refused(Exception):
    """A request that is not answered.

    Args:
        status: int, the HTTP status.
        reason: str, one sentence for the client.
        **headers: headers of the response.
    """

    def __init__(self, status: int, reason: str, **headers: str):
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers


def busy(reason: str, status: int = 429) -> Refused:
    """A refusal that invites the client to try again soon."""
    return Refused(status, reason, **{"Retry-After": RETRY_AFTER})


def refusal(path: str, refused: Refused) -> JSONResponse:
    """The response to a request that is refused, in the form of the interface that was asked."""
    reason = refused.reason.encode("utf-8", "backslashreplace").decode()  # half surrogates
    content: Any = {"error": reason}
    if path.startswith("/v1/"):
        kind = "server_error" if refused.status >= 500 else "invalid_request_error"
        content = {"error": {"message": reason, "type": kind, "param": None, "code": None}}
    return JSONResponse(content, refused.status, refused.headers or None)


def for_client(error: Exception) -> Exception:
    """A refusal that says what is wrong with a text or an option; other errors are the server's."""
    return Refused(422, f"{error}") if isinstance(error, ValueError) else error


class Guard:
    """ASGI middleware: bounds the body and the time of each request, counts and logs it.

    A request whose client leaves, or whose time is over, is cancelled: its texts leave the queue.

    Args:
        app: the ASGI application.
        limits: `Limits`.
        metrics: `Metrics`.
    """

    def __init__(self, app: Any, limits: Limits, metrics: Any):
        self.app, self.limits, self.metrics = app, limits, metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0

        async def noting(message):
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            async with asyncio.timeout(self.limits.timeout):
                body = await self._body(Request(scope, receive))
                await self._answer(scope, body, receive, noting)
        except ClientDisconnect:
            pass
        except Exception as error:
            refused = self._refused(error)
            if status == 0:
                await refusal(scope["path"], refused)(scope, receive, noting)
            else:  # the client of a stream sees that its answer is not whole
                raise ConnectionAbortedError("A stream was cut off.") from None
        finally:
            route = getattr(scope.get("route"), "path", "other")
            seconds = time.perf_counter() - start
            self.metrics.request(route, scope["method"], status, seconds)
            LOG.info("%s %s %s %.0f ms", scope["method"], route, status or "left", 1000 * seconds)

    def _refused(self, error):
        if isinstance(error, Refused):
            return error
        if isinstance(error, TimeoutError):
            limit = f"{self.limits.timeout:g} s"
            return busy(f"The answer took longer than {limit}. Send fewer or shorter texts.", 504)
        # Without its message, which may quote a text.
        frames = "".join(traceback.format_tb(error.__traceback__))
        LOG.error("%s in\n%s", type(error).__name__, frames)
        return Refused(500, "The server failed; its log says where.")

    async def _body(self, request):
        """The whole body."""
        most, body = self.limits.max_body, bytearray()
        async for part in request.stream():
            body += part
            if len(body) > most:
                cure = "Send the texts in several requests."
                raise Refused(413, f"A request may have {most} bytes. {cure}", Connection="close")
        return bytes(body)

    async def _answer(self, scope, body, receive, send):
        """Runs the application until it has answered, or its client has left."""
        given, left = [{"type": "http.request", "body": body}], asyncio.Event()

        async def replay():
            if given:
                return given.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def watch():
            while (await receive())["type"] != "http.disconnect":
                pass

        running = [asyncio.ensure_future(each) for each in (self.app(scope, replay, send), watch())]
        try:
            finished, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            left.set()
            for each in finished:
                each.result()
        finally:
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)
