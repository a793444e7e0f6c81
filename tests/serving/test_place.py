"""``POST /place``: decisions over the wire."""

from __future__ import annotations

import copy
from typing import Any

import anyio
import httpx

from eaco_predictor.prediction import SetPrediction
from eaco_scheduler.decision import Alternative, Decision
from eaco_serving.app import create_app
from eaco_serving.convert import decision_wire
from eaco_serving.demo import PLACEMENT, RESIDENT
from eaco_serving.schemas_place import AlternativeOut, DecisionOut, PlaceSettingsIn
from eaco_serving.settings import Settings

PREDICTION = SetPrediction(
    (), None, None, None, None, None, None, None, (), "no rows", predictor_version="v", provenance={}
)


def test_a_job_is_placed_beside_another_and_told_why(ask: Any) -> None:
    answer = ask("POST", "/place", json=PLACEMENT)
    assert answer.status_code == 200, answer.text
    told = DecisionOut.model_validate_json(answer.content)
    assert (told.decision, told.phase, told.gpus, told.co_residents) == (
        "share",
        "provisional",
        ["GPU-a0"],
        ["speech"],
    )
    assert told.prediction is not None
    assert told.explanation
    assert [a.refused for a in told.alternatives if a.gpus == ["GPU-a0"]] == [None]


def test_an_exclusive_job_takes_idle_gpus_and_one_too_many_waits(ask: Any) -> None:
    alone = copy.deepcopy(PLACEMENT)
    alone["job"]["exclusive"] = True  # type: ignore[index]
    told = DecisionOut.model_validate_json(ask("POST", "/place", json=alone).content)
    assert told.decision == "exclusive"
    assert told.phase == "final"
    large = copy.deepcopy(PLACEMENT)
    large["job"]["num_gpus"] = 64  # type: ignore[index]
    told = DecisionOut.model_validate_json(ask("POST", "/place", json=large).content)
    assert (told.decision, told.phase, told.gpus) == ("wait", None, [])


def test_policy_and_settings_are_used_and_listed(ask: Any) -> None:
    body = {**PLACEMENT, "policy": "eaco-objective", "settings": {"alpha": 0.25, "max_jobs_per_gpu": 1}}
    told = DecisionOut.model_validate_json(ask("POST", "/place", json=body).content)
    assert told.decision == "exclusive"
    assert told.settings["policy"] == "eaco-objective"
    assert told.settings["alpha"] == 0.25
    assert told.settings["core_threshold_pct"] == 80.0


def test_every_setting_of_the_scheduler_can_be_sent() -> None:
    from dataclasses import fields

    from eaco_scheduler.settings import PlacementSettings

    assert {f.name for f in fields(PlacementSettings)} - {"policy"} == set(PlaceSettingsIn.model_fields)


def test_only_the_best_alternatives_come_with_predictions() -> None:
    tried = tuple(
        Alternative((f"GPU-{i}",), i, 50.0 - i, PREDICTION, f"reason {i}", (f"job-{i}",)) for i in range(1, 1001)
    )
    decision = Decision("wait", None, (), None, tried, "why", {})
    for in_full in (0, 16, 2000):
        told = DecisionOut.model_validate(decision_wire(decision, in_full), strict=False).alternatives
        assert [a.rank for a in told if a.prediction is not None] == list(range(1, min(in_full, 1000) + 1))
        assert [a.refused for a in told] == [f"reason {i}" for i in range(1, 1001)]
        assert [a.score for a in told] == [50.0 - i for i in range(1, 1001)]


def test_the_service_gives_as_many_predictions_as_its_setting_says(predictor: Any) -> None:
    """Eight GPUs with a resident each, all refused or admitted, in one request."""
    crowded = copy.deepcopy(PLACEMENT)
    gpus = [
        {
            "uuid": f"GPU-{i}",
            "core_util_pct": 30 + i,
            "mem_util_pct": 20,
            "residents": [{**RESIDENT, "job_id": f"job-{i}"}],
        }
        for i in range(8)
    ]
    crowded["cluster"]["nodes"] = [{"node_id": "n", "gpu": "v100", "state": "active", "gpus": gpus}]  # type: ignore[index]

    async def alternatives(in_full: int) -> list[AlternativeOut]:
        app = create_app(Settings(alternatives_in_full=in_full), lambda: predictor)
        transport = httpx.ASGITransport(app=app)
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport) as client:
            await app.state.service.loaded()
            answer = await client.post("http://service/place", json=crowded)
            return DecisionOut.model_validate_json(answer.content).alternatives

    whole, cut = anyio.run(alternatives, 16), anyio.run(alternatives, 3)
    assert len(whole) == 8
    assert all(a.prediction is not None for a in whole)
    assert cut[:3] == whole[:3]
    assert cut[3:] == [a.model_copy(update={"prediction": None}) for a in whole[3:]]
