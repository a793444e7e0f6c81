"""Memory, utilisation and node power of a whole set, from its jobs' solo profiles."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from scipy.optimize import minimize_scalar, nnls

from eaco_datasets.errors import DataError
from eaco_datasets.physics import FAN_EXPONENT, fan_power_w, soft_cap_w
from eaco_features.sets import FloatArray, SetBatch, set_sum
from eaco_predictor.models.base import known_targets
from eaco_predictor.targets import target_spec


def _on_each_job(sets: SetBatch, values: FloatArray) -> FloatArray:
    return np.broadcast_to(values[:, None], sets.present.shape)


def summed_util_pct(sets: SetBatch) -> FloatArray:
    """Sum of the jobs' solo GPU utilisation ``(n_sets,)``; NaN when one is unknown."""
    return set_sum(sets.solo_of("gpu_util_pct"), sets.present)


class SumOfSolos:
    """Memory of a set = sum of the jobs' solo peaks, which already hold each process's context."""

    name: ClassVar[str] = "sum-of-solos"
    monotone: ClassVar[bool] = False

    def fit(self, sets: SetBatch, target: FloatArray) -> Self:
        known_targets(sets, target)
        return self

    def predict(self, sets: SetBatch) -> FloatArray:
        total = set_sum(sets.solo_of("mem_mib"), sets.present)
        return target_spec("mem_mib").limit(sets, _on_each_job(sets, total))


class SumAndCap:
    """Utilisation of a set = sum of the solo utilisations, at most 100 %."""

    name: ClassVar[str] = "sum-and-cap"
    monotone: ClassVar[bool] = False

    def fit(self, sets: SetBatch, target: FloatArray) -> Self:
        known_targets(sets, target)
        return self

    def predict(self, sets: SetBatch) -> FloatArray:
        return target_spec("gpu_util_pct").limit(sets, _on_each_job(sets, summed_util_pct(sets)))


class SoftSum:
    """The sum of the solo utilisations under a soft cap of 100 %; the cap's sharpness is learned."""

    name: ClassVar[str] = "soft-sum"
    monotone: ClassVar[bool] = False

    def fit(self, sets: SetBatch, target: FloatArray) -> Self:
        known = known_targets(sets, target) & np.isfinite(summed_util_pct(sets))[:, None]
        self.sharpness = 8.0
        rows = known.any(axis=1)
        if rows.any():
            total = summed_util_pct(sets)[rows]
            observed = np.nanmax(np.where(known, target, np.nan)[rows], axis=1)
            found = minimize_scalar(
                lambda log_p: float(np.abs(soft_cap_w(total, 100.0, np.exp(log_p)) - observed).mean()),
                bounds=(0.0, 4.0),
                method="bounded",
            )
            self.sharpness = float(np.exp(found.x))
        return self

    def predict(self, sets: SetBatch) -> FloatArray:
        util = soft_cap_w(summed_util_pct(sets), 100.0, self.sharpness)
        alone = sets.n_jobs == 1
        util = np.where(alone, np.minimum(summed_util_pct(sets), 100.0), util)
        return target_spec("gpu_util_pct").limit(sets, _on_each_job(sets, util))


class NodePower:
    """Node power from the summed solo GPU utilisation: Fan's concave curve between an idle and a busy node.

    ``P = P_idle + (P_busy - P_idle) (2u - u^r)`` (Fan et al., ISCA 2007; the EaCO paper's own reference for server
    power), r fixed at its published value; ``P_idle`` and ``P_busy`` are learned by non-negative least squares from
    solo rows only, so the power of a shared node is never fitted on what it is checked on.
    """

    name: ClassVar[str] = "fan"
    monotone: ClassVar[bool] = False

    def fit(self, sets: SetBatch, target: FloatArray) -> Self:
        known = known_targets(sets, target).any(axis=1) & (sets.n_jobs == 1) & np.isfinite(summed_util_pct(sets))
        if not known.any():
            raise DataError(
                "no solo row has node power and GPU utilisation", where="training data", expected="at least one"
            )
        share = fan_power_w(0.0, 1.0, summed_util_pct(sets)[known], FAN_EXPONENT)
        solution, _ = nnls(np.column_stack([np.ones_like(share), share]), np.nanmax(target[known], axis=1))
        self.idle_w, self.busy_w = float(solution[0]), float(solution[0] + solution[1])
        return self

    def predict(self, sets: SetBatch) -> FloatArray:
        power = fan_power_w(self.idle_w, self.busy_w, np.minimum(summed_util_pct(sets), 100.0), FAN_EXPONENT)
        return target_spec("node_power_w").limit(sets, _on_each_job(sets, power))


class NodePowerLine:
    """The opponent of ``fan``: a line in utilisation through the same solo rows."""

    name: ClassVar[str] = "line"
    monotone: ClassVar[bool] = False

    def fit(self, sets: SetBatch, target: FloatArray) -> Self:
        known = known_targets(sets, target).any(axis=1) & (sets.n_jobs == 1) & np.isfinite(summed_util_pct(sets))
        if known.sum() < 2:
            raise DataError("a line needs two solo rows with node power", where="training data", expected="two")
        util, power = summed_util_pct(sets)[known], np.nanmax(target[known], axis=1)
        self.slope_w_pct, self.intercept_w = (float(c) for c in np.polyfit(util, power, 1))
        return self

    def predict(self, sets: SetBatch) -> FloatArray:
        power = self.intercept_w + self.slope_w_pct * np.minimum(summed_util_pct(sets), 100.0)
        return target_spec("node_power_w").limit(sets, _on_each_job(sets, power))
