"""Which GPU sets a job could take: the paper's algorithm 2 without its subsets and without its hole.

GPUs of one node with the same residents and the same utilisation are one group; a set says how many GPUs it takes of
each group, and takes them in order of UUID. Over several groups of a node, sets are the windows of neighbours in order
of utilisation (highest first): a job runs at its slowest GPU, so equally loaded GPUs belong together. The number of
sets grows with the number of GPUs, never with the number of subsets.

Thresholds are compared with a GPU's utilisation *before* the job joins (paper, section 4: ``U_i < U_threshold``), on
each GPU by itself: the paper's listing lets a set through whose later GPU failed. An unknown utilisation is the sum of
the residents' solo utilisations (within 5 % of the measured one in all sets of the paper), else the GPU is refused.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from eaco_datasets.types import NodeSpec
from eaco_scheduler.cluster import ClusterState, Gpu, Node, Resident, gpu_spec
from eaco_scheduler.decision import CoLocationKey, JobRequest, Refusal
from eaco_scheduler.settings import PlacementSettings

_STATE_ORDER = {"active": 0, "idle": 1, "asleep": 2}


@dataclass(frozen=True, slots=True)
class Group:
    """Interchangeable GPUs: one node, the same residents (in order of job id), the same utilisation.

    ``free_mib`` is what one GPU has left under the memory headroom, ``None`` when a resident's peak is unknown.
    """

    node_id: str
    gpu: str
    server: NodeSpec | None
    uuids: tuple[str, ...]
    residents: tuple[Resident, ...]
    core_util_pct: float
    mem_util_pct: float
    capacity_mib: float
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
    def residents(self) -> tuple[Resident, ...]:
        """Every job on the set once, in order of job id."""
        found = {resident.job_id: resident for group, _ in self.parts for resident in group.residents}
        return tuple(found[job_id] for job_id in sorted(found))

    @property
    def tie_key(self) -> tuple[str, ...]:
        """Last resort of every ranking: the UUIDs in order, so that the order of the input never matters."""
        return tuple(sorted(self.gpus))


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a search found: groups that a job may join, the sets made of them, and what was refused and why."""

    groups: tuple[Group, ...]
    sets: tuple[Candidate, ...]
    refusals: tuple[Refusal, ...]


def find_candidates(
    request: JobRequest,
    cluster: ClusterState,
    settings: PlacementSettings,
    *,
    excluded: frozenset[CoLocationKey] = frozenset(),
    reserved: frozenset[str] = frozenset(),
) -> Candidates:
    """Sets of occupied (or partly occupied) GPUs that pass every rule that needs no prediction.

    ``excluded`` are co-locations that were undone; ``reserved`` are UUIDs held for other jobs. Asleep nodes are never
    among them. An unknown memory peak keeps the group: the predicted memory of the set then decides.
    """
    if request.job.exclusive:
        return Candidates((), (), (Refusal((), f"{request.title} is exclusive: it never shares"),))
    groups: list[Group] = []
    refusals: list[Refusal] = []
    for group in group_gpus(request, cluster, settings):
        reason = _refusal(group, request, settings, excluded, reserved)
        if reason is None:
            groups.append(group)
        else:
            refusals.append(Refusal(group.uuids, reason))
    sets = compose_sets(request, groups, cluster, settings)
    if groups and not sets:
        fitting = tuple(uuid for group in groups for uuid in group.uuids)
        refusals.append(Refusal(fitting, f"they pass alone but make no set of {request.num_gpus} GPUs that shares"))
    return Candidates(tuple(groups), sets, tuple(refusals))


def group_gpus(request: JobRequest, cluster: ClusterState, settings: PlacementSettings) -> list[Group]:
    """GPUs of the requested type on nodes that are awake, grouped; order depends on ids only."""
    spans = Counter(resident.job_id for _, _, resident in cluster.placed())
    found: list[Group] = []
    for node in usable_nodes(request, cluster):
        if node.state == "asleep":
            continue
        alike: dict[tuple[object, ...], list[Gpu]] = defaultdict(list)
        for gpu in sorted(node.gpus, key=lambda item: item.uuid):
            ids = tuple(sorted(resident.job_id for resident in gpu.residents))
            alike[(ids, gpu.core_util_pct, gpu.mem_util_pct)].append(gpu)
        found.extend(_group(node, gpus, spans, settings) for gpus in alike.values())
    return sorted(found, key=_busiest_first)


def _busiest_first(group: Group) -> tuple[str, float, tuple[str, ...], tuple[str, ...]]:
    """Order of a node's groups; those of unknown utilisation come last."""
    load_pct = -1.0 if math.isnan(group.core_util_pct) else group.core_util_pct
    return group.node_id, -load_pct, group.resident_ids, group.uuids


def usable_nodes(request: JobRequest, cluster: ClusterState) -> list[Node]:
    """Nodes of the requested GPU type (any, when none is asked for), in order of id."""
    wanted = gpu_spec(request.gpu).slug if request.gpu is not None else None
    nodes = [node for node in cluster.nodes if wanted is None or gpu_spec(node.gpu).slug == wanted]
    return sorted(nodes, key=lambda node: node.node_id)


