"""The ensemble's choice: made on training families only, and right where the truth is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from eaco_datasets.physics import soft_minimum_speed
from eaco_datasets.types import CoLocation, Job, SoloProfile
from eaco_features.examples import Examples
from eaco_features.sets import FloatArray, SetBatch, others_sum, sets_from_colocations
from eaco_predictor.families import family_folds
from eaco_predictor.models.ensemble import Choice, Ensemble
from eaco_predictor.models.soft_minimum import SoftMinimum
from eaco_predictor.protocol import OutOfFamily

CAPACITY_PCT, SHARPNESS = 120.0, 3.0
NAMES = [f"family{i}" for i in range(6)]


def _pairs(seed: int, n: int = 240) -> SetBatch:
    random = np.random.default_rng(seed)

    def job() -> Job:
        name = NAMES[random.integers(len(NAMES))]
        solo = SoloProfile(
            gpu_util_pct=random.uniform(5, 100), mem_util_pct=random.uniform(0, 90), mem_mib=random.uniform(1e3, 9e3)
        )
        return Job(name, name, int(random.choice([16, 32])), solo=solo)

    return sets_from_colocations([CoLocation("a40", "mps", (job(), job())) for _ in range(n)])


def _truth(sets: SetBatch) -> FloatArray:
    util = np.where(sets.present, sets.solo_of("gpu_util_pct"), 0.0)
    speed = soft_minimum_speed(util, others_sum(util, sets.present), CAPACITY_PCT, SHARPNESS)
    return np.where(sets.present, speed, np.nan)


def test_the_soft_minimum_finds_its_parameters_again() -> None:
    sets = _pairs(1)
    noisy = _truth(sets) + np.random.default_rng(2).normal(0, 0.01, sets.present.shape)
    model = SoftMinimum().fit(sets, noisy)
    assert model.capacity_pct == pytest.approx(CAPACITY_PCT, rel=0.03)
    assert model.sharpness == pytest.approx(SHARPNESS, rel=0.1)


def test_no_family_decides_by_its_number_of_rows() -> None:
    """One family with 20 times the rows of the others and another capacity hardly moves the fit."""
    sets = _pairs(3, 100)
    target = _truth(sets)
    odd = sets.family == 0
    slow = np.where(odd, target * 0.7, target)
    many = np.concatenate([np.arange(100), np.repeat(np.flatnonzero(odd.any(axis=1)), 20)])
    once, often = SoftMinimum().fit(sets, slow), SoftMinimum().fit(sets.take(many), slow[many])
    equal = SoftMinimum().fit(sets, target)
    assert abs(often.capacity_pct - once.capacity_pct) < 0.5 * abs(equal.capacity_pct - 0.7 * equal.capacity_pct)


def test_physics_gets_everything_where_physics_is_the_truth() -> None:
    sets = _pairs(1)
    model = Ensemble().fit(sets, _truth(sets))
    assert model.choice.physics_share == 1.0
    fresh = _pairs(9, 60)
    assert np.nanmax(np.abs(model.predict(fresh) - _truth(fresh))) < 0.01


def test_trees_get_most_where_utilisation_says_nothing() -> None:
    sets = _pairs(1)
    traffic = np.where(sets.present, sets.solo_of("mem_util_pct"), 0.0)
    target = np.where(sets.present, np.where(others_sum(traffic, sets.present) > 45, 0.4, 0.95), np.nan)
    assert Ensemble().fit(sets, target).choice.physics_share <= 0.25


def test_two_families_leave_nothing_to_choose_on() -> None:
    sets = _pairs(1)
    few = sets.take((np.isin(sets.family, [0, 1]) | ~sets.present).all(axis=1))
    assert len(few) > 10
    assert Ensemble().fit(few, _truth(few)).choice == Choice(1.0, "shallow-forest-160")


def test_what_it_was_chosen_on_was_predicted_without_the_family(examples_of: Callable[[str], Examples]) -> None:
    examples = examples_of("relative_speed")
    known = np.isfinite(examples.target)
    model = Ensemble().fit(examples.sets, examples.target)
    assert isinstance(model, OutOfFamily)
    out = model.out_of_family()
    assert np.isfinite(out[known]).all()
    assert np.isnan(out[~known]).all()
    share, trees = model.choice
    train, test = family_folds(examples.sets, known)[2]
    kept, target = examples.sets.take(train), examples.target[train]
    physics = SoftMinimum().fit(kept, target).predict(examples.sets)
    other = Ensemble()._tree_makers()[trees]().fit(kept, target).predict(examples.sets)
    assert np.array_equal(out[test], (share * physics + (1 - share) * other)[test])


def test_rows_held_out_of_training_do_not_reach_the_choice(examples_of: Callable[[str], Examples]) -> None:
    examples = examples_of("relative_speed")
    train, _ = family_folds(examples.sets, np.isfinite(examples.target))[1]
    random = np.random.default_rng(5)
    spoiled_target = np.where(train[:, None], examples.target, random.uniform(0.1, 1.0, examples.target.shape))
    spoiled = examples.sets.with_solo(np.where(train[:, None, None], examples.sets.solo, examples.sets.solo * 0.3))
    one = Ensemble(seed=2).fit(examples.sets.take(train), examples.target[train])
    two = Ensemble(seed=2).fit(spoiled.take(train), spoiled_target[train])
    assert one.choice == two.choice
    assert np.array_equal(one.predict(examples.sets), two.predict(examples.sets), equal_nan=True)


def test_another_seed_draws_other_trees(examples_of: Callable[[str], Examples]) -> None:
    examples = examples_of("relative_speed")
    makers = [Ensemble(seed=seed)._tree_makers()["shallow-forest-20"]() for seed in (0, 1)]
    one, two = (make.fit(examples.sets, examples.target).predict(examples.sets) for make in makers)
    assert not np.array_equal(one, two, equal_nan=True)
