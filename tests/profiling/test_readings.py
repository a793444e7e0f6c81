"""What readings are worth: impossible values dropped, energy by the counter or by the sampled power."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaco_datasets.profiling.device import Reading
from eaco_datasets.profiling.readings import energy_between, plausible

GOOD = Reading(
    at_s=1.0,
    power_w=300.0,
    power_average_w=290.0,
    energy_j=5.0,
    gpu_util_pct=100.0,
    mem_util_pct=0.0,
    mem_mib=1024.0,
    sm_clock_mhz=1500.0,
    temperature_c=60.0,
    throttle_reasons=("power-cap",),
)


def _plausible(raw: Reading, limit_w: float | None = 400.0) -> Reading:
    return plausible(raw, power_limit_w=limit_w, memory_mib=2048.0)


def test_a_possible_reading_is_kept_as_it_is() -> None:
    assert _plausible(GOOD) == GOOD


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("power_w", 0.0),
        ("power_w", -5.0),
        ("power_w", 601.0),
        ("power_w", 4294967.295),
        ("power_average_w", 1e12),
        ("energy_j", -1.0),
        ("energy_j", (2.0**64 - 1) / 1000),
        ("gpu_util_pct", 101.0),
        ("gpu_util_pct", -1.0),
        ("mem_util_pct", float(0xFFFFFFFF)),
        ("mem_mib", 2049.0),
        ("mem_mib", float("nan")),
        ("sm_clock_mhz", 0.0),
        ("sm_clock_mhz", float(0xFFFFFFFF)),
        ("temperature_c", float(0xFFFFFFFF)),
        ("temperature_c", float("inf")),
    ],
)
def test_an_impossible_value_is_dropped_and_counted(field: str, value: float) -> None:
    raw = replace(GOOD, **{field: value}, impossible=2)
    assert _plausible(raw) == replace(GOOD, **{field: None}, impossible=3)


def test_a_spike_is_dropped_without_a_known_limit_too() -> None:
    assert _plausible(replace(GOOD, power_w=2e12), limit_w=None).power_w is None
    assert _plausible(replace(GOOD, power_w=1200.0), limit_w=None).power_w == 1200.0


def _readings(power_w: list[float | None], energy_j: list[float | None], every_s: float = 0.5) -> list[Reading]:
    pairs = zip(power_w, energy_j, strict=True)
    return [Reading(at_s=7.0 + i * every_s, power_w=p, energy_j=e) for i, (p, e) in enumerate(pairs)]


def test_the_counter_is_preferred_and_its_disagreement_with_the_sampled_power_told() -> None:
    found = energy_between(_readings([327.0, 327.0, 327.0], [10.0, 100.0, 197.0]))
    assert (found.span_s, found.energy_j, found.source) == (1.0, 187.0, "energy-counter")
    assert found.mean_w == 187.0
    assert found.disagreement == pytest.approx((327 - 187) / 187)


@pytest.mark.parametrize(
    "counter",
    [
        pytest.param([None] * 3, id="no counter"),
        pytest.param([4000.0, 4050.0, 3.0], id="wraps"),
        pytest.param([900.0, 0.0, 50.0], id="starts again"),
        pytest.param([0.0, 1e5, 2e5], id="rises faster than the device can draw"),
        pytest.param([5.0, None, None], id="read once"),
        pytest.param([5.0, 5.0, 5.0], id="stands still"),
    ],
)
def test_a_counter_that_cannot_be_believed_gives_way_to_the_integral_of_power(counter: list[float | None]) -> None:
    found = energy_between(_readings([100.0, 200.0, 100.0], counter, every_s=1.0), power_limit_w=400.0)
    assert (found.energy_j, found.source, found.disagreement) == (300.0, "power-instant", None)


def test_the_averaged_power_stands_in_for_an_instant_one_that_is_rarely_there() -> None:
    readings = [replace(r, power_average_w=50.0) for r in _readings([100.0, None, None, None], [None] * 4)]
    found = energy_between(readings)
    assert (found.energy_j, found.source) == (75.0, "power-average")


def test_energy_is_unknown_without_sensors_or_time() -> None:
    assert energy_between(_readings([None, None], [None, None])).energy_j is None
    assert energy_between(_readings([100.0], [1.0])).mean_w is None
    assert energy_between([]).mean_w is None
    same = Reading(at_s=1.0, power_w=100.0)
    assert energy_between([same, same]).mean_w is None


@given(st.lists(st.floats(1.0, 500.0), min_size=2, max_size=30), st.floats(0.01, 5.0))
def test_mean_power_lies_between_the_sampled_extremes(power_w: list[float], every_s: float) -> None:
    mean_w = energy_between(_readings(list(power_w), [None] * len(power_w), every_s)).mean_w
    assert mean_w is not None
    assert min(power_w) * (1 - 1e-9) <= mean_w <= max(power_w) * (1 + 1e-9)
