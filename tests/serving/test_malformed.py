"""Malformed requests: each is refused with a problem that names the place; none is a 500."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

SET: dict[str, Any] = {
    "gpu": "v100",
    "sharing_mode": "time-slice",
    "num_gpus": 2,
    "jobs": [
        {"model": "resnet50", "batch_size": 64, "job_id": "a", "solo": {"gpu_util_pct": 50.0}},
        {"model": "vgg16", "batch_size": 32, "remaining_epochs": 3},
    ],
    "node": {"cpu_idle_w": 100, "cpu_busy_w": 200},
}
SMALL = {"gpu": "k80", "sharing_mode": "mps", "jobs": [{"model": "a", "batch_size": 1}]}
RESIDENT = {
    "job_id": "r",
    "model": "vgg16",
    "batch_size": 8,
    "phase": "final",
    "placed_epoch": 1,
    "solo": {"mem_mib": 2000, "gpu_util_pct": 20, "mem_util_pct": 10, "epoch_s": 100},
}
PLACE: dict[str, Any] = {
    "job": {"job_id": "n", "model": "resnet50", "batch_size": 64, "num_gpus": 1},
    "cluster": {
        "nodes": [
            {
                "node_id": "n0",
                "gpu": "v100",
                "state": "active",
                "gpus": [{"uuid": "G0", "residents": [RESIDENT]}, {"uuid": "G1"}],
            },
            {"node_id": "n1", "gpu": "v100", "state": "idle", "gpus": [{"uuid": "G2"}]},
        ]
    },
    "settings": {"alpha": 0.5},
}
MISSING = object()


def changed(body: dict[str, Any], pointer: str, value: Any) -> Any:
    """A copy of ``body`` with the value at a pointer set, or removed when it is ``MISSING``."""
    if not pointer:
        return value
    whole = copy.deepcopy(body)
    *path, last = [int(p) if p.isdecimal() else p for p in pointer.split("/")[1:]]
    at: Any = whole
    for part in path:
        at = at[part]
    if value is MISSING:
        del at[last]
    elif isinstance(at, list) and last == len(at):
        at.append(value)
    else:
        at[last] = value
    return whole


BAD_SETS = [
    ("", None),
    ("", []),
    ("", "a set"),
    ("", 7),
    ("/gpu", MISSING),
    ("/gpu", "v1000"),
    ("/gpu", ""),
    ("/gpu", None),
    ("/gpu", 100),
    ("/gpu", "v100\n"),
    ("/sharing_mode", MISSING),
    ("/sharing_mode", "unknown"),
    ("/sharing_mode", "half"),
    ("/num_gpus", 0),
    ("/num_gpus", 1.5),
    ("/num_gpus", True),
    ("/num_gpus", 10**30),
    ("/colour", "red"),
    ("/jobs", MISSING),
    ("/jobs", []),
    ("/jobs", {}),
    ("/jobs", SET["jobs"] * 3),
    ("/jobs", [SET["jobs"][0]] * 2),
    ("/jobs/1", None),
    ("/jobs/0/model", MISSING),
    ("/jobs/0/model", "???"),
    ("/jobs/0/model", "x" * 201),
    ("/jobs/0/batch_size", MISSING),
    ("/jobs/0/batch_size", 0),
    ("/jobs/0/batch_size", -64),
    ("/jobs/0/batch_size", "64"),
    ("/jobs/0/batch_size", 64.5),
    ("/jobs/0/batch_size", True),
    ("/jobs/0/precision", "fp64"),
    ("/jobs/0/job_id", 7),
    ("/jobs/0/dataset", "?"),
    ("/jobs/0/dataset", ""),
    ("/jobs/0/num_workers", -1),
    ("/jobs/0/speed", 1),
    ("/jobs/0/solo", []),
    ("/jobs/0/solo/gpu_util_pct", 100.5),
    ("/jobs/0/solo/gpu_util_pct", -1),
    ("/jobs/0/solo/gpu_util_pct", "50"),
    ("/jobs/0/solo/mem_mib", 0),
    ("/jobs/0/solo/epoch_s", -1),
    ("/jobs/0/solo/throughput_samples_s", 1e300),
    ("/jobs/0/solo/fan_rpm", 3),
    ("/jobs/1/remaining_epochs", -1),
    ("/jobs/1/deadline_s", "tomorrow"),
    ("/jobs/1/samples_per_epoch", 0),
    ("/jobs/1/exclusive", "no"),
    ("/node/cpu_idle_w", MISSING),
    ("/node/cpu_busy_w", 50),
    ("/node/cpu_util_pct", 101),
]


@pytest.mark.parametrize(("pointer", "value"), BAD_SETS)
def test_a_bad_set_is_refused_at_its_pointer(ask: Any, pointer: str, value: Any) -> None:
    refused(sent(ask, "/predict", changed(SET, pointer, value)), pointer)


@pytest.mark.parametrize(("pointer", "value"), [(p, v) for p, v in BAD_SETS if p][::3])
def test_a_bad_candidate_refuses_the_whole_call_at_its_pointer(
    ask: Any, predictor: Any, pointer: str, value: Any
) -> None:
    before = len(predictor.asked)
    answer = ask("POST", "/predict", json={"candidates": [SET, changed(SET, pointer, value), SET]})
    refused(answer, f"/candidates/1{pointer}")
    assert len(predictor.asked) == before


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"candidates": []}, "/candidates"),
        ({"candidates": {}}, "/candidates"),
        ({"candidates": [SMALL] * 1025}, "/candidates"),
        ({"candidates": [SET], "gpu": "v100"}, "/gpu"),
        ({"candidates": [[]]}, "/candidates/0"),
    ],
)
def test_bad_candidates_are_refused(ask: Any, body: Any, pointer: str) -> None:
    refused(ask("POST", "/predict", json=body), pointer)


BAD_PLACES = [
    ("", []),
    ("/job", MISSING),
    ("/job", None),
    ("/job/model", MISSING),
    ("/job/num_gpus", 0),
    ("/job/parallelism", "tensor"),
    ("/job/gpu", "abacus"),
    ("/job/waited_s", -1),
    ("/job/phase", "final"),
    ("/cluster", MISSING),
    ("/cluster/nodes", []),
    ("/cluster/nodes/0/gpu", "v1000"),
    ("/cluster/nodes/0/gpu", MISSING),
    ("/cluster/nodes/0/state", "off"),
    ("/cluster/nodes/0/state", "asleep"),
    ("/cluster/nodes/0/gpus", []),
    ("/cluster/nodes/1/node_id", "n0"),
    ("/cluster/nodes/1/gpus/0/uuid", "G0"),
    ("/cluster/nodes/0/gpus/0/uuid", 0),
    ("/cluster/nodes/0/gpus/0/core_util_pct", 101),
    ("/cluster/nodes/0/gpus/0/residents/0/job_id", MISSING),
    ("/cluster/nodes/0/gpus/0/residents/0/phase", "maybe"),
    ("/cluster/nodes/0/gpus/0/residents/0/placed_epoch", -1),
    ("/cluster/nodes/0/gpus/0/residents/0/model", "!!"),
    ("/cluster/nodes/0/gpus/0/residents", [RESIDENT] * 5),
    ("/cluster/nodes/0/server", {"cpu_idle_w": 100, "cpu_busy_w": 1}),
    ("/policy", "fifo-lifo"),
    ("/settings/alpha", 1.5),
    ("/settings/core_threshold_pct", 0),
    ("/settings/max_jobs_per_gpu", 9),
    ("/settings/colour", "red"),
]
AT = {
    "/cluster/nodes/0/server": "/cluster/nodes/0/server/cpu_busy_w",
}


@pytest.mark.parametrize(("pointer", "value"), BAD_PLACES)
def test_a_bad_placement_is_refused_at_its_pointer(ask: Any, pointer: str, value: Any) -> None:
    refused(sent(ask, "/place", changed(PLACE, pointer, value)), AT.get(pointer, pointer))


def test_a_job_twice_on_one_gpu_or_already_in_the_cluster_is_refused(ask: Any) -> None:
    twice = changed(PLACE, "/cluster/nodes/0/gpus/0/residents/1", RESIDENT)
    refused(ask("POST", "/place", json=twice), "/cluster/nodes/0/gpus/0/residents/1/job_id")
    refused(ask("POST", "/place", json=changed(PLACE, "/job/job_id", "r")), "/job/job_id")


@pytest.mark.parametrize("path", ["/predict", "/place"])
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b'{"gpu": "v100"} trailing',
        b"\xff\xfe",
        b'{"gpu": NaN}',
        b'{"gpu": Infinity}',
        b'{"gpu": "\\ud800"}',
        b"[" * 5000,
        b'{"num_gpus": 1' + b"0" * 5000 + b"}",
        b"gpu=v100&jobs=2",
    ],
)
def test_what_is_not_json_is_refused(ask: Any, path: str, raw: bytes) -> None:
    answer = ask("POST", path, content=raw, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert told(answer)["type"] == "malformed-json"


def test_random_damage_is_answered_or_refused_but_never_fails(ask: Any) -> None:
    junk = [None, True, -1, 0, 1e308, "", "x", [], {}, [[]], {"a": 1}, 2**70, "\x00", -0.0]
    for seed in range(150):
        dice = random.Random(seed)
        path, body = dice.choice([("/predict", SET), ("/predict", {"candidates": [SET, SET]}), ("/place", PLACE)])
        whole = copy.deepcopy(body)
        for _ in range(dice.randint(1, 3)):
            damage(whole, dice, junk)
        answer = sent(ask, path, whole)
        assert answer.status_code in (200, 400, 422), (seed, answer.text)
        if answer.status_code != 200:
            told(answer)


def damage(at: Any, dice: random.Random, junk: list[Any]) -> None:
    """Replace or remove something, somewhere below ``at``."""
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return
        key = dice.choice(keys)
        if isinstance(at[key], dict | list) and at[key] and dice.random() < 0.75:
            at = at[key]
            continue
        if dice.random() < 0.2:
            del at[key]
        else:
            at[key] = dice.choice(junk)
        return


def sent(ask: Any, path: str, body: Any) -> Any:
    """The answer to a body sent as JSON, also when it is null."""
    return ask("POST", path, content=json.dumps(body), headers={"content-type": "application/json"})


def told(answer: Any) -> dict[str, Any]:
    """The problem in an answer, checked for what every problem has."""
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["type"]
    assert problem["title"]
    assert "\n" not in problem["detail"]
    assert "Traceback" not in answer.text
    return problem


def refused(answer: Any, pointer: str) -> None:
    """Refused as a wrong request, at this place."""
    assert answer.status_code == 422, answer.text
    problem = told(answer)
    assert problem["type"] in ("invalid-request", "unknown-name")
    assert pointer in [e["pointer"] for e in problem["errors"]], problem["errors"]
    assert all(e["detail"] for e in problem["errors"])
