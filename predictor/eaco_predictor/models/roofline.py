"""What a job does alone on a GPU, from its graph and the data sheet: few parameters, learned over families.

A step is bounded by its kernels on the GPU and by the host that feeds them:

    busy = e x roofline time,   host = h x kernels + l x samples,   step = (busy^p + host^p)^(1/p)

with ``e`` how far kernels stay behind data-sheet peaks, ``h`` the host's time per kernel (eager dispatch), ``l`` per
sample (loading the data) and ``p`` how well the two overlap (1 = not at all). ``busy / step`` is the duty of the GPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import copy
from typing import ClassVar, NamedTuple, Self

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from eaco_datasets.physics import CUDA_CONTEXT_MIB, soft_cap_w
from eaco_features.job_graphs import roofline_columns, steps_per_epoch
from eaco_features.matrix import gpu_columns
from eaco_features.sets import FloatArray, IntArray, SetBatch
from eaco_predictor.families import family_weights
from eaco_predictor.models.base import known_targets
from eaco_predictor.models.baselines import Mean
from eaco_predictor.targets import target_spec


class Prior(NamedTuple):
    """Where a parameter starts and how far, as a factor, it may stray before data must speak for it."""

    value: float
    factor: float


HOST_S_PER_KERNEL = Prior(60e-6, 2.7)
INEFFICIENCY = Prior(1.5, 1.65)
HOST_S_PER_SAMPLE = Prior(1e-5, 2.7)
OVERLAP = Prior(1.5, 2.7)
"""Orders of magnitude, not measurements: eager frameworks dispatch a kernel (forward, autograd and optimizer together)
in some ten microseconds; kernels reach some two thirds of the roofline; a small sample is loaded in some ten
microseconds. With so few families the fit needs them; they were set knowing the public solo tables, so they are part of
what ``docs/evaluation.md`` says of these figures."""
GPU_FACTOR = 1.65
"""How far a GPU type's kernels may stray from the common inefficiency."""
PRIOR_WEIGHT = 0.02
FARTHEST = 4.0
"""Most that a parameter may stray, in factors of its prior."""
ERROR_SCALE = 0.1
"""Where the loss turns from squared to absolute, as a relative error."""


