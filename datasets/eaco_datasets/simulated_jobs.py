"""SIMULATED jobs: what a training step of each job config would cost, alone or sharing a GPU. Nothing was measured.

The families' figures are data (``data/simulated_families.json``), each with its source or said to be a choice; the
model's parameters are ``SimulationParameters``. ``simulated`` draws job sets and writes the profile table.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eaco_datasets.physics import (
    CUDA_CONTEXT_MIB,
    MPS_COSTS,
    TIME_SLICE_COSTS,
    BoolArray,
    Contention,
    FloatArray,
    SharingCosts,
    StepLoads,
    contend,
    out_of_memory,
    overlapped_step_s,
    saturating_power_w,
    set_memory_mib,
)
from eaco_datasets.types import GpuSpec, Precision

IntArray = NDArray[np.int64]

BF16_SINCE_YEAR = 2020
"""First year of NVIDIA GPUs with bfloat16 tensor cores (A100 data sheet)."""

MPS_SINCE_YEAR = 2017
"""First year of NVIDIA GPUs whose MPS isolates clients' address spaces (Volta, MPS documentation)."""

BYTES_PER_MIB = 2.0**20


@dataclass(frozen=True, slots=True)
class SimulatedFamily:
    """Cost of one training step of a model family; ``source`` says where FLOPs and parameters are from.

    Args:
        gflop_per_sample: forward and backward, 2 FLOP a multiply-add.
        parameters_mib: in fp32.
        activations_mib_per_sample: kept for the backward pass, in fp32.
        kernels_per_step: GPU kernels of forward, backward and optimizer together.
        host_ms_per_step, host_us_per_sample: host work other than launching kernels.
        sms_per_sample: SMs that one sample's kernels fill.
        compute_efficiency: share of the peak rate that kernels reach when they fill the GPU.
    """

    slug: str
    dataset: str
    samples_per_epoch: int
    optimizer: str
    gflop_per_sample: float
    parameters_mib: float
    activations_mib_per_sample: float
    kernels_per_step: int
    host_ms_per_step: float
    host_us_per_sample: float
    sms_per_sample: float
    compute_efficiency: float
    batch_sizes: tuple[int, ...]
    precisions: tuple[Precision, ...]
    source: str


@dataclass(frozen=True, slots=True)
class SimulationParameters:
    """Every parameter of the simulation; all are choices of this project unless a source is named.

    Args:
        launch_us: host time to launch one kernel (PyTorch eager mode: 5-15 us).
        kernel_floor_us: GPU time that even an empty kernel takes.
        overlap: share of the shorter of host and GPU work that hides behind the longer.
        traffic_per_activation: times an activation is written or read in a step by kernels that wait for memory.
        traffic_per_parameter: times a parameter, its gradient or optimizer state is written or read in a step.
        bandwidth_efficiency: share of the data-sheet bandwidth that one job's kernels reach.
        half_traffic: memory traffic and activations under ``amp`` or ``bf16``, relative to fp32.
        half_compute_efficiency: tensor-core share reached, relative to ``compute_efficiency``.
        half_launch: kernels launched under ``amp`` or ``bf16`` relative to fp32 (casts, scaling).
        context_mib, workspace_mib: memory of a process before and beside its tensors.
        sgd_copies, adam_copies: fp32 copies of the parameters: weights, gradients, optimizer state (momentum for SGD).
        fragmentation: allocated over used memory.
        sm_weight, bandwidth_weight: parts of a GPU's activity that make power.
        awake, power_curvature: see ``physics.saturating_power_w``; ``awake`` from 28 W without to 43 W with a CUDA
            context on a 250 W V100.
        time_slice, mps: what sharing costs, see ``physics.SharingCosts``.
        mps_share: share of sets that use MPS where the GPU can.
        set_sizes: probability of 2, 3 and 4 jobs.
        repeated_share, repeats: share of the sets that is measured more than once, and how often.
        solo_repeats: how often each job is measured alone.
        duration_s: length that a measurement is said to have.
    """

    launch_us: float = 10.0
    kernel_floor_us: float = 2.5
    overlap: float = 0.8
    traffic_per_activation: float = 4.0
    traffic_per_parameter: float = 8.0
    bandwidth_efficiency: float = 0.75
    half_traffic: float = 0.55
    half_compute_efficiency: float = 0.6
    half_launch: float = 1.25
    context_mib: float = CUDA_CONTEXT_MIB
    workspace_mib: float = 600.0
    sgd_copies: float = 3.0
    adam_copies: float = 4.0
    fragmentation: float = 1.08
    sm_weight: float = 0.7
    bandwidth_weight: float = 0.5
    awake: float = 15.0 / 222.0
    power_curvature: float = 1.2
    time_slice: SharingCosts = TIME_SLICE_COSTS
    mps: SharingCosts = MPS_COSTS
    mps_share: float = 0.3
    set_sizes: tuple[float, float, float] = (0.6, 0.25, 0.15)
    repeated_share: float = 0.12
    repeats: int = 3
    solo_repeats: int = 2
    duration_s: float = 60.0


