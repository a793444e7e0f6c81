"""What is asked of a placement policy and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from eaco_datasets.types import Job
from eaco_predictor.prediction import SetPrediction
from eaco_scheduler.checks import check_choice, check_count, check_job, check_number
from eaco_scheduler.cluster import PARALLELISMS, Parallelism, Phase, gpu_spec

Verdict = Literal["share", "exclusive", "wait"]

CoLocationKey = tuple[str, frozenset[str]]
"""A job and the jobs that it would share a GPU with: what an undo excludes from the next search."""


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job that asks for ``num_gpus`` GPUs of one type.

    ``gpu`` is a slug or alias, ``None`` takes any type. ``parallelism`` says what ``job.solo.mem_mib`` counts: the
    peak on each GPU (``data``) or the sum over its GPUs (``model``). ``waited_s`` is how long it has waited already.

    Raises:
        InputError: at ``/job/...``.
    """

    job: Job
    num_gpus: int = 1
    gpu: str | None = None
    parallelism: Parallelism = "data"
    waited_s: float = 0.0

    def __post_init__(self) -> None:
        check_job(self.job, "/job")
        check_count(self.num_gpus, "/job/num_gpus")
        check_choice(self.parallelism, "/job/parallelism", PARALLELISMS)
        check_number(self.waited_s, "/job/waited_s", low=0.0)
        if self.gpu is not None:
            gpu_spec(self.gpu, "/job/gpu")

    @property
    def job_id(self) -> str:
        """The job's name; empty when it has none yet."""
        return self.job.job_id or ""

    @property
    def title(self) -> str:
        """How an explanation calls the job."""
        return f"job {self.job.job_id}" if self.job.job_id else "the job"


@dataclass(frozen=True, slots=True)
class Reservation:
    """GPUs that are held for a job that has waited too long: no other job may enter them until it is placed."""

    job_id: str
    gpus: tuple[str, ...]
    since_s: float


@dataclass(frozen=True, slots=True)
class Refusal:
    """GPUs that never became candidates, and why."""

    gpus: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Alternative:
    """One candidate set as it was judged. ``rank`` starts at 1; ``score`` is what it was ranked by, if known.

    Under ``highest-utilization`` the score is the set's mean core utilisation in percent (high is first), under
    ``objective`` the normalised cost (low is first). ``refused`` is the reason, ``None`` for an admitted set.
    """

    gpus: tuple[str, ...]
    rank: int
    score: float | None
    prediction: SetPrediction | None
    refused: str | None
    co_residents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a job goes. ``phase`` is ``provisional`` for a share, ``final`` for exclusive GPUs, ``None`` for a wait.

    ``cluster_version`` is the version of the state that was judged; a ledger refuses the decision on any other.
    """

    decision: Verdict
    phase: Phase | None
    gpus: tuple[str, ...]
    prediction: SetPrediction | None
    alternatives: tuple[Alternative, ...]
    explanation: str
    settings: dict[str, str | int | float | bool]
    job_id: str = ""
    co_residents: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    reservation: Reservation | None = None
    cluster_version: int = 0
    decided_at_s: float = 0.0
