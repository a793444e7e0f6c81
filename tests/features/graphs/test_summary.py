"""Totals, features and roofline time of a graph, against sums done by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaco_datasets.gpus import gpu, gpu_specs
from eaco_features.graphs.coarse import coarsen
from eaco_features.graphs.graph import ModelGraph
from eaco_features.graphs.summary import GRAPH_FEATURES, LAUNCH_S, graph_features, roofline_s, totals


def test_totals_by_hand(small_graph: ModelGraph) -> None:
    found = totals(small_graph, 10)
    assert found.flops == {"fwd": 10_000, "bwd": 20_000, "opt": 0}
    assert found.bytes_moved == {"fwd": 1600 + 816, "bwd": 2800, "opt": 1200}
    assert found.kernels == {"fwd": 2, "bwd": 1, "opt": 1}
    assert found.depth == 4
    assert found.small_kernel_share == 1
    assert found.flop_share == {"conv": 1}
    assert found.byte_share["conv"] == pytest.approx(4400 / 6416)
    assert list(found.byte_share) == ["conv", "multi_tensor", "batch_norm"]
    assert found.confidence == 1


def test_features_are_named_finite_and_hold_the_totals(small_graph: ModelGraph) -> None:
    values = dict(zip(GRAPH_FEATURES, graph_features(small_graph, 10).tolist(), strict=True))
    assert len(set(GRAPH_FEATURES)) == len(GRAPH_FEATURES)
    assert values["gflop_bwd"] == pytest.approx(2e-5)
    assert values["kernels_fwd"] == 2
    assert values["flop_per_byte"] == pytest.approx(30_000 / 6416)
    assert values["byte_share_conv"] == pytest.approx(4400 / 6416)
    assert np.isfinite(list(values.values())).all()


def test_roofline_by_hand(small_graph: ModelGraph) -> None:
    spec = replace(gpu("k80"), fp32_tflops=1e-9, amp_tflops=4e-9, bandwidth_gbs=1e-6)  # 1000 FLOP/s, 1000 B/s
    by_hand = 10 + 0.816 + 20 + 1.2 + 4 * LAUNCH_S
    assert roofline_s(small_graph, 10, spec, "fp32") == pytest.approx(by_hand)
    mixed = max(2.5, 0.8) + 0.816 + max(5, 1.4) + 1.2 + 4 * LAUNCH_S
    assert roofline_s(small_graph, 10, spec, "amp") == pytest.approx(mixed)
    recorded_half = replace(small_graph, dtype=("float16",) * 4)
    half = max(2.5, 1.6) + 0.816 + max(5, 2.8) + 1.2 + 4 * LAUNCH_S
    assert roofline_s(recorded_half, 10, spec, "fp32") == pytest.approx(half)


@given(small=st.integers(1, 500), more=st.integers(1, 500), slug=st.sampled_from(sorted(gpu_specs())))
def test_a_larger_batch_is_never_faster_nor_mixed_precision_slower(
    small_graph: ModelGraph, small: int, more: int, slug: str
) -> None:
    spec = gpu(slug)
    assert roofline_s(small_graph, small, spec, "fp32") <= roofline_s(small_graph, small + more, spec, "fp32")
    assert roofline_s(small_graph, small, spec, "amp") <= roofline_s(small_graph, small, spec, "fp32")


def test_a_coarse_graph_launches_as_many_kernels(small_graph: ModelGraph) -> None:
    assert sum(totals(coarsen(small_graph), 7).kernels.values()) == sum(totals(small_graph, 7).kernels.values())
