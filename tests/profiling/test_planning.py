"""The planner that picks the set which would teach most: what it may pick, and that it looks where it is unsure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pandas as pd
import pytest

from eaco_datasets.errors import InputError
from eaco_datasets.schema import COLUMN_NAMES, validate_profiles
from eaco_datasets.types import Job
from eaco_predictor.planning import LearningPlanner

FAMILIES = ("a", "b", "c", "d", "e", "f", "g", "h")
CONFIGS = tuple(Job(model=f, family=f, batch_size=b) for f in FAMILIES for b in (16, 32))
EMPTY = pd.DataFrame(columns=COLUMN_NAMES)
PAIRS = {2: 1.0}

Speeds = Callable[[int, Sequence[int], np.random.Generator], float]


def _steady(_: int, jobs: Sequence[int], random: np.random.Generator) -> float:
    return 1.0 / len(jobs) + random.normal(0, 0.001)


def _wild_at_the_end(_: int, jobs: Sequence[int], random: np.random.Generator) -> float:
    """Sets whose jobs are both of the last two families behave in no foreseeable way."""
    wild = min(jobs) >= 12
    return float(np.clip(random.uniform(0.1, 1.0) if wild else 0.5 + random.normal(0, 0.001), 0.05, 1.0))


def _table(
    sets: Sequence[Sequence[int]], speeds: Speeds = _steady, *, oom: Sequence[int] = (), failed: Sequence[int] = ()
) -> pd.DataFrame:
    """Solo rows of all configs, then the sets; ``oom`` are places in ``sets``, ``failed`` configs that fail alone."""
    random = np.random.default_rng(5)
    rows: list[dict[str, Any]] = []

    def add(ident: str, jobs: Sequence[int], outcome: str, values: Callable[[int], dict[str, float]]) -> None:
        for place, i in enumerate(jobs):
            job = CONFIGS[i]
            rows.append(
                {
                    "measurement_id": ident,
                    "job_index": place,
                    "gpu": "h200",
                    "num_gpus": 1,
                    "sharing_mode": "time-slice",
                    "model": job.model,
                    "family": job.family,
                    "batch_size": job.batch_size,
                    "precision": job.precision,
                    "role": "solo" if len(jobs) == 1 else "colocated",
                    "outcome": outcome,
                    "provenance": "measured",
                    "source": "lab",
                    **(values(i) if outcome == "ok" else {}),
                }
            )

    for i in range(len(CONFIGS)):
        solo = {"throughput_samples_s": 100.0 + i, "gpu_util_pct": 5.0 * i, "mem_mib": 1000.0 * (i + 1)}
        add(f"s{i}", [i], "failed" if i in failed else "ok", lambda _, solo=solo: solo)  # type: ignore[misc]
    for n, jobs in enumerate(sets):
        outcome = "oom" if n in oom else "ok"
        add(f"p{n}", jobs, outcome, lambda i, jobs=jobs: {"relative_speed": speeds(i, jobs, random)})  # type: ignore[misc]
    return pd.DataFrame(rows).reindex(columns=COLUMN_NAMES)


def _chosen(planner: LearningPlanner, n: int, speeds: Speeds = _steady) -> list[tuple[int, ...]]:
    """The first ``n`` sets of a run in which each set is measured as soon as it is chosen."""
    done: list[tuple[int, ...]] = []
    for _ in range(n):
        jobs = planner.choose(CONFIGS, _table(done, speeds))
        assert jobs is not None
        done.append(jobs)
    return done


def test_no_set_is_chosen_twice_and_the_same_seed_chooses_the_same() -> None:
    first = _chosen(LearningPlanner(3), 26)
    assert len(set(first)) == 26
    assert all(list(jobs) == sorted(jobs) and set(jobs) <= set(range(len(CONFIGS))) for jobs in first)
    assert _chosen(LearningPlanner(3), 26) == first
    assert _chosen(LearningPlanner(4), 26) != first


def test_a_planner_that_starts_from_a_table_chooses_like_one_that_saw_it_grow() -> None:
    planner = LearningPlanner(3)
    done = _chosen(planner, 33)
    assert LearningPlanner(3).choose(CONFIGS, _table(done)) == planner.choose(CONFIGS, _table(done))


def test_before_enough_is_measured_families_are_covered_evenly() -> None:
    chosen = _chosen(LearningPlanner(0, PAIRS), 16)
    counts = Counter(CONFIGS[i].family for jobs in chosen for i in jobs)
    assert set(counts) == set(FAMILIES)
    assert max(counts.values()) - min(counts.values()) <= 2
    assert len({tuple(sorted(CONFIGS[i].family for i in jobs)) for jobs in chosen}) == 16


def test_sizes_keep_to_their_shares() -> None:
    sizes = Counter(map(len, _chosen(LearningPlanner(0, {2: 0.5, 3: 0.3, 4: 0.2}), 40)))
    assert sizes == {2: 20, 3: 12, 4: 8}
    assert set(map(len, _chosen(LearningPlanner(0, {3: 1.0}), 5))) == {3}


def test_it_looks_where_the_trees_disagree() -> None:
    """After as many sets of every kind, the unforeseeable ones are asked for again and again."""
    every = list(combinations_with_replacement(range(len(CONFIGS)), 2))
    done = [every[i] for i in np.random.default_rng(1).permutation(len(every))[:70]]
    share_left = np.mean([min(jobs) >= 12 for jobs in every if jobs not in done])
    wild = 0
    planner = LearningPlanner(0, PAIRS)
    for _ in range(10):
        jobs = planner.choose(CONFIGS, _table(done, _wild_at_the_end))
        assert jobs is not None
        wild += min(jobs) >= 12
        done.append(jobs)
    assert wild / 10 > 3 * share_left


def test_a_job_that_fails_alone_takes_no_part() -> None:
    done: list[tuple[int, ...]] = []
    planner = LearningPlanner(0, PAIRS)
    for _ in range(25):
        jobs = planner.choose(CONFIGS, _table(done, failed=range(3, 16)))
        if jobs is None:
            break
        done.append(jobs)
    assert sorted(done) == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]


def test_what_would_not_fit_is_not_tried() -> None:
    """Configs 7 and 8 (8 + 9 thousand MiB) ran out of memory: no set of 17 thousand MiB or more is tried."""
    done: list[tuple[int, ...]] = [(7, 8)]
    planner = LearningPlanner(0, PAIRS)
    while (jobs := planner.choose(CONFIGS, _table(done, oom=[0]))) is not None:
        done.append(jobs)
    mib = [1000 * sum(i + 1 for i in jobs) for jobs in done[1:]]
    assert max(mib) == 16_000
    assert len(done) - 1 == sum(i + 1 + j + 1 < 17 for i, j in combinations_with_replacement(range(16), 2))


def test_it_keeps_to_the_sets_it_may_choose_from() -> None:
    planner, among = LearningPlanner(0), [(0, 1), (2, 9, 9), (3, 3)]
    done: list[tuple[int, ...]] = []
    while (jobs := planner.choose(CONFIGS, _table(done, failed=[3]), among)) is not None:
        done.append(jobs)
    assert sorted(done) == [(0, 1), (2, 9, 9)]


def test_the_tables_of_these_tests_are_profile_tables() -> None:
    table = _table([(0, 1), (2, 2, 3)], oom=[1], failed=[5])
    assert len(validate_profiles(table, where="test")) == len(table) == 16 + 5


def test_nothing_measured_yet_and_nothing_left_to_measure() -> None:
    planner = LearningPlanner(0, PAIRS)
    assert planner.choose(CONFIGS, EMPTY) is not None
    assert planner.choose([], EMPTY) is None
    one = CONFIGS[:1]
    assert planner.choose(one, EMPTY) == (0, 0)
    assert planner.choose(one, _table([(0, 0)])) is None
    twice = (CONFIGS[0], CONFIGS[0])
    assert planner.choose(twice, _table([(0, 0)])) is None


@pytest.mark.parametrize("shares", [{1: 1.0}, {5: 1.0}, {2: -1.0}, {2: 0.0}, {}])
def test_shares_that_make_no_sense_are_refused(shares: dict[int, float]) -> None:
    with pytest.raises(InputError, match="expected shares above 0 of sets of 2 to 4 jobs"):
        LearningPlanner(0, shares)
