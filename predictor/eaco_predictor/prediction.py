"""What a prediction is: per job and per set, each quantity with mean, lower and upper bound (90 %)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from eaco_datasets.types import CoLocation

SCHEMA_VERSION = 1
SoloSource = Literal["stated", "measured", "predicted"]
INTERVAL_LEVEL = 0.9


class Estimate(NamedTuple):
    """A mean with the bounds of its 90 % interval; ``lower <= mean <= upper``."""

    mean: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class JobPrediction:
    """One job of a set. ``None`` is unknown (no solo epoch time, no remaining epochs, no deadline).

    ``solo_profile`` says where the solo profile that the answer rests on is from: the caller, a measurement of this
    config on this GPU type, or a prediction from the model graph.
    """

    job_id: str | None
    relative_speed: Estimate
    epoch_s: Estimate | None
    jct_s: Estimate | None
    deadline_miss_probability: float | None
    solo_profile: SoloSource = "stated"


@dataclass(frozen=True, slots=True)
class SetPrediction:
    """One co-location. When ``abstained`` is a reason, ``jobs`` is empty and the other numbers are ``None``."""

    jobs: tuple[JobPrediction, ...]
    gpu_power_w: Estimate | None
    node_power_w: Estimate | None
    gpu_util_pct: Estimate | None
    mem_mib: Estimate | None
    oom_probability: float | None
    energy_j_per_epoch: Estimate | None
    out_of_distribution: float | None
    nearest_families: tuple[str, ...]
    abstained: str | None
    predictor_version: str
    provenance: dict[str, float]
    schema_version: int = SCHEMA_VERSION


class PredictsSets(Protocol):
    """The seam between whoever needs predictions (service, scheduler) and whoever makes them."""

    def predict(self, sets: Sequence[CoLocation]) -> list[SetPrediction]:
        """One prediction a set, in order. A set that cannot be predicted is answered with ``abstained``."""
        ...
