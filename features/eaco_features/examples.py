"""Training examples out of a profile table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from eaco_features.sets import FloatArray, SetBatch

TARGETS: tuple[str, ...] = ("relative_speed", "gpu_power_w", "mem_mib", "gpu_util_pct", "node_power_w")
"""Columns of the profile table that can be learned. All but ``relative_speed`` belong to the GPU or node as a whole
and are repeated on each job's row."""


@dataclass(frozen=True)
class Examples:
    """Co-locations with the measured target of each job.

    ``target`` is ``(n_sets, MAX_JOBS)``, NaN where unknown, where the outcome was not ``ok`` or where there is no job.
    ``provenance`` is ``(n_sets, MAX_JOBS)`` of str (empty without a job); ``measurement_id`` and ``source`` ``(n_sets,)``.
    """

    sets: SetBatch
    target: FloatArray
    provenance: NDArray[np.object_]
    measurement_id: NDArray[np.object_]
    source: NDArray[np.object_]


def examples_from_profiles(profiles: pd.DataFrame, target: str) -> Examples:
    """Join each job with its solo profile and line the target up.

    ``relative_speed`` takes the co-located measurements; ``gpu_power_w`` the solo ones with a power reading;
    ``mem_mib`` and ``gpu_util_pct`` the co-located ones.
    """
    raise NotImplementedError
