"""Candidate sets: thresholds on each GPU, memory by peak, no enumeration of subsets, a reason for every refusal."""

from dataclasses import replace
from types import SimpleNamespace

from eaco_datasets.gpus import gpu
from eaco_scheduler.candidates import Candidates, find_candidates
from eaco_scheduler.cluster import ClusterState
from eaco_scheduler.decision import JobRequest
from eaco_scheduler.settings import PlacementSettings

SETTINGS = PlacementSettings()


def _find(request: JobRequest, cluster: ClusterState, **settings: float) -> Candidates:
    return find_candidates(request, cluster, replace(SETTINGS, **settings))


def _gpus(found: Candidates) -> list[tuple[str, ...]]:
    return [candidate.gpus for candidate in found.sets]


def _reason(found: Candidates, uuid: str) -> str:
    return next(refusal.reason for refusal in found.refusals if uuid in refusal.gpus)


def test_a_thousand_alike_gpus_are_one_candidate(kit: SimpleNamespace) -> None:
    shared = kit.resident("a")
    cluster = kit.cluster(kit.node("n", *[[shared]] * 1000))
    for size in (1, 2, 500, 1000):
        found = _find(kit.request(size), cluster)
        assert len(found.sets) == 1
        assert len(found.sets[0].gpus) == len(set(found.sets[0].gpus)) == size


def test_sets_grow_with_gpus_not_with_subsets(kit: SimpleNamespace) -> None:
    cluster = kit.cluster(kit.node("n", *[[kit.resident(f"j{place:03}")] for place in range(64)]))
    assert len(_find(kit.request(8), cluster).sets) == 64 - 8 + 1  # 4.4e9 subsets


def test_windows_join_gpus_of_like_load(kit: SimpleNamespace) -> None:
    light, heavy = kit.resident("a", util=10.0), kit.resident("b", util=60.0)
    cluster = kit.cluster(kit.node("n", [light], [heavy], [light], [heavy]))
    assert _gpus(_find(kit.request(2), cluster)) == [("n-1", "n-3"), ("n-1", "n-0"), ("n-0", "n-2")]


def test_gpus_of_the_same_residents_make_sets_whatever_their_load(kit: SimpleNamespace) -> None:
    """Interleaved loads would pair GPUs of a only with GPUs of b; the sets of one company each are there as well."""
    a, b = kit.resident("a"), kit.resident("b")
    node = kit.node("n", [a], [a], [b], [b])
    loads = (50.0, 48.0, 49.0, 47.0)
    gpus = tuple(replace(g, core_util_pct=pct, mem_util_pct=9.0) for g, pct in zip(node.gpus, loads, strict=True))
    found = {frozenset(gpus) for gpus in _gpus(_find(kit.request(2), kit.cluster(replace(node, gpus=gpus))))}
    assert found == {frozenset(pair) for pair in (("n-0", "n-2"), ("n-2", "n-1"), ("n-1", "n-3"))} | {
        frozenset({"n-0", "n-1"}),
        frozenset({"n-2", "n-3"}),
    }


def test_every_gpu_must_be_under_the_thresholds_by_itself(kit: SimpleNamespace) -> None:
    """The paper's listing compares a partial sum, so a set with one failed GPU can pass: not here."""
    low, high = kit.resident("a", util=20.0), kit.resident("b", util=85.0)
    found = _find(kit.request(2), kit.cluster(kit.node("n", [low], [high])))
    assert found.sets == ()
    assert "85.0 % is not under 80 %" in _reason(found, "n-1")


def test_a_threshold_is_strict_and_looks_at_the_gpu_before_the_job(kit: SimpleNamespace) -> None:
    cluster = kit.cluster(kit.node("n", [kit.resident("a", util=79.9)]))
    request = kit.request(util=99.0)
    assert _gpus(_find(request, cluster)) == [("n-0",)]
    assert _find(request, cluster, core_threshold_pct=79.9).sets == ()
    assert "memory utilisation" in _reason(_find(request, cluster, mem_threshold_pct=30.0), "n-0")


def test_measured_utilisation_goes_before_solo_profiles(kit: SimpleNamespace) -> None:
    node = kit.node("n", [kit.resident("a", util=95.0)])
    measured = replace(node, gpus=(replace(node.gpus[0], core_util_pct=40.0, mem_util_pct=10.0),))
    assert _find(kit.request(), kit.cluster(node)).sets == ()
    assert _gpus(_find(kit.request(), kit.cluster(measured))) == [("n-0",)]


def test_unknown_utilisation_is_not_zero(kit: SimpleNamespace) -> None:
    found = _find(kit.request(), kit.cluster(kit.node("n", [kit.resident("a", util=None)])))
    assert "core utilisation unknown" in _reason(found, "n-0")


