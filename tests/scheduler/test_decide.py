"""The decision: one batched prediction, deadlines by probability, exclusive after sharing, waiting after that."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from eaco_datasets.errors import EacoError, InputError
from eaco_datasets.types import CoLocation
from eaco_scheduler import decide
from eaco_scheduler.decision import Reservation
from eaco_scheduler.settings import PlacementSettings, policy_settings


def test_the_busiest_set_is_taken_first(kit: SimpleNamespace) -> None:
    cluster = kit.cluster(kit.node("n", [kit.resident("a", util=20.0)], [kit.resident("b", util=50.0)], []), version=7)
    answer = decide(kit.request(util=30.0), cluster, kit.Predictor(), now_s=5.0)
    assert (answer.decision, answer.phase, answer.gpus, answer.co_residents) == (
        "share",
        "provisional",
        ("n-1",),
        ("b",),
    )
    assert [(item.gpus, item.rank, item.score) for item in answer.alternatives] == [
        (("n-1",), 1, 50.0),
        (("n-0",), 2, 20.0),
    ]
    assert (answer.cluster_version, answer.decided_at_s, answer.job_id) == (7, 5.0, "new")
    assert answer.settings == PlacementSettings().as_dict()
    assert answer.prediction is not None
    assert [job.job_id for job in answer.prediction.jobs] == ["b", "new"]
    assert "shares n-1 with b" in answer.explanation


def test_a_broken_deadline_sends_the_job_to_the_next_set(kit: SimpleNamespace) -> None:
    # 50 + 60 = 110 %: both run at 1/1.1, so resident b needs 1100 s of its 1010 s; beside a (80 %) nothing slows.
    cluster = kit.cluster(
        kit.node("n", [kit.resident("a", util=20.0)], [kit.resident("b", util=50.0, deadline_s=1010.0)])
    )
    answer = decide(kit.request(util=60.0), cluster, kit.Predictor())
    assert answer.gpus == ("n-0",)
    first = answer.alternatives[0]
    assert first.refused is not None
    assert first.refused.startswith("deadline of job b: P(miss) 1.00 ")
    assert first.refused.endswith("> 0.05")
    assert first.refused in answer.explanation


def test_epsilon_decides_between_the_point_rule_and_certainty(kit: SimpleNamespace) -> None:
    """Mean completion 1000 s against a deadline of 1010 s: on time by the point, at risk by the interval."""
    cluster = kit.cluster(kit.node("n", [kit.resident("a", util=20.0)]))
    request = kit.request(util=60.0, deadline_s=1010.0)
    assert decide(request, cluster, kit.Predictor(), policy_settings("eaco")).decision == "share"
    safe = decide(request, cluster, kit.Predictor(), policy_settings("eaco-safe"))
    assert safe.decision == "wait"
    assert "deadline of job new" in (safe.alternatives[0].refused or "")


def test_an_exhausted_list_ends_in_idle_gpus_and_then_in_waiting(kit: SimpleNamespace) -> None:
    """The paper's algorithm has no branch here: it would loop for ever."""
    full = kit.resident("a", util=50.0, deadline_s=1001.0)
    request = kit.request(util=90.0)
    alone = decide(request, kit.cluster(kit.node("n", [full], [])), kit.Predictor())
    assert (alone.decision, alone.phase, alone.gpus) == ("exclusive", "final", ("n-1",))
    assert alone.prediction is not None
    assert alone.prediction.jobs[0].relative_speed.mean == 1.0
    assert alone.alternatives[0].refused is not None
    waits = decide(request, kit.cluster(kit.node("n", [full])), kit.Predictor())
    assert (waits.decision, waits.phase, waits.gpus, waits.prediction) == ("wait", None, (), None)
    assert "waits and is tried again" in waits.explanation


def test_the_predictor_is_asked_once_for_distinct_sets(kit: SimpleNamespace) -> None:
    one, two = kit.resident("a"), kit.resident("b")
    predictor = kit.Predictor()
    decide(kit.request(4), kit.cluster(kit.node("n", [one], [one], [two], [two], [two])), predictor)
    assert len(predictor.calls) == 1
    asked = predictor.calls[0]
    assert len(asked) == len(set(asked)) == 5  # a, b, a+new, b+new, new alone


