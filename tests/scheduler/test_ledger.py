"""Atomic admission: no two decisions take the same room, no illegal step, no half change."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from types import SimpleNamespace

import pytest

from eaco_datasets.errors import ConflictError, InputError
from eaco_scheduler import decide
from eaco_scheduler.cluster import Resident
from eaco_scheduler.ledger import ClusterLedger


def test_a_decision_on_an_older_state_is_refused(kit: SimpleNamespace) -> None:
    ledger = ClusterLedger(kit.cluster(kit.node("n", [])))
    before = ledger.snapshot()
    ledger.place(kit.resident("a"), ["n-0"], expected_version=before.version)
    with pytest.raises(ConflictError, match="decide again"):
        ledger.place(kit.resident("b"), ["n-0"], expected_version=before.version)
    assert ledger.snapshot().gpus_of("b") == ()


def test_threads_never_over_admit(kit: SimpleNamespace) -> None:
    """Eight schedulers race for one GPU that takes three 30 % jobs: every accepted state obeys the thresholds."""
    ledger = ClusterLedger(kit.cluster(kit.node("n", [])))
    start = Barrier(8)

    def admit(name: str) -> str:
        start.wait(10)
        while True:
            state = ledger.snapshot()
            answer = decide(kit.request(job_id=name, util=30.0, mem=4000.0), state, kit.Predictor())
            if answer.decision == "wait":
                return "waits"
            resident = Resident(kit.job(name, util=30.0, mem=4000.0), "final")
            try:
                ledger.place(resident, answer.gpus, expected_version=answer.cluster_version)
            except ConflictError:
                continue
            return "placed"

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(admit, [f"j{n}" for n in range(8)]))
    assert results.count("placed") == 3
    assert sum(r.job.solo.mem_mib for r in ledger.snapshot().gpu("n-0").residents) == 12_000.0
    assert ledger.snapshot().version == 3


def test_a_trial_becomes_final_or_is_undone(kit: SimpleNamespace) -> None:
    ledger = ClusterLedger(kit.cluster(kit.node("n", [kit.resident("a")], [kit.resident("a")])))
    placed = ledger.place(kit.resident("b", phase="provisional"), ["n-0", "n-1"], expected_version=0)
    assert placed.gpus_of("b") == ("n-0", "n-1")
    final = ledger.finalise("b")
    assert {r.phase for _, _, r in final.placed()} == {"final"}
    ledger.complete("b")
    ledger.place(kit.resident("c", phase="provisional"), ["n-1"], expected_version=3)
    assert ledger.undo("c").gpus_of("c") == ()
    assert ledger.snapshot().gpus_of("a") == ("n-0", "n-1")


def test_nodes_wake_and_rest_with_their_jobs(kit: SimpleNamespace) -> None:
    ledger = ClusterLedger(kit.cluster(kit.node("m", [], state="asleep"), kit.node("n", [], state="asleep")))
    assert [n.state for n in ledger.place(kit.resident("a"), ["n-0"], expected_version=0).nodes] == ["asleep", "active"]
    assert [n.state for n in ledger.complete("a").nodes] == ["asleep", "idle"]


def test_a_change_of_company_voids_the_measured_utilisation(kit: SimpleNamespace) -> None:
    ledger = ClusterLedger(kit.cluster(kit.node("n", [kit.resident("a")], [])))
    ledger.measure("n-0", core_util_pct=42.0, mem_util_pct=9.0)
    ledger.measure("n-1", core_util_pct=1.0, mem_util_pct=0.0)
    assert ledger.progress("a", remaining_epochs=3.0).gpu("n-0").core_util_pct == 42.0
    state = ledger.place(kit.resident("b"), ["n-0"], expected_version=3)
    assert (state.gpu("n-0").core_util_pct, state.gpu("n-1").core_util_pct) == (None, 1.0)


def test_deadlines_come_nearer_with_time(kit: SimpleNamespace) -> None:
    ledger = ClusterLedger(kit.cluster(kit.node("n", [kit.resident("a", deadline_s=50.0), kit.resident("b")])))
    assert [r.job.deadline_s for _, _, r in ledger.age(60.0).placed()] == [-10.0, None]
    assert ledger.age(0.0).version == 1


_ILLEGAL = {
    "finalise a final job": lambda _, ledger: ledger.finalise("a"),
    "undo a final job": lambda _, ledger: ledger.undo("a"),
    "finalise nobody": lambda _, ledger: ledger.finalise("zed"),
    "undo nobody": lambda _, ledger: ledger.undo("zed"),
    "complete nobody": lambda _, ledger: ledger.complete("zed"),
    "progress of nobody": lambda _, ledger: ledger.progress("zed", remaining_epochs=1.0),
    "negative progress": lambda _, ledger: ledger.progress("a", remaining_epochs=-1.0),
    "time backwards": lambda _, ledger: ledger.age(-1.0),
    "measure nothing": lambda _, ledger: ledger.measure("n-9", core_util_pct=1.0, mem_util_pct=1.0),
    "measure too much": lambda _, ledger: ledger.measure("n-0", core_util_pct=101.0, mem_util_pct=1.0),
    "place twice": lambda k, ledger: ledger.place(k.resident("a"), ["n-1"], expected_version=0),
    "place nowhere": lambda k, ledger: ledger.place(k.resident("b"), [], expected_version=0),
    "place twice on one": lambda k, ledger: ledger.place(k.resident("b"), ["n-1", "n-1"], expected_version=0),
    "place on no such GPU": lambda k, ledger: ledger.place(k.resident("b"), ["n-9"], expected_version=0),
    "place across types": lambda k, ledger: ledger.place(k.resident("b"), ["n-1", "t-0"], expected_version=0),
    "place a fifth": lambda k, ledger: ledger.place(k.resident("b"), ["n-2"], expected_version=0),
    "share exclusively": lambda k, ledger: ledger.place(k.resident("b", exclusive=True), ["n-0"], expected_version=0),
    "place the nameless": lambda k, ledger: ledger.place(
        replace(k.resident("b"), job=k.job(None)), ["n-1"], expected_version=0
    ),
}


@pytest.mark.parametrize("name", _ILLEGAL)
def test_illegal_steps_are_refused_and_change_nothing(kit: SimpleNamespace, name: str) -> None:
    four = [kit.resident(str(n)) for n in range(4)]
    ledger = ClusterLedger(kit.cluster(kit.node("n", [kit.resident("a")], [], four), kit.node("t", [], gpu="t4")))
    before = ledger.snapshot()
    with pytest.raises(InputError) as caught:
        _ILLEGAL[name](kit, ledger)
    assert "\n" not in str(caught.value)
    assert ledger.snapshot() is before