def test_memory_adds_up_peaks_under_the_headroom(kit: SimpleNamespace) -> None:
    room = gpu("v100").memory_mib * 0.9
    cluster = kit.cluster(kit.node("n", [kit.resident("a", mem=room - 3000.0)]))
    assert _gpus(_find(kit.request(mem=3000.0), cluster)) == [("n-0",)]
    found = _find(kit.request(mem=3001.0), cluster)
    assert "3001 MiB asked, 3000 MiB free" in _reason(found, "n-0")


def test_a_model_parallel_job_sums_memory_over_its_set(kit: SimpleNamespace) -> None:
    room = gpu("v100").memory_mib * 0.9
    cluster = kit.cluster(kit.node("n", [kit.resident("a", mem=room - 1000.0)], [kit.resident("b", mem=room - 5000.0)]))
    assert len(_find(kit.request(2, parallelism="model", mem=5999.0), cluster).sets) == 1
    assert _find(kit.request(2, parallelism="model", mem=6001.0), cluster).sets == ()
    assert _find(kit.request(2, parallelism="data", mem=5000.0), cluster).sets == ()


def test_a_model_parallel_job_finds_the_roomiest_set(kit: SimpleNamespace) -> None:
    room = gpu("v100").memory_mib * 0.9
    tight = [[kit.resident(f"t{n}", util=util, mem=room - 100.0)] for n, util in enumerate((60.0, 40.0))]
    wide = [[kit.resident(f"w{n}", util=util, mem=room - 9000.0)] for n, util in enumerate((50.0, 30.0))]
    found = _find(kit.request(2, parallelism="model", mem=17000.0), kit.cluster(kit.node("n", *tight, *wide)))
    assert [set(gpus) for gpus in _gpus(found)] == [{"n-2", "n-3"}]


def test_a_model_parallel_resident_occupies_its_share(kit: SimpleNamespace) -> None:
    room = gpu("v100").memory_mib * 0.9
    spread = kit.resident("a", parallelism="model", mem=2 * room - 4000.0)
    cluster = kit.cluster(kit.node("n", [spread], [spread]))
    assert len(_find(kit.request(mem=2000.0), cluster).sets) == 1
    assert _find(kit.request(mem=2001.0), cluster).sets == ()


def test_a_model_parallel_resident_leans_on_the_roomier_gpu(kit: SimpleNamespace) -> None:
    """Spread evenly it would overfill n-0; it takes a share of each GPU's free memory, so some is left on both."""
    room = gpu("v100").memory_mib * 0.9
    spread = kit.resident("m", parallelism="model", mem=9000.0)
    cluster = kit.cluster(kit.node("n", [spread, kit.resident("a", mem=room - 2000.0)], [spread]))
    left = 1.0 - 9000.0 / (2000.0 + room)
    assert _gpus(_find(kit.request(mem=0.99 * left * 2000.0, util=5.0), cluster)) == [("n-0",), ("n-1",)]
    assert _gpus(_find(kit.request(mem=1.01 * left * 2000.0, util=5.0), cluster)) == [("n-1",)]
    assert _gpus(_find(kit.request(mem=1.01 * left * room, util=5.0), cluster)) == []


def test_a_full_gpu_takes_no_part_of_a_model_parallel_job(kit: SimpleNamespace) -> None:
    cluster = kit.cluster(kit.node("n", [kit.resident("a", mem=15_500.0)], [kit.resident("b")]))
    found = _find(kit.request(2, parallelism="model", mem=1000.0), cluster)
    assert found.sets == ()
    assert "nothing free under the headroom" in _reason(found, "n-0")


def test_unknown_memory_of_a_model_parallel_job_is_refused(kit: SimpleNamespace) -> None:
    cluster = kit.cluster(kit.node("n", [kit.resident("a")]))
    assert "memory peak unknown" in _reason(_find(kit.request(parallelism="model", mem=None), cluster), "n-0")


def test_exclusive_jobs_never_share_on_either_side(kit: SimpleNamespace) -> None:
    alone = _find(kit.request(), kit.cluster(kit.node("n", [kit.resident("a", exclusive=True)])))
    assert alone.sets == ()
    assert "job a is exclusive" in _reason(alone, "n-0")
    shy = _find(kit.request(exclusive=True), kit.cluster(kit.node("n", [kit.resident("a")])))
    assert (shy.sets, shy.groups) == ((), ())


def test_provisional_company_full_gpus_reserved_and_undone_ones_are_closed(kit: SimpleNamespace) -> None:
    four = [kit.resident(str(n), util=5.0) for n in range(4)]
    cluster = kit.cluster(
        kit.node("n", [kit.resident("p", phase="provisional")], four, [kit.resident("r")], [kit.resident("u")])
    )
    found = find_candidates(
        kit.request(),
        cluster,
        SETTINGS,
        excluded=frozenset({("new", frozenset({"u"})), ("other", frozenset({"r"}))}),
        reserved=frozenset({"n-2"}),
    )
    assert found.sets == ()
    told = [_reason(found, f"n-{place}") for place in range(4)]
    for text, reason in zip(("provisional", "4 jobs already", "reserved", "undone before"), told, strict=True):
        assert text in reason


