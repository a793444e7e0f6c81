"""Bounded waiting: which GPUs to hold for a job that has waited longer than ``max_wait_s``.

A reservation closes a concrete set of GPUs to every other job, shared or exclusive. Nobody enters it any more and
every resident ends, so the set empties and the holder starts on it (or earlier elsewhere). The set is the one that is
expected to be empty first; it is kept once made, else it could move away from its holder for ever. The one exception
is a GPU on which something that is no known job runs: nobody knows that it ends, so it is never reserved, and a
reservation that meets one is made anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from eaco_scheduler.cluster import ClusterState, Gpu, gpu_spec
from eaco_scheduler.decision import JobRequest, Reservation
from eaco_scheduler.groups import has_foreign_load, nodes_by_type, spans_nodes
from eaco_scheduler.memory import peak_alone_mib
from eaco_scheduler.settings import PlacementSettings

_Slot = tuple[float, str]
"""Expected seconds until a GPU is empty (infinite when unknown) and its UUID."""


def held_for_others(reservations: Iterable[Reservation], job_id: str) -> frozenset[str]:
    """UUIDs that are closed to this job."""
    return frozenset(uuid for held in reservations if held.job_id != job_id for uuid in held.gpus)


def reserve(
    request: JobRequest,
    cluster: ClusterState,
    settings: PlacementSettings,
    reservations: Iterable[Reservation] = (),
    *,
    now_s: float = 0.0,
) -> Reservation | None:
    """The job's reservation, or ``None``: not overdue, or no set of its size that empties and is not held already."""
    if request.waited_s <= settings.max_wait_s:
        return None
    known = list(reservations)
    foreign = frozenset(gpu.uuid for node in cluster.nodes for gpu in node.gpus if has_foreign_load(gpu, settings))
    for held in known:
        if held.job_id == request.job_id and not foreign & set(held.gpus):
            return held
    closed = held_for_others(known, request.job_id) | foreign
    options = [slots for slots in _options(request, cluster, settings, closed) if len(slots) == request.num_gpus]
    if not options:
        return None
    best = min(options, key=_expected_empty)
    return Reservation(request.job_id, tuple(sorted(uuid for _, uuid in best)), now_s)


def could_ever_fit(request: JobRequest, cluster: ClusterState, settings: PlacementSettings) -> bool:
    """Whether the cluster, were it empty, could hold the job alone."""
    return any(len(slots) == request.num_gpus for slots in _options(request, cluster, settings, frozenset()))


def _options(
    request: JobRequest, cluster: ClusterState, settings: PlacementSettings, closed: frozenset[str]
) -> list[list[_Slot]]:
    """Per node (or per type, for a job larger than a node) the GPUs that are expected to be empty first."""
    peak_mib = peak_alone_mib(request)
    found: list[list[_Slot]] = []
    for slug, nodes in nodes_by_type(request, cluster).items():
        if peak_mib is not None and peak_mib > gpu_spec(slug).memory_mib:
            continue
        slots = [sorted((_empty_in_s(g), g.uuid) for g in node.gpus if g.uuid not in closed) for node in nodes]
        if spans_nodes(request, nodes, settings):
            slots = [sorted(slot for of_node in slots for slot in of_node)]
        found.extend(of_node[: request.num_gpus] for of_node in slots)
    return found


def _empty_in_s(gpu: Gpu) -> float:
    """Lower bound of the time until a GPU is empty: its residents' remaining epochs at their solo epoch time."""
    left_s = 0.0
    for resident in gpu.residents:
        epochs, epoch_s = resident.job.remaining_epochs, resident.job.solo.epoch_s
        left_s = max(left_s, math.inf if epochs is None or epoch_s is None else epochs * epoch_s)
    return left_s


def _expected_empty(slots: list[_Slot]) -> tuple[int, float, int, list[str]]:
    unknown = sum(1 for left_s, _ in slots if math.isinf(left_s))
    latest_s = max((left_s for left_s, _ in slots if not math.isinf(left_s)), default=0.0)
    return unknown, latest_s, sum(1 for left_s, _ in slots if left_s > 0.0), sorted(uuid for _, uuid in slots)
