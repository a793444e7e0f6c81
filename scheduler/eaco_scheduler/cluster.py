"""The cluster as the scheduler sees it: nodes, their GPUs and the jobs on them. Frozen; checked when built.

A job on several GPUs stands on each of them with the same ``job_id`` and the same content. ``version`` counts the
changes that a ledger made, so that a decision can be refused when the state has moved on since.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from eaco_datasets.errors import InputError, UnknownNameError
from eaco_datasets.types import MAX_JOBS, GpuSpec, Job, NodeSpec
from eaco_scheduler.checks import check_choice, check_count, check_job, check_number, check_server, check_text

Phase = Literal["provisional", "final"]
NodeState = Literal["active", "idle", "asleep"]
Parallelism = Literal["data", "model"]

PHASES: tuple[str, ...] = get_args(Phase)
NODE_STATES: tuple[str, ...] = get_args(NodeState)
PARALLELISMS: tuple[str, ...] = get_args(Parallelism)


@dataclass(frozen=True, slots=True)
class Resident:
    """A job on a GPU.

    ``placed_epoch`` is the number of epochs that the job had finished when it was placed. ``parallelism`` says what
    ``job.solo.mem_mib`` counts: the peak on each GPU (``data``) or the sum over the job's GPUs (``model``).
    """

    job: Job
    phase: Phase = "final"
    placed_epoch: float = 0.0
    parallelism: Parallelism = "data"

    @property
    def job_id(self) -> str:
        """The job's name in the cluster."""
        return self.job.job_id or ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, keyed by UUID; utilisation is the measured one of all its jobs together, ``None`` is unknown."""

    uuid: str
    residents: tuple[Resident, ...] = ()
    core_util_pct: float | None = None
    mem_util_pct: float | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """GPUs of one type on one server. ``asleep`` and ``idle`` nodes hold no job."""

    node_id: str
    gpu: str
    gpus: tuple[Gpu, ...]
    state: NodeState = "active"
    server: NodeSpec | None = None


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The whole cluster at one moment.

    Raises:
        InputError: for the first thing that is impossible or contradicts itself, at its JSON pointer
            (``/cluster/nodes/0/gpus/1/residents/2/...``).
    """

    nodes: tuple[Node, ...]
    version: int = 0

    def __post_init__(self) -> None:
        check_count(self.version, "/cluster/version", low=0)
        _check_names(self.nodes)
        for n, node in enumerate(self.nodes):
            _check_node(node, f"/cluster/nodes/{n}")
        _check_residents_agree(self)

    def placed(self) -> Iterator[tuple[Node, Gpu, Resident]]:
        """Every (node, GPU, resident) of the cluster, in order."""
        for node in self.nodes:
            for gpu in node.gpus:
                for resident in gpu.residents:
                    yield node, gpu, resident

    def gpus_of(self, job_id: str) -> tuple[str, ...]:
        """UUIDs of the GPUs that a job is on, in order; empty when it is nowhere."""
        return tuple(gpu.uuid for _, gpu, resident in self.placed() if resident.job_id == job_id)

    def gpu(self, uuid: str) -> Gpu:
        """The GPU of that UUID.

        Raises:
            UnknownNameError: nobody knows it.
        """
        for node in self.nodes:
            for gpu in node.gpus:
                if gpu.uuid == uuid:
                    return gpu
        known = [gpu.uuid for node in self.nodes for gpu in node.gpus]
        raise UnknownNameError("GPU", uuid, known)


def gpu_spec(name: str, where: str = "") -> GpuSpec:
    """Data-sheet figures of a GPU type by slug or alias.

    Raises:
        UnknownNameError: at ``where``.
    """
    from eaco_datasets.gpus import gpu

    try:
        return gpu(name)
    except InputError as error:
        if where:
            raise error.at(where) from None
        raise


