"""The application factory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from eaco_serving import problems
from eaco_serving.routes import about, catalogue, place, predict
from eaco_serving.service import LoadPredictor, Service
from eaco_serving.settings import Settings

ABOUT = """Predicts, before it happens, how fast deep-learning training jobs run and how much power they draw when they
share GPUs, and places jobs by it. Errors are RFC 9457 `application/problem+json`. Every prediction says what share of
the rows that it was learned from was measured, published or simulated."""


def create_app(settings: Settings, load_predictor: LoadPredictor) -> FastAPI:
    """The service as an ASGI application.

    Args:
        settings: how it runs.
        load_predictor: called once, in a thread, when the application starts; ``/readyz`` is 503 until it returns.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.service = Service(settings, load_predictor)
        app.state.service.start()
        yield

    app = FastAPI(title="EaCO", description=ABOUT, version=_version(), lifespan=lifespan, redoc_url=None)
    problems.add_handlers(app)
    for module in (predict, place, catalogue, about):
        module.add_to(app)
    document = app.openapi

    def openapi() -> dict[str, Any]:
        return _as_problems(document())

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def _version() -> str:
    from importlib.metadata import version

    return version("eaco")


def _as_problems(document: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI document with every error answer under its real media type."""
    for path in document["paths"].values():
        for operation in path.values():
            for status, response in operation["responses"].items():
                content = response.get("content", {})
                if status >= "400" and "application/json" in content:
                    content[problems.MEDIA_TYPE] = content.pop("application/json")
    return document
