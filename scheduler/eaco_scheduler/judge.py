"""Whether a job may join: risks and deadlines of everyone on a group of GPUs, from the forecast.

A set holds when each of its groups holds: every job runs at its slowest GPU, so a deadline that holds on each GPU holds
on the set, and one that fails on a GPU fails on every set with that GPU.
"""

from __future__ import annotations

from collections.abc import Sequence

from eaco_datasets.types import Job
from eaco_predictor.prediction import JobPrediction, SetPrediction
from eaco_scheduler.forecast import Forecast
from eaco_scheduler.groups import Group
from eaco_scheduler.memory import usable_mib


def refusal_of(group: Group, forecast: Forecast) -> str | None:
    """Why the job may not join this group, by prediction; ``None`` when everything holds."""
    answer = forecast.joined(group)
    if answer.abstained is not None:
        return f"no prediction: {answer.abstained}"
    return _memory_refusal(group, answer, forecast) or _deadline_refusal(group, answer, forecast)


def deadline_refusal(title: str, job: Job, found: Sequence[JobPrediction], epsilon: float) -> str | None:
    """Why a deadline does not hold with probability of at least ``1 - epsilon``.

    ``None`` too without a deadline, and when no epoch is left: nothing that is decided now could make it later.
    """
    if job.deadline_s is None or job.remaining_epochs == 0.0:
        return None
    risks = [item.deadline_miss_probability for item in found]
    known = [risk for risk in risks if risk is not None]
    if not found or len(known) < len(risks):
        return f"deadline of {title}: its completion time cannot be predicted"
    worst = max(known)
    if not worst <= epsilon:
        return f"deadline of {title}: P(miss) {worst:.2f} > {epsilon:g}"
    return None


def _memory_refusal(group: Group, answer: SetPrediction, forecast: Forecast) -> str | None:
    """The predicted risk always counts; the predicted memory decides where a measured peak is missing."""
    settings, request = forecast.settings, forecast.request
    if answer.oom_probability is not None and not answer.oom_probability <= settings.max_oom_probability:
        return f"out-of-memory risk {answer.oom_probability:.2f} > {settings.max_oom_probability:g}"
    if request.job.solo.mem_mib is not None and group.free_mib is not None:
        return None
    if answer.mem_mib is None:
        return "memory peak unknown: neither measured nor predicted"
    room_mib = usable_mib(group.gpu, settings)
    if not answer.mem_mib.upper <= room_mib:
        return f"memory: up to {answer.mem_mib.upper:.0f} MiB predicted, {room_mib:.0f} MiB usable under the headroom"
    return None


def _deadline_refusal(group: Group, answer: SetPrediction, forecast: Forecast) -> str | None:
    """Deadlines of the job and of every resident, the latter on all GPUs that it runs on."""
    epsilon = forecast.settings.epsilon
    reason = deadline_refusal(forecast.request.title, forecast.request.job, answer.jobs[-1:], epsilon)
    if reason is not None:
        return reason
    for resident in group.residents:
        found = forecast.resident(resident.job_id, [group], group.uuids)
        reason = deadline_refusal(f"job {resident.job_id}", resident.job, found or (), epsilon)
        if reason is not None:
            return reason
    return None
