"""The one owner of the mutable cluster state: every change is atomic and legal, or refused.

A decision is made on a snapshot; ``place`` takes it only if nothing has changed since (compare-and-place on the
version). So two schedulers that decided at the same time cannot both take the same room.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from threading import RLock

from eaco_datasets.errors import ConflictError, InputError
from eaco_scheduler.checks import check_number, check_text
from eaco_scheduler.cluster import ClusterState, Gpu, Node, NodeState, Resident, gpu_spec


class ClusterLedger:
    """Owns a cluster state behind a lock; each method is one atomic step that returns the new state.

    After a change the measured utilisation of the touched GPUs is unknown (``None``) until it is measured again. A
    node becomes ``active`` with its first job and ``idle`` with its last one gone.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._lock = RLock()

    def snapshot(self) -> ClusterState:
        """The state now; it never changes under its reader."""
        with self._lock:
            return self._state

    def place(self, resident: Resident, gpus: Iterable[str], *, expected_version: int) -> ClusterState:
        """Put a job on these GPUs (by UUID).

        Raises:
            ConflictError: the state is not the one that was decided on.
            InputError: no such GPU, mixed types, no GPU, the job is placed already, or a GPU cannot take it.
        """
        wanted = tuple(gpus)
        with self._lock:
            now = self._state
            if now.version != expected_version:
                raise ConflictError(
                    f"decided on cluster version {expected_version}, which is now {now.version}: decide again"
                )
            check_text(resident.job.job_id, "/job/job_id")
            if now.gpus_of(resident.job_id):
                raise InputError(
                    f"job {resident.job_id!r} is placed already", where="/job/job_id", expected="a new job"
                )
            _check_targets(now, wanted)
            return self._edit(wanted, lambda residents: (*residents, resident))

    def finalise(self, job_id: str) -> ClusterState:
        """A provisional placement becomes final.

        Raises:
            InputError: the job is not placed or is final already.
        """
        with self._lock:
            found = self._provisional(job_id, "finalise")
            final = replace(found, phase="final")
            return self._edit((), lambda held: tuple(final if r.job_id == job_id else r for r in held))

    def undo(self, job_id: str) -> ClusterState:
        """A provisional placement is taken back; its job leaves.

        Raises:
            InputError: the job is not placed or is final already.
        """
        with self._lock:
            self._provisional(job_id, "undo")
            return self._remove(job_id)

    def complete(self, job_id: str) -> ClusterState:
        """A job has ended; it leaves, provisional or final.

        Raises:
            InputError: the job is not placed.
        """
        with self._lock:
            self._resident(job_id, "complete")
            return self._remove(job_id)

    def progress(self, job_id: str, *, remaining_epochs: float) -> ClusterState:
        """A job reports how many epochs it has left.

        Raises:
            InputError: the job is not placed, or the number is impossible.
        """
        check_number(remaining_epochs, "/remaining_epochs", low=0.0)
        with self._lock:
            found = self._resident(job_id, "update")
            moved = replace(found, job=replace(found.job, remaining_epochs=remaining_epochs))
            return self._edit((), lambda held: tuple(moved if r.job_id == job_id else r for r in held))

    def age(self, elapsed_s: float) -> ClusterState:
        """Time passes: every deadline, counted from now, comes nearer.

        Raises:
            InputError: time does not run backwards.
        """
        check_number(elapsed_s, "/elapsed_s", low=0.0)
        with self._lock:
            return self._edit((), lambda held: tuple(_older(r, elapsed_s) for r in held)) if elapsed_s else self._state

    def measure(self, uuid: str, *, core_util_pct: float | None, mem_util_pct: float | None) -> ClusterState:
        """A GPU's utilisation was measured.

        Raises:
            InputError: no such GPU, or a percentage out of range.
        """
        with self._lock:
            self._state.gpu(uuid)

            def seen(gpu: Gpu) -> Gpu:
                if gpu.uuid != uuid:
                    return gpu
                return replace(gpu, core_util_pct=core_util_pct, mem_util_pct=mem_util_pct)

            nodes = tuple(replace(node, gpus=tuple(map(seen, node.gpus))) for node in self._state.nodes)
            return self._swap(nodes)

    def _resident(self, job_id: str, verb: str) -> Resident:
        for _, _, resident in self._state.placed():
            if resident.job_id == job_id:
                return resident
        raise InputError(f"cannot {verb} job {job_id!r}: it is not placed", where="/job_id", expected="a placed job")

    def _provisional(self, job_id: str, verb: str) -> Resident:
        found = self._resident(job_id, verb)
        if found.phase != "provisional":
            raise InputError(
                f"cannot {verb} job {job_id!r}: it is {found.phase}", where="/job_id", expected="a provisional job"
            )
        return found

    def _remove(self, job_id: str) -> ClusterState:
        touched = self._state.gpus_of(job_id)
        return self._edit(touched, lambda held: tuple(r for r in held if r.job_id != job_id))

    def _edit(
        self, touched: tuple[str, ...], change: Callable[[tuple[Resident, ...]], tuple[Resident, ...]]
    ) -> ClusterState:
        """Apply ``change`` to the residents of ``touched`` GPUs, or of all GPUs when none is named."""
        chosen = set(touched)

        def edited(node: Node) -> Node:
            gpus = tuple(
                _with_residents(g, change(g.residents)) if not chosen or g.uuid in chosen else g for g in node.gpus
            )
            return replace(node, gpus=gpus, state=_state_after(node, gpus))

        return self._swap(tuple(edited(node) for node in self._state.nodes))

    def _swap(self, nodes: tuple[Node, ...]) -> ClusterState:
        """The new state, checked when built; the old one stays if it is impossible."""
        self._state = ClusterState(nodes, self._state.version + 1)
        return self._state


def _check_targets(state: ClusterState, wanted: tuple[str, ...]) -> None:
    if not wanted or len(set(wanted)) < len(wanted):
        raise InputError("no GPU, or one twice", where="/gpus", expected="distinct UUIDs, at least one")
    for uuid in wanted:
        state.gpu(uuid)
    chosen = set(wanted)
    types = {gpu_spec(n.gpu).slug for n in state.nodes for g in n.gpus if g.uuid in chosen}
    if len(types) > 1:
        raise InputError("GPUs of several types: " + ", ".join(sorted(types)), where="/gpus", expected="one GPU type")


def _with_residents(gpu: Gpu, residents: tuple[Resident, ...]) -> Gpu:
    """The GPU with these residents; who is on it decides whether its measured utilisation still holds."""
    if {r.job_id for r in residents} == {r.job_id for r in gpu.residents}:
        return replace(gpu, residents=residents)
    return Gpu(gpu.uuid, residents)


def _state_after(node: Node, gpus: tuple[Gpu, ...]) -> NodeState:
    held, held_before = any(g.residents for g in gpus), any(g.residents for g in node.gpus)
    if held:
        return "active"
    return "idle" if held_before else node.state


def _older(resident: Resident, elapsed_s: float) -> Resident:
    deadline_s = resident.job.deadline_s
    if deadline_s is None or math.isinf(deadline_s):
        return resident
    return replace(resident, job=replace(resident.job, deadline_s=deadline_s - elapsed_s))
