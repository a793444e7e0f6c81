"""Fits and predictions under one protocol: each model is fitted once a fold, whatever is asked of it afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from eaco_datasets.errors import InputError
from eaco_features.examples import Examples
from eaco_features.sets import BoolArray, FloatArray, IntArray, SetBatch
from eaco_predictor.fitting import training_target
from eaco_predictor.pipeline import Bounds
from eaco_training.folds import EvaluationProtocol, Fold
from eaco_training.units import N_DRAWS, Draw, draws, observation_units


class PipelineLike(Protocol):
    """What an evaluation needs of ``eaco_predictor.pipeline.TargetPipeline``."""

    def fit(self, sets: SetBatch, target: FloatArray) -> Self:
        """Learn from ``target`` ``(n_sets, MAX_JOBS)``, NaN left out."""
        ...

    def predict(self, sets: SetBatch) -> Bounds:
        """Mean and interval of each job, ``(n_sets, MAX_JOBS)`` each."""
        ...

    def observe(self, sets: SetBatch, target: FloatArray) -> PipelineLike:
        """A corrected copy; NaN targets are no observation."""
        ...


PipelineFactory = Callable[[str, bool], PipelineLike]
"""Makes an unfitted pipeline of a model's name; the flag asks for calibrated intervals."""

Progress = Callable[[str, int, int], None]
"""Told what is being done, how many steps are done and how many there are."""


def no_progress(what: str, done: int, total: int) -> None:
    """Tells nobody."""
    del what, done, total


def pipeline_factory(target: str, seed: int, *, cold: bool = False) -> PipelineFactory:
    """The product's pipelines for a target; ``cold`` ones are made for jobs without a solo profile."""

    def make(model: str, intervals: bool) -> PipelineLike:
        from eaco_predictor.pipeline import TargetPipeline

        return TargetPipeline(target, model, seed=seed, intervals=intervals, cold=cold)

    return make


@dataclass(frozen=True)
class TestedRows:
    """Rows that were predicted, flat: where each is in the examples, and its bounds, each ``(n_rows,)``.

    A row is repeated where several draws tested it; ``same_batch`` marks rows whose batch size was observed.
    """

    __test__ = False

    at_set: IntArray
    at_job: IntArray
    bounds: Bounds
    same_batch: BoolArray

    def within(self, test: BoolArray) -> TestedRows:
        """Those of the rows that ``test`` ``(n_sets, MAX_JOBS)`` marks."""
        chosen = test[self.at_set, self.at_job]
        bounds = Bounds(*(column[chosen] for column in self.bounds))
        return TestedRows(self.at_set[chosen], self.at_job[chosen], bounds, self.same_batch[chosen])


@dataclass(frozen=True)
class ObservationPlan:
    """How many measurements of each held-out unit are given to the correction, over how many seeded draws."""

    ks: tuple[int, ...]
    n_draws: int = N_DRAWS

    def __post_init__(self) -> None:
        if not self.ks or min(self.ks) < 0:
            raise InputError(f"{list(self.ks)} observations", where="--observations", expected="0 or more")
        if self.n_draws < 1:
            raise InputError(f"{self.n_draws} draws", where="n_draws", expected="1 or more")

    @property
    def k_max(self) -> int:
        """The largest K: its draws leave the test rows of every K."""
        return max(self.ks)


