"""The EaCO decision: find candidates, predict once, admit the first that holds, else idle GPUs, else wait.

Differences from the paper's algorithm 1, each a gap of it: every candidate is tried once and the list ends (no loop
without an exit); idle GPUs and waiting are the branches after it; deadlines hold with a probability, not by a point;
the objective can rank; a job that waited too long gets a reservation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from eaco_datasets.errors import InputError
from eaco_datasets.types import SoloProfile
from eaco_predictor.prediction import PredictsSets, SetPrediction
from eaco_scheduler.candidates import Candidates, compose_sets, find_candidates
from eaco_scheduler.cluster import ClusterState, gpu_spec
from eaco_scheduler.decision import Alternative, CoLocationKey, Decision, JobRequest, Reservation
from eaco_scheduler.exclusive import find_exclusive
from eaco_scheduler.explain import explain
from eaco_scheduler.forecast import Forecast, forecast
from eaco_scheduler.groups import Candidate, usable_nodes
from eaco_scheduler.judge import deadline_refusal, refusal_of
from eaco_scheduler.objective import objective
from eaco_scheduler.reservation import could_ever_fit, held_for_others, reserve
from eaco_scheduler.settings import PlacementSettings


def decide(
    request: JobRequest,
    cluster: ClusterState,
    predictor: PredictsSets,
    settings: PlacementSettings | None = None,
    *,
    now_s: float = 0.0,
    excluded: frozenset[CoLocationKey] = frozenset(),
    reservations: Iterable[Reservation] = (),
) -> Decision:
    """Where the job goes. Asks the predictor at most once, in one batch.

    Args:
        request: the job; ``waited_s`` above ``max_wait_s`` brings a reservation when the answer is ``wait``.
        cluster: the state to decide on; the answer names its version.
        predictor: answers co-locations.
        settings: defaults to the policy ``eaco-safe``.
        now_s: stamped on the decision and on a new reservation; deadlines count from now already.
        excluded: co-locations of this job that were undone.
        reservations: GPUs held for jobs; those of other jobs are closed to this one.

    Raises:
        InputError: the job is already in the cluster, or its solo profile fits no single GPU type.
    """
    settings = settings or PlacementSettings()
    held = tuple(reservations)
    _check_request(request, cluster)
    closed = held_for_others(held, request.job_id)
    search = find_candidates(request, cluster, settings, excluded=excluded, reserved=closed)
    idle = find_exclusive(request, cluster, settings, reserved=closed)
    told = forecast(request, cluster, search.groups, alone=idle, predictor=predictor, settings=settings)
    alternatives, notes = _rank(search, cluster, told)
    admitted = next((item for item in alternatives if item.refused is None), None)
    draft = Decision(
        decision="wait",
        phase=None,
        gpus=(),
        prediction=None,
        alternatives=alternatives,
        explanation="",
        settings=settings.as_dict(),
        job_id=request.job_id,
        refusals=search.refusals,
        cluster_version=cluster.version,
        decided_at_s=now_s,
    )
    if admitted is not None:
        draft = _share(draft, admitted)
    elif idle:
        draft, more = _exclusive(draft, idle, cluster, told)
        notes += more
    else:
        kept = reserve(request, cluster, settings, held, now_s=now_s)
        draft = replace(draft, reservation=kept)
        if not could_ever_fit(request, cluster, settings):
            notes += (_never_fits(request, cluster),)
    return replace(draft, explanation=explain(request, draft, notes))


def _check_request(request: JobRequest, cluster: ClusterState) -> None:
    """The job is new to the cluster, and its solo profile belongs to one GPU type."""
    if request.job_id and cluster.gpus_of(request.job_id):
        raise InputError(
            f"job {request.job_id!r} is already in the cluster", where="/job/job_id", expected="a job not placed yet"
        )
    types = {gpu_spec(node.gpu).slug for node in usable_nodes(request, cluster)}
    if len(types) > 1 and request.job.solo != SoloProfile():
        raise InputError(
            "a solo profile without its GPU type",
            where="/job/gpu",
            expected="one of " + ", ".join(sorted(types)),
        )


def _rank(search: Candidates, cluster: ClusterState, told: Forecast) -> tuple[tuple[Alternative, ...], tuple[str, ...]]:
    """Every set judged and in order, best first, and what the reader should know of the order.

    Sets of groups that hold are added to those of the search: a set refused for one GPU must not hide one without it.
    Ties: fewer co-residents first, then UUIDs in order.
    """
    reasons = {
        (group.uuids, share): refusal_of(group, told.at(share)) for group in search.groups for share in told.fills
    }
    sound = [group for group in search.groups if reasons[group.uuids, told.fills[0]] is None]
    more = compose_sets(told.request, sound, cluster, told.settings)
    sets = list({candidate.tie_key: candidate for candidate in (*search.sets, *more)}.values())
    refused = [_first_reason(candidate, reasons, told) for candidate in sets]
    scores, notes = _scores(sets, refused, told)
    by_cost = told.settings.rank == "objective" and not notes

    def key(index: int) -> tuple[float, float, int, tuple[str, ...]]:
        candidate, score = sets[index], scores[index]
        cost = 0.0 if not by_cost else math.inf if score is None else score
        return cost, -candidate.core_util_pct, len(candidate.residents), candidate.tie_key

    order = sorted(range(len(sets)), key=key)
    ranked = tuple(
        Alternative(
            gpus=sets[index].gpus,
            rank=rank,
            score=scores[index],
            prediction=told.of_set(sets[index]),
            refused=refused[index],
            co_residents=tuple(resident.job_id for resident in sets[index].residents),
        )
        for rank, index in enumerate(order, start=1)
    )
    return ranked, notes


def _first_reason(
    candidate: Candidate, reasons: Mapping[tuple[tuple[str, ...], float], str | None], told: Forecast
) -> str | None:
    share = told.on(candidate).fill
    found = (reasons[group.uuids, share] for group, _ in candidate.parts)
    return next((reason for reason in found if reason is not None), None)


def _scores(
    sets: Sequence[Candidate], refused: Sequence[str | None], told: Forecast
) -> tuple[list[float | None], tuple[str, ...]]:
    """What sets are ranked by. When an admitted one has no objective, all are ranked by utilisation, and it is said."""
    loads: list[float | None] = [candidate.core_util_pct for candidate in sets]
    if told.settings.rank != "objective":
        return loads, ()
    costs = [objective(candidate, told.on(candidate)) for candidate in sets]
    unknown = sum(1 for cost, reason in zip(costs, refused, strict=True) if cost is None and reason is None)
    if not unknown:
        return costs, ()
    note = (
        f"The objective of {unknown} admissible set(s) is unknown (power or an epoch time is not predicted): "
        "all sets are ranked by highest utilisation instead."
    )
    return loads, (note,)


def _share(draft: Decision, chosen: Alternative) -> Decision:
    return replace(
        draft,
        decision="share",
        phase="provisional",
        gpus=chosen.gpus,
        prediction=chosen.prediction,
        co_residents=chosen.co_residents,
    )


def _exclusive(
    draft: Decision, idle: Sequence[Candidate], cluster: ClusterState, told: Forecast
) -> tuple[Decision, tuple[str, ...]]:
    """The first idle set on which nothing speaks against the job alone, else the first of all, and what to know of it.

    To know: a node is woken, sets before it were passed over, or what does not hold even alone.
    """
    doubts = [_doubt_alone(told.alone_on(candidate), told) for candidate in idle]
    chosen = next((place for place, doubt in enumerate(doubts) if doubt is None), 0)
    notes = [
        f"Idle {candidate.parts[0][0].gpu} GPUs are passed over: {doubt}"
        for candidate, doubt in zip(idle[:chosen], doubts, strict=False)
    ]
    taken, doubt = idle[chosen], doubts[chosen]
    notes += [
        f"Node {node.node_id} is asleep and is woken: no GPU that is awake was free."
        for node in cluster.nodes
        if node.node_id in taken.node_ids and node.state == "asleep"
    ]
    if doubt is not None:
        notes.append(doubt)
    prediction = told.alone_on(taken)
    return replace(draft, decision="exclusive", phase="final", gpus=taken.gpus, prediction=prediction), tuple(notes)


def _doubt_alone(answer: SetPrediction, told: Forecast) -> str | None:
    """What speaks against running alone there: no prediction, a deadline, the memory; ``None`` when nothing does."""
    request, settings = told.request, told.settings
    if answer.abstained is not None:
        return f"How it runs alone is not predicted: {answer.abstained}."
    found: list[str] = []
    late = deadline_refusal(request.title, request.job, answer.jobs, settings.epsilon)
    if late is not None:
        found.append(f"Even alone the {late}.")
    if answer.oom_probability is not None and answer.oom_probability > settings.max_oom_probability:
        found.append(f"Even alone its out-of-memory risk is {answer.oom_probability:.2f}.")
    return " ".join(found) or None


def _never_fits(request: JobRequest, cluster: ClusterState) -> str:
    kind = f"{request.gpu} " if request.gpu else ""
    if not usable_nodes(request, cluster):
        return f"The cluster has no {kind}GPU at all."
    return f"Even empty, the cluster has no set of {request.num_gpus} {kind}GPU(s) that holds it."
