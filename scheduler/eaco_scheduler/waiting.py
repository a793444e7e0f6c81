"""Who waits, in order of first arrival, and who is worth another try.

A waiting job is tried again only when something may have opened for it since its last try (an *opening*): a job of
its GPU type arrived, room was freed, a trial ended, a utilisation was measured or an epoch finished there; or when it
has become overdue and has no reservation yet. An arrival is an opening so that nobody who came earlier is overtaken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from eaco_datasets.errors import InputError
from eaco_scheduler.cluster import gpu_spec
from eaco_scheduler.decision import CoLocationKey, JobRequest


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request in the queue since ``since_s``; ``sequence`` is its place by first arrival."""

    request: JobRequest
    since_s: float
    sequence: int
    excluded: frozenset[CoLocationKey] = frozenset()
    tried_at: int = -1
    overdue_seen: bool = False

    def as_of(self, now_s: float) -> JobRequest:
        """The request now: longer waited, its deadline nearer."""
        passed_s = max(0.0, now_s - self.since_s)
        job = self.request.job
        if job.deadline_s is not None:
            job = replace(job, deadline_s=job.deadline_s - passed_s)
        return replace(self.request, job=job, waited_s=self.request.waited_s + passed_s)


class WaitingQueue:
    """First in, first tried; nothing leaves it but by ``remove``."""

    def __init__(self) -> None:
        self._waiting: dict[str, Waiting] = {}
        self._openings: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._waiting

    def in_order(self) -> tuple[Waiting, ...]:
        """Everyone, by first arrival."""
        return tuple(sorted(self._waiting.values(), key=lambda entry: entry.sequence))

    def add(self, entry: Waiting) -> None:
        """A job begins to wait.

        Raises:
            InputError: it waits already.
        """
        if entry.request.job_id in self._waiting:
            raise InputError(f"job {entry.request.job_id!r} waits already", where="/job/job_id", expected="a new job")
        self._waiting[entry.request.job_id] = entry

    def remove(self, job_id: str) -> Waiting:
        """A job waits no longer.

        Raises:
            InputError: it does not wait.
        """
        if job_id not in self._waiting:
            raise InputError(f"job {job_id!r} does not wait", where="/job_id", expected="a waiting job")
        return self._waiting.pop(job_id)

    def opened(self, gpu_types: Iterable[str]) -> None:
        """Something may have become possible on these GPU types."""
        self._openings.update(set(gpu_types))

    def due(self, now_s: float, max_wait_s: float) -> tuple[Waiting, ...]:
        """Those worth another try, by first arrival."""
        return tuple(entry for entry in self.in_order() if self._worth_a_try(entry, now_s, max_wait_s))

    def tried(self, job_id: str, now_s: float, max_wait_s: float) -> None:
        """A job was tried on the state as it is and still waits."""
        entry = self._waiting[job_id]
        overdue = entry.as_of(now_s).waited_s > max_wait_s
        self._waiting[job_id] = replace(entry, tried_at=self._openings_for(entry), overdue_seen=overdue)

    def _worth_a_try(self, entry: Waiting, now_s: float, max_wait_s: float) -> bool:
        if self._openings_for(entry) > entry.tried_at:
            return True
        return not entry.overdue_seen and entry.as_of(now_s).waited_s > max_wait_s

    def _openings_for(self, entry: Waiting) -> int:
        if entry.request.gpu is None:
            return self._openings.total()
        return self._openings[gpu_spec(entry.request.gpu).slug]
