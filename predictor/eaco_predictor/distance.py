"""How far a job is from the jobs that were learned from, and which families are nearest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from eaco_features.matrix import gpu_columns
from eaco_features.sets import FloatArray, IntArray, SetBatch

N_NEAREST = 3
UNCOMPARABLE = 3.0
"""Distance, in standard deviations, of a job that shares no known feature with any training job (choice)."""


@dataclass(frozen=True)
class _Neighbours:
    """Training jobs of one GPU type, sorted by family: standardised profiles ``(n_jobs, 4)``, NaN where unknown.

    ``starts`` is where each family begins, ``codes`` which family it is.
    """

    profiles: FloatArray
    starts: IntArray
    codes: IntArray

    @classmethod
    def of(cls, profiles: FloatArray, family: IntArray) -> _Neighbours:
        order = np.argsort(family, kind="stable")
        codes, starts = np.unique(family[order], return_index=True)
        return cls(profiles[order], starts, codes)

    def distances(self, query: FloatArray) -> tuple[FloatArray, IntArray]:
        total = np.zeros((len(query), len(self.profiles)))
        shared = np.zeros(total.shape)
        for mine, theirs in zip(query.T, self.profiles.T, strict=True):  # the few features, not the rows
            difference = mine[:, None] - theirs[None, :]
            known = ~np.isnan(difference)
            shared += known
            total += np.square(difference, out=np.zeros_like(difference), where=known)
        distance = np.sqrt(np.where(shared > 0, total / np.maximum(shared, 1.0), UNCOMPARABLE**2))
        by_family = np.minimum.reduceat(distance, self.starts, axis=1)
        nearest = self.codes[np.argsort(by_family, axis=1, kind="stable")[:, :N_NEAREST]]
        missing = N_NEAREST - nearest.shape[1]
        return by_family.min(axis=1), np.pad(nearest, ((0, 0), (0, missing)), mode="edge") if missing else nearest


@dataclass(frozen=True)
class TrainingJobs:
    """The distinct training jobs by GPU type, with the mean and spread that standardise a profile ``(4,)``.

    A profile is solo GPU utilisation, memory utilisation, share of the GPU's memory and the log of the step time.
    A GPU type that was never trained on is compared with the jobs of all types (key ``""``).
    """

    neighbours: Mapping[str, _Neighbours]
    families: tuple[str, ...]
    centre: FloatArray
    spread: FloatArray

    @classmethod
    def from_sets(cls, sets: SetBatch) -> TrainingJobs:
        """Every distinct (GPU type, config) of the training sets once."""
        raw = _profiles(sets)
        family, gpu = sets.family[sets.rows], sets.gpu[sets.rows[0]]
        job = gpu * max(len(sets.configs), 1) + sets.config[sets.rows]
        _, first = np.unique(job, return_index=True)
        raw, family, gpu = raw[first], family[first], gpu[first]
        known = np.isfinite(raw)
        count = np.maximum(known.sum(axis=0), 1)
        centre = np.where(known, raw, 0.0).sum(axis=0) / count
        spread = np.sqrt((np.where(known, raw - centre, 0.0) ** 2).sum(axis=0) / count)
        spread = np.where(spread > 0, spread, 1.0)
        profiles = (raw - centre) / spread
        neighbours = {
            sets.gpus[code]: _Neighbours.of(profiles[gpu == code], family[gpu == code]) for code in np.unique(gpu)
        }
        return cls({**neighbours, "": _Neighbours.of(profiles, family)}, sets.families, centre, spread)

    def distances(self, sets: SetBatch) -> tuple[FloatArray, IntArray]:
        """Distance of each job to its nearest training job of the same GPU type, and the nearest families.

        ``(n_rows,)`` root mean square over the features that both sides know, in training standard deviations; and
        ``(n_rows, N_NEAREST)`` codes into ``families``, the last repeated where there are fewer. Rows in the order of
        ``sets.rows``.
        """
        query = (_profiles(sets) - self.centre) / self.spread
        gpu = sets.gpu[sets.rows[0]]
        distance = np.empty(len(query))
        nearest = np.empty((len(query), N_NEAREST), dtype=np.int64)
        for code in set(gpu.tolist()):
            at = np.flatnonzero(gpu == code)
            table = self.neighbours.get(sets.gpus[code], self.neighbours[""])
            distance[at], nearest[at] = table.distances(query[at])
        return distance, nearest


def out_of_distribution(distance: FloatArray) -> FloatArray:
    """Score in [0, 1): 0 for a training job, 0.5 at one standard deviation, towards 1 far away."""
    return distance / (1.0 + distance)


def _profiles(sets: SetBatch) -> FloatArray:
    memory_mib = gpu_columns(sets)["memory_mib"][:, None]
    step_s = sets.solo_step_s()
    columns = (
        sets.solo_of("gpu_util_pct"),
        sets.solo_of("mem_util_pct"),
        sets.solo_of("mem_mib") / memory_mib,
        np.log(step_s),
    )
    return np.stack(columns, axis=2)[sets.rows]
