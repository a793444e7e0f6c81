"""A model graph: the kernels of one training step as columns, each cost affine in the batch size. No torch here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from eaco_datasets.errors import InputError
from eaco_features.graphs.vocabulary import PHASES
from eaco_features.sets import FloatArray, IntArray

Attribute = int | str | tuple[int, ...]
Mode = Literal["fake", "real", "onnx"]

SCHEMA = 1
COST_COLUMNS = ("flops", "bytes_read", "bytes_written", "saved_activation_bytes", "live_bytes")
"""Node columns that are affine in the batch size."""


@dataclass(frozen=True)
class Recording:
    """How a graph was recorded, and what belongs to the job as a whole.

    ``samples`` is [intercept, slope] of the samples per step in the batch size. ``value_reads`` counts tensor values
    that the step read on the host (``.item()``), ``shape_guesses`` operations whose output shape depends on data
    (``nonzero``, a Boolean mask), taken at their largest. ``affine`` says whether a third batch size lay exactly on
    the line through the first two (None: not tried). ``mode`` is ``fake`` (no arithmetic was done), ``real``, or
    ``onnx`` (imported from a file: the forward pass alone).
    """

    batch_size: int
    mode: Mode = "fake"
    samples: tuple[float, float] = (0.0, 1.0)
    parameter_count: int = 0
    parameter_bytes: int = 0
    trainable_bytes: int = 0
    buffer_bytes: int = 0
    optimizer_state_bytes: int = 0
    optimizers: tuple[str, ...] = ()
    value_reads: int = 0
    shape_guesses: int = 0
    affine: bool | None = None
    notes: tuple[str, ...] = ()

    @property
    def dynamic_ops(self) -> int:
        """Operations of the step whose outcome depends on data that a fake run does not have."""
        return self.value_reads + self.shape_guesses

    @property
    def inference_only(self) -> bool:
        """Whether the graph is a forward pass that nobody trained: no loss, backward or optimizer in it."""
        return self.mode == "onnx"

    @property
    def confidence(self) -> float:
        """How far the graph can be trusted, 1 = fully; a rank to sort by, not a probability.

        Times 0.7 when costs are not exactly affine, 0.75 when shapes were guessed, 0.95 when values were read, 0.9
        when the step had to be run for real at a tiny batch, 0.5 when it is inference only: a training step costs
        about three times as much, and how much exactly is not in the file.
        """
        factors = (
            0.7 if self.affine is False else 1.0,
            0.75 if self.shape_guesses else 1.0,
            0.95 if self.value_reads else 1.0,
            0.9 if self.mode == "real" else 1.0,
            0.5 if self.inference_only else 1.0,
        )
        return float(np.prod(factors))


@dataclass(frozen=True, eq=False)
class StepCosts:
    """A graph's node costs at one batch size; every array is ``(n_nodes,)``."""

    batch_size: int
    samples: float
    flops: FloatArray
    bytes_read: FloatArray
    bytes_written: FloatArray
    saved_activation_bytes: FloatArray
    live_bytes: FloatArray

    @cached_property
    def bytes_moved(self) -> FloatArray:
        """Bytes read and written by each node."""
        moved: FloatArray = self.bytes_read + self.bytes_written
        return moved

    @property
    def peak_memory_bytes(self) -> float:
        """Most bytes alive at once: parameters, optimizer state, input, gradients and activations."""
        return float(self.live_bytes.max(initial=0.0))


