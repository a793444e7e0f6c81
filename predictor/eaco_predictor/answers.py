"""Columns turned into answers: epoch time, JCT, deadline risk and energy of each set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isnan, nan
from typing import TYPE_CHECKING

import numpy as np

from eaco_datasets.physics import fan_power_w
from eaco_datasets.types import MAX_JOBS, CoLocation, Job, NodeSpec
from eaco_predictor.distance import N_NEAREST
from eaco_predictor.intervals import miss_probability
from eaco_predictor.prediction import Estimate, JobPrediction, SetPrediction, SoloSource

if TYPE_CHECKING:
    from eaco_predictor.pipeline import Bounds
    from eaco_predictor.predictor import Columns

Triple = tuple[float, float, float]
"""Mean, lower, upper."""


def answer(
    sets: Sequence[CoLocation],
    columns: Columns,
    *,
    reasons: Sequence[str | None],
    provenance: Mapping[str, dict[str, float]],
    families: Sequence[str],
    version: str,
) -> list[SetPrediction]:
    """One answer a set. ``reasons`` says why a set is abstained on, ``provenance`` is by GPU type."""
    speed, pace = (np.stack(bounds, axis=2).tolist() for bounds in (columns.relative_speed, columns.pace))
    util, memory, power = (
        np.stack(quantity, axis=1).tolist() for quantity in (columns.gpu_util_pct, columns.mem_mib, columns.gpu_power_w)
    )
    epoch_s = columns.sets.solo_of("epoch_s").tolist()
    throughput = columns.sets.solo_of("throughput_samples_s").tolist()
    oom, distant = columns.oom_probability.tolist(), columns.out_of_distribution.tolist()
    near = columns.nearest.tolist()
    first_row = np.concatenate(([0], np.cumsum(columns.sets.n_jobs))).tolist()
    solo_epoch_s = [
        [_solo_epoch_s(job, epoch_s[i][j], throughput[i][j]) for j, job in enumerate(colocation.jobs)]
        for i, colocation in enumerate(sets)
    ]
    needed = [
        [*map(_needed_speed, colocation.jobs, solo), *[nan] * (MAX_JOBS - len(solo))]
        for colocation, solo in zip(sets, solo_epoch_s, strict=True)
    ]
    miss = _miss_probabilities(needed, columns.pace)
    predicted = columns.cold.tolist()
    answers = []
    for i, colocation in enumerate(sets):
        nearest = _nearest(near[first_row[i] : first_row[i + 1]], families)
        shares = dict(provenance[colocation.gpu])
        if reasons[i] is not None:
            answers.append(_abstained(reasons[i], distant[i], nearest, version, shares))
            continue
        jobs = tuple(
            map(_job, colocation.jobs, speed[i], pace[i], zip(solo_epoch_s[i], predicted[i], strict=False), miss[i])
        )
        gpu_power = _estimate(power[i])
        answers.append(
            SetPrediction(
                jobs=jobs,
                gpu_power_w=gpu_power,
                node_power_w=_node_power(colocation, gpu_power),
                gpu_util_pct=_estimate(util[i]),
                mem_mib=_estimate(memory[i]),
                oom_probability=None if isnan(oom[i]) else oom[i],
                energy_j_per_epoch=_energy(colocation, gpu_power, jobs),
                out_of_distribution=distant[i],
                nearest_families=nearest,
                abstained=None,
                predictor_version=version,
                provenance=shares,
            )
        )
    return answers


def _nearest(codes: list[list[int]], families: Sequence[str]) -> tuple[str, ...]:
    """The nearest families of a set, from those of its jobs ``(n_jobs, N_NEAREST)``: best place first, ties by name."""
    place: dict[str, int] = {}
    for job in codes:
        for rank, code in enumerate(job):
            place[families[code]] = min(rank, place.get(families[code], rank))
    return tuple(sorted(place, key=lambda family: (place[family], family)))[:N_NEAREST]


def _abstained(
    reason: str | None, distant: float, nearest: tuple[str, ...], version: str, provenance: dict[str, float]
) -> SetPrediction:
    return SetPrediction(
        jobs=(),
        gpu_power_w=None,
        node_power_w=None,
        gpu_util_pct=None,
        mem_mib=None,
        oom_probability=None,
        energy_j_per_epoch=None,
        out_of_distribution=distant,
        nearest_families=nearest,
        abstained=reason,
        predictor_version=version,
        provenance=provenance,
    )


def _estimate(values: Sequence[float]) -> Estimate | None:
    mean, lower, upper = values
    return None if isnan(mean) else Estimate(mean, lower, upper)


def _solo_epoch_s(job: Job, epoch_s: float, throughput_samples_s: float) -> float | None:
    """Solo epoch time: what this run's own samples take, else what was measured of the config.

    A caller's own epoch time beats another run's throughput.
    """
    own = job.solo.epoch_s is None or job.solo.throughput_samples_s is not None
    if own and job.samples_per_epoch is not None and not isnan(throughput_samples_s):
        return job.samples_per_epoch / throughput_samples_s
    return None if isnan(epoch_s) else epoch_s


def _job(job: Job, speed: Triple, pace: Triple, solo: tuple[float | None, bool], miss: float) -> JobPrediction:
    """Times are solo time / pace, so the fastest pace bounds them from below; unknown where the pace's bounds are.

    ``solo`` is the solo epoch time and whether the solo profile was predicted.
    """
    solo_epoch_s, predicted = solo
    measured: SoloSource = "measured" if job.solo.gpu_util_pct is None else "stated"
    mean, lower, upper = pace
    epoch = jct = None
    if solo_epoch_s is not None and not isnan(lower):
        epoch = Estimate(solo_epoch_s / mean, solo_epoch_s / upper, solo_epoch_s / lower)
        if job.remaining_epochs is not None:
            left = job.remaining_epochs
            jct = Estimate(left * epoch.mean, left * epoch.lower, left * epoch.upper)
    return JobPrediction(
        job.job_id, Estimate(*speed), epoch, jct, None if isnan(miss) else miss, "predicted" if predicted else measured
    )


def _needed_speed(job: Job, solo_epoch_s: float | None) -> float:
    """The relative speed that the deadline needs; NaN without a deadline or a known end, infinite when it is past."""
    if job.deadline_s is None or job.remaining_epochs is None or solo_epoch_s is None:
        return nan
    solo_jct_s = job.remaining_epochs * solo_epoch_s
    if solo_jct_s == 0:
        return 0.0
    return solo_jct_s / job.deadline_s if job.deadline_s > 0 else inf


def _miss_probabilities(needed: list[list[float]], speed: Bounds) -> list[list[float]]:
    """Probability that each job's pace stays below what its deadline needs ``(n_sets, MAX_JOBS)``.

    A job alone has no doubt about its speed: exactly on time is on time.
    """
    need = np.array(needed)
    if np.isnan(need).all():
        return needed
    certain = speed.lower == speed.upper
    missed = np.where(certain, (need > speed.mean).astype(float), miss_probability(need, *speed))
    edge = np.where(need == 0.0, 0.0, np.where(np.isinf(need), 1.0, missed))
    found: list[list[float]] = np.where(np.isnan(need), np.nan, edge).tolist()
    return found


def _node_power(colocation: CoLocation, gpu_power: Estimate | None) -> Estimate | None:
    """``P_node = P_server(cpu utilisation) + sum of GPU powers`` (EaCO paper, eq. 5); None without a described node."""
    if colocation.node is None or gpu_power is None:
        return None
    mean, lower, upper = _server_power(colocation.node)
    n = colocation.num_gpus
    return Estimate(mean + n * gpu_power.mean, lower + n * gpu_power.lower, upper + n * gpu_power.upper)


def _server_power(node: NodeSpec) -> Triple:
    """Server watts; with an unknown CPU utilisation the whole span from idle to busy, half-way as the mean."""
    if node.cpu_util_pct is None:
        return (node.cpu_idle_w + node.cpu_busy_w) / 2.0, node.cpu_idle_w, node.cpu_busy_w
    power = float(fan_power_w(node.cpu_idle_w, node.cpu_busy_w, node.cpu_util_pct))
    return power, power, power


def _energy(colocation: CoLocation, gpu_power: Estimate | None, jobs: Sequence[JobPrediction]) -> Estimate | None:
    """GPU energy of one epoch of every job: each job is charged an equal share of the power over its epoch."""
    epochs = [job.epoch_s for job in jobs if job.epoch_s is not None]
    if gpu_power is None or len(epochs) < len(jobs):
        return None
    share = colocation.num_gpus / len(epochs)
    mean, lower, upper = (sum(bound) for bound in zip(*epochs, strict=True))
    return Estimate(share * gpu_power.mean * mean, share * gpu_power.lower * lower, share * gpu_power.upper * upper)
