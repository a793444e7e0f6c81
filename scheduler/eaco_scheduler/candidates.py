"""Which GPU sets a job could share: the paper's algorithm 2 without its subsets and without its hole.

Over several groups of a node, sets are the windows of neighbours in order of utilisation (highest first), over all of
them and over those with the same residents: a job runs at its slowest GPU, so GPUs that are alike belong together. The
number of sets grows with the number of GPUs, never with the number of subsets.

Thresholds are compared with a GPU's utilisation *before* the job joins (paper, section 4: ``U_i < U_threshold``), on
each GPU by itself: the paper's listing lets a set through whose later GPU failed. An unknown utilisation is the sum of
the residents' solo utilisations (within 5 % of the measured one in all sets of the paper), else the GPU is refused.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from eaco_scheduler.cluster import ClusterState
from eaco_scheduler.decision import CoLocationKey, JobRequest, Refusal
from eaco_scheduler.groups import Candidate, Group, group_gpus, nodes_by_type, spans_nodes, take
from eaco_scheduler.settings import PlacementSettings


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
    among them. An unknown memory peak keeps the group: the predicted memory of the set then decides. Empty GPUs are
    refused only for what closes them to the job alone as well.
    """
    if request.job.exclusive:
        return Candidates((), (), (Refusal((), f"{request.title} is exclusive: it never shares"),))
    on_trial = _jobs_on_trial(cluster)
    groups: list[Group] = []
    refusals: list[Refusal] = []
    for group in group_gpus(request, cluster, settings, reserved):
        closed = _closed(group, request, settings, excluded=excluded, reserved=reserved, on_trial=on_trial)
        full = _memory_refusal(group, request)
        if closed is None and full is None:
            groups.append(group)
        elif closed is not None:
            refusals.append(Refusal(group.uuids, closed))
        elif full is not None and group.residents:
            refusals.append(Refusal(group.uuids, full))
    sets = compose_sets(request, groups, cluster, settings)
    if not sets and any(group.residents for group in groups):
        refusals.append(_no_set(request, groups, cluster, settings))
    return Candidates(tuple(groups), sets, tuple(refusals))


def compose_sets(
    request: JobRequest, groups: Iterable[Group], cluster: ClusterState, settings: PlacementSettings
) -> tuple[Candidate, ...]:
    """Sets of the requested size out of these groups; at least one GPU of each set holds a job.

    The free memory of a model-parallel job's set, summed, holds the job (paper, algorithm 2).
    """
    found = _sets(request, groups, cluster, settings)
    if request.parallelism == "data":
        return found
    needed_mib = request.job.solo.mem_mib or 0.0
    return tuple(candidate for candidate in found if (candidate.free_mib or 0.0) >= needed_mib)


def _sets(
    request: JobRequest, groups: Iterable[Group], cluster: ClusterState, settings: PlacementSettings
) -> tuple[Candidate, ...]:
    """The distinct sets; a job larger than a node gets one a GPU type: whole nodes, those with most GPUs, first."""
    by_node: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        by_node[group.node_id].append(group)
    found: list[Candidate] = []
    for nodes in nodes_by_type(request, cluster).values():
        here = [by_node[node.node_id] for node in nodes if node.node_id in by_node]
        if spans_nodes(request, nodes, settings):
            here.sort(key=lambda gs: (-_size(gs), -max(g.core_util_pct for g in gs), gs[0].node_id))
            joined = [group for node_groups in here for group in node_groups]
            if _size(joined) >= request.num_gpus:
                found.append(take(joined, request.num_gpus))
        else:
            for node_groups in here:
                found.extend(_within_node(node_groups, request))
    distinct = {candidate.tie_key: candidate for candidate in found if candidate.residents}
    return tuple(distinct.values())


def _within_node(groups: Sequence[Group], request: JobRequest) -> Iterator[Candidate]:
    """Windows over all groups and over those of the same residents; the roomiest set for a model-parallel job."""
    yield from _windows(groups, request.num_gpus)
    alike: dict[tuple[str, ...], list[Group]] = defaultdict(list)
    for group in groups:
        alike[group.resident_ids].append(group)
    for of_residents in alike.values():
        if len(of_residents) > 1:
            yield from _windows(of_residents, request.num_gpus)
    if request.parallelism == "model" and _size(groups) >= request.num_gpus:
        yield take(sorted(groups, key=lambda g: (-(g.free_mib or 0.0), g.uuids)), request.num_gpus)


