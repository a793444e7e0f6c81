"""Batches of co-locations as columns: what every model reads.

A batch holds ``n_sets`` co-locations of up to ``MAX_JOBS`` jobs. Job arrays are ``(n_sets, MAX_JOBS)``; a place
without a job has ``present`` False, code -1 and NaN. Unknown numbers are NaN, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from eaco_datasets.errors import DataError
from eaco_datasets.types import MAX_JOBS, PRECISIONS, SHARING_MODES, CoLocation, Job, SoloProfile

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

SOLO_FIELDS: tuple[str, ...] = tuple(f.name for f in fields(SoloProfile))
"""Solo-profile columns a job may carry as input, in the order of the last axis of ``SetBatch.solo``."""

GPU_UTIL, MEM_UTIL, MEM_MIB = (SOLO_FIELDS.index(n) for n in ("gpu_util_pct", "mem_util_pct", "mem_mib"))


class ConfigKey(NamedTuple):
    """What makes two jobs the same job config on a GPU type."""

    family: str
    dataset: str
    batch_size: int
    precision: str


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
    gpus: tuple[str, ...]
    families: tuple[str, ...]
    configs: tuple[ConfigKey, ...]

    def __len__(self) -> int:
        return len(self.gpu)

    def take(self, index: IntArray | BoolArray) -> SetBatch:
        """The chosen sets, in the order of ``index``; vocabularies are kept."""
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{k: v[index] for k, v in columns.items() if isinstance(v, np.ndarray)})

    def permute_jobs(self, order: Sequence[int]) -> SetBatch:
        """The same sets with their jobs in another order (``order`` is a permutation of ``range(MAX_JOBS)``)."""
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(
            self, **{k: v[:, order] for k, v in columns.items() if isinstance(v, np.ndarray) and v.ndim > 1}
        )
