"""Watts of one GPU from the utilisation of its set, bounded by idle power and power limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd

from eaco_datasets.gpus import gpu_specs
from eaco_datasets.physics import fan_power_w
from eaco_features.sets import FloatArray, SetBatch
from eaco_predictor.families import family_weights
from eaco_predictor.intervals import Interval, calibrate
from eaco_predictor.targets import power_bounds_w


class SetBounds(NamedTuple):
    """Mean and bounds of a quantity of the whole set, each ``(n_sets,)``."""

    mean: FloatArray
    lower: FloatArray
    upper: FloatArray


@dataclass(frozen=True)
class SetPower:
    """``P = idle + (busy - idle) (2u - u^r)``, ``busy`` learned for each GPU type from rows with power and utilisation.

    A type without such rows gets its own data-sheet limit as ``busy`` and the whole span from idle to limit as its
    interval: nothing of another GPU's. ``provenance`` holds, for each learned type, the shares of its rows;
    ``held_out_mape_pct`` the error on families left out, at their measured utilisation, families weighted alike.
    """

    busy_w: Mapping[str, float] = field(default_factory=dict)
    interval: Interval = field(default_factory=lambda: Interval(0.0, 0.0))
    provenance: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    held_out_mape_pct: float | None = None

    @classmethod
    def from_profiles(cls, profiles: pd.DataFrame) -> SetPower:
        """Learn from solo and co-located rows alike; a shared measurement counts once, however many jobs."""
        rows = profiles[(profiles["outcome"] == "ok") & profiles["gpu_power_w"].notna()]
        rows = rows[rows["gpu_util_pct"].notna() & rows["gpu"].isin(list(gpu_specs()))]
        default = rows["gpu"].map({slug: spec.power_limit_w for slug, spec in gpu_specs().items()}).astype(float)
        rows = rows[rows["power_limit_w"].isna() | (rows["power_limit_w"] == default)]
        if rows.empty:
            return cls()
        members = pd.crosstab(rows["measurement_id"], rows["family"])
        has_family = members.loc[rows["measurement_id"]].to_numpy(dtype=bool)
        gpu = rows["gpu"].to_numpy(dtype=object)
        family = np.asarray(members.columns.get_indexer(pd.Index(rows["family"])), dtype=np.int64)
        idle = np.array([gpu_specs()[slug].idle_w for slug in gpu])
        shape = fan_power_w(0.0, 1.0, rows["gpu_util_pct"].to_numpy(dtype=float))
        power = rows["gpu_power_w"].to_numpy(dtype=float)
        once = 1.0 / rows.groupby("measurement_id")["job_index"].transform("size").to_numpy(dtype=float)
        busy, held_out = {}, np.full(len(rows), np.nan)
        for slug in sorted(set(gpu)):
            at = np.flatnonzero(gpu == slug)
            limit = gpu_specs()[slug].power_limit_w
            busy[slug] = _busy_w(shape[at], power[at], once[at], idle[at[0]], limit)
            for code in np.unique(family[at]):
                rest = at[~has_family[at, code]]
                without = _busy_w(shape[rest], power[rest], once[rest], idle[at[0]], limit) if len(rest) else busy[slug]
                mine = at[family[at] == code]
                held_out[mine] = idle[at[0]] + (without - idle[at[0]]) * shape[mine]
        error_pct = 100.0 * float(np.average(np.abs(held_out / power - 1.0), weights=family_weights(family)))
        shares = provenance_shares(gpu, rows["provenance"])
        return cls(busy, calibrate(held_out, power, held_out, family), shares, error_pct)

    def predict(self, sets: SetBatch, util_pct: FloatArray) -> SetBounds:
        """Power of one GPU of each set at ``util_pct`` ``(n_sets,)``; NaN where the utilisation is unknown.

        Jobs that come with their own solo power scale the dynamic part: a job alone draws what was measured of it.
        """
        idle, limit = power_bounds_w(sets)
        learned = np.array([self.busy_w.get(slug, np.nan) for slug in sets.gpus])[sets.gpu]
        busy = np.where(np.isnan(learned), limit, learned)
        dynamic = (fan_power_w(idle, busy, util_pct) - idle) * self._solo_ratio(sets, idle, busy)
        mean = np.clip(idle + dynamic, idle, limit)
        lower, upper = self.interval.bounds(mean, mean)
        unlearned = np.isnan(learned)
        return SetBounds(
            mean,
            np.where(unlearned, idle, np.clip(lower, idle, mean)),
            np.where(unlearned, limit, np.clip(upper, mean, limit)),
        )

    def _solo_ratio(self, sets: SetBatch, idle: FloatArray, busy: FloatArray) -> FloatArray:
        """Measured over expected dynamic power, averaged over the jobs with a known solo power ``(n_sets,)``."""
        power, util = sets.solo_of("gpu_power_w"), sets.solo_of("gpu_util_pct")
        expected = fan_power_w(idle[:, None], busy[:, None], util) - idle[:, None]
        known = sets.present & np.isfinite(power) & (expected > 0)
        measured = np.sort(np.where(known, np.maximum(power - idle[:, None], 0.0), 0.0), axis=1).sum(axis=1)
        total = np.sort(np.where(known, expected, 0.0), axis=1).sum(axis=1)
        return np.where(total > 0, measured / np.where(total > 0, total, 1.0), 1.0)


def _busy_w(shape: FloatArray, power_w: FloatArray, weight: FloatArray, idle_w: float, limit_w: float) -> float:
    """Least squares of the dynamic power on the curve's shape, between idle and limit."""
    square = float((weight * shape**2).sum())
    slope = float((weight * shape * (power_w - idle_w)).sum()) / square if square > 0 else limit_w - idle_w
    return float(np.clip(idle_w + slope, idle_w, limit_w))


def provenance_shares(gpu: Iterable[str], provenance: Iterable[str]) -> dict[str, dict[str, float]]:
    """Share of each provenance among the rows of each GPU type."""
    counts: dict[str, Counter[str]] = {}
    for slug, kind in zip(gpu, provenance, strict=True):
        counts.setdefault(str(slug), Counter())[str(kind)] += 1
    return {
        slug: {kind: n / counter.total() for kind, n in sorted(counter.items())} for slug, counter in counts.items()
    }
