"""Reservations: the set that empties first, never one on which something unknown runs."""

from dataclasses import replace
from types import SimpleNamespace

from eaco_scheduler.cluster import ClusterState, Node
from eaco_scheduler.decision import Reservation
from eaco_scheduler.reservation import could_ever_fit, reserve
from eaco_scheduler.settings import PlacementSettings

SETTINGS = PlacementSettings(max_wait_s=10.0)


def _loaded(node: Node, *uuids: str) -> Node:
    """Something that is no known job runs on these GPUs."""
    return replace(
        node, gpus=tuple(replace(g, core_util_pct=95.0, mem_util_pct=0.0) if g.uuid in uuids else g for g in node.gpus)
    )


def _cluster(kit: SimpleNamespace, *foreign: str) -> ClusterState:
    """f-0 and f-1 hold no job, f-2 and f-3 do."""
    return kit.cluster(_loaded(kit.node("f", [], [], [kit.resident("a")], [kit.resident("b")]), *foreign))


def test_gpus_that_nobody_here_can_empty_are_not_reserved(kit: SimpleNamespace) -> None:
    request = kit.request(2, waited_s=11.0)
    quiet, foreign = _cluster(kit), _cluster(kit, "f-0", "f-1")
    assert reserve(request, quiet, SETTINGS) == Reservation("new", ("f-0", "f-1"), 0.0)
    assert reserve(request, foreign, SETTINGS) == Reservation("new", ("f-2", "f-3"), 0.0)
    assert reserve(kit.request(3, waited_s=11.0), foreign, SETTINGS) is None
    assert could_ever_fit(kit.request(4), foreign, SETTINGS)


def test_a_reservation_is_kept_unless_something_unknown_runs_on_it(kit: SimpleNamespace) -> None:
    request = kit.request(2, waited_s=11.0)
    held = Reservation("new", ("f-1", "f-3"), 3.0)
    assert reserve(request, _cluster(kit), SETTINGS, [held], now_s=9.0) == held
    assert reserve(request, _cluster(kit, "f-0"), SETTINGS, [held], now_s=9.0) == held
    assert reserve(request, _cluster(kit, "f-1"), SETTINGS, [held], now_s=9.0) == Reservation(
        "new", ("f-0", "f-2"), 9.0
    )
