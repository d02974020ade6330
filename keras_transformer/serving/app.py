"""The application: routes, limits, metrics and the page."""

import asyncio
import contextlib
import hmac
import pathlib
from collections.abc import Mapping, Sequence
from typing import Annotated

import fastapi
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from .. import __version__, tasks
from . import completions, inspection, libretranslate, routes
from .batching import Batcher
from .configuration import Limits
from .limits import Guard, Refused, busy, refusal
from .metrics import Metrics
from .models import Models

BEARER = fastapi.Depends(HTTPBearer(auto_error=False))
PAGE = pathlib.Path(__file__).parent / "page"


def make_app(
    models: Mapping[str, "tasks.Task"],
    limits: Limits | None = None,
    api_key: str | None = None,
    origins: Sequence[str] = (),
) -> fastapi.FastAPI:
    """The ASGI application of a server; when it starts, it compiles the models' programs.

    Args:
        models: dict from a name to a `Task`.
        limits: `Limits`; None: the usual ones.
        api_key: str that clients must send, as a bearer token; None: no key.
        origins: list of str, the web sites whose pages may ask; empty: none but the server's own.
    """
    limits, metrics = limits or Limits(), Metrics()
    batchers = {name: Batcher(name, task, limits, metrics) for name, task in models.items()}
    served = Models(batchers)

    @contextlib.asynccontextmanager
    async def answering(app):
        running = [asyncio.create_task(each.run()) for each in batchers.values()]
        yield
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    app = fastapi.FastAPI(
        title="keras_transformer",
        version=__version__,
        lifespan=answering,
        docs_url=None,  # FastAPI's pages load their scripts from elsewhere; page/docs does not
        redoc_url=None,
    )

    def check_key(given):
        if api_key and not hmac.compare_digest(given, api_key.encode()):
            challenge = {"WWW-Authenticate": "Bearer"}
            raise Refused(401, "Send the API key: Authorization: Bearer KEY.", **challenge)

    async def authorized(credentials: Annotated[HTTPAuthorizationCredentials | None, BEARER]):
        check_key(credentials.credentials.encode("latin-1") if credentials else b"")

    protected = [fastapi.Depends(authorized)]

    @app.get("/health", tags=["server"])
    async def health() -> dict[str, str]:
        """Whether the server runs."""
        return {"status": "ok"}

    @app.get("/ready", tags=["server"])
    async def ready() -> dict[str, str]:
        """Whether all programs are compiled; 503 until then."""
        waiting = [each.name for each in batchers.values() if not each.ready]
        if waiting:
            raise busy(f"The programs of {', '.join(waiting)} are being compiled.", 503)
        return {"status": "ready"}

    @app.get("/metrics", tags=["server"], dependencies=protected)
    async def prometheus() -> Response:
        """Counters in the format of Prometheus."""
        return Response(metrics.page(), media_type="text/plain; version=0.0.4")

    app.include_router(routes.router_of(served), dependencies=protected)
    app.include_router(completions.router_of(served), dependencies=protected)
    app.include_router(libretranslate.router_of(served, check_key))
    app.include_router(inspection.router_of(served), dependencies=protected)
    app.mount("/", StaticFiles(directory=PAGE, html=True), name="page")

    async def refused(request, error):
        if isinstance(error, RequestValidationError):
            first = error.errors()[0]
            place = ".".join(str(part)[:60] for part in first["loc"])
            error = Refused(422, f"{place}: {first['msg']:.300}.")
        elif isinstance(error, HTTPException):
            error = Refused(error.status_code, f"{error.detail:.300}.", **(error.headers or {}))
        return refusal(request.url.path, error)

    for kind in (Refused, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, refused)

    app.add_middleware(Guard, limits=limits, metrics=metrics)
    if origins:  # around the guard, whose refusals a page reads too
        app.add_middleware(
            CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"]
        )
    return app
