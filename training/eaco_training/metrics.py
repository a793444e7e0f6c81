"""Errors of predictions, and their confidence intervals by bootstrap over model families.

Rows are flat. Where a target is clipped (relative speed at 1.05), every figure but ``mae_raw`` is of clipped
targets and clipped predictions: what lies above is noise of the solo measurement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eaco_features.sets import BoolArray, FloatArray, IntArray

RESAMPLES = 2000
CI_LEVEL = 0.95
DECIMALS = 6

Figures = dict[str, int | float | list[float] | None]


@dataclass(frozen=True)
class ScoredRows:
    """Targets beside predictions, each ``(n_rows,)``; ``group`` and ``family`` are codes from 0."""

    target: FloatArray
    mean: FloatArray
    lower: FloatArray
    upper: FloatArray
    group: IntArray
    family: IntArray
    clip: float | None = None

    def __len__(self) -> int:
        return len(self.target)

    def where(self, chosen: BoolArray) -> ScoredRows:
        """The chosen rows."""
        return ScoredRows(
            self.target[chosen],
            self.mean[chosen],
            self.lower[chosen],
            self.upper[chosen],
            self.group[chosen],
            self.family[chosen],
            self.clip,
        )

    def clipped(self, values: FloatArray) -> FloatArray:
        """Values at most the clip."""
        return values if self.clip is None else np.minimum(values, self.clip)

    @property
    def abs_error(self) -> FloatArray:
        """Absolute errors after clipping, ``(n_rows,)``."""
        return np.abs(self.clipped(self.mean) - self.clipped(self.target))

    @property
    def abs_error_pct(self) -> FloatArray:
        """Absolute errors in percent of the (clipped) target, ``(n_rows,)``; ask it of ``nonzero`` rows."""
        return 100.0 * self.abs_error / np.abs(self.clipped(self.target))

    @property
    def nonzero(self) -> ScoredRows:
        """The rows of which a percentage can be taken."""
        return self.where(self.target != 0)


def tidy(value: float | np.floating[Any]) -> float | None:
    """A figure as it is reported: rounded, ``None`` where it is not a number."""
    return round(float(value), DECIMALS) if np.isfinite(value) else None


def mean_or_nan(values: FloatArray) -> float:
    """The mean, NaN of nothing."""
    return float(values.mean()) if len(values) else float("nan")


def _r2(rows: ScoredRows) -> float:
    truth = rows.clipped(rows.target)
    total = float(np.sum((truth - truth.mean()) ** 2))
    return 1.0 - float(np.sum(rows.abs_error**2)) / total if total > 0 else float("nan")


def point_figures(rows: ScoredRows) -> Figures:
    """Errors pooled over rows: ``mae``, ``mae_raw``, ``mape_pct``, ``r2``. Rows must not be empty."""
    return {
        "mae": tidy(rows.abs_error.mean()),
        "mae_raw": tidy(np.abs(rows.mean - rows.target).mean()),
        "mape_pct": tidy(mean_or_nan(rows.nonzero.abs_error_pct)),
        "r2": tidy(_r2(rows)),
    }


def interval_figures(rows: ScoredRows) -> Figures:
    """Coverage and mean width of the 90 % interval (unit of the target), over the rows that have one."""
    bounded = np.isfinite(rows.lower) & np.isfinite(rows.upper)
    if not bounded.any():
        return {"coverage_pct": None, "interval_width": None}
    some = rows.where(bounded)
    truth = some.clipped(some.target)
    lower, upper = some.clipped(some.lower), some.clipped(some.upper)
    return {
        "coverage_pct": tidy(100.0 * np.mean((lower <= truth) & (truth <= upper))),
        "interval_width": tidy((upper - lower).mean()),
    }


def macro_mean(rows: ScoredRows, error: FloatArray) -> float:
    """Mean over groups of the groups' mean ``error``: a group of few rows counts as much as one of many."""
    n = np.bincount(rows.group)
    seen = n > 0
    return mean_or_nan(np.bincount(rows.group, weights=error)[seen] / n[seen])


def macro_figures(rows: ScoredRows) -> Figures:
    """Errors averaged over groups."""
    return {
        "n_groups": len(np.unique(rows.group)),
        "macro_mae": tidy(macro_mean(rows, rows.abs_error)),
        "macro_mape_pct": tidy(macro_mean(rows.nonzero, rows.nonzero.abs_error_pct)),
    }


