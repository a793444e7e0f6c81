"""A decision in readable sentences: what was tried, what was predicted, why refused, what happens now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from eaco_scheduler.decision import Alternative, Decision, JobRequest, Refusal

_MAX_SETS = 10
_MAX_NAMES = 4


def explain(request: JobRequest, decision: Decision, notes: Sequence[str] = ()) -> str:
    """Sentences for a decision whose other fields are complete."""
    sentences = [*_refusals(decision.refusals), *_tried(decision), *notes, _outcome(request, decision)]
    return " ".join(sentences)


def _refusals(refusals: Sequence[Refusal]) -> list[str]:
    """GPUs that were no candidates, one sentence a reason."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for refusal in refusals:
        by_reason[refusal.reason].extend(refusal.gpus)
    return [
        f"{len(gpus)} GPU(s) not considered ({_names(gpus)}): {reason}." if gpus else f"No sharing: {reason}."
        for reason, gpus in by_reason.items()
    ]


def _tried(decision: Decision) -> list[str]:
    """The sets in order of rank, up to the one that was taken."""
    if not decision.alternatives:
        return ["No set to share was left to try."]
    admitted = sum(1 for item in decision.alternatives if item.refused is None)
    lines = [f"{len(decision.alternatives)} set(s) to share were judged; {admitted} hold(s)."]
    for item in decision.alternatives[:_MAX_SETS]:
        lines.append(_one_set(item))
        if item.refused is None:
            break
    return lines


def _one_set(item: Alternative) -> str:
    beside = f"{_names(item.gpus)} beside {_names(item.co_residents)}"
    if item.refused is not None:
        return f"Set {item.rank}, {beside}: refused, {item.refused}."
    return f"Set {item.rank}, {beside}: {_holds(item)}{_speeds(item)}."


def _holds(item: Alternative) -> str:
    """Why a set was admitted: deadlines can only hold where somebody has one."""
    jobs = item.prediction.jobs if item.prediction is not None else ()
    if any(job.deadline_miss_probability is not None for job in jobs):
        return "every deadline holds"
    return "nothing speaks against it, no job has a deadline"


def _speeds(item: Alternative) -> str:
    if item.prediction is None or not item.prediction.jobs:
        return ""
    slowest = min(job.relative_speed.mean for job in item.prediction.jobs)
    return f" (slowest job predicted at {slowest:.2f} of its speed alone)"


def _outcome(request: JobRequest, decision: Decision) -> str:
    title = request.title[0].upper() + request.title[1:]
    if decision.decision == "share":
        return (
            f"{title} shares {_names(decision.gpus)} with {_names(decision.co_residents)}, "
            "provisionally until each of these jobs has finished one epoch."
        )
    if decision.decision == "exclusive":
        return f"{title} takes idle {_names(decision.gpus)} alone."
    text = f"{title} waits and is tried again when a job arrives, completes or is undone."
    if decision.reservation is not None:
        text += f" It has waited {request.waited_s:.0f} s: {_names(decision.reservation.gpus)} are reserved for it."
    return text


def _names(names: Sequence[str]) -> str:
    listed = ", ".join(names[:_MAX_NAMES])
    return listed if len(names) <= _MAX_NAMES else f"{listed} and {len(names) - _MAX_NAMES} more"
