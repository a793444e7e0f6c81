"""Small checks of numbers and jobs, shared by settings, requests and cluster states."""

from __future__ import annotations

import math
import sys
from dataclasses import fields

from eaco_datasets.errors import InputError
from eaco_datasets.types import PRECISIONS, Job, NodeSpec

_LARGEST_INT = int(sys.float_info.max)


def check_number(
    value: object,
    where: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    above_low: bool = False,
) -> None:
    """Refuse what is not a finite number in ``[low, high]`` (``(low, high]`` when ``above_low``).

    Raises:
        InputError: at ``where``.
    """
    if low == -math.inf and high == math.inf:
        expected = "a finite number"
    elif high == math.inf:
        expected = f"a number {'above' if above_low else 'of at least'} {low:g}"
    else:
        expected = (
            f"a number {'above' if above_low else 'from'} {low:g} {'and at most' if above_low else 'to'} {high:g}"
        )
    if isinstance(value, int) and abs(value) > _LARGEST_INT:
        raise InputError("a whole number too large to compute with", where=where, expected=expected)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InputError(f"{value!r} is not a finite number", where=where, expected=expected)
    if value < low or value > high or (above_low and value == low):
        raise InputError(f"{value:g} is out of range", where=where, expected=expected)


def check_count(value: object, where: str, *, low: int = 1, high: int | None = None) -> None:
    """Refuse what is not a whole number in ``[low, high]``.

    Raises:
        InputError: at ``where``.
    """
    expected = f"a whole number from {low} to {high}" if high is not None else f"a whole number of at least {low}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{value!r} is not a whole number", where=where, expected=expected)
    if abs(value) > _LARGEST_INT:
        raise InputError("a whole number too large to compute with", where=where, expected=expected)
    if value < low or (high is not None and value > high):
        raise InputError(f"{value} is out of range", where=where, expected=expected)


def check_choice(value: object, where: str, choices: tuple[str, ...]) -> None:
    """Refuse what is none of ``choices``.

    Raises:
        InputError: at ``where``.
    """
    if value not in choices:
        raise InputError(f"{value!r} is not known here", where=where, expected="one of " + ", ".join(choices))


def check_text(value: object, where: str) -> None:
    """Refuse what is not a non-empty string.

    Raises:
        InputError: at ``where``.
    """
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{value!r} is no name", where=where, expected="a non-empty string")


def check_job(job: Job, where: str) -> None:
    """Refuse impossible numbers of a job; a deadline may lie in the past (it is then missed), unknown stays ``None``.

    Raises:
        InputError: at a field under ``where``.
    """
    check_count(job.batch_size, f"{where}/batch_size")
    check_choice(job.precision, f"{where}/precision", PRECISIONS)
    if job.remaining_epochs is not None:
        check_number(job.remaining_epochs, f"{where}/remaining_epochs", low=0.0)
    if job.deadline_s is not None:
        check_number(job.deadline_s, f"{where}/deadline_s")
    if job.samples_per_epoch is not None:
        check_number(job.samples_per_epoch, f"{where}/samples_per_epoch", low=0.0, above_low=True)
    for item in fields(job.solo):
        value = getattr(job.solo, item.name)
        if value is None:
            continue
        if item.name.endswith("_pct"):
            check_number(value, f"{where}/solo/{item.name}", low=0.0, high=100.0)
        else:
            check_number(value, f"{where}/solo/{item.name}", low=0.0, above_low=True)


def check_server(server: NodeSpec, where: str) -> None:
    """Refuse impossible watts of a node's server part.

    Raises:
        InputError: at a field under ``where``.
    """
    check_number(server.cpu_idle_w, f"{where}/cpu_idle_w", low=0.0)
    check_number(server.cpu_busy_w, f"{where}/cpu_busy_w", low=server.cpu_idle_w)
    if server.cpu_util_pct is not None:
        check_number(server.cpu_util_pct, f"{where}/cpu_util_pct", low=0.0, high=100.0)
