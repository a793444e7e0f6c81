"""What models that read the feature matrix share: known rows in, a grid of jobs out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import numpy as np

from eaco_datasets.errors import DataError
from eaco_features.matrix import feature_matrix
from eaco_features.sets import BoolArray, FloatArray, SetBatch
from eaco_predictor.families import family_weights
from eaco_predictor.targets import target_spec


def known_targets(sets: SetBatch, target: FloatArray) -> BoolArray:
    """Where a target is known ``(n_sets, MAX_JOBS)``.

    Raises:
        DataError: nowhere.
    """
    known = sets.present & np.isfinite(target)
    if not known.any():
        raise DataError("no row has a known target", where="training data", expected="at least one")
    return known


class MatrixModel(ABC):
    """Base of the models that learn from feature rows. ``target`` names what is learned, ``seed`` what is random."""

    name: ClassVar[str]
    monotone: ClassVar[bool] = False
    equal_families: ClassVar[bool] = False

    def __init__(self, target: str = "relative_speed", seed: int = 0) -> None:
        self.target, self.seed = target, seed

    def fit(self, sets: SetBatch, target: FloatArray) -> Self:
        known = known_targets(sets, target)
        at_row = known[sets.rows]
        values = target_spec(self.target).clipped(target)[sets.rows]
        weights = np.ones(int(at_row.sum()))
        if self.equal_families:
            weights = family_weights(sets.family[sets.rows][at_row])
        self._fit_rows(self._matrix(sets)[at_row], values[at_row], weights)
        return self

    def predict(self, sets: SetBatch) -> FloatArray:
        grid = np.full(sets.present.shape, np.nan)
        if len(sets):
            grid[sets.rows] = self._predict_rows(self._matrix(sets))
        return target_spec(self.target).limit(sets, grid)

    def _matrix(self, sets: SetBatch) -> FloatArray:
        return feature_matrix(sets)

    @abstractmethod
    def _fit_rows(self, features: FloatArray, target: FloatArray, weights: FloatArray) -> None: ...

    @abstractmethod
    def _predict_rows(self, features: FloatArray) -> FloatArray: ...