class RooflineModel(ABC):
    """Base: parameters fitted by a pseudo-Huber loss with every family weighted alike, under the priors above.

    Each job of a set is answered as if alone; one without a graph, or on a GPU without a data sheet, with the training
    mean (``from_graph`` leaves it unknown).
    """

    name: ClassVar[str] = "roofline"
    monotone: ClassVar[bool] = False
    target: ClassVar[str]
    priors: ClassVar[dict[str, Prior]] = {
        "host_s_per_kernel": HOST_S_PER_KERNEL,
        "inefficiency": INEFFICIENCY,
        "host_s_per_sample": HOST_S_PER_SAMPLE,
        "overlap": OVERLAP,
    }

    def __init__(self) -> None:
        self.parameters = {name: prior.value for name, prior in self.priors.items()}
        self.gpu_factor: Mapping[str, float] = {}

    @classmethod
    def of_priors(cls, other: RooflineModel | None = None) -> Self:
        """An unfitted model that answers with its priors, and with the parameters that it shares with another one."""
        model = cls()
        if other is not None:
            model.parameters |= {name: value for name, value in other.parameters.items() if name in cls.priors}
            model.gpu_factor = other.gpu_factor
        return model

    def fit(self, sets: SetBatch, target: FloatArray) -> Self:
        known = known_targets(sets, target)
        self._learn_of_data(sets, target)
        self.parameters, self.gpu_factor = type(self).of_priors().parameters, {}
        self._usual = Mean(self.target).fit(sets, target)
        known &= np.isfinite(self._formula(sets)) & (target > 0)
        if not known.any():
            return self
        gpu = np.broadcast_to(sets.gpu[:, None], known.shape)[known]
        used = np.unique(gpu)
        names, n = list(self.priors), len(self.priors)
        at = np.nonzero(known.any(axis=1))[0]
        chosen, rows, observed = sets.take(at), known[at], target[known]
        weights = _weights(sets.family[known], gpu)
        centre = np.concatenate([np.log([p.value for p in self.priors.values()]), np.zeros(len(used))])
        spread = np.log([*(p.factor for p in self.priors.values()), *[GPU_FACTOR] * len(used)])
        columns = _Columns.of(chosen)

        def apply(theta: FloatArray) -> None:
            self.parameters = {name: float(np.exp(value)) for name, value in zip(names, theta[:n], strict=True)}
            self.gpu_factor = {sets.gpus[code]: float(np.exp(v)) for code, v in zip(used, theta[n:], strict=True)}

        def loss(theta: FloatArray) -> float:
            apply(theta)
            error = self._error(self._formula(chosen, columns)[rows], observed)
            fit = np.average(np.sqrt(error**2 + ERROR_SCALE**2), weights=weights)
            return float(fit + PRIOR_WEIGHT * (((theta - centre) / spread) ** 2).sum())

        within = list(zip(centre - FARTHEST * spread, centre + FARTHEST * spread, strict=True))
        apply(minimize(loss, centre, method="L-BFGS-B", bounds=within).x)
        return self

    def with_gpu(self, gpu: str, sets: SetBatch, target: FloatArray) -> Self:
        """A copy whose inefficiency on a GPU type is learned from a few jobs on it, all else being as it was."""
        known = sets.present & np.isfinite(target) & (target > 0) & np.isfinite(self._formula(sets))
        if not known.any():
            return self
        adapted = copy(self)

        def loss(log_factor: float) -> float:
            adapted.gpu_factor = {**self.gpu_factor, gpu: float(np.exp(log_factor))}
            error = self._error(adapted._formula(sets)[known], target[known])
            strayed = log_factor / np.log(GPU_FACTOR)
            return float(np.sqrt(error**2 + ERROR_SCALE**2).mean() + PRIOR_WEIGHT * strayed**2)

        loss(float(minimize_scalar(loss, bounds=(-2.0, 2.0), method="bounded").x))
        return adapted

    def predict(self, sets: SetBatch) -> FloatArray:
        found = self.from_graph(sets)
        return np.where(np.isnan(found), self._usual.predict(sets), found)

    def from_graph(self, sets: SetBatch) -> FloatArray:
        """The target ``(n_sets, MAX_JOBS)`` within its limits; NaN without a graph or a data sheet."""
        found = self._formula(sets)
        return np.where(np.isnan(found), np.nan, target_spec(self.target).limit(sets, found))

    def _learn_of_data(self, sets: SetBatch, target: FloatArray) -> None:
        """What is read off the training rows before the fit; nothing unless a model says so."""
        del sets, target

    @abstractmethod
    def _formula(self, sets: SetBatch, columns: _Columns | None = None) -> FloatArray:
        """The target ``(n_sets, MAX_JOBS)`` under the present parameters."""

    def _error(self, predicted: FloatArray, observed: FloatArray) -> FloatArray:
        error: FloatArray = np.log(np.maximum(predicted, 1e-12) / observed)
        return error

    def _step(self, sets: SetBatch, columns: _Columns) -> tuple[FloatArray, FloatArray]:
        """Step time in s and duty of the GPU ``(n_sets, MAX_JOBS)``."""
        p = self.parameters
        factor = np.array([self.gpu_factor.get(slug, 1.0) for slug in sets.gpus] or [1.0])[sets.gpu][:, None]
        log_busy = np.log(p["inefficiency"] * factor) + columns.log_busy_s
        log_host = np.log(p["host_s_per_kernel"] * columns.launches + p["host_s_per_sample"] * columns.samples)
        overlap = p["overlap"]
        with np.errstate(invalid="ignore"):  # NaN where there is no graph
            log_step = np.logaddexp(overlap * log_busy, overlap * log_host) / overlap
        return np.exp(log_step), np.exp(log_busy - log_step)


class RooflineEpoch(RooflineModel):
    """Epoch time = step time x steps in an epoch."""

    target: ClassVar[str] = "epoch_s"

    def step_and_duty(self, sets: SetBatch) -> tuple[FloatArray, FloatArray]:
        """Time of one step in s, and the share of it in which the GPU computes, each ``(n_sets, MAX_JOBS)``."""
        return self._step(sets, _Columns.of(sets))

    def _formula(self, sets: SetBatch, columns: _Columns | None = None) -> FloatArray:
        columns = columns or _Columns.of(sets)
        return self._step(sets, columns)[0] * columns.steps


