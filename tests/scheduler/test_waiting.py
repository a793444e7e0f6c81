"""The queue: first in first tried, and only after something may have opened."""

from types import SimpleNamespace

import pytest

from eaco_datasets.errors import InputError
from eaco_scheduler.waiting import Waiting, WaitingQueue

MAX_WAIT_S = 1000.0


def _due(queue: WaitingQueue, now_s: float = 0.0) -> list[str]:
    return [entry.request.job_id for entry in queue.due(now_s, MAX_WAIT_S)]


def _queue(kit: SimpleNamespace, **gpus: str | None) -> WaitingQueue:
    queue = WaitingQueue()
    for sequence, (job_id, gpu) in enumerate(gpus.items()):
        queue.add(Waiting(kit.request(job_id=job_id, gpu=gpu), 0.0, sequence))
    return queue


def test_only_openings_of_its_type_bring_a_job_back(kit: SimpleNamespace) -> None:
    queue = _queue(kit, v="v100", t="t4", either=None)
    assert _due(queue) == ["v", "t", "either"]
    for job_id in ("v", "t", "either"):
        queue.tried(job_id, 0.0, MAX_WAIT_S)
    assert _due(queue) == []
    queue.opened(["t4"])
    assert _due(queue) == ["t", "either"]
    queue.opened(["v100-sxm"])
    assert _due(queue) == ["v", "t", "either"]


def test_an_overdue_job_is_tried_once_more(kit: SimpleNamespace) -> None:
    queue = _queue(kit, a="v100")
    queue.tried("a", 0.0, MAX_WAIT_S)
    assert _due(queue, 1000.0) == []
    assert _due(queue, 1000.1) == ["a"]
    queue.tried("a", 1000.1, MAX_WAIT_S)
    assert _due(queue, 2000.0) == []


def test_waiting_counts_and_deadlines_shrink(kit: SimpleNamespace) -> None:
    request = Waiting(kit.request(waited_s=5.0, deadline_s=70.0), 100.0, 0).as_of(130.0)
    assert (request.waited_s, request.job.deadline_s) == (35.0, 40.0)


def test_order_is_by_first_arrival(kit: SimpleNamespace) -> None:
    queue = _queue(kit, a=None, b=None, c=None)
    first = queue.remove("a")
    queue.add(first)
    assert [entry.request.job_id for entry in queue.in_order()] == ["a", "b", "c"]
    assert "b" in queue
    assert len(queue) == 3


def test_nobody_waits_twice_or_leaves_twice(kit: SimpleNamespace) -> None:
    queue = _queue(kit, a=None)
    with pytest.raises(InputError, match="waits already"):
        queue.add(Waiting(kit.request(job_id="a"), 0.0, 9))
    queue.remove("a")
    with pytest.raises(InputError, match="does not wait"):
        queue.remove("a")
