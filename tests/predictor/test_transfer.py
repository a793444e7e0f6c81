"""A model carried to another GPU type: better with each measurement, unchanged elsewhere, never in doubt of nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from eaco_datasets.errors import InputError, NotReadyError
from eaco_datasets.simulated import simulate_profiles
from eaco_datasets.types import CoLocation, Job
from eaco_features.examples import Examples, examples_from_profiles
from eaco_predictor.fitting import adapt_predictor
from eaco_predictor.models.base import input_matrix
from eaco_predictor.pipeline import TargetPipeline
from eaco_predictor.predictor import Predictor
from eaco_predictor.transfer import Scaler

NEW = "v100-sxm"


@pytest.fixture(scope="module")
def both(simulated: pd.DataFrame) -> Examples:
    """Two GPU types, the second made 0.2 slower than it was."""
    examples = examples_from_profiles(simulated, "relative_speed")
    slower = (examples.sets.gpu == examples.sets.gpus.index(NEW))[:, None] & (examples.sets.n_jobs > 1)[:, None]
    return replace(examples, target=np.maximum(examples.target - 0.2 * slower, 0.05))


@pytest.fixture(scope="module")
def carried(both: Examples) -> TargetPipeline:
    old = np.flatnonzero(both.sets.gpu != both.sets.gpus.index(NEW))
    return TargetPipeline("relative_speed", "soft-minimum").fit(both.sets.take(old), both.target[old])


def _new(both: Examples) -> np.ndarray:
    return np.flatnonzero((both.sets.gpu == both.sets.gpus.index(NEW)) & np.isfinite(both.target).any(axis=1))


def _error(pipeline: TargetPipeline, both: Examples, at: np.ndarray) -> float:
    return float(np.nanmean(np.abs(pipeline.predict(both.sets.take(at)).mean - both.target[at])))


def test_measurements_bring_the_error_down(carried: TargetPipeline, both: Examples) -> None:
    at = _new(both)
    few, test = at[:20], at[20:]
    adapted = carried.adapt(NEW, both.sets.take(few), both.target[few])
    assert _error(adapted, both, test) < 0.6 * _error(carried, both, test)


def test_no_measurement_changes_nothing(carried: TargetPipeline, both: Examples) -> None:
    nothing = both.take(np.array([], dtype=np.int64))
    assert carried.adapt(NEW, nothing.sets, nothing.target) is carried
    few = both.take(_new(both)[:3])
    assert carried.adapt(NEW, few.sets, np.full_like(few.target, np.nan)) is carried
    assert carried.adapt("a40", few.sets, few.target) is carried  # those were on another type


def test_other_gpu_types_are_answered_as_before(carried: TargetPipeline, both: Examples) -> None:
    few = both.take(_new(both)[:20])
    adapted = carried.adapt(NEW, few.sets, few.target)
    old = both.sets.take(np.flatnonzero(both.sets.gpu != both.sets.gpus.index(NEW)))
    for before, after in zip(carried.predict(old), adapted.predict(old), strict=True):
        assert np.array_equal(before, after, equal_nan=True)


def test_the_interval_tightens_and_stays_around_the_mean(carried: TargetPipeline, both: Examples) -> None:
    at = _new(both)
    few = both.take(at[:40])
    before = carried.predict(both.sets.take(at))
    after = carried.adapt(NEW, few.sets, few.target).predict(both.sets.take(at))
    inside = np.isfinite(after.mean)
    assert (after.lower[inside] <= after.mean[inside]).all()
    assert (after.mean[inside] <= after.upper[inside]).all()
    assert np.nanmean(after.upper - after.lower) < np.nanmean(before.upper - before.lower)


def test_observations_go_on_top(carried: TargetPipeline, both: Examples) -> None:
    at = _new(both)
    few = both.take(at[:20])
    adapted = carried.adapt(NEW, few.sets, few.target)
    seen = both.take(at[20:21])
    lifted = np.where(np.isfinite(seen.target), seen.target + 0.3, np.nan)
    after = adapted.observe(seen.sets, lifted).predict(seen.sets).mean
    shared = np.isfinite(after) & (seen.sets.n_jobs > 1)[:, None]
    assert (after[shared] > adapted.predict(seen.sets).mean[shared]).all()


def test_observations_one_by_one_say_what_they_say_together(carried: TargetPipeline, both: Examples) -> None:
    at = _new(both)
    few, seen = both.take(at[:20]), both.take(at[20:24])
    adapted = carried.adapt(NEW, few.sets, few.target)
    together = adapted.observe(seen.sets, seen.target)
    one_by_one = adapted
    for i in range(4):
        one = seen.take(np.array([i]))
        one_by_one = one_by_one.observe(one.sets, one.target)
    for left, right in zip(together.predict(both.sets), one_by_one.predict(both.sets), strict=True):
        assert np.allclose(left, right, equal_nan=True)


def test_errors_larger_than_usual_widen_the_interval(carried: TargetPipeline, both: Examples) -> None:
    at = _new(both)
    few, rest = both.take(at[:20]), both.sets.take(at[20:])
    usual = carried.adapt(NEW, few.sets, few.target).predict(rest)
    wild = np.clip(np.random.default_rng(0).uniform(0.0, 1.5, few.target.shape), 0.01, 1.5)
    surprised = carried.adapt(NEW, few.sets, np.where(np.isfinite(few.target), wild, np.nan)).predict(rest)
    shared = (rest.n_jobs > 1)[:, None] & np.isfinite(usual.mean)
    assert np.mean((surprised.upper - surprised.lower)[shared]) > 1.1 * np.mean((usual.upper - usual.lower)[shared])


def test_what_never_varied_tells_nothing(both: Examples) -> None:
    old = both.sets.take(np.flatnonzero(both.sets.gpu == both.sets.gpus.index("rtx3090")))
    scaler = Scaler.of(old, "solo")
    constant = np.ptp(np.nan_to_num(input_matrix(old, "solo")), axis=0) < 1e-12
    assert constant.any()
    assert scaler.rows(old).shape[1] == (~constant).sum()


def test_a_head_needs_a_calibrated_pipeline(both: Examples) -> None:
    bare = TargetPipeline("relative_speed", "soft-minimum", intervals=False).fit(both.sets, both.target)
    few = both.take(_new(both)[:5])
    with pytest.raises(NotReadyError, match="without intervals"):
        bare.adapt(NEW, few.sets, few.target)


@pytest.fixture(scope="module")
def elsewhere() -> pd.DataFrame:
    """Simulated measurements on a type that the predictor has not seen."""
    return simulate_profiles(seed=5, gpus=["a40"], n_sets_per_gpu=40)


@pytest.fixture(scope="module")
def adapted(predictor: Predictor, elsewhere: pd.DataFrame) -> Predictor:
    return adapt_predictor(predictor, elsewhere, "a40", samples=10)


class TestPredictor:
    def test_answers_for_the_new_type_and_for_the_old_as_before(self, predictor: Predictor, adapted: Predictor) -> None:
        job = Job("r", "resnet50", 48, dataset="imagenet")
        new, old = CoLocation("a40", "time-slice", (job, job)), CoLocation("rtx3090", "time-slice", (job, job))
        assert predictor.predict([new])[0].abstained is not None
        answer = adapted.predict([new])[0]
        assert answer.abstained is None
        assert answer.provenance["simulated"] > 0
        straight, carried = predictor.predict([old])[0], adapted.predict([old])[0]
        assert replace(carried, predictor_version=straight.predictor_version) == straight

    def test_says_where_it_comes_from(self, predictor: Predictor, adapted: Predictor) -> None:
        assert adapted.info.gpus == ("a40", *predictor.info.gpus)
        assert adapted.info.version != predictor.info.version
        assert predictor.info.version in adapted.info.notes[-1]
        assert "10 co-located measurements" in adapted.info.notes[-1]

    def test_refuses_what_makes_no_sense(
        self, predictor: Predictor, adapted: Predictor, elsewhere: pd.DataFrame
    ) -> None:
        with pytest.raises(InputError, match="answers for a40 already"):
            adapt_predictor(adapted, elsewhere, "a40", samples=5)
        with pytest.raises(InputError, match="0 co-located measurements on t4"):
            adapt_predictor(predictor, elsewhere, "t4", samples=5)
        with pytest.raises(InputError, match="samples of"):
            adapt_predictor(predictor, elsewhere, "a40", samples=10_000)
