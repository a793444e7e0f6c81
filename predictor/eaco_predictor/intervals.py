"""90 % intervals, conformal over families: how wrong the model was on families that it had not seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from eaco_features.sets import FloatArray, IntArray
from eaco_predictor.families import family_weights
from eaco_predictor.prediction import INTERVAL_LEVEL

TAIL = (1.0 - INTERVAL_LEVEL) / 2.0
Z_AT_BOUND = float(ndtri(1.0 - TAIL))


@dataclass(frozen=True)
class Interval:
    """Signed bounds of the scaled error ``(target - prediction) / scale``; ``lower <= 0 <= upper``."""

    lower: float
    upper: float

    def bounds(
        self, mean: FloatArray, scale: FloatArray, factor: FloatArray | float = 1.0
    ) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bound of each prediction; ``factor`` widens or tightens."""
        return mean + self.lower * factor * scale, mean + self.upper * factor * scale


def calibrate(prediction: FloatArray, target: FloatArray, scale: FloatArray, family: IntArray) -> Interval:
    """The interval from out-of-family predictions; all arrays ``(n_rows,)``.

    The exchangeable unit is the family: the error distributions of the families are pooled with equal weight (the
    "pooling CDFs" of Dunn, Wasserman and Ramdas, 2018) and, since only K families were seen, the quantiles are
    stretched by Student's t with K - 1 degrees of freedom over the normal quantile. With fewer than 9 families no
    finite-sample 90 % guarantee exists; measured coverage stands in every evaluation report.
    """
    scaled = (target - prediction) / scale
    weights = family_weights(family)
    n_families = len(np.unique(family))
    stretch = float(stdtrit(max(n_families - 1, 1), 1.0 - TAIL)) / Z_AT_BOUND
    lower, upper = _weighted_quantiles(scaled, weights, (TAIL, 1.0 - TAIL))
    return Interval(min(lower, 0.0) * stretch, max(upper, 0.0) * stretch)


def _weighted_quantiles(values: FloatArray, weights: FloatArray, levels: tuple[float, ...]) -> tuple[float, ...]:
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    at = np.searchsorted(total, np.asarray(levels) * total[-1])
    return tuple(float(v) for v in values[order][np.minimum(at, len(values) - 1)])


def miss_probability(need: FloatArray, mean: FloatArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Probability that a quantity stays below what is needed, under a two-piece normal with these 90 % bounds.

    Arrays broadcast; a bound that coincides with the mean leaves no doubt on that side. NaN where any input is.
    """
    below = need < mean
    width = np.where(below, mean - lower, upper - mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(width > 0, (need - mean) / width * Z_AT_BOUND, np.where(need > mean, np.inf, -np.inf))
    unknown = np.isnan(need) | np.isnan(mean) | np.isnan(width)
    return np.asarray(ndtr(np.where(unknown, np.nan, np.where(need == mean, 0.0, z))), dtype=float)