def _windows(groups: Sequence[Group], size: int) -> Iterator[Candidate]:
    """Distinct windows of ``size`` neighbours over the GPUs of these groups in their order."""
    places = [index for index, group in enumerate(groups) for _ in group.uuids]
    seen: set[tuple[tuple[int, int], ...]] = set()
    for start in range(len(places) - size + 1):
        counts = tuple(Counter(places[start : start + size]).items())
        if counts not in seen:
            seen.add(counts)
            yield Candidate(tuple((groups[index], count) for index, count in counts))


def _size(groups: Iterable[Group]) -> int:
    return sum(len(group.uuids) for group in groups)


def _no_set(
    request: JobRequest, groups: Sequence[Group], cluster: ClusterState, settings: PlacementSettings
) -> Refusal:
    """Why occupied GPUs that pass by themselves are in no set: too few of them together, or too little memory."""
    occupied = [group for group in groups if group.residents]
    uuids = tuple(uuid for group in occupied for uuid in group.uuids)
    short = _sets(request, groups, cluster, settings)
    if short:
        most_mib = max(candidate.free_mib or 0.0 for candidate in short)
        why = f"{request.job.solo.mem_mib or 0.0:.0f} MiB asked in all, {most_mib:.0f} MiB free"
    else:
        homes = {group.node_id for group in occupied}
        sizes = [_size(g for g in groups if g.node_id == home) for home in sorted(homes)]
        spread = any(spans_nodes(request, nodes, settings) for nodes in nodes_by_type(request, cluster).values())
        why = f"{_size(groups)} GPU(s) pass in all" if spread else f"at most {max(sizes)} GPU(s) pass on one node"
    return Refusal(uuids, f"they pass alone but make no set of {request.num_gpus} GPUs: {why}")


def _jobs_on_trial(cluster: ClusterState) -> frozenset[str]:
    """Every job that shares any of its GPUs with a provisional one: a second trial would blur the first."""
    return frozenset(
        member.job_id
        for _, gpu, resident in cluster.placed()
        if resident.phase == "provisional"
        for member in gpu.residents
    )


def _closed(
    group: Group,
    request: JobRequest,
    settings: PlacementSettings,
    *,
    excluded: frozenset[CoLocationKey],
    reserved: frozenset[str],
    on_trial: frozenset[str],
) -> str | None:
    """Why the job may not join this group, memory aside; ``None`` when no rule speaks against it."""
    if reserved & set(group.uuids):
        return "reserved for a job that has waited too long"
    if (request.job_id, frozenset(group.resident_ids)) in excluded:
        return f"undone before: {request.title} with {', '.join(group.resident_ids)}"
    if not group.residents:
        return _foreign_load(group, settings)
    return _company_refusal(group, settings, on_trial) or _threshold_refusal(group, settings)


def _foreign_load(group: Group, settings: PlacementSettings) -> str | None:
    """An empty GPU is measured as busy: something unknown is running there."""
    load_pct, limit_pct = max(group.core_util_pct, group.mem_util_pct), settings.idle_threshold_pct
    if load_pct < limit_pct:
        return None
    return f"no known job, yet {load_pct:.1f} % utilisation, which is not under {limit_pct:g} %: not idle"


def _company_refusal(group: Group, settings: PlacementSettings, on_trial: frozenset[str]) -> str | None:
    """Residents that take nobody in: exclusive ones, ones on trial here or on another of their GPUs, too many."""
    for resident in group.residents:
        if resident.job.exclusive:
            return f"job {resident.job_id} is exclusive: it never shares"
    for resident in group.residents:
        if resident.phase == "provisional":
            return f"job {resident.job_id} is provisional there: its first epoch is not over"
    for resident in group.residents:
        if resident.job_id in on_trial:
            return f"job {resident.job_id} is beside a provisional job on another of its GPUs"
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
    """Memory of one GPU for a data-parallel job; a model-parallel job needs known numbers and some room on each."""
    peak_mib, free_mib = request.job.solo.mem_mib, group.free_mib
    if request.parallelism == "model":
        if peak_mib is None or free_mib is None:
            return "memory peak unknown: a model-parallel job is placed by known peaks only"
        return None if free_mib > 0.0 else "memory: nothing free under the headroom"
    if peak_mib is not None and free_mib is not None and peak_mib > free_mib:
        return f"memory: {peak_mib:.0f} MiB asked, {max(free_mib, 0.0):.0f} MiB free under the headroom"
    return None
