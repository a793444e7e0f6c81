"""What readings of sensors are worth: impossible values dropped, energy between two moments. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from eaco_datasets.profiling.device import Reading

HIGHEST_POWER_RATIO = 1.5
"""A power above this multiple of the limit is a spike of the sensor, not of the device (choice)."""

_UNLIMITED_POWER_W = 5000.0  # where the limit is unknown: more than any single device draws (choice)
_HIGHEST_ENERGY_J = 1e13  # a kilowatt for three centuries (choice): NVML's "not available" lies above it
_HIGHEST_CLOCK_MHZ = 10_000.0  # (choice)
_TEMPERATURE_C = (-40.0, 150.0)  # beyond what silicon survives (choice)
_STUCK_AFTER_S = 1.0  # a counter that stands still for longer is not counting (choice: NVML's moves every 0.1 s)


@dataclass(frozen=True)
class Energy:
    """Energy of a device over a span of time.

    ``energy_j`` is the counter's where it can be believed, else the integral of the sampled power; None when neither
    is known. ``source`` says which: ``energy-counter``, ``power-instant`` or ``power-average``. ``disagreement`` is
    how far the integral is from the counter, as a share of the counter; None unless both are known.
    """

    span_s: float
    energy_j: float | None = None
    source: str | None = None
    disagreement: float | None = None

    @property
    def mean_w(self) -> float | None:
        """Mean power over the span; None when the energy is unknown."""
        return None if self.energy_j is None or self.span_s <= 0 else self.energy_j / self.span_s


def plausible(raw: Reading, *, power_limit_w: float | None, memory_mib: float) -> Reading:
    """The reading without the values that cannot be; each one dropped counts as ``impossible``.

    Impossible are: power not above 0, or above ``HIGHEST_POWER_RATIO`` times the limit; utilisation outside 0 to 100;
    memory above the device's; a clock of 0; what is no finite number. NVML's marks for "not available" (all bits set)
    are all beyond these bounds.
    """
    highest_w = HIGHEST_POWER_RATIO * power_limit_w if power_limit_w else _UNLIMITED_POWER_W
    smallest = math.ulp(0.0)
    bounds = {
        "power_w": (smallest, highest_w),
        "power_average_w": (smallest, highest_w),
        "energy_j": (0.0, _HIGHEST_ENERGY_J),
        "gpu_util_pct": (0.0, 100.0),
        "mem_util_pct": (0.0, 100.0),
        "mem_mib": (0.0, memory_mib),
        "sm_clock_mhz": (smallest, _HIGHEST_CLOCK_MHZ),
        "temperature_c": _TEMPERATURE_C,
    }
    known = {name: value for name in bounds if (value := getattr(raw, name)) is not None}
    dropped = {name: None for name, value in known.items() if not bounds[name][0] <= value <= bounds[name][1]}
    return replace(raw, **dropped, impossible=raw.impossible + len(dropped))  # type: ignore[arg-type]


def energy_between(readings: Sequence[Reading], *, power_limit_w: float | None = None) -> Energy:
    """The energy from the first reading to the last, in order of time.

    A counter that goes back (wrap or restart), stands still or rises faster than the device can draw is not believed:
    the sampled power is integrated instead (trapezoids between the moments that know it, its ends held), the instant
    one before the averaged one.
    """
    if len(readings) < 2:
        return Energy(0.0)
    span_s = readings[-1].at_s - readings[0].at_s
    integral_j, source = _integral_j(readings)
    counted_j = _counted_j(readings, power_limit_w)
    if counted_j is None:
        return Energy(span_s, integral_j, source)
    disagreement = None if integral_j is None or counted_j <= 0 else abs(integral_j - counted_j) / counted_j
    return Energy(span_s, counted_j, "energy-counter", disagreement)


def _counted_j(readings: Sequence[Reading], power_limit_w: float | None) -> float | None:
    """The counter's energy, stretched to the whole span where its first or last readings are missing."""
    known = [(r.at_s, r.energy_j) for r in readings if r.energy_j is not None]
    if len(known) < 2 or any(later < sooner for (_, sooner), (_, later) in pairwise(known)):
        return None
    counted_s, counted_j = known[-1][0] - known[0][0], known[-1][1] - known[0][1]
    span_s = readings[-1].at_s - readings[0].at_s
    if counted_s <= 0 or counted_s < span_s / 2 or (counted_j == 0 and counted_s > _STUCK_AFTER_S):
        return None
    highest_w = HIGHEST_POWER_RATIO * power_limit_w if power_limit_w else _UNLIMITED_POWER_W
    return None if counted_j > highest_w * counted_s else counted_j * span_s / counted_s


def _integral_j(readings: Sequence[Reading]) -> tuple[float | None, str | None]:
    start_s, end_s = readings[0].at_s, readings[-1].at_s
    for field, source in (("power_w", "power-instant"), ("power_average_w", "power-average")):
        known = [(r.at_s, power_w) for r in readings if (power_w := getattr(r, field)) is not None]
        if known and len(known) * 2 >= len(readings):
            at_s, power_w = zip((start_s, known[0][1]), *known, (end_s, known[-1][1]), strict=True)
            return float(np.trapezoid(power_w, at_s)), source
    return None, None
