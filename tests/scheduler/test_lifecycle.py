"""A trial: one epoch of each, then final or undone with what must not be tried again."""

from types import SimpleNamespace

import pytest

from eaco_datasets.errors import InputError
from eaco_scheduler import decide
from eaco_scheduler.cluster import ClusterState
from eaco_scheduler.history import History
from eaco_scheduler.lifecycle import ObservedEpoch, Trial, begin, leave, observe, record, resolve, resume
from eaco_scheduler.settings import PlacementSettings

SETTINGS = PlacementSettings()


def _begin(kit: SimpleNamespace, cluster: ClusterState, num_gpus: int = 1, **job: float) -> Trial:
    request = kit.request(num_gpus, **job)
    decision = decide(request, cluster, kit.Predictor())
    assert decision.decision == "share"
    return begin(decision, request, cluster, SETTINGS)


def _pair(kit: SimpleNamespace) -> Trial:
    return _begin(kit, kit.cluster(kit.node("n", [kit.resident("a", deadline_s=1200.0)])))


def test_it_is_final_when_every_deadline_holds_as_observed(kit: SimpleNamespace) -> None:
    trial = _pair(kit)
    assert trial.members == trial.missing == ("a", "new")
    trial = observe(trial, ObservedEpoch("a", 105.0, 9.0, 1100.0))
    assert trial.missing == ("new",)
    trial = observe(trial, ObservedEpoch("new", 300.0, 9.0, None))
    assert resolve(trial, SETTINGS).state == "final"


def test_it_is_undone_when_one_does_not_and_says_why(kit: SimpleNamespace) -> None:
    trial = observe(_pair(kit), ObservedEpoch("a", 150.0, 9.0, 1050.0))
    ended = resolve(observe(trial, ObservedEpoch("new", 100.0, 9.0)), SETTINGS)
    assert ended.state == "undone"
    assert ended.reasons == ("deadline of job a: P(miss) 1.00 > 0.05",)
    assert ended.excluded == {("new", frozenset({"a"}))}


def test_only_the_company_that_failed_is_excluded(kit: SimpleNamespace) -> None:
    cluster = kit.cluster(kit.node("n", [kit.resident("a", deadline_s=2000.0)], [kit.resident("b")]))
    trial = _begin(kit, cluster, 2)
    for job_id in ("a", "b", "new"):
        trial = observe(trial, ObservedEpoch(job_id, 400.0, 9.0, 1600.0 if job_id == "a" else None))
    assert resolve(trial, SETTINGS).excluded == {("new", frozenset({"a"}))}


def test_the_jobs_own_deadline_fails_on_every_gpu(kit: SimpleNamespace) -> None:
    trial = _begin(kit, kit.cluster(kit.node("n", [kit.resident("a")], [kit.resident("b")])), 2, deadline_s=2000.0)
    for job_id in ("a", "b", "new"):
        trial = observe(trial, ObservedEpoch(job_id, 400.0, 9.0, 1600.0 if job_id == "new" else None))
    assert resolve(trial, SETTINGS).excluded == {("new", frozenset({"a"})), ("new", frozenset({"b"}))}


@pytest.mark.parametrize(("left", "state"), [(0.0, "final"), (1.0, "undone")])
def test_a_deadline_that_is_over_either_way_undoes_nothing(kit: SimpleNamespace, left: float, state: str) -> None:
    """Resident a ends an epoch one second late: an undo could only help it if that was not its last."""
    trial = observe(_pair(kit), ObservedEpoch("a", 105.0, left, -1.0))
    assert resolve(observe(trial, ObservedEpoch("new", 100.0, 9.0)), SETTINGS).state == state


def test_a_trial_is_taken_up_from_the_state_alone(kit: SimpleNamespace) -> None:
    wide = kit.resident("w", deadline_s=2000.0)
    new = kit.resident("new", phase="provisional")
    cluster = kit.cluster(kit.node("n", [wide], [wide, new], [new, kit.resident("b")]))
    trial = resume(new, cluster, kit.Predictor(), SETTINGS)
    assert (trial.gpus, trial.members, trial.missing) == (("n-1", "n-2"), ("b", "new", "w"), ("b", "new", "w"))
    assert trial.spread_wider == {"w"}
    for job_id in trial.members:
        trial = observe(trial, ObservedEpoch(job_id, 400.0, 9.0, 1600.0 if job_id == "w" else None))
    ended = resolve(trial, SETTINGS)
    assert (ended.state, ended.excluded) == ("undone", {("new", frozenset({"w"}))})
    with pytest.raises(InputError, match="job 'new' cannot go on: no rows") as caught:
        resume(new, cluster, kit.Predictor(abstain=lambda _: "no rows"), SETTINGS)
    assert caught.value.where == "/cluster"


