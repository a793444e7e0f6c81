"""Filling solo profiles from graphs: what was stated stays, and no family's rows reach its own cold profile."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from eaco_features.examples import Examples, examples_from_profiles, solo_sets
from eaco_features.sets import SOLO_FIELDS
from eaco_predictor.pipeline import TargetPipeline
from eaco_predictor.solo_fill import SoloFill, each_cold, forget

UTIL = SOLO_FIELDS.index("gpu_util_pct")


@pytest.fixture(scope="module")
def pairs(simulated: pd.DataFrame) -> Examples:
    return examples_from_profiles(simulated, "relative_speed")


def test_what_was_stated_stays(pairs: Examples) -> None:
    sets = pairs.sets
    fill = SoloFill().fit(sets)
    assert fill.fill(sets) is sets or np.array_equal(
        np.isnan(sets.solo) | (fill.fill(sets).solo == sets.solo), np.ones(sets.solo.shape, dtype=bool)
    )
    first = np.zeros(sets.present.shape, dtype=bool)
    first[:, 0] = True
    filled = fill.fill(forget(sets, first), first)
    assert np.array_equal(filled.solo[:, 1:], sets.solo[:, 1:], equal_nan=True)
    assert np.isfinite(filled.solo[:, 0, UTIL]).all()


def test_predicted_utilisation_is_near_the_measured_one(simulated: pd.DataFrame) -> None:
    sets = solo_sets(simulated)
    truth = sets.solo[:, 0, UTIL]
    cold = SoloFill().fit(sets).fill(forget(sets, sets.present)).solo[:, 0, UTIL]
    spread = np.abs(truth - np.median(truth)).mean()
    assert np.abs(cold - truth).mean() < 0.7 * spread


def test_no_row_of_a_family_reaches_its_own_cold_profile(pairs: Examples) -> None:
    """Spoil one family's solo profiles: what it is given as a cold job does not move."""
    sets, target = pairs.sets, pairs.target
    code = int(np.bincount(sets.family[sets.present]).argmax())
    mine = (sets.family == code) & sets.present
    spoiled = sets.with_solo(np.where(mine[:, :, None], sets.solo * 0.01, sets.solo))
    straight, only = each_cold(sets, target)
    moved, _ = each_cold(spoiled, target)
    own = np.isfinite(only) & (straight.family == code)
    assert own.any()
    assert np.array_equal(straight.solo[own], moved.solo[own], equal_nan=True)


def test_every_known_target_is_asked_once_of_a_cold_job(pairs: Examples) -> None:
    sets, only = each_cold(pairs.sets, pairs.target)
    assert np.isfinite(only).sum() == (np.isfinite(pairs.target) & pairs.sets.present).sum()
    assert (np.isfinite(only).sum(axis=1) == 1).all()
    assert np.nansum(only) == pytest.approx(np.nansum(pairs.target))
    assert len(sets) == len(only)


def test_a_cold_pipeline_answers_without_profiles_and_says_that_it_is_less_sure(pairs: Examples) -> None:
    bare = forget(pairs.sets, pairs.sets.present)
    warm = TargetPipeline("relative_speed", "soft-minimum").fit(pairs.sets, pairs.target)
    cold = TargetPipeline("relative_speed", "soft-minimum", cold=True).fit(pairs.sets, pairs.target)
    known, blind = warm.predict(pairs.sets), cold.predict(bare)
    shared = pairs.sets.present & (pairs.sets.n_jobs > 1)[:, None]
    assert np.isfinite(blind.mean[shared]).all()
    assert (blind.upper - blind.lower)[shared].mean() > (known.upper - known.lower)[shared].mean()
    error = {name: np.nanmean(np.abs(b.mean - pairs.target)) for name, b in (("warm", known), ("cold", blind))}
    usual = np.nanmean(np.abs(pairs.target - np.nanmean(pairs.target)))
    assert error["warm"] < error["cold"] < usual
