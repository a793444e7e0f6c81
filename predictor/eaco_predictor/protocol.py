"""The small protocol that every model honours, whatever its target."""

from __future__ import annotations

from typing import ClassVar, Protocol, Self, runtime_checkable

from eaco_features.sets import FloatArray, SetBatch


@runtime_checkable
class TargetModel(Protocol):
    """Learns one target of co-locations.

    Constructors hold hyper-parameters only. ``fit`` and ``predict`` leave their inputs untouched; permuting the jobs
    of a set permutes the answers; predictions stay inside the target's physical limits (``eaco_predictor.targets``)
    and are NaN where there is no job. ``monotone`` (relative speed): more load on the others never speeds a job up.
    """

    name: ClassVar[str]
    monotone: ClassVar[bool]

    def fit(self, sets: SetBatch, target: FloatArray) -> Self:
        """Learn from ``target`` ``(n_sets, MAX_JOBS)``; NaN targets are left out.

        Raises:
            DataError: no target is known.
        """
        ...

    def predict(self, sets: SetBatch) -> FloatArray:
        """Predictions ``(n_sets, MAX_JOBS)``."""
        ...


@runtime_checkable
class OutOfFamily(Protocol):
    """A fitted model that already predicted each training family without having seen it."""

    def out_of_family(self) -> FloatArray:
        """Predictions for the sets it was fitted on ``(n_sets, MAX_JOBS)``, each by a fit without the job's family."""
        ...
