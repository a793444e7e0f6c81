"""``POST /predict``: what a good request is answered with."""

from __future__ import annotations

from typing import Any

import pytest

from eaco_datasets.types import NodeSpec
from eaco_serving.schemas import PredictionOut, PredictionsOut

JOB = {"model": "ResNet-50", "batch_size": 64, "precision": "amp"}
SET: dict[str, Any] = {"gpu": "v100", "sharing_mode": "time-slice", "jobs": [JOB, {"model": "vgg16", "batch_size": 32}]}


def test_one_set_is_answered_by_the_schema(ask: Any) -> None:
    answer = ask("POST", "/predict", json=SET)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    told = PredictionOut.model_validate_json(answer.content)
    assert [j.relative_speed.mean for j in told.jobs] == [0.5, 0.5]
    assert told.gpu_power_w is not None
    assert told.gpu_power_w.mean == 200.0
    assert told.provenance == {"simulated": 0.75, "published": 0.25}


def test_the_predictor_gets_slugs_families_and_every_field(ask: Any, predictor: Any) -> None:
    whole = {
        "job_id": "a",
        "model": "ResNet-50",
        "batch_size": 64,
        "precision": "bf16",
        "dataset": "WikiText-2",
        "optimizer": "sgd",
        "num_workers": 4,
        "solo": {
            "throughput_samples_s": 1.5,
            "epoch_s": 2,
            "gpu_util_pct": 3,
            "mem_util_pct": 4,
            "mem_mib": 5,
            "gpu_power_w": 6,
        },
        "samples_per_epoch": 7,
        "remaining_epochs": 8,
        "deadline_s": -9,
        "exclusive": True,
    }
    node = {"cpu_idle_w": 100, "cpu_busy_w": 300, "cpu_util_pct": 10}
    body = {"gpu": "Tesla V100-SXM2-16GB", "sharing_mode": "mps", "num_gpus": 8, "node": node, "jobs": [whole]}
    answer = ask("POST", "/predict", json=body)
    assert answer.status_code == 200, answer.text
    asked = predictor.asked[-1]
    (job,) = asked.jobs
    assert (asked.gpu, asked.sharing_mode, asked.num_gpus) == ("v100-sxm", "mps", 8)
    assert asked.node == NodeSpec(100.0, 300.0, 10.0)
    assert (job.model, job.family) == ("ResNet-50", "resnet50")
    for name, value in whole.items():
        if name == "solo":
            assert {k: getattr(job.solo, k) for k in whole["solo"]} == whole["solo"]  # type: ignore[attr-defined]
        elif name == "dataset":
            assert job.dataset == "wikitext2"
        else:
            assert getattr(job, name) == value


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_many_candidates_are_answered_in_order_as_one_by_one(ask: Any, predictor: Any, count: int) -> None:
    candidates = [
        {**SET, "jobs": [{**JOB, "job_id": f"set{i}"}] * 1 + [{"model": "vgg16", "batch_size": 8}] * (i % 3)}
        for i in range(count)
    ]
    answer = ask("POST", "/predict", json={"candidates": candidates})
    told = PredictionsOut.model_validate_json(answer.content)
    assert [p.jobs[0].job_id for p in told.predictions] == [f"set{i}" for i in range(count)]
    # At most inline_sets = 2 are computed on the event loop, more in a worker thread, all in one call of the model.
    assert (predictor.threads[-1] == predictor.threads[0]) == (count <= 2)
    singles = [ask("POST", "/predict", json=c).json() for c in candidates]
    assert answer.json()["predictions"] == singles


def test_a_set_that_cannot_be_predicted_is_answered_with_the_reason(ask: Any) -> None:
    body = {"candidates": [SET, {**SET, "gpu": "cpu-8core"}]}
    first, second = ask("POST", "/predict", json=body).json()["predictions"]
    assert first["abstained"] is None
    assert second["abstained"] == "no rows of a CPU"
    assert second["jobs"] == []
    assert second["gpu_power_w"] is None
    PredictionOut.model_validate_json(ask("POST", "/predict", json={**SET, "gpu": "cpu-8core"}).content)


def test_1024_candidates_are_taken(predictor: Any) -> None:
    from eaco_serving.routes.predict import predict_batch, read

    body = read({"candidates": [SET] * 1024})
    assert len(PredictionsOut.model_validate_json(predict_batch(predictor, body)).predictions) == 1024  # type: ignore[arg-type]


def test_json_with_a_charset_or_a_suffix_is_json(ask: Any) -> None:
    from pydantic_core import to_json

    for kind in ("application/json; charset=utf-8", "application/vnd.eaco+json"):
        answer = ask("POST", "/predict", content=to_json(SET), headers={"content-type": kind})
        assert answer.status_code == 200, kind
