"""A GPU's solo power: the soft cap, its floor, and what one reading tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaco_datasets.gpus import gpu
from eaco_datasets.physics import demand_from_capped_w, soft_cap_w
from eaco_datasets.types import MAX_JOBS, CoLocation, Job
from eaco_features.examples import Examples
from eaco_features.sets import FloatArray, SetBatch, sets_from_colocations
from eaco_predictor.families import family_folds
from eaco_predictor.models.solo_power import SoftCap, Workload, each_alone, workload_codes

SPEC = gpu("v100-pcie")


@pytest.fixture(scope="module")
def examples(examples_of: Callable[[str], Examples]) -> Examples:
    return examples_of("gpu_power_w")


@pytest.fixture(scope="module")
def model(examples: Examples) -> SoftCap:
    return SoftCap().fit(examples.sets, examples.target)


def _jobs(*batch_sizes: int, limit_w: float = SPEC.power_limit_w, family: str = "unseen") -> SetBatch:
    jobs = [CoLocation("v100-pcie", "time-slice", (Job(family, family, b, dataset="d"),)) for b in batch_sizes]
    sets = sets_from_colocations(jobs)
    return replace(sets, power_limit_w=np.full(len(sets), limit_w))


def _first(power_w: float, n: int = 1) -> FloatArray:
    out = np.full((n, MAX_JOBS), np.nan)
    out[:, 0] = power_w
    return out


@given(st.floats(20, 600), st.floats(100, 700), st.floats(2, 20))
def test_the_soft_cap_is_undone(demand_w: float, cap_w: float, sharpness: float) -> None:
    capped = float(soft_cap_w(demand_w, cap_w, sharpness))
    assert capped <= min(demand_w, cap_w) * (1 + 1e-12)
    if capped < 0.99 * cap_w:
        assert float(demand_from_capped_w(capped, cap_w, sharpness)) == pytest.approx(demand_w, rel=1e-6)


def test_the_sharpness_of_the_data_is_found_again(model: SoftCap) -> None:
    assert model.sharpness in (4.0, 6.0, 8.0)  # made with 6, with 2 % noise


def test_nothing_known_gives_the_same_power_to_every_job_under_the_same_limit(model: SoftCap) -> None:
    power = model.predict(_jobs(8, 64, 512))[:, 0]
    assert power[0] == power[1] == power[2]
    assert SPEC.idle_w < power[0] < SPEC.power_limit_w


def test_a_lower_limit_never_draws_more(model: SoftCap) -> None:
    power = [model.predict(_jobs(32, limit_w=limit))[0, 0] for limit in (250.0, 200.0, 150.0, 100.0)]
    assert power == sorted(power, reverse=True)
    assert power[-1] <= 100.0


def test_no_demand_is_below_the_least_power_seen_on_the_gpu(model: SoftCap, examples: Examples) -> None:
    on_gpu = examples.sets.gpu == examples.sets.gpus.index("v100-pcie")
    least = float(np.nanmin(examples.target[on_gpu]))
    idle = model.observe(_jobs(32), _first(least))
    low = idle.predict(_jobs(1, 32, 4096))[:, 0]
    # the floor itself goes through the soft cap of the limit
    assert low == pytest.approx(np.full(3, least), rel=0.02)


def test_every_observed_configuration_is_given_back(examples: Examples) -> None:
    """Within 10 %, whichever of a workload's configurations was the one that was read."""
    for train, test in family_folds(examples.sets, np.isfinite(examples.target)):
        fitted = SoftCap().fit(examples.sets.take(train), examples.target[train])
        for at in np.flatnonzero(test.any(axis=1)):
            one = examples.sets.take(np.array([at]))
            seen = fitted.observe(one, examples.target[[at]]).predict(one)[0, 0]
            assert seen == pytest.approx(examples.target[at, 0], rel=0.1)


def test_a_larger_batch_draws_more_and_a_smaller_one_less(model: SoftCap) -> None:
    power = model.observe(_jobs(32), _first(140.0)).predict(_jobs(8, 16, 32, 64, 128))[:, 0]
    assert power[2] == pytest.approx(140.0, rel=0.02)
    assert (np.diff(power) > 0).all()
    assert power[-1] < SPEC.power_limit_w