DEFAULT_PARAMETERS = SimulationParameters()


@dataclass(frozen=True, slots=True)
class SimulatedJobs:
    """All job configs that one GPU type can be asked to run, as columns ``(n_configs,)``; ``loads`` likewise."""

    family: tuple[SimulatedFamily, ...]
    batch_size: IntArray
    precision: tuple[Precision, ...]
    loads: StepLoads
    step_s: FloatArray
    memory_mib: FloatArray

    def __len__(self) -> int:
        return len(self.family)


@dataclass(frozen=True, slots=True)
class SimulatedSets:
    """Co-located job sets on one GPU type: config index a place (-1 is no job), ``(n_sets, MAX_JOBS)``, and the
    sharing mode ``(n_sets,)``."""

    config: IntArray
    mps: BoolArray


@dataclass(frozen=True, slots=True)
class SimulatedTruth:
    """What happens to sets without measurement noise; ``relative_speed`` is ``(n_sets, MAX_JOBS)``, the rest
    ``(n_sets,)``. Utilisation, memory and power are the GPU's, all jobs together."""

    relative_speed: FloatArray
    gpu_util_pct: FloatArray
    mem_util_pct: FloatArray
    mem_mib: FloatArray
    gpu_power_w: FloatArray
    oom: BoolArray


@cache
def simulated_families() -> tuple[SimulatedFamily, ...]:
    """The simulated model families, in the order of their data file."""
    text = files("eaco_datasets").joinpath("data/simulated_families.json").read_text(encoding="utf-8")
    records = json.loads(text)["families"]
    return tuple(_family(record) for record in records)


def _family(record: dict[str, Any]) -> SimulatedFamily:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in record.items()
    }
    return SimulatedFamily(**values)


def simulated_jobs(spec: GpuSpec, parameters: SimulationParameters = DEFAULT_PARAMETERS) -> SimulatedJobs:
    """The cost of every simulated job config alone on one GPU type.

    Kernel time = compute (peak rate x efficiency x share of SMs filled) + memory traffic (bandwidth x efficiency) +
    a floor a kernel; the step overlaps it with host work in part, so a fast GPU is less utilised by a small job.
    """
    configs = [
        (family, batch_size, precision)
        for family in simulated_families()
        for batch_size in family.batch_sizes
        for precision in family.precisions
        if precision != "bf16" or spec.year >= BF16_SINCE_YEAR
    ]
    families = tuple(family for family, _, _ in configs)
    batch = np.array([batch_size for _, batch_size, _ in configs], dtype=np.int64)
    precision = tuple(precision for _, _, precision in configs)
    half = np.array([p != "fp32" for p in precision])
    loads = _loads(spec, parameters, families, batch.astype(float), half)
    return SimulatedJobs(
        family=families,
        batch_size=batch,
        precision=precision,
        loads=loads,
        step_s=overlapped_step_s(loads.host_s, loads.kernel_s, parameters.overlap),
        memory_mib=_memory_mib(parameters, families, batch.astype(float), half),
    )


