"""What goes over the wire for ``/place``: a job, the cluster as it is, and the decision."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from eaco_datasets.types import MAX_JOBS
from eaco_serving.schemas import MAX_GPUS, JobIn, Name, NodeIn, NotNegative, Percent, PredictionOut, Wire


class PlaceJobIn(JobIn):
    """The job to place."""

    num_gpus: Annotated[int, Field(ge=1, le=MAX_GPUS)] = 1
    gpu: Name | None = Field(default=None, description="GPU type; null takes any.")
    parallelism: Literal["data", "model"] = Field(
        default="data", description="What solo.mem_mib counts: the peak on each GPU (data) or over the set (model)."
    )
    waited_s: NotNegative = 0.0


class ResidentIn(JobIn):
    """A job that is on a GPU; one on several GPUs stands on each of them, the same."""

    job_id: Name
    phase: Literal["provisional", "final"]
    placed_epoch: NotNegative = Field(description="Epochs that the job had finished when it was placed.")
    parallelism: Literal["data", "model"] = "data"


class GpuIn(Wire):
    """One GPU, by UUID; utilisation is the measured one of all its jobs together."""

    uuid: Name
    core_util_pct: Percent | None = None
    mem_util_pct: Percent | None = None
    residents: Annotated[list[ResidentIn], Field(max_length=MAX_JOBS)] = Field(default_factory=list)


class ClusterNodeIn(Wire):
    """One server and its GPUs, all of one type."""

    node_id: Name
    gpu: Name
    gpus: Annotated[list[GpuIn], Field(min_length=1, max_length=1024, fail_fast=True)]
    state: Literal["active", "idle", "asleep"]
    server: NodeIn | None = None


class ClusterIn(Wire):
    """The whole cluster at one moment; the first node that is malformed refuses it."""

    nodes: Annotated[list[ClusterNodeIn], Field(min_length=1, max_length=100_000, fail_fast=True)]


class PlaceSettingsIn(Wire):
    """Settings that differ from the policy's own; the answer lists all of them as used."""

    rank: Literal["highest-utilization", "objective"] | None = None
    core_threshold_pct: float | None = None
    mem_threshold_pct: float | None = None
    idle_threshold_pct: float | None = None
    mem_headroom_pct: float | None = None
    max_jobs_per_gpu: int | None = None
    alpha: float | None = None
    epsilon: float | None = None
    max_oom_probability: float | None = None
    max_wait_s: float | None = None
    span_nodes: bool | None = None
    sharing_mode: Literal["time-slice", "mps", "mig"] | None = None


class PlaceIn(Wire):
    """A job and a cluster state."""

    job: PlaceJobIn
    cluster: ClusterIn
    policy: Name = "eaco-safe"
    settings: PlaceSettingsIn | None = None


class AlternativeOut(Wire):
    """One candidate set as it was judged; ``refused`` is the reason, null for an admitted one."""

    gpus: list[str]
    rank: int
    score: float | None
    prediction: PredictionOut | None = Field(
        description="Of the best by rank only, as many as the service's setting alternatives_in_full says."
    )
    refused: str | None
    co_residents: list[str]


class RefusalOut(Wire):
    """GPUs that never became candidates, and why."""

    gpus: list[str]
    reason: str


class ReservationOut(Wire):
    """GPUs held for a job that has waited too long."""

    job_id: str
    gpus: list[str]
    since_s: float


class DecisionOut(Wire):
    """Where the job goes, and why."""

    decision: Literal["share", "exclusive", "wait"]
    phase: Literal["provisional", "final"] | None
    gpus: list[str]
    co_residents: list[str]
    prediction: PredictionOut | None
    alternatives: list[AlternativeOut]
    refusals: list[RefusalOut]
    reservation: ReservationOut | None
    explanation: str
    settings: dict[str, str | int | float | bool]
