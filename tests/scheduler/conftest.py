"""Builders of small clusters and a deterministic predictor, as one session fixture (usable under hypothesis)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import pytest

from eaco_datasets.types import CoLocation, Job, SoloProfile
from eaco_predictor.prediction import Estimate, JobPrediction, SetPrediction
from eaco_scheduler.cluster import ClusterState, Gpu, Node, Resident
from eaco_scheduler.decision import JobRequest


def _around(mean: float, spread: float) -> Estimate:
    return Estimate(mean, mean * (1 - spread), mean * (1 + spread))


@dataclass
class FakePredictor:
    """Time slicing by summed solo utilisation; every quirk a test needs is a switch. ``calls`` holds every batch."""

    spread: float = 0.05
    abstain: Callable[[CoLocation], str | None] = lambda _: None
    oom: Callable[[CoLocation], float | None] = lambda _: 0.0
    speed: Callable[[CoLocation, int], float] | None = None
    power: Callable[[CoLocation], float | None] | None = None
    guess_mem_mib: float | None = None
    calls: list[list[CoLocation]] = field(default_factory=list)

    def predict(self, sets: Sequence[CoLocation]) -> list[SetPrediction]:
        self.calls.append(list(sets))
        return [self._one(where) for where in sets]

    def _one(self, where: CoLocation) -> SetPrediction:
        reason = self.abstain(where)
        if reason is not None:
            return SetPrediction((), None, None, None, None, None, None, None, (), reason, "fake", {})
        load = sum(job.solo.gpu_util_pct or 0.0 for job in where.jobs)
        jobs = tuple(self._job(where, index, load) for index in range(len(where.jobs)))
        mems = [self.guess_mem_mib if job.solo.mem_mib is None else job.solo.mem_mib for job in where.jobs]
        known = [mem for mem in mems if mem is not None]
        watts = 50.0 + 2.5 * min(load, 100.0) if self.power is None else self.power(where)
        return SetPrediction(
            jobs=jobs,
            gpu_power_w=None if watts is None else _around(watts, 0.1),
            node_power_w=None,
            gpu_util_pct=_around(min(load, 100.0), 0.1),
            mem_mib=_around(sum(known), 0.1) if len(known) == len(mems) else None,
            oom_probability=self.oom(where),
            energy_j_per_epoch=None,
            out_of_distribution=0.0,
            nearest_families=(),
            abstained=None,
            predictor_version="fake",
            provenance={"simulated": 1.0},
        )

    def _job(self, where: CoLocation, index: int, load: float) -> JobPrediction:
        job = where.jobs[index]
        speed = min(1.0, 100.0 / max(load, 1e-9)) if self.speed is None else self.speed(where, index)
        epoch = None if job.solo.epoch_s is None else _around(job.solo.epoch_s / speed, self.spread)
        left = job.remaining_epochs
        jct = None if epoch is None or left is None else _around(epoch.mean * left, self.spread)
        risk = None
        if jct is not None and job.deadline_s is not None:
            sigma = (jct.upper - jct.lower) / 2 / NormalDist().inv_cdf(0.95)
            late = float(jct.mean > job.deadline_s)
            risk = 1 - NormalDist(jct.mean, sigma).cdf(job.deadline_s) if sigma > 0 else late
        return JobPrediction(job.job_id, _around(speed, self.spread), epoch, jct, risk)


def make_job(job_id: str | None = "new", *, util: float | None = 30.0, mem: float | None = 2000.0, **more: Any) -> Job:
    """A job with a 100 s solo epoch and 10 epochs left; 40 % as much memory utilisation as core utilisation."""
    solo = SoloProfile(
        epoch_s=more.pop("epoch_s", 100.0),
        gpu_util_pct=util,
        mem_util_pct=None if util is None else util * 0.4,
        mem_mib=mem,
    )
    given = {"model": "resnet50", "family": "resnet50", "batch_size": 64, "remaining_epochs": 10.0, **more}
    return Job(job_id=job_id, solo=solo, **given)


def make_resident(job_id: str = "a", *, phase: str = "final", parallelism: str = "data", **more: Any) -> Resident:
    return Resident(make_job(job_id, **more), phase=phase, parallelism=parallelism)  # type: ignore[arg-type]


def make_node(
    node_id: str, *gpus: Sequence[Resident], gpu: str = "v100-sxm", state: str = "active", **more: Any
) -> Node:
    """A node with one GPU for each sequence of residents; UUIDs are ``<node>-<place>``."""
    made = tuple(Gpu(f"{node_id}-{place}", tuple(residents)) for place, residents in enumerate(gpus))
    return Node(node_id, gpu, made, state=state, **more)  # type: ignore[arg-type]


def make_cluster(*nodes: Node, version: int = 0) -> ClusterState:
    return ClusterState(tuple(nodes), version)


def make_request(
    num_gpus: int = 1, *, parallelism: str = "data", waited_s: float = 0.0, gpu: str | None = "v100", **more: Any
) -> JobRequest:
    return JobRequest(make_job(**more), num_gpus, gpu, parallelism, waited_s)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def kit() -> SimpleNamespace:
    """The builders above."""
    return SimpleNamespace(
        Predictor=FakePredictor,
        job=make_job,
        resident=make_resident,
        node=make_node,
        cluster=make_cluster,
        request=make_request,
    )
