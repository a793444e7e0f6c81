"""The policy event by event: nothing is lost, nothing starves, nothing ping-pongs."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eaco_datasets.errors import InputError
from eaco_datasets.types import CoLocation
from eaco_scheduler.cluster import ClusterState
from eaco_scheduler.dispatcher import Dispatcher
from eaco_scheduler.ledger import ClusterLedger
from eaco_scheduler.settings import PlacementSettings


def _dispatcher(
    kit: SimpleNamespace, cluster: ClusterState, predictor: object = None, **settings: float
) -> tuple[Dispatcher, ClusterLedger]:
    ledger = ClusterLedger(cluster)
    used = replace(PlacementSettings(), **settings)
    return Dispatcher(ledger, predictor or kit.Predictor(), used), ledger


def test_a_share_is_provisional_until_everyone_has_finished_an_epoch(kit: SimpleNamespace) -> None:
    run, ledger = _dispatcher(kit, kit.cluster(kit.node("n", [])))
    assert run.submit(kit.request(job_id="a"), 0.0).decisions[0].decision == "exclusive"
    assert run.submit(kit.request(job_id="b"), 1.0).decisions[0].decision == "share"
    assert run.submit(kit.request(job_id="c"), 2.0).decisions[0].decision == "wait"
    assert run.observe("a", 100.0, 110.0).finalised == ()
    outcome = run.observe("b", 100.0, 120.0)
    assert outcome.finalised == ("b",)
    assert [(item.job_id, item.decision) for item in outcome.decisions] == [("c", "share")]
    assert {r.job_id: r.phase for _, _, r in ledger.snapshot().placed()} == {
        "a": "final",
        "b": "final",
        "c": "provisional",
    }
    assert {r.job_id: r.job.remaining_epochs for _, _, r in ledger.snapshot().placed()} == {"a": 9, "b": 9, "c": 10}


def test_an_undone_job_is_not_put_back_where_it_failed(kit: SimpleNamespace) -> None:
    """One room only: after the undo it waits, and is tried again when the company has changed."""
    run, ledger = _dispatcher(kit, kit.cluster(kit.node("n", [])))
    run.submit(kit.request(job_id="a", deadline_s=1500.0), 0.0)
    run.submit(kit.request(job_id="b"), 0.0)
    run.observe("b", 100.0, 100.0)
    outcome = run.observe("a", 300.0, 300.0)
    assert outcome.undone == ("b",)
    assert [(item.job_id, item.decision) for item in outcome.decisions] == [("b", "wait")]
    assert "undone before: job b with a" in outcome.decisions[0].explanation
    assert run.waiting == ("b",)
    assert ledger.snapshot().gpus_of("b") == ()
    freed = run.complete("a", 400.0)
    assert [(item.job_id, item.decision) for item in freed.decisions] == [("b", "exclusive")]
    back = next(r for _, _, r in ledger.snapshot().placed())
    assert (back.job.remaining_epochs, back.placed_epoch) == (9.0, 1.0)


def test_after_an_undo_other_sets_are_found(kit: SimpleNamespace) -> None:
    cluster = kit.cluster(
        kit.node("n", [kit.resident("a", util=60.0, deadline_s=1200.0)], [kit.resident("c", util=9.0)])
    )
    run, ledger = _dispatcher(kit, cluster)
    assert run.submit(kit.request(job_id="b"), 0.0).decisions[0].gpus == ("n-0",)
    run.observe("b", 100.0, 100.0)
    outcome = run.observe("a", 250.0, 250.0)
    assert outcome.undone == ("b",)
    assert ledger.snapshot().gpus_of("b") == ("n-1",)


def test_what_was_observed_is_believed_for_the_next_of_its_kind(kit: SimpleNamespace) -> None:
    cluster = kit.cluster(
        kit.node("n", [kit.resident("a", deadline_s=1300.0)]),
        kit.node("o", [kit.resident("z", deadline_s=1300.0)]),
    )
    run, _ = _dispatcher(kit, cluster)
    assert run.submit(kit.request(job_id="b"), 0.0).decisions[0].gpus == ("n-0",)
    run.observe("b", 100.0, 100.0)
    outcome = run.observe("a", 250.0, 250.0)
    assert outcome.undone == ("b",)
    decision = outcome.decisions[0]
    assert decision.decision == "wait"
    assert [item.refused for item in decision.alternatives] == ["deadline of job z: P(miss) 1.00 > 0.05"]


def test_a_member_that_ends_does_not_hold_up_the_trial(kit: SimpleNamespace) -> None:
    run, ledger = _dispatcher(kit, kit.cluster(kit.node("n", [kit.resident("a")])))
    run.submit(kit.request(job_id="b"), 0.0)
    run.observe("b", 100.0, 100.0)
    assert run.complete("a", 150.0).finalised == ("b",)
    assert run.trials == ()
    assert [r.phase for _, _, r in ledger.snapshot().placed()] == ["final"]


def test_a_placed_job_that_ends_takes_its_trial_along(kit: SimpleNamespace) -> None:
    run, ledger = _dispatcher(kit, kit.cluster(kit.node("n", [kit.resident("a")])))
    run.submit(kit.request(job_id="b"), 0.0)
    run.complete("b", 50.0)
    assert run.trials == ()
    assert ledger.snapshot().gpus_of("a") == ("n-0",)


@pytest.mark.parametrize(("max_wait_s", "starves"), [(100.0, False), (1e9, True)])
def test_a_large_job_does_not_starve_behind_small_ones(kit: SimpleNamespace, max_wait_s: float, starves: bool) -> None:
    """A small job arrives just before each one ends, so two GPUs are never idle at once - unless they are reserved."""
    run, ledger = _dispatcher(kit, kit.cluster(kit.node("n", [], [])), max_wait_s=max_wait_s)
    run.submit(kit.request(job_id="s00", exclusive=True), 0.0)
    run.submit(kit.request(2, job_id="pair", exclusive=True), 1.0)
    for turn in range(1, 20):
        run.submit(kit.request(job_id=f"s{turn:02}", exclusive=True), 20.0 * turn)
        running = sorted({r.job_id for _, _, r in ledger.snapshot().placed()})
        run.complete(running[0], 20.0 * turn + 1.0)
        if ledger.snapshot().gpus_of("pair"):
            break
    assert (ledger.snapshot().gpus_of("pair") == ()) is starves
    assert run.reservations == ()
    if not starves:
        assert turn <= 8  # overdue after turn 5; the small jobs then running end within two more


def test_withdrawing_frees_what_was_reserved(kit: SimpleNamespace) -> None:
    run, _ = _dispatcher(kit, kit.cluster(kit.node("n", [kit.resident("a", util=90.0)], [])), max_wait_s=10.0)
    run.submit(kit.request(2, job_id="pair"), 0.0)
    run.submit(kit.request(job_id="late"), 11.0)
    assert run.waiting == ("pair", "late")
    assert [held.job_id for held in run.reservations] == ["pair"]
    outcome = run.withdraw("pair", 12.0)
    assert [(item.job_id, item.decision) for item in outcome.decisions] == [("late", "exclusive")]
    assert (run.waiting, run.reservations) == ((), ())


def test_only_jobs_with_a_chance_are_tried_again(kit: SimpleNamespace) -> None:
    predictor = kit.Predictor()
    full = [kit.resident(name, util=90.0) for name in "ab"]
    cluster = kit.cluster(kit.node("n", [full[0]]), kit.node("t", [full[1]], gpu="t4"))
    run, _ = _dispatcher(kit, cluster, predictor)
    run.submit(kit.request(job_id="v", gpu="v100"), 0.0)
    run.submit(kit.request(job_id="w", gpu="t4"), 1.0)
    assert [item.job_id for item in run.submit(kit.request(job_id="x", gpu="v100"), 2.0).decisions] == ["v", "x"]
    assert [item.job_id for item in run.complete("b", 3.0).decisions] == ["w"]
    assert [item.job_id for item in run.observe("a", 100.0, 4.0).decisions] == ["v", "x"]
    assert run.observe("w", 100.0, 5.0).decisions == ()
    assert run.waiting == ("v", "x")


def test_progress_brings_a_waiting_job_back_and_nobody_overtakes_it(kit: SimpleNamespace) -> None:
    """Both slow r to 1/1.2: too late for its first epochs, in time once only one is left of ten."""
    cluster = kit.cluster(kit.node("n", [kit.resident("r", util=60.0, deadline_s=1100.0)]))
    run, ledger = _dispatcher(kit, cluster)
    assert run.submit(kit.request(job_id="w1", util=60.0), 0.0).decisions[0].decision == "wait"
    decisions = []
    for epoch in range(1, 10):
        decisions += run.observe("r", 100.0, 100.0 * epoch).decisions
        if run.waiting == ():
            break
    assert [item.job_id for item in decisions if item.decision == "share"] == ["w1"]
    run.submit(kit.request(job_id="w2", util=60.0), 901.0)
    assert {r.job_id for _, _, r in ledger.snapshot().placed()} == {"r", "w1"}
    assert run.waiting == ("w2",)


def test_an_arrival_tries_those_first_who_came_before_it(kit: SimpleNamespace) -> None:
    """The room came from outside, without an event: the next arrival must not take it from the one that waits."""
    run, ledger = _dispatcher(kit, kit.cluster(kit.node("n", [kit.resident("a", util=90.0)])))
    run.submit(kit.request(job_id="w1", exclusive=True), 0.0)
    ledger.complete("a")
    outcome = run.submit(kit.request(job_id="w2", exclusive=True), 1.0)
    assert [(item.job_id, item.decision) for item in outcome.decisions] == [("w1", "exclusive"), ("w2", "wait")]


def test_a_reservation_moves_off_gpus_that_something_unknown_keeps_busy(kit: SimpleNamespace) -> None:
    """Two GPUs hold no job but are busy; small jobs follow each other on the other two, until those are reserved."""
    node = kit.node("n", [], [], [], [])
    run, ledger = _dispatcher(kit, kit.cluster(node), max_wait_s=100.0)
    for uuid in ("n-0", "n-1"):
        run.measure(uuid, 0.0, core_util_pct=95.0, mem_util_pct=50.0)
    for turn in range(2):
        run.submit(kit.request(job_id=f"s{turn}", exclusive=True), 1.0)
    run.submit(kit.request(2, job_id="pair", exclusive=True), 2.0)
    for turn in range(2, 20):
        run.submit(kit.request(job_id=f"s{turn:02}", exclusive=True), 20.0 * turn)
        running = sorted({r.job_id for _, _, r in ledger.snapshot().placed()})
        run.complete(running[0], 20.0 * turn + 1.0)
        if ledger.snapshot().gpus_of("pair"):
            break
    assert ledger.snapshot().gpus_of("pair") == ("n-2", "n-3")


def test_a_reservation_is_made_anew_when_a_foreign_load_is_measured(kit: SimpleNamespace) -> None:
    busy = [kit.resident(name, util=99.0, remaining_epochs=left) for name, left in (("a", 1.0), ("b", 9.0))]
    run, ledger = _dispatcher(kit, kit.cluster(kit.node("n", [busy[0]], [busy[1]])), max_wait_s=10.0)
    run.submit(kit.request(job_id="w", exclusive=True), 0.0)
    run.submit(kit.request(job_id="late", exclusive=True), 20.0)
    assert [(held.job_id, held.gpus) for held in run.reservations] == [("w", ("n-0",))]
    run.submit(kit.request(2, job_id="wide", exclusive=True), 20.0)
    ledger.complete("a")
    ledger.measure("n-0", core_util_pct=90.0, mem_util_pct=9.0)
    run.measure("n-0", 21.0, core_util_pct=90.0, mem_util_pct=9.0)
    assert [(held.job_id, held.gpus) for held in run.reservations] == [("w", ("n-1",))]
    run.complete("b", 30.0)
    assert ledger.snapshot().gpus_of("w") == ("n-1",)
    assert run.reservations == ()


def test_a_reservation_that_can_no_longer_be_met_is_given_up(kit: SimpleNamespace) -> None:
    run, ledger = _dispatcher(kit, kit.cluster(kit.node("n", [], [kit.resident("b", util=99.0)])), max_wait_s=10.0)
    run.submit(kit.request(2, job_id="wide", exclusive=True), 0.0)
    run.submit(kit.request(job_id="late", exclusive=True), 20.0)
    assert [(held.job_id, held.gpus) for held in run.reservations] == [("wide", ("n-0", "n-1"))]
    run.measure("n-0", 21.0, core_util_pct=90.0, mem_util_pct=9.0)
    assert run.reservations == ()
    run.complete("b", 22.0)
    assert ledger.snapshot().gpus_of("late") == ("n-1",)


def test_one_broken_deadline_undoes_one_placement(kit: SimpleNamespace) -> None:
    """Resident wide runs on two GPUs: a second partner has to wait until the first one's trial is over."""
    wide = kit.resident("wide", util=40.0, deadline_s=1500.0)
    run, _ = _dispatcher(kit, kit.cluster(kit.node("n", [wide], [wide])))
    assert run.submit(kit.request(job_id="b"), 0.0).decisions[0].decision == "share"
    assert run.submit(kit.request(job_id="c"), 0.0).decisions[0].decision == "wait"
    run.observe("b", 100.0, 100.0)
    assert run.observe("wide", 300.0, 300.0).undone == ("b",)


