"""A GPU's solo power from job, power limit and GPU type: a soft minimum of demand and cap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from eaco_datasets.physics import demand_from_capped_w, soft_cap_w
from eaco_datasets.types import MAX_JOBS
from eaco_features.matrix import gpu_columns
from eaco_features.sets import BoolArray, FloatArray, IntArray, SetBatch
from eaco_predictor.families import family_weights
from eaco_predictor.models.base import known_targets
from eaco_predictor.targets import target_spec

_T = TypeVar("_T", bound=np.generic)

BATCH_EXPONENT = 0.5
"""How the odds of a saturated GPU grow with the batch size. Physics bounds it: 0 is a demand that ignores the batch, 1
is work per step proportional to it beside a fixed overhead. The middle is a choice, not a fit (decision 0003)."""
SHARPNESS_GRID = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0)
AT_CAP = 0.95
"""A reading above this share of its limit says only that the demand is at least that high."""
AT_FLOOR = 1.03
"""A reading below this multiple of the floor is a GPU that waits for its host, whatever the batch size."""


class Workload(NamedTuple):
    """What one measured configuration speaks for: the same job at other batch sizes and power limits."""

    family: str
    dataset: str
    optimizer: str
    gpu: str


@dataclass(frozen=True)
class _Readings:
    """Observed configurations of one workload, as arrays ``(n_readings,)``."""

    log_batch: FloatArray
    saturation: FloatArray
    capped: BoolArray
    floor_w: float


class SoftCap:
    """``power = soft minimum(demand, limit)``.

    The demand lies between the GPU's floor (least power of any training job on that type; idle watts of the
    catalogue where none was seen) and its default limit. Nothing known of the job: the training families' mean
    saturation. One configuration observed: its saturation, moved along the batch size by ``BATCH_EXPONENT``. Each job
    of a set is answered as if alone.
    """

    name: ClassVar[str] = "soft-cap"
    monotone: ClassVar[bool] = False

    def fit(self, sets: SetBatch, target: FloatArray) -> Self:
        known_targets(sets, target)
        chosen, power = readings_of(sets, target)
        self._floors = {chosen.gpus[code]: float(power[chosen.gpu == code].min()) for code in np.unique(chosen.gpu)}
        self.sharpness = self._fit_sharpness(chosen, power)
        floor, top, limit = self._bounds(chosen)
        demand = self._demand(power, limit, top)
        saturation = np.clip((demand - floor) / (top - floor), 0.0, 1.0)
        self.usual_saturation = float(np.average(saturation, weights=family_weights(chosen.family[:, 0])))
        self._readings: dict[Workload, _Readings] = {}
        return self

    def predict(self, sets: SetBatch) -> FloatArray:
        jobs, _ = each_alone(sets, np.full(sets.present.shape, np.nan))
        floor, top, limit = self._bounds(jobs)
        demand = floor + self.usual_saturation * (top - floor)
        if self._readings:
            codes, workloads = workload_codes(jobs)
            for code, workload in enumerate(workloads):
                if workload in self._readings:
                    at = codes == code
                    demand[at] = _moved_demand(self._readings[workload], jobs.batch_size[at, 0], top[at])
        grid = np.full(sets.present.shape, np.nan)
        grid[sets.rows] = soft_cap_w(demand, limit, self.sharpness)
        return target_spec("gpu_power_w").limit(sets, grid)

    def observe(self, sets: SetBatch, target: FloatArray) -> SoftCap:
        """The same model with these readings known."""
        chosen, power = readings_of(sets, target)
        floor, top, limit = self._bounds(chosen)
        demand = self._demand(power, limit, top)
        codes, workloads = workload_codes(chosen)
        readings = dict(self._readings)
        for code, workload in enumerate(workloads):
            at = codes == code
            low = min(float(floor[at][0]), float(power[at].min()))
            saturation = np.clip((demand[at] - low) / (top[at] - low), 0.0, 0.98)
            readings[workload] = _Readings(
                np.log(chosen.batch_size[at, 0]),
                np.where(power[at] < AT_FLOOR * low, 0.0, saturation),
                power[at] >= AT_CAP * limit[at],
                low,
            )
        observed = SoftCap()
        observed.__dict__.update(self.__dict__, _readings=readings)
        return observed

    def _bounds(self, sets: SetBatch) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Floor, highest demand and power limit of each set's GPU ``(n_sets,)``."""
        gpu = gpu_columns(sets)
        known = np.array([self._floors.get(slug, np.nan) for slug in sets.gpus])[sets.gpu]
        floor = np.where(np.isnan(known), gpu["idle_w"], known)
        top = gpu["power_limit_w"]
        return floor, top, np.where(np.isnan(sets.power_limit_w), top, sets.power_limit_w)

    def _demand(self, power: FloatArray, limit: FloatArray, top: FloatArray) -> FloatArray:
        freed = demand_from_capped_w(power, np.maximum(limit, power / AT_CAP), self.sharpness)
        return np.minimum(np.where(power >= AT_CAP * limit, top, freed), top)

    def _fit_sharpness(self, sets: SetBatch, power: FloatArray) -> float:
        """The sharpness under which one demand a config explains its readings at all limits best."""
        _, _, limit = self._bounds(sets)
        keys = sets.gpu * (int(sets.config.max()) + 1) + sets.config[:, 0]
        _, group = np.unique(keys, return_inverse=True)
        demands = np.geomspace(20.0, 2000.0, 120)
        losses = []
        for sharpness in SHARPNESS_GRID:
            predicted = soft_cap_w(demands[:, None], limit[None, :], sharpness)
            error = np.abs(np.log(predicted / power[None, :]))
            by_group = np.stack([np.bincount(group, weights=row) for row in error])
            losses.append(float(by_group.min(axis=0).sum()))
        return SHARPNESS_GRID[int(np.argmin(losses))]


