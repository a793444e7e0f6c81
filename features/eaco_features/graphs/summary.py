"""What a graph says of a job as a whole: totals, a feature vector, and a roofline time on a GPU. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from eaco_datasets.types import GpuSpec, Precision
from eaco_features.graphs.graph import ModelGraph, StepCosts
from eaco_features.graphs.vocabulary import OP_CLASSES, PHASES
from eaco_features.sets import BoolArray, FloatArray

LAUNCH_S = 5e-6
"""Cost of one kernel launch: an estimate. Empty CUDA kernels launched back to back are commonly measured at 2 to 5 us,
and eager dispatch on the host costs about as much; 5 us is a round middle."""

SMALL_BYTES, SMALL_FLOPS = 2**20, 1e7
"""A kernel under both is small: even a K80 (240 GB/s, 4.4 TFLOP/s) needs no longer for it than for its launch."""

TENSOR_CORE_CLASSES = frozenset(
    {"conv", "conv_depthwise", "conv_transposed", "matmul", "batched_matmul", "attention", "rnn"}
)
"""Classes that mixed precision runs in 16 bit, as autocast's own lists do."""

HALF_TYPES = frozenset({"float16", "bfloat16"})

_MIB = 2.0**20


@dataclass(frozen=True)
class GraphTotals:
    """A graph's totals at one batch size. Shares are of all FLOPs or all bytes, by operation class; none is 0."""

    batch_size: int
    samples: float
    flops: dict[str, float]
    bytes_moved: dict[str, float]
    kernels: dict[str, int]
    small_kernel_share: float
    depth: int
    flop_share: dict[str, float]
    byte_share: dict[str, float]
    parameter_count: int
    optimizer_state_bytes: int
    saved_activation_bytes: float
    peak_memory_mib: float
    dynamic_ops: int
    confidence: float


def totals(graph: ModelGraph, batch_size: int) -> GraphTotals:
    """Totals per phase and over the step at a batch size.

    Raises:
        InputError: the batch size is below 1.
    """
    costs = graph.at(batch_size)
    masks = graph.phase_masks
    kernels = int(graph.kernels.sum())
    return GraphTotals(
        batch_size=batch_size,
        samples=costs.samples,
        flops={phase: float(costs.flops[masks[phase]].sum()) for phase in PHASES},
        bytes_moved={phase: float(costs.bytes_moved[masks[phase]].sum()) for phase in PHASES},
        kernels={phase: int(graph.kernels[masks[phase]].sum()) for phase in PHASES},
        small_kernel_share=float(graph.kernels[_small(graph, costs)].sum()) / max(kernels, 1),
        depth=graph.depth,
        flop_share=_shares(graph, costs.flops),
        byte_share=_shares(graph, costs.bytes_moved),
        parameter_count=graph.recording.parameter_count,
        optimizer_state_bytes=graph.recording.optimizer_state_bytes,
        saved_activation_bytes=float(costs.saved_activation_bytes.sum()),
        peak_memory_mib=costs.peak_memory_bytes / _MIB,
        dynamic_ops=graph.recording.dynamic_ops,
        confidence=graph.recording.confidence,
    )


GRAPH_FEATURES: tuple[str, ...] = (
    *(f"gflop_{phase}" for phase in PHASES),
    *(f"moved_mib_{phase}" for phase in PHASES),
    *(f"kernels_{phase}" for phase in PHASES),
    "flop_per_byte",
    "small_kernel_share",
    "depth",
    "parameters_m",
    "optimizer_state_mib",
    "saved_activation_mib",
    "peak_memory_mib",
    "samples",
    "dynamic_ops",
    "confidence",
    *(f"flop_share_{kind}" for kind in sorted(TENSOR_CORE_CLASSES)),
    *(f"byte_share_{kind}" for kind in OP_CLASSES),
)
"""Names of ``graph_features``' columns, in order."""