def test_provisional_jobs_of_the_state_are_taken_up(kit: SimpleNamespace) -> None:
    a, new = kit.resident("a", deadline_s=1500.0), kit.resident("new", phase="provisional", deadline_s=9e9)
    cluster = kit.cluster(kit.node("n", [a, new]), kit.node("o", [kit.resident("z", util=90.0)]))
    run, ledger = _dispatcher(kit, cluster)
    assert [trial.job_id for trial in run.trials] == ["new"]
    run.observe("new", 100.0, 100.0)
    assert run.observe("a", 100.0, 100.0).finalised == ("new",)
    assert {r.phase for _, _, r in ledger.snapshot().placed()} == {"final"}

    run, ledger = _dispatcher(kit, cluster)
    run.observe("new", 100.0, 100.0)
    outcome = run.observe("a", 400.0, 400.0)
    assert (outcome.undone, run.waiting, run.trials) == (("new",), ("new",), ())
    assert "undone before: job new with a" in outcome.decisions[0].explanation
    assert run.complete("a", 500.0).decisions[0].gpus == ("n-0",)

    with pytest.raises(InputError, match="trial of provisional job 'new'"):
        _dispatcher(kit, cluster, kit.Predictor(abstain=lambda _: "no rows"))


def test_a_measurement_can_open_a_gpu(kit: SimpleNamespace) -> None:
    run, _ = _dispatcher(kit, kit.cluster(kit.node("n", [kit.resident("a", util=None)])))
    assert run.submit(kit.request(job_id="b"), 0.0).decisions[0].decision == "wait"
    outcome = run.measure("n-0", 1.0, core_util_pct=30.0, mem_util_pct=10.0)
    assert [(item.job_id, item.decision) for item in outcome.decisions] == [("b", "share")]