def spans_nodes(request: JobRequest, nodes: Sequence[Node], settings: PlacementSettings) -> bool:
    """Whether the job is larger than the largest of these nodes and may then take GPUs of several."""
    largest = max((len(node.gpus) for node in nodes), default=0)
    return settings.span_nodes and request.num_gpus > largest


def compose_sets(
    request: JobRequest, groups: Iterable[Group], cluster: ClusterState, settings: PlacementSettings
) -> tuple[Candidate, ...]:
    """Sets of the requested size out of these groups; at least one GPU of each set holds a job.

    A job larger than a node gets one set a GPU type: whole nodes first, those with most fitting GPUs before others.
    """
    by_node: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        by_node[group.node_id].append(group)
    types: dict[str, list[Node]] = defaultdict(list)
    for node in usable_nodes(request, cluster):
        types[gpu_spec(node.gpu).slug].append(node)
    found: list[Candidate] = []
    for nodes in types.values():
        here = [by_node[node.node_id] for node in nodes if node.node_id in by_node]
        if spans_nodes(request, nodes, settings):
            here.sort(key=lambda gs: (-sum(len(g.uuids) for g in gs), -max(g.core_util_pct for g in gs), gs[0].node_id))
            joined = [group for node_groups in here for group in node_groups]
            if sum(len(group.uuids) for group in joined) >= request.num_gpus:
                found.append(_take(joined, request.num_gpus))
        else:
            for node_groups in here:
                found.extend(_windows(node_groups, request.num_gpus))
                if request.parallelism == "model":
                    found.extend(_roomiest(node_groups, request.num_gpus))
    distinct = {candidate.tie_key: candidate for candidate in found if candidate.residents}
    return tuple(candidate for candidate in distinct.values() if _model_memory_fits(candidate, request))


def find_exclusive(
    request: JobRequest,
    cluster: ClusterState,
    settings: PlacementSettings,
    *,
    reserved: frozenset[str] = frozenset(),
) -> Candidate | None:
    """Idle GPUs for the job alone, or ``None``.

    Awake nodes first (active, then idle): waking a node is the last resort. Among equals the node with the fewest idle
    GPUs that suffices, to keep large gaps for large jobs; then the order of ids. The headroom does not apply: a job
    alone may use the whole memory.
    """
    types: dict[str, list[Node]] = defaultdict(list)
    for node in usable_nodes(request, cluster):
        types[gpu_spec(node.gpu).slug].append(node)
    options: list[tuple[tuple[int, int, str], Candidate]] = []
    for slug, nodes in types.items():
        peak = peak_per_gpu_mib(request)
        if peak is not None and peak > gpu_spec(slug).memory_mib:
            continue
        idle = [(node, _idle_group(node, settings, reserved)) for node in nodes]
        free = [(node, group) for node, group in idle if group is not None]
        if spans_nodes(request, nodes, settings):
            free.sort(key=lambda item: (_STATE_ORDER[item[0].state], -len(item[1].uuids), item[0].node_id))
            if sum(len(group.uuids) for _, group in free) >= request.num_gpus:
                taken = _take([group for _, group in free], request.num_gpus)
                worst = max(_STATE_ORDER[node.state] for node, group in free[: len(taken.parts)])
                options.append(((worst, 0, slug), taken))
            continue
        for node, group in free:
            if len(group.uuids) >= request.num_gpus:
                key = (_STATE_ORDER[node.state], len(group.uuids), node.node_id)
                options.append((key, Candidate(((group, request.num_gpus),))))
    return min(options, key=lambda option: option[0])[1] if options else None


def peak_per_gpu_mib(request: JobRequest) -> float | None:
    """The job's peak memory on one GPU; a model-parallel job's sum is split evenly. ``None`` when unknown."""
    return _peak_mib(request.job.solo.mem_mib, request.parallelism, request.num_gpus)


def _peak_mib(mem_mib: float | None, parallelism: str, num_gpus: int) -> float | None:
    if mem_mib is None:
        return None
    return mem_mib / num_gpus if parallelism == "model" else mem_mib


def _group(node: Node, gpus: Sequence[Gpu], spans: Counter[str], settings: PlacementSettings) -> Group:
    """The group of these alike GPUs, with unknown utilisation filled from solo profiles (NaN if they lack it)."""
    first = gpus[0]
    residents = tuple(sorted(first.residents, key=lambda resident: resident.job_id))
    capacity_mib = gpu_spec(node.gpu).memory_mib
    peaks = [_peak_mib(r.job.solo.mem_mib, r.parallelism, spans[r.job_id]) for r in residents]
    known = [peak for peak in peaks if peak is not None]
    room_mib = capacity_mib * (1.0 - settings.mem_headroom_pct / 100.0)
    return Group(
        node_id=node.node_id,
        gpu=gpu_spec(node.gpu).slug,
        server=node.server,
        uuids=tuple(gpu.uuid for gpu in gpus),
        residents=residents,
        core_util_pct=_utilisation(first.core_util_pct, [r.job.solo.gpu_util_pct for r in residents]),
        mem_util_pct=_utilisation(first.mem_util_pct, [r.job.solo.mem_util_pct for r in residents]),
        capacity_mib=capacity_mib,
        free_mib=room_mib - sum(known) if len(known) == len(peaks) else None,
    )


