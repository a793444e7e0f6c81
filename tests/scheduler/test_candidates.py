"""Candidate sets: thresholds on each GPU, memory by peak, no enumeration of subsets, a reason for every refusal."""

from dataclasses import replace
from types import SimpleNamespace

from eaco_datasets.gpus import gpu
from eaco_scheduler.candidates import Candidates, find_candidates, find_exclusive
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


def test_exclusive_placement_prefers_awake_nodes_and_small_gaps(kit: SimpleNamespace) -> None:
    asleep = kit.node("a", [], state="asleep")
    idle = kit.node("b", [], [], state="idle")
    wide = kit.node("c", [kit.resident("x")], [], [])
    narrow = kit.node("d", [kit.resident("y")], [])
    for nodes, chosen in (
        ((asleep, idle, wide, narrow), "d-1"),
        ((asleep, idle, wide), "c-1"),
        ((asleep, idle), "b-0"),
        ((asleep,), "a-0"),
    ):
        found = find_exclusive(kit.request(), kit.cluster(*nodes), SETTINGS)
        assert found is not None
        assert found.gpus == (chosen,)


def test_exclusive_placement_needs_the_whole_memory_and_quiet_gpus(kit: SimpleNamespace) -> None:
    quiet = kit.node("n", [])
    memory = gpu("v100").memory_mib
    assert find_exclusive(kit.request(mem=memory), kit.cluster(quiet), SETTINGS) is not None
    assert find_exclusive(kit.request(mem=memory + 1), kit.cluster(quiet), SETTINGS) is None
    busy = replace(quiet, gpus=(replace(quiet.gpus[0], core_util_pct=90.0),))
    assert find_exclusive(kit.request(), kit.cluster(busy), SETTINGS) is None
    assert find_exclusive(kit.request(), kit.cluster(quiet), SETTINGS, reserved=frozenset({"n-0"})) is None


def test_asleep_nodes_are_no_part_of_a_shared_set(kit: SimpleNamespace) -> None:
    cluster = kit.cluster(kit.node("m", [kit.resident("a")]), kit.node("n", [], state="asleep"))
    assert _find(kit.request(2), cluster).sets == ()
    woken = find_exclusive(kit.request(2), kit.cluster(kit.node("m", []), kit.node("n", [], state="asleep")), SETTINGS)
    assert woken is not None
    assert woken.gpus == ("m-0", "n-0")
