"""GPUs that are alike, sets made of them, and when a GPU without a job is idle.

GPUs of one node with the same residents and the same utilisation are one group; a set says how many GPUs it takes of
each group, and takes them in order of UUID.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eaco_datasets.types import Job, NodeSpec
from eaco_scheduler.cluster import ClusterState, Gpu, Node, Resident, gpu_spec
from eaco_scheduler.decision import JobRequest
from eaco_scheduler.memory import free_mib, jobs_by_gpu
from eaco_scheduler.settings import PlacementSettings


@dataclass(frozen=True, slots=True)
class Group:
    """Interchangeable GPUs: one node, the same residents (in order of job id), the same utilisation.

    ``jobs`` are the residents' jobs with their memory on one of these GPUs. ``free_mib`` is what one GPU has left
    under the memory headroom, ``None`` when a resident's peak is unknown.
    """

    node_id: str
    gpu: str
    server: NodeSpec | None
    uuids: tuple[str, ...]
    residents: tuple[Resident, ...]
    jobs: tuple[Job, ...]
    core_util_pct: float
    mem_util_pct: float
    free_mib: float | None

    @property
    def resident_ids(self) -> tuple[str, ...]:
        """Job ids on each of these GPUs, in order."""
        return tuple(resident.job_id for resident in self.residents)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A GPU set: how many GPUs of which groups."""

    parts: tuple[tuple[Group, int], ...]

    @property
    def gpus(self) -> tuple[str, ...]:
        """UUIDs, the first of each group."""
        return tuple(uuid for group, count in self.parts for uuid in group.uuids[:count])

    @property
    def core_util_pct(self) -> float:
        """Mean core utilisation of the set before the job joins."""
        total = sum(group.core_util_pct * count for group, count in self.parts)
        return total / sum(count for _, count in self.parts)

    @property
    def free_mib(self) -> float | None:
        """Free memory of the set under the headroom, summed; ``None`` when a part's is unknown."""
        known = [group.free_mib * count for group, count in self.parts if group.free_mib is not None]
        return math.fsum(known) if len(known) == len(self.parts) else None

    @property
    def node_ids(self) -> frozenset[str]:
        """The nodes that it lies on."""
        return frozenset(group.node_id for group, _ in self.parts)

    @property
    def residents(self) -> tuple[Resident, ...]:
        """Every job on the set once, in order of job id."""
        found = {resident.job_id: resident for group, _ in self.parts for resident in group.residents}
        return tuple(found[job_id] for job_id in sorted(found))

    @property
    def tie_key(self) -> tuple[str, ...]:
        """Last resort of every ranking: the UUIDs in order, so that the order of the input never matters."""
        return tuple(sorted(self.gpus))


def take(groups: Sequence[Group], size: int) -> Candidate:
    """The first ``size`` GPUs of these groups (there are enough)."""
    parts: list[tuple[Group, int]] = []
    left = size
    for group in groups:
        count = min(left, len(group.uuids))
        if count:
            parts.append((group, count))
        left -= count
    return Candidate(tuple(parts))


def group_gpus(
    request: JobRequest, cluster: ClusterState, settings: PlacementSettings, reserved: frozenset[str] = frozenset()
) -> list[Group]:
    """GPUs of the requested type on nodes that are awake, grouped, reserved ones apart; order depends on ids only."""
    jobs = jobs_by_gpu(cluster, settings)
    found: list[Group] = []
    for node in usable_nodes(request, cluster):
        if node.state == "asleep":
            continue
        alike: dict[tuple[object, ...], list[Gpu]] = defaultdict(list)
        for gpu in sorted(node.gpus, key=lambda item: item.uuid):
            ids = tuple(sorted(resident.job_id for resident in gpu.residents))
            alike[(ids, gpu.core_util_pct, gpu.mem_util_pct, gpu.uuid in reserved)].append(gpu)
        found.extend(_group(node, gpus, jobs, settings) for gpus in alike.values())
    return sorted(found, key=_busiest_first)


def idle_group(node: Node, settings: PlacementSettings, reserved: frozenset[str] = frozenset()) -> Group | None:
    """The node's idle GPUs that are not reserved, whatever their small loads."""
    idle = [
        gpu
        for gpu in sorted(node.gpus, key=lambda item: item.uuid)
        if not gpu.residents and gpu.uuid not in reserved and not has_foreign_load(gpu, settings)
    ]
    return _group(node, idle, {}, settings) if idle else None


def has_foreign_load(gpu: Gpu, settings: PlacementSettings) -> bool:
    """Whether something that is no known job keeps an empty GPU from being idle; unmeasured counts as no load."""
    loads = (gpu.core_util_pct or 0.0, gpu.mem_util_pct or 0.0)
    return not gpu.residents and max(loads) >= settings.idle_threshold_pct


def nodes_by_type(request: JobRequest, cluster: ClusterState) -> dict[str, list[Node]]:
    """Usable nodes by GPU type."""
    types: dict[str, list[Node]] = defaultdict(list)
    for node in usable_nodes(request, cluster):
        types[gpu_spec(node.gpu).slug].append(node)
    return types


def usable_nodes(request: JobRequest, cluster: ClusterState) -> list[Node]:
    """Nodes of the requested GPU type (any, when none is asked for), in order of id."""
    wanted = gpu_spec(request.gpu).slug if request.gpu is not None else None
    nodes = [node for node in cluster.nodes if wanted is None or gpu_spec(node.gpu).slug == wanted]
    return sorted(nodes, key=lambda node: node.node_id)


def spans_nodes(request: JobRequest, nodes: Sequence[Node], settings: PlacementSettings) -> bool:
    """Whether the job is larger than the largest of these nodes and may then take GPUs of several."""
    largest = max((len(node.gpus) for node in nodes), default=0)
    return settings.span_nodes and request.num_gpus > largest


def _busiest_first(group: Group) -> tuple[str, float, tuple[str, ...], tuple[str, ...]]:
    """Order of a node's groups; those of unknown utilisation come last."""
    load_pct = -1.0 if math.isnan(group.core_util_pct) else group.core_util_pct
    return group.node_id, -load_pct, group.resident_ids, group.uuids


def _group(node: Node, gpus: Sequence[Gpu], jobs: Mapping[str, tuple[Job, ...]], settings: PlacementSettings) -> Group:
    """The group of these alike GPUs, with unknown utilisation filled from solo profiles (NaN if they lack it)."""
    first = gpus[0]
    residents = tuple(sorted(first.residents, key=lambda resident: resident.job_id))
    slug, held = gpu_spec(node.gpu).slug, jobs.get(first.uuid, ())
    return Group(
        node_id=node.node_id,
        gpu=slug,
        server=node.server,
        uuids=tuple(gpu.uuid for gpu in gpus),
        residents=residents,
        jobs=held,
        core_util_pct=_utilisation(first.core_util_pct, [job.solo.gpu_util_pct for job in held]),
        mem_util_pct=_utilisation(first.mem_util_pct, [job.solo.mem_util_pct for job in held]),
        free_mib=free_mib(slug, held, settings),
    )


def _utilisation(measured_pct: float | None, solo_pct: Sequence[float | None]) -> float:
    """Measured, else the sum of the solo ones, else NaN (not known); an empty GPU is at 0."""
    if measured_pct is not None:
        return measured_pct
    known = [value for value in solo_pct if value is not None]
    return min(100.0, sum(known)) if len(known) == len(solo_pct) else float("nan")
