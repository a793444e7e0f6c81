"""Figures by hand on small cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eaco_training.metrics import (
    FamilyBootstrap,
    ScoredRows,
    interval_figures,
    macro_figures,
    overall_figures,
    paired_difference,
    point_figures,
)


def rows(target, mean, group=None, *, family=None, clip=None, half_width=0.1):
    target, mean = np.array(target, dtype=float), np.array(mean, dtype=float)
    group = np.array(group if group is not None else np.zeros(len(target)), dtype=np.int64)
    family = group if family is None else np.array(family, dtype=np.int64)
    return ScoredRows(target, mean, mean - half_width, mean + half_width, group, family, clip)


def test_errors_are_clipped_on_both_sides_and_raw_beside():
    scored = rows([1.25, 0.5], [1.10, 0.6], clip=1.05)
    figures = point_figures(scored)
    assert figures["mae"] == pytest.approx((0.0 + 0.1) / 2)
    assert figures["mae_raw"] == pytest.approx((0.15 + 0.1) / 2)
    assert figures["mape_pct"] == pytest.approx(100 * (0.1 / 0.5) / 2)


def test_r2_of_the_mean_is_zero_and_undefined_for_one_value():
    assert point_figures(rows([1, 2, 3], [2, 2, 2]))["r2"] == pytest.approx(0.0)
    assert point_figures(rows([1, 2, 3], [1, 2, 3]))["r2"] == pytest.approx(1.0)
    assert point_figures(rows([2, 2], [1, 3]))["r2"] is None


def test_coverage_counts_rows_inside_their_interval():
    figures = interval_figures(rows([1.0, 2.0, 3.0, 4.0], [1.05, 2.0, 3.5, 4.09]))
    assert figures["coverage_pct"] == pytest.approx(75.0)
    assert figures["interval_width"] == pytest.approx(0.2)


def test_no_interval_is_null_not_zero():
    scored = ScoredRows(np.ones(2), np.ones(2), np.full(2, np.nan), np.full(2, np.nan), *[np.zeros(2, int)] * 2)
    assert interval_figures(scored) == {"coverage_pct": None, "interval_width": None}


def test_macro_weighs_groups_not_rows():
    scored = rows([1, 1, 1, 1], [1, 1, 1, 2], group=[0, 0, 0, 5])
    assert point_figures(scored)["mae"] == pytest.approx(0.25)
    assert macro_figures(scored) == {"n_groups": 2, "macro_mae": 0.5, "macro_mape_pct": 50.0}


def test_bootstrap_resamples_whole_families():
    scored = rows([0, 0, 0, 0], [1, 1, 1, 3], group=[0, 0, 0, 1])
    boot = FamilyBootstrap.of(scored.family, seed=0)
    pooled, macro = boot.means(scored, scored.abs_error)
    # two families drawn twice: (0, 0), (0, 1) or (1, 1) and nothing between
    assert set(np.round(macro, 9)) == {1.0, 2.0, 3.0}
    assert set(np.round(pooled, 9)) == {1.0, 1.5, 3.0}
    assert np.mean(macro == 2.0) == pytest.approx(0.5, abs=0.05)


def test_a_gpu_across_families_is_averaged_over_the_drawn_families():
    scored = rows([0, 0, 0, 0], [1, 3, 5, 7], group=[0, 0, 1, 1], family=[0, 1, 0, 1])
    boot = FamilyBootstrap.of(scored.family, seed=0)
    _, macro = boot.means(scored, scored.abs_error)
    assert set(np.round(macro, 9)) == {3.0, 4.0, 5.0}  # both rows of family 0, one of each, both of family 1


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 1), st.floats(0.1, 1), st.integers(0, 4)), min_size=6, max_size=40))
def test_the_interval_holds_the_figure_and_repeats(sample):
    target, mean, group = zip(*sample, strict=True)
    scored = rows(target, mean, group=group)
    figures = overall_figures(scored, seed=1)
    assert figures == overall_figures(scored, seed=1)
    if len(set(group)) == 1:
        assert figures["mae_ci"] is None
    else:
        low, high = figures["mae_ci"]
        assert low - 1e-6 <= high
        worst = max(abs(t - m) for t, m in zip(target, mean, strict=True))
        assert 0 <= low <= high <= worst + 1e-6


def test_equal_families_leave_no_doubt():
    figures = overall_figures(rows([0.0] * 6, [0.2] * 6, group=[0, 0, 1, 1, 2, 2]), seed=0)
    assert figures["mae_ci"] == [0.2, 0.2]
    assert figures["macro_mae_ci"] == [0.2, 0.2]


def test_paired_difference_cancels_what_is_hard_for_both():
    hard = np.repeat([0.0, 1.0, 5.0, 9.0], 3)
    group = np.repeat(np.arange(4), 3)
    better, worse = rows(np.zeros(12), hard + 0.1, group), rows(np.zeros(12), hard + 0.3, group)
    figures = paired_difference(better, worse, seed=0)
    assert figures["macro_mae_difference"] == pytest.approx(-0.2)
    assert figures["macro_mae_difference_ci"] == pytest.approx([-0.2, -0.2])
    assert figures["better_share_of_resamples"] == 1.0


def test_a_target_of_zero_has_no_percentage():
    scored = rows([0.0, 0.0, 2.0], [1.0, 1.0, 1.0], group=[0, 0, 1])
    assert point_figures(scored)["mape_pct"] == pytest.approx(50.0)
    assert overall_figures(scored, seed=0)["macro_mape_ci"] == [50.0, 50.0]
    assert point_figures(rows([0.0], [1.0]))["mape_pct"] is None


def test_no_rows_is_null():
    assert overall_figures(rows([], []), seed=0) is None
