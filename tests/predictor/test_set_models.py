"""Memory, utilisation and node power of a set out of its jobs' solo profiles."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from eaco_datasets.errors import DataError
from eaco_datasets.sources import load_dataset
from eaco_datasets.types import MAX_JOBS, CoLocation, Job, SoloProfile
from eaco_features.examples import examples_from_profiles
from eaco_features.sets import FloatArray, SetBatch, sets_from_colocations
from eaco_predictor.models.set_models import NodePower, NodePowerLine, SoftSum, SumAndCap, SumOfSolos
from eaco_predictor.pipeline import TargetPipeline

PUBLISHED_SETS_W = {
    "eaco-j1+j3": 1390.0,
    "eaco-j1+j4": 1506.0,
    "eaco-j2+j4": 1644.0,
    "eaco-j1+j2+j3": 1541.0,
    "eaco-j1+j2+j4": 1713.0,
    "eaco-j1+j2+j3+j4": 1944.0,
}
"""Node power of the shared sets (arXiv 2412.08294, tables 3 and 4)."""


def _sets(*jobs: tuple[SoloProfile, ...]) -> SetBatch:
    return sets_from_colocations([CoLocation("a40", "mps", tuple(Job("m", "m", 8, solo=s) for s in j)) for j in jobs])


def _util(*pct: float) -> tuple[SoloProfile, ...]:
    return tuple(SoloProfile(gpu_util_pct=u) for u in pct)


def _everywhere(sets: SetBatch, values: list[float]) -> FloatArray:
    return np.where(sets.present, np.array(values)[:, None], np.nan)


class TestNodePower:
    """The published node: learned from the four jobs alone, checked on the six sets."""

    @pytest.fixture
    def table(self) -> pd.DataFrame:
        return load_dataset("eaco")

    def test_the_six_published_sets_come_within_10_pct_from_the_four_solo_rows(self, table: pd.DataFrame) -> None:
        examples = examples_from_profiles(table, "node_power_w")
        alone = examples.sets.n_jobs == 1
        assert alone.sum() == 4
        model = NodePower().fit(examples.sets.take(alone), examples.target[alone])
        predicted = dict(zip(examples.measurement_id, model.predict(examples.sets)[:, 0].tolist(), strict=True))
        errors = {name: abs(predicted[name] / watts - 1) for name, watts in PUBLISHED_SETS_W.items()}
        assert len(errors) == 6
        assert max(errors.values()) <= 0.10, errors

    def test_the_default_pipeline_reaches_it_too(self, table: pd.DataFrame) -> None:
        examples = examples_from_profiles(table, "node_power_w")
        alone = examples.sets.n_jobs == 1
        pipeline = TargetPipeline("node_power_w").fit(examples.sets.take(alone), examples.target[alone])
        bounds = pipeline.predict(examples.sets.take(~alone))
        watts = np.array([PUBLISHED_SETS_W[name] for name in examples.measurement_id[~alone]])
        assert (np.abs(bounds.mean[:, 0] / watts - 1) <= 0.10).all()

    def test_the_sets_are_never_learned_from(self, table: pd.DataFrame) -> None:
        examples = examples_from_profiles(table, "node_power_w")
        spoiled = np.where((examples.sets.n_jobs > 1)[:, None], 9e9, examples.target)
        honest, tempted = (NodePower().fit(examples.sets, t) for t in (examples.target, spoiled))
        assert (honest.idle_w, honest.busy_w) == (tempted.idle_w, tempted.busy_w)

    def test_a_line_through_the_same_rows_misses_the_quadruple(self, table: pd.DataFrame) -> None:
        examples = examples_from_profiles(table, "node_power_w")
        model = NodePowerLine().fit(examples.sets, examples.target)
        at = examples.measurement_id.tolist().index("eaco-j1+j2+j3+j4")
        assert model.predict(examples.sets)[at, 0] / 1944.0 - 1 == pytest.approx(0.26, abs=0.03)

    def test_a_curve_is_found_again(self) -> None:
        sets = _sets(_util(10.0), _util(50.0), _util(90.0), _util(30.0, 40.0))
        share = np.array([0.1, 0.5, 0.9])
        watts = 500 + 1500 * (2 * share - share**1.4)
        target = _everywhere(sets, [*watts, 1.0])
        model = NodePower().fit(sets, target)
        assert model.idle_w == pytest.approx(500)
        assert model.busy_w == pytest.approx(2000)
        assert model.predict(sets)[3, :2] == pytest.approx(500 + 1500 * (1.4 - 0.7**1.4))

    def test_without_a_solo_row_there_is_nothing_to_learn(self) -> None:
        sets = _sets(_util(10.0, 20.0), _util(30.0, 20.0))
        for model in (NodePower(), NodePowerLine()):
            with pytest.raises(DataError, match="solo row"):
                model.fit(sets, _everywhere(sets, [700.0, 800.0]))

    def test_power_never_falls_with_load(self) -> None:
        sets = _sets(*(_util(u) for u in range(0, 200, 10)))
        fit_on = _sets(_util(5.0), _util(48.0))
        model = NodePower().fit(fit_on, _everywhere(fit_on, [712.0, 1533.0]))
        assert (np.diff(model.predict(sets)[:, 0]) >= 0).all()


class TestMemory:
    def test_memory_is_the_sum_of_the_solo_peaks_on_every_job(self) -> None:
        sets = _sets((SoloProfile(mem_mib=5000.0), SoloProfile(mem_mib=700.5)), (SoloProfile(mem_mib=1.0),))
        out = SumOfSolos().fit(sets, sets.batch_size).predict(sets)
        assert out[0, :2].tolist() == [5700.5, 5700.5]
        assert out[1, 0] == 1.0

    def test_one_unknown_peak_makes_the_sum_unknown(self) -> None:
        sets = _sets((SoloProfile(mem_mib=5000.0), SoloProfile()))
        assert np.isnan(SumOfSolos().fit(sets, sets.batch_size).predict(sets)).all()


class TestUtilisation:
    def test_sum_and_cap_by_hand(self) -> None:
        sets = _sets(_util(30.0, 40.0), _util(70.0, 60.0, 10.0))
        out = SumAndCap().fit(sets, sets.batch_size).predict(sets)
        assert out[0, :2].tolist() == [70.0, 70.0]
        assert out[1, :3].tolist() == [100.0] * 3

    @pytest.mark.parametrize("sharpness", [2.0, 5.0, 12.0])
    def test_the_sharpness_of_the_soft_sum_is_found_again(self, sharpness: float) -> None:
        random = np.random.default_rng(0)
        sets = _sets(*(_util(*random.uniform(10, 80, 3)) for _ in range(80)))
        total = np.nansum(sets.solo_of("gpu_util_pct"), axis=1)
        seen = (total**-sharpness + 100.0**-sharpness) ** (-1 / sharpness)
        model = SoftSum().fit(sets, _everywhere(sets, seen.tolist()))
        assert model.sharpness == pytest.approx(sharpness, rel=0.02)
        assert model.predict(sets)[:, 0] == pytest.approx(seen, rel=1e-3)

    def test_a_job_alone_keeps_its_utilisation(self) -> None:
        sets = _sets(_util(93.0), _util(50.0, 60.0))
        out = SoftSum().fit(sets, _everywhere(sets, [93.0, 90.0])).predict(sets)
        assert out[0, 0] == 93.0
        assert out[1, 0] < 100.0

    def test_without_solo_utilisation_the_answer_is_unknown(self) -> None:
        sets = _sets((SoloProfile(), SoloProfile(gpu_util_pct=4.0)))
        model = SoftSum().fit(sets, _everywhere(sets, [50.0]))
        assert np.isnan(model.predict(sets)).all()
        assert model.predict(sets).shape == (1, MAX_JOBS)
