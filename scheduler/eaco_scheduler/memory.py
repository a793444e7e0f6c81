"""Memory of jobs on single GPUs: peaks, what sharing leaves free, and how a model-parallel job is spread.

A data-parallel job needs its peak on each of its GPUs. Of a model-parallel one only the sum is known (paper, algorithm
2), so the split is an assumption: in proportion to what the others leave free. Where several model-parallel jobs
overlap, the one on fewer GPUs has less choice and is counted first.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from eaco_datasets.types import Job
from eaco_scheduler.cluster import ClusterState, gpu_spec
from eaco_scheduler.decision import JobRequest
from eaco_scheduler.settings import PlacementSettings

_FILL_STEPS = 10
_LEAST_MIB = 1.0
"""What a full GPU counts as having free when a model-parallel job is spread: it runs there, so it holds something."""


def usable_mib(gpu: str, settings: PlacementSettings) -> float:
    """Memory of one GPU of this type that sharing may use, under the headroom."""
    return gpu_spec(gpu).memory_mib * (1.0 - settings.mem_headroom_pct / 100.0)


def free_mib(gpu: str, jobs: Sequence[Job], settings: PlacementSettings) -> float | None:
    """What these jobs leave free of a GPU under the headroom (negative when they exceed it); ``None`` when unknown."""
    peaks = [job.solo.mem_mib for job in jobs]
    known = [peak for peak in peaks if peak is not None]
    return usable_mib(gpu, settings) - math.fsum(known) if len(known) == len(peaks) else None


def split_mib(total_mib: float, room_mib: Sequence[float]) -> list[float]:
    """A model-parallel job's memory on each of its GPUs, in proportion to the room there."""
    room = [max(value, _LEAST_MIB) for value in room_mib]
    whole = math.fsum(room)
    return [total_mib * value / whole for value in room]


def peak_alone_mib(request: JobRequest) -> float | None:
    """The job's peak on each of ``num_gpus`` empty GPUs; ``None`` when unknown."""
    peak = request.job.solo.mem_mib
    return peak if peak is None or request.parallelism == "data" else peak / request.num_gpus


def with_memory(job: Job, mem_mib: float | None) -> Job:
    """The job with this memory on one GPU."""
    return replace(job, solo=replace(job.solo, mem_mib=mem_mib))


def jobs_by_gpu(cluster: ClusterState, settings: PlacementSettings) -> dict[str, tuple[Job, ...]]:
    """By UUID, the jobs there in order of job id, each with the memory that it takes on that GPU."""
    held: dict[str, dict[str, Job]] = {}
    room: dict[str, float] = {}
    spread: dict[str, list[str]] = defaultdict(list)
    totals: dict[str, float] = {}
    for node in cluster.nodes:
        for gpu in node.gpus:
            held[gpu.uuid] = {resident.job_id: resident.job for resident in gpu.residents}
            peaks = [r.job.solo.mem_mib or 0.0 for r in gpu.residents if r.parallelism == "data"]
            room[gpu.uuid] = usable_mib(node.gpu, settings) - math.fsum(peaks)
            for resident in gpu.residents:
                if resident.parallelism == "model" and resident.job.solo.mem_mib is not None:
                    spread[resident.job_id].append(gpu.uuid)
                    totals[resident.job_id] = resident.job.solo.mem_mib
    for job_id in sorted(spread, key=lambda name: (len(spread[name]), name)):
        shares = split_mib(totals[job_id], [room[uuid] for uuid in spread[job_id]])
        for uuid, share in zip(spread[job_id], shares, strict=True):
            held[uuid][job_id] = with_memory(held[uuid][job_id], share)
            room[uuid] -= share
    return {uuid: tuple(jobs[job_id] for job_id in sorted(jobs)) for uuid, jobs in held.items()}


def fill(request: JobRequest, set_free_mib: float | None) -> float:
    """Share of each GPU's free memory that a model-parallel job takes of a set, rounded up to a tenth; else 1.

    Rounding keeps what has to be predicted few, and errs to the safe side.
    """
    peak = request.job.solo.mem_mib
    if request.parallelism == "data" or peak is None or not set_free_mib or set_free_mib < peak:
        return 1.0
    return max(1, math.ceil(_FILL_STEPS * peak / set_free_mib - 1e-9)) / _FILL_STEPS


def fills(request: JobRequest, most_free_mib: float | None) -> tuple[float, ...]:
    """Every value that ``fill`` can take over sets with at most this much free memory, lowest first."""
    lowest = round(fill(request, most_free_mib) * _FILL_STEPS)
    return tuple(step / _FILL_STEPS for step in range(lowest, _FILL_STEPS + 1))
