"""What can be learned, with its unit and its physical limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from eaco_datasets.errors import UnknownNameError
from eaco_datasets.types import MAX_RELATIVE_SPEED
from eaco_features.matrix import gpu_columns
from eaco_features.sets import FloatArray, SetBatch

MIN_RELATIVE_SPEED = 0.01
"""Lower physical limit: a running job never stands still (choice; the slowest measured pair runs at 0.05)."""


@dataclass(frozen=True)
class Target:
    """One quantity to learn. ``clip`` bounds a measured target from above before it is learned or scored.

    ``shared`` says that the quantity belongs to the whole set and is repeated on each job; ``known_alone`` that of a
    job alone it is what its solo profile says, without doubt.
    """

    name: str
    unit: str
    shared: bool
    known_alone: bool
    clip: float | None
    limit: Callable[[SetBatch, FloatArray], FloatArray]

    def clipped(self, values: FloatArray) -> FloatArray:
        """Targets or predictions under the clip."""
        return values if self.clip is None else np.minimum(values, self.clip)


def _relative_speed(sets: SetBatch, values: FloatArray) -> FloatArray:
    bounded = np.clip(values, MIN_RELATIVE_SPEED, MAX_RELATIVE_SPEED)
    alone = (sets.n_jobs == 1)[:, None]
    return np.where(sets.present, np.where(alone, 1.0, bounded), np.nan)


def _gpu_power_w(sets: SetBatch, values: FloatArray) -> FloatArray:
    low, high = power_bounds_w(sets)
    return np.where(sets.present, np.fmin(np.fmax(values, low[:, None]), high[:, None]), np.nan)


def _percent(sets: SetBatch, values: FloatArray) -> FloatArray:
    return np.where(sets.present, np.clip(values, 0.0, 100.0), np.nan)


def _positive(sets: SetBatch, values: FloatArray) -> FloatArray:
    return np.where(sets.present, np.maximum(values, 0.0), np.nan)


def power_bounds_w(sets: SetBatch) -> tuple[FloatArray, FloatArray]:
    """Idle watts and power limit of each set's GPU ``(n_sets,)``; NaN for a device outside the catalogue."""
    gpu = gpu_columns(sets)
    high = np.where(np.isnan(sets.power_limit_w), gpu["power_limit_w"], sets.power_limit_w)
    return np.fmin(gpu["idle_w"], high), high


TARGET_SPECS: Mapping[str, Target] = {
    t.name: t
    for t in (
        Target("relative_speed", "1", False, True, MAX_RELATIVE_SPEED, _relative_speed),
        Target("gpu_power_w", "W", True, False, None, _gpu_power_w),
        Target("node_power_w", "W", True, False, None, _positive),
        Target("mem_mib", "MiB", True, True, None, _positive),
        Target("gpu_util_pct", "%", True, True, None, _percent),
        Target("mem_util_pct", "%", True, True, None, _percent),
        Target("epoch_s", "s", False, False, None, _positive),
    )
}


def target_spec(name: str) -> Target:
    """The target of that name.

    Raises:
        UnknownNameError: nobody learns it.
    """
    if name not in TARGET_SPECS:
        raise UnknownNameError("target", name, TARGET_SPECS)
    return TARGET_SPECS[name]
