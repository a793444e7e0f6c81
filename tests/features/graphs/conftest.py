"""Small graphs made by hand, and the awkward jobs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from eaco_features.graphs.graph import ModelGraph, Recording

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def make_graph() -> Callable[..., ModelGraph]:
    """A graph of nodes (phase, op class, flops, read, written), each cost a pair [intercept, slope]."""

    def build(
        nodes: Sequence[tuple[str, str, Any, Any, Any]], edges: Sequence[tuple[int, int]] = (), **changed: Any
    ) -> ModelGraph:
        n = len(nodes)
        columns: dict[str, Any] = {
            "name": "by-hand",
            "op": tuple(f"op{i}" for i in range(n)),
            "op_class": tuple(node[1] for node in nodes),
            "phase": tuple(node[0] for node in nodes),
            "dtype": ("float32",) * n,
            "shape": ((4, 2),) * n,
            "attributes": tuple({"kernel": (3, 3), "kind": "x", "groups": i} for i in range(n)),
            "kernels": np.ones(n, dtype=np.int64),
            "params": np.arange(n),
            "flops": np.array([node[2] for node in nodes], dtype=float).reshape(n, 2),
            "bytes_read": np.array([node[3] for node in nodes], dtype=float).reshape(n, 2),
            "bytes_written": np.array([node[4] for node in nodes], dtype=float).reshape(n, 2),
            "saved_activation_bytes": np.zeros((n, 2)),
            "live_bytes": np.array([[100.0 * i, 8.0] for i in range(n)]).reshape(n, 2),
            "edges": np.array(edges, dtype=np.int64).reshape(-1, 2),
            "recording": Recording(batch_size=4, affine=True, optimizers=("SGD",), notes=("made by hand",)),
        }
        return ModelGraph(**{**columns, **changed})

    return build


@pytest.fixture(scope="session")
def small_graph(make_graph: Callable[..., ModelGraph]) -> ModelGraph:
    """conv -> norm -> conv backward -> update, of which both convs have FLOPs."""
    return make_graph(
        [
            ("fwd", "conv", [0, 1000], [400, 80], [0, 40]),
            ("fwd", "batch_norm", [0, 0], [16, 40], [0, 40]),
            ("bwd", "conv", [0, 2000], [400, 120], [400, 80]),
            ("opt", "multi_tensor", [0, 0], [800, 0], [400, 0]),
        ],
        [(0, 1), (1, 2), (2, 3)],
    )


@pytest.fixture(scope="session")
def awkward() -> ModuleType:
    """The module of awkward jobs."""
    pytest.importorskip("torch", reason="torch is not installed (eaco[gnn])")
    sys.path.insert(0, str(HERE))
    try:
        return import_module("awkward_jobs")
    finally:
        sys.path.remove(str(HERE))
