"""Contention, power and memory formulas keep to their limits and to worked examples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eaco_datasets import physics
from eaco_datasets.physics import MPS_COSTS, TIME_SLICE_COSTS, SharingCosts, StepLoads, contend

OVERLAP = 0.8
shares = st.floats(0.0, 1.0)
percents = st.floats(0.0, 100.0)
costs_of_modes = st.sampled_from([TIME_SLICE_COSTS, MPS_COSTS])


def loads_of(rows: list[tuple[float, float, float, float, float]]) -> StepLoads:
    """One set; a row a job: host s, kernel s, occupancy, memory-bound share, bandwidth."""
    columns = np.array(rows, dtype=float).reshape(1, -1, 5)
    return StepLoads(*(columns[:, :, i] for i in range(5)))


@st.composite
def job_rows(draw: st.DrawFn, least: int = 1) -> list[tuple[float, float, float, float, float]]:
    seconds = st.floats(1e-4, 1.0)
    job = st.tuples(seconds, seconds, st.floats(0.01, 1.0), shares, st.floats(0.0, 0.8))
    return draw(st.lists(job, min_size=least, max_size=4))


def test_time_slice_shares_a_full_gpu_by_demand() -> None:
    assert physics.time_slice_speed(50, 30) == 1.0
    assert physics.time_slice_speed(100, 100) == pytest.approx(0.5)


@given(percents, percents, st.floats(20, 200), st.floats(0.5, 8))
def test_soft_minimum_falls_with_load_and_stays_under_time_slicing(
    own: float, others: float, capacity: float, sharpness: float
) -> None:
    speed = physics.soft_minimum_speed(own, others, capacity, sharpness)
    assert 0 < speed <= 1
    assert physics.soft_minimum_speed(own, others + 10, capacity, sharpness) <= speed
    assert speed <= min(1.0, capacity / max(own + others, 1e-9)) + 1e-9


@given(st.floats(5, 100), st.floats(0, 600), percents)
def test_fan_power_stays_between_idle_and_busy(idle: float, more: float, util: float) -> None:
    power = physics.fan_power_w(idle, idle + more, util)
    assert idle - 1e-9 <= power <= idle + more + 1e-9
    assert physics.fan_power_w(idle, idle + more, 100) == pytest.approx(idle + more)


@given(st.floats(1, 700), st.floats(1, 700), st.floats(1, 30))
def test_soft_cap_is_under_both_demand_and_cap(demand: float, cap: float, sharpness: float) -> None:
    power = physics.soft_cap_w(demand, cap, sharpness)
    assert 0 < power <= min(demand, cap)
    assert physics.soft_cap_w(demand, cap, 200) == pytest.approx(min(demand, cap), rel=0.01)


def test_memory_of_a_set_is_the_sum_of_solo_peaks_of_those_present() -> None:
    peaks = np.array([[2000.0, 3000.0, np.nan], [2000.0, np.nan, 1.0]])
    present = np.array([[True, True, False], [True, True, True]])
    total = physics.set_memory_mib(peaks, present)
    assert total[0] == 5000
    assert np.isnan(total[1])
    assert physics.out_of_memory(total, [4999, 4999]).tolist() == [True, False]
    assert not physics.out_of_memory(5000.0, 5000.0)


def test_max_min_shares_of_worked_examples() -> None:
    # Bertsekas and Gallager's rule by hand: 0.2 is served, the rest split evenly; all served when there is room.
    demand = np.array([[0.2, 0.9, 0.5], [0.1, 0.2, 0.3], [0.9, 0.9, 0.9]])
    shared = physics.max_min_share(demand, np.array([1.0, 1.0, 0.9]))
    np.testing.assert_allclose(shared, [[0.2, 0.4, 0.4], [0.1, 0.2, 0.3], [0.3, 0.3, 0.3]])


@given(arrays(float, (3, 4), elements=shares), arrays(float, 3, elements=st.floats(0.1, 1.0)))
def test_max_min_shares_neither_exceed_demand_nor_waste_capacity(demand: np.ndarray, capacity: np.ndarray) -> None:
    shared = physics.max_min_share(demand, capacity)
    assert (shared <= demand + 1e-12).all()
    np.testing.assert_allclose(shared.sum(axis=1), np.minimum(demand.sum(axis=1), capacity), atol=1e-12)
    cut = shared < demand - 1e-9
    levels = np.where(cut, shared, np.nan)
    for row, level in zip(shared, levels, strict=True):
        if not np.isnan(level).all():
            assert row.max() <= np.nanmin(level) + 1e-9  # nobody has more than one who was cut


@given(job_rows(), costs_of_modes)
def test_a_job_alone_runs_at_its_own_speed(rows: list[tuple[float, ...]], costs: SharingCosts) -> None:
    alone = contend(loads_of([rows[0]]), costs, OVERLAP)  # type: ignore[list-item]
    assert alone.relative_speed[0, 0] == 1.0


@given(job_rows(least=2), costs_of_modes, st.randoms())
def test_sharing_never_speeds_up_and_order_does_not_matter(
    rows: list[tuple[float, float, float, float, float]], costs: SharingCosts, random: object
) -> None:
    order = list(range(len(rows)))
    random.shuffle(order)  # type: ignore[attr-defined]
    both = contend(loads_of(rows), costs, OVERLAP)
    turned = contend(loads_of([rows[i] for i in order]), costs, OVERLAP)
    assert ((both.relative_speed > 0) & (both.relative_speed <= 1)).all()
    assert 0 < both.gpu_busy[0] <= 1
    np.testing.assert_allclose(turned.relative_speed[0], both.relative_speed[0, order], rtol=1e-9)
    np.testing.assert_allclose(turned.gpu_busy, both.gpu_busy, rtol=1e-9)


@given(job_rows(least=2), costs_of_modes)
def test_one_more_job_slows_the_others_or_leaves_them(
    rows: list[tuple[float, float, float, float, float]], costs: SharingCosts
) -> None:
    fewer = contend(loads_of(rows[:-1]), costs, OVERLAP).relative_speed[0]
    more = contend(loads_of(rows), costs, OVERLAP).relative_speed[0]
    assert (more[:-1] <= fewer + 1e-12).all()


@given(job_rows(least=2), costs_of_modes, st.floats(1.0, 3.0))
def test_a_busier_co_runner_never_speeds_a_job_up(
    rows: list[tuple[float, float, float, float, float]], costs: SharingCosts, factor: float
) -> None:
    host, kernel, occupancy, bound, bandwidth = rows[1]
    heavier = (host / factor, kernel * factor, min(occupancy * factor, 1), bound, min(bandwidth * factor, 0.8))
    light = contend(loads_of(rows), costs, OVERLAP).relative_speed[0, 0]
    heavy = contend(loads_of([rows[0], heavier, *rows[2:]]), costs, OVERLAP).relative_speed[0, 0]
    assert heavy <= light + 1e-12


def test_two_gpu_bound_jobs_get_half_a_gpu_less_switching_and_idle_ones_nearly_all() -> None:
    full = (1e-6, 0.1, 1.0, 0.0, 0.0)
    halved = contend(loads_of([full, full]), TIME_SLICE_COSTS, OVERLAP)
    expected = (1 - TIME_SLICE_COSTS.switch_loss) / 2
    np.testing.assert_allclose(halved.relative_speed, expected, rtol=1e-4)
    host_bound = (0.1, 0.01, 1.0, 0.0, 0.0)
    assert contend(loads_of([host_bound, host_bound]), TIME_SLICE_COSTS, OVERLAP).relative_speed.min() > 0.99


def test_mps_lets_small_kernels_run_side_by_side() -> None:
    small = (1e-6, 0.1, 0.2, 0.0, 0.0)
    spatial = contend(loads_of([small, small]), MPS_COSTS, OVERLAP).relative_speed.min()
    assert spatial > 0.9 > contend(loads_of([small, small]), TIME_SLICE_COSTS, OVERLAP).relative_speed.max()


def test_memory_bound_jobs_suffer_from_each_other_more_than_compute_bound_ones() -> None:
    def worst(bound: float, bandwidth: float) -> float:
        job = (0.02, 0.05, 0.3, bound, bandwidth)
        return float(contend(loads_of([job, job]), MPS_COSTS, OVERLAP).relative_speed.min())

    assert worst(0.9, 0.7) < worst(0.1, 0.1) - 0.1


def test_a_place_without_a_job_has_no_speed_and_changes_nothing() -> None:
    job, other = (0.05, 0.05, 0.5, 0.3, 0.2), (0.01, 0.08, 0.9, 0.5, 0.4)
    nobody = (0.0, 0.0, 0.0, 0.0, 0.0)
    pair = contend(loads_of([job, other]), TIME_SLICE_COSTS, OVERLAP)
    padded = contend(loads_of([job, nobody, other]), TIME_SLICE_COSTS, OVERLAP)
    assert np.isnan(padded.relative_speed[0, 1])
    np.testing.assert_allclose(padded.relative_speed[0, [0, 2]], pair.relative_speed[0], rtol=1e-12)
    np.testing.assert_allclose(padded.gpu_busy, pair.gpu_busy, rtol=1e-12)


def test_contention_is_another_formula_than_the_time_slice_baseline() -> None:
    # Beside a job that asks for everything, the baseline cuts both by the same factor; fair shares spare the small one.
    small, large = (0.8, 0.2, 1.0, 0.0, 0.0), (1e-6, 1.0, 1.0, 0.0, 0.0)
    shared = contend(loads_of([small, large]), TIME_SLICE_COSTS, 1.0).relative_speed[0]
    baseline = float(physics.time_slice_speed(25, 100))
    assert shared[0] > baseline + 0.1
    assert shared[1] < baseline


@given(st.floats(5, 100), st.floats(1, 600), shares, st.floats(0.0, 0.5), st.floats(0.1, 5))
def test_saturating_power_stays_between_idle_and_limit_and_rises(
    idle: float, more: float, activity: float, awake: float, curvature: float
) -> None:
    def power(a: float) -> float:
        return float(physics.saturating_power_w(idle, idle + more, a, awake=awake, curvature=curvature))

    assert idle - 1e-9 <= power(activity) <= idle + more + 1e-9
    assert power(activity) <= power(min(activity + 0.1, 1.0)) + 1e-9
    assert power(1.0) == pytest.approx(idle + more)
    assert power(0.0) == pytest.approx(idle + awake * more)
    assert power(0.5) >= (power(0.0) + power(1.0)) / 2 - 1e-9  # concave


def test_overlapped_step_hides_the_shorter_part_as_far_as_told() -> None:
    assert physics.overlapped_step_s(3.0, 5.0, 1.0) == 5.0
    assert physics.overlapped_step_s(3.0, 5.0, 0.0) == 8.0
    assert physics.overlapped_step_s(5.0, 3.0, 0.5) == 6.5