class RooflineUtil(RooflineModel):
    """GPU utilisation = the GPU's duty."""

    target: ClassVar[str] = "gpu_util_pct"

    def _formula(self, sets: SetBatch, columns: _Columns | None = None) -> FloatArray:
        return 100.0 * self._step(sets, columns or _Columns.of(sets))[1]

    def _error(self, predicted: FloatArray, observed: FloatArray) -> FloatArray:
        error: FloatArray = (predicted - observed) / 100.0
        return error


class RooflineMemUtil(RooflineUtil):
    """Memory utilisation = duty x the bytes' share of the kernels' time x what a full memory pipe reads as."""

    target: ClassVar[str] = "mem_util_pct"
    priors: ClassVar[dict[str, Prior]] = {**RooflineModel.priors, "full_share": Prior(0.8, 1.65)}

    def _formula(self, sets: SetBatch, columns: _Columns | None = None) -> FloatArray:
        columns = columns or _Columns.of(sets)
        return 100.0 * self.parameters["full_share"] * columns.byte_share * self._step(sets, columns)[1]


class RooflinePower(RooflineModel):
    """GPU power = soft minimum of demand and limit; the demand rises with the duty from the GPU's floor.

    The floor is the least power of any training job on that type (the catalogue's idle watts where none was seen),
    as in ``eaco_predictor.models.solo_power``.
    """

    target: ClassVar[str] = "gpu_power_w"
    priors: ClassVar[dict[str, Prior]] = {
        **RooflineModel.priors,
        "top_share": Prior(0.8, 1.2),
        "cap_sharpness": Prior(8.0, 2.0),
    }

    def _learn_of_data(self, sets: SetBatch, target: FloatArray) -> None:
        known = sets.present & np.isfinite(target)
        gpu = np.broadcast_to(sets.gpu[:, None], known.shape)[known]
        self._floors = {sets.gpus[code]: float(target[known][gpu == code].min()) for code in np.unique(gpu)}

    def _formula(self, sets: SetBatch, columns: _Columns | None = None) -> FloatArray:
        duty = self._step(sets, columns or _Columns.of(sets))[1]
        sheet = gpu_columns(sets)
        known = np.array([self._floors.get(slug, np.nan) for slug in sets.gpus] or [np.nan])[sets.gpu]
        floor = np.where(np.isnan(known), sheet["idle_w"], known)[:, None]
        top = sheet["power_limit_w"][:, None]
        limit = np.where(np.isnan(sets.power_limit_w), sheet["power_limit_w"], sets.power_limit_w)[:, None]
        demand = floor + np.maximum(self.parameters["top_share"] * top - floor, 0.0) * duty
        return soft_cap_w(demand, np.broadcast_to(limit, demand.shape), self.parameters["cap_sharpness"])


class RooflineMemory(RooflineModel):
    """Memory = a process's context + what the allocator holds for the graph's peak."""

    target: ClassVar[str] = "mem_mib"
    priors: ClassVar[dict[str, Prior]] = {
        "context_mib": Prior(3.0 * CUDA_CONTEXT_MIB, 2.0),
        "held_share": Prior(1.1, 1.2),
    }

    def _formula(self, sets: SetBatch, columns: _Columns | None = None) -> FloatArray:
        columns = columns or _Columns.of(sets)
        return self.parameters["context_mib"] + self.parameters["held_share"] * columns.memory_mib


class _Columns(NamedTuple):
    """Roofline figures of a batch, ready for the formulas; ``(n_sets, MAX_JOBS)`` each."""

    log_busy_s: FloatArray
    launches: FloatArray
    samples: FloatArray
    steps: FloatArray
    byte_share: FloatArray
    memory_mib: FloatArray

    @classmethod
    def of(cls, sets: SetBatch) -> _Columns:
        roofline = roofline_columns(sets)
        return cls(
            np.log(roofline.busy_s),
            roofline.launches,
            roofline.samples,
            steps_per_epoch(sets),
            roofline.memory_s / (roofline.memory_s + roofline.compute_s),
            roofline.memory_mib,
        )


def _weights(family: IntArray, gpu: IntArray) -> FloatArray:
    """Weights ``(n_rows,)``: families alike, and inside a family its GPU types."""
    pair = family_weights(np.unique(np.stack([family, gpu]), axis=1, return_inverse=True)[1])
    total = np.bincount(family, weights=pair)
    weights: FloatArray = pair / total[family]
    return weights