def each_alone(sets: SetBatch, target: FloatArray) -> tuple[SetBatch, FloatArray]:
    """Every job as a set of its own, in the first place, in the order of ``sets.rows``; its target with it."""
    at_set, at_job = sets.rows
    n = len(at_set)
    order = (at_job[:, None] + np.arange(MAX_JOBS)) % MAX_JOBS
    first = np.arange(MAX_JOBS) == 0

    def moved(column: NDArray[_T], empty: object) -> NDArray[_T]:
        turned = column[at_set[:, None], order]
        return np.where(first.reshape(1, -1, *(1,) * (column.ndim - 2)), turned, np.array(empty, dtype=column.dtype))

    alone = replace(
        sets.take(at_set),
        present=np.broadcast_to(first, (n, MAX_JOBS)),
        family=moved(sets.family, -1),
        config=moved(sets.config, -1),
        batch_size=moved(sets.batch_size, np.nan),
        precision=moved(sets.precision, -1),
        solo=moved(sets.solo, np.nan),
        samples_per_epoch=moved(sets.samples_per_epoch, np.nan),
    )
    return alone, moved(target, np.nan)


def readings_of(sets: SetBatch, target: FloatArray) -> tuple[SetBatch, FloatArray]:
    """The jobs with a known power, each alone, and their watts ``(n_readings,)``."""
    jobs, power = each_alone(sets, target)
    known = np.isfinite(power[:, 0])
    return jobs.take(known), power[known, 0]


def workload_codes(sets: SetBatch) -> tuple[IntArray, list[Workload]]:
    """Workload code of each (solo) set ``(n_sets,)`` and the workloads they stand for."""
    found: dict[Workload, int] = {}
    codes = np.empty(len(sets), dtype=np.int64)
    for i, (gpu, config) in enumerate(zip(sets.gpu, sets.config[:, 0], strict=True)):
        key = sets.configs[config]
        codes[i] = found.setdefault(Workload(key.family, key.dataset, key.optimizer, sets.gpus[gpu]), len(found))
    return codes, list(found)


def _moved_demand(readings: _Readings, batch_size: FloatArray, top_w: FloatArray) -> FloatArray:
    """Demand at other batch sizes ``(n,)``: readings moved along the odds of saturation, the nearest batch first."""
    step = np.log(batch_size)[:, None] - readings.log_batch[None, :]
    saturation = readings.saturation[None, :]
    odds = saturation / (1.0 - saturation) * np.exp(BATCH_EXPONENT * step)
    weight = np.where(readings.capped, 0.1, 1.0)[None, :] / (0.1 + np.abs(step)) ** 2
    moved = np.average(odds / (1.0 + odds), weights=weight, axis=1)
    return np.asarray(readings.floor_w + moved * (top_w - readings.floor_w), dtype=float)
