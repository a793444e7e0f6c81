"""What is observed, what is left to test, and the noise floor."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eaco_training.folds import protocol
from eaco_training.units import draws, noise_floor, observation_units

relaxed = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@relaxed
@given(seed=st.integers(0, 99), k_max=st.integers(1, 4))
def test_drawn_measurements_leave_the_test_rows_whole(seed, k_max, make_pairs):
    examples = make_pairs(seed, 60, ["vgg16", "resnet18", "bert-base"])
    units = observation_units(examples, "relative_speed")
    for fold in protocol("leave-one-model-out").folds(examples):
        by_number = {}
        for draw in draws(fold, units, k_max, seed=seed, n_draws=3):
            by_number.setdefault(draw.number, []).append(draw)
        for some in by_number.values():
            drawn = {i for draw in some for i in draw.order}
            tested = {i for draw in some for i in np.flatnonzero(draw.test.any(axis=1))}
            assert not drawn & tested
            for draw in some:
                assert len(draw.order) == min(k_max, draw.rows.any(axis=1).sum())
                assert set(units[draw.rows]) == {draw.unit}
                assert (fold.test | ~draw.rows).all()


@relaxed
@given(seed=st.integers(0, 99))
def test_draws_are_nested_in_k_and_repeat_per_seed(seed, make_pairs):
    examples = make_pairs(seed, 50, ["vgg16", "resnet18"])
    units = observation_units(examples, "relative_speed")
    fold = protocol("leave-one-model-out").folds(make_pairs(seed, 50, ["vgg16", "resnet18", "bert-base"]))[0]

    def orders(k):
        return {(d.number, d.unit): d.order.tolist() for d in draws(fold, units, k, seed=5, n_draws=2)}

    few, many = orders(1), orders(3)
    assert few == orders(1)
    assert all(order[:1] == few[key] for key, order in many.items() if key in few)


def test_a_unit_of_power_spans_batch_sizes_and_datasets_do_not_mix(make_examples):
    examples = make_examples(
        [[("a", 16, 90.0, "measured")], [("a", 32, 95.0, "measured")], [("b", 32, 99.0, "measured")]],
        datasets={"a": "imagenet", "b": "squad"},
    )
    power, speed = (observation_units(examples, t)[:, 0] for t in ("gpu_power_w", "relative_speed"))
    assert power[0] == power[1] != power[2]
    assert len(set(speed)) == 3
    assert (observation_units(examples, "gpu_power_w")[:, 1:] == -1).all()


def test_units_differ_between_gpus(make_examples):
    examples = make_examples([[("a", 16, 90.0, "measured")]] * 2, gpus=["a40", "p100"])
    units = observation_units(examples, "gpu_power_w")[:, 0]
    assert units[0] != units[1]


def test_noise_floor_by_hand_whatever_the_order_of_the_jobs(make_examples):
    examples = make_examples(
        [
            [("a", 16, 0.8, "measured"), ("b", 16, 0.5, "measured")],
            [("b", 16, 0.7, "measured"), ("a", 16, 0.8, "measured")],
            [("a", 32, 0.1, "measured"), ("b", 16, 0.2, "measured")],
        ]
    )
    floor = noise_floor(examples, 1.05)
    # a is 0.8 twice; b is 0.5 and 0.7, each 0.1 from the mean, widened by sqrt(2)
    assert floor["n"] == 4
    assert floor["n_repeated"] == 2
    assert floor["mae"] == pytest.approx(2 * 0.1 * np.sqrt(2) / 4, abs=1e-6)


def test_no_repeats_no_floor(make_examples):
    pair = [("a", 16, 0.8, "measured"), ("a", 16, 0.5, "measured")]
    assert noise_floor(make_examples([pair]), 1.05) is None  # one measurement of the same job twice


def test_other_power_limits_are_no_repeats(make_examples):
    from dataclasses import replace

    examples = make_examples([[("a", 16, 90.0, "measured")]] * 2)
    limited = replace(examples, sets=replace(examples.sets, power_limit_w=np.array([100.0, 150.0])))
    assert noise_floor(examples, None)["mae"] == 0.0
    assert noise_floor(limited, None) is None
