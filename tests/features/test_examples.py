"""Training examples: which rows, which solo profile, which target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from eaco_datasets.errors import DataError, UnknownNameError
from eaco_features.examples import TARGETS, examples_from_profiles

Make = Callable[[list[dict[str, Any]]], pd.DataFrame]

SOLO = {"role": "solo", "relative_speed": 1.0}
RESNET = {"family": "resnet50", "batch_size": 32}
VGG = {"family": "vgg16", "batch_size": 16}


def _pair(name: str, first: dict[str, Any], second: dict[str, Any], **both: Any) -> list[dict[str, Any]]:
    common = {"measurement_id": name, "role": "colocated", **both}
    return [{**common, "job_index": 0, **first}, {**common, "job_index": 1, **second}]


def test_each_job_gets_the_median_solo_profile_of_its_config(make_table: Make) -> None:
    table = make_table(
        [
            {**SOLO, **RESNET, "gpu_util_pct": 40.0, "throughput_samples_s": 100.0, "gpu_power_w": 150.0},
            {**SOLO, **RESNET, "gpu_util_pct": 50.0, "throughput_samples_s": 120.0},
            {**SOLO, **RESNET, "gpu_util_pct": 90.0},
            {**SOLO, **VGG, "gpu_util_pct": 70.0, "mem_mib": 5000.0},
            *_pair("p", RESNET | {"relative_speed": 0.8}, VGG | {"relative_speed": 0.6}, gpu_util_pct=99.0),
        ]
    )
    examples = examples_from_profiles(table, "relative_speed")
    assert len(examples) == 1
    assert examples.target[0, :2].tolist() == [0.8, 0.6]
    assert np.isnan(examples.target[0, 2:]).all()
    assert examples.sets.solo_of("gpu_util_pct")[0, :2].tolist() == [50.0, 70.0]  # not the pair's own 99
    assert examples.sets.solo_of("throughput_samples_s")[0, 0] == 110.0
    assert examples.sets.solo_of("gpu_power_w")[0, 0] == 150.0
    assert np.isnan(examples.sets.solo_of("throughput_samples_s")[0, 1])
    assert examples.measurement_id.tolist() == ["p"]
    assert examples.source.tolist() == ["lab"]
    assert examples.provenance[0].tolist() == ["measured", "measured", "", ""]


@pytest.mark.parametrize(
    "other",
    [
        {"gpu": "a40"},
        {"source": "elsewhere"},
        {"batch_size": 64},
        {"precision": "amp"},
        {"dataset": "cifar10"},
        {"dataset": None},
        {"optimizer": "adam"},
        {"num_gpus": 2},
        {"outcome": "oom", "relative_speed": None},
    ],
)
def test_the_solo_profile_of_something_else_is_not_joined(make_table: Make, other: dict[str, Any]) -> None:
    util = {} if other.get("outcome") == "oom" else {"gpu_util_pct": 40.0}
    table = make_table(
        [{**SOLO, **RESNET, **util, **other}, *_pair("p", RESNET | {"relative_speed": 0.8}, RESNET)],
    )
    assert np.isnan(examples_from_profiles(table, "relative_speed").sets.solo).all()


def test_an_unknown_dataset_joins_an_unknown_dataset(make_table: Make) -> None:
    table = make_table(
        [
            {**SOLO, **RESNET, "dataset": None, "gpu_util_pct": 40.0},
            *_pair("p", RESNET | {"relative_speed": 0.8}, RESNET, dataset=None),
        ]
    )
    examples = examples_from_profiles(table, "relative_speed")
    assert examples.sets.solo_of("gpu_util_pct")[0, :2].tolist() == [40.0, 40.0]
    assert examples.sets.configs[0].dataset == ""


def test_an_out_of_memory_row_stays_but_has_no_target(make_table: Make) -> None:
    table = make_table([*_pair("a", RESNET, VGG, relative_speed=0.7), *_pair("b", RESNET, VGG, outcome="oom")])
    examples = examples_from_profiles(table, "relative_speed")
    assert examples.measurement_id.tolist() == ["a", "b"]
    assert np.isnan(examples.target[1]).all()
    assert examples.sets.n_jobs.tolist() == [2, 2]


def test_the_power_of_a_job_alone_is_not_told_its_own_solo_profile(make_table: Make) -> None:
    table = make_table(
        [
            {**SOLO, **RESNET, "gpu_power_w": 200.0, "gpu_util_pct": 80.0, "power_limit_w": 250.0},
            {**SOLO, **RESNET, "gpu_util_pct": 80.0},
            *_pair("p", RESNET, VGG, gpu_power_w=300.0),
        ]
    )
    examples = examples_from_profiles(table, "gpu_power_w")
    assert examples.target[:, 0].tolist() == [200.0]
    assert examples.sets.power_limit_w.tolist() == [250.0]
    assert np.isnan(examples.sets.solo).all()


def test_node_power_takes_solo_and_shared_rows(make_table: Make) -> None:
    table = make_table([{**SOLO, **RESNET, "node_power_w": 700.0}, *_pair("p", RESNET, VGG, node_power_w=900.0)])
    examples = examples_from_profiles(table, "node_power_w")
    assert examples.sets.n_jobs.tolist() == [1, 2]
    assert examples.target[1, :2].tolist() == [900.0, 900.0]


def test_rows_of_a_measurement_come_together_whatever_their_order(make_table: Make) -> None:
    rows = [
        *_pair("a", RESNET | {"relative_speed": 0.9}, VGG | {"relative_speed": 0.5}),
        *_pair("b", VGG | {"relative_speed": 0.4}, VGG | {"relative_speed": 0.3}),
    ]
    shuffled = examples_from_profiles(make_table([rows[3], rows[0], rows[2], rows[1]]), "relative_speed")
    at = dict(zip(shuffled.measurement_id, shuffled.target.tolist(), strict=True))
    assert at["a"][:2] == [0.9, 0.5]
    assert at["b"][:2] == [0.4, 0.3]
    for name, family in (("a", "resnet50"), ("b", "vgg16")):
        i = shuffled.measurement_id.tolist().index(name)
        assert shuffled.sets.families[shuffled.sets.family[i, 0]] == family


def test_a_table_without_solo_rows_leaves_all_solo_profiles_unknown(make_table: Make) -> None:
    examples = examples_from_profiles(make_table(_pair("p", RESNET, VGG, relative_speed=0.7)), "relative_speed")
    assert np.isnan(examples.sets.solo).all()


def test_take_keeps_the_columns_together(make_table: Make) -> None:
    rows = [*_pair("a", RESNET, VGG, relative_speed=0.7), *_pair("b", VGG, VGG, relative_speed=0.4)]
    taken = examples_from_profiles(make_table(rows), "relative_speed").take(np.array([1]))
    assert taken.measurement_id.tolist() == ["b"]
    assert taken.target[0, :2].tolist() == [0.4, 0.4]
    assert taken.provenance[0, 0] == "measured"
    assert len(taken) == len(taken.sets) == 1


def test_the_input_table_is_left_as_it_was(make_table: Make) -> None:
    table = make_table([{**SOLO, **RESNET, "gpu_util_pct": 4.0}, *_pair("p", RESNET, VGG, relative_speed=0.7)])
    before = table.copy(deep=True)
    examples_from_profiles(table, "relative_speed")
    pd.testing.assert_frame_equal(table, before)


def test_an_unknown_target_names_the_known_ones(make_table: Make) -> None:
    with pytest.raises(UnknownNameError, match="unknown target 'relative_sped'; expected perhaps relative_speed"):
        examples_from_profiles(make_table([SOLO]), "relative_sped")


@pytest.mark.parametrize("target", TARGETS)
def test_a_table_without_the_target_is_refused(make_table: Make, target: str) -> None:
    with pytest.raises(DataError, match=f"profiles: no .* row has {target}; expected some measured"):
        examples_from_profiles(make_table([{**RESNET, "role": "solo"}]), target)