def test_a_deadline_with_unknown_rest_does_not_hold(kit: SimpleNamespace) -> None:
    trial = observe(_pair(kit), ObservedEpoch("a", 100.0, None, 1100.0))
    ended = resolve(observe(trial, ObservedEpoch("new", 100.0)), SETTINGS)
    assert "cannot be predicted" in ended.reasons[0]


def test_who_has_ended_is_not_waited_for(kit: SimpleNamespace) -> None:
    trial = leave(_pair(kit), "a")
    assert trial.missing == ("new",)
    assert resolve(observe(trial, ObservedEpoch("new", 999.0, 9.0)), SETTINGS).state == "final"
    assert leave(_pair(kit), "new").state == "final"


def test_illegal_transitions_raise(kit: SimpleNamespace) -> None:
    trial = _pair(kit)
    final = leave(trial, "new")
    undone = resolve(observe(observe(trial, ObservedEpoch("a", 1e5, 9.0, 10.0)), ObservedEpoch("new", 100.0)), SETTINGS)
    assert undone.state == "undone"
    for ended in (final, undone):
        with pytest.raises(InputError, match="expected a provisional placement"):
            observe(ended, ObservedEpoch("a", 100.0))
        with pytest.raises(InputError, match="cannot leave"):
            leave(ended, "a")
        with pytest.raises(InputError, match="cannot resolve"):
            resolve(ended, SETTINGS)
    with pytest.raises(InputError, match="no epoch seen of a, new"):
        resolve(trial, SETTINGS)
    with pytest.raises(InputError, match="no member"):
        observe(trial, ObservedEpoch("zed", 100.0))
    with pytest.raises(InputError, match="no member"):
        leave(trial, "zed")


def test_only_a_share_on_the_state_it_was_decided_on_is_a_trial(kit: SimpleNamespace) -> None:
    idle = kit.cluster(kit.node("n", []))
    alone = decide(kit.request(), idle, kit.Predictor())
    with pytest.raises(InputError, match="nothing to observe"):
        begin(alone, kit.request(), idle, SETTINGS)
    shared = decide(kit.request(), kit.cluster(kit.node("n", [kit.resident("a")])), kit.Predictor())
    with pytest.raises(InputError, match="version"):
        begin(shared, kit.request(), kit.cluster(kit.node("n", [kit.resident("a")]), version=4), SETTINGS)


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"epoch_s": 0.0}, "/epoch_s"),
        ({"epoch_s": 1.0, "remaining_epochs": -1.0}, "/remaining_epochs"),
        ({"epoch_s": 1.0, "deadline_s": float("nan")}, "/deadline_s"),
    ],
)
def test_impossible_epochs_name_their_field(fields: dict[str, float], where: str) -> None:
    with pytest.raises(InputError) as caught:
        ObservedEpoch("a", **fields)
    assert caught.value.where == where


def test_only_an_unambiguous_epoch_enters_the_history(kit: SimpleNamespace) -> None:
    history = History()
    epoch = ObservedEpoch("new", 130.0, 9.0)
    assert record(_pair(kit), epoch, history)
    seen = history.observed(_pair(kit).sets[0], 1)
    assert seen is not None
    assert seen.epoch_s == 130.0
    mixed = _begin(kit, kit.cluster(kit.node("n", [kit.resident("a")], [kit.resident("b")])), 2)
    assert not record(mixed, epoch, history)
    wide = kit.resident("w")
    trial = _begin(kit, kit.cluster(kit.node("n", [wide], [wide])))
    assert not record(trial, ObservedEpoch("w", 130.0), history)
    assert not record(leave(_pair(kit), "a"), epoch, history)
    assert not record(_pair(kit), ObservedEpoch("zed", 130.0), history)
    assert len(history) == 1
