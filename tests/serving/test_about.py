"""What the service says of itself."""

from __future__ import annotations

from typing import Any

import anyio
import httpx
import pytest

from eaco_datasets.gpus import gpu_specs
from eaco_serving.app import create_app
from eaco_serving.schemas import GpusOut, PredictorOut
from eaco_serving.settings import Settings


def test_gpus_are_the_catalogue_with_sources(ask: Any) -> None:
    answer = ask("GET", "/gpus")
    told = GpusOut.model_validate_json(answer.content)
    assert {g.slug: g.idle_w for g in told.gpus} == {slug: spec.idle_w for slug, spec in gpu_specs().items()}
    assert all(g.sources["idle_w"] for g in told.gpus)


def test_the_predictor_says_that_it_learned_from_simulated_rows(ask: Any) -> None:
    told = PredictorOut.model_validate_json(ask("GET", "/predictor").content)
    assert told.version == "fake-1"
    assert told.provenance == {"simulated": 0.75, "published": 0.25}
    assert told.simulated
    assert told.families == ["resnet50", "vgg16"]
    assert told.out_of_sample == told.in_sample == {}
    assert told.held_out == {"relative_speed_out_of_family_macro_mae": 0.07}


def test_the_predictor_shows_its_errors_out_of_sample_beside_those_in_sample(predictor: Any) -> None:
    from eaco_serving.default import RegisteredPredictor

    served = RegisteredPredictor(predictor, {"relative_speed/leave-one-model-out/mae": 0.07}, {"a/in-sample/mae": 0.01})

    async def story() -> None:
        app = create_app(Settings(), lambda: served)
        transport = httpx.ASGITransport(app=app)
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport) as client:
            await app.state.service.loaded()
            told = PredictorOut.model_validate_json((await client.get("http://service/predictor")).content)
            assert told.out_of_sample == {"relative_speed/leave-one-model-out/mae": 0.07}
            assert told.in_sample == {"a/in-sample/mae": 0.01}

    anyio.run(story)


def test_startup_logs_that_the_predictor_learned_from_simulated_rows(
    predictor: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from eaco_serving.service import announce, simulated_notice

    announce(predictor.info)
    assert "simulated: 75%" in caplog.text
    assert simulated_notice({"measured": 1.0}) is None


def test_docs_and_openapi_describe_every_call(ask: Any) -> None:
    assert ask("GET", "/docs").status_code == 200
    document = ask("GET", "/openapi.json").json()
    about = {"/gpus", "/predictor", "/healthz", "/readyz"}
    assert set(document["paths"]) == {"/predict", "/place", "/catalogue", "/catalogue/{model}", *about}
    call = document["paths"]["/predict"]["post"]
    bodies = call["requestBody"]["content"]["application/json"]["schema"]["anyOf"]
    assert {b["$ref"].rpartition("/")[2] for b in bodies} == {"SetIn", "CandidatesIn"}
    assert set(call["responses"]["422"]["content"]) == {"application/problem+json"}
    answers = call["responses"]["200"]["content"]["application/json"]["schema"]["anyOf"]
    assert {a["$ref"].rpartition("/")[2] for a in answers} == {"PredictionOut", "PredictionsOut"}
    assert document["components"]["schemas"]["SetIn"]["required"] == ["gpu", "sharing_mode", "jobs"]