def test_nothing_to_ask_means_no_call(kit: SimpleNamespace) -> None:
    predictor = kit.Predictor()
    assert decide(kit.request(), kit.cluster(kit.node("n", [kit.resident(util=99.0)])), predictor).decision == "wait"
    assert predictor.calls == []


def test_a_set_refused_for_one_gpu_hides_none_without_it(kit: SimpleNamespace) -> None:
    """Windows over 60, 50 and 10 % pair the middle GPU with both others; it fails, so the outer two must be found."""
    cluster = kit.cluster(
        kit.node(
            "n",
            [kit.resident("a", util=60.0)],
            [kit.resident("b", util=50.0, deadline_s=900.0)],
            [kit.resident("c", util=10.0)],
        )
    )
    answer = decide(kit.request(2), cluster, kit.Predictor())
    assert answer.decision == "share"
    assert set(answer.gpus) == {"n-0", "n-2"}


def test_a_job_runs_at_its_slowest_gpu(kit: SimpleNamespace) -> None:
    cluster = kit.cluster(kit.node("n", [kit.resident("a", util=70.0)], [kit.resident("b", util=20.0)]))
    answer = decide(kit.request(2, util=60.0), cluster, kit.Predictor())
    assert answer.prediction is not None
    speeds = {job.job_id: job.relative_speed.mean for job in answer.prediction.jobs}
    assert speeds == pytest.approx({"a": 1 / 1.3, "b": 1.0, "new": 1 / 1.3})
    assert answer.prediction.gpu_power_w is not None
    assert answer.prediction.gpu_power_w.mean == pytest.approx((300.0 + 250.0) / 2)


def test_a_resident_that_is_slower_elsewhere_is_judged_there(kit: SimpleNamespace) -> None:
    wide = kit.resident("w", util=30.0, deadline_s=1200.0)
    slow = [wide, kit.resident("h", util=100.0)]
    cluster = kit.cluster(kit.node("n", [wide], slow))
    answer = decide(kit.request(util=10.0), cluster, kit.Predictor())
    assert answer.decision == "wait"
    assert answer.alternatives[0].gpus == ("n-0",)
    assert "deadline of job w" in (answer.alternatives[0].refused or "")


def test_a_deadline_without_a_completion_time_is_refused(kit: SimpleNamespace) -> None:
    cluster = kit.cluster(kit.node("n", [kit.resident("a")]))
    cold = decide(kit.request(deadline_s=9e9, remaining_epochs=None), cluster, kit.Predictor())
    assert "deadline of job new: its completion time cannot be predicted" in (cold.alternatives[0].refused or "")
    endless = decide(kit.request(deadline_s=None, remaining_epochs=None), cluster, kit.Predictor())
    assert endless.decision == "share"


def test_an_abstention_is_refused_with_its_reason(kit: SimpleNamespace) -> None:
    def no_pairs(where: CoLocation) -> str | None:
        return "no measured pairs on this GPU" if len(where.jobs) > 1 else None

    answer = decide(kit.request(), kit.cluster(kit.node("n", [kit.resident("a")])), kit.Predictor(abstain=no_pairs))
    assert answer.decision == "wait"
    assert answer.alternatives[0].refused == "no prediction: no measured pairs on this GPU"


def test_an_out_of_memory_risk_is_a_gate(kit: SimpleNamespace) -> None:
    risky = kit.Predictor(oom=lambda where: 0.3 if len(where.jobs) > 1 else 0.0)
    answer = decide(kit.request(), kit.cluster(kit.node("n", [kit.resident("a")], [])), risky)
    assert answer.decision == "exclusive"
    assert answer.alternatives[0].refused == "out-of-memory risk 0.30 > 0.05"


def test_an_unknown_peak_is_decided_by_predicted_memory_or_refused(kit: SimpleNamespace) -> None:
    cluster = kit.cluster(kit.node("n", [kit.resident("a", mem=2000.0)]))
    for guess, decision, text in (
        (None, "wait", "memory peak unknown"),
        (3000.0, "share", ""),
        (1e6, "wait", "predicted"),
    ):
        answer = decide(kit.request(mem=None), cluster, kit.Predictor(guess_mem_mib=guess))
        assert answer.decision == decision
        assert text in (answer.alternatives[0].refused or "")


