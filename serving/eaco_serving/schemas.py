"""What goes over the wire for ``/predict``: strict, no unknown fields, finite numbers only.

Bounds on numbers keep every quotient and product finite; they are choices of this project, far beyond any real job.
The wire models of ``/place`` are in ``schemas_place``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import ValidationInfo

from eaco_datasets.types import MAX_JOBS

MAX_CANDIDATES = 1024
"""Most sets in one ``/predict`` call (DESIGN, REST)."""

MAX_GPUS = 65_536
MAX_BATCH_SIZE = 10_000_000

Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$")]
Positive = Annotated[float, Field(ge=1e-6, le=1e12)]
NotNegative = Annotated[float, Field(ge=0, le=1e12)]
Seconds = Annotated[float, Field(ge=-1e12, le=1e12)]
Percent = Annotated[float, Field(ge=0, le=100)]
Probability = Annotated[float, Field(ge=0, le=1)]


class Wire(BaseModel):
    """Base of every wire model."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class SoloIn(Wire):
    """What is known of the job run alone on this GPU type; leave out what is unknown."""

    throughput_samples_s: Positive | None = None
    epoch_s: Positive | None = None
    gpu_util_pct: Percent | None = None
    mem_util_pct: Percent | None = None
    mem_mib: Positive | None = None
    gpu_power_w: Positive | None = None


class JobIn(Wire):
    """A job config and what is known of this run of it."""

    model: Name = Field(description="Architecture, as you call it: resnet50, ResNet-50 ...", examples=["resnet50"])
    batch_size: Annotated[int, Field(ge=1, le=MAX_BATCH_SIZE)] = Field(description="Per GPU.", examples=[64])
    precision: Literal["fp32", "amp", "bf16"] = "fp32"
    job_id: Name | None = None
    dataset: Name | None = None
    optimizer: Name | None = None
    num_workers: Annotated[int, Field(ge=0, le=10_000)] = 1
    solo: SoloIn | None = None
    samples_per_epoch: Positive | None = None
    remaining_epochs: NotNegative | None = None
    deadline_s: Seconds | None = Field(default=None, description="Seconds from now; null = none.")
    exclusive: bool = False


class NodeIn(Wire):
    """The node's server part."""

    cpu_idle_w: Positive
    cpu_busy_w: Positive
    cpu_util_pct: Percent | None = None

    @field_validator("cpu_busy_w")
    @classmethod
    def _not_under_idle(cls, busy_w: float, info: ValidationInfo) -> float:
        idle_w = info.data.get("cpu_idle_w")
        if idle_w is not None and busy_w < idle_w:
            raise PydanticCustomError("busy_under_idle", "Input should be at least cpu_idle_w")
        return busy_w


class SetIn(Wire):
    """1 to 4 jobs on the same GPUs under one sharing mode."""

    gpu: Name = Field(description="GPU type: slug or alias, see GET /gpus.", examples=["v100-sxm"])
    sharing_mode: Literal["time-slice", "mps", "mig"]
    jobs: Annotated[list[JobIn], Field(min_length=1, max_length=MAX_JOBS)]
    num_gpus: Annotated[int, Field(ge=1, le=MAX_GPUS)] = 1
    node: NodeIn | None = None

    @field_validator("jobs")
    @classmethod
    def _distinct_ids(cls, jobs: list[JobIn]) -> list[JobIn]:
        if len(jobs) > 1:
            ids = [job.job_id for job in jobs if job.job_id is not None]
            if len(set(ids)) < len(ids):
                raise PydanticCustomError("repeated_job_id", "Jobs of one set should have different job_id")
        return jobs


class CandidatesIn(Wire):
    """Many sets in one call; the first that is malformed refuses it, those after it are not looked at."""

    candidates: Annotated[list[SetIn], Field(min_length=1, max_length=MAX_CANDIDATES, fail_fast=True)]


class EstimateOut(Wire):
    """A mean and the bounds of its 90 % interval."""

    mean: float
    lower: float
    upper: float


class JobPredictionOut(Wire):
    """One job's answer; null is unknown."""

    job_id: str | None
    relative_speed: EstimateOut = Field(description="Throughput co-located / throughput solo; 1 = no interference.")
    epoch_s: EstimateOut | None
    jct_s: EstimateOut | None
    deadline_miss_probability: Probability | None
    solo_profile: Literal["stated", "measured", "predicted"] = Field(
        description="Where the solo profile is from: the request, a measurement of this config, or the model graph."
    )


class PredictionOut(Wire):
    """One set's answer; when ``abstained`` is a reason, ``jobs`` is empty and the numbers are null."""

    jobs: list[JobPredictionOut]
    gpu_power_w: EstimateOut | None
    node_power_w: EstimateOut | None
    gpu_util_pct: EstimateOut | None
    mem_mib: EstimateOut | None
    oom_probability: Probability | None
    energy_j_per_epoch: EstimateOut | None
    out_of_distribution: float | None
    nearest_families: list[str]
    abstained: str | None
    predictor_version: str
    schema_version: int
    provenance: dict[str, float] = Field(description="Shares of the training rows: measured, published, simulated.")


class PredictionsOut(Wire):
    """One answer a candidate, in order."""

    predictions: list[PredictionOut]


class GpuOut(Wire):
    """One GPU type's data-sheet figures and where each is from."""

    slug: str
    name: str
    architecture: str
    year: int
    memory_mib: float
    power_limit_w: float
    idle_w: float
    sms: int
    fp32_tflops: float
    amp_tflops: float
    bandwidth_gbs: float
    sources: dict[str, str]


class GpusOut(Wire):
    """The GPU catalogue."""

    gpus: list[GpuOut]


class PredictorOut(Wire):
    """The served predictor: what it learned from, and its error on work that it had not seen."""

    version: str
    model: str
    datasets: list[str]
    data_sha256: str
    n_rows: int
    families: list[str]
    gpus: list[str]
    provenance: dict[str, float]
    simulated: bool = Field(description="True when any training row was simulated.")
    seed: int
    libraries: dict[str, str]
    notes: list[str]
    held_out: dict[str, float] = Field(
        description="Errors of what is served, from the fit: on families left out of it, beside the in-sample one."
    )
    out_of_sample: dict[str, float] = Field(
        description="Errors on work that it had not seen, by target/protocol/figure; empty when not evaluated."
    )
    in_sample: dict[str, float] = Field(description="The same figures on what it learned from: they flatter.")
    schema_version: int


class HealthOut(Wire):
    """Liveness or readiness."""

    status: Literal["ok", "ready"]


class FieldProblem(Wire):
    """One thing wrong with the request."""

    pointer: str = Field(description="JSON pointer (RFC 6901) into the request body.")
    detail: str


class ProblemOut(BaseModel):
    """RFC 9457 problem details, sent as application/problem+json."""

    type: str = Field(description="Slug of the kind of problem.")
    title: str
    status: int
    detail: str
    instance: str | None = None
    errors: list[FieldProblem] | None = None
