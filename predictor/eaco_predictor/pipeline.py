"""A target's model with its interval and its correction by observations: what is evaluated and what is served."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from eaco_datasets.errors import DataError, NotReadyError
from eaco_features.sets import BoolArray, FloatArray, IntArray, SetBatch
from eaco_predictor.families import MAX_INNER_FOLDS, family_folds, macro_mae, predict_out_of_family
from eaco_predictor.intervals import Interval, calibrate
from eaco_predictor.models.base import Inputs, known_targets
from eaco_predictor.models.solo_power import each_alone, workload_codes
from eaco_predictor.observations import Correction, JobKey, Spread, corrections, error_spread, job_codes, per_job
from eaco_predictor.protocol import OutOfFamily, TargetModel
from eaco_predictor.registry import default_model, make_model
from eaco_predictor.solo_fill import SoloFill, each_cold
from eaco_predictor.targets import target_spec
from eaco_predictor.transfer import GpuHead, Scaler

CALIBRATION_DRAWS = 5
"""Random single observations a job when the interval of an observed job is calibrated (choice: cost)."""


UNLEARNED = Interval(-0.3, 0.3)
"""Relative bounds of a set's memory or utilisation when only jobs alone were measured (choice: the size of the errors
on the measured pairs of one GPU)."""


class HeldOutErrors(NamedTuple):
    """Family-weighted mean absolute error on families that the fit had not seen, beside the in-sample one.

    From the calibration inside ``fit``; a model that chooses on the same predictions looks slightly too good here, so
    a full evaluation stays the reference.
    """

    out_of_family: float
    in_sample: float
    n_families: int


class Bounds(NamedTuple):
    """Mean and the bounds of the 90 % interval, each ``(n_sets, MAX_JOBS)``, NaN where there is no job."""

    mean: FloatArray
    lower: FloatArray
    upper: FloatArray


@runtime_checkable
class ObservingModel(Protocol):
    """A model with a correction of its own, better than a shift."""

    def observe(self, sets: SetBatch, target: FloatArray) -> TargetModel: ...


@runtime_checkable
class AdaptableModel(Protocol):
    """A model that learns another GPU type by itself: a copy that answers for other types as before."""

    def adapt(self, gpu: str, sets: SetBatch, target: FloatArray) -> TargetModel: ...


@runtime_checkable
class ReadsGraphs(Protocol):
    """A model that knows what a solo profile lacks; a predicted profile would only hide what is measured."""

    embeds_graphs: ClassVar[bool]


class TargetPipeline:
    """One target, learned.

    Args:
        target: one of ``eaco_predictor.targets.TARGET_SPECS``.
        model: a name of ``eaco_predictor.registry.model_names(target)``; None takes ``default_model(target)``.
        seed: seeds whatever is random inside.
        intervals: calibrate the 90 % interval on held-out families (refits the model once a family, if the model does
            not predict out of family by itself). Without, both bounds are the mean and observations correct nothing.
        cold: for jobs of which nothing but the graph is known. What is learned from are the training jobs as if they
            were such, so that the model and its interval know how wrong a predicted solo profile is.
        fill: for relative speed, predict what is unknown of a job's solo profile from its graph (``SoloFill``), in
            training as in use. Not for a model that reads graphs itself (``ReadsGraphs``).
    """

    def __init__(
        self,
        target: str,
        model: str | None = None,
        *,
        seed: int = 0,
        intervals: bool = True,
        cold: bool = False,
        fill: bool = True,
    ) -> None:
        self.spec, self.cold = target_spec(target), cold
        self.model_name = model or default_model(target)
        self.seed, self.intervals = seed, intervals
        self.model: TargetModel = self._make()
        self._fills = fill and target == "relative_speed" and not isinstance(self.model, ReadsGraphs)
        self._interval = self._observed_interval = Interval(0.0, 0.0)
        self._spread = Spread(1e-9, 1.0)
        self._corrections: Mapping[JobKey, Correction] = {}
        self.errors: HeldOutErrors | None = None
        self._fill: SoloFill | None = None
        self._scaler: Scaler | None = None
        self._head: GpuHead | None = None
        self._fitted = self._observed = False

    def fit(self, sets: SetBatch, target: FloatArray) -> Self:
        """Learn from ``target`` ``(n_sets, MAX_JOBS)``, NaN left out.

        Raises:
            DataError: no target is known, or none of the known ones can be predicted.
        """
        known_targets(sets, target)
        if self._fills:
            self._fill = SoloFill().fit(sets)
        if self.cold and self.spec.name == "relative_speed":
            sets, target = each_cold(sets, target, fill=self._fills)
        sets = self._filled(sets)
        known, clipped = known_targets(sets, target), self.spec.clipped(target)
        self.model.fit(sets, clipped)
        self._fitted = True
        if self.intervals:
            self._calibrate(sets, clipped, known)
        return self

    def predict(self, sets: SetBatch) -> Bounds:
        """Inside the physical limits, ``lower <= mean <= upper``.

        Raises:
            NotReadyError: before ``fit``.
        """
        self._needs_fit()
        sets = self._filled(sets)
        mean, scale, factor = self._uncorrected(sets)
        if self._corrections:
            shift, narrower = per_job(sets, self._corrections, self._spread)
            factor = factor * narrower
            mean = self._shifted(sets, mean, shift * scale)
        factor = np.where(self._certain(sets), 0.0, factor)
        interval = self._observed_interval if self._observed else self._interval
        lower, upper = map(self._unlinked, interval.bounds(self._linked(mean), scale, factor))
        return Bounds(
            mean, np.minimum(self.spec.limit(sets, lower), mean), np.maximum(self.spec.limit(sets, upper), mean)
        )

    def observe(self, sets: SetBatch, target: FloatArray) -> TargetPipeline:
        """A new pipeline, corrected by measurements of some jobs; the fitted model is shared, not refitted.

        Raises:
            NotReadyError: before ``fit``.
        """
        self._needs_fit()
        sets = self._filled(sets)
        observed = copy(self)
        if isinstance(self.model, ObservingModel):
            observed.model, observed._observed = self.model.observe(sets, target), True
            return observed
        mean, scale, _ = self._uncorrected(sets)
        known = sets.present & np.isfinite(target) & np.isfinite(mean)
        error = (self._linked(self.spec.clipped(target)) - self._linked(mean)) / scale
        observed._corrections = corrections(sets, error, known, self._spread, self._corrections)
        return observed

    def adapt(self, gpu: str, sets: SetBatch, target: FloatArray) -> TargetPipeline:
        """A new pipeline for one more GPU type, from a few measurements on it; the fitted model is shared.

        A model that can adapt itself does (``AdaptableModel``); for others a head on their errors is learned
        (``eaco_predictor.transfer``). Without any measurement it is the same pipeline.

        Raises:
            NotReadyError: before ``fit``.
        """
        self._needs_fit()
        sets = self._filled(sets)
        here = np.array([slug == gpu for slug in sets.gpus] or [False])[sets.gpu]
        mean = self.model.predict(sets)
        known = here[:, None] & sets.present & np.isfinite(target) & np.isfinite(mean)
        if not known.any():
            return self
        adapted, clipped = copy(self), self.spec.clipped(target)
        if isinstance(self.model, AdaptableModel):
            adapted.model = self.model.adapt(gpu, sets, np.where(known, clipped, np.nan))
            return adapted
        if self._scaler is None:
            raise NotReadyError(f"the {self.spec.name} pipeline was fitted without intervals, which a head is based on")
        error = (self._linked(clipped) - self._linked(mean)) / self._scale(mean)
        adapted._head = GpuHead(gpu, self._spread, self._scaler).fit(sets, error, known)
        return adapted

    def _uncorrected(self, sets: SetBatch) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean before observations, the scale of its error, and the width factor ``(n_sets, MAX_JOBS)``."""
        mean = self.model.predict(sets)
        scale = self._scale(mean)
        if self._head is None:
            return mean, scale, np.ones(mean.shape)
        shift, factor = self._head.shift(sets)
        return self._shifted(sets, mean, shift * scale), scale, factor

    def _shifted(self, sets: SetBatch, mean: FloatArray, shift: FloatArray) -> FloatArray:
        """The mean shifted where it is not certain, within the physical limits."""
        shifted = self.spec.limit(sets, self._unlinked(self._linked(mean) + shift))
        return np.where(self._certain(sets), mean, shifted)

    def _certain(self, sets: SetBatch) -> BoolArray:
        certain: BoolArray = (sets.n_jobs == 1)[:, None] & self._sure_alone
        return certain

    def _filled(self, sets: SetBatch) -> SetBatch:
        return sets if self._fill is None else self._fill.fill(sets)

    def _make(self) -> TargetModel:
        return make_model(self.spec.name, self.model_name, self.seed)

    def _needs_fit(self) -> None:
        if not self._fitted:
            raise NotReadyError(f"the {self.spec.name} pipeline is not fitted yet")

    @property
    def _sure_alone(self) -> bool:
        """Whether a job alone is known without doubt: its solo profile says so."""
        return self.spec.known_alone and not (self.cold and self.spec.name != "relative_speed")

    def _linked(self, values: FloatArray) -> FloatArray:
        """Times are wrong by factors, so their errors are those of their logarithms."""
        return np.log(np.maximum(values, 1e-9)) if self.spec.name == "epoch_s" else values

    def _unlinked(self, values: FloatArray) -> FloatArray:
        return np.exp(values) if self.spec.name == "epoch_s" else values

    def _scale(self, mean: FloatArray) -> FloatArray:
        """Errors of a relative speed and of log times are of one size; those of watts, MiB and percent grow with it."""
        return np.ones_like(mean) if self.spec.name in ("relative_speed", "epoch_s") else np.maximum(mean, 1e-9)

    def _calibrate(self, sets: SetBatch, target: FloatArray, known: BoolArray) -> None:
        if isinstance(self.model, OutOfFamily):
            held_out = self.model.out_of_family()
        else:
            n_folds = getattr(self.model, "calibration_folds", MAX_INNER_FOLDS)  # fewer where a fit is dear
            held_out = predict_out_of_family(self._make, sets, target, family_folds(sets, known, n_folds))
        rows = known & np.isfinite(held_out)
        if not rows.any():  # one family only: nothing can be held out, so errors are in sample
            held_out = self.model.predict(sets)
            rows = known & np.isfinite(held_out)
        if not rows.any():
            raise DataError(
                f"no row with {self.spec.name} can be predicted, so the interval cannot be calibrated",
                where="training data",
                expected="rows with the solo profile that the model reads",
            )
        self.errors = HeldOutErrors(
            macro_mae(held_out[rows], target[rows], sets.family[rows]),
            macro_mae(self.model.predict(sets)[rows], target[rows], sets.family[rows]),
            len(np.unique(sets.family[rows])),
        )
        if self._sure_alone and not rows[sets.n_jobs > 1].any():
            self._interval = self._observed_interval = UNLEARNED
            return
        predicted, observed, scale = self._linked(held_out), self._linked(target), self._scale(held_out)
        error = (observed - predicted) / scale
        self._interval = calibrate(predicted[rows], observed[rows], scale[rows], sets.family[rows])
        self._spread = error_spread(error[rows], job_codes(sets)[rows])
        inputs: Inputs = "solo" if self.spec.name == "relative_speed" else "graph"
        self._scaler = Scaler.of(sets, inputs)
        self._observed_interval = self._interval
        if isinstance(self.model, ObservingModel):
            self._calibrate_observed(sets, target)

    def _calibrate_observed(self, sets: SetBatch, target: FloatArray) -> None:
        """The interval of jobs with one observation: held-out families, one drawn reading a job, the rest predicted."""
        random = np.random.default_rng(self.seed)
        sets, target = each_alone(sets, target)
        known = sets.present & np.isfinite(target)
        parts: list[tuple[FloatArray, FloatArray, IntArray]] = []
        for train, test in family_folds(sets, known):
            model = self._make().fit(sets.take(train), target[train])
            held = np.nonzero(test.any(axis=1))[0]
            for _ in range(CALIBRATION_DRAWS):
                drawn, rest = _draw_one_a_workload(sets, held, random)
                if len(rest) and isinstance(model, ObservingModel):
                    observed = model.observe(sets.take(drawn), target[drawn])
                    predicted = observed.predict(sets.take(rest))[:, 0]
                    parts.append((predicted, target[rest, 0], sets.family[rest, 0]))
        if parts:
            predicted, observed_target, family = (np.concatenate(column) for column in zip(*parts, strict=True))
            self._observed_interval = calibrate(predicted, observed_target, self._scale(predicted), family)


def _draw_one_a_workload(sets: SetBatch, held: IntArray, random: np.random.Generator) -> tuple[IntArray, IntArray]:
    codes, _ = workload_codes(sets.take(held))
    order = random.permutation(len(held))
    _, first = np.unique(codes[order], return_index=True)
    drawn = np.sort(held[order[first]])
    return drawn, np.setdiff1d(held, drawn)
