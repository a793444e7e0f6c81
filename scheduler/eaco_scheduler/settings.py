"""Every knob of the placement policies, checked, and the named policies as presets of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from eaco_datasets.errors import InputError, UnknownNameError
from eaco_datasets.types import MAX_JOBS, SharingMode
from eaco_scheduler.checks import check_choice, check_count, check_number

Rank = Literal["highest-utilization", "objective"]
RANKS: tuple[str, ...] = get_args(Rank)

USABLE_SHARING_MODES = ("time-slice", "mps", "mig")
"""A scheduler knows how it shares: ``unknown`` is a word of measurement tables only."""

DEFAULT_POLICY = "eaco-safe"


@dataclass(frozen=True, slots=True)
class PlacementSettings:
    """All settings of a placement; the paper gives none of the numbers, they are choices of this project.

    ``core_threshold_pct`` and ``mem_threshold_pct``: a GPU's utilisation must be below them before a job joins.
    ``idle_threshold_pct``: both utilisations of a GPU without a known job must be below it, else something unknown runs
    there and the GPU is not idle (an empty GPU that was not measured is).
    ``mem_headroom_pct``: share of GPU memory that sharing leaves free. ``epsilon``: largest probability of missing
    a deadline (0.5 = the paper's point rule). ``max_oom_probability``: largest predicted risk of running out of memory.
    ``alpha``: weight of energy against epoch time under rank ``objective``. ``max_wait_s``: after that wait GPUs are
    reserved. ``span_nodes``: a job larger than the largest node may take GPUs of several nodes; no other job may.

    Raises:
        InputError: at ``/settings/<name>``.
    """

    policy: str = DEFAULT_POLICY
    rank: Rank = "highest-utilization"
    core_threshold_pct: float = 80.0
    mem_threshold_pct: float = 80.0
    idle_threshold_pct: float = 5.0
    mem_headroom_pct: float = 10.0
    max_jobs_per_gpu: int = MAX_JOBS
    alpha: float = 0.5
    epsilon: float = 0.05
    max_oom_probability: float = 0.05
    max_wait_s: float = 86_400.0
    span_nodes: bool = True
    sharing_mode: SharingMode = "time-slice"

    def __post_init__(self) -> None:
        if self.policy not in _POLICIES:
            raise UnknownNameError("policy", str(self.policy), policy_names(), where="/policy")
        check_choice(self.rank, "/settings/rank", RANKS)
        check_choice(self.sharing_mode, "/settings/sharing_mode", USABLE_SHARING_MODES)
        for name in ("core_threshold_pct", "mem_threshold_pct", "idle_threshold_pct"):
            check_number(getattr(self, name), f"/settings/{name}", low=0.0, high=100.0, above_low=True)
        check_number(self.mem_headroom_pct, "/settings/mem_headroom_pct", low=0.0, high=99.0)
        check_count(self.max_jobs_per_gpu, "/settings/max_jobs_per_gpu", low=1, high=MAX_JOBS)
        for name in ("alpha", "epsilon", "max_oom_probability"):
            check_number(getattr(self, name), f"/settings/{name}", low=0.0, high=1.0)
        check_number(self.max_wait_s, "/settings/max_wait_s", low=0.0)
        if not isinstance(self.span_nodes, bool):
            raise InputError(
                f"{self.span_nodes!r} is no truth value", where="/settings/span_nodes", expected="true or false"
            )

    def as_dict(self) -> dict[str, str | int | float | bool]:
        """Every setting as used, by name."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


_POLICIES: Mapping[str, Mapping[str, Any]] = {
    "eaco": {"rank": "highest-utilization", "epsilon": 0.5},
    "eaco-objective": {"rank": "objective", "epsilon": 0.5},
    "eaco-safe": {"rank": "highest-utilization", "epsilon": 0.05},
}
"""``eaco`` is the paper's rule; each of the others changes one thing of it: the rank, or the certainty asked for."""


def policy_names() -> tuple[str, ...]:
    """The policies by name, in order."""
    return tuple(sorted(_POLICIES))


def policy_settings(name: str = DEFAULT_POLICY, overrides: Mapping[str, Any] | None = None) -> PlacementSettings:
    """The settings of a policy, with some of them overridden.

    Raises:
        UnknownNameError: no such policy (``/policy``) or setting (``/settings/<name>``).
        InputError: a setting out of its range.
    """
    if name not in _POLICIES:
        raise UnknownNameError("policy", name, policy_names(), where="/policy")
    given = dict(overrides or {})
    known = [item.name for item in fields(PlacementSettings) if item.name != "policy"]
    for key in given:
        if key not in known:
            raise UnknownNameError("setting", key, known, where=f"/settings/{key}")
    make: Callable[..., PlacementSettings] = PlacementSettings
    return replace(make(policy=name, **_POLICIES[name]), **given)
