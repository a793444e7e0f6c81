"""The feature matrix: by hand for one set, symmetric, honest about what is unknown."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from eaco_datasets.gpus import gpu
from eaco_datasets.types import MAX_JOBS, CoLocation, Job, SharingMode, SoloProfile
from eaco_features.matrix import feature_matrix, gpu_columns
from eaco_features.schema import FEATURE_NAMES, FEATURE_SCHEMA_VERSION, FEATURES
from eaco_features.sets import sets_from_colocations

GPU = gpu("rtx3090")
JOBS = (
    Job("a", "resnet50", 64, "amp", solo=SoloProfile(1000.0, None, 40.0, 20.0, 6000.0, 200.0)),
    Job("b", "vgg16", 32, solo=SoloProfile(400.0, None, 90.0, 60.0, 9000.0)),
    Job("c", "bert", 8, solo=SoloProfile(100.0, None, 10.0, 5.0, 3000.0)),
)

BY_HAND = {
    "own_gpu_util_pct": [40.0, 90.0, 10.0],
    "own_mem_util_pct": [20.0, 60.0, 5.0],
    "own_mem_share": [6000 / GPU.memory_mib, 9000 / GPU.memory_mib, 3000 / GPU.memory_mib],
    "own_step_ms": [64.0, 80.0, 80.0],
    "own_log2_batch_size": [6.0, 5.0, 3.0],
    "own_reduced_precision": [1.0, 0.0, 0.0],
    "others_gpu_util_pct_sum": [100.0, 50.0, 130.0],
    "others_gpu_util_pct_max": [90.0, 40.0, 90.0],
    "others_mem_util_pct_sum": [65.0, 25.0, 80.0],
    "others_mem_util_pct_max": [60.0, 20.0, 60.0],
    "others_mem_share_sum": [12000 / GPU.memory_mib, 9000 / GPU.memory_mib, 15000 / GPU.memory_mib],
    "others_step_ms_max": [80.0, 80.0, 80.0],
    "n_others": [2.0, 2.0, 2.0],
    "num_gpus": [1.0, 1.0, 1.0],
    "mps": [0.0, 0.0, 0.0],
    "gpu_memory_gib": [GPU.memory_mib / 1024] * 3,
    "gpu_fp32_tflops": [GPU.fp32_tflops] * 3,
    "gpu_bandwidth_gbs": [GPU.bandwidth_gbs] * 3,
    "gpu_sms": [float(GPU.sms)] * 3,
    "gpu_power_limit_w": [GPU.power_limit_w] * 3,
}


def _column(jobs: tuple[Job, ...], name: str, mode: SharingMode = "time-slice") -> list[float]:
    matrix = feature_matrix(sets_from_colocations([CoLocation("rtx3090", mode, jobs)]))
    column: list[float] = matrix[:, FEATURE_NAMES.index(name)].tolist()
    return column


@pytest.mark.parametrize("name", FEATURE_NAMES)
def test_three_jobs_by_hand(name: str) -> None:
    assert _column(JOBS, name) == pytest.approx(BY_HAND[name], rel=1e-12)


def test_the_columns_of_schema_version_1_stay_as_they_are() -> None:
    assert FEATURE_SCHEMA_VERSION == 1
    assert " ".join(f"{f.name}{'*' if f.load else ''}" for f in FEATURES) == (
        "own_gpu_util_pct own_mem_util_pct own_mem_share own_step_ms own_log2_batch_size own_reduced_precision "
        "others_gpu_util_pct_sum* others_gpu_util_pct_max* others_mem_util_pct_sum* others_mem_util_pct_max* "
        "others_mem_share_sum* others_step_ms_max n_others* num_gpus mps gpu_memory_gib gpu_fp32_tflops "
        "gpu_bandwidth_gbs gpu_sms gpu_power_limit_w"
    )


def test_the_order_of_the_jobs_only_reorders_rows() -> None:
    straight = feature_matrix(sets_from_colocations([CoLocation("rtx3090", "mps", JOBS)]))
    for order in permutations(range(3)):
        moved = feature_matrix(sets_from_colocations([CoLocation("rtx3090", "mps", tuple(JOBS[i] for i in order))]))
        assert np.array_equal(moved, straight[list(order)])


def test_unknown_stays_unknown_and_touches_the_co_runners_only() -> None:
    jobs = (JOBS[0], Job("x", "lstm", 16), JOBS[2])
    assert np.isnan(_column(jobs, "own_gpu_util_pct")).tolist() == [False, True, False]
    assert np.isnan(_column(jobs, "own_step_ms")).tolist() == [False, True, False]
    for name in ("others_gpu_util_pct_sum", "others_gpu_util_pct_max", "others_mem_share_sum", "others_step_ms_max"):
        assert np.isnan(_column(jobs, name)).tolist() == [True, False, True]


@pytest.mark.parametrize(("mode", "value"), [("mps", 1.0), ("time-slice", 0.0), ("mig", 0.0)])
def test_the_sharing_mode_is_a_number(mode: SharingMode, value: float) -> None:
    assert _column(JOBS, "mps", mode) == [value] * 3


def test_an_unknown_sharing_mode_is_nan() -> None:
    assert np.isnan(_column(JOBS, "mps", "unknown")).all()


def test_a_job_alone_has_no_load_beside_it() -> None:
    loads = [f.name for f in FEATURES if f.name.startswith("others_") or f.name == "n_others"]
    assert [_column(JOBS[:1], name) for name in loads] == [[0.0]] * len(loads)


def test_a_device_outside_the_catalogue_has_no_data_sheet() -> None:
    sets = sets_from_colocations([CoLocation("cpu-16core", "time-slice", JOBS), CoLocation("a40", "mps", JOBS)])
    columns = gpu_columns(sets)
    assert all(np.isnan(values[0]) for values in columns.values())
    assert columns["memory_mib"][1] == gpu("a40").memory_mib


def test_a_limit_that_was_set_replaces_the_default_one() -> None:
    sets = sets_from_colocations([CoLocation("rtx3090", "mps", JOBS)])
    lowered = replace(sets, power_limit_w=np.array([200.0]))
    assert (feature_matrix(lowered)[:, FEATURE_NAMES.index("gpu_power_limit_w")] == 200.0).all()


def test_an_empty_batch_has_no_rows() -> None:
    assert feature_matrix(sets_from_colocations([])).shape == (0, len(FEATURE_NAMES))


def test_rows_come_in_set_order() -> None:
    full = (*JOBS, JOBS[0])
    assert len(full) == MAX_JOBS
    sets = sets_from_colocations([CoLocation("rtx3090", "mps", full), CoLocation("rtx3090", "mps", JOBS[1:2])])
    batch = feature_matrix(sets)[:, FEATURE_NAMES.index("own_log2_batch_size")]
    assert batch.tolist() == [6.0, 5.0, 3.0, 6.0, 5.0]
