"""Idle GPUs for a job alone: the best set of each GPU type."""

from __future__ import annotations

from eaco_scheduler.cluster import ClusterState, gpu_spec
from eaco_scheduler.decision import JobRequest
from eaco_scheduler.groups import Candidate, idle_group, nodes_by_type, spans_nodes, take
from eaco_scheduler.memory import peak_alone_mib
from eaco_scheduler.settings import PlacementSettings

_STATE_ORDER = {"active": 0, "idle": 1, "asleep": 2}

_Option = tuple[tuple[int, int, str], Candidate]


def find_exclusive(
    request: JobRequest,
    cluster: ClusterState,
    settings: PlacementSettings,
    *,
    reserved: frozenset[str] = frozenset(),
) -> tuple[Candidate, ...]:
    """Idle GPUs for the job alone, the best set of each GPU type, the best of all first.

    Awake nodes first (active, then idle): waking a node is the last resort. Among equals the node with the fewest idle
    GPUs that suffices, to keep large gaps for large jobs; then the order of ids. The headroom does not apply: a job
    alone may use the whole memory.
    """
    peak_mib = peak_alone_mib(request)
    best: list[_Option] = []
    for slug, nodes in nodes_by_type(request, cluster).items():
        if peak_mib is not None and peak_mib > gpu_spec(slug).memory_mib:
            continue
        idle = [(node, idle_group(node, settings, reserved)) for node in nodes]
        free = [(node, group) for node, group in idle if group is not None]
        options: list[_Option] = []
        if spans_nodes(request, nodes, settings):
            free.sort(key=lambda item: (_STATE_ORDER[item[0].state], -len(item[1].uuids), item[0].node_id))
            if sum(len(group.uuids) for _, group in free) >= request.num_gpus:
                taken = take([group for _, group in free], request.num_gpus)
                worst = max(_STATE_ORDER[node.state] for node, _ in free[: len(taken.parts)])
                options.append(((worst, 0, slug), taken))
        else:
            for node, group in free:
                if len(group.uuids) >= request.num_gpus:
                    key = (_STATE_ORDER[node.state], len(group.uuids), node.node_id)
                    options.append((key, take([group], request.num_gpus)))
        if options:
            best.append(min(options, key=lambda option: option[0]))
    return tuple(candidate for _, candidate in sorted(best, key=lambda option: option[0]))
