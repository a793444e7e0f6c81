"""The small protocol that every relative-speed model honours."""

from __future__ import annotations

from typing import ClassVar, Protocol, Self, runtime_checkable

from eaco_features.sets import FloatArray, SetBatch


@runtime_checkable
class RelativeSpeedModel(Protocol):
    """Learns relative speed from co-locations.

    Constructors hold hyper-parameters only. ``fit`` and ``predict`` leave their inputs untouched; permuting the jobs
    of a set permutes the answers; predictions are in ``(0, MAX_RELATIVE_SPEED]``, 1 for a job alone, NaN where there
    is no job. ``monotone``: more load on the others never speeds a job up.
    """

    name: ClassVar[str]
    monotone: ClassVar[bool]

    def fit(self, sets: SetBatch, relative_speed: FloatArray) -> Self:
        """Learn from ``relative_speed`` ``(n_sets, MAX_JOBS)``; NaN targets are left out."""
        ...

    def predict(self, sets: SetBatch) -> FloatArray:
        """Relative speeds ``(n_sets, MAX_JOBS)``."""
        ...