@dataclass(frozen=True)
class FamilyBootstrap:
    """Resamples of families with replacement: how often each was drawn, ``weights`` ``(n_resamples, n_families)``."""

    weights: FloatArray
    families: IntArray

    @classmethod
    def of(cls, family: IntArray, seed: int, resamples: int = RESAMPLES) -> FamilyBootstrap:
        """Draws for the families that occur among these rows."""
        families = np.unique(family)
        share = np.full(len(families), 1.0 / len(families))
        drawn = np.random.default_rng([seed, 0xB007]).multinomial(len(families), share, size=resamples)
        return cls(drawn.astype(float), families)

    def means(self, rows: ScoredRows, error: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Pooled and macro mean of ``error`` in each resample, each ``(n_resamples,)``.

        A group that lies in one family counts as often as its family was drawn; a group across families (a GPU) is
        averaged over its drawn rows and counts by their share.
        """
        family = np.searchsorted(self.families, rows.family)
        groups, group = np.unique(rows.group, return_inverse=True)
        shape = (len(groups), len(self.families))
        cell = group * shape[1] + family
        total = np.bincount(cell, weights=error, minlength=shape[0] * shape[1]).reshape(shape)
        count = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape).astype(float)
        drawn_total, drawn_count = self.weights @ total.T, self.weights @ count.T
        group_mean = np.divide(drawn_total, drawn_count, out=np.zeros_like(drawn_total), where=drawn_count > 0)
        multiplicity = drawn_count / count.sum(axis=1)
        return (
            _ratio(drawn_total.sum(axis=1), drawn_count.sum(axis=1)),
            _ratio((group_mean * multiplicity).sum(axis=1), multiplicity.sum(axis=1)),
        )


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    """``above / below``, NaN where nothing was drawn."""
    return np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0)


def confidence_interval(resampled: FloatArray) -> list[float] | None:
    """The central ``CI_LEVEL`` percentile interval of resampled figures, over the resamples that have one."""
    finite = resampled[np.isfinite(resampled)]
    if len(finite) == 0:
        return None
    tail = 50.0 * (1.0 - CI_LEVEL)
    low, high = np.percentile(finite, [tail, 100.0 - tail])
    return [round(float(low), DECIMALS), round(float(high), DECIMALS)]


def overall_figures(rows: ScoredRows, seed: int) -> Figures | None:
    """All figures of a block of rows; intervals are ``None`` where one family only was scored."""
    if len(rows) == 0:
        return None
    boot = FamilyBootstrap.of(rows.family, seed)
    several = len(boot.families) > 1
    pooled, macro = boot.means(rows, rows.abs_error)
    _, macro_mape = boot.means(rows.nonzero, rows.nonzero.abs_error_pct)
    point, over_groups = point_figures(rows), macro_figures(rows)
    return {
        "n": len(rows),
        "n_groups": over_groups["n_groups"],
        "n_families": len(boot.families),
        "mae": point["mae"],
        "mae_raw": point["mae_raw"],
        "mae_ci": confidence_interval(pooled) if several else None,
        "macro_mae": over_groups["macro_mae"],
        "macro_mae_ci": confidence_interval(macro) if several else None,
        "mape_pct": point["mape_pct"],
        "macro_mape_pct": over_groups["macro_mape_pct"],
        "macro_mape_ci": confidence_interval(macro_mape) if several else None,
        "r2": point["r2"],
        **interval_figures(rows),
    }


def paired_difference(model: ScoredRows, baseline: ScoredRows, seed: int) -> Figures:
    """Macro and pooled MAE of a model minus a baseline's on the same rows (negative: the model is better).

    Both are scored in the same resamples of families, so what makes a family hard for both cancels.
    """
    boot = FamilyBootstrap.of(model.family, seed)
    ours, theirs = boot.means(model, model.abs_error), boot.means(baseline, baseline.abs_error)
    several = len(boot.families) > 1
    pooled = float(model.abs_error.mean() - baseline.abs_error.mean())
    macro = macro_mean(model, model.abs_error) - macro_mean(baseline, baseline.abs_error)
    return {
        "mae_difference": tidy(pooled),
        "mae_difference_ci": confidence_interval(ours[0] - theirs[0]) if several else None,
        "macro_mae_difference": tidy(macro),
        "macro_mae_difference_ci": confidence_interval(ours[1] - theirs[1]) if several else None,
        "better_share_of_resamples": tidy(float(np.mean(ours[1] < theirs[1]))) if several else None,
    }
