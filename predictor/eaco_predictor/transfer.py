"""A fitted model carried to another GPU type by a few measurements on it: the model stays, a small head is learned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from eaco_features.sets import BoolArray, FloatArray, SetBatch
from eaco_predictor.models.base import Inputs, input_matrix
from eaco_predictor.observations import Spread

LENGTH_SCALE = 3.0
"""Distance, in training standard deviations over all features together, at which errors are still alike (choice)."""
COMMON_SHARE = 0.3
"""Variance of the error that all jobs on the new type share, as a share of that between jobs (choice)."""

SMALLEST_SPREAD = 1e-9
"""A feature that spreads less than this, as a share of its mean, is constant but for rounding."""
USUAL_ERRORS = 5.0
"""Measurements of usual size that the prior counts as when the errors' size is judged (choice)."""


@dataclass(frozen=True)
class Scaler:
    """Standardises feature rows by the mean and spread of the training rows; unknown is the mean.

    The spread of a feature that never varied in training is infinite.
    """

    centre: FloatArray
    spread: FloatArray
    inputs: Inputs

    @classmethod
    def of(cls, sets: SetBatch, inputs: Inputs) -> Scaler:
        rows = input_matrix(sets, inputs)
        known = np.isfinite(rows)
        count = np.maximum(known.sum(axis=0), 1)
        centre = np.where(known, rows, 0.0).sum(axis=0) / count
        spread = np.sqrt((np.where(known, rows - centre, 0.0) ** 2).sum(axis=0) / count)
        return cls(centre, np.where(spread > SMALLEST_SPREAD * np.maximum(np.abs(centre), 1.0), spread, np.inf), inputs)

    def rows(self, sets: SetBatch) -> FloatArray:
        """Rows in the order of ``sets.rows``, each feature at most 3 standard deviations from its mean.

        Features that never varied in training (the GPU's own, where it was one type) tell nothing and are left out.
        """
        scaled = (input_matrix(sets, self.inputs) - self.centre) / self.spread
        return np.clip(np.where(np.isfinite(scaled), scaled, 0.0), -3.0, 3.0)[:, np.isfinite(self.spread)]


class GpuHead:
    """A Gaussian process over the scaled errors that the fitted model makes on one GPU type.

    The prior is what the model's own calibration found on families left out: variance between jobs and within one.
    Nothing is tuned, so that a handful of measurements is enough. Sources of the form: Rasmussen and Williams, 2006,
    ch. 2; that a model of one setting plus a process on its residuals transfers: Kennedy and O'Hagan, 2000.
    """

    def __init__(self, gpu: str, spread: Spread, scaler: Scaler) -> None:
        self.gpu, self._scaler = gpu, scaler
        between = spread.between
        kernel = (
            ConstantKernel(between) * RBF(LENGTH_SCALE)
            + ConstantKernel(COMMON_SHARE * between)
            + WhiteKernel(spread.within)
        )
        self._prior = (1.0 + COMMON_SHARE) * between + spread.within
        self._process = GaussianProcessRegressor(kernel, optimizer=None)

    def fit(self, sets: SetBatch, error: FloatArray, known: BoolArray) -> GpuHead:
        """Learn from the scaled errors ``(n_sets, MAX_JOBS)`` of measurements on this GPU type."""
        self._process.fit(self._scaler.rows(sets)[known[sets.rows]], error[sets.rows][known[sets.rows]])
        self._wider = self._surprise()
        return self

    def _surprise(self) -> float:
        """How much larger errors on this GPU type are than the prior says, at least 1: the interval's width factor.

        Each measurement is predicted from the others (Rasmussen and Williams, 2006, eq. 5.12).
        """
        inverse = cho_solve((self._process.L_, True), np.eye(len(self._process.L_)))
        squares = float((np.ravel(self._process.alpha_) ** 2 / np.diag(inverse)).sum())
        return max(1.0, float(np.sqrt((USUAL_ERRORS + squares) / (USUAL_ERRORS + len(inverse)))))

    def shift(self, sets: SetBatch) -> tuple[FloatArray, FloatArray]:
        """Shift of the scaled prediction and width factor of its interval ``(n_sets, MAX_JOBS)``.

        0 and 1 on other GPU types; 1 is the width where nothing was measured and errors are of the usual size.
        """
        shift, factor = np.zeros(sets.present.shape), np.ones(sets.present.shape)
        here = np.array([slug == self.gpu for slug in sets.gpus] or [False])[sets.gpu]
        if here.any():
            chosen = sets.take(here)
            mean, deviation = self._process.predict(self._scaler.rows(chosen), return_std=True)
            grid, width = np.zeros(chosen.present.shape), np.ones(chosen.present.shape)
            grid[chosen.rows] = mean
            width[chosen.rows] = self._wider * np.sqrt(deviation**2 / self._prior)
            shift[here], factor[here] = grid, width
        return shift, factor
