"""Model graphs as arrays that the network reads: coarse nodes with features, edges both ways. No torch here."""

from __future__ import annotations

from functools import lru_cache
from math import log1p, prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eaco_features.graphs.coarse import coarsen
from eaco_features.graphs.graph import ModelGraph
from eaco_features.graphs.summary import HALF_TYPES, TENSOR_CORE_CLASSES, graph_features
from eaco_features.graphs.vocabulary import OP_CLASSES, PHASES
from eaco_features.sets import BoolArray, IntArray

Float32Array = NDArray[np.float32]

_OF_PRODUCTS = ("kernel", "groups", "stride", "in_channels", "out_channels", "m", "n", "k")
_OF_SEQUENCES = ("batch", "heads", "queries", "keys", "head_size", "hidden", "layers")
_ATTRIBUTES = (*_OF_PRODUCTS, *_OF_SEQUENCES)
_CLASS = {kind: place for place, kind in enumerate(OP_CLASSES)}
_FIXED = len(OP_CLASSES) + len(PHASES)
_VARYING = _FIXED + 4
_ATTRIBUTE = {name: place for place, name in enumerate(_ATTRIBUTES, _VARYING + 6)}
N_NODE_FEATURES = _VARYING + 6 + len(_ATTRIBUTES)
"""Columns of a node: class and phase one-hot, logarithms of its sizes and costs, its place, half precision."""


class JobKey(NamedTuple):
    """What an embedding belongs to: the graph's content hash, the batch size, the precision."""

    content_hash: str
    batch_size: int
    precision: str


class EncodedGraph(NamedTuple):
    """Nodes ``(n_nodes, N_NODE_FEATURES)``, edges ``(2, n_edges)`` in both directions, totals ``(n_totals,)``.

    Sizes are logarithms over fixed constants, so that no statistic of any data is needed.
    """

    nodes: Float32Array
    edges: IntArray
    totals: Float32Array


class _Skeleton(NamedTuple):
    """A coarse graph, the part of its nodes that no batch size changes, and which of them tensor cores take."""

    graph: ModelGraph
    nodes: Float32Array
    edges: IntArray
    recorded_half: BoolArray
    halved: BoolArray


@lru_cache(maxsize=512)
def _skeleton(graph: ModelGraph) -> _Skeleton:
    coarse = coarsen(graph)
    nodes = np.zeros((len(coarse), N_NODE_FEATURES), dtype=np.float32)
    rows = np.arange(len(coarse))
    nodes[rows, [_CLASS[kind] for kind in coarse.op_class]] = 1.0
    nodes[rows, [len(OP_CLASSES) + PHASES.index(phase) for phase in coarse.phase]] = 1.0
    sizes = np.array([prod(shape) for shape in coarse.shape], dtype=np.float64)
    fixed = (np.log1p(sizes) / 20.0, np.log1p(coarse.params) / 20.0, np.log1p(coarse.kernels) / 5.0, coarse.position)
    nodes[:, _FIXED : _FIXED + len(fixed)] = np.stack(fixed, axis=1)
    for row, attributes in enumerate(coarse.attributes):
        for name, value in attributes.items():
            if name in _ATTRIBUTE and not isinstance(value, str):
                nodes[row, _ATTRIBUTE[name]] = _size(value)
    forward = coarse.edges.T.astype(np.int64)
    single = np.array([dtype == "float32" for dtype in coarse.dtype], dtype=bool)
    return _Skeleton(
        coarse,
        nodes,
        np.concatenate([forward, forward[::-1]], axis=1),
        np.array([dtype in HALF_TYPES for dtype in coarse.dtype], dtype=bool),
        single & np.array([kind in TENSOR_CORE_CLASSES for kind in coarse.op_class], dtype=bool),
    )


@lru_cache(maxsize=4096)
def encode(graph: ModelGraph, batch_size: int, precision: str) -> EncodedGraph:
    """A job's coarse graph at a batch size and precision.

    Raises:
        InputError: the batch size is below 1.
    """
    coarse, fixed, edges, recorded_half, halved = _skeleton(graph)
    costs = coarse.at(batch_size)
    half = recorded_half if precision == "fp32" else recorded_half | halved
    varying = (
        half.astype(np.float64),
        np.log1p(costs.flops) / 20.0,
        np.log1p(costs.bytes_read) / 20.0,
        np.log1p(costs.bytes_written) / 20.0,
        np.log1p(costs.flops / np.maximum(costs.bytes_moved, 1.0)) / 5.0,
        np.log1p(costs.saved_activation_bytes) / 20.0,
    )
    nodes = fixed.copy()
    nodes[:, _VARYING : _VARYING + len(varying)] = np.stack(varying, axis=1)
    totals = np.log1p(np.maximum(graph_features(graph, batch_size), 0.0)) / 5.0
    return EncodedGraph(nodes, edges, totals.astype(np.float32))


def _size(value: int | tuple[int, ...]) -> float:
    return log1p(prod(value) if isinstance(value, tuple) else value) / 10.0
