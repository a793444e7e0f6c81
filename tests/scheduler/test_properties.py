"""What holds for every cluster, request and policy."""

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from eaco_datasets.errors import ConflictError
from eaco_datasets.gpus import gpu
from eaco_scheduler import decide
from eaco_scheduler.cluster import ClusterState, Gpu, Node, Resident
from eaco_scheduler.decision import Decision, JobRequest
from eaco_scheduler.ledger import ClusterLedger
from eaco_scheduler.settings import policy_names, policy_settings

_FAST = settings(max_examples=120, deadline=None)


def _mostly(usual: st.SearchStrategy[Any], rare: Any) -> st.SearchStrategy[Any]:
    """One in ten is the rare value: common enough to be met, rare enough that most cases get further."""
    return st.integers(0, 9).flatmap(lambda drawn: usual if drawn else st.just(rare))


_RESIDENT = st.fixed_dictionaries(
    {
        "util": _mostly(st.floats(1.0, 60.0), None),
        "mem": _mostly(st.floats(100.0, 6000.0), None),
        "deadline_s": st.one_of(st.none(), st.floats(900.0, 2000.0)),
        "exclusive": _mostly(st.just(False), True),
        "phase": _mostly(st.just("final"), "provisional"),
    }
)
_LAYOUT = st.lists(  # nodes -> GPUs -> which of ten jobs is there
    st.lists(st.lists(st.integers(0, 9), max_size=3, unique=True), min_size=1, max_size=4), min_size=1, max_size=3
)
_REQUEST = st.fixed_dictionaries(
    {
        "num_gpus": st.integers(1, 4),
        "parallelism": st.sampled_from(["data", "data", "model"]),
        "waited_s": st.sampled_from([0.0, 1e6]),
        "util": _mostly(st.floats(1.0, 100.0), None),
        "mem": _mostly(st.floats(100.0, 12_000.0), None),
        "deadline_s": st.one_of(st.none(), st.floats(900.0, 3000.0)),
        "remaining_epochs": _mostly(st.floats(0.0, 12.0), None),
        "exclusive": _mostly(st.just(False), True),
    }
)
_CASE = st.tuples(
    _LAYOUT,
    st.lists(_RESIDENT, min_size=10, max_size=10),
    st.lists(st.tuples(_mostly(st.none(), 70.0), st.booleans()), min_size=12, max_size=12),
    _REQUEST,
    st.sampled_from(policy_names()),
    st.sampled_from([None, 1500.0]),
)


def _cluster(kit: SimpleNamespace, layout: list[Any], jobs: list[Any], meters: list[Any]) -> ClusterState:
    residents = [kit.resident(f"r{n}", **fields) for n, fields in enumerate(jobs)]
    nodes: list[Node] = []
    for n, places in enumerate(layout):
        gpus = []
        for g, held in enumerate(places):
            chosen = [residents[index] for index in held]
            if any(item.job.exclusive for item in chosen):
                chosen = chosen[:1]
            measured_pct, _ = meters[n * 4 + g]
            gpus.append(Gpu(f"u{n}{g}", tuple(chosen), measured_pct, measured_pct))
        empty = not any(item.residents for item in gpus)
        nodes.append(Node(f"n{n}", "v100", tuple(gpus), "asleep" if empty and meters[n][1] else "active"))
    return ClusterState(tuple(nodes))


def _run(kit: SimpleNamespace, case: Any) -> tuple[JobRequest, ClusterState, Decision, Any]:
    layout, jobs, meters, asked, policy, guess = case
    cluster, request = _cluster(kit, layout, jobs, meters), kit.request(**asked)
    predictor = kit.Predictor(guess_mem_mib=guess)
    return request, cluster, decide(request, cluster, predictor, policy_settings(policy)), predictor