def test_a_cluster_that_never_rests_leaves_the_job_waiting(kit: SimpleNamespace) -> None:
    ledger = ClusterLedger(kit.cluster(kit.node("n", [kit.resident("a")])))

    class Meddling(kit.Predictor):  # type: ignore[misc,name-defined]
        def predict(self, sets: list[CoLocation]) -> object:
            ledger.measure("n-0", core_util_pct=30.0, mem_util_pct=10.0)
            return super().predict(sets)

    predictor = Meddling()
    run = Dispatcher(ledger, predictor)
    decision = run.submit(kit.request(job_id="b"), 0.0).decisions[0]
    assert (decision.decision, decision.gpus) == ("wait", ())
    assert "the cluster changed during each of 3 tries" in decision.explanation
    assert len(predictor.calls) == 3
    assert run.waiting == ("b",)


def test_impossible_events_are_refused(kit: SimpleNamespace) -> None:
    run, _ = _dispatcher(kit, kit.cluster(kit.node("n", [kit.resident("a")])))
    run.submit(kit.request(2, job_id="w"), 5.0)
    for call in (
        lambda: run.submit(kit.request(job_id=None), 6.0),
        lambda: run.submit(kit.request(job_id="a"), 6.0),
        lambda: run.submit(kit.request(job_id="w"), 6.0),
        lambda: run.submit(kit.request(job_id="x"), 4.0),
        lambda: run.complete("zed", 6.0),
        lambda: run.observe("zed", 1.0, 6.0),
        lambda: run.observe("a", -1.0, 6.0),
        lambda: run.withdraw("a", 6.0),
    ):
        with pytest.raises(InputError):
            call()
    assert run.waiting == ("w",)


