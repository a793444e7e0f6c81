"""A shared placement's life: provisional, until every job on it has finished one epoch; then final or undone.

::

    begin / resume ──> provisional ──observe / leave──> provisional ──resolve──> final
                                                                           └───> undone   (at the epoch boundary)

Pure: a ``Trial`` is a value, each step returns the next one, nothing here has a clock. What an undo excludes are the
co-locations on which a deadline broke, keyed by job and company: the next search cannot come back to them, and the
company's change (a job has ended) opens them again. There are finitely many, so undoing ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from eaco_datasets.errors import InputError
from eaco_datasets.types import CoLocation, Job
from eaco_predictor.prediction import JobPrediction, PredictsSets
from eaco_scheduler.checks import check_number
from eaco_scheduler.cluster import ClusterState, Resident
from eaco_scheduler.decision import CoLocationKey, Decision, JobRequest
from eaco_scheduler.forecast import joined_sets, merge_predictions, present_sets
from eaco_scheduler.history import History, Observed, corrected
from eaco_scheduler.judge import deadline_refusal
from eaco_scheduler.settings import PlacementSettings

TrialState = Literal["provisional", "final", "undone"]


@dataclass(frozen=True, slots=True)
class ObservedEpoch:
    """One epoch that a job has finished, as measured: its time, and what is left at its end.

    ``deadline_s`` counts from the end of this epoch. ``None`` is unknown (epochs) or no deadline.

    Raises:
        InputError: an impossible number.
    """

    job_id: str
    epoch_s: float
    remaining_epochs: float | None = None
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        check_number(self.epoch_s, "/epoch_s", low=0.0, above_low=True)
        if self.remaining_epochs is not None:
            check_number(self.remaining_epochs, "/remaining_epochs", low=0.0)
        if self.deadline_s is not None:
            check_number(self.deadline_s, "/deadline_s")


@dataclass(frozen=True, slots=True)
class Trial:
    """A shared placement under observation.

    ``sets`` is the co-location on each of ``gpus``; ``observed`` holds the epochs seen; ``gone`` the jobs that ended
    meanwhile; ``reasons`` why it was undone, ``excluded`` what an undo takes out of the next search.
    """

    job_id: str
    gpus: tuple[str, ...]
    sets: tuple[CoLocation, ...]
    predicted: Mapping[str, JobPrediction]
    spread_wider: frozenset[str] = frozenset()  # co-residents that also run on other GPUs
    observed: tuple[ObservedEpoch, ...] = ()
    gone: frozenset[str] = frozenset()
    state: TrialState = "provisional"
    reasons: tuple[str, ...] = ()
    excluded: frozenset[CoLocationKey] = frozenset()

    @property
    def members(self) -> tuple[str, ...]:
        """Every job of the placement that is still running, in order of job id."""
        ids = {job.job_id or "" for where in self.sets for job in where.jobs}
        return tuple(sorted(ids - self.gone))

    @property
    def missing(self) -> tuple[str, ...]:
        """Running members of which no epoch has been seen yet."""
        seen = {epoch.job_id for epoch in self.observed}
        return tuple(job_id for job_id in self.members if job_id not in seen)


def begin(decision: Decision, request: JobRequest, cluster: ClusterState, settings: PlacementSettings) -> Trial:
    """The trial of a shared placement; ``cluster`` is the state that was decided on.

    Raises:
        InputError: the decision shares nothing, or was made on another state.
    """
    if decision.decision != "share" or decision.prediction is None:
        raise InputError(
            f"nothing to observe: the decision is {decision.decision}", where="/decision", expected="a shared placement"
        )
    if decision.cluster_version != cluster.version:
        raise InputError(
            f"decided on version {decision.cluster_version}, this is {cluster.version}",
            where="/cluster/version",
            expected="the state that was decided on",
        )
    return Trial(
        job_id=request.job_id,
        gpus=decision.gpus,
        sets=joined_sets(request, cluster, decision.gpus, settings),
        predicted={job.job_id or "": job for job in decision.prediction.jobs},
        spread_wider=_spread_wider(decision.co_residents, decision.gpus, cluster),
    )


def resume(resident: Resident, cluster: ClusterState, predictor: PredictsSets, settings: PlacementSettings) -> Trial:
    """The trial of a provisional resident that is on the cluster already, from its start: no epoch has been seen.

    Raises:
        InputError: how it runs there cannot be predicted, so what is observed could not be judged.
    """
    gpus = cluster.gpus_of(resident.job_id)
    sets = present_sets(cluster, gpus, settings)
    answer = merge_predictions([(told, 1) for told in predictor.predict(list(dict.fromkeys(sets)))])
    if answer.abstained is not None:
        raise InputError(
            f"the trial of provisional job {resident.job_id!r} cannot go on: {answer.abstained}",
            where="/cluster",
            expected="provisional jobs that can be predicted",
        )
    company = sorted({job.job_id or "" for where in sets for job in where.jobs} - {resident.job_id})
    return Trial(
        job_id=resident.job_id,
        gpus=gpus,
        sets=sets,
        predicted={job.job_id or "": job for job in answer.jobs},
        spread_wider=_spread_wider(company, gpus, cluster),
    )


def _spread_wider(job_ids: Iterable[str], gpus: tuple[str, ...], cluster: ClusterState) -> frozenset[str]:
    """Those of the jobs that also run on other GPUs than these."""
    return frozenset(job_id for job_id in job_ids if set(cluster.gpus_of(job_id)) - set(gpus))


def observe(trial: Trial, epoch: ObservedEpoch) -> Trial:
    """A member has finished an epoch.

    Raises:
        InputError: the trial is over, or the job is no running member of it.
    """
    _must_be_provisional(trial, "observe")
    if epoch.job_id not in trial.members:
        raise InputError(
            f"job {epoch.job_id!r} is no member of the placement of {trial.job_id!r}",
            where="/job_id",
            expected="one of " + ", ".join(trial.members),
        )
    return replace(trial, observed=(*trial.observed, epoch))


def leave(trial: Trial, job_id: str) -> Trial:
    """A member has ended: nothing more is expected of it. When the placed job itself ends, the placement is final.

    Raises:
        InputError: the trial is over, or the job is no running member of it.
    """
    _must_be_provisional(trial, "leave")
    if job_id not in trial.members:
        raise InputError(f"job {job_id!r} is no member", where="/job_id", expected="one of " + ", ".join(trial.members))
    left = replace(trial, gone=trial.gone | {job_id})
    return replace(left, state="final") if job_id == trial.job_id else left


def resolve(trial: Trial, settings: PlacementSettings) -> Trial:
    """Final, if every running member's deadline still holds with what was observed; undone otherwise.

    Raises:
        InputError: the trial is over, or a member has not finished an epoch.
    """
    _must_be_provisional(trial, "resolve")
    if trial.missing:
        raise InputError(
            f"no epoch seen of {', '.join(trial.missing)}", where="/observed", expected="one epoch of every job"
        )
    broken = {job_id: reason for job_id in trial.members if (reason := _broken(trial, job_id, settings)) is not None}
    if not broken:
        return replace(trial, state="final")
    return replace(trial, state="undone", reasons=tuple(broken.values()), excluded=_failed(trial, frozenset(broken)))


def record(trial: Trial, epoch: ObservedEpoch, history: History) -> bool:
    """Put an epoch into the history; returns whether it was clear which co-location it belongs to.

    It is not when the GPUs of the placement hold different companies, or the job runs elsewhere as well: only the
    slowest GPU was measured then, and nobody knows which it was; nor when a member has ended in between.
    """
    if trial.gone or len(set(trial.sets)) != 1 or epoch.job_id in trial.spread_wider:
        return False
    where = trial.sets[0]
    index = next((place for place, job in enumerate(where.jobs) if job.job_id == epoch.job_id), None)
    if index is None:
        return False
    history.record(where, index, epoch.epoch_s)
    return True


def _must_be_provisional(trial: Trial, verb: str) -> None:
    if trial.state != "provisional":
        raise InputError(
            f"cannot {verb}: the placement of {trial.job_id!r} is {trial.state}",
            where="/state",
            expected="a provisional placement",
        )


def _broken(trial: Trial, job_id: str, settings: PlacementSettings) -> str | None:
    """Why a member's deadline no longer holds, by its observed epochs; ``None`` when it holds."""
    mine = [epoch for epoch in trial.observed if epoch.job_id == job_id]
    seen = Observed(fmean(epoch.epoch_s for epoch in mine), len(mine))
    job = replace(_job(trial, job_id), remaining_epochs=mine[-1].remaining_epochs, deadline_s=mine[-1].deadline_s)
    answer = corrected(trial.predicted[job_id], job, seen)
    return deadline_refusal(f"job {job_id}", job, [answer], settings.epsilon)


def _job(trial: Trial, job_id: str) -> Job:
    return next(job for where in trial.sets for job in where.jobs if (job.job_id or "") == job_id)


def _failed(trial: Trial, broken: frozenset[str]) -> frozenset[CoLocationKey]:
    """The companies, GPU by GPU, among which a deadline broke (the placed job's own deadline breaks on all)."""
    failed: set[CoLocationKey] = set()
    for where in trial.sets:
        company = frozenset(job.job_id or "" for job in where.jobs) - {trial.job_id}
        if broken & (company | {trial.job_id}):
            failed.add((trial.job_id, company))
    return frozenset(failed)
