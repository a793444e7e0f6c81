"""The decision: one batched prediction, deadlines by probability, exclusive after sharing, waiting after that."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from eaco_datasets.errors import EacoError, InputError
from eaco_datasets.gpus import gpu
from eaco_datasets.types import CoLocation, SoloProfile
from eaco_predictor.prediction import Estimate, SetPrediction
from eaco_scheduler import decide
from eaco_scheduler.cluster import ClusterState
from eaco_scheduler.decision import JobRequest, Reservation
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
    answer = decide(kit.request(2, parallelism="model", mem=6000.0), cluster, predictor)
    assert answer.decision == "share"
    assert len(predictor.calls) == 1
    alone = [where.jobs[0].solo.mem_mib for where in predictor.calls[0] if len(where.jobs) == 1]
    assert 3000.0 in alone
    assert answer.prediction is not None
    assert answer.prediction.mem_mib is not None
    free_mib = gpu("v100").memory_mib * 0.9 - 2000.0
    assert 5000.0 <= answer.prediction.mem_mib.mean <= 5000.0 + 0.1 * free_mib


def _over_full(where: CoLocation) -> float:
    return float(sum(job.solo.mem_mib or 0.0 for job in where.jobs) > gpu(where.gpu).memory_mib)


def test_a_model_parallel_job_fits_where_an_even_split_would_not(kit: SimpleNamespace) -> None:
    """12 000 and 1 000 MiB are used of 16 384 each; 6 000 on either would overfill the first."""
    cluster = kit.cluster(kit.node("n", [kit.resident("a", mem=12_000.0)], [kit.resident("b", mem=1000.0)]))
    request = kit.request(2, parallelism="model", mem=12_000.0)
    answer = decide(request, cluster, kit.Predictor(oom=_over_full))
    assert (answer.decision, set(answer.gpus)) == ("share", {"n-0", "n-1"})
    assert decide(replace(request, parallelism="data"), cluster, kit.Predictor(oom=_over_full)).decision == "wait"


def test_a_risk_at_the_share_that_a_set_asks_for_refuses_that_set_only(kit: SimpleNamespace) -> None:
    """Beside t (14 000 MiB used) the job fills the set; beside the other two it needs half of what is free."""
    mems = {"t": 14_000.0, "u": 5000.0, "v": 2000.0}
    cluster = kit.cluster(
        kit.node(
            "n", *[[kit.resident(name, mem=mem, util=60.0 - place)] for place, (name, mem) in enumerate(mems.items())]
        )
    )
    careful = kit.Predictor(oom=lambda where: float(sum(job.solo.mem_mib or 0.0 for job in where.jobs) > 14_000.0))
    answer = decide(kit.request(2, util=5.0, parallelism="model", mem=10_400.0), cluster, careful)
    assert len(careful.calls) == 1
    assert {item.co_residents: item.refused is None for item in answer.alternatives} == {
        ("t", "u"): False,
        ("u", "v"): True,
    }


class _Metered:
    """A predictor that states energy and node power for every set."""

    def __init__(self, base: object) -> None:
        self.base = base

    def predict(self, sets: list[CoLocation]) -> list[SetPrediction]:
        known = Estimate(10.0, 9.0, 11.0)
        found: list[SetPrediction] = self.base.predict(sets)  # type: ignore[attr-defined]
        return [replace(answer, node_power_w=known, energy_j_per_epoch=known) for answer in found]


@pytest.mark.parametrize(
    ("layout", "num_gpus", "node_power", "energy"),
    [
        ({"n": ["a", "a"]}, 2, True, True),
        ({"n": ["a", "a"]}, 1, False, False),  # a runs on a second GPU as well
        ({"n": ["a", ""]}, 2, False, False),
        ({"n": ["a"], "o": ["a"]}, 2, False, True),
        ({"n": [""]}, 1, True, True),
        ({"n": [""], "o": [""]}, 2, False, True),
    ],
)
def test_energy_and_node_power_are_told_only_of_jobs_on_the_same_gpus(
    kit: SimpleNamespace, layout: dict[str, list[str]], num_gpus: int, node_power: bool, energy: bool
) -> None:
    nodes = [kit.node(name, *[[kit.resident(job)] if job else [] for job in held]) for name, held in layout.items()]
    answer = decide(kit.request(num_gpus), kit.cluster(*nodes), _Metered(kit.Predictor()))
    assert answer.decision != "wait"
    assert answer.prediction is not None
    assert (answer.prediction.node_power_w is not None) is node_power
    assert (answer.prediction.energy_j_per_epoch is not None) is energy


def test_the_same_company_at_another_load_is_the_same_prediction(kit: SimpleNamespace) -> None:
    wide = kit.resident("a")
    node = kit.node("n", [wide], [wide])
    loads = tuple(replace(g, core_util_pct=30.0 + place, mem_util_pct=9.0) for place, g in enumerate(node.gpus))
    answer = decide(kit.request(2), kit.cluster(replace(node, gpus=loads)), _Metered(kit.Predictor()))
    assert answer.prediction is not None
    assert answer.prediction.energy_j_per_epoch == Estimate(10.0, 9.0, 11.0)


def _either_type(kit: SimpleNamespace) -> tuple[JobRequest, ClusterState]:
    """A job that takes any GPU, of which nothing is known, and an idle one of each of two types."""
    bare = kit.request(gpu=None, deadline_s=None)
    request = replace(bare, job=replace(bare.job, solo=SoloProfile()))
    return request, kit.cluster(kit.node("a", [], gpu="k80"), kit.node("b", [], gpu="a100-80"))


def test_alone_it_goes_where_its_own_forecast_holds(kit: SimpleNamespace) -> None:
    request, cluster = _either_type(kit)
    assert decide(request, cluster, kit.Predictor()).gpus == ("a-0",)
    small = kit.Predictor(oom=lambda where: float(where.gpu == "k80"))
    answer = decide(request, cluster, small)
    assert (answer.decision, answer.gpus) == ("exclusive", ("b-0",))
    assert answer.prediction is not None
    assert answer.prediction.oom_probability == 0.0
    assert "Idle k80 GPUs are passed over: Even alone its out-of-memory risk is 1.00." in answer.explanation
    assert len(small.calls) == 1
    unknown = kit.Predictor(abstain=lambda where: "no rows" if where.gpu == "k80" else None)
    assert decide(request, cluster, unknown).gpus == ("b-0",)


def test_alone_with_a_doubt_everywhere_it_takes_the_first(kit: SimpleNamespace) -> None:
    request, cluster = _either_type(kit)
    answer = decide(request, cluster, kit.Predictor(oom=lambda _: 1.0))
    assert (answer.decision, answer.gpus) == ("exclusive", ("a-0",))
    assert "passed over" not in answer.explanation
    assert "Even alone its out-of-memory risk is 1.00." in answer.explanation


def test_idle_gpus_that_are_taken_are_not_listed_as_refused(kit: SimpleNamespace) -> None:
    cluster = kit.cluster(kit.node("n", [kit.resident("a", util=99.0)], []), kit.node("o", [], []))
    answer = decide(kit.request(), cluster, kit.Predictor())
    assert (answer.decision, answer.gpus) == ("exclusive", ("n-1",))
    assert [refusal.gpus for refusal in answer.refusals] == [("n-0",)]
    assert answer.explanation.count("not considered") == 1


@pytest.mark.parametrize(("deadline_s", "text"), [(9e9, "every deadline holds"), (None, "no job has a deadline")])
def test_deadlines_hold_only_where_there_are_any(kit: SimpleNamespace, deadline_s: float | None, text: str) -> None:
    cluster = kit.cluster(kit.node("n", [kit.resident("a")]))
    told = decide(kit.request(deadline_s=deadline_s), cluster, kit.Predictor()).explanation
    for other in ("every deadline holds", "no job has a deadline"):
        assert (other in told) is (other == text)


def test_a_resident_with_nothing_left_to_do_cannot_be_made_late(kit: SimpleNamespace) -> None:
    done = kit.resident("a", deadline_s=-1.0, remaining_epochs=0.0)
    assert decide(kit.request(), kit.cluster(kit.node("n", [done])), kit.Predictor()).decision == "share"
    late = kit.resident("a", deadline_s=-1.0, remaining_epochs=1.0)
    assert decide(kit.request(), kit.cluster(kit.node("n", [late])), kit.Predictor()).decision == "wait"


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
