"""A shrunken per-job correction: what a few measurements of a config say about its next ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from eaco_features.sets import BoolArray, ConfigKey, FloatArray, IntArray, SetBatch

JobKey = tuple[str, ConfigKey]
"""GPU type and job config: whom a correction is for."""

WILD = 2.5
"""Residuals are cut at this many standard deviations, so that one wild observation cannot decide (choice)."""


@dataclass(frozen=True)
class Spread:
    """Variance of the scaled out-of-family errors: between jobs, and within one job from set to set."""

    between: float
    within: float

    def shrinkage(self, n: int) -> float:
        """Share of the mean residual of ``n`` observations that is believed: ``n b / (n b + w)``."""
        return n * self.between / (n * self.between + self.within) if n else 0.0

    def width_factor(self, n: int) -> float:
        """How much narrower the interval is after ``n`` observations (1 at none)."""
        left = self.between * (1.0 - self.shrinkage(n)) + self.within
        return float(np.sqrt(left / (self.between + self.within)))


@dataclass(frozen=True)
class Correction:
    """Shift of one job's scaled prediction, and the (cut) residuals that it comes from."""

    shift: float
    residuals: tuple[float, ...]

    @classmethod
    def of(cls, residuals: tuple[float, ...], spread: Spread) -> Correction:
        """Median of the residuals (mean of one or two), shrunken."""
        centre = float(np.median(residuals)) if len(residuals) > 2 else float(np.mean(residuals))
        return cls(spread.shrinkage(len(residuals)) * centre, residuals)

    @property
    def n(self) -> int:
        """How many observations it comes from."""
        return len(self.residuals)


def job_codes(sets: SetBatch) -> IntArray:
    """Code of each job's GPU type and config ``(n_sets, MAX_JOBS)``, within this batch; -1 where there is no job."""
    return np.where(sets.present, sets.gpu[:, None] * max(len(sets.configs), 1) + sets.config, -1)


def job_key(sets: SetBatch, code: int) -> JobKey:
    """The job that a code of ``job_codes`` stands for."""
    gpu, config = divmod(int(code), max(len(sets.configs), 1))
    return sets.gpus[gpu], sets.configs[config]


def error_spread(scaled_error: FloatArray, job: IntArray) -> Spread:
    """Variance components ``(n_rows,)`` -> between and within jobs (method of moments); never exactly zero."""
    _, inverse, counts = np.unique(job, return_inverse=True, return_counts=True)
    means = np.bincount(inverse, weights=scaled_error) / counts
    within_sum = float(((scaled_error - means[inverse]) ** 2).sum())
    within = within_sum / max(len(scaled_error) - len(counts), 1)
    between = float(np.average(means**2 - within / counts, weights=counts)) if len(counts) else 0.0
    return Spread(max(between, 1e-9), max(within, 1e-9))


def corrections(
    sets: SetBatch,
    scaled_error: FloatArray,
    known: BoolArray,
    spread: Spread,
    earlier: Mapping[JobKey, Correction] | None = None,
) -> Mapping[JobKey, Correction]:
    """One correction a job from its residuals ``(n_sets, MAX_JOBS)``, pooled with what was observed ``earlier``."""
    cut = WILD * float(np.sqrt(spread.between + spread.within))
    codes, errors = job_codes(sets)[known], np.clip(scaled_error[known], -cut, cut)
    found = dict(earlier or {})
    for code in np.unique(codes):
        key = job_key(sets, code)
        before = found[key].residuals if key in found else ()
        found[key] = Correction.of((*before, *errors[codes == code].tolist()), spread)
    return found


def per_job(sets: SetBatch, known: Mapping[JobKey, Correction], spread: Spread) -> tuple[FloatArray, FloatArray]:
    """Shift and width factor of each job ``(n_sets, MAX_JOBS)``; 0 and 1 where nothing was observed."""
    codes = job_codes(sets)
    shift, factor = np.zeros(codes.shape), np.ones(codes.shape)
    for code in np.unique(codes[codes >= 0]):
        correction = known.get(job_key(sets, code))
        if correction is not None:
            at = codes == code
            shift[at], factor[at] = correction.shift, spread.width_factor(correction.n)
    return shift, factor
