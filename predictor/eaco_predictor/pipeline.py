"""A target's model with its interval and its correction by observations: what is evaluated and what is served."""

from __future__ import annotations

from typing import NamedTuple, Self

from eaco_features.sets import FloatArray, SetBatch


class Bounds(NamedTuple):
    """Mean and the bounds of the 90 % interval, each ``(n_sets, MAX_JOBS)``, NaN where there is no job."""

    mean: FloatArray
    lower: FloatArray
    upper: FloatArray


class TargetPipeline:
    """One target, learned.

    Args:
        target: one of ``eaco_features.examples.TARGETS``.
        model: a name of ``eaco_predictor.registry.model_names(target)``; None takes ``default_model(target)``.
        seed: seeds whatever is random inside.
        intervals: calibrate the 90 % interval on held-out families (refits the model once a family).
    """

    def __init__(self, target: str, model: str | None = None, *, seed: int = 0, intervals: bool = True) -> None:
        raise NotImplementedError

    def fit(self, sets: SetBatch, target: FloatArray) -> Self:
        """Learn from ``target`` ``(n_sets, MAX_JOBS)``, NaN left out."""
        raise NotImplementedError

    def predict(self, sets: SetBatch) -> Bounds:
        """Inside the physical limits, ``lower <= mean <= upper``."""
        raise NotImplementedError

    def observe(self, sets: SetBatch, target: FloatArray) -> TargetPipeline:
        """A new pipeline, corrected by measurements of some configs; the fitted model is shared, not refitted."""
        raise NotImplementedError
