"""Batches of co-locations as columns: what every model reads.

A batch holds ``n_sets`` co-locations of up to ``MAX_JOBS`` jobs. Job arrays are ``(n_sets, MAX_JOBS)``; a place
without a job has ``present`` False, code -1 and NaN. Unknown numbers are NaN, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eaco_datasets.errors import InputError
from eaco_datasets.types import MAX_JOBS, PRECISIONS, SHARING_MODES, CoLocation, Precision, SoloProfile

if TYPE_CHECKING:
    from eaco_features.job_graphs import GraphBook

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

SOLO_FIELDS: tuple[str, ...] = tuple(f.name for f in fields(SoloProfile))
"""Solo-profile columns a job may carry as input, in the order of the last axis of ``SetBatch.solo``."""

GPU_UTIL, MEM_UTIL, MEM_MIB = (SOLO_FIELDS.index(n) for n in ("gpu_util_pct", "mem_util_pct", "mem_mib"))


class ConfigKey(NamedTuple):
    """What makes two jobs the same job config on a GPU type; an unknown dataset or optimizer is ``""``."""

    family: str
    dataset: str
    batch_size: int
    precision: Precision
    optimizer: str


@dataclass(frozen=True)
class SetBatch:
    """Columns of ``n_sets`` co-locations.

    ``gpu``, ``family`` and ``config`` are codes into the batch's own vocabularies ``gpus``, ``families``, ``configs``.
    ``solo`` is ``(n_sets, MAX_JOBS, len(SOLO_FIELDS))``, each job's solo profile on this GPU type.
    """

    gpu: IntArray  # (n_sets,)
    sharing_mode: IntArray  # (n_sets,) index into SHARING_MODES
    num_gpus: FloatArray  # (n_sets,)
    power_limit_w: FloatArray  # (n_sets,) the limit set on the GPU; NaN = its default
    present: BoolArray  # (n_sets, MAX_JOBS)
    family: IntArray  # (n_sets, MAX_JOBS)
    config: IntArray  # (n_sets, MAX_JOBS)
    batch_size: FloatArray  # (n_sets, MAX_JOBS)
    precision: IntArray  # (n_sets, MAX_JOBS) index into PRECISIONS
    solo: FloatArray  # (n_sets, MAX_JOBS, len(SOLO_FIELDS))
    samples_per_epoch: FloatArray  # (n_sets, MAX_JOBS) the caller's figure; NaN = that of the catalogue, if any
    gpus: tuple[str, ...]
    families: tuple[str, ...]
    configs: tuple[ConfigKey, ...]
    graphs: GraphBook | None = None  # where the jobs' graphs are looked up; None is the catalogue

    def __len__(self) -> int:
        return len(self.gpu)

    def take(self, index: IntArray | BoolArray) -> SetBatch:
        """The chosen sets, in the order of ``index``; vocabularies are kept."""
        taken: dict[str, Any] = {name: column[index] for name, column in self._columns().items()}
        return replace(self, **taken)

    def permute_jobs(self, order: Sequence[int]) -> SetBatch:
        """The same sets with their jobs in another order (``order`` is a permutation of ``range(MAX_JOBS)``)."""
        moved: dict[str, Any] = {
            name: column[:, np.asarray(order)] for name, column in self._columns().items() if column.ndim > 1
        }
        return replace(self, **moved)

    def _columns(self) -> dict[str, NDArray[Any]]:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}

    @cached_property
    def rows(self) -> tuple[IntArray, IntArray]:
        """Set index and job index of every job, in set order: the rows of the feature matrix."""
        at_set, at_job = np.nonzero(self.present)
        return at_set, at_job

    @cached_property
    def n_jobs(self) -> IntArray:
        """Jobs in each set ``(n_sets,)``."""
        return np.asarray(self.present.sum(axis=1), dtype=np.int64)

    @cached_property
    def samples_per_step(self) -> FloatArray:
        """Samples of a step over all the GPUs of a job ``(n_sets, MAX_JOBS)``; the batch size is one GPU's."""
        samples: FloatArray = self.batch_size * self.num_gpus[:, None]
        return samples

    def solo_step_s(self) -> FloatArray:
        """Step time alone by the throughput of the solo profile ``(n_sets, MAX_JOBS)``; NaN where it is unknown."""
        step_s: FloatArray = self.samples_per_step / self.solo_of("throughput_samples_s")
        return step_s

    def solo_of(self, field: str) -> FloatArray:
        """One solo-profile column ``(n_sets, MAX_JOBS)``, a name of ``SOLO_FIELDS``."""
        return self.solo[:, :, SOLO_FIELDS.index(field)]

    def with_solo(self, solo: FloatArray) -> SetBatch:
        """The same sets with other solo profiles ``(n_sets, MAX_JOBS, len(SOLO_FIELDS))``."""
        return replace(self, solo=solo)


