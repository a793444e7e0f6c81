"""A model graph: affine costs, order, hash; coarser graphs keep the totals."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaco_datasets.errors import InputError
from eaco_features.graphs.coarse import coarsen
from eaco_features.graphs.graph import COST_COLUMNS, ModelGraph, Recording
from eaco_features.graphs.vocabulary import OP_CLASSES, PHASES, UNKNOWN, classify


def test_costs_are_intercept_plus_slope_times_batch(small_graph: ModelGraph) -> None:
    costs = small_graph.at(10)
    assert costs.flops.tolist() == [10_000, 0, 20_000, 0]
    assert costs.bytes_read.tolist() == [1200, 416, 1600, 800]
    assert costs.bytes_moved.tolist() == [1600, 816, 2800, 1200]
    assert costs.samples == 10
    assert costs.peak_memory_bytes == 300 + 80


def test_a_cost_never_falls_below_zero(make_graph: Callable[..., ModelGraph]) -> None:
    graph = make_graph([("fwd", "conv", [-50, 20], [0, 0], [0, 0])])
    assert graph.at(1).flops.tolist() == [0]
    assert graph.at(5).flops.tolist() == [50]


@pytest.mark.parametrize("batch_size", [0, -3])
def test_no_batch_size_below_one(small_graph: ModelGraph, batch_size: int) -> None:
    with pytest.raises(InputError, match="batch_size: batch size"):
        small_graph.at(batch_size)


def test_depth_and_position_follow_the_longest_path(make_graph: Callable[..., ModelGraph]) -> None:
    node = ("fwd", "conv", [0, 1], [0, 1], [0, 1])
    graph = make_graph([node] * 5, [(0, 1), (1, 2), (0, 3), (2, 3)])
    assert graph.level.tolist() == [0, 1, 2, 3, 0]
    assert graph.depth == 4
    assert graph.position.tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1, 0])


def test_labels_are_outside_the_hash_and_everything_else_is_inside(small_graph: ModelGraph) -> None:
    assert replace(small_graph, name="other", torch_version="9") == small_graph
    assert hash(replace(small_graph, name="other")) == hash(small_graph)
    for changed in (
        replace(small_graph, flops=small_graph.flops + 1),
        replace(small_graph, op=("op9", *small_graph.op[1:])),
        replace(small_graph, edges=small_graph.edges[1:]),
        replace(small_graph, recording=replace(small_graph.recording, value_reads=1)),
    ):
        assert changed != small_graph
    assert small_graph != "a graph"


def test_confidence_falls_with_every_doubt() -> None:
    sure = Recording(batch_size=1, affine=True)
    assert sure.confidence == 1
    doubts: list[dict[str, Any]] = [{"affine": False}, {"shape_guesses": 1}, {"value_reads": 3}, {"mode": "real"}]
    for doubt in doubts:
        assert replace(sure, **doubt).confidence < 1
    assert replace(sure, value_reads=3, shape_guesses=2).dynamic_ops == 5


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("convolution_backward", "conv"),
        ("addmm", "matmul"),
        ("add_", "add"),
        ("native_batch_norm_backward", "batch_norm"),
        ("_log_softmax_backward_data", "softmax"),
        ("threshold_backward", "activation"),
        ("relu_", "activation"),
        ("_foreach_addcdiv_", "multi_tensor"),
        ("_fused_adam_", "fused_optimizer"),
        ("embedding_dense_backward", "embedding"),
        ("_embedding_bag", "embedding_bag"),
        ("eaco.attention_backward", "attention"),
        ("max_pool2d_with_indices_backward", "pool"),
        ("nll_loss_forward", "loss"),
        ("_to_copy", "cast"),
        ("native_dropout_backward", "dropout"),
        ("somebody.new_kernel", UNKNOWN),
    ],
)
def test_operations_find_their_class(op: str, kind: str) -> None:
    assert classify(op) == kind
    assert kind in OP_CLASSES


def test_the_vocabulary_is_of_the_promised_size_and_without_repeats() -> None:
    assert 35 <= len(OP_CLASSES) <= 55
    assert len(set(OP_CLASSES)) == len(OP_CLASSES)


def test_zero_flop_nodes_join_what_feeds_them(small_graph: ModelGraph) -> None:
    coarse = coarsen(small_graph)
    assert coarse.op == ("op0", "op2", "op3")
    assert coarse.kernels.tolist() == [2, 1, 1]
    assert coarse.edges.tolist() == [[0, 1], [1, 2]]
    assert coarse.bytes_written[0].tolist() == [0, 80]
    assert coarse.at(4).peak_memory_bytes == small_graph.at(4).peak_memory_bytes


def test_a_node_does_not_join_across_phases_nor_past_its_latest_input(make_graph: Callable[..., ModelGraph]) -> None:
    work, free = ([0, 5], [0, 1], [0, 1]), ([0, 0], [0, 1], [0, 1])
    graph = make_graph(
        [("fwd", "conv", *work), ("bwd", "conv", *work), ("fwd", "add", *free), ("fwd", "add", *free)],
        [(0, 2), (1, 2), (0, 3)],
    )
    coarse = coarsen(graph)
    assert coarse.phase == ("fwd", "bwd", "fwd")
    assert coarse.kernels.tolist() == [2, 1, 1]


@st.composite
def _graphs(draw: st.DrawFn) -> tuple[list[tuple[str, str, Any, Any, Any]], list[tuple[int, int]]]:
    n = draw(st.integers(1, 12))
    cost = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(list)
    nodes = [
        (
            draw(st.sampled_from(PHASES)),
            draw(st.sampled_from(OP_CLASSES)),
            draw(st.one_of(st.just([0, 0]), cost)),
            draw(cost),
            draw(cost),
        )
        for _ in range(n)
    ]
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda p: p[0] < p[1])
    edges = draw(st.lists(pairs, max_size=20, unique=True)) if n > 1 else []
    return nodes, sorted(edges)


@given(drawn=_graphs(), batch_size=st.integers(1, 1000))
def test_coarsening_keeps_totals_per_phase_and_order(
    make_graph: Callable[..., ModelGraph], drawn: Any, batch_size: int
) -> None:
    graph = make_graph(*drawn)
    coarse = coarsen(graph)
    fine_costs, coarse_costs = graph.at(batch_size), coarse.at(batch_size)
    for phase in PHASES:
        fine, rough = graph.phase_masks[phase], coarse.phase_masks[phase]
        assert graph.kernels[fine].sum() == coarse.kernels[rough].sum()
        for name in set(COST_COLUMNS) - {"live_bytes"}:
            assert getattr(fine_costs, name)[fine].sum() == getattr(coarse_costs, name)[rough].sum()
    assert graph.at(4).peak_memory_bytes == coarse.at(4).peak_memory_bytes
    assert (coarse.edges[:, 0] < coarse.edges[:, 1]).all()
    assert len(coarse) <= len(graph)
    assert np.count_nonzero((coarse.flops != 0).any(axis=1)) == np.count_nonzero((graph.flops != 0).any(axis=1))


def test_graphs_need_no_torch() -> None:
    code = (
        "import sys\n"
        "import eaco_features.graphs.store, eaco_features.graphs.coarse, eaco_features.graphs.summary\n"
        "import eaco_features.graphs.extract, eaco_features.graphs.job\n"
        "print('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
