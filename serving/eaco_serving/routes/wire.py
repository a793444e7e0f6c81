"""A route that reads its JSON body itself: size-bounded, parsed once, validated once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from eaco_serving.problems import MALFORMED, NOT_JSON, TOO_LARGE, Refused, problem_of, refuse_fields
from eaco_serving.service import service_of
from eaco_serving.settings import Settings
from eaco_serving.strict_json import parse_strict

Model = TypeVar("Model", bound=BaseModel)
Endpoint = Callable[[Any, Request], Awaitable[Response]]

JSON = "application/json"
INLINE_BYTES = 65_536
"""A larger body is parsed and validated in a worker thread, so that the event loop answers others meanwhile."""


class ProblemRoute(APIRoute):
    """A route without a body: whatever goes wrong, with its parameters too, is answered as a problem."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """The endpoint as FastAPI calls it, its exceptions answered."""
        handler = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestValidationError as error:
                return problem_of(refuse_fields(error.errors()), request.url.path)
            except Exception as error:
                return problem_of(error, request.url.path)

        return answer


def _largest_body(settings: Settings) -> float:
    return settings.max_body_mib


def json_route(
    read: Callable[[Any], BaseModel], limit_mib: Callable[[Settings], float] = _largest_body
) -> type[APIRoute]:
    """A route class whose endpoint ``(body, request) -> Response`` gets ``read(parsed JSON)``.

    ``limit_mib`` picks the setting that bounds the body.

    FastAPI documents the endpoint by its signature, but neither parses the body nor resolves dependencies nor checks
    the answer: what is left is a plain ASGI application.
    Whatever goes wrong is answered as a problem.
    """

    class JsonRoute(APIRoute):
        def __init__(self, path: str, endpoint: Endpoint, **options: Any) -> None:
            super().__init__(path, endpoint, **options)

            async def app(scope: Scope, receive: Receive, send: Send) -> None:
                request = Request(scope, receive)
                response = await _answer(request, endpoint, read, limit_mib)
                await response(scope, receive, send)

            self.app = app

    return JsonRoute


async def _answer(
    request: Request, endpoint: Endpoint, read: Callable[[Any], BaseModel], limit_mib: Callable[[Settings], float]
) -> Response:
    try:
        raw = await _read_bounded(request, int(limit_mib(service_of(request).settings) * 2**20))
        inline = len(raw) <= INLINE_BYTES
        body = read(_parse(raw)) if inline else await asyncio.to_thread(lambda: read(_parse(raw)))
        return await endpoint(body, request)
    except ClientDisconnect:
        return Response(status_code=400)
    except Exception as error:
        return problem_of(error, request.url.path)


def validated(model: type[Model], parsed: Any) -> Model:
    """``parsed`` as ``model``.

    Raises:
        Refused: 422, with a JSON pointer for each field that is wrong.
    """
    try:
        return model.__pydantic_validator__.validate_python(parsed)  # type: ignore[no-any-return]
    except ValidationError as error:
        raise refuse_fields(error.errors(include_url=False, include_context=False)) from None


def json_response(body: bytes, status: int = 200) -> Response:
    """An answer that is JSON already."""
    return Response(body, status, media_type=JSON)


async def _read_bounded(request: Request, limit: int) -> bytes:
    _check_media_type(request)
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise Refused(TOO_LARGE, f"the body has {declared} bytes; at most {limit} are read")
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise Refused(TOO_LARGE, f"the body has more than {limit} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def _check_media_type(request: Request) -> None:
    given = request.headers.get("content-type", JSON)
    if given != JSON:
        kind = given.partition(";")[0].strip().lower()
        if kind != JSON and not (kind.startswith("application/") and kind.endswith("+json")):
            raise Refused(NOT_JSON, f"content-type is {given[:80]!r}; expected {JSON}")


def _parse(raw: bytes) -> Any:
    try:
        return parse_strict(raw)
    except ValueError as error:
        raise Refused(MALFORMED, f"{error}; expected one JSON object", [("", str(error))]) from None
