"""What every learned model must beat: the mean, no interference, and plain time slicing."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from eaco_datasets.physics import time_slice_speed
from eaco_features.sets import FloatArray, SetBatch, others_sum
from eaco_predictor.models.base import known_targets
from eaco_predictor.targets import target_spec


class Mean:
    """The mean of the training targets (of the same GPU type where it was seen)."""

    name: ClassVar[str] = "mean"
    monotone: ClassVar[bool] = True

    def __init__(self, target: str = "relative_speed") -> None:
        self.target = target

    def fit(self, sets: SetBatch, target: FloatArray) -> Self:
        known = known_targets(sets, target)
        values = target_spec(self.target).clipped(target)
        self._overall = float(values[known].mean())
        gpu = np.broadcast_to(sets.gpu[:, None], known.shape)[known]
        self._by_gpu = {sets.gpus[code]: float(values[known][gpu == code].mean()) for code in np.unique(gpu)}
        return self

    def predict(self, sets: SetBatch) -> FloatArray:
        by_code = np.array([self._by_gpu.get(slug, self._overall) for slug in sets.gpus] or [self._overall])
        grid = np.broadcast_to(by_code[sets.gpu][:, None], sets.present.shape)
        return target_spec(self.target).limit(sets, grid)


class NoInterference:
    """Every job runs as fast as alone."""

    name: ClassVar[str] = "no-interference"
    monotone: ClassVar[bool] = True

    def fit(self, sets: SetBatch, target: FloatArray) -> Self:
        known_targets(sets, target)
        return self

    def predict(self, sets: SetBatch) -> FloatArray:
        return np.where(sets.present, 1.0, np.nan)


class TimeSlice:
    """A full GPU is shared in proportion to demand: ``min(1, 100 / sum of solo utilisations)``.

    A utilisation that is unknown counts as the mean of the training ones, or as 100 % when none is known.
    """

    name: ClassVar[str] = "time-slice"
    monotone: ClassVar[bool] = True

    def fit(self, sets: SetBatch, target: FloatArray) -> Self:
        known_targets(sets, target)
        self._usual_util_pct = usual_util_pct(sets)
        return self

    def predict(self, sets: SetBatch) -> FloatArray:
        util = filled_util_pct(sets, self._usual_util_pct)
        speed = time_slice_speed(util, others_sum(util, sets.present))
        return target_spec("relative_speed").limit(sets, speed)


def usual_util_pct(sets: SetBatch) -> float:
    """Mean solo GPU utilisation of the jobs whose utilisation is known; 100 when none is."""
    util = sets.solo_of("gpu_util_pct")[sets.present]
    known = util[np.isfinite(util)]
    return float(known.mean()) if len(known) else 100.0


def filled_util_pct(sets: SetBatch, usual: float) -> FloatArray:
    """Solo GPU utilisation ``(n_sets, MAX_JOBS)`` with unknown ones taken as ``usual``; 0 where there is no job."""
    util = sets.solo_of("gpu_util_pct")
    return np.where(sets.present, np.where(np.isnan(util), usual, util), 0.0)
