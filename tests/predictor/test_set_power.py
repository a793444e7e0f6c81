"""Watts of a GPU from the utilisation of its set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaco_datasets.gpus import gpu
from eaco_datasets.types import CoLocation, Job, SoloProfile
from eaco_features.sets import SetBatch, sets_from_colocations
from eaco_predictor.set_power import SetPower, provenance_shares

Make = Callable[[list[dict[str, Any]]], pd.DataFrame]
SPEC = gpu("a40")
BUSY_W = 260.0


def _watts(util_pct: float, busy_w: float = BUSY_W, slug: str = "a40") -> float:
    u, idle = util_pct / 100, gpu(slug).idle_w
    return idle + (busy_w - idle) * (2 * u - u**1.4)


def _rows(**other: Any) -> list[dict[str, Any]]:
    return [
        {"gpu": "a40", "family": f"f{i % 4}", "gpu_util_pct": u, "gpu_power_w": _watts(u), **other}
        for i, u in enumerate((10.0, 25.0, 40.0, 60.0, 80.0, 95.0))
    ]


def _sets(*solos: SoloProfile, slug: str = "a40") -> SetBatch:
    return sets_from_colocations([CoLocation(slug, "mps", tuple(Job("m", "m", 8, solo=s) for s in solos))])


def _predict(power: SetPower, util_pct: float, *solos: SoloProfile, slug: str = "a40") -> tuple[float, float, float]:
    bounds = power.predict(_sets(*(solos or (SoloProfile(),)), slug=slug), np.array([util_pct]))
    return float(bounds.mean[0]), float(bounds.lower[0]), float(bounds.upper[0])


def test_the_busy_watts_of_the_data_are_found_again(make_table: Make) -> None:
    power = SetPower.from_profiles(make_table(_rows()))
    assert power.busy_w == {"a40": pytest.approx(BUSY_W)}
    assert _predict(power, 50.0)[0] == pytest.approx(_watts(50.0))


@given(st.floats(0, 100), st.floats(20.0, 800.0))
def test_power_stays_between_idle_and_limit(util_pct: float, own_w: float) -> None:
    power = SetPower({"a40": BUSY_W})
    mean, lower, upper = _predict(power, util_pct, SoloProfile(gpu_util_pct=30.0, gpu_power_w=own_w))
    assert SPEC.idle_w <= lower <= mean <= upper <= SPEC.power_limit_w


@pytest.mark.parametrize("own_w", [80.0, 150.0, 290.0])
def test_a_job_alone_draws_what_was_measured_of_it(make_table: Make, own_w: float) -> None:
    power = SetPower.from_profiles(make_table(_rows()))
    mean, _, _ = _predict(power, 55.0, SoloProfile(gpu_util_pct=55.0, gpu_power_w=own_w))
    assert mean == pytest.approx(own_w)


def test_hungry_jobs_make_a_hungry_set(make_table: Make) -> None:
    power = SetPower.from_profiles(make_table(_rows()))
    usual, hungry = (
        _predict(power, 70.0, *[SoloProfile(gpu_util_pct=35.0, gpu_power_w=own_w)] * 2)[0]
        for own_w in (_watts(35.0), 1.2 * _watts(35.0))
    )
    assert usual == pytest.approx(_watts(70.0))
    assert hungry > usual


def test_the_order_of_the_jobs_does_not_matter(make_table: Make) -> None:
    power = SetPower.from_profiles(make_table(_rows()))
    solos = [SoloProfile(gpu_util_pct=u, gpu_power_w=w) for u, w in ((11.0, 90.1), (23.0, 133.7), (31.0, 171.3))]
    assert _predict(power, 60.0, *solos) == _predict(power, 60.0, *reversed(solos))


def test_a_gpu_that_was_never_learned_spans_idle_to_limit(make_table: Make) -> None:
    power = SetPower.from_profiles(make_table(_rows()))
    spec = gpu("l4")
    mean, lower, upper = _predict(power, 40.0, slug="l4")
    assert (lower, upper) == (spec.idle_w, spec.power_limit_w)
    assert mean == pytest.approx(_watts(40.0, spec.power_limit_w, "l4"))
    assert "l4" not in power.provenance


def test_unknown_utilisation_and_unknown_devices_are_unknown(make_table: Make) -> None:
    power = SetPower.from_profiles(make_table(_rows()))
    assert np.isnan(_predict(power, float("nan"))[0])
    assert np.isnan(_predict(power, 50.0, slug="cpu-16core")).all()


def test_a_shared_measurement_counts_once(make_table: Make) -> None:
    shared = {"measurement_id": "p", "role": "colocated", "gpu": "a40", "gpu_util_pct": 90.0, "gpu_power_w": 100.0}
    pair = [{**shared, "job_index": i, "family": f"f{i}"} for i in (0, 1)]
    alone = [{**shared, "measurement_id": "q", "role": "solo"}]
    once, twice = (SetPower.from_profiles(make_table(_rows() + more)) for more in (alone, pair))
    assert once.busy_w == pytest.approx(twice.busy_w)
    assert once.provenance == twice.provenance == {"a40": {"measured": 1.0}}


@pytest.mark.parametrize(
    "unusable",
    [
        {"power_limit_w": 150.0},
        {"outcome": "oom", "gpu_util_pct": None},
        {"gpu_util_pct": None},
        {"gpu": "cpu-16core"},
    ],
)
def test_rows_that_say_nothing_about_the_default_limit_are_left_out(make_table: Make, unusable: dict[str, Any]) -> None:
    odd = {"gpu": "a40", "family": "odd", "gpu_util_pct": 50.0, "gpu_power_w": 77.0, **unusable}
    assert SetPower.from_profiles(make_table([odd])) == SetPower()
    assert SetPower.from_profiles(make_table([*_rows(), odd])).busy_w == {"a40": pytest.approx(BUSY_W)}


def test_busy_watts_stay_physical(make_table: Make) -> None:
    for watts, expected in ((5000.0, SPEC.power_limit_w), (1.0, SPEC.idle_w)):
        power = SetPower.from_profiles(make_table([{"gpu": "a40", "gpu_util_pct": 50.0, "gpu_power_w": watts}]))
        assert power.busy_w == {"a40": expected}


def test_the_interval_is_the_error_on_families_that_were_out(make_table: Make) -> None:
    """Two families that disagree: each is as wrong about the other as they differ."""
    low = [{"gpu": "a40", "family": "low", "gpu_util_pct": u, "gpu_power_w": _watts(u, 160.0)} for u in (40.0, 80.0)]
    high = [{"gpu": "a40", "family": "high", "gpu_util_pct": u, "gpu_power_w": _watts(u, 280.0)} for u in (40.0, 80.0)]
    power = SetPower.from_profiles(make_table(low + high))
    for u in (40.0, 80.0):
        mean, lower, upper = _predict(power, u)
        assert lower < _watts(u, 160.0) < mean < _watts(u, 280.0) < upper


def test_a_family_is_out_as_a_co_runner_too(make_table: Make) -> None:
    """Pairs that begin with another family still hold the held one: nothing of it may calibrate its own error."""

    def pair(i: int, first: str, second: str, watts: float) -> list[dict[str, Any]]:
        both = {"measurement_id": f"p{i}", "role": "colocated", "gpu": "a40", "gpu_util_pct": 80.0}
        return [{**both, "job_index": j, "family": f, "gpu_power_w": watts} for j, f in enumerate((first, second))]

    alone = [
        {"gpu": "a40", "family": f, "gpu_util_pct": 80.0, "gpu_power_w": w} for f, w in (("a", 250.0), ("b", 120.0))
    ]
    # were the pair b+a trained on when a is out, a's error would shrink from that of b alone
    with_pair = SetPower.from_profiles(make_table(alone + pair(0, "b", "a", 250.0)))
    without = SetPower.from_profiles(make_table(alone))
    assert with_pair.interval.upper == pytest.approx(without.interval.upper)


def test_shares_of_provenance() -> None:
    shares = provenance_shares(["a", "a", "a", "b"], ["measured", "simulated", "measured", "published"])
    assert shares == {
        "a": {"measured": pytest.approx(2 / 3), "simulated": pytest.approx(1 / 3)},
        "b": {"published": 1.0},
    }