def test_model_parallel_memory_is_predicted_per_gpu(kit: SimpleNamespace) -> None:
    predictor = kit.Predictor()
    cluster = kit.cluster(kit.node("n", *[[kit.resident("a")]] * 2))
    decide(kit.request(2, parallelism="model", mem=6000.0), cluster, predictor)
    asked = [job.solo.mem_mib for where in predictor.calls[0] for job in where.jobs if job.job_id == "new"]
    assert set(asked) == {3000.0}


def test_the_objective_weighs_energy_against_epoch_time(kit: SimpleNamespace) -> None:
    """By hand: beside ``a`` (60 %) the set slows to 1/1.2 and draws 300 W; beside ``b`` (20 %) nothing slows, 250 W.

    t_alone 100 s, P_alone 200 W. a: epochs 120 s, added J 120 (300 - 200/1.2) = 16 000, added s (20 + 20)/2.
    b: added J 100 (250 - 100) = 15 000, added s 0.
    """
    cluster = kit.cluster(kit.node("n", [kit.resident("a", util=60.0)], [kit.resident("b", util=20.0)]))
    request = kit.request(util=60.0)
    for alpha in (0.0, 0.5, 1.0):
        settings = policy_settings("eaco-objective", {"alpha": alpha})
        answer = decide(request, cluster, kit.Predictor(), settings)
        assert answer.gpus == ("n-1",)
        scores = {item.co_residents: item.score for item in answer.alternatives}
        assert scores[("a",)] == pytest.approx(alpha * 16_000 / 20_000 + (1 - alpha) * 0.2)
        assert scores[("b",)] == pytest.approx(alpha * 15_000 / 20_000)
    assert decide(request, cluster, kit.Predictor(), policy_settings("eaco")).gpus == ("n-0",)


def test_without_power_the_objective_falls_back_and_says_so(kit: SimpleNamespace) -> None:
    cluster = kit.cluster(kit.node("n", [kit.resident("a", util=60.0)], [kit.resident("b", util=20.0)]))
    dark = kit.Predictor(power=lambda _: None)
    answer = decide(kit.request(util=60.0), cluster, dark, policy_settings("eaco-objective"))
    assert answer.gpus == ("n-0",)
    assert [item.score for item in answer.alternatives] == [60.0, 20.0]
    assert "ranked by highest utilisation instead" in answer.explanation


def test_a_refused_set_without_objective_does_not_force_the_fallback(kit: SimpleNamespace) -> None:
    cluster = kit.cluster(kit.node("n", [kit.resident("a", util=60.0)], [kit.resident("b", util=20.0)]))
    shy = kit.Predictor(
        abstain=lambda where: "never seen" if len(where.jobs) == 2 and where.jobs[0].job_id == "a" else None
    )
    answer = decide(kit.request(util=60.0), cluster, shy, policy_settings("eaco-objective"))
    assert answer.gpus == ("n-1",)
    assert [(item.co_residents, item.score is None) for item in answer.alternatives] == [
        (("b",), False),
        (("a",), True),
    ]


def test_an_exclusive_job_goes_alone_or_waits(kit: SimpleNamespace) -> None:
    request = kit.request(exclusive=True)
    assert decide(request, kit.cluster(kit.node("n", [kit.resident("a")])), kit.Predictor()).decision == "wait"
    alone = decide(request, kit.cluster(kit.node("n", [kit.resident("a")], [])), kit.Predictor())
    assert (alone.decision, alone.gpus) == ("exclusive", ("n-1",))


def test_waking_a_node_and_missing_alone_are_said(kit: SimpleNamespace) -> None:
    asleep = kit.cluster(kit.node("n", [], state="asleep"))
    answer = decide(kit.request(deadline_s=10.0), asleep, kit.Predictor())
    assert answer.decision == "exclusive"
    assert "Node n is asleep and is woken" in answer.explanation
    assert "Even alone the deadline of job new: P(miss) 1.00" in answer.explanation


