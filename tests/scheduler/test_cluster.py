"""Cluster states and requests: what contradicts itself is refused at its JSON pointer."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from eaco_datasets.errors import InputError, UnknownNameError
from eaco_datasets.types import NodeSpec, SoloProfile
from eaco_scheduler.cluster import ClusterState, Gpu, Node, Resident


def _one_gpu(*residents: Resident, **gpu: float) -> ClusterState:
    return ClusterState((Node("n", "v100", (Gpu("u", residents, **gpu),)),))


def _with_job(kit: SimpleNamespace, **fields: object) -> ClusterState:
    found = kit.resident("a")
    return _one_gpu(replace(found, job=replace(found.job, **fields)))


_BAD: list[tuple[str, Callable[[SimpleNamespace], object]]] = [
    ("/cluster/version", lambda k: ClusterState((k.node("n", []),), -1)),
    ("/cluster/nodes/0/node_id", lambda k: k.cluster(k.node(" ", []))),
    ("/cluster/nodes/1/node_id", lambda k: k.cluster(k.node("n", []), replace(k.node("m", []), node_id="n"))),
    ("/cluster/nodes/0/gpu", lambda k: k.cluster(k.node("n", [], gpu="v1000"))),
    ("/cluster/nodes/0/gpu", lambda k: k.cluster(k.node("n", [], gpu="cpu-2core"))),
    ("/cluster/nodes/0/state", lambda k: k.cluster(k.node("n", [], state="off"))),
    ("/cluster/nodes/1/state", lambda k: k.cluster(k.node("m", []), k.node("n", [k.resident()], state="asleep"))),
    ("/cluster/nodes/0/state", lambda k: k.cluster(k.node("n", [k.resident()], state="idle"))),
    ("/cluster/nodes/0/gpus", lambda k: k.cluster(k.node("n"))),
    ("/cluster/nodes/0/gpus/0/uuid", lambda _: ClusterState((Node("n", "v100", (Gpu(""),)),))),
    ("/cluster/nodes/0/gpus/1/uuid", lambda _: ClusterState((Node("n", "v100", (Gpu("u"), Gpu("u"))),))),
    ("/cluster/nodes/0/gpus/0/core_util_pct", lambda _: _one_gpu(core_util_pct=101.0)),
    ("/cluster/nodes/0/gpus/0/core_util_pct", lambda _: _one_gpu(core_util_pct=float("nan"))),
    ("/cluster/nodes/0/gpus/0/mem_util_pct", lambda _: _one_gpu(mem_util_pct=-1.0)),
    ("/cluster/nodes/0/gpus/0/residents", lambda k: _one_gpu(*[k.resident(str(i)) for i in range(5)])),
    ("/cluster/nodes/0/gpus/0/residents/1/job_id", lambda k: _one_gpu(k.resident(), k.resident())),
    ("/cluster/nodes/0/gpus/0/residents/0/job_id", lambda k: _with_job(k, job_id=None)),
    ("/cluster/nodes/0/gpus/0/residents/0/phase", lambda k: _one_gpu(k.resident(phase="trial"))),
    ("/cluster/nodes/0/gpus/0/residents/0/parallelism", lambda k: _one_gpu(k.resident(parallelism="both"))),
    ("/cluster/nodes/0/gpus/0/residents/0/placed_epoch", lambda k: _one_gpu(replace(k.resident(), placed_epoch=-1))),
    ("/cluster/nodes/0/gpus/0/residents/0/batch_size", lambda k: _with_job(k, batch_size=0)),
    ("/cluster/nodes/0/gpus/0/residents/0/precision", lambda k: _with_job(k, precision="fp64")),
    ("/cluster/nodes/0/gpus/0/residents/0/remaining_epochs", lambda k: _with_job(k, remaining_epochs=-1.0)),
    ("/cluster/nodes/0/gpus/0/residents/0/deadline_s", lambda k: _with_job(k, deadline_s=float("inf"))),
    ("/cluster/nodes/0/gpus/0/residents/0/samples_per_epoch", lambda k: _with_job(k, samples_per_epoch=0.0)),
    ("/cluster/nodes/0/gpus/0/residents/0/solo/mem_mib", lambda k: _with_job(k, solo=SoloProfile(mem_mib=-1.0))),
    (
        "/cluster/nodes/0/gpus/0/residents/0/solo/gpu_util_pct",
        lambda k: _with_job(k, solo=SoloProfile(gpu_util_pct=130.0)),
    ),
    (
        "/cluster/nodes/0/gpus/0/residents/1/exclusive",
        lambda k: _one_gpu(k.resident(), k.resident("b", exclusive=True)),
    ),
    ("/cluster/nodes/0/gpus/1/residents/0", lambda k: k.cluster(k.node("n", [k.resident()], [k.resident(util=5.0)]))),
    (
        "/cluster/nodes/1/gpus/0/residents/0",
        lambda k: k.cluster(k.node("m", [k.resident()]), k.node("n", [k.resident()], gpu="t4")),
    ),
    ("/cluster/nodes/0/server/cpu_idle_w", lambda k: k.cluster(k.node("n", [], server=NodeSpec(-1.0, 5.0)))),
    ("/cluster/nodes/0/server/cpu_busy_w", lambda k: k.cluster(k.node("n", [], server=NodeSpec(100.0, 50.0)))),
    ("/cluster/nodes/0/server/cpu_util_pct", lambda k: k.cluster(k.node("n", [], server=NodeSpec(1.0, 5.0, 120.0)))),
    ("/job/num_gpus", lambda k: k.request(0)),
    ("/job/parallelism", lambda k: k.request(parallelism="pipeline")),
    ("/job/waited_s", lambda k: k.request(waited_s=-1.0)),
    ("/job/gpu", lambda k: k.request(gpu="b9000")),
    ("/job/batch_size", lambda k: k.request(batch_size=-4)),
]


@pytest.mark.parametrize(("where", "build"), _BAD, ids=[f"{n}{where}" for n, (where, _) in enumerate(_BAD)])
def test_bad_states_are_refused_at_their_place(kit: SimpleNamespace, where: str, build: Callable[..., object]) -> None:
    with pytest.raises(InputError) as caught:
        build(kit)
    assert caught.value.where == where
    assert caught.value.expected
    assert "\n" not in str(caught.value)


def test_a_job_over_several_gpus_stands_on_each(kit: SimpleNamespace) -> None:
    both = kit.resident("a")
    state = kit.cluster(kit.node("n", [both], [both, kit.resident("b")], []))
    assert state.gpus_of("a") == ("n-0", "n-1")
    assert state.gpus_of("b") == ("n-1",)
    assert state.gpus_of("nobody") == ()


def test_gpus_are_found_by_uuid(kit: SimpleNamespace) -> None:
    state = kit.cluster(kit.node("n", [], [kit.resident()]))
    assert state.gpu("n-1").residents[0].job_id == "a"
    with pytest.raises(UnknownNameError, match="n-7"):
        state.gpu("n-7")


def test_aliases_of_a_gpu_type_are_one_type(kit: SimpleNamespace) -> None:
    shared = kit.resident("a")
    state = kit.cluster(kit.node("m", [shared], gpu="v100"), kit.node("n", [shared], gpu="v100-sxm"))
    assert len(state.gpus_of("a")) == 2
