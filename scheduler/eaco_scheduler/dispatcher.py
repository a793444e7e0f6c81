"""The policy event by event: arrivals, epochs, completions in; placements, final or undone ones, out.

Every submitted job is at any time placed or waiting, until it completes or is withdrawn; none is lost. Each event
tries each waiting job at most once. The caller brings the time; it never runs backwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from threading import RLock

from eaco_datasets.errors import ConflictError, InputError
from eaco_predictor.prediction import PredictsSets
from eaco_scheduler.checks import check_number, check_text
from eaco_scheduler.cluster import ClusterState, Resident, gpu_spec
from eaco_scheduler.decision import CoLocationKey, Decision, JobRequest, Reservation
from eaco_scheduler.eaco import decide
from eaco_scheduler.groups import usable_nodes
from eaco_scheduler.history import History, HistoryPredictor
from eaco_scheduler.ledger import ClusterLedger
from eaco_scheduler.lifecycle import ObservedEpoch, Trial, begin, leave, observe, record, resolve, resume
from eaco_scheduler.settings import PlacementSettings
from eaco_scheduler.waiting import Waiting, WaitingQueue

_MAX_CONFLICTS = 3
"""Tries of one job at one event when others change the ledger in between; then it waits for the next event."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an event led to: decisions in the order made, and trials that ended."""

    decisions: tuple[Decision, ...] = ()
    finalised: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Placed:
    """What is remembered of a job on the cluster, to put it back into the queue after an undo."""

    request: JobRequest
    sequence: int
    excluded: frozenset[CoLocationKey]
    epochs: float


