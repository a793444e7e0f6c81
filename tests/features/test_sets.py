"""Columns of co-locations: codes, unknowns, symmetry."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaco_datasets.errors import InputError
from eaco_datasets.types import MAX_JOBS, SHARING_MODES, CoLocation, Job, SoloProfile
from eaco_features.sets import SOLO_FIELDS, ConfigKey, others_max, others_sum, set_sum, sets_from_colocations


def _job(family: str = "resnet50", batch_size: int = 32, util: float | None = None) -> Job:
    return Job(family, family, batch_size, solo=SoloProfile(gpu_util_pct=util))


def _set(*jobs: Job, gpu: str = "rtx3090") -> CoLocation:
    return CoLocation(gpu, "time-slice", jobs)


def test_columns_hold_what_the_colocations_say() -> None:
    jobs = (
        Job("VGG", "vgg16", 16, "amp", dataset="imagenet", optimizer="sgd", solo=SoloProfile(mem_mib=900.0)),
        Job("BERT", "bert", 8),
    )
    sets = sets_from_colocations([CoLocation("a40", "mps", jobs, num_gpus=2), _set(_job("bert", 8))])
    assert len(sets) == 2
    assert sets.gpus == ("a40", "rtx3090")
    assert sets.gpu.tolist() == [0, 1]
    assert sets.num_gpus.tolist() == [2.0, 1.0]
    assert [SHARING_MODES[code] for code in sets.sharing_mode] == ["mps", "time-slice"]
    assert sets.present.tolist() == [[True, True, False, False], [True, False, False, False]]
    assert [sets.families[code] for code in sets.family[sets.rows]] == ["vgg16", "bert", "bert"]
    assert sets.configs == (ConfigKey("vgg16", "imagenet", 16, "amp", "sgd"), ConfigKey("bert", "", 8, "fp32", ""))
    assert sets.config.tolist() == [[0, 1, -1, -1], [1, -1, -1, -1]]
    assert sets.n_jobs.tolist() == [2, 1]
    assert sets.solo_of("mem_mib")[0, 0] == 900.0
    assert np.isnan(sets.solo).sum() == sets.solo.size - 1


def test_a_place_without_a_job_is_empty_in_every_column() -> None:
    sets = sets_from_colocations([_set(_job(util=50.0))])
    assert (sets.family[0, 1:] == -1).all()
    assert (sets.config[0, 1:] == -1).all()
    assert (sets.precision[0, 1:] == -1).all()
    assert np.isnan(sets.batch_size[0, 1:]).all()
    assert np.isnan(sets.solo[0, 1:]).all()


@pytest.mark.parametrize("n", [0, MAX_JOBS + 1])
def test_a_set_of_a_wrong_size_is_refused_with_its_place(n: int) -> None:
    with pytest.raises(InputError, match=rf"/candidates/1/jobs: {n} jobs in a set; expected 1 to {MAX_JOBS} jobs"):
        sets_from_colocations([_set(_job()), _set(*[_job()] * n)])


def test_no_colocations_give_an_empty_batch() -> None:
    sets = sets_from_colocations([])
    assert len(sets) == 0
    assert sets.solo.shape == (0, MAX_JOBS, len(SOLO_FIELDS))
    assert sets.rows[0].size == 0


def test_take_and_permute_move_every_column_together() -> None:
    sets = sets_from_colocations([_set(_job("vgg16", 16, 10.0), _job("bert", 8, 20.0)), _set(_job("lstm", 4, 30.0))])
    moved = sets.take(np.array([1, 0])).permute_jobs([3, 1, 0, 2])
    assert [moved.families[code] for code in moved.family[moved.rows]] == ["lstm", "bert", "vgg16"]
    assert moved.solo_of("gpu_util_pct")[moved.rows].tolist() == [30.0, 20.0, 10.0]
    assert moved.batch_size[moved.rows].tolist() == [4.0, 8.0, 16.0]
    assert sets.present.tolist()[0] == [True, True, False, False]


def test_sums_and_maxima_over_the_others_by_hand() -> None:
    present = np.array([[True, True, True, False], [True, False, False, False]])
    values = np.array([[10.0, 30.0, 20.0, np.nan], [40.0, np.nan, np.nan, np.nan]])
    assert others_sum(values, present)[0, :3].tolist() == [50.0, 30.0, 40.0]
    assert others_max(values, present)[0, :3].tolist() == [30.0, 20.0, 30.0]
    assert others_sum(values, present)[1, 0] == 0.0
    assert others_max(values, present)[1, 0] == 0.0
    assert set_sum(values, present).tolist() == [60.0, 40.0]


def test_an_unknown_job_makes_only_its_co_runners_sums_unknown() -> None:
    present = np.array([[True, True, True, False]])
    values = np.array([[10.0, np.nan, 20.0, np.nan]])
    for over_others in (others_sum, others_max):
        assert np.isnan(over_others(values, present)[0, :3]).tolist() == [True, False, True]
    assert np.isnan(set_sum(values, present)).all()


@given(st.lists(st.floats(0.0, 100.0), min_size=MAX_JOBS, max_size=MAX_JOBS))
def test_no_order_of_the_jobs_changes_a_bit(values: list[float]) -> None:
    given_, present = np.array([values]), np.ones((1, MAX_JOBS), dtype=bool)
    for order in permutations(range(MAX_JOBS)):
        moved = given_[:, order]
        for over_others in (others_sum, others_max):
            assert np.array_equal(over_others(moved, present), over_others(given_, present)[:, order])
        assert set_sum(moved, present) == set_sum(given_, present)
