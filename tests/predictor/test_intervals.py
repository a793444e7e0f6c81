"""Conformal intervals over families, and the probability of a miss."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, t

from eaco_predictor.intervals import Interval, calibrate, miss_probability


def _stretch(n_families: int) -> float:
    return float(t.ppf(0.95, n_families - 1) / norm.ppf(0.95))


def test_weighted_quantiles_by_hand() -> None:
    # family 0: four errors of weight 1/4, family 1: two of weight 1/2; 5 % and 95 % of a total of 2
    target = np.array([-1.0, 0.0, 1.0, 2.0, -3.0, 3.0])
    interval = calibrate(np.zeros(6), target, np.ones(6), np.array([0, 0, 0, 0, 1, 1]))
    assert interval.lower == pytest.approx(-3.0 * _stretch(2))
    assert interval.upper == pytest.approx(3.0 * _stretch(2))


def test_a_family_of_many_rows_counts_as_one_of_few() -> None:
    """Quantiles equal those of a table in which every family is repeated to the same number of rows."""
    random = np.random.default_rng(4)
    sizes = (3, 7, 19)
    errors = [random.normal(i - 1, 1.0, n) for i, n in enumerate(sizes)]
    repeated = np.concatenate([np.repeat(e, 3 * 7 * 19 // len(e)) for e in errors])
    low, high = np.quantile(repeated, [0.05, 0.95], method="inverted_cdf")
    family = np.repeat([0, 1, 2], sizes)
    prediction, scale = random.uniform(1, 2, sum(sizes)), random.uniform(0.5, 2, sum(sizes))
    interval = calibrate(prediction, prediction + scale * np.concatenate(errors), scale, family)
    assert interval.lower == pytest.approx(low * _stretch(3))
    assert interval.upper == pytest.approx(high * _stretch(3))


def test_the_mean_is_always_inside() -> None:
    interval = calibrate(np.zeros(20), np.linspace(1, 2, 20), np.ones(20), np.arange(20))
    assert interval.lower == 0.0
    assert interval.upper > 1.9
    interval = calibrate(np.zeros(20), -np.linspace(1, 2, 20), np.ones(20), np.arange(20))
    assert interval.upper == 0.0


def test_fewer_families_give_a_wider_interval() -> None:
    errors = np.random.default_rng(0).normal(size=240)
    widths = []
    for n_families in (24, 8, 3, 2):
        interval = calibrate(np.zeros(240), errors, np.ones(240), np.arange(240) % n_families)
        widths.append(interval.upper - interval.lower)
    assert widths == sorted(widths)
    assert widths[-1] > 2 * widths[0]


def test_one_family_is_enough_to_answer() -> None:
    interval = calibrate(np.zeros(9), np.linspace(-1, 1, 9), np.ones(9), np.zeros(9, dtype=np.int64))
    assert np.isfinite([interval.lower, interval.upper]).all()


@pytest.mark.parametrize(("n_families", "between", "least"), [(7, 0.5, 0.89), (7, 2.0, 0.86), (20, 1.0, 0.88)])
def test_new_families_are_covered_as_promised(n_families: int, between: float, least: float) -> None:
    """About 90 % of the rows of families that are exchangeable with the calibration ones, over 400 draws.

    Few families that differ much fall a little short of it: below 9 of them nothing can be guaranteed.
    """
    random = np.random.default_rng(11)
    n_rows = 30
    covered = []
    for _ in range(400):
        effect = random.normal(0, between, n_families + 1)
        error = effect[:, None] + random.normal(0, 1.0, (n_families + 1, n_rows))
        seen = error[:-1].ravel()
        interval = calibrate(np.zeros(seen.size), seen, np.ones(seen.size), np.repeat(np.arange(n_families), n_rows))
        covered.append(((error[-1] >= interval.lower) & (error[-1] <= interval.upper)).mean())
    assert least <= np.mean(covered) <= 0.97


def test_bounds_scale_and_widen() -> None:
    lower, upper = Interval(-0.2, 0.1).bounds(np.array([10.0, 20.0]), np.array([1.0, 2.0]), np.array([1.0, 0.5]))
    assert lower.tolist() == pytest.approx([9.8, 19.8])
    assert upper.tolist() == pytest.approx([10.1, 20.1])


def _miss(need: float, mean: float, lower: float, upper: float) -> float:
    return float(miss_probability(np.array(need), np.array(mean), np.array(lower), np.array(upper)))


@pytest.mark.parametrize(
    ("need", "expected"),
    [
        (0.6, 0.05),
        (0.9, 0.95),
        (0.8, 0.5),
        (0.7, norm.cdf(-0.1 / (0.2 / norm.ppf(0.95)))),
        (0.85, norm.cdf(0.05 / (0.1 / norm.ppf(0.95)))),
        (0.2, norm.cdf(-0.6 / (0.2 / norm.ppf(0.95)))),
    ],
)
def test_each_side_of_the_mean_is_a_normal_of_its_own(need: float, expected: float) -> None:
    assert _miss(need, 0.8, 0.6, 0.9) == pytest.approx(expected, abs=1e-12)


speed = st.floats(0.01, 1.05)


@given(speed, st.floats(0, 0.5), st.floats(0, 0.5), speed, speed)
def test_needing_more_is_never_safer(mean: float, below: float, above: float, one: float, two: float) -> None:
    less, more = sorted([one, two])
    risks = [_miss(need, mean, mean - below, mean + above) for need in (less, more)]
    assert 0.0 <= risks[0] <= risks[1] <= 1.0


@given(speed, speed)
def test_without_width_there_is_no_doubt(need: float, mean: float) -> None:
    expected = 0.5 if need == mean else float(need > mean)
    assert _miss(need, mean, mean, mean) == expected


def test_width_on_one_side_only_leaves_no_doubt_on_the_other() -> None:
    assert _miss(0.79, 0.8, 0.8, 0.9) == 0.0
    assert 0.5 < _miss(0.81, 0.8, 0.8, 0.9) < 0.95
    assert _miss(0.81, 0.8, 0.7, 0.8) == 1.0


@pytest.mark.parametrize("unknown", range(4))
def test_what_is_unknown_is_no_certainty(unknown: int) -> None:
    values = [0.5, 0.8, 0.6, 0.9]
    values[unknown] = float("nan")
    if unknown == 3:
        values[0] = 0.85  # the upper bound matters above the mean only
    assert np.isnan(_miss(*values))