class Dispatcher:
    """Runs one policy on one ledger. Methods are safe to call from several threads.

    Trials of jobs that are provisional on the ledger already are taken up, each from its start.

    Raises:
        InputError: such a job cannot be predicted.
    """

    def __init__(
        self,
        ledger: ClusterLedger,
        predictor: PredictsSets,
        settings: PlacementSettings | None = None,
        *,
        history: History | None = None,
    ) -> None:
        self.history = history if history is not None else History()
        self._ledger = ledger
        self._predictor = HistoryPredictor(predictor, self.history)
        self._settings = settings or PlacementSettings()
        self._queue = WaitingQueue()
        self._placed: dict[str, _Placed] = {}
        self._trials: dict[str, Trial] = {}
        self._reservations: dict[str, Reservation] = {}
        self._sequence = 0
        self._now_s = 0.0
        self._lock = RLock()
        self._take_up_trials()

    @property
    def waiting(self) -> tuple[str, ...]:
        """Job ids in the queue, by first arrival."""
        with self._lock:
            return tuple(entry.request.job_id for entry in self._queue.in_order())

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Placements under observation."""
        with self._lock:
            return tuple(self._trials.values())

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        """GPUs held for overdue jobs."""
        with self._lock:
            return tuple(self._reservations.values())

    def submit(self, request: JobRequest, now_s: float) -> Outcome:
        """A job arrives: it is placed or waits.

        Raises:
            InputError: no job id, a job that is here already, or time that runs backwards.
        """
        with self._lock:
            check_text(request.job.job_id, "/job/job_id")
            if request.job_id in self._queue or self._ledger.snapshot().gpus_of(request.job_id):
                raise InputError(f"job {request.job_id!r} is here already", where="/job/job_id", expected="a new job")
            self._advance(now_s)
            self._sequence += 1
            self._queue.add(Waiting(request, now_s, self._sequence))
            self._queue.opened(gpu_spec(node.gpu).slug for node in usable_nodes(request, self._ledger.snapshot()))
            return Outcome(self._try_waiting())

    def complete(self, job_id: str, now_s: float) -> Outcome:
        """A placed job has ended.

        Raises:
            InputError: it is not placed, or time runs backwards.
        """
        with self._lock:
            self._advance(now_s)
            types = self._types_of(job_id)
            self._ledger.complete(job_id)
            self._placed.pop(job_id, None)
            for key, trial in list(self._trials.items()):
                if job_id in trial.members:
                    self._trials[key] = leave(trial, job_id)
            self._trials.pop(job_id, None)
            self._queue.opened(types)
            finalised, undone = self._end_trials()
            return Outcome(self._try_waiting(), finalised, undone)

    def observe(self, job_id: str, epoch_s: float, now_s: float, *, remaining_epochs: float | None = None) -> Outcome:
        """A placed job has finished an epoch that began after the last change on its GPUs.

        ``remaining_epochs`` defaults to one less than before.

        Raises:
            InputError: the job is not placed, or an impossible number.
        """
        with self._lock:
            self._advance(now_s)
            resident = self._resident(job_id)
            left = remaining_epochs
            if left is None and resident.job.remaining_epochs is not None:
                left = max(0.0, resident.job.remaining_epochs - 1.0)
            epoch = ObservedEpoch(job_id, epoch_s, left, resident.job.deadline_s)
            if left is not None and left != resident.job.remaining_epochs:
                self._ledger.progress(job_id, remaining_epochs=left)
                self._queue.opened(self._types_of(job_id))
            if job_id in self._placed:
                known = self._placed[job_id]
                self._placed[job_id] = replace(known, epochs=known.epochs + 1.0)
            for key, trial in list(self._trials.items()):
                if job_id in trial.members:
                    self._trials[key] = observe(trial, epoch)
                    if record(trial, epoch, self.history):
                        self._queue.opened({trial.sets[0].gpu})
            finalised, undone = self._end_trials()
            return Outcome(self._try_waiting(), finalised, undone)

    def measure(self, uuid: str, now_s: float, *, core_util_pct: float, mem_util_pct: float) -> Outcome:
        """A GPU's utilisation was measured.

        Raises:
            InputError: no such GPU, or a percentage out of range.
        """
        with self._lock:
            self._advance(now_s)
            state = self._ledger.measure(uuid, core_util_pct=core_util_pct, mem_util_pct=mem_util_pct)
            self._queue.opened(gpu_spec(n.gpu).slug for n in state.nodes for g in n.gpus if g.uuid == uuid)
            return Outcome(self._try_waiting())

    def withdraw(self, job_id: str, now_s: float) -> Outcome:
        """A waiting job is called off; what was reserved for it is free again.

        Raises:
            InputError: it does not wait.
        """
        with self._lock:
            self._advance(now_s)
            self._queue.remove(job_id)
            self._placed.pop(job_id, None)
            self._release(job_id)
            return Outcome(self._try_waiting())

    def _take_up_trials(self) -> None:
        """A trial for every job that is provisional on the ledger, in order of job id."""
        state = self._ledger.snapshot()
        found = {r.job_id: (node, r) for node, _, r in state.placed() if r.phase == "provisional"}
        for job_id in sorted(found):
            node, resident = found[job_id]
            trial = resume(resident, state, self._predictor, self._settings)
            request = JobRequest(resident.job, len(trial.gpus), node.gpu, resident.parallelism)
            self._sequence += 1
            self._placed[job_id] = _Placed(request, self._sequence, frozenset(), resident.placed_epoch)
            self._trials[job_id] = trial

    def _advance(self, now_s: float) -> None:
        check_number(now_s, "/now_s", low=self._now_s)
        self._ledger.age(now_s - self._now_s)
        self._now_s = now_s

    def _try_waiting(self) -> tuple[Decision, ...]:
        """One try of each job that is due, by first arrival."""
        due = self._queue.due(self._now_s, self._settings.max_wait_s)
        return tuple(self._try(entry) for entry in due)

    def _try(self, entry: Waiting) -> Decision:
        request = entry.as_of(self._now_s)
        for _ in range(_MAX_CONFLICTS):
            decision = self._decide(entry, request)
            if decision.decision == "wait":
                self._hold(request.job_id, decision.reservation)
                break
            try:
                self._place(entry, request, decision)
            except ConflictError:
                continue
            return decision
        else:
            reason = f"the cluster changed during each of {_MAX_CONFLICTS} tries; it waits for the next event"
            decision = replace(decision, decision="wait", phase=None, gpus=(), prediction=None, co_residents=())
            return replace(decision, explanation=f"{decision.explanation} Not placed: {reason}.")
        self._queue.tried(request.job_id, self._now_s, self._settings.max_wait_s)
        return decision

    def _decide(self, entry: Waiting, request: JobRequest) -> Decision:
        return decide(
            request,
            self._ledger.snapshot(),
            self._predictor,
            self._settings,
            now_s=self._now_s,
            excluded=entry.excluded,
            reservations=self._reservations.values(),
        )

    def _place(self, entry: Waiting, request: JobRequest, decision: Decision) -> None:
        """Take the room, or raise ``ConflictError`` with nothing changed."""
        before = self._ledger.snapshot()
        if before.version != decision.cluster_version:
            raise ConflictError("the cluster changed since the decision")
        phase = decision.phase or "final"
        epochs = self._placed[request.job_id].epochs if request.job_id in self._placed else 0.0
        resident = Resident(request.job, phase, placed_epoch=epochs, parallelism=request.parallelism)
        self._ledger.place(resident, decision.gpus, expected_version=decision.cluster_version)
        self._queue.remove(request.job_id)
        self._release(request.job_id)
        self._placed[request.job_id] = _Placed(request, entry.sequence, entry.excluded, epochs)
        if decision.decision == "share":
            self._trials[request.job_id] = begin(decision, request, before, self._settings)

    def _hold(self, job_id: str, wanted: Reservation | None) -> None:
        """The job's reservation is this one from now on."""
        if self._reservations.get(job_id) != wanted:
            self._release(job_id)
            if wanted is not None:
                self._reservations[job_id] = wanted

    def _release(self, job_id: str) -> None:
        """What was reserved for a job is open to all again."""
        held = self._reservations.pop(job_id, None)
        if held is not None:
            state = self._ledger.snapshot()
            chosen = set(held.gpus)
            self._queue.opened(gpu_spec(n.gpu).slug for n in state.nodes for g in n.gpus if g.uuid in chosen)

    def _end_trials(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Resolve every trial of which all epochs are in: finalise it, or undo it and put its job back."""
        finalised: list[str] = []
        undone: list[str] = []
        for job_id, trial in list(self._trials.items()):
            if trial.missing:
                continue
            ended = resolve(trial, self._settings)
            del self._trials[job_id]
            self._queue.opened(self._types_of(job_id))
            if ended.state == "final":
                self._ledger.finalise(job_id)
                finalised.append(job_id)
            else:
                self._put_back(job_id, ended.excluded)
                undone.append(job_id)
        return tuple(finalised), tuple(undone)

    def _put_back(self, job_id: str, excluded: Iterable[CoLocationKey]) -> None:
        """An undone job waits again, at its place by first arrival, with its progress and what failed."""
        known, resident = self._placed[job_id], self._resident(job_id)
        self._ledger.undo(job_id)
        request = replace(known.request, job=resident.job)
        self._queue.add(Waiting(request, self._now_s, known.sequence, known.excluded | frozenset(excluded)))

    def _resident(self, job_id: str) -> Resident:
        for _, _, resident in self._ledger.snapshot().placed():
            if resident.job_id == job_id:
                return resident
        raise InputError(f"job {job_id!r} is not placed", where="/job_id", expected="a placed job")

    def _types_of(self, job_id: str) -> frozenset[str]:
        state: ClusterState = self._ledger.snapshot()
        return frozenset(gpu_spec(node.gpu).slug for node, _, r in state.placed() if r.job_id == job_id)
