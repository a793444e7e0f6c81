"""Every error that leaves the service: RFC 9457 ``application/problem+json``, from one table."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from pydantic_core import ErrorDetails, to_json
from starlette.exceptions import HTTPException
from starlette.responses import Response

from eaco_datasets.errors import (
    ConflictError,
    DataError,
    EacoError,
    FetchError,
    InputError,
    MissingExtraError,
    NotReadyError,
    UnknownNameError,
)

MEDIA_TYPE = "application/problem+json"
MAX_LISTED = 20
"""Most field errors in one answer; ``detail`` says how many there are."""

log = logging.getLogger("eaco.serving")


@dataclass(frozen=True)
class Kind:
    """One kind of problem: its slug (the ``type``), title and status."""

    slug: str
    title: str
    status: int


MALFORMED = Kind("malformed-json", "The body is not JSON", 400)
INVALID = Kind("invalid-request", "The request breaks its schema", 422)
UNKNOWN_NAME = Kind("unknown-name", "A name in the request is not known", 422)
TOO_LARGE = Kind("too-large", "The body is too large", 413)
NOT_JSON = Kind("unsupported-media-type", "The body is not sent as application/json", 415)
CONFLICT = Kind("conflict", "The state has moved on since", 409)
NOT_READY = Kind("not-ready", "No predictor is loaded yet", 503)
INTERNAL = Kind("internal", "The service failed", 500)

ERROR_TABLE: dict[type[EacoError], Kind] = {
    EacoError: INTERNAL,
    InputError: INVALID,
    DataError: INVALID,
    UnknownNameError: UNKNOWN_NAME,
    MissingExtraError: INTERNAL,
    FetchError: INTERNAL,
    NotReadyError: NOT_READY,
    ConflictError: CONFLICT,
}
"""Error class -> problem; a subclass not named here takes its nearest named base."""

SUGGESTED = {
    404: "see /docs for the calls there are",
    405: "see the Allow header and /docs",
}


class Refused(Exception):
    """A request refused at the edge, before anything is computed."""

    def __init__(self, kind: Kind, detail: str, errors: Sequence[tuple[str, str]] = (), n_errors: int = 0) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.errors = kind, detail, errors
        if n_errors > len(errors):
            self.detail = f"{detail} (the first {len(errors)} of {n_errors} errors are listed)"


def pointer(path: Iterable[str | int]) -> str:
    """A JSON pointer (RFC 6901) from keys and indices; the whole document is the empty string."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def refuse_fields(details: Sequence[ErrorDetails]) -> Refused:
    """A schema violation from pydantic's error details."""
    errors = [(pointer(d["loc"]), _say(d)) for d in details[:MAX_LISTED]]
    where, what = errors[0]
    return Refused(INVALID, f"{where or '/'}: {what}", errors, len(details))


def _say(detail: ErrorDetails) -> str:
    given = detail["input"]
    if detail["type"] in ("missing", "extra_forbidden") or not isinstance(given, str | int | float | bool):
        return detail["msg"]
    shown = repr(given)
    return f"{detail['msg']}; got {shown if len(shown) <= 60 else shown[:57] + '...'}"


def problem(
    kind: Kind, detail: str, errors: Sequence[tuple[str, str]] = (), *, instance: str | None = None
) -> Response:
    """The answer that says what is wrong."""
    body: dict[str, Any] = {"type": kind.slug, "title": kind.title, "status": kind.status, "detail": detail}
    if instance is not None:
        body["instance"] = instance
    if errors:
        body["errors"] = [{"pointer": where, "detail": what} for where, what in errors]
    headers = {"Retry-After": "1"} if kind is NOT_READY else None
    return Response(to_json(body), kind.status, headers, MEDIA_TYPE)


def problem_of(error: Exception, instance: str | None = None) -> Response:
    """The answer for any exception; one that is not EaCO's own leaks nothing."""
    if isinstance(error, Refused):
        return problem(error.kind, error.detail, error.errors, instance=instance)
    kind = next((ERROR_TABLE[c] for c in type(error).__mro__ if c in ERROR_TABLE), INTERNAL)
    if kind is INTERNAL:
        log.error("%s failed", instance or "a request", exc_info=error)
        return problem(INTERNAL, "an error that is the service's own; its log has the details", instance=instance)
    if isinstance(error, InputError):
        what = f"{error.what}; expected {error.expected}" if error.expected else error.what
        return problem(kind, str(error), [(error.where, what)], instance=instance)
    return problem(kind, str(error), instance=instance)


def add_handlers(app: FastAPI) -> None:
    """Answer every exception of the application with a problem."""

    async def of_any(request: Request, error: Exception) -> Response:
        return problem_of(error, request.url.path)

    async def of_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        phrase = HTTPStatus(error.status_code).phrase
        kind = Kind(phrase.lower().replace(" ", "-"), phrase, error.status_code)
        detail = f"{request.method} {request.url.path}: {SUGGESTED.get(error.status_code, error.detail)}"
        answer = problem(kind, detail, instance=request.url.path)
        answer.headers.update(error.headers or {})
        return answer

    app.add_exception_handler(HTTPException, of_http)
    app.add_exception_handler(EacoError, of_any)
    app.add_exception_handler(Exception, of_any)