_EVENT = st.tuples(
    st.sampled_from(["submit", "submit", "observe", "complete"]),
    st.integers(0, 30),
    st.floats(5.0, 95.0),
    st.integers(1, 3),
    st.sampled_from([None, 1100.0, 2000.0]),
    st.floats(60.0, 400.0),
)


@settings(max_examples=60, deadline=None)
@given(events=st.lists(_EVENT, max_size=25), overdue_s=st.sampled_from([50.0, 1e6]))
def test_every_job_is_placed_or_waiting_whatever_happens(
    kit: SimpleNamespace, events: list[tuple[str, int, float, int, float | None, float]], overdue_s: float
) -> None:
    cluster = kit.cluster(kit.node("m", [], []), kit.node("n", [], [], state="asleep"))
    run, ledger = _dispatcher(kit, cluster, max_wait_s=overdue_s)
    alive: list[str] = []
    for number, (kind, pick, util, size, deadline_s, epoch_s) in enumerate(events):
        now_s = 30.0 * number
        placed = sorted({r.job_id for _, _, r in ledger.snapshot().placed()})
        if kind == "submit":
            request = kit.request(size, job_id=f"j{number}", util=util, mem=4000.0, deadline_s=deadline_s)
            alive.append(request.job_id)
            run.submit(request, now_s)
        elif placed and kind == "observe":
            run.observe(placed[pick % len(placed)], epoch_s, now_s)
        elif placed:
            alive.remove(placed[pick % len(placed)])
            run.complete(placed[pick % len(placed)], now_s)
        state = ledger.snapshot()
        placed = sorted({r.job_id for _, _, r in state.placed()})
        assert sorted([*placed, *run.waiting]) == sorted(alive)
        assert {trial.job_id for trial in run.trials} == {
            r.job_id for _, _, r in state.placed() if r.phase == "provisional"
        }
        members = [job_id for trial in run.trials for job_id in trial.members]
        assert len(members) == len(set(members))
        reserved = [uuid for held in run.reservations for uuid in held.gpus]
        assert len(reserved) == len(set(reserved))
        assert {held.job_id for held in run.reservations} <= set(run.waiting)
    while placed := sorted({r.job_id for _, _, r in ledger.snapshot().placed()}):
        run.complete(placed[0], 1e7)
    assert run.waiting == ()
