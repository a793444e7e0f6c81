"""Model graphs as arrays that the network reads: coarse nodes with features, edges both ways. No torch here."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eaco_features.graphs.coarse import coarsen
from eaco_features.graphs.graph import ModelGraph
from eaco_features.graphs.summary import HALF_TYPES, TENSOR_CORE_CLASSES, graph_features
from eaco_features.graphs.vocabulary import OP_CLASSES, PHASES
from eaco_features.sets import IntArray

Float32Array = NDArray[np.float32]

_OF_PRODUCTS = ("kernel", "groups", "stride", "in_channels", "out_channels", "m", "n", "k")
_OF_SEQUENCES = ("batch", "heads", "queries", "keys", "head_size", "hidden", "layers")
_ATTRIBUTES = (*_OF_PRODUCTS, *_OF_SEQUENCES)
N_NODE_FEATURES = len(OP_CLASSES) + len(PHASES) + 10 + len(_ATTRIBUTES)
"""Columns of a node: class and phase one-hot, half precision, logarithms of its costs and sizes, its place."""


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


@lru_cache(maxsize=512)
def _coarse(graph: ModelGraph) -> ModelGraph:
    return coarsen(graph)


@lru_cache(maxsize=4096)
def encode(graph: ModelGraph, batch_size: int, precision: str) -> EncodedGraph:
    """A job's coarse graph at a batch size and precision.

    Raises:
        InputError: the batch size is below 1.
    """
    coarse = _coarse(graph)
    costs = coarse.at(batch_size)
    nodes = np.zeros((len(coarse), N_NODE_FEATURES), dtype=np.float32)
    rows = np.arange(len(coarse))
    nodes[rows, [OP_CLASSES.index(kind) for kind in coarse.op_class]] = 1.0
    nodes[rows, [len(OP_CLASSES) + PHASES.index(phase) for phase in coarse.phase]] = 1.0
    half = [
        dtype in HALF_TYPES or (precision != "fp32" and dtype == "float32" and kind in TENSOR_CORE_CLASSES)
        for dtype, kind in zip(coarse.dtype, coarse.op_class, strict=True)
    ]
    sizes = [np.prod(shape, dtype=np.float64) if shape else 1.0 for shape in coarse.shape]
    columns = [
        np.array(half, dtype=np.float64),
        np.log1p(costs.flops) / 20.0,
        np.log1p(costs.bytes_read) / 20.0,
        np.log1p(costs.bytes_written) / 20.0,
        np.log1p(costs.flops / np.maximum(costs.bytes_moved, 1.0)) / 5.0,
        np.log1p(np.array(sizes)) / 20.0,
        np.log1p(coarse.params) / 20.0,
        np.log1p(costs.saved_activation_bytes) / 20.0,
        np.log1p(coarse.kernels) / 5.0,
        coarse.position,
    ]
    start = len(OP_CLASSES) + len(PHASES)
    nodes[:, start : start + len(columns)] = np.stack(columns, axis=1)
    for place, name in enumerate(_ATTRIBUTES, start + len(columns)):
        nodes[:, place] = [_size(node.get(name, 0)) for node in coarse.attributes]
    forward = coarse.edges.T.astype(np.int64)
    totals = np.log1p(np.maximum(graph_features(graph, batch_size), 0.0)) / 5.0
    return EncodedGraph(nodes, np.concatenate([forward, forward[::-1]], axis=1), totals.astype(np.float32))


def _size(value: object) -> float:
    if isinstance(value, str):
        return 0.0
    return float(np.log1p(np.prod(np.atleast_1d(np.asarray(value, dtype=np.float64)))) / 10.0)
