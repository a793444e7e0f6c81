"""Idle GPUs: which are idle at all, and which of them a job alone gets."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from eaco_datasets.gpus import gpu
from eaco_scheduler.exclusive import find_exclusive
from eaco_scheduler.settings import PlacementSettings

SETTINGS = PlacementSettings()


def test_awake_nodes_and_small_gaps_come_first(kit: SimpleNamespace) -> None:
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
        assert [found.gpus for found in find_exclusive(kit.request(), kit.cluster(*nodes), SETTINGS)] == [(chosen,)]


def test_a_larger_job_wakes_nodes_last(kit: SimpleNamespace) -> None:
    cluster = kit.cluster(kit.node("m", []), kit.node("n", [], state="asleep"))
    assert [found.gpus for found in find_exclusive(kit.request(2), cluster, SETTINGS)] == [("m-0", "n-0")]


def test_the_whole_memory_counts_and_a_reserved_gpu_does_not(kit: SimpleNamespace) -> None:
    quiet = kit.cluster(kit.node("n", []))
    memory_mib = gpu("v100").memory_mib
    assert find_exclusive(kit.request(mem=memory_mib), quiet, SETTINGS)
    assert find_exclusive(kit.request(mem=memory_mib + 1), quiet, SETTINGS) == ()
    assert find_exclusive(kit.request(), quiet, SETTINGS, reserved=frozenset({"n-0"})) == ()


@pytest.mark.parametrize(
    ("core_pct", "mem_pct", "is_idle"),
    [(None, None, True), (4.9, 0.0, True), (5.0, 0.0, False), (0.0, 5.0, False), (79.0, 0.0, False)],
)
def test_a_gpu_that_computes_for_nobody_known_is_not_idle(
    kit: SimpleNamespace, core_pct: float | None, mem_pct: float | None, is_idle: bool
) -> None:
    node = kit.node("n", [])
    loaded = replace(node, gpus=(replace(node.gpus[0], core_util_pct=core_pct, mem_util_pct=mem_pct),))
    assert bool(find_exclusive(kit.request(), kit.cluster(loaded), SETTINGS)) is is_idle
    lenient = replace(SETTINGS, idle_threshold_pct=80.0)
    assert find_exclusive(kit.request(), kit.cluster(loaded), lenient)


def test_each_gpu_type_offers_its_best_set(kit: SimpleNamespace) -> None:
    cluster = kit.cluster(
        kit.node("a", [], state="asleep"), kit.node("b", [], [], gpu="t4"), kit.node("c", [], gpu="t4")
    )
    assert [found.gpus for found in find_exclusive(kit.request(gpu=None), cluster, SETTINGS)] == [("c-0",), ("a-0",)]
