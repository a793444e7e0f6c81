"""Solo profiles of jobs that come without: predicted from the model graph and the GPU's data sheet."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Self, TypeVar

import numpy as np

from eaco_datasets.errors import DataError
from eaco_features.job_graphs import steps_per_epoch
from eaco_features.sets import SOLO_FIELDS, BoolArray, FloatArray, IntArray, SetBatch
from eaco_predictor.families import MAX_INNER_FOLDS, families_of_targets
from eaco_predictor.models.roofline import RooflineEpoch, RooflineMemory, RooflineMemUtil, RooflineModel, RooflineUtil
from eaco_predictor.models.solo_power import each_alone

_THROUGHPUT, _EPOCH, _UTIL, _MEM_UTIL, _MEM = (
    SOLO_FIELDS.index(name) for name in ("throughput_samples_s", "epoch_s", "gpu_util_pct", "mem_util_pct", "mem_mib")
)


_READ = [_THROUGHPUT, _UTIL, _MEM_UTIL, _MEM]
"""What models read of a solo profile."""

_Model = TypeVar("_Model", bound=RooflineModel)


class SoloFill:
    """Fills what is unknown of a job's solo profile, all but its power.

    Each quantity has its roofline model, fitted on the solo profiles of the training jobs. Where none of them states a
    utilisation, it is the duty that the step times imply (Gavel's tables hold throughputs alone); where nothing is
    stated, the priors answer. A job without a graph, or on a GPU without a data sheet, stays as it is.
    """

    def fit(self, sets: SetBatch) -> Self:
        jobs = _distinct_jobs(sets)
        self._step = _fitted(RooflineEpoch(), jobs, _step_s(jobs)) or RooflineEpoch.of_priors()
        self._util = _fitted(RooflineUtil(), jobs, jobs.solo_of("gpu_util_pct"))
        self._mem_util = _fitted(RooflineMemUtil(), jobs, jobs.solo_of("mem_util_pct")) or RooflineMemUtil.of_priors(
            self._step
        )
        self._memory = _fitted(RooflineMemory(), jobs, jobs.solo_of("mem_mib")) or RooflineMemory.of_priors()
        return self

    def with_gpu(self, gpu: str, sets: SetBatch) -> SoloFill:
        """A copy that also knows how far kernels stay behind the data sheet on one more GPU type."""
        jobs = _distinct_jobs(sets)
        adapted = copy(self)
        adapted._step = self._step.with_gpu(gpu, _one_step_epochs(jobs), _step_s(jobs))
        if self._util is not None:
            adapted._util = self._util.with_gpu(gpu, jobs, jobs.solo_of("gpu_util_pct"))
        adapted._mem_util = self._mem_util.with_gpu(gpu, jobs, jobs.solo_of("mem_util_pct"))
        return adapted

    def fill(self, sets: SetBatch, where: BoolArray | None = None) -> SetBatch:
        """The same sets with the unknown fields predicted, where any that models read is unknown.

        ``where`` ``(n_sets, MAX_JOBS)`` limits it to some jobs.
        """
        lacking = np.isnan(sets.solo[:, :, _READ]).any(axis=2) & sets.present
        if where is not None:
            lacking &= where
        at = np.flatnonzero(lacking.any(axis=1))
        if not len(at):
            return sets
        solo, predicted = sets.solo.copy(), self._predicted(sets.take(at))
        unknown = np.isnan(solo[at]) & lacking[at][:, :, None]
        solo[at] = np.where(unknown, predicted, solo[at])
        return sets.with_solo(solo)

    def _predicted(self, sets: SetBatch) -> FloatArray:
        """Solo profiles ``(n_sets, MAX_JOBS, len(SOLO_FIELDS))`` from the graphs; NaN where there is none."""
        step_s, duty = self._step.step_and_duty(sets)
        samples = sets.samples_per_step
        if self._util is None:
            in_step = samples / sets.solo_of("throughput_samples_s")
            util = 100.0 * np.where(np.isnan(in_step), duty, np.minimum(duty * step_s / in_step, 1.0))
        else:
            util = self._util.from_graph(sets)
        predicted = np.full(sets.solo.shape, np.nan)
        throughput = np.where(np.isnan(sets.solo_of("throughput_samples_s")), samples / step_s, np.nan)
        predicted[:, :, _THROUGHPUT] = throughput
        predicted[:, :, _EPOCH] = samples * steps_per_epoch(sets) / throughput
        predicted[:, :, _UTIL] = util
        predicted[:, :, _MEM_UTIL] = self._mem_util.from_graph(sets)
        predicted[:, :, _MEM] = self._memory.from_graph(sets)
        return predicted


def with_epoch_times(sets: SetBatch) -> SetBatch:
    """The same sets with solo epoch times from throughputs and the sizes of the training data, where not stated."""
    solo = sets.solo.copy()
    derived = sets.solo_step_s() * steps_per_epoch(sets)
    solo[:, :, _EPOCH] = np.where(np.isnan(solo[:, :, _EPOCH]), derived, solo[:, :, _EPOCH])
    return sets.with_solo(solo)


def forget(sets: SetBatch, jobs: BoolArray) -> SetBatch:
    """The same sets without the solo profiles of some jobs ``(n_sets, MAX_JOBS)``."""
    return sets.with_solo(np.where(jobs[:, :, None], np.nan, sets.solo))


def each_cold(sets: SetBatch, target: FloatArray, *, fill: bool = True) -> tuple[SetBatch, FloatArray]:
    """Every job with a known target as if only its graph were known: a copy of its set, its family's profiles filled.

    What fills them was fitted without that family (with many families, several leave together); without ``fill`` they
    stay unknown. The copies hold the target of their cold job alone.
    """
    known = sets.present & np.isfinite(target)
    families = families_of_targets(sets, known)
    fills: dict[int, SoloFill | None] = {}
    for group in (families[i::MAX_INNER_FOLDS] for i in range(min(MAX_INNER_FOLDS, len(families)))):
        filling = SoloFill().fit(forget(sets, np.isin(sets.family, group) & sets.present)) if fill else None
        fills.update(dict.fromkeys(group.tolist(), filling))
    parts: list[tuple[IntArray, FloatArray, FloatArray]] = []
    for family, filling in fills.items():
        mine = (sets.family == family) & sets.present
        for job in range(known.shape[1]):
            at = np.flatnonzero(known[:, job] & (sets.family[:, job] == family))
            only = np.full((len(at), known.shape[1]), np.nan)
            only[:, job] = target[at, job]
            cold = forget(sets.take(at), mine[at])
            parts.append((at, (cold if filling is None else filling.fill(cold, mine[at])).solo, only))
    index, solo, kept = (np.concatenate(column) for column in zip(*parts, strict=True))
    return sets.take(index).with_solo(solo), kept


def _fitted(model: _Model, sets: SetBatch, target: FloatArray) -> _Model | None:
    """The model fitted; None where no job of the batch states the target beside a graph."""
    try:
        return model.fit(_one_step_epochs(sets), target)
    except DataError:
        return None


def _step_s(sets: SetBatch) -> FloatArray:
    step_s = sets.solo_step_s()
    by_epoch = sets.solo_of("epoch_s") / steps_per_epoch(sets)
    return np.where(np.isnan(step_s), by_epoch, step_s)


def _one_step_epochs(sets: SetBatch) -> SetBatch:
    """The same sets with epochs of one step, so that the epoch time is the step time."""
    return replace(sets, samples_per_epoch=sets.samples_per_step)


def _distinct_jobs(sets: SetBatch) -> SetBatch:
    """Each job config on each GPU type and number of GPUs once, alone."""
    alone, _ = each_alone(sets, np.full(sets.present.shape, np.nan))
    keys = np.stack([alone.gpu, alone.num_gpus.astype(np.int64), alone.config[:, 0]])
    _, first = np.unique(keys, axis=1, return_index=True)
    return alone.take(np.sort(first))