def _utilisation(measured_pct: float | None, solo_pct: Sequence[float | None]) -> float:
    """Measured, else the sum of the solo ones, else NaN (not known); an empty GPU is at 0."""
    if measured_pct is not None:
        return measured_pct
    known = [value for value in solo_pct if value is not None]
    return min(100.0, sum(known)) if len(known) == len(solo_pct) else float("nan")


def _refusal(
    group: Group,
    request: JobRequest,
    settings: PlacementSettings,
    excluded: frozenset[CoLocationKey],
    reserved: frozenset[str],
) -> str | None:
    """Why the job may not join this group; ``None`` when no rule speaks against it."""
    if reserved & set(group.uuids):
        return "reserved for a job that has waited too long"
    if (request.job_id, frozenset(group.resident_ids)) in excluded:
        return f"undone before: {request.title} with {', '.join(group.resident_ids)}"
    return _company_refusal(group, settings) or _threshold_refusal(group, settings) or _memory_refusal(group, request)


def _company_refusal(group: Group, settings: PlacementSettings) -> str | None:
    """Residents that take nobody in: exclusive ones, ones still on trial, too many."""
    for resident in group.residents:
        if resident.job.exclusive:
            return f"job {resident.job_id} is exclusive: it never shares"
        if resident.phase == "provisional":
            return f"job {resident.job_id} is provisional there: its first epoch is not over"
    if len(group.residents) >= settings.max_jobs_per_gpu:
        return f"{len(group.residents)} jobs already, at most {settings.max_jobs_per_gpu} a GPU"
    return None


def _threshold_refusal(group: Group, settings: PlacementSettings) -> str | None:
    """Both utilisations must be known and under their thresholds."""
    for what, value_pct, limit_pct in (
        ("core", group.core_util_pct, settings.core_threshold_pct),
        ("memory", group.mem_util_pct, settings.mem_threshold_pct),
    ):
        if math.isnan(value_pct):
            return f"{what} utilisation unknown: neither measured nor in every resident's solo profile"
        if not value_pct < limit_pct:
            return f"{what} utilisation {value_pct:.1f} % is not under {limit_pct:g} %"
    return None


def _memory_refusal(group: Group, request: JobRequest) -> str | None:
    """Memory of one GPU for a data-parallel job; a model-parallel job needs known numbers, summed over its set."""
    peak_mib = request.job.solo.mem_mib
    if request.parallelism == "model":
        if peak_mib is None or group.free_mib is None:
            return "memory peak unknown: a model-parallel job is placed by known peaks only"
        return None
    if peak_mib is not None and group.free_mib is not None and peak_mib > group.free_mib:
        return f"memory: {peak_mib:.0f} MiB asked, {max(group.free_mib, 0.0):.0f} MiB free under the headroom"
    return None


def _model_memory_fits(candidate: Candidate, request: JobRequest) -> bool:
    """Whether the free memory of the set, summed, holds a model-parallel job (paper, algorithm 2)."""
    if request.parallelism != "model":
        return True
    free = sum((group.free_mib or 0.0) * count for group, count in candidate.parts)
    return free >= (request.job.solo.mem_mib or 0.0)


def _windows(groups: Sequence[Group], size: int) -> Iterator[Candidate]:
    """Distinct windows of ``size`` neighbours over the GPUs of these groups in their order."""
    places = [index for index, group in enumerate(groups) for _ in group.uuids]
    seen: set[tuple[tuple[int, int], ...]] = set()
    for start in range(len(places) - size + 1):
        counts = tuple(Counter(places[start : start + size]).items())
        if counts not in seen:
            seen.add(counts)
            yield Candidate(tuple((groups[index], count) for index, count in counts))


def _roomiest(groups: Sequence[Group], size: int) -> Iterator[Candidate]:
    """The set with most free memory: when no other holds a model-parallel job, this one might."""
    if sum(len(group.uuids) for group in groups) >= size:
        yield _take(sorted(groups, key=lambda g: (-(g.free_mib or 0.0), g.uuids)), size)


def _take(groups: Sequence[Group], size: int) -> Candidate:
    """The first ``size`` GPUs of these groups (there are enough)."""
    parts: list[tuple[Group, int]] = []
    left = size
    for group in groups:
        count = min(left, len(group.uuids))
        if count:
            parts.append((group, count))
        left -= count
    return Candidate(tuple(parts))


def _idle_group(node: Node, settings: PlacementSettings, reserved: frozenset[str]) -> Group | None:
    """The node's GPUs without a job, under both thresholds (else something unknown is running there)."""
    idle = [
        gpu
        for gpu in sorted(node.gpus, key=lambda item: item.uuid)
        if not gpu.residents
        and gpu.uuid not in reserved
        and (gpu.core_util_pct or 0.0) < settings.core_threshold_pct
        and (gpu.mem_util_pct or 0.0) < settings.mem_threshold_pct
    ]
    return _group(node, idle, Counter(), settings) if idle else None