def test_a_job_that_can_never_fit_is_told(kit: SimpleNamespace) -> None:
    cluster = kit.cluster(kit.node("n", []))
    assert "Even empty" in decide(kit.request(2), cluster, kit.Predictor()).explanation
    assert "has no t4 GPU" in decide(kit.request(gpu="t4"), cluster, kit.Predictor()).explanation
    assert decide(kit.request(), kit.cluster(), kit.Predictor()).decision == "wait"


def test_a_long_wait_brings_a_reservation_that_holds(kit: SimpleNamespace) -> None:
    soon, late = kit.resident("s", util=99.0, remaining_epochs=1.0), kit.resident("l", util=99.0, remaining_epochs=9.0)
    cluster = kit.cluster(kit.node("m", [late], [soon]), kit.node("n", [soon], [soon]))
    patient = decide(kit.request(2, waited_s=86_400.0), cluster, kit.Predictor())
    assert patient.reservation is None
    overdue = decide(kit.request(2, waited_s=86_401.0), cluster, kit.Predictor(), now_s=3.0)
    assert overdue.reservation == Reservation("new", ("n-0", "n-1"), 3.0)
    assert "n-0, n-1 are reserved" in overdue.explanation

    freed = kit.cluster(kit.node("m", [late], [soon]), kit.node("n", [kit.resident("q", util=5.0)], []))
    other = kit.request(job_id="other")
    assert decide(other, freed, kit.Predictor(), reservations=[overdue.reservation]).decision == "wait"
    assert decide(other, freed, kit.Predictor()).decision == "share"
    kept = decide(
        kit.request(2, util=99.0, mem=15_000.0, waited_s=9e5),
        freed,
        kit.Predictor(),
        reservations=[overdue.reservation],
    )
    assert kept.reservation == overdue.reservation
    empty = kit.cluster(kit.node("m", [late], [soon]), kit.node("n", [], []))
    placed = decide(kit.request(2, waited_s=9e5), empty, kit.Predictor(), reservations=[overdue.reservation])
    assert (placed.decision, placed.gpus) == ("exclusive", ("n-0", "n-1"))


def test_two_overdue_jobs_never_hold_the_same_gpu(kit: SimpleNamespace) -> None:
    busy = kit.resident("s", util=99.0)
    cluster = kit.cluster(kit.node("n", [busy], [busy], [busy]))
    first = decide(kit.request(2, waited_s=9e5), cluster, kit.Predictor()).reservation
    assert first is not None
    second = decide(kit.request(1, job_id="two", waited_s=9e5), cluster, kit.Predictor(), reservations=[first])
    assert second.reservation is not None
    assert not set(second.reservation.gpus) & set(first.gpus)
    third = decide(
        kit.request(1, job_id="three", waited_s=9e5), cluster, kit.Predictor(), reservations=[first, second.reservation]
    )
    assert third.reservation is None


def test_bad_requests_name_their_place(kit: SimpleNamespace) -> None:
    with pytest.raises(InputError, match="already in the cluster") as caught:
        decide(kit.request(job_id="a"), kit.cluster(kit.node("n", [kit.resident("a")])), kit.Predictor())
    assert caught.value.where == "/job/job_id"
    mixed = kit.cluster(kit.node("m", [], gpu="t4"), kit.node("n", []))
    with pytest.raises(InputError, match="without its GPU type") as caught:
        decide(kit.request(gpu=None), mixed, kit.Predictor())
    assert caught.value.where == "/job/gpu"


def test_a_predictor_that_miscounts_is_an_error(kit: SimpleNamespace) -> None:
    class Short(kit.Predictor):  # type: ignore[misc,name-defined]
        def predict(self, sets):  # type: ignore[no-untyped-def]
            return super().predict(sets)[:-1]

    with pytest.raises(EacoError, match="the predictor answered 2 of 3 sets"):
        decide(kit.request(), kit.cluster(kit.node("n", [kit.resident("a")])), Short())


def test_a_job_without_id_and_without_profile_can_be_asked_about(kit: SimpleNamespace) -> None:
    bare = kit.request(job_id=None)
    answer = decide(replace(bare, gpu=None), kit.cluster(kit.node("n", [kit.resident("a")])), kit.Predictor())
    assert (answer.decision, answer.job_id) == ("share", "")
    assert answer.explanation.count("The job shares n-0 with a") == 1
