"""Long tables to co-locations and back; wrong tables are named by row and column."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from eaco_datasets.errors import InputError
from eaco_predictor.prediction import Estimate, JobPrediction, SetPrediction
from eaco_training.longform import OUTPUT, frame_from_predictions, sets_from_frame


def table(**changed):
    columns = {
        "set_id": ["x", "y", "x"],
        "gpu": ["v100", "t4", "v100"],
        "sharing_mode": ["time-slice", "mps", "time-slice"],
        "num_gpus": [1, 2, 1],
        "model": ["ResNet-50", "vgg16", "bert"],
        "batch_size": [64, 32, 8],
        "precision": ["amp", "fp32", "fp32"],
        "solo_gpu_util_pct": [90.0, np.nan, None],
    }
    return pd.DataFrame({**columns, **changed})


def test_rows_of_a_set_become_its_jobs():
    sets, places = sets_from_frame(table())
    assert [len(s.jobs) for s in sets] == [2, 1]
    assert places == [(0, 0), (1, 0), (0, 1)]
    assert sets[0].gpu == "v100-sxm"
    assert sets[0].jobs[0].family == "resnet50"
    assert sets[0].jobs[0].solo.gpu_util_pct == 90.0
    assert sets[1].jobs[0].solo.gpu_util_pct is None
    assert sets[1].num_gpus == 2


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"sharing_mode": ["time-slice", "share", "time-slice"]}, "row 1:sharing_mode"),
        ({"precision": ["amp", "fp32", "fp8"]}, "row 2:precision"),
        ({"batch_size": [64, 32, 0]}, "row 2:batch_size"),
        ({"batch_size": [64.5, 32, 1]}, "row 0:batch_size"),
        ({"num_gpus": [1, 2, 2]}, "row 2:num_gpus"),
        ({"gpu": ["v100", "t4", "t4"]}, "row 2:gpu"),
        ({"model": ["a", None, "b"]}, "row 1:model"),
        ({"gpu": ["v100", "voodoo", "v100"]}, "voodoo"),
        ({"solo_gpu_util_pct": [-1.0, 2.0, 3.0]}, "solo_gpu_util_pct"),
    ],
)
def test_a_wrong_cell_is_named(changed, where):
    with pytest.raises(InputError, match=where):
        sets_from_frame(table(**changed))


def test_five_jobs_are_too_many():
    five = pd.concat([table().iloc[[0]]] * 5, ignore_index=True)
    with pytest.raises(InputError, match="row 4:set_id"):
        sets_from_frame(five)


def test_a_missing_column_is_named():
    with pytest.raises(InputError, match="column precision"):
        sets_from_frame(table().drop(columns="precision"))


def test_answers_stand_beside_their_rows():
    answer = SetPrediction(
        jobs=tuple(JobPrediction(None, Estimate(m, m - 0.1, m + 0.1), None, None, None) for m in (0.7, 0.9)),
        gpu_power_w=Estimate(200.0, 180.0, 220.0),
        node_power_w=None,
        gpu_util_pct=None,
        mem_mib=None,
        oom_probability=0.25,
        energy_j_per_epoch=None,
        out_of_distribution=0.1,
        nearest_families=(),
        abstained=None,
        predictor_version="v",
        provenance={},
    )
    none = SetPrediction((), None, None, None, None, None, None, None, (), "unknown GPU", "v", {})
    frame = frame_from_predictions(["x", "y", "x"], [(0, 0), (1, 0), (0, 1)], [answer, none])
    assert list(frame.columns) == list(OUTPUT)
    assert frame["relative_speed"].tolist()[::2] == [0.7, 0.9]
    assert np.isnan(frame["relative_speed"][1])
    assert frame["abstained"].tolist() == ["", "unknown GPU", ""]
    assert frame["gpu_power_w_upper"][0] == 220.0
    assert frame["mem_mib"].dtype == float
