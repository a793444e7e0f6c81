"""Folds that hold families out never leak; weights make families equal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eaco_datasets.types import CoLocation, Job
from eaco_features.examples import Examples
from eaco_features.sets import SetBatch, sets_from_colocations
from eaco_predictor.families import MAX_INNER_FOLDS, family_folds, family_weights, macro_mae

FAMILIES = [f"f{i}" for i in range(12)]


def _sets(members: list[list[int]]) -> SetBatch:
    jobs = [tuple(Job(FAMILIES[m], FAMILIES[m], 8) for m in of_set) for of_set in members]
    return sets_from_colocations([CoLocation("a40", "mps", some) for some in jobs])


members = st.lists(st.lists(st.integers(0, len(FAMILIES) - 1), min_size=1, max_size=4), min_size=1, max_size=30)


@settings(max_examples=150)
@given(members, st.integers(1, 10), st.integers(0, 2**31))
def test_a_held_family_is_in_training_in_no_role(of_sets: list[list[int]], max_folds: int, seed: int) -> None:
    sets = _sets(of_sets)
    known = sets.present & (np.random.default_rng(seed).random(sets.present.shape) < 0.7)
    tested = np.zeros(known.shape, dtype=int)
    folds = family_folds(sets, known, max_folds)
    assert len(folds) <= max_folds
    for train, test in folds:
        trained = set(sets.family[train][sets.present[train]].tolist())
        held = set(sets.family[test].tolist())
        assert not trained & held
        assert not test[~known].any()
        assert known[train].any()
        tested += test
        # whatever is neither trained on nor held out stands beside a held-out job
        outside = [set(row.tolist()) for row in sets.family[~train]]
        assert all(row & held for row in outside)
    assert tested.max(initial=0) <= 1  # a job is tested once at most


def test_every_known_job_is_tested_once_when_something_is_left_to_train_on(
    examples_of: Callable[[str], Examples],
) -> None:
    examples = examples_of("relative_speed")
    known = np.isfinite(examples.target)
    folds = family_folds(examples.sets, known)
    assert len(folds) == MAX_INNER_FOLDS
    assert np.array_equal(sum(test.astype(int) for _, test in folds), known.astype(int))


def test_a_fold_with_nothing_to_train_on_is_left_out() -> None:
    sets = _sets([[0, 1], [0, 0]])
    folds = family_folds(sets, sets.present)
    assert [(train.tolist(), test.any(axis=1).tolist()) for train, test in folds] == [([False, True], [True, False])]


def test_one_family_cannot_be_held_out() -> None:
    sets = _sets([[3, 3], [3]])
    assert family_folds(sets, sets.present) == []


def test_folds_follow_the_names_and_not_the_order_of_the_rows() -> None:
    forward, backward = _sets([[0], [1], [2]]), _sets([[2], [1], [0]])

    def held(sets: SetBatch) -> list[str]:
        return [sets.families[sets.family[test][0]] for _, test in family_folds(sets, sets.present)]

    assert held(forward) == held(backward) == ["f0", "f1", "f2"]


def test_weights_by_hand() -> None:
    weights = family_weights(np.array([5, 5, 5, 2]))
    assert weights == pytest.approx([4 / 6, 4 / 6, 4 / 6, 2.0])


@given(st.lists(st.integers(0, 5), min_size=1, max_size=50))
def test_every_family_weighs_the_same(codes: list[int]) -> None:
    family = np.array(codes)
    weights = family_weights(family)
    totals = [weights[family == code].sum() for code in np.unique(family)]
    assert totals == pytest.approx([len(codes) / len(totals)] * len(totals))
    assert weights.mean() == pytest.approx(1.0)


def test_macro_error_is_the_mean_of_the_families_errors() -> None:
    error = np.array([0.1, 0.3, 0.5])
    assert macro_mae(error, np.zeros(3), np.array([0, 0, 1])) == pytest.approx((0.2 + 0.5) / 2)
