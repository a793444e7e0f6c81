"""Coarser graphs: kernels without FLOPs join the kernel that feeds them, so that a GNN sees tens of nodes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np

from eaco_features.graphs.graph import ModelGraph
from eaco_features.sets import FloatArray, IntArray

_SUMMED = ("flops", "bytes_read", "bytes_written", "saved_activation_bytes")


def coarsen(graph: ModelGraph) -> ModelGraph:
    """Merge each zero-FLOP node into its latest predecessor, when that is of the same phase.

    One without a predecessor (a counter, a constant) joins the latest node of its phase, and so do the optimizer's
    kernels where the order allows.
    Totals per phase (FLOPs, bytes, saved activations, kernels) are kept exactly; a merged node keeps the name, class,
    shape and attributes of the node that founded it, the largest ``params`` and the ``live_bytes`` of its member with
    the most at the recorded batch size. A node merges only into its latest predecessor, so edges still lead forward.
    """
    group = _groups(graph)
    n = int(group.max()) + 1 if len(graph) else 0
    founder = np.zeros(n, dtype=np.int64)
    founder[group[::-1]] = np.arange(len(graph))[::-1]
    changed: dict[str, Any] = {name: _summed(getattr(graph, name), group, n) for name in _SUMMED}
    kernels = np.zeros(n, dtype=np.int64)
    np.add.at(kernels, group, graph.kernels)
    params = np.zeros(n, dtype=np.int64)
    np.maximum.at(params, group, graph.params)
    pairs = group[graph.edges]
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    for name in ("op", "op_class", "phase", "dtype", "shape", "attributes"):
        column = getattr(graph, name)
        changed[name] = tuple(column[i] for i in founder)
    return replace(graph, **changed, kernels=kernels, params=params, live_bytes=_fullest(graph, group, n), edges=pairs)


def _groups(graph: ModelGraph) -> IntArray:
    """Group of every node ``(n_nodes,)``; groups are numbered in order of their first node."""
    before: dict[int, list[int]] = defaultdict(list)
    for source, target in graph.edges.tolist():
        before[target].append(source)
    counted = (graph.flops != 0).any(axis=1)
    group: list[int] = []
    phase_of: list[str] = []
    latest: dict[str, int] = {}
    for node, phase in enumerate(graph.phase):
        feeds = max((group[source] for source in before[node]), default=-1)
        into = feeds
        if (phase == "opt" or feeds < 0) and latest.get(phase, -1) >= feeds:
            into = latest.get(phase, -1)
        if counted[node] or into < 0 or phase_of[into] != phase:
            into = len(phase_of)
            phase_of.append(phase)
            latest[phase] = into
        group.append(into)
    return np.array(group, dtype=np.int64)


def _summed(column: FloatArray, group: IntArray, n: int) -> FloatArray:
    total = np.zeros((n, 2))
    np.add.at(total, group, column)
    return total


def _fullest(graph: ModelGraph, group: IntArray, n: int) -> FloatArray:
    at_recorded = graph.live_bytes[:, 0] + graph.live_bytes[:, 1] * graph.recording.batch_size
    chosen = np.zeros(n, dtype=np.int64)
    order = np.argsort(at_recorded, kind="stable")
    chosen[group[order]] = order  # the last one written is the fullest
    fullest: FloatArray = graph.live_bytes[chosen]
    return fullest