def test_a_resident_on_trial_elsewhere_takes_no_second_partner(kit: SimpleNamespace) -> None:
    """One epoch of wide would be judged for both trials, and one broken deadline would undo both."""
    wide, on_trial = kit.resident("wide"), kit.resident("p", phase="provisional")
    cluster = kit.cluster(kit.node("n", [wide, on_trial], [wide], [kit.resident("other")]))
    found = _find(kit.request(), cluster)
    assert _gpus(found) == [("n-2",)]
    assert "job wide is beside a provisional job on another of its GPUs" in _reason(found, "n-1")


def test_a_reservation_closes_its_own_gpus_only(kit: SimpleNamespace) -> None:
    shared = kit.resident("a")
    found = find_candidates(
        kit.request(), kit.cluster(kit.node("n", [shared], [shared])), SETTINGS, reserved=frozenset({"n-0"})
    )
    assert _gpus(found) == [("n-1",)]


def test_empty_gpus_are_refused_only_for_what_keeps_them_from_being_idle(kit: SimpleNamespace) -> None:
    room = gpu("v100").memory_mib * 0.9
    node = kit.node("n", [], [])
    busy = replace(node, gpus=(replace(node.gpus[0], core_util_pct=60.0, mem_util_pct=1.0), node.gpus[1]))
    found = _find(kit.request(mem=room + 1.0), kit.cluster(busy))
    assert (found.sets, [refusal.gpus for refusal in found.refusals]) == ((), [("n-0",)])
    assert "no known job, yet 60.0 % utilisation, which is not under 5 %" in _reason(found, "n-0")
    assert _find(kit.request(), kit.cluster(kit.node("n", [], []))).refusals == ()


def test_a_busy_gpu_without_a_known_job_is_no_part_of_a_shared_set(kit: SimpleNamespace) -> None:
    node = kit.node("n", [kit.resident("a")], [])
    busy = replace(node, gpus=(node.gpus[0], replace(node.gpus[1], core_util_pct=0.0, mem_util_pct=40.0)))
    assert len(_find(kit.request(2), kit.cluster(node)).sets) == 1
    assert _find(kit.request(2), kit.cluster(busy)).sets == ()


def test_why_no_set_came_together_is_told_of_the_occupied_gpus(kit: SimpleNamespace) -> None:
    cluster = kit.cluster(kit.node("m", [kit.resident("a")], []), kit.node("o", [], [], []))
    few = _find(kit.request(3), cluster)
    assert [(refusal.gpus, refusal.reason) for refusal in few.refusals] == [
        (("m-0",), "they pass alone but make no set of 3 GPUs: at most 2 GPU(s) pass on one node")
    ]
    large = _find(kit.request(6), cluster)
    assert large.refusals[0].reason.endswith("no set of 6 GPUs: 5 GPU(s) pass in all")
    heavy = _find(kit.request(2, parallelism="model", mem=28_000.0), cluster)
    assert heavy.refusals[0].reason.endswith("no set of 2 GPUs: 28000 MiB asked in all, 27491 MiB free")


def test_only_the_requested_type_counts(kit: SimpleNamespace) -> None:
    cluster = kit.cluster(kit.node("m", [kit.resident("a")], gpu="t4"), kit.node("n", [kit.resident("b")]))
    assert _gpus(_find(kit.request(gpu="v100"), cluster)) == [("n-0",)]
    assert len(_find(kit.request(gpu=None), cluster).sets) == 2


def test_a_job_that_fits_a_node_never_spans_two(kit: SimpleNamespace) -> None:
    nodes = [kit.node(name, [kit.resident(name)], []) for name in ("m", "n")]
    full = kit.resident("x", util=90.0)
    cluster = kit.cluster(*nodes, kit.node("o", [full], [full], [full]))
    found = _find(kit.request(3), cluster)
    assert found.sets == ()
    assert any("no set of 3 GPUs" in refusal.reason for refusal in found.refusals)


def test_a_larger_job_takes_whole_nodes_first(kit: SimpleNamespace) -> None:
    big, small = kit.resident("a"), kit.resident("b")
    cluster = kit.cluster(kit.node("m", [small]), kit.node("n", [big], [big]), kit.node("o", [], []))
    found = _find(kit.request(3), cluster)
    assert [set(gpus) for gpus in _gpus(found)] == [{"n-0", "n-1", "o-0"}]
    assert _find(kit.request(3), cluster, span_nodes=False).sets == ()


def test_asleep_nodes_are_no_part_of_a_shared_set(kit: SimpleNamespace) -> None:
    cluster = kit.cluster(kit.node("m", [kit.resident("a")]), kit.node("n", [], state="asleep"))
    assert _find(kit.request(2), cluster).sets == ()