@_FAST
@given(case=_CASE)
def test_an_admission_breaks_no_rule(kit: SimpleNamespace, case: Any) -> None:
    request, cluster, answer, predictor = _run(kit, case)
    assert len(predictor.calls) <= 1
    if answer.decision == "wait":
        assert (answer.gpus, answer.phase) == ((), None)
        return
    assert len(set(answer.gpus)) == len(answer.gpus) == request.num_gpus
    gpus = [cluster.gpu(uuid) for uuid in answer.gpus]
    if answer.decision == "exclusive":
        assert all(not item.residents for item in gpus)
        return
    assert not request.job.exclusive
    assert any(item.residents for item in gpus)
    free_mib = 0.0
    for item in gpus:
        solos = [r.job.solo for r in item.residents]
        core = item.core_util_pct if item.core_util_pct is not None else sum(s.gpu_util_pct for s in solos)
        mem = item.mem_util_pct if item.mem_util_pct is not None else sum(s.mem_util_pct for s in solos)
        assert core < 80.0
        assert mem < 80.0
        assert len(item.residents) < 4
        assert not any(r.job.exclusive or r.phase == "provisional" for r in item.residents)
        guess = predictor.guess_mem_mib
        used = [s.mem_mib if s.mem_mib is not None else guess for s in solos]
        assert None not in used
        free_mib += gpu("v100").memory_mib * 0.9 - sum(used)
        if request.parallelism == "data":
            own = request.job.solo.mem_mib if request.job.solo.mem_mib is not None else guess
            assert own is not None
            assert own + sum(used) <= gpu("v100").memory_mib * 0.9 + 1e-6
    if request.parallelism == "model":
        assert request.job.solo.mem_mib is not None
        assert request.job.solo.mem_mib <= free_mib + 1e-6


@_FAST
@given(case=_CASE)
def test_a_shares_deadlines_hold_by_its_own_prediction(kit: SimpleNamespace, case: Any) -> None:
    request, cluster, answer, _ = _run(kit, case)
    if answer.decision != "share":
        return
    assert answer.prediction is not None
    jobs = {r.job_id: r.job for _, _, r in cluster.placed()} | {"new": request.job}
    told = {job.job_id: job for job in answer.prediction.jobs}
    assert set(told) == {*answer.co_residents, "new"}
    for job_id, prediction in told.items():
        if jobs[job_id].deadline_s is not None:
            assert prediction.deadline_miss_probability is not None
            assert prediction.deadline_miss_probability <= float(answer.settings["epsilon"])


@_FAST
@given(case=_CASE)
def test_alternatives_are_ranked_and_the_first_that_holds_is_taken(kit: SimpleNamespace, case: Any) -> None:
    *_, answer, _ = _run(kit, case)
    assert [item.rank for item in answer.alternatives] == list(range(1, len(answer.alternatives) + 1))
    admitted = [item for item in answer.alternatives if item.refused is None]
    assert (answer.decision == "share") is bool(admitted)
    if admitted:
        assert (answer.gpus, answer.prediction) == (admitted[0].gpus, admitted[0].prediction)
    assert answer.explanation.endswith(".")


@_FAST
@given(case=_CASE, seed=st.integers(0, 999))
def test_the_order_of_nodes_gpus_and_residents_does_not_matter(kit: SimpleNamespace, case: Any, seed: int) -> None:
    request, cluster, answer, _ = _run(kit, case)
    rng = random.Random(seed)

    def shuffled(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(rng.sample(items, len(items)))

    nodes = shuffled(
        tuple(
            replace(node, gpus=shuffled(tuple(replace(g, residents=shuffled(g.residents)) for g in node.gpus)))
            for node in cluster.nodes
        )
    )
    again = decide(
        request,
        ClusterState(nodes),
        kit.Predictor(guess_mem_mib=case[5]),
        policy_settings(case[4]),
    )
    assert again == answer


@_FAST
@given(
    jobs=st.lists(st.tuples(st.floats(5.0, 90.0), st.floats(500.0, 9000.0), st.integers(1, 2)), max_size=12),
    order=st.randoms(use_true_random=False),
)
def test_interleaved_admissions_never_take_the_same_room(kit: SimpleNamespace, jobs: list[Any], order: Any) -> None:
    """Every job decides on a snapshot taken at a random earlier time; stale ones are refused, none over-admits."""
    ledger = ClusterLedger(kit.cluster(kit.node("m", [], []), kit.node("n", [])))
    snapshots = [ledger.snapshot()]
    for number, (util, mem, size) in enumerate(jobs):
        request = kit.request(size, job_id=f"j{number}", util=util, mem=mem)
        seen = order.choice(snapshots)
        answer = decide(request, seen, kit.Predictor())
        if answer.decision == "wait":
            continue
        try:
            ledger.place(Resident(request.job), answer.gpus, expected_version=answer.cluster_version)
        except ConflictError:
            assert seen is not snapshots[-1]
            continue
        assert seen is snapshots[-1]
        snapshots.append(ledger.snapshot())
    for node in ledger.snapshot().nodes:
        for item in node.gpus:
            mems = [r.job.solo.mem_mib for r in item.residents]
            assert len(mems) <= 4
            assert len(mems) < 2 or sum(mems) <= gpu("v100").memory_mib * 0.9
            before_last = [r.job.solo.gpu_util_pct for r in item.residents[:-1]]
            assert sum(before_last) < 80.0 or not before_last
