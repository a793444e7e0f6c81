"""Known solo profiles: medians, ambiguity, and what the caller gave stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from eaco_datasets.types import CoLocation, Job, SoloProfile
from eaco_features.sets import SOLO_FIELDS, ConfigKey, SetBatch, sets_from_colocations
from eaco_predictor.solos import SoloTable

Make = Callable[[list[dict[str, Any]]], pd.DataFrame]
UTIL = {"gpu_util_pct": 40.0, "mem_mib": 3000.0, "gpu_power_w": 150.0, "throughput_samples_s": 90.0}


def _key(dataset: str = "imagenet", **other: Any) -> ConfigKey:
    return ConfigKey(
        **{"family": "resnet50", "dataset": dataset, "batch_size": 32, "precision": "fp32", **other}, optimizer=""
    )


def _asked(dataset: str | None = "imagenet", gpu: str = "rtx3090", solo: SoloProfile | None = None) -> SetBatch:
    job = Job("ResNet-50", "resnet50", 32, dataset=dataset, solo=solo or SoloProfile())
    return sets_from_colocations([CoLocation(gpu, "mps", (job,))])


def _field(sets: SetBatch, name: str) -> float:
    return float(sets.solo_of(name)[0, 0])


def test_a_profile_is_the_median_over_the_repeats(make_table: Make) -> None:
    table = SoloTable.from_profiles(make_table([{"gpu_util_pct": u} for u in (10.0, 90.0, 20.0)] + [{"mem_mib": 7.0}]))
    found = table.get("rtx3090", 1, _key())
    assert found is not None
    assert found[SOLO_FIELDS.index("gpu_util_pct")] == 20.0
    assert found[SOLO_FIELDS.index("mem_mib")] == 7.0
    assert np.isnan(found[SOLO_FIELDS.index("epoch_s")])


@pytest.mark.parametrize(
    "row",
    [
        {"num_gpus": 2},
        {"outcome": "oom", "gpu_util_pct": None},
        {"gpu": "a40"},
        {"batch_size": 64},
        {"precision": "amp"},
        {"family": "vgg16"},
    ],
)
def test_other_runs_do_not_answer_for_a_config(make_table: Make, row: dict[str, Any]) -> None:
    table = SoloTable.from_profiles(make_table([{"gpu_util_pct": 40.0, **row}]))
    assert table.get("rtx3090", 1, _key()) is None
    filled, known = table.fill(_asked())
    assert not known.any()
    assert np.isnan(filled.solo).all()


def test_a_job_without_a_dataset_is_answered_where_only_one_was_measured(make_table: Make) -> None:
    one = SoloTable.from_profiles(make_table([UTIL]))
    assert _field(one.fill(_asked(None))[0], "gpu_util_pct") == 40.0
    assert not one.fill(_asked("cifar10"))[1].any()


@pytest.mark.parametrize("n_datasets", [2, 3])
def test_several_datasets_are_ambiguous_without_a_name(make_table: Make, n_datasets: int) -> None:
    names = ("imagenet", "cifar10", "mnist")[:n_datasets]
    table = SoloTable.from_profiles(make_table([{"dataset": d, "gpu_util_pct": 10.0 * i} for i, d in enumerate(names)]))
    assert table.get("rtx3090", 1, _key("")) is None
    for i, name in enumerate(names):
        filled, known = table.fill(_asked(name))
        assert known[0, 0]
        assert _field(filled, "gpu_util_pct") == 10.0 * i
    assert not table.fill(_asked(None))[1].any()


def test_unknown_fields_are_filled_and_given_ones_stay(make_table: Make) -> None:
    table = SoloTable.from_profiles(make_table([UTIL]))
    sets = _asked(solo=SoloProfile(mem_mib=1.5))
    filled, known = table.fill(sets)
    assert known[0].tolist() == [True, False, False, False]
    assert _field(filled, "mem_mib") == 1.5
    assert _field(filled, "gpu_util_pct") == 40.0
    assert _field(filled, "gpu_power_w") == 150.0
    assert np.isnan(_field(sets, "gpu_util_pct"))  # the batch that was asked about is left as it was


def test_power_of_another_run_is_not_put_beside_the_callers_utilisation(make_table: Make) -> None:
    table = SoloTable.from_profiles(make_table([UTIL]))
    assert np.isnan(_field(table.fill(_asked(solo=SoloProfile(gpu_util_pct=80.0)))[0], "gpu_power_w"))
    both = _asked(solo=SoloProfile(gpu_util_pct=80.0, gpu_power_w=222.0))
    assert _field(table.fill(both)[0], "gpu_power_w") == 222.0


def test_beside_the_callers_throughput_the_epoch_is_rescaled(make_table: Make) -> None:
    table = SoloTable.from_profiles(make_table([{**UTIL, "epoch_s": 100.0}]))
    assert _field(table.fill(_asked())[0], "epoch_s") == 100.0
    assert _field(table.fill(_asked(solo=SoloProfile(throughput_samples_s=45.0)))[0], "epoch_s") == 200.0
    both = _asked(solo=SoloProfile(throughput_samples_s=45.0, epoch_s=7.0))
    assert _field(table.fill(both)[0], "epoch_s") == 7.0


def test_a_lower_power_limit_does_not_answer_for_the_default(make_table: Make) -> None:
    rows = [{"gpu_util_pct": 99.0, "power_limit_w": 200.0}, {"gpu_util_pct": 40.0, "power_limit_w": 350.0}]
    assert _field(SoloTable.from_profiles(make_table(rows)).fill(_asked())[0], "gpu_util_pct") == 40.0


def test_measured_rows_stand_before_simulated_ones(make_table: Make) -> None:
    rows = [{"gpu_util_pct": 99.0, "provenance": "simulated"}, {"gpu_util_pct": 40.0, "provenance": "measured"}]
    assert _field(SoloTable.from_profiles(make_table(rows)).fill(_asked())[0], "gpu_util_pct") == 40.0


def test_a_config_that_did_not_fit_alone_is_remembered(make_table: Make) -> None:
    table = SoloTable.from_profiles(make_table([{"outcome": "oom"}]))
    assert table.ran_out_of_memory("rtx3090", 1, _key())
    assert table.ran_out_of_memory("rtx3090", 1, _key(""))
    assert not table.ran_out_of_memory("rtx3090", 2, _key())
    assert not table.ran_out_of_memory("a40", 1, _key())


def test_a_table_without_solo_rows_knows_nothing(make_table: Make) -> None:
    pair = [{"measurement_id": "p", "role": "colocated", "job_index": i, **UTIL} for i in (0, 1)]
    table = SoloTable.from_profiles(make_table(pair))
    assert not table.profiles
    assert not table.fill(_asked())[1].any()


def test_an_empty_batch_is_filled_with_nothing(make_table: Make) -> None:
    filled, known = SoloTable.from_profiles(make_table([UTIL])).fill(sets_from_colocations([]))
    assert len(filled) == 0
    assert known.shape[0] == 0
