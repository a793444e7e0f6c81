"""A pipeline: bounds, limits, observations, and nothing learned from what is held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from eaco_datasets.errors import DataError, NotReadyError, UnknownNameError
from eaco_features.examples import Examples, examples_from_profiles
from eaco_features.sets import BoolArray, FloatArray, SetBatch
from eaco_predictor.families import family_folds, predict_out_of_family
from eaco_predictor.observations import job_codes
from eaco_predictor.pipeline import Bounds, TargetPipeline
from eaco_predictor.targets import TARGET_SPECS

Of = Callable[[str], Examples]
HELD_OUT = "resnet50"


@pytest.fixture(scope="module")
def speed(examples_of: Of) -> TargetPipeline:
    examples = examples_of("relative_speed")
    return TargetPipeline("relative_speed", "soft-minimum").fit(examples.sets, examples.target)


def _same(left: Bounds, right: Bounds) -> bool:
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("target", TARGET_SPECS)
def test_the_mean_is_between_its_bounds_and_all_inside_the_limits(target: str, examples_of: Of) -> None:
    examples = examples_of(target)
    bounds = TargetPipeline(target).fit(examples.sets, examples.target).predict(examples.sets)
    at = examples.sets.present
    assert (bounds.lower[at] <= bounds.mean[at]).all()
    assert (bounds.mean[at] <= bounds.upper[at]).all()
    for column in bounds:
        assert np.isnan(column[~at]).all()
        limited = TARGET_SPECS[target].limit(examples.sets, column)
        assert np.array_equal(limited, column, equal_nan=True)


@pytest.mark.parametrize("target", ["relative_speed", "gpu_power_w"])
def test_the_interval_is_wide_enough_in_sample(target: str, examples_of: Of) -> None:
    """Calibrated on held-out families, so rows that were trained on are covered all the more."""
    examples = examples_of(target)
    bounds = TargetPipeline(target).fit(examples.sets, examples.target).predict(examples.sets)
    known = np.isfinite(examples.target)
    inside = (examples.target >= bounds.lower) & (examples.target <= bounds.upper)
    assert inside[known].mean() >= 0.9
    assert (bounds.upper > bounds.lower)[known].mean() > 0.9


def test_without_intervals_both_bounds_are_the_mean(examples_of: Of) -> None:
    examples = examples_of("relative_speed")
    pipeline = TargetPipeline("relative_speed", "time-slice", intervals=False).fit(examples.sets, examples.target)
    mean, lower, upper = pipeline.predict(examples.sets)
    assert np.array_equal(mean, lower, equal_nan=True)
    assert np.array_equal(mean, upper, equal_nan=True)


def test_nothing_is_answered_before_fit(examples_of: Of) -> None:
    examples = examples_of("relative_speed")
    pipeline = TargetPipeline("relative_speed")
    with pytest.raises(NotReadyError, match="the relative_speed pipeline is not fitted yet"):
        pipeline.predict(examples.sets)
    with pytest.raises(NotReadyError, match="not fitted"):
        pipeline.observe(examples.sets, examples.target)


def test_nothing_to_learn_and_unknown_names_are_refused(examples_of: Of) -> None:
    examples = examples_of("relative_speed")
    with pytest.raises(DataError, match="no row has a known target"):
        TargetPipeline("relative_speed").fit(examples.sets, np.full_like(examples.target, np.nan))
    with pytest.raises(UnknownNameError, match="unknown target"):
        TargetPipeline("speed")
    with pytest.raises(UnknownNameError, match="unknown model"):
        TargetPipeline("relative_speed", "oracle")


def test_a_model_that_can_predict_no_row_is_not_calibrated_on_nothing(examples_of: Of) -> None:
    examples = examples_of("mem_mib")
    blind = examples.sets.with_solo(np.full_like(examples.sets.solo, np.nan))
    with pytest.raises(DataError, match="training data: no row with mem_mib can be predicted") as refused:
        TargetPipeline("mem_mib").fit(blind, examples.target)
    assert "\n" not in str(refused.value)


def test_targets_above_the_clip_are_learned_as_the_clip(examples_of: Of) -> None:
    examples = examples_of("relative_speed")
    high = np.where(examples.target > 0.9, 1.4, examples.target)
    clipped = np.minimum(high, 1.05)
    one, two = (
        TargetPipeline("relative_speed", "lightgbm").fit(examples.sets, t).predict(examples.sets)
        for t in (high, clipped)
    )
    assert _same(one, two)


class TestObserve:
    def _one_job(self, examples: Examples) -> BoolArray:
        """Where the job with the most rows is."""
        codes = job_codes(examples.sets)
        known = np.isfinite(examples.target)
        values, counts = np.unique(codes[known], return_counts=True)
        mine: BoolArray = known & (codes == values[np.argmax(counts)])
        return mine

    def test_nothing_observed_changes_nothing(self, speed: TargetPipeline, examples_of: Of) -> None:
        sets = examples_of("relative_speed").sets
        observed = speed.observe(sets, np.full(sets.present.shape, np.nan))
        assert _same(observed.predict(sets), speed.predict(sets))

    def test_the_original_is_left_as_it_was(self, speed: TargetPipeline, examples_of: Of) -> None:
        examples = examples_of("relative_speed")
        before = speed.predict(examples.sets)
        observed = speed.observe(examples.sets, np.minimum(examples.target * 0.7, 1.0))
        assert not _same(observed.predict(examples.sets), before)
        assert _same(speed.predict(examples.sets), before)

    def test_an_observed_job_is_moved_towards_what_was_seen_and_its_interval_narrows(
        self, speed: TargetPipeline, examples_of: Of
    ) -> None:
        examples = examples_of("relative_speed")
        mine = self._one_job(examples)
        low = np.where(mine, speed.predict(examples.sets).mean - 0.1, np.nan)
        before, after = speed.predict(examples.sets), speed.observe(examples.sets, low).predict(examples.sets)
        inner = mine & (before.mean < 1.0) & (before.mean > 0.2)
        assert inner.any()
        step = (after.mean - before.mean)[inner]
        assert ((step < 0) & (step >= -0.1 - 1e-12)).all()
        free = inner & (before.lower > 0.05) & (before.upper < 1.0)
        assert free.any()
        assert ((after.upper - after.lower) < (before.upper - before.lower))[free].all()
        others = examples.sets.present & ~mine
        assert np.array_equal(after.mean[others], before.mean[others])

    def test_a_wild_observation_cannot_leave_the_limits(self, speed: TargetPipeline, examples_of: Of) -> None:
        examples = examples_of("relative_speed")
        for value in (1e-6, 5.0):
            bounds = speed.observe(examples.sets, np.full_like(examples.target, value)).predict(examples.sets)
            at = examples.sets.present
            assert (bounds.lower[at] >= 0.01).all()
            assert (bounds.upper[at] <= 1.05).all()

    @pytest.mark.parametrize("target", ["mem_mib", "gpu_util_pct"])
    def test_what_is_known_of_a_job_alone_is_not_corrected(
        self, target: str, examples_of: Of, simulated: pd.DataFrame
    ) -> None:
        examples = examples_of(target)
        pipeline = TargetPipeline(target).fit(examples.sets, examples.target)
        observed = pipeline.observe(examples.sets, examples.target * 0.8)
        solo = simulated[simulated["role"] == "solo"]
        both = examples_from_profiles(pd.concat([solo, solo.assign(role="colocated")]), target)
        alone = both.sets
        assert np.isfinite(pipeline.predict(alone).mean).any()
        assert _same(observed.predict(alone), pipeline.predict(alone))
        shared = examples.sets
        assert not _same(observed.predict(shared), pipeline.predict(shared))

    def test_solo_power_uses_its_own_correction(self, examples_of: Of) -> None:
        examples = examples_of("gpu_power_w")
        train, test = family_folds(examples.sets, np.isfinite(examples.target))[0]
        pipeline = TargetPipeline("gpu_power_w").fit(examples.sets.take(train), examples.target[train])
        held = np.flatnonzero(test.any(axis=1))
        seen = held[:1]
        after = pipeline.observe(examples.sets.take(seen), examples.target[seen]).predict(examples.sets.take(seen))
        assert after.mean[0, 0] == pytest.approx(examples.target[seen[0], 0], rel=0.1)
        before = pipeline.predict(examples.sets.take(seen))
        assert after.upper[0, 0] - after.lower[0, 0] < before.upper[0, 0] - before.lower[0, 0]


LEAKY = [
    ("relative_speed", "ensemble"),
    ("relative_speed", "soft-minimum"),
    ("relative_speed", "lightgbm"),
    ("gpu_power_w", "soft-cap"),
    ("gpu_power_w", "lightgbm-by-name"),
    ("gpu_util_pct", "soft-sum"),
]


class TestNoLeak:
    """What stands about a held-out family in the table cannot reach a fit that is not given its rows."""

    @pytest.mark.parametrize(("target", "model"), LEAKY)
    def test_a_held_out_family_cannot_be_felt(
        self, target: str, model: str, simulated: pd.DataFrame, power_table: pd.DataFrame
    ) -> None:
        table = power_table if target == "gpu_power_w" else simulated
        touched = table.groupby("measurement_id")["family"].transform(lambda f: (f == HELD_OUT).any())
        spoiled = table.copy()
        for column in ("relative_speed", "gpu_util_pct", "mem_util_pct", "mem_mib", "gpu_power_w"):
            spoiled.loc[touched, column] = spoiled.loc[touched, column] * 0.31
        spoiled.loc[touched, "batch_size"] = spoiled.loc[touched, "batch_size"] * 4
        absent = table[~touched].reset_index(drop=True)
        asked = examples_from_profiles(table, target).sets
        answers = []
        for version in (table, spoiled, absent):
            examples = examples_from_profiles(version, target)
            names = examples.sets.families
            without = np.array([HELD_OUT not in {names[c] for c in row if c >= 0} for row in examples.sets.family])
            pipeline = TargetPipeline(target, model, seed=1).fit(examples.sets.take(without), examples.target[without])
            answers.append(pipeline.predict(asked))
        assert _same(answers[0], answers[1])
        # without those rows the codes of the vocabularies are others, and sums may be taken in another order
        for with_rows, without_rows in zip(answers[0], answers[2], strict=True):
            np.testing.assert_allclose(with_rows, without_rows, rtol=1e-9)

    @pytest.mark.parametrize("model", ["soft-minimum", "lightgbm"])
    def test_calibration_never_predicts_a_family_from_itself(self, model: str, examples_of: Of) -> None:
        examples = examples_of("relative_speed")
        sets, known = examples.sets, np.isfinite(examples.target)
        pipeline = TargetPipeline("relative_speed", model)
        _, test = family_folds(sets, known)[0]
        spoiled = np.where(test, 0.02, examples.target)
        solo = np.where(test[:, :, None], sets.solo * 0.5, sets.solo)

        def held_out(asked: SetBatch, target: FloatArray) -> FloatArray:
            return predict_out_of_family(pipeline._make, asked, target, family_folds(asked, known))

        here, there = held_out(sets, examples.target), held_out(sets, spoiled)
        assert np.array_equal(here[test], there[test])
        assert not np.array_equal(here[known], there[known])
        # its own solo profile is an input, not a target: that may and must show
        assert not np.array_equal(here[test], held_out(sets.with_solo(solo), spoiled)[test])


def test_relabelling_the_codes_changes_nothing(examples_of: Of) -> None:
    """Codes are names of the batch, not numbers to learn from."""
    examples = examples_of("relative_speed")
    sets = examples.sets
    n = len(sets.configs)
    relabelled = replace(
        sets,
        config=np.where(sets.present, n - 1 - sets.config, -1),
        configs=tuple(reversed(sets.configs)),
        family=np.where(sets.present, len(sets.families) - 1 - sets.family, -1),
        families=tuple(reversed(sets.families)),
    )
    one, two = (
        TargetPipeline("relative_speed", "soft-minimum").fit(s, examples.target).predict(sets)
        for s in (sets, relabelled)
    )
    for left, right in zip(one, two, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9)


def test_a_second_observation_of_a_job_adds_to_the_first(speed: TargetPipeline, examples_of: Of) -> None:
    examples = examples_of("relative_speed")
    job = job_codes(examples.sets)
    own = (job == job[0, 0]) & np.isfinite(examples.target)
    first, second = np.flatnonzero(own.any(axis=1))[:2]
    target = np.where(own, examples.target, np.nan)

    def seen(pipeline: TargetPipeline, *rows: int) -> TargetPipeline:
        return pipeline.observe(examples.sets.take(np.array(rows)), target[list(rows)])

    one_by_one = seen(seen(speed, first), second).predict(examples.sets)
    assert _same(one_by_one, seen(speed, first, second).predict(examples.sets))
    assert not _same(one_by_one, seen(speed, second).predict(examples.sets))


def test_the_error_on_unseen_families_stands_beside_the_in_sample_one(examples_of: Of) -> None:
    examples = examples_of("relative_speed")
    errors = TargetPipeline("relative_speed", "lightgbm").fit(examples.sets, examples.target).errors
    assert errors is not None
    assert errors.n_families == len(np.unique(examples.sets.family[np.isfinite(examples.target)]))
    assert 0 < errors.in_sample < errors.out_of_family
