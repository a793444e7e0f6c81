"""How far a job is from the jobs that were learned from, and which families are nearest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eaco_datasets.gpus import gpu_specs
from eaco_features.matrix import feature_matrix
from eaco_features.schema import FEATURE_NAMES
from eaco_features.sets import FloatArray, IntArray, SetBatch

_COLUMNS = [
    FEATURE_NAMES.index(name) for name in ("own_gpu_util_pct", "own_mem_util_pct", "own_mem_share", "own_step_ms")
]
N_NEAREST = 3
UNCOMPARABLE = 3.0
"""Distance, in standard deviations, of a job that shares no known feature with any training job (choice)."""


@dataclass(frozen=True)
class TrainingJobs:
    """The distinct training jobs: standardised profiles ``(n_jobs, 4)``, NaN where unknown, and their families."""

    profiles: FloatArray
    family: IntArray
    families: tuple[str, ...]
    centre: FloatArray
    spread: FloatArray

    @classmethod
    def from_sets(cls, sets: SetBatch) -> TrainingJobs:
        """Every distinct (GPU type, config) of the training sets once."""
        raw = _profiles(sets)
        family = sets.family[sets.rows]
        job = (sets.gpu[:, None] * max(len(sets.configs), 1) + sets.config)[sets.rows]
        _, first = np.unique(job, return_index=True)
        raw, family = raw[first], family[first]
        known = np.isfinite(raw)
        count = np.maximum(known.sum(axis=0), 1)
        centre = np.where(known, raw, 0.0).sum(axis=0) / count
        spread = np.sqrt((np.where(known, raw - centre, 0.0) ** 2).sum(axis=0) / count)
        spread = np.where(spread > 0, spread, 1.0)
        return cls((raw - centre) / spread, family, sets.families, centre, spread)

    def distances(self, sets: SetBatch) -> tuple[FloatArray, IntArray]:
        """Distance of each job to its nearest training job, and its ``N_NEAREST`` nearest families.

        ``(n_rows,)`` root mean square over the features that both sides know, in training standard deviations; and
        ``(n_rows, <= N_NEAREST)`` codes into ``families``. Rows in the order of ``sets.rows``.
        """
        query = (_profiles(sets) - self.centre) / self.spread
        difference = query[:, None, :] - self.profiles[None, :, :]
        both = np.isfinite(difference)
        total = np.where(both, difference, 0.0) ** 2
        shared = both.sum(axis=2)
        distance = np.where(shared > 0, np.sqrt(total.sum(axis=2) / np.maximum(shared, 1)), UNCOMPARABLE)
        order = np.argsort(self.family, kind="stable")
        starts = np.flatnonzero(np.diff(self.family[order], prepend=-1))
        by_family = np.minimum.reduceat(distance[:, order], starts, axis=1)
        codes = self.family[order][starts]
        nearest = np.argsort(by_family, axis=1, kind="stable")[:, :N_NEAREST]
        return distance.min(axis=1), codes[nearest]


def out_of_distribution(distance: FloatArray) -> FloatArray:
    """Score in [0, 1): 0 for a training job, 0.5 at one standard deviation, towards 1 far away."""
    return distance / (1.0 + distance)


def _profiles(sets: SetBatch) -> FloatArray:
    columns = feature_matrix(sets, gpu_specs())[:, _COLUMNS]
    columns[:, 3] = np.log(columns[:, 3])
    return columns
