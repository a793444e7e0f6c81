"""The shrunken per-job correction."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaco_datasets.types import MAX_JOBS, CoLocation, Job
from eaco_features.sets import ConfigKey, SetBatch, sets_from_colocations
from eaco_predictor.observations import WILD, Spread, corrections, error_spread, job_codes, job_key, per_job

SPREAD = Spread(between=0.04, within=0.01)
A, B = Job("a", "resnet50", 32), Job("b", "vgg16", 16)
KEY_A = ConfigKey("resnet50", "", 32, "fp32", "")


def _sets(*jobs: tuple[Job, ...], gpu: str = "a40") -> SetBatch:
    return sets_from_colocations([CoLocation(gpu, "mps", some) for some in jobs])


def _grid(n: int, *values: float) -> np.ndarray:
    out = np.full((n, MAX_JOBS), np.nan)
    out[:, 0] = values
    return out


def test_shrinkage_by_hand() -> None:
    assert SPREAD.shrinkage(0) == 0.0
    assert SPREAD.shrinkage(1) == pytest.approx(0.8)
    assert SPREAD.shrinkage(4) == pytest.approx(0.16 / 0.17)


def test_width_by_hand() -> None:
    assert SPREAD.width_factor(0) == 1.0
    assert SPREAD.width_factor(1) == pytest.approx(np.sqrt((0.04 * 0.2 + 0.01) / 0.05))


@given(st.floats(1e-6, 1.0), st.floats(1e-6, 1.0), st.integers(0, 50))
def test_more_observations_are_believed_more_and_narrow_the_interval(between: float, within: float, n: int) -> None:
    spread = Spread(between, within)
    assert 0.0 <= spread.shrinkage(n) < spread.shrinkage(n + 1) <= 1.0
    assert spread.width_factor(n + 1) < spread.width_factor(n)
    assert spread.width_factor(n) >= np.sqrt(within / (between + within)) * (1 - 1e-9)


def test_two_observations_of_a_job_give_their_shrunken_mean() -> None:
    sets = _sets((A, B), (A, B))
    error = _grid(2, 0.1, 0.2)
    found = corrections(sets, error, np.isfinite(error), SPREAD)
    assert set(found) == {("a40", KEY_A)}
    assert found["a40", KEY_A].shift == pytest.approx(0.15 * 0.08 / 0.09)
    assert found["a40", KEY_A].n == 2


def test_three_observations_give_their_median() -> None:
    sets = _sets((A,), (A,), (A,))
    error = _grid(3, 0.1, 0.12, 0.5)
    found = corrections(sets, error, np.isfinite(error), SPREAD)
    assert found["a40", KEY_A].shift == pytest.approx(0.12 * 0.12 / 0.13)


@pytest.mark.parametrize("wild", [50.0, -50.0])
def test_a_wild_observation_is_bounded(wild: float) -> None:
    sets = _sets((A,))
    error = _grid(1, wild)
    found = corrections(sets, error, np.isfinite(error), SPREAD)
    assert found["a40", KEY_A].shift == pytest.approx(np.sign(wild) * 0.8 * WILD * np.sqrt(0.05))


def test_a_correction_reaches_its_job_on_its_gpu_only() -> None:
    sets = _sets((A,))
    error = _grid(1, 0.1)
    known = corrections(sets, error, np.isfinite(error), SPREAD)
    shift, factor = per_job(_sets((B, A), (B,)), known, SPREAD)
    assert shift[0, 1] == pytest.approx(0.08)
    assert factor[0, 1] == pytest.approx(SPREAD.width_factor(1))
    assert np.count_nonzero(shift) == 1
    assert (factor != 1.0).sum() == 1
    shift, factor = per_job(_sets((B, A), gpu="l4"), known, SPREAD)
    assert not shift.any()
    assert (factor == 1.0).all()


def test_codes_find_their_job_again() -> None:
    sets = sets_from_colocations([CoLocation("a40", "mps", (A, B)), CoLocation("l4", "mps", (B,))])
    codes = job_codes(sets)
    assert (codes[~sets.present] == -1).all()
    found = [(job_key(sets, code)[0], job_key(sets, code)[1].family) for code in codes[sets.rows]]
    assert found == [("a40", "resnet50"), ("a40", "vgg16"), ("l4", "vgg16")]


def test_the_spread_between_and_within_jobs_is_found_again() -> None:
    random = np.random.default_rng(2)
    n_jobs, n_each = 600, 6
    error = np.repeat(random.normal(0, 0.3, n_jobs), n_each) + random.normal(0, 0.1, n_jobs * n_each)
    spread = error_spread(error, np.repeat(np.arange(n_jobs), n_each))
    assert spread.between == pytest.approx(0.09, rel=0.15)
    assert spread.within == pytest.approx(0.01, rel=0.1)


def test_the_spread_is_never_zero_or_negative() -> None:
    for error in (np.zeros(6), np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])):
        spread = error_spread(error, np.array([0, 0, 1, 1, 2, 2]))
        assert spread.between > 0
        assert spread.within > 0