_OTHERS = np.array([[k for k in range(MAX_JOBS) if k != j] for j in range(MAX_JOBS)])  # (MAX_JOBS, MAX_JOBS - 1)


def others_sum(values: FloatArray, present: BoolArray) -> FloatArray:
    """Sum over a job's co-runners ``(n_sets, MAX_JOBS)``; NaN when one of them is unknown, 0 when there is none.

    Addends are sorted first, so that the order of the jobs cannot change the last bit.
    """
    total: FloatArray = np.sort(np.where(present, values, 0.0)[:, _OTHERS], axis=2).sum(axis=2)
    return total


def others_max(values: FloatArray, present: BoolArray) -> FloatArray:
    """Largest value among a job's co-runners ``(n_sets, MAX_JOBS)``; NaN when one is unknown, 0 when there is none."""
    largest: FloatArray = np.where(present, values, 0.0)[:, _OTHERS].max(axis=2)
    return largest


def set_sum(values: FloatArray, present: BoolArray) -> FloatArray:
    """Sum over the jobs of each set ``(n_sets,)``, independent of their order; NaN when one is unknown."""
    total: FloatArray = np.sort(np.where(present, values, 0.0), axis=1).sum(axis=1)
    return total


class _Codes:
    """Hands out codes in order of first sight."""

    def __init__(self) -> None:
        self._codes: dict[Hashable, int] = {}

    def code(self, value: Hashable) -> int:
        return self._codes.setdefault(value, len(self._codes))

    def vocabulary(self) -> tuple[Hashable, ...]:
        return tuple(self._codes)


_PRECISION_CODE = {name: code for code, name in enumerate(PRECISIONS)}
_SHARING_CODE = {name: code for code, name in enumerate(SHARING_MODES)}
_solo_numbers: Callable[[SoloProfile], tuple[float | None, ...]] = attrgetter(*SOLO_FIELDS)


def sets_from_colocations(colocations: Sequence[CoLocation], graphs: GraphBook | None = None) -> SetBatch:
    """Columns of the given co-locations, in order; ``graphs`` is where their jobs' graphs are looked up.

    Raises:
        InputError: a set without a job or with more than ``MAX_JOBS``.
    """
    gpus, families, configs = _Codes(), _Codes(), _Codes()
    n = len(colocations)
    at_set: list[int] = []
    at_job: list[int] = []
    codes: list[tuple[int, int, int]] = []
    numbers: list[tuple[float, float | None]] = []
    solos: list[tuple[float | None, ...]] = []
    for i, colocation in enumerate(colocations):
        if not 1 <= len(colocation.jobs) <= MAX_JOBS:
            raise InputError(
                f"{len(colocation.jobs)} jobs in a set",
                where=f"/candidates/{i}/jobs",
                expected=f"1 to {MAX_JOBS} jobs",
            )
        for j, job in enumerate(colocation.jobs):
            key = ConfigKey(job.family, job.dataset or "", job.batch_size, job.precision, job.optimizer or "")
            at_set.append(i)
            at_job.append(j)
            codes.append((families.code(job.family), configs.code(key), _PRECISION_CODE[job.precision]))
            numbers.append((float(job.batch_size), job.samples_per_epoch))
            solos.append(_solo_numbers(job.solo))  # an unknown one, None, becomes NaN below
    shape = (n, MAX_JOBS)
    at = (np.array(at_set, dtype=np.int64), np.array(at_job, dtype=np.int64))
    coded = np.full((*shape, 3), -1, dtype=np.int64)
    coded[at] = np.array(codes, dtype=np.int64).reshape(-1, 3)
    batch_size, samples = np.full((2, *shape), np.nan)
    batch_size[at], samples[at] = np.array(numbers, dtype=float).reshape(-1, 2).T
    solo_columns = np.full((*shape, len(SOLO_FIELDS)), np.nan)
    solo_columns[at] = np.array(solos, dtype=float).reshape(-1, len(SOLO_FIELDS))
    return SetBatch(
        gpu=np.array([gpus.code(c.gpu) for c in colocations], dtype=np.int64),
        sharing_mode=np.array([_SHARING_CODE[c.sharing_mode] for c in colocations], dtype=np.int64),
        num_gpus=np.array([c.num_gpus for c in colocations], dtype=float),
        power_limit_w=np.full(n, np.nan),
        present=coded[:, :, 0] >= 0,
        family=coded[:, :, 0],
        config=coded[:, :, 1],
        batch_size=batch_size,
        precision=coded[:, :, 2],
        solo=solo_columns,
        samples_per_epoch=samples,
        gpus=tuple(str(g) for g in gpus.vocabulary()),
        families=tuple(str(f) for f in families.vocabulary()),
        configs=tuple(c for c in configs.vocabulary() if isinstance(c, ConfigKey)),
        graphs=graphs,
    )
