"""Settings: defaults as documented, one change per policy, one clear line for every bad value."""

from dataclasses import FrozenInstanceError

import pytest

from eaco_datasets.errors import InputError, UnknownNameError
from eaco_scheduler.settings import PlacementSettings, policy_names, policy_settings


def test_defaults_are_the_documented_ones() -> None:
    assert PlacementSettings().as_dict() == {
        "policy": "eaco-safe",
        "rank": "highest-utilization",
        "core_threshold_pct": 80.0,
        "mem_threshold_pct": 80.0,
        "idle_threshold_pct": 5.0,
        "mem_headroom_pct": 10.0,
        "max_jobs_per_gpu": 4,
        "alpha": 0.5,
        "epsilon": 0.05,
        "max_oom_probability": 0.05,
        "max_wait_s": 86_400.0,
        "span_nodes": True,
        "sharing_mode": "time-slice",
    }


def test_policies_differ_from_the_paper_in_one_thing_each() -> None:
    paper = policy_settings("eaco").as_dict()
    assert (paper["rank"], paper["epsilon"]) == ("highest-utilization", 0.5)
    for name, changed in (("eaco-safe", {"epsilon"}), ("eaco-objective", {"rank"})):
        used = policy_settings(name).as_dict()
        assert {key for key in used if used[key] != paper[key]} == {"policy", *changed}
    assert policy_names() == ("eaco", "eaco-objective", "eaco-safe")


def test_overrides_are_used_and_shown() -> None:
    used = policy_settings("eaco", {"epsilon": 0.2, "alpha": 1.0}).as_dict()
    assert (used["policy"], used["epsilon"], used["alpha"]) == ("eaco", 0.2, 1.0)


def test_settings_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        PlacementSettings().alpha = 0.1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("overrides", "where"),
    [
        ({"alpha": -0.1}, "/settings/alpha"),
        ({"alpha": float("nan")}, "/settings/alpha"),
        ({"alpha": "half"}, "/settings/alpha"),
        ({"alpha": 10**400}, "/settings/alpha"),
        ({"max_wait_s": 10**5000}, "/settings/max_wait_s"),
        ({"max_jobs_per_gpu": 10**5000}, "/settings/max_jobs_per_gpu"),
        ({"idle_threshold_pct": 0}, "/settings/idle_threshold_pct"),
        ({"idle_threshold_pct": 101}, "/settings/idle_threshold_pct"),
        ({"epsilon": 1.5}, "/settings/epsilon"),
        ({"epsilon": True}, "/settings/epsilon"),
        ({"max_oom_probability": -1}, "/settings/max_oom_probability"),
        ({"core_threshold_pct": 0}, "/settings/core_threshold_pct"),
        ({"core_threshold_pct": 100.1}, "/settings/core_threshold_pct"),
        ({"mem_threshold_pct": float("inf")}, "/settings/mem_threshold_pct"),
        ({"mem_headroom_pct": 100}, "/settings/mem_headroom_pct"),
        ({"max_jobs_per_gpu": 0}, "/settings/max_jobs_per_gpu"),
        ({"max_jobs_per_gpu": 5}, "/settings/max_jobs_per_gpu"),
        ({"max_jobs_per_gpu": 2.0}, "/settings/max_jobs_per_gpu"),
        ({"max_wait_s": -1}, "/settings/max_wait_s"),
        ({"rank": "fastest"}, "/settings/rank"),
        ({"sharing_mode": "unknown"}, "/settings/sharing_mode"),
        ({"span_nodes": 1}, "/settings/span_nodes"),
        ({"core_treshold_pct": 70}, "/settings/core_treshold_pct"),
    ],
)
def test_bad_settings_name_their_place_in_one_line(overrides: dict[str, object], where: str) -> None:
    with pytest.raises(InputError) as caught:
        policy_settings("eaco-safe", overrides)
    assert caught.value.where == where
    assert caught.value.expected
    assert "\n" not in str(caught.value)


def test_unknown_policy_suggests_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="eaco-safe") as caught:
        policy_settings("eaco-save")
    assert caught.value.where == "/policy"
    with pytest.raises(UnknownNameError):
        PlacementSettings(policy="fifo")
