"""Contention, power and memory formulas: each lives here, once. All are vectorised over numpy arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

FAN_EXPONENT = 1.4
"""Exponent r of the empirical server-power curve of Fan et al., ISCA 2007 (calibrated value commonly reused)."""


def time_slice_speed(own_util_pct: ArrayLike, others_util_pct: ArrayLike) -> FloatArray:
    """Relative speed when a full GPU is shared in proportion to demand: ``min(1, 100 / sum of utilisations)``."""
    total = np.asarray(own_util_pct, dtype=float) + np.asarray(others_util_pct, dtype=float)
    speed: FloatArray = np.minimum(1.0, 100.0 / np.maximum(total, 1e-9))
    return speed


def soft_minimum_speed(
    own_util_pct: ArrayLike, others_util_pct: ArrayLike, capacity_pct: float, sharpness: float
) -> FloatArray:
    """Smooth form of time slicing: ``(1 + ((u + u_others) / c)^p)^(-1/p)``.

    Tends to ``min(1, c / sum)`` as the sharpness ``p`` grows; falls with either utilisation.
    """
    total = np.asarray(own_util_pct, dtype=float) + np.asarray(others_util_pct, dtype=float)
    load = np.maximum(total, 0.0) / capacity_pct
    speed: FloatArray = np.power(1.0 + np.power(load, sharpness), -1.0 / sharpness)
    return speed


def fan_power_w(
    idle_w: ArrayLike, busy_w: ArrayLike, util_pct: ArrayLike, exponent: float = FAN_EXPONENT
) -> FloatArray:
    """Power at a utilisation: ``idle + (busy - idle) (2u - u^r)`` (Fan et al., ISCA 2007), u clipped to 0..1."""
    idle = np.asarray(idle_w, dtype=float)
    u = np.clip(np.asarray(util_pct, dtype=float) / 100.0, 0.0, 1.0)
    power_w: FloatArray = idle + (np.asarray(busy_w, dtype=float) - idle) * (2.0 * u - np.power(u, exponent))
    return power_w


def soft_cap_w(demand_w: ArrayLike, cap_w: ArrayLike, sharpness: float) -> FloatArray:
    """Smooth minimum of what a job would draw and what the power limit lets it: ``(d^-p + c^-p)^(-1/p)``."""
    demand = np.maximum(np.asarray(demand_w, dtype=float), 1e-9)
    cap = np.maximum(np.asarray(cap_w, dtype=float), 1e-9)
    small, large = np.minimum(demand, cap), np.maximum(demand, cap)
    power_w: FloatArray = small * np.power(1.0 + np.power(small / large, sharpness), -1.0 / sharpness)
    return power_w


# Memory. A job's solo peak, as nvidia-smi shows it, already holds the process's CUDA context.

CUDA_CONTEXT_MIB = 500.0
"""Memory of one process's CUDA context with its library handles (choice: 300-600 MiB is usual; the size of the
kernel images it loads decides)."""

DRIVER_RESERVE_MIB = 600.0
"""Memory the driver keeps from every process (choice, rounded up from the 569 MiB that nvidia-smi reports as reserved
on an A40, NVIDIA/open-gpu-kernel-modules issue 874)."""


def set_memory_mib(solo_peak_mib: ArrayLike, present: ArrayLike) -> FloatArray:
    """Memory of a set, ``(n_sets,)``: the sum of its jobs' solo peaks ``(n_sets, n_jobs)``, and nothing on top.

    ``present`` says where there is a job; an unknown peak of a present job makes the sum NaN.
    """
    peaks = np.where(np.asarray(present, dtype=bool), np.asarray(solo_peak_mib, dtype=float), 0.0)
    return np.asarray(peaks.sum(axis=-1), dtype=float)


def out_of_memory(needed_mib: ArrayLike, capacity_mib: ArrayLike) -> BoolArray:
    """Whether a set needs more than the GPU has; an unknown need is not known to fail."""
    return np.asarray(needed_mib, dtype=float) > np.asarray(capacity_mib, dtype=float)


# Contention as the simulator's truth has it: shares, waits and a bandwidth roofline. No learned model may use it.


@dataclass(frozen=True, slots=True)
class SharingCosts:
    """What one sharing mode costs. Every value is a choice, of the size that the profiling literature describes.

    Args:
        spatial: jobs run side by side on different SMs (MPS), so that a job demands its busy time x the share of SMs
            it fills; otherwise they take turns (time slicing) and a job demands its busy time.
        switch_loss: share of the GPU's time lost for each job after the first, to context switches.
        wait: a kernel's wait for the others' kernels below saturation, as a share of its own length when the others
            keep the GPU always busy.
        coincidence: share of the others' memory traffic that falls into a job's own kernels.
        cache_loss: how much longer the memory-bound part takes when the others use the whole bandwidth, from lost
            cache and TLB contents.
        usable_bandwidth: share of the data-sheet bandwidth that streams together can reach.
    """

    spatial: bool
    switch_loss: float
    wait: float
    coincidence: float
    cache_loss: float
    usable_bandwidth: float


TIME_SLICE_COSTS = SharingCosts(
    spatial=False, switch_loss=0.03, wait=0.35, coincidence=0.15, cache_loss=0.1, usable_bandwidth=0.85
)
MPS_COSTS = SharingCosts(
    spatial=True, switch_loss=0.0, wait=0.12, coincidence=0.6, cache_loss=0.2, usable_bandwidth=0.85
)


@dataclass(frozen=True, slots=True)
class StepLoads:
    """One training step of each job alone on this GPU; arrays ``(n_sets, n_jobs)``, 0 where there is no job.

    ``occupancy`` is the share of the SMs that its kernels fill, ``memory_bound`` the share of its kernel time that
    waits for memory, ``bandwidth`` the share of the data-sheet bandwidth it uses on average over the step.
    """

    host_s: FloatArray
    kernel_s: FloatArray
    occupancy: FloatArray
    memory_bound: FloatArray
    bandwidth: FloatArray


class Contention(NamedTuple):
    """What sharing does: relative speed ``(n_sets, n_jobs)``, NaN where there is no job; share of time that each job
    keeps the GPU busy ``(n_sets, n_jobs)``; share of time that anything runs on the GPU ``(n_sets,)``."""

    relative_speed: FloatArray
    busy: FloatArray
    gpu_busy: FloatArray


def overlapped_step_s(host_s: ArrayLike, kernel_s: ArrayLike, overlap: float) -> FloatArray:
    """Step time when host and GPU work overlap in part: the longer, plus ``1 - overlap`` of the shorter."""
    host, kernel = np.asarray(host_s, dtype=float), np.asarray(kernel_s, dtype=float)
    step_s: FloatArray = np.maximum(host, kernel) + (1.0 - overlap) * np.minimum(host, kernel)
    return step_s


def max_min_share(demand: ArrayLike, capacity: ArrayLike) -> FloatArray:
    """Max-min fair shares ``(n_sets, n_jobs)`` of a capacity ``(n_sets,)``: nobody gets more than he asks for, and
    what he leaves is split evenly among those who ask for more (water filling, Bertsekas and Gallager 1992, 6.5.2)."""
    asked = np.asarray(demand, dtype=float)
    order = np.argsort(asked, axis=-1, kind="stable")
    ascending = np.take_along_axis(asked, order, axis=-1)
    left = np.broadcast_to(np.asarray(capacity, dtype=float), asked.shape[:-1]).copy()
    given = np.empty_like(ascending)
    n_jobs = asked.shape[-1]
    for place in range(n_jobs):
        given[..., place] = np.minimum(ascending[..., place], left / (n_jobs - place))
        left -= given[..., place]
    shares = np.empty_like(given)
    np.put_along_axis(shares, order, given, axis=-1)
    return shares


def contend(loads: StepLoads, costs: SharingCosts, overlap: float) -> Contention:
    """How jobs that share a GPU slow each other down.

    1. Bandwidth: the memory-bound part of a job's kernels is stretched by the bandwidth use that coincides over what
       is usable (a roofline), and by the cache contents lost to the others.
    2. Waiting: each kernel waits for a part of the others' busy time. What hides behind host work costs nothing.
    3. Saturation: GPU time (or SM time, ``costs.spatial``) is shared max-min fairly, less what switching loses.

    A job alone keeps its speed of 1; more load on the others never speeds it up; the order of jobs does not matter.
    """
    present = loads.kernel_s > 0
    step_s = overlapped_step_s(loads.host_s, loads.kernel_s, overlap)
    busy = np.divide(loads.kernel_s, step_s, out=np.zeros_like(step_s), where=present)
    stretch = _memory_stretch(loads, costs)
    filled = loads.occupancy if costs.spatial else np.ones_like(busy)
    demand = busy * stretch * filled
    capacity = 1.0 - costs.switch_loss * np.maximum(present.sum(axis=-1) - 1, 0)
    share = max_min_share(demand, capacity)
    served = np.divide(share, demand, out=np.ones_like(demand), where=present & (demand > 0))

    others_demand = np.minimum(_of_others(busy * filled), 1.0)
    waiting_s = overlapped_step_s(loads.host_s, loads.kernel_s * stretch * (1.0 + costs.wait * others_demand), overlap)
    unhindered = np.divide(step_s, waiting_s, out=np.ones_like(step_s), where=present)
    speed = np.minimum(unhindered, served)

    kept_busy = speed * busy * stretch
    side_by_side = 1.0 - np.prod(1.0 - np.minimum(kept_busy, 1.0), axis=-1)
    in_turn = np.minimum(kept_busy.sum(axis=-1) / capacity, 1.0)
    return Contention(np.where(present, speed, np.nan), kept_busy, side_by_side if costs.spatial else in_turn)


def _memory_stretch(loads: StepLoads, costs: SharingCosts) -> FloatArray:
    """How much longer each job's kernels take because of the others' memory traffic; 1 when alone."""
    others = _of_others(loads.bandwidth)
    crowded = np.maximum((loads.bandwidth + costs.coincidence * others) / costs.usable_bandwidth, 1.0)
    alone = np.maximum(loads.bandwidth / costs.usable_bandwidth, 1.0)
    cache = 1.0 + costs.cache_loss * np.minimum(others, 1.0)
    stretch: FloatArray = 1.0 + loads.memory_bound * (crowded / alone * cache - 1.0)
    return stretch


def _of_others(values: FloatArray) -> FloatArray:
    """The sum over the other jobs of the set; exactly 0 for a job alone."""
    n_jobs = values.shape[-1]
    others: FloatArray = values @ (np.ones((n_jobs, n_jobs)) - np.eye(n_jobs))
    return others


def saturating_power_w(
    idle_w: ArrayLike, limit_w: ArrayLike, activity: ArrayLike, *, awake: float, curvature: float
) -> FloatArray:
    """Power of a GPU that works: ``idle + (limit - idle) (awake + (1 - awake) (1 - e^(-k a)) / (1 - e^-k))``.

    ``activity`` a is clipped to 0..1; ``awake`` is the share of the range drawn as soon as a process holds a context
    (clocks up); ``curvature`` k > 0 makes the rise concave. Always between idle and limit. A choice of this project,
    and a form that no fitted power model here uses.
    """
    idle = np.asarray(idle_w, dtype=float)
    a = np.clip(np.asarray(activity, dtype=float), 0.0, 1.0)
    rise = awake + (1.0 - awake) * np.expm1(-curvature * a) / np.expm1(-curvature)
    power_w: FloatArray = idle + (np.asarray(limit_w, dtype=float) - idle) * rise
    return power_w


def demand_from_capped_w(power_w: ArrayLike, cap_w: ArrayLike, sharpness: float) -> FloatArray:
    """The demand that ``soft_cap_w`` turns into ``power_w`` under ``cap_w``; needs ``power_w < cap_w``."""
    power = np.asarray(power_w, dtype=float)
    share = power / np.asarray(cap_w, dtype=float)
    demand_w: FloatArray = power * np.power(1.0 - np.power(share, sharpness), -1.0 / sharpness)
    return demand_w
