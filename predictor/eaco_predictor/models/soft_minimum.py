"""Relative speed by physics: a two-parameter soft minimum of the summed utilisation."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from scipy.optimize import minimize

from eaco_datasets.physics import soft_minimum_speed
from eaco_features.sets import FloatArray, SetBatch, others_sum
from eaco_predictor.families import family_weights
from eaco_predictor.models.base import known_targets
from eaco_predictor.models.baselines import filled_util_pct, usual_util_pct
from eaco_predictor.targets import target_spec

ERROR_SCALE = 0.05
"""Where the loss turns from squared to absolute: the size of the solo measurements' own noise (relative speeds up to
1.05 are ordinary in the public pairs)."""
CAPACITY_PCT = (30.0, 400.0)
SHARPNESS = (0.5, 16.0)


class SoftMinimum:
    """``(1 + ((u + u_others) / c)^p)^(-1/p)``: capacity ``c`` in percent and sharpness ``p`` are learned.

    The loss is pseudo-Huber with every family weighted alike, so that no family's row count decides.
    """

    name: ClassVar[str] = "soft-minimum"
    monotone: ClassVar[bool] = True

    def fit(self, sets: SetBatch, target: FloatArray) -> Self:
        known = known_targets(sets, target)
        self._usual_util_pct = usual_util_pct(sets)
        own, others = self._loads(sets)
        own, others = own[known], others[known]
        observed = target_spec("relative_speed").clipped(target)[known]
        weights = family_weights(sets.family[known])

        def loss(log_parameters: FloatArray) -> float:
            capacity, sharpness = _bounded(log_parameters)
            error = soft_minimum_speed(own, others, capacity, sharpness) - observed
            return float(np.average(np.sqrt(error**2 + ERROR_SCALE**2), weights=weights))

        found = minimize(loss, np.log([110.0, 4.0]), method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-8})
        self.capacity_pct, self.sharpness = _bounded(found.x)
        return self

    def predict(self, sets: SetBatch) -> FloatArray:
        own, others = self._loads(sets)
        speed = soft_minimum_speed(own, others, self.capacity_pct, self.sharpness)
        return target_spec("relative_speed").limit(sets, speed)

    def _loads(self, sets: SetBatch) -> tuple[FloatArray, FloatArray]:
        util = filled_util_pct(sets, self._usual_util_pct)
        return util, others_sum(util, sets.present)


def _bounded(log_parameters: FloatArray) -> tuple[float, float]:
    capacity, sharpness = np.exp(log_parameters)
    return float(np.clip(capacity, *CAPACITY_PCT)), float(np.clip(sharpness, *SHARPNESS))
