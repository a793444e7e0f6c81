"""How far a job is from the training jobs, and which are near."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaco_datasets.types import CoLocation, Job, SoloProfile
from eaco_features.sets import SetBatch, sets_from_colocations
from eaco_predictor.distance import N_NEAREST, UNCOMPARABLE, TrainingJobs, out_of_distribution

UTILS = {"resnet50": 30.0, "vgg16": 60.0, "bert": 90.0, "lstm": 10.0}


def _job(family: str, util: float | None, step_s: float | None = 0.1) -> Job:
    throughput = None if step_s is None else 8 / step_s
    return Job(family, family, 8, solo=SoloProfile(throughput, gpu_util_pct=util))


def _sets(*jobs: Job, gpu: str = "a40") -> SetBatch:
    return sets_from_colocations([CoLocation(gpu, "mps", (job,)) for job in jobs])


@pytest.fixture
def training() -> TrainingJobs:
    return TrainingJobs.from_sets(_sets(*(_job(f, u) for f, u in UTILS.items())))


def _near(training: TrainingJobs, *jobs: Job, gpu: str = "a40") -> tuple[list[float], list[list[str]]]:
    distance, nearest = training.distances(_sets(*jobs, gpu=gpu))
    return distance.tolist(), [[training.families[code] for code in row] for row in nearest]


def test_a_training_job_is_at_no_distance_from_itself(training: TrainingJobs) -> None:
    for family, util in UTILS.items():
        distance, nearest = _near(training, _job(family, util))
        assert distance == [0.0]
        assert nearest[0][0] == family


def test_distance_and_neighbours_by_hand(training: TrainingJobs) -> None:
    spread = float(np.std(list(UTILS.values())))
    distance, nearest = _near(training, _job("x", 51.0))
    # two features are known to both sides: utilisation and, equal for all, step time
    assert distance == pytest.approx([9.0 / spread / np.sqrt(2)])
    assert nearest == [["vgg16", "resnet50", "bert"]]


def test_a_job_with_nothing_known_is_far(training: TrainingJobs) -> None:
    distance, _ = _near(training, _job("x", None, None))
    assert distance == [UNCOMPARABLE]


@given(st.floats(90.0, 1000.0), st.floats(0.1, 1000.0))
def test_the_score_grows_with_the_distance(start: float, step: float) -> None:
    training = TrainingJobs.from_sets(_sets(*(_job(f, u) for f, u in UTILS.items())))
    (near, far), _ = _near(training, _job("x", start), _job("x", start + step))
    assert far > near
    low, high = out_of_distribution(np.array([near, far]))
    assert 0.0 <= low < high < 1.0


def test_the_score_by_hand() -> None:
    assert out_of_distribution(np.array([0.0, 1.0, 3.0])).tolist() == [0.0, 0.5, 0.75]


def test_a_gpu_type_is_compared_with_its_own_jobs() -> None:
    a40, l4 = Job("m", "resnet50", 8), Job("m", "vgg16", 8)
    sets = sets_from_colocations(
        [
            CoLocation("a40", "mps", (replace(a40, solo=SoloProfile(gpu_util_pct=20.0)),)),
            CoLocation("l4", "mps", (replace(l4, solo=SoloProfile(gpu_util_pct=80.0)),)),
        ]
    )
    training = TrainingJobs.from_sets(sets)
    assert _near(training, _job("x", 80.0, None), gpu="l4")[0] == [0.0]
    assert _near(training, _job("x", 80.0, None), gpu="a40")[0][0] > 1.0
    # a type never trained on is compared with the jobs of all types
    distance, nearest = _near(training, _job("x", 80.0, None), gpu="t4")
    assert distance == [0.0]
    assert nearest[0][0] == "vgg16"


def test_fewer_families_than_asked_for_repeat_the_last() -> None:
    training = TrainingJobs.from_sets(_sets(_job("resnet50", 1.0), _job("vgg16", 9.0)))
    _, nearest = _near(training, _job("x", 2.0))
    assert nearest == [["resnet50", "vgg16", "vgg16"]]
    assert len(nearest[0]) == N_NEAREST


def test_rows_come_in_set_order(training: TrainingJobs) -> None:
    pair = CoLocation("a40", "mps", (_job("vgg16", 60.0), _job("x", 300.0)))
    sets = sets_from_colocations([pair, CoLocation("a40", "mps", (_job("lstm", 10.0),))])
    distance, nearest = training.distances(sets)
    assert distance[0] == distance[2] == 0.0
    assert distance[1] > 1.0
    assert nearest.shape == (3, N_NEAREST)
