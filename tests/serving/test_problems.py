"""Errors leave the service as problems, whatever went wrong; nothing of the inside leaks."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import httpx
import pytest

from eaco_datasets import errors
from eaco_serving import problems
from eaco_serving.app import create_app
from eaco_serving.settings import Settings

SET = {"gpu": "v100", "sharing_mode": "time-slice", "jobs": [{"model": "resnet50", "batch_size": 64}]}


def every_error(base: type[Exception]) -> list[type[Exception]]:
    return [base, *(found for sub in base.__subclasses__() for found in every_error(sub))]


def test_the_table_names_every_error_of_eaco() -> None:
    ours = {e for e in every_error(errors.EacoError) if e.__module__ == errors.__name__}
    assert ours == set(problems.ERROR_TABLE)


@pytest.mark.parametrize(
    ("method", "path", "status", "slug"),
    [
        ("GET", "/nowhere", 404, "not-found"),
        ("POST", "/predict/more", 404, "not-found"),
        ("GET", "/predict", 405, "method-not-allowed"),
        ("DELETE", "/place", 405, "method-not-allowed"),
        ("POST", "/gpus", 405, "method-not-allowed"),
    ],
)
def test_routing_errors_are_problems(ask: Any, method: str, path: str, status: int, slug: str) -> None:
    answer = ask(method, path)
    problem = told(answer, status)
    assert problem["type"] == slug
    assert problem["instance"] == path
    if status == 405:
        assert answer.headers["allow"]


def test_a_large_body_is_refused_with_and_without_a_length(ask: Any) -> None:
    raw = b" " * 60_000

    async def chunks() -> Any:
        yield raw

    for content in (raw, chunks()):
        answer = ask("POST", "/predict", content=content, headers={"content-type": "application/json"})
        assert told(answer, 413)["type"] == "too-large"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"])
def test_another_media_type_is_refused(ask: Any, kind: str) -> None:
    answer = ask("POST", "/place", content=b"{}", headers={"content-type": kind})
    assert told(answer, 415)["type"] == "unsupported-media-type"


def test_at_most_twenty_errors_are_listed_and_all_are_counted(ask: Any) -> None:
    answer = ask("POST", "/predict", json={"candidates": [{}] * 30})
    problem = told(answer, 422)
    assert len(problem["errors"]) == problems.MAX_LISTED
    assert "of 90 errors" in problem["detail"]


def test_pointers_are_escaped() -> None:
    assert problems.pointer(["a/b", 0, "c~d"]) == "/a~1b/0/c~0d"
    assert problems.pointer([]) == ""


def test_an_unknown_gpu_suggests_known_ones(ask: Any) -> None:
    problem = told(ask("POST", "/predict", json={**SET, "gpu": "v10"}), 422)
    assert problem["type"] == "unknown-name"
    assert "v100" in problem["errors"][0]["detail"]


def test_not_ready_until_loaded_then_ready(predictor: Any) -> None:
    may_load = threading.Event()

    def load() -> Any:
        may_load.wait(10)
        return predictor

    async def story() -> None:
        app = create_app(Settings(), load)
        async with app.router.lifespan_context(app), client_of(app) as client:
            assert (await client.get("/healthz")).json() == {"status": "ok"}
            for method, path, body in [
                ("GET", "/readyz", None),
                ("GET", "/predictor", None),
                ("POST", "/predict", SET),
            ]:
                answer = await client.request(method, path, json=body)
                assert told(answer, 503)["type"] == "not-ready"
                assert answer.headers["retry-after"]
            may_load.set()
            await app.state.service.loaded()
            assert (await client.get("/readyz")).json() == {"status": "ready"}
            assert (await client.post("/predict", json=SET)).status_code == 200

    anyio.run(story)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (errors.EacoError("the store is gone"), "the store is gone"),
        (RuntimeError("secret"), "the service's log has the details"),
    ],
)
def test_a_predictor_that_cannot_be_loaded_leaves_the_service_alive_and_not_ready(error: Exception, said: str) -> None:
    def load() -> Any:
        raise error

    async def story() -> None:
        app = create_app(Settings(), load)
        async with app.router.lifespan_context(app), client_of(app) as client:
            await app.state.service.loaded()
            assert (await client.get("/healthz")).status_code == 200
            problem = told(await client.get("/readyz"), 503)
            assert "could not be loaded" in problem["detail"]
            assert said in problem["detail"]
            assert "secret" not in problem["detail"]

    anyio.run(story)


@pytest.mark.parametrize(
    ("error", "status", "slug"),
    [
        (errors.InputError("too odd", where="/jobs/0"), 422, "invalid-request"),
        (errors.UnknownNameError("model", "x", ["y"]), 422, "unknown-name"),
        (errors.NotReadyError("later"), 503, "not-ready"),
        (errors.EacoError("secret path"), 500, "internal"),
        (errors.MissingExtraError("torch", "gnn"), 500, "internal"),
        (ZeroDivisionError("secret path"), 500, "internal"),
    ],
)
@pytest.mark.parametrize("count", [1, 40])
def test_what_the_predictor_raises_is_mapped(
    predictor: Any, error: Exception, status: int, slug: str, count: int
) -> None:
    class Failing:
        info = predictor.info

        def predict(self, _sets: object) -> Any:
            raise error

    async def story() -> None:
        app = create_app(Settings(), Failing)
        async with app.router.lifespan_context(app), client_of(app) as client:
            await app.state.service.loaded()
            answer = await client.post("/predict", json={"candidates": [SET] * count})
            assert told(answer, status)["type"] == slug
            assert "secret" not in answer.text

    anyio.run(story)


def client_of(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://service")


def told(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The problem in an answer."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == status
    assert {"type", "title", "detail", "instance"} <= set(problem)
    return problem