@dataclass(frozen=True, eq=False)
class ModelGraph:
    """The kernels of one training step, in the order they were launched; views are no nodes.

    ``shape`` and ``attributes`` are those at ``recording.batch_size``. ``kernels`` counts the launches a node stands
    for (1 unless coarsened), ``params`` the parameter elements it reads. Columns of ``COST_COLUMNS`` are ``(n_nodes,
    2)``: intercept and slope in the batch size. ``live_bytes`` is what is allocated when the node has run. ``edges``
    is ``(n_edges, 2)``, from the last writer of a tensor to its reader, always to a later node. Two graphs are equal
    when their content hashes are; ``name`` and ``torch_version`` are labels outside the hash.
    """

    name: str
    op: tuple[str, ...]
    op_class: tuple[str, ...]
    phase: tuple[str, ...]
    dtype: tuple[str, ...]
    shape: tuple[tuple[int, ...], ...]
    attributes: tuple[Mapping[str, Attribute], ...]
    kernels: IntArray
    params: IntArray
    flops: FloatArray
    bytes_read: FloatArray
    bytes_written: FloatArray
    saved_activation_bytes: FloatArray
    live_bytes: FloatArray
    edges: IntArray
    recording: Recording
    torch_version: str = ""

    def __len__(self) -> int:
        return len(self.op)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModelGraph) and self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return hash(self.content_hash)

    def at(self, batch_size: int) -> StepCosts:
        """Costs at any batch size.

        Raises:
            InputError: the batch size is below 1.
        """
        if batch_size < 1:
            raise InputError(f"batch size {batch_size}", where="batch_size", expected="1 or more")
        values = {name: at_batch(getattr(self, name), batch_size) for name in COST_COLUMNS}
        intercept, slope = self.recording.samples
        return StepCosts(batch_size=batch_size, samples=intercept + slope * batch_size, **values)

    @cached_property
    def phase_masks(self) -> dict[str, Any]:
        """Which nodes are of a phase: ``{"fwd": (n_nodes,) bool, ...}``."""
        column = np.array(self.phase, dtype=object)
        return {phase: column == phase for phase in PHASES}

    @cached_property
    def level(self) -> IntArray:
        """Longest path from a source to each node, in edges ``(n_nodes,)``."""
        level = [0] * len(self)
        for source, target in sorted(map(tuple, self.edges.tolist()), key=lambda edge: edge[1]):
            level[target] = max(level[target], level[source] + 1)
        return np.array(level, dtype=np.int64)

    @property
    def depth(self) -> int:
        """Nodes on the longest path."""
        return int(self.level.max()) + 1 if len(self) else 0

    @cached_property
    def position(self) -> FloatArray:
        """Topological position of each node, 0 (no predecessor) to 1 (end of the longest path)."""
        position: FloatArray = self.level / max(self.depth - 1, 1)
        return position

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of everything but the labels, as ``sha256:...``."""
        content = {k: v for k, v in to_document(self).items() if k not in ("name", "torch")}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def at_batch(column: FloatArray, batch_size: float) -> FloatArray:
    """An affine column ``(n, 2)`` at a batch size ``(n,)``; never below 0."""
    value: FloatArray = np.maximum(column[:, 0] + column[:, 1] * batch_size, 0.0)
    return value


def to_document(graph: ModelGraph) -> dict[str, Any]:
    """The graph as JSON data, without its hash; numbers that are whole are written whole."""
    ops = sorted(set(graph.op))
    dtypes = sorted(set(graph.dtype))
    nodes: dict[str, Any] = {
        "op": [ops.index(op) for op in graph.op],
        "op_class": list(graph.op_class),
        "phase": list(graph.phase),
        "dtype": [dtypes.index(dtype) for dtype in graph.dtype],
        "shape": [list(shape) for shape in graph.shape],
        "attributes": [
            {k: list(v) if isinstance(v, tuple) else v for k, v in sorted(node.items())} for node in graph.attributes
        ],
        "kernels": graph.kernels.tolist(),
        "params": graph.params.tolist(),
    }
    for name in COST_COLUMNS:
        column = getattr(graph, name)
        nodes[name] = {"intercept": _whole(column[:, 0]), "slope": _whole(column[:, 1])}
    recording = {
        name: list(value) if isinstance(value, tuple) else value for name, value in vars(graph.recording).items()
    }
    recording["samples"] = _whole(np.array(graph.recording.samples))
    return {
        "schema": SCHEMA,
        "kind": "eaco-model-graph",
        "name": graph.name,
        "torch": graph.torch_version,
        "recording": recording,
        "ops": ops,
        "dtypes": dtypes,
        "nodes": nodes,
        "edges": graph.edges.tolist(),
    }


def _whole(values: FloatArray) -> list[int | float]:
    return [int(value) if float(value).is_integer() else float(value) for value in values]
