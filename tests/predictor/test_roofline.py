"""Roofline models find the constants that made the data, and say nothing of jobs that have no graph."""

from __future__ import annotations

import numpy as np
import pytest

from eaco_datasets.types import CoLocation, Job
from eaco_features.job_graphs import roofline_columns, steps_per_epoch
from eaco_features.sets import FloatArray, SetBatch, sets_from_colocations
from eaco_features.zoo.catalogue import reference_jobs
from eaco_predictor.models.roofline import (
    RooflineEpoch,
    RooflineMemory,
    RooflineMemUtil,
    RooflineModel,
    RooflinePower,
    RooflineUtil,
)

EVERY: tuple[type[RooflineModel], ...] = (RooflineEpoch, RooflineUtil, RooflineMemUtil, RooflineMemory, RooflinePower)


def solo_jobs(slugs: tuple[str, ...] = ("p100", "v100-sxm")) -> SetBatch:
    """Every reference job with a known data set size at three batch sizes, alone."""
    jobs = [
        Job(job.name, job.family, batch, dataset=job.dataset)
        for job in reference_jobs()
        if job.samples_per_epoch is not None
        for batch in (8, 32, 128)
    ]
    return sets_from_colocations([CoLocation(slug, "time-slice", (job,)) for slug in slugs for job in jobs])


def made_step_s(sets: SetBatch, *, slow_gpu: str = "", factor: float = 1.0) -> FloatArray:
    """Step times by the formula: 40 us a kernel, twice the roofline, 20 us a sample, no overlap."""
    columns = roofline_columns(sets)
    slow = np.where(np.array(sets.gpus)[sets.gpu] == slow_gpu, factor, 1.0)[:, None]
    return 2.0 * slow * columns.busy_s + 40e-6 * columns.launches + 20e-6 * columns.samples


def test_finds_what_made_the_step_times() -> None:
    sets = solo_jobs()
    epoch_s = made_step_s(sets) * steps_per_epoch(sets)
    model = RooflineEpoch().fit(sets, epoch_s)
    error = np.abs(np.log(model.predict(sets) / epoch_s))[sets.present]
    assert np.median(error) < 0.05
    assert error.max() < 0.25
    assert model.parameters["inefficiency"] == pytest.approx(2.0, rel=0.2)
    assert model.parameters["host_s_per_kernel"] == pytest.approx(40e-6, rel=0.2)


def test_predicts_families_that_it_did_not_see() -> None:
    sets = solo_jobs()
    epoch_s = made_step_s(sets) * steps_per_epoch(sets)
    seen = sets.family[:, 0] % 2 == 0
    model = RooflineEpoch().fit(sets.take(seen), epoch_s[seen])
    unseen = np.abs(np.log(model.predict(sets)[~seen, 0] / epoch_s[~seen, 0]))
    assert np.median(unseen) < 0.1


def test_a_slow_gpu_type_is_told_apart_and_learned_from_a_few_jobs() -> None:
    sets = solo_jobs()
    epoch_s = made_step_s(sets, slow_gpu="p100", factor=3.0) * steps_per_epoch(sets)
    p100 = sets.gpu == sets.gpus.index("p100")
    both = RooflineEpoch().fit(sets, epoch_s)
    assert both.gpu_factor["p100"] > 1.5 * both.gpu_factor["v100-sxm"]
    fast_only = RooflineEpoch().fit(sets.take(~p100), epoch_s[~p100])
    few = np.flatnonzero(p100)[::6]
    carried = fast_only.with_gpu("p100", sets.take(few), epoch_s[few])

    def error(model: RooflineEpoch) -> float:
        return float(np.median(np.abs(np.log(model.predict(sets)[p100, 0] / epoch_s[p100, 0]))))

    assert error(carried) < 0.5 * error(fast_only)
    assert "p100" not in fast_only.gpu_factor  # the model that it came from stays as it was
    other = ~p100
    assert np.array_equal(carried.predict(sets)[other], fast_only.predict(sets)[other], equal_nan=True)


@pytest.mark.parametrize("kind", EVERY)
def test_a_job_without_a_graph_is_unknown_from_the_graph_and_the_mean_in_the_end(kind: type[RooflineModel]) -> None:
    sets = solo_jobs()
    strange = sets_from_colocations([CoLocation("p100", "time-slice", (Job("mine", "my-own-net", 16),))])
    target = np.where(sets.present, 50.0, np.nan)
    model = kind().fit(sets, target)
    assert np.isnan(model.from_graph(strange)).all()
    assert model.predict(strange)[0, 0] == pytest.approx(50.0)
    assert np.isfinite(model.from_graph(sets)[sets.present]).all()


@pytest.mark.parametrize("kind", [RooflineUtil, RooflinePower])
def test_a_larger_batch_keeps_the_gpu_busier(kind: type[RooflineModel]) -> None:
    sets = sets_from_colocations(
        [
            CoLocation("v100-sxm", "time-slice", (Job("r", "resnet50", batch, dataset="imagenet"),))
            for batch in (2, 8, 64)
        ]
    )
    model = kind.of_priors()
    model._learn_of_data(sets, np.full(sets.present.shape, np.nan))
    out = model.from_graph(sets)[:, 0]
    assert (np.diff(out) >= 0).all()
    assert out[-1] > out[0]


def test_memory_grows_from_the_context_with_the_graph() -> None:
    sets = solo_jobs(("v100-sxm",))
    peak = roofline_columns(sets).memory_mib
    model = RooflineMemory().fit(sets, 900.0 + 1.2 * peak)
    assert model.parameters["context_mib"] == pytest.approx(900.0, rel=0.1)
    assert model.parameters["held_share"] == pytest.approx(1.2, rel=0.05)


def test_the_same_rows_in_another_order_give_the_same_model() -> None:
    sets = solo_jobs()
    epoch_s = made_step_s(sets) * steps_per_epoch(sets)
    order = np.random.default_rng(0).permutation(len(sets))
    here = RooflineEpoch().fit(sets, epoch_s).predict(sets)
    there = RooflineEpoch().fit(sets.take(order), epoch_s[order]).predict(sets)
    assert np.nanmax(np.abs(np.log(here / there))) < 1e-3
