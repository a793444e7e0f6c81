"""Contention, power and memory formulas: each lives here, once. All are vectorised over numpy arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

FAN_EXPONENT = 1.4
"""Exponent r of the empirical server-power curve of Fan et al., ISCA 2007 (calibrated value commonly reused)."""


def time_slice_speed(own_util_pct: ArrayLike, others_util_pct: ArrayLike) -> FloatArray:
    """Relative speed when a full GPU is shared in proportion to demand: ``min(1, 100 / sum of utilisations)``."""
    total = np.asarray(own_util_pct, dtype=float) + np.asarray(others_util_pct, dtype=float)
    return np.minimum(1.0, 100.0 / np.maximum(total, 1e-9))


def soft_minimum_speed(
    own_util_pct: ArrayLike, others_util_pct: ArrayLike, capacity_pct: float, sharpness: float
) -> FloatArray:
    """Smooth form of time slicing: ``(1 + ((u + u_others) / c)^p)^(-1/p)``.

    Tends to ``min(1, c / sum)`` as the sharpness ``p`` grows; falls with either utilisation.
    """
    total = np.asarray(own_util_pct, dtype=float) + np.asarray(others_util_pct, dtype=float)
    load = np.maximum(total, 0.0) / capacity_pct
    return np.power(1.0 + np.power(load, sharpness), -1.0 / sharpness)


def fan_power_w(
    idle_w: ArrayLike, busy_w: ArrayLike, util_pct: ArrayLike, exponent: float = FAN_EXPONENT
) -> FloatArray:
    """Power at a utilisation: ``idle + (busy - idle) (2u - u^r)`` (Fan et al., ISCA 2007), u clipped to 0..1."""
    idle = np.asarray(idle_w, dtype=float)
    u = np.clip(np.asarray(util_pct, dtype=float) / 100.0, 0.0, 1.0)
    return idle + (np.asarray(busy_w, dtype=float) - idle) * (2.0 * u - np.power(u, exponent))


def soft_cap_w(demand_w: ArrayLike, cap_w: ArrayLike, sharpness: float) -> FloatArray:
    """Smooth minimum of what a job would draw and what the power limit lets it: ``(d^-p + c^-p)^(-1/p)``."""
    demand = np.maximum(np.asarray(demand_w, dtype=float), 1e-9)
    cap = np.maximum(np.asarray(cap_w, dtype=float), 1e-9)
    small, large = np.minimum(demand, cap), np.maximum(demand, cap)
    return small * np.power(1.0 + np.power(small / large, sharpness), -1.0 / sharpness)
