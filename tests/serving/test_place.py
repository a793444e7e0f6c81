"""``POST /place``: decisions over the wire."""

from __future__ import annotations

import copy
from typing import Any

from eaco_serving.demo import PLACEMENT
from eaco_serving.schemas_place import DecisionOut, PlaceSettingsIn


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
