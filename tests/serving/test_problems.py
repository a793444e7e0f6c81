"""Errors leave the service as problems, whatever went wrong; nothing of the inside leaks."""

from __future__ import annotations

import json
import threading
from typing import Any

import anyio
import httpx
import pytest
from fastapi import Request
from starlette.responses import Response

from eaco_datasets import errors
from eaco_serving import problems
from eaco_serving.app import create_app
from eaco_serving.routes.wire import INLINE_BYTES, json_response, json_route
from eaco_serving.schemas import SetIn
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
    raw = b" " * 300_000

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
    answer = ask("POST", "/predict", json={"candidates": [{f"odd{i}": i for i in range(30)}] * 30})
    problem = told(answer, 422)
    assert len(problem["errors"]) == problems.MAX_LISTED
    assert "of 33 errors" in problem["detail"]  # 30 unknown keys, 3 missing ones; of the first candidate alone


@pytest.mark.parametrize(
    ("path", "body", "first"),
    [
        ("/predict", {"candidates": [{}] * 1000}, "/candidates/0/"),
        ("/predict", {"candidates": [{}] * 9000}, "/candidates/0/"),
        ("/place", {"job": {"model": "a", "batch_size": 1}, "cluster": {"nodes": [{}] * 9000}}, "/cluster/nodes/0/"),
    ],
)
def test_items_after_the_first_malformed_one_are_not_looked_at(ask: Any, path: str, body: Any, first: str) -> None:
    problem = told(ask("POST", path, json=body), 422)
    assert 0 < len(problem["errors"]) <= 4
    assert all(e["pointer"].startswith(first) for e in problem["errors"])


def test_an_object_of_very_many_keys_is_one_error(ask: Any) -> None:
    many = {f"k{i}": 0 for i in range(3000)}
    for body, where in ((many, ""), ({**SET, "jobs": [many]}, "/jobs/0")):
        problem = told(ask("POST", "/predict", json=body), 422)
        assert problem["errors"] == [{"pointer": where, "detail": "an object has 3000 keys; expected at most 64"}]


@pytest.mark.parametrize(
    ("path", "raw", "where"),
    [
        ("/predict", '{"gpu": "v100", "gpu": "k80", "sharing_mode": "mps", "jobs": []}', "/gpu"),
        (
            "/predict",
            '{"candidates": [{}, {"jobs": [{"solo": {"mem_mib": 1, "mem_mib": 1}}]}]}',
            "1/jobs/0/solo/mem_mib",
        ),
        ("/predict", '{"jobs": [{"a": 1, "a": 2}], "jobs": []}', "/jobs"),
        ("/predict", '{"a/b": 1, "a\\/b": 2}', "/a~1b"),
        ("/place", '{"settings": {"alpha": 0.1, "alpha": 0.9}}', "/settings/alpha"),
    ],
)
def test_a_key_that_stands_twice_is_refused_at_its_pointer(ask: Any, path: str, raw: str, where: str) -> None:
    problem = told(ask("POST", path, content=raw, headers={"content-type": "application/json"}), 422)
    assert problem["type"] == "invalid-request"
    (error,) = problem["errors"]
    assert error["pointer"].endswith(where)
    assert "twice" in error["detail"]


def test_the_same_key_in_two_objects_and_a_value_that_looks_like_a_key_are_fine(ask: Any) -> None:
    body = {**SET, "jobs": [{**SET["jobs"][0], "job_id": "gpu:gpu"}, SET["jobs"][0]]}  # type: ignore[dict-item,index]
    assert ask("POST", "/predict", json=body).status_code == 200


@pytest.mark.parametrize(("padding", "inline"), [(0, True), (INLINE_BYTES, False)])
def test_a_large_body_is_read_off_the_event_loop_which_answers_others(
    predictor: Any, padding: int, inline: bool
) -> None:
    read_in: list[int] = []
    begun, may_end = threading.Event(), threading.Event()

    def read(parsed: Any) -> SetIn:
        read_in.append(threading.get_ident())
        begun.set()
        assert inline or may_end.wait(20)
        return SetIn.model_validate(parsed)

    async def seen(_body: SetIn, _request: Request) -> Response:
        return json_response(b"{}")

    async def story() -> None:
        app = create_app(Settings(), lambda: predictor)
        app.router.add_api_route("/read", seen, methods=["POST"], route_class_override=json_route(read))
        async with app.router.lifespan_context(app), client_of(app) as client:
            raw = json.dumps(SET).encode() + b" " * padding
            answers: list[httpx.Response] = []

            async def send() -> None:
                answers.append(await client.post("/read", content=raw))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(send)
                assert await anyio.to_thread.run_sync(begun.wait, 20)
                assert (await client.get("/healthz")).status_code == 200  # while the body is still being read
                assert inline or not answers
                may_end.set()
            assert [a.status_code for a in answers] == [200]
            assert (read_in == [threading.get_ident()]) == inline

    anyio.run(story)


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

        def predict(self, _sets: object, **_graphs: object) -> Any:
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
