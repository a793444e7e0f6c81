"""What one measured reading says without any physics: the same again, unless the power limit forbids it."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from eaco_features.sets import FloatArray, SetBatch
from eaco_predictor.models.baselines import Mean
from eaco_predictor.models.solo_power import Workload, each_alone, readings_of, workload_codes
from eaco_predictor.targets import target_spec


class RepeatReading:
    """The opponent of ``soft-cap`` once a workload was observed: the mean of its readings, at most the power limit.

    Nothing observed: the mean of the training rows of that GPU type.
    """

    name: ClassVar[str] = "repeat-reading"
    monotone: ClassVar[bool] = False

    def fit(self, sets: SetBatch, target: FloatArray) -> Self:
        self._mean = Mean("gpu_power_w").fit(sets, target)
        self._readings: dict[Workload, tuple[float, ...]] = {}
        return self

    def predict(self, sets: SetBatch) -> FloatArray:
        grid = self._mean.predict(sets)
        jobs, _ = each_alone(sets, np.full(sets.present.shape, np.nan))
        codes, workloads = workload_codes(jobs)
        power = grid[sets.rows]
        for code, workload in enumerate(workloads):
            if workload in self._readings:
                power[codes == code] = np.mean(self._readings[workload])
        grid[sets.rows] = power
        return target_spec("gpu_power_w").limit(sets, grid)

    def observe(self, sets: SetBatch, target: FloatArray) -> RepeatReading:
        """The same model with these readings known too."""
        jobs, power = readings_of(sets, target)
        codes, workloads = workload_codes(jobs)
        readings = dict(self._readings)
        for code, workload in enumerate(workloads):
            readings[workload] = (*readings.get(workload, ()), *power[codes == code].tolist())
        observed = RepeatReading()
        observed.__dict__.update(self.__dict__, _readings=readings)
        return observed