def graph_features(graph: ModelGraph, batch_size: int) -> FloatArray:
    """The graph as numbers at a batch size ``(len(GRAPH_FEATURES),)``; never NaN.

    Raises:
        InputError: the batch size is below 1.
    """
    found = totals(graph, batch_size)
    moved = sum(found.bytes_moved.values())
    values = [
        *(found.flops[phase] / 1e9 for phase in PHASES),
        *(found.bytes_moved[phase] / _MIB for phase in PHASES),
        *(found.kernels[phase] for phase in PHASES),
        sum(found.flops.values()) / max(moved, 1.0),
        found.small_kernel_share,
        found.depth,
        found.parameter_count / 1e6,
        found.optimizer_state_bytes / _MIB,
        found.saved_activation_bytes / _MIB,
        found.peak_memory_mib,
        found.samples,
        found.dynamic_ops,
        found.confidence,
        *(found.flop_share.get(kind, 0.0) for kind in sorted(TENSOR_CORE_CLASSES)),
        *(found.byte_share.get(kind, 0.0) for kind in OP_CLASSES),
    ]
    return np.array(values, dtype=np.float64)


class RooflineParts(NamedTuple):
    """A step on a GPU at data-sheet peaks: ``busy_s`` is the sum over nodes of max(FLOPs / peak, bytes / bandwidth),
    ``compute_s`` and ``memory_s`` the sums of its two terms; ``launches`` counts kernels."""

    busy_s: float
    compute_s: float
    memory_s: float
    launches: int


def roofline_parts(graph: ModelGraph, batch_size: int, gpu: GpuSpec, precision: Precision) -> RooflineParts:
    """Roofline times of one training step (Williams et al. 2009; data-sheet peaks).

    With ``amp`` or ``bf16``, nodes recorded in 32 bit that tensor cores take run at the 16-bit peak and move half the
    bytes; nodes recorded in 16 bit do so under any precision.

    Raises:
        InputError: the batch size is below 1.
    """
    costs = graph.at(batch_size)
    recorded_half = np.array([dtype in HALF_TYPES for dtype in graph.dtype], dtype=bool)
    half = recorded_half.copy()
    if precision != "fp32":
        single = np.array([dtype == "float32" for dtype in graph.dtype], dtype=bool)
        half |= single & np.array([kind in TENSOR_CORE_CLASSES for kind in graph.op_class], dtype=bool)
    peak_flops = np.where(half, max(gpu.amp_tflops, gpu.fp32_tflops), gpu.fp32_tflops) * 1e12
    compute_s = costs.flops / peak_flops
    memory_s = costs.bytes_moved * np.where(half & ~recorded_half, 0.5, 1.0) / (gpu.bandwidth_gbs * 1e9)
    return RooflineParts(
        float(np.maximum(compute_s, memory_s).sum()),
        float(compute_s.sum()),
        float(memory_s.sum()),
        int(graph.kernels.sum()),
    )


def roofline_s(graph: ModelGraph, batch_size: int, gpu: GpuSpec, precision: Precision) -> float:
    """Time in s below which the step cannot come on this GPU, but for overlap: ``busy_s`` of ``roofline_parts`` plus
    launches x ``LAUNCH_S``.

    Raises:
        InputError: the batch size is below 1.
    """
    parts = roofline_parts(graph, batch_size, gpu, precision)
    return parts.busy_s + parts.launches * LAUNCH_S


def _small(graph: ModelGraph, costs: StepCosts) -> BoolArray:
    each = np.maximum(graph.kernels, 1)
    small: BoolArray = (costs.bytes_moved / each < SMALL_BYTES) & (costs.flops / each < SMALL_FLOPS)
    return small


def _shares(graph: ModelGraph, values: FloatArray) -> dict[str, float]:
    whole = float(values.sum())
    found: dict[str, float] = {}
    for kind, value in zip(graph.op_class, values.tolist(), strict=True):
        if value > 0:
            found[kind] = found.get(kind, 0.0) + value / whole
    return dict(sorted(found.items(), key=lambda item: -item[1]))