def test_one_reading_tells_the_other_limits(model: SoftCap) -> None:
    demand_w = 170.0
    reading = float(soft_cap_w(demand_w, 250.0, 6.0))
    seen = model.observe(_jobs(32), _first(reading))
    for limit in (125.0, 187.5):
        predicted = seen.predict(_jobs(32, limit_w=limit))[0, 0]
        assert predicted == pytest.approx(float(soft_cap_w(demand_w, limit, 6.0)), rel=0.05)


def test_a_reading_at_its_cap_says_little_and_an_uncapped_one_overrules_it(model: SoftCap) -> None:
    capped = model.observe(_jobs(32, limit_w=100.0), _first(99.0))
    assert capped.predict(_jobs(32))[0, 0] > 0.85 * SPEC.power_limit_w
    sets = replace(_jobs(32, 32), power_limit_w=np.array([100.0, 250.0]))
    both = model.observe(sets, np.vstack([_first(99.0), _first(140.0)]))
    assert both.predict(_jobs(32))[0, 0] == pytest.approx(140.0, rel=0.15)


def test_a_reading_speaks_for_its_own_workload_only(model: SoftCap) -> None:
    seen = model.observe(_jobs(32), _first(240.0))
    strange = _jobs(32, family="another")
    assert np.array_equal(seen.predict(strange), model.predict(strange), equal_nan=True)


def test_observing_leaves_the_model_as_it_was(model: SoftCap) -> None:
    before = model.predict(_jobs(16, 32))
    after = model.observe(_jobs(32), _first(60.0)).predict(_jobs(16, 32))
    assert np.array_equal(model.predict(_jobs(16, 32)), before, equal_nan=True)
    assert (after[:, 0] < before[:, 0]).all()


@pytest.mark.parametrize("order", [[1, 0, 2, 3], [3, 2, 1, 0]])
def test_an_observed_job_is_found_in_any_place_of_its_set(model: SoftCap, order: list[int]) -> None:
    a, b = (Job(n, n, 32, dataset="d") for n in ("one", "two"))
    pair = sets_from_colocations([CoLocation("v100-pcie", "mps", (a, b))])
    target = np.full((1, MAX_JOBS), np.nan)
    target[0, :2] = 80.0, 220.0
    seen = model.observe(pair, target)
    power = seen.predict(pair)
    assert power[0, :2] == pytest.approx([80.0, 220.0], rel=0.05)
    moved = model.observe(pair.permute_jobs(order), target[:, order])
    assert np.array_equal(moved.predict(pair.permute_jobs(order)), power[:, order], equal_nan=True)


def test_jobs_are_set_alone_in_row_order() -> None:
    a, b = (Job(n, n, batch, dataset="d") for n, batch in (("one", 1), ("two", 2)))
    sets = sets_from_colocations([CoLocation("a40", "mps", (a, b)), CoLocation("l4", "mps", (b,))])
    target = np.full((2, MAX_JOBS), np.nan)
    target[sets.rows] = [10.0, 20.0, 30.0]
    alone, moved = each_alone(sets.permute_jobs([3, 1, 2, 0]), target[:, [3, 1, 2, 0]])
    assert (alone.n_jobs == 1).all()
    assert alone.present[:, 0].all()
    assert alone.batch_size[:, 0].tolist() == [2.0, 1.0, 2.0]
    assert moved[:, 0].tolist() == [20.0, 10.0, 30.0]
    assert np.isnan(moved[:, 1:]).all()
    assert (alone.config[:, 1:] == -1).all()
    assert [alone.gpus[code] for code in alone.gpu] == ["a40", "a40", "l4"]


def test_a_workload_is_its_family_dataset_optimizer_and_gpu() -> None:
    jobs = [Job("m", "bert", b, dataset=d, optimizer=o) for b, d, o in ((8, "x", "a"), (16, "x", "a"), (8, "y", "a"))]
    sets = sets_from_colocations([CoLocation("a40", "mps", (job,)) for job in jobs])
    codes, workloads = workload_codes(sets)
    assert codes.tolist() == [0, 0, 1]
    assert workloads == [Workload("bert", "x", "a", "a40"), Workload("bert", "y", "a", "a40")]


def test_a_gpu_that_was_never_read_starts_at_its_idle_watts(model: SoftCap) -> None:
    sets = sets_from_colocations([CoLocation("h200", "mps", (Job("x", "x", 8),))])
    spec = gpu("h200")
    expected = spec.idle_w + model.usual_saturation * (spec.power_limit_w - spec.idle_w)
    assert model.predict(sets)[0, 0] == pytest.approx(float(soft_cap_w(expected, spec.power_limit_w, model.sharpness)))