class Study:
    """Examples split by a protocol, and the models fitted on them so far.

    ``cold`` takes the solo profiles of a fold's tested families away from whatever is predicted or observed.
    """

    def __init__(
        self,
        examples: Examples,
        target: str,
        protocol: EvaluationProtocol,
        make: PipelineFactory,
        *,
        seed: int = 0,
        cold: bool = False,
        progress: Progress = no_progress,
    ) -> None:
        self.examples, self.protocol, self.seed, self.cold = examples, protocol, seed, cold
        self.folds: list[Fold] = protocol.folds(examples, seed)
        self._learned = training_target(examples)
        self._units = observation_units(examples, target)
        self._make, self._progress = make, progress
        self._fitted: dict[tuple[str, bool], list[PipelineLike]] = {}

    def fitted(self, model: str, *, intervals: bool) -> list[PipelineLike]:
        """The model fitted on each fold, once; a fit with intervals serves those who do not want them too."""
        key = (model, intervals or (model, True) in self._fitted)
        if key not in self._fitted:
            self._fitted[key] = [self._fit(model, fold, intervals, number) for number, fold in enumerate(self.folds)]
        return self._fitted[key]

    def _fit(self, model: str, fold: Fold, intervals: bool, number: int) -> PipelineLike:
        self._progress(f"{self.protocol.name}: fit {model}", number, len(self.folds))
        pipeline = self._make(model, intervals)
        return pipeline.fit(self.examples.sets.take(fold.train), self._learned[fold.train])

    def tested(self, model: str, *, intervals: bool) -> TestedRows:
        """Every test row, predicted with nothing observed."""
        parts = []
        for fold, pipeline in zip(self.folds, self.fitted(model, intervals=intervals), strict=True):
            index = np.flatnonzero(fold.test.any(axis=1))
            parts.append(self._predicted(pipeline, index, fold.test, batch_sizes=np.empty(0)))
        return _joined(parts)

    def tested_with_observations(self, model: str, plan: ObservationPlan, *, intervals: bool) -> dict[int, TestedRows]:
        """The same row-draws predicted at each K of the plan. Nothing is refitted: a draw only corrects."""
        parts: dict[int, list[TestedRows]] = {k: [] for k in plan.ks}
        for number, (fold, pipeline) in enumerate(
            zip(self.folds, self.fitted(model, intervals=intervals), strict=True)
        ):
            self._progress(f"{self.protocol.name}: observe {model}", number, len(self.folds))
            index = np.flatnonzero(fold.test.any(axis=1))
            uncorrected = self._predicted(pipeline, index, fold.test, batch_sizes=np.empty(0))
            for draw in draws(fold, self._units, plan.k_max, seed=self.seed, n_draws=plan.n_draws):
                for k in plan.ks:
                    known = uncorrected.within(draw.test) if k == 0 else self._corrected(pipeline, draw, k)
                    parts[k].append(known)
        if not any(parts[plan.k_max]):
            raise InputError(
                f"no row is left to test with {plan.k_max} observations of each held-out unit",
                where="--observations",
                expected="fewer than its measurements",
            )
        return {k: _joined(some) for k, some in parts.items()}

    def _corrected(self, pipeline: PipelineLike, draw: Draw, k: int) -> TestedRows:
        observed, sets = draw.order[:k], self.examples.sets
        own = np.where(draw.rows[observed], self.examples.target[observed], np.nan)
        corrected = pipeline.observe(self._shown(observed, draw.rows), own)
        batch_sizes = sets.batch_size[observed][draw.rows[observed]]
        return self._predicted(corrected, np.flatnonzero(draw.test.any(axis=1)), draw.test, batch_sizes)

    def _predicted(
        self, pipeline: PipelineLike, index: IntArray, test: BoolArray, batch_sizes: FloatArray
    ) -> TestedRows:
        sets = self._shown(index, test)
        local_set, at_job = np.nonzero(test[index])
        mean, lower, upper = (column[local_set, at_job] for column in pipeline.predict(sets))
        same = np.isin(sets.batch_size[local_set, at_job], batch_sizes)
        return TestedRows(index[local_set], at_job, Bounds(mean, lower, upper), same)

    def _shown(self, index: IntArray, test: BoolArray) -> SetBatch:
        """The chosen sets as the model may see them."""
        sets = self.examples.sets.take(index)
        if not self.cold:
            return sets
        from eaco_predictor.solo_fill import forget

        tested = np.unique(self.examples.sets.family[test])
        return forget(sets, np.isin(sets.family, tested) & sets.present)


def _joined(parts: Sequence[TestedRows]) -> TestedRows:
    return TestedRows(
        np.concatenate([p.at_set for p in parts]),
        np.concatenate([p.at_job for p in parts]),
        Bounds(
            np.concatenate([p.bounds.mean for p in parts]),
            np.concatenate([p.bounds.lower for p in parts]),
            np.concatenate([p.bounds.upper for p in parts]),
        ),
        np.concatenate([p.same_batch for p in parts]),
    )
