"""Graphs of a batch's jobs: looked up by family and data set, figures as the graph itself gives them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eaco_datasets.gpus import gpu
from eaco_datasets.types import CoLocation, Job
from eaco_features.graph_matrix import GRAPH_MATRIX, graph_matrix
from eaco_features.graphs.summary import GRAPH_FEATURES, graph_features, roofline_parts, roofline_s
from eaco_features.job_graphs import CATALOGUE, graph_columns, roofline_columns, steps_per_epoch
from eaco_features.sets import SetBatch, sets_from_colocations
from eaco_features.zoo.catalogue import reference_jobs
from eaco_features.zoo.recorded import catalogue_graph

RESNET = Job("resnet50", "resnet50", 32, dataset="imagenet")
BERT = Job("bert", "bert-base", 8, "amp", dataset="squad")
STRANGE = Job("mine", "my-own-net", 16)


def _batch(*sets: CoLocation) -> SetBatch:
    return sets_from_colocations(sets)


def test_roofline_figures_are_those_of_the_graph_on_the_set_s_gpu() -> None:
    sets = _batch(CoLocation("k80", "unknown", (RESNET, BERT)), CoLocation("a40", "unknown", (BERT, STRANGE)))
    columns = roofline_columns(sets)
    parts = roofline_parts(catalogue_graph("bert-base-squad"), 8, gpu("a40"), "amp")
    assert columns.busy_s[1, 0] == parts.busy_s
    assert columns.launches[1, 0] == parts.launches
    assert columns.busy_s[0, 1] > columns.busy_s[1, 0]  # a K80 is slower
    assert np.isnan(columns.busy_s[1, 1])
    assert np.isnan(columns.busy_s[:, 2:]).all()


@pytest.mark.parametrize("name", [job.name for job in reference_jobs()])
def test_busy_time_lies_between_its_terms_and_below_the_roofline_with_launches(name: str) -> None:
    graph = catalogue_graph(name)
    for slug in ("k80", "v100-sxm", "h200"):
        parts = roofline_parts(graph, 16, gpu(slug), "fp32")
        assert max(parts.compute_s, parts.memory_s) <= parts.busy_s * (1 + 1e-12)
        assert parts.busy_s <= parts.compute_s + parts.memory_s
        assert parts.busy_s < roofline_s(graph, 16, gpu(slug), "fp32")


def test_a_gpu_or_a_job_without_data_is_unknown_not_zero() -> None:
    sets = _batch(CoLocation("cpu-2core", "time-slice", (RESNET, STRANGE)))
    assert np.isnan(roofline_columns(sets).busy_s).all()
    assert np.isfinite(graph_columns(sets)[0, 0]).all()
    assert np.isnan(graph_columns(sets)[0, 1:]).all()


def test_graph_columns_are_the_graph_s_features() -> None:
    sets = _batch(CoLocation("a40", "time-slice", (RESNET,)))
    expected = graph_features(catalogue_graph("resnet50-imagenet"), 32)
    assert graph_columns(sets).shape == (1, 4, len(GRAPH_FEATURES))
    assert np.array_equal(graph_columns(sets)[0, 0], expected)


def test_a_registered_graph_answers_for_its_name_and_hides_the_catalogue_s() -> None:
    graph = catalogue_graph("dcgan-lsun")
    book = CATALOGUE.with_graph("my-own-net", graph).with_graph("resnet50", graph)
    plain = _batch(CoLocation("a40", "time-slice", (RESNET, STRANGE)))
    sets = replace(plain, graphs=book)
    busy = roofline_columns(sets).busy_s
    assert busy[0, 1] == roofline_parts(graph, 16, gpu("a40"), "fp32").busy_s
    assert busy[0, 0] == roofline_parts(graph, 32, gpu("a40"), "fp32").busy_s
    assert np.isnan(steps_per_epoch(sets)[0, :2]).all()  # whose data are not the catalogue's any more
    assert np.isnan(roofline_columns(plain).busy_s[0, 1])


def test_steps_of_an_epoch_are_the_caller_s_before_the_catalogue_s() -> None:
    own = replace(RESNET, samples_per_epoch=3200.0)
    sets = _batch(CoLocation("a40", "time-slice", (RESNET, own, STRANGE)), CoLocation("a40", "time-slice", (own,), 2))
    steps = steps_per_epoch(sets)
    assert steps[0, 0] == pytest.approx(1_281_167 / 32)
    assert steps[0, 1] == 100.0
    assert np.isnan(steps[0, 2])
    assert steps[1, 0] == 50.0  # two GPUs take a step of 64


def test_matrix_rows_are_the_jobs_in_order_and_symmetric() -> None:
    sets = _batch(CoLocation("a40", "time-slice", (RESNET, BERT, STRANGE)), CoLocation("k80", "time-slice", (BERT,)))
    rows = graph_matrix(sets)
    assert rows.shape == (4, len(GRAPH_MATRIX))
    moved = graph_matrix(sets.permute_jobs([2, 0, 1, 3]))
    assert np.array_equal(moved[[1, 2, 0, 3]], rows, equal_nan=True)
    names = [feature.name for feature in GRAPH_MATRIX]
    assert np.isnan(rows[0, names.index("others_duty_sum")])  # one co-runner is unknown
    assert rows[3, names.index("others_duty_sum")] == 0.0
    assert not np.isinf(rows).any()