def _loads(
    spec: GpuSpec,
    p: SimulationParameters,
    families: tuple[SimulatedFamily, ...],
    batch: FloatArray,
    half: BoolArray,
) -> StepLoads:
    kernels = _column(families, "kernels_per_step") * np.where(half, p.half_launch, 1.0)
    occupancy = -np.expm1(-batch * _column(families, "sms_per_sample") / spec.sms)
    half_tflops = max(spec.fp32_tflops, spec.amp_tflops * p.half_compute_efficiency)
    peak_gflops = 1e3 * np.where(half, half_tflops, spec.fp32_tflops)
    reached_gflops = peak_gflops * _column(families, "compute_efficiency") * occupancy
    compute_s = batch * _column(families, "gflop_per_sample") / reached_gflops
    activations_mib = batch * _column(families, "activations_mib_per_sample") * np.where(half, p.half_traffic, 1.0)
    traffic_mib = p.traffic_per_activation * activations_mib + p.traffic_per_parameter * _column(
        families, "parameters_mib"
    )
    traffic_gb = traffic_mib * BYTES_PER_MIB / 1e9
    memory_s = traffic_gb / (spec.bandwidth_gbs * p.bandwidth_efficiency)
    kernel_s = compute_s + memory_s + 1e-6 * p.kernel_floor_us * kernels
    host_s = (
        1e-6 * p.launch_us * kernels
        + 1e-3 * _column(families, "host_ms_per_step")
        + 1e-6 * batch * _column(families, "host_us_per_sample")
    )
    step_s = overlapped_step_s(host_s, kernel_s, p.overlap)
    return StepLoads(
        host_s=host_s,
        kernel_s=kernel_s,
        occupancy=occupancy,
        memory_bound=memory_s / kernel_s,
        bandwidth=traffic_gb / step_s / spec.bandwidth_gbs,
    )


def _memory_mib(
    p: SimulationParameters, families: tuple[SimulatedFamily, ...], batch: FloatArray, half: BoolArray
) -> FloatArray:
    """Peak memory of each job alone, its CUDA context in it; in whole MiB, as the driver reports it."""
    copies = np.array([p.adam_copies if f.optimizer == "adam" else p.sgd_copies for f in families])
    copies = copies + np.where(half, 0.5, 0.0)
    activations = batch * _column(families, "activations_mib_per_sample") * np.where(half, p.half_traffic, 1.0)
    tensors = copies * _column(families, "parameters_mib") + activations
    peak_mib: FloatArray = np.ceil(p.context_mib + p.workspace_mib + p.fragmentation * tensors)
    return peak_mib


def _column(families: tuple[SimulatedFamily, ...], name: str) -> FloatArray:
    return np.array([getattr(family, name) for family in families], dtype=float)


def simulate_sets(
    spec: GpuSpec, jobs: SimulatedJobs, sets: SimulatedSets, parameters: SimulationParameters = DEFAULT_PARAMETERS
) -> SimulatedTruth:
    """SIMULATED outcome of job sets on one GPU type, without noise; a set of one job is that job alone."""
    present = sets.config >= 0
    loads = _placed(jobs.loads, sets.config, present)
    shared = _contend_by_mode(loads, sets.mps, parameters)
    speed = np.where(present, shared.relative_speed, 0.0)
    memory_mib = set_memory_mib(jobs.memory_mib[sets.config], present)
    bandwidth = np.minimum((speed * loads.bandwidth).sum(axis=-1), 1.0)
    sms = (shared.busy * loads.occupancy).sum(axis=-1)
    activity = parameters.sm_weight * np.minimum(sms, 1.0) + parameters.bandwidth_weight * bandwidth
    return SimulatedTruth(
        relative_speed=shared.relative_speed,
        gpu_util_pct=100.0 * shared.gpu_busy,
        mem_util_pct=100.0 * bandwidth,
        mem_mib=memory_mib,
        gpu_power_w=saturating_power_w(
            spec.idle_w,
            spec.power_limit_w,
            activity,
            awake=parameters.awake,
            curvature=parameters.power_curvature,
        ),
        oom=out_of_memory(memory_mib, spec.memory_mib),
    )


def _contend_by_mode(loads: StepLoads, mps: BoolArray, parameters: SimulationParameters) -> Contention:
    sliced = contend(loads, parameters.time_slice, parameters.overlap)
    spatial = contend(loads, parameters.mps, parameters.overlap)
    by_job = mps[:, None]
    return Contention(
        relative_speed=np.where(by_job, spatial.relative_speed, sliced.relative_speed),
        busy=np.where(by_job, spatial.busy, sliced.busy),
        gpu_busy=np.where(mps, spatial.gpu_busy, sliced.gpu_busy),
    )


def _placed(loads: StepLoads, config: IntArray, present: BoolArray) -> StepLoads:
    """The loads of the configs in their places, 0 where there is no job."""
    placed = {f.name: np.where(present, getattr(loads, f.name)[config], 0.0) for f in fields(loads)}
    return StepLoads(**placed)