def _check_names(nodes: tuple[Node, ...]) -> None:
    """Node ids and GPU UUIDs are unique."""
    seen_nodes: dict[str, int] = {}
    seen_gpus: dict[str, str] = {}
    for n, node in enumerate(nodes):
        check_text(node.node_id, f"/cluster/nodes/{n}/node_id")
        if node.node_id in seen_nodes:
            raise InputError(
                f"node {node.node_id!r} is already /cluster/nodes/{seen_nodes[node.node_id]}",
                where=f"/cluster/nodes/{n}/node_id",
                expected="each node once",
            )
        seen_nodes[node.node_id] = n
        for g, gpu in enumerate(node.gpus):
            where = f"/cluster/nodes/{n}/gpus/{g}"
            check_text(gpu.uuid, f"{where}/uuid")
            if gpu.uuid in seen_gpus:
                raise InputError(
                    f"GPU {gpu.uuid!r} is already {seen_gpus[gpu.uuid]}",
                    where=f"{where}/uuid",
                    expected="each UUID once",
                )
            seen_gpus[gpu.uuid] = where


def _check_node(node: Node, where: str) -> None:
    """One node by itself: its type, state, server and GPUs."""
    check_text(node.gpu, f"{where}/gpu")
    gpu_spec(node.gpu, f"{where}/gpu")
    check_choice(node.state, f"{where}/state", NODE_STATES)
    if not node.gpus:
        raise InputError("a node without GPUs", where=f"{where}/gpus", expected="at least one GPU")
    if node.server is not None:
        check_server(node.server, f"{where}/server")
    for g, gpu in enumerate(node.gpus):
        _check_gpu(gpu, f"{where}/gpus/{g}")
    if node.state != "active" and any(gpu.residents for gpu in node.gpus):
        raise InputError(
            f"node {node.node_id!r} is {node.state} but holds jobs", where=f"{where}/state", expected="active"
        )


def _check_gpu(gpu: Gpu, where: str) -> None:
    """One GPU by itself: utilisation and residents."""
    for name in ("core_util_pct", "mem_util_pct"):
        value = getattr(gpu, name)
        if value is not None:
            check_number(value, f"{where}/{name}", low=0.0, high=100.0)
    if len(gpu.residents) > MAX_JOBS:
        raise InputError(
            f"{len(gpu.residents)} jobs on GPU {gpu.uuid!r}",
            where=f"{where}/residents",
            expected=f"at most {MAX_JOBS}",
        )
    ids: set[str] = set()
    for r, resident in enumerate(gpu.residents):
        place = f"{where}/residents/{r}"
        check_text(resident.job.job_id, f"{place}/job_id")
        if resident.job_id in ids:
            raise InputError(
                f"job {resident.job_id!r} stands twice on GPU {gpu.uuid!r}",
                where=f"{place}/job_id",
                expected="each job once",
            )
        ids.add(resident.job_id)
        check_choice(resident.phase, f"{place}/phase", PHASES)
        check_choice(resident.parallelism, f"{place}/parallelism", PARALLELISMS)
        check_number(resident.placed_epoch, f"{place}/placed_epoch", low=0.0)
        check_job(resident.job, place)
        if resident.job.exclusive and len(gpu.residents) > 1:
            raise InputError(
                f"exclusive job {resident.job_id!r} shares GPU {gpu.uuid!r}",
                where=f"{place}/exclusive",
                expected="an exclusive job alone on its GPUs",
            )


def _check_residents_agree(state: ClusterState) -> None:
    """A job on several GPUs is the same job on each, on one GPU type."""
    first: dict[str, tuple[str, str, Resident]] = {}
    for n, node in enumerate(state.nodes):
        slug = gpu_spec(node.gpu).slug
        for g, gpu in enumerate(node.gpus):
            for r, resident in enumerate(gpu.residents):
                where = f"/cluster/nodes/{n}/gpus/{g}/residents/{r}"
                known = first.setdefault(resident.job_id, (where, slug, resident))
                if known[2] != resident:
                    raise InputError(
                        f"job {resident.job_id!r} differs from {known[0]}",
                        where=where,
                        expected="the same content on each of its GPUs",
                    )
                if known[1] != slug:
                    raise InputError(
                        f"job {resident.job_id!r} is on {known[1]} and on {slug}",
                        where=where,
                        expected="one GPU type a job",
                    )
