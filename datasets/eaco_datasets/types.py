"""Domain values: GPUs, jobs, co-locations. Frozen, no I/O; every quantity's name ends in its unit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

Precision = Literal["fp32", "amp", "bf16"]
SharingMode = Literal["time-slice", "mps", "mig", "unknown"]
Provenance = Literal["measured", "published", "simulated", "imputed"]
Role = Literal["solo", "colocated"]
Outcome = Literal["ok", "oom", "failed"]

PRECISIONS: tuple[str, ...] = get_args(Precision)
SHARING_MODES: tuple[str, ...] = get_args(SharingMode)
PROVENANCES: tuple[str, ...] = get_args(Provenance)
ROLES: tuple[str, ...] = get_args(Role)
OUTCOMES: tuple[str, ...] = get_args(Outcome)

MAX_JOBS = 4
"""Most jobs that share one GPU set (DESIGN: a co-location has 1 to 4 jobs)."""

MAX_RELATIVE_SPEED = 1.05
"""Upper physical limit of a relative speed: what lies above is noise of the solo measurement (DESIGN)."""


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """One GPU type's data-sheet figures; ``sources`` maps field name to where the figure is from."""

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
    sources: dict[str, str] = field(hash=False)


@dataclass(frozen=True, slots=True)
class SoloProfile:
    """What is known of a job run alone on this GPU type; ``None`` is unknown, never 0 or -1."""

    throughput_samples_s: float | None = None
    epoch_s: float | None = None
    gpu_util_pct: float | None = None
    mem_util_pct: float | None = None
    mem_mib: float | None = None
    gpu_power_w: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job config plus what is known of this run of it.

    ``model`` is the name as the caller gave it, ``family`` the slug that leave-one-model-out holds out (see
    ``eaco_datasets.names.family_of``). ``batch_size`` is per GPU. ``deadline_s`` counts from now; ``None`` is none.
    """

    model: str
    family: str
    batch_size: int
    precision: Precision = "fp32"
    job_id: str | None = None
    dataset: str | None = None
    optimizer: str | None = None
    num_workers: int = 1
    solo: SoloProfile = SoloProfile()
    samples_per_epoch: float | None = None
    remaining_epochs: float | None = None
    deadline_s: float | None = None
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node's server part: CPU and board watts idle and busy, and the CPU utilisation with these jobs on it."""

    cpu_idle_w: float
    cpu_busy_w: float
    cpu_util_pct: float | None = None


@dataclass(frozen=True, slots=True)
class CoLocation:
    """1 to 4 jobs on the same set of ``num_gpus`` GPUs of one type under one sharing mode."""

    gpu: str
    sharing_mode: SharingMode
    jobs: tuple[Job, ...]
    num_gpus: int = 1
    node: NodeSpec | None = None
