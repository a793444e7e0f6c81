"""What a job does alone on a GPU, from its graph and the data sheet, by boosted trees."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from eaco_features.job_graphs import steps_per_epoch
from eaco_features.sets import FloatArray, SetBatch
from eaco_predictor.models.base import known_targets
from eaco_predictor.models.baselines import Mean
from eaco_predictor.models.matrix_models import LightGBMGraph
from eaco_predictor.models.roofline import RooflineModel
from eaco_predictor.targets import power_bounds_w, target_spec


class GraphTrees:
    """LightGBM on roofline and graph features, families weighted alike.

    Times and memory are learned as logarithms (an epoch as its step time), power as its share of the range from idle
    watts to the limit. With ``residual``, what is learned is what that roofline model leaves over. Where the size of an
    epoch is unknown the answer is the training mean.
    """

    name: ClassVar[str] = "lightgbm-graph"
    monotone: ClassVar[bool] = False

    def __init__(self, target: str, seed: int = 0, residual: RooflineModel | None = None) -> None:
        self.target, self.residual = target, residual
        self.trees = _EqualFamilies(target, seed)
        self.usual = Mean(target)

    def fit(self, sets: SetBatch, target: FloatArray) -> Self:
        known_targets(sets, target)
        self.usual.fit(sets, target)
        learned = self._link(sets, target)
        if self.residual is not None:
            learned = learned - self._link(sets, self.residual.fit(sets, target).predict(sets))
        self.trees.fit(sets, np.where(np.isfinite(learned), learned, np.nan))
        return self

    def predict(self, sets: SetBatch) -> FloatArray:
        learned = self.trees.rows(sets)
        if self.residual is not None:
            learned = learned + self._link(sets, self.residual.predict(sets))
        value = self._unlink(sets, learned)
        return target_spec(self.target).limit(sets, np.where(np.isnan(value), self.usual.predict(sets), value))

    def _link(self, sets: SetBatch, target: FloatArray) -> FloatArray:
        if self.target == "gpu_power_w":
            low, high = power_bounds_w(sets)
            return (target - low[:, None]) / (high - low)[:, None]
        if self.target in ("epoch_s", "mem_mib"):
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.log(target / self._per(sets))
        return target

    def _unlink(self, sets: SetBatch, learned: FloatArray) -> FloatArray:
        if self.target == "gpu_power_w":
            low, high = power_bounds_w(sets)
            return low[:, None] + learned * (high - low)[:, None]
        if self.target in ("epoch_s", "mem_mib"):
            return np.exp(learned) * self._per(sets)
        return learned

    def _per(self, sets: SetBatch) -> FloatArray:
        return steps_per_epoch(sets) if self.target == "epoch_s" else np.ones(sets.present.shape)


class RooflineTrees(GraphTrees):
    """The same on what a roofline model leaves over."""

    name: ClassVar[str] = "roofline-lightgbm"


class _EqualFamilies(LightGBMGraph):
    equal_families: ClassVar[bool] = True

    def rows(self, sets: SetBatch) -> FloatArray:
        """The learned quantity ``(n_sets, MAX_JOBS)``, without a target's limits."""
        grid = np.full(sets.present.shape, np.nan)
        if len(sets):
            grid[sets.rows] = self._predict_rows(self._matrix(sets))
        return grid
