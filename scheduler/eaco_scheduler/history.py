"""What was observed of co-located jobs, and a predictor that believes it.

Keyed by what the jobs are, not by who they are: the next set of the same configs on the same GPU type profits, as in
the paper's history. That the first epoch represents the rest is the paper's assumption.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from eaco_datasets.types import MAX_RELATIVE_SPEED, CoLocation, Job
from eaco_predictor import intervals
from eaco_predictor.prediction import Estimate, JobPrediction, PredictsSets, SetPrediction
from eaco_scheduler.checks import check_number

_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Observed:
    """Mean epoch time of ``epochs`` measured epochs, s."""

    epoch_s: float
    epochs: int


class History:
    """Measured epoch times of jobs by their co-location."""

    def __init__(self) -> None:
        self._epochs: dict[_Key, list[float]] = defaultdict(list)

    def record(self, where: CoLocation, index: int, epoch_s: float) -> None:
        """One measured epoch of the job at ``index`` of this co-location.

        Raises:
            InputError: an epoch takes a positive, finite time.
        """
        check_number(epoch_s, "/epoch_s", low=0.0, above_low=True)
        self._epochs[_key(where, index)].append(epoch_s)

    def observed(self, where: CoLocation, index: int) -> Observed | None:
        """What is known of that job there; order of the other jobs does not matter."""
        found = self._epochs.get(_key(where, index))
        return Observed(fmean(found), len(found)) if found else None

    def __len__(self) -> int:
        return sum(len(found) for found in self._epochs.values())


class HistoryPredictor:
    """Answers like ``base``, with observed epoch times in place of predicted ones wherever there are any."""

    def __init__(self, base: PredictsSets, history: History) -> None:
        self._base = base
        self._history = history

    def predict(self, sets: Sequence[CoLocation]) -> list[SetPrediction]:
        """One prediction a set, in order."""
        answers = self._base.predict(sets)
        return [self._corrected(where, answer) for where, answer in zip(sets, answers, strict=True)]

    def _corrected(self, where: CoLocation, answer: SetPrediction) -> SetPrediction:
        if answer.abstained is not None:
            return answer
        jobs = [
            job if (seen := self._history.observed(where, index)) is None else corrected(job, where.jobs[index], seen)
            for index, job in enumerate(answer.jobs)
        ]
        return answer if tuple(jobs) == answer.jobs else replace(answer, jobs=tuple(jobs))


def corrected(predicted: JobPrediction, job: Job, seen: Observed) -> JobPrediction:
    """The prediction once epochs were seen: their mean, with the relative interval over ``sqrt(1 + epochs)``.

    The prediction counts as one more epoch of evidence about the spread, none about the mean. Relative speed scales
    with the epoch time from the solo epoch time that the prediction implies (or the profile states).
    """
    epoch_s = _around(seen.epoch_s, predicted.epoch_s or predicted.relative_speed, seen.epochs)
    solo_s = job.solo.epoch_s
    if predicted.epoch_s is not None:
        solo_s = predicted.epoch_s.mean * predicted.relative_speed.mean
    speed = predicted.relative_speed
    if solo_s is not None:
        measured = min(MAX_RELATIVE_SPEED, solo_s / seen.epoch_s)
        speed = _around(measured, predicted.relative_speed, seen.epochs, high=MAX_RELATIVE_SPEED)
    left = job.remaining_epochs
    jct_s = None if left is None else Estimate(epoch_s.mean * left, epoch_s.lower * left, epoch_s.upper * left)
    risk = miss_probability(jct_s, job.deadline_s)
    return replace(predicted, relative_speed=speed, epoch_s=epoch_s, jct_s=jct_s, deadline_miss_probability=risk)


def miss_probability(jct_s: Estimate | None, deadline_s: float | None) -> float | None:
    """P(completion later than the deadline), by the predictor's own formula; ``None`` when unknown.

    As in the predictor, a job with nothing left to do is on time, one that is past its deadline is not, and exactly on
    time is on time where there is no doubt.
    """
    if jct_s is None or deadline_s is None:
        return None
    if jct_s.mean == 0.0:
        return 0.0
    if deadline_s <= 0.0:
        return 1.0
    if jct_s.lower == jct_s.upper:
        return float(jct_s.mean > deadline_s)
    within = intervals.miss_probability(*(np.array(value) for value in (deadline_s, *jct_s)))
    return 1.0 - float(within)


def _around(mean: float, like: Estimate, epochs: int, *, high: float = math.inf) -> Estimate:
    """An interval around ``mean`` with the relative half-widths of ``like``, narrowed."""
    scale = mean / like.mean / math.sqrt(1.0 + epochs)
    return Estimate(
        mean, max(0.0, mean - (like.mean - like.lower) * scale), min(high, mean + (like.upper - like.mean) * scale)
    )


def _key(where: CoLocation, index: int) -> _Key:
    own = _config(where.jobs[index])
    others = sorted(_config(job) for place, job in enumerate(where.jobs) if place != index)
    return where.gpu, where.sharing_mode, where.num_gpus, own, tuple(others)


def _config(job: Job) -> tuple[str, ...]:
    """What makes two runs the same work per epoch, as sortable text."""
    return (
        job.family,
        job.model,
        job.dataset or "",
        str(job.batch_size),
        job.precision,
        job.optimizer or "",
        str(job.samples_per_epoch or ""),
    )
