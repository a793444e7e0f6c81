"""What the planner of the profiler is worth: error after N measured pairs, chosen by it or at random.

    python benchmarks/planning.py --data-dir DIR

Lucid's measured pairs are replayed: a third of them, drawn anew for each seed, is the test; of the others one after
another is "measured", all solo rows being known. Both ways meet the same test pairs. Error: mean absolute error of
LightGBM on relative speed, mean over seeds, with the standard error of the paired difference; ends with one
``name=value`` a line.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from eaco_datasets.sources import load_dataset
from eaco_datasets.types import Job
from eaco_features.examples import Examples, examples_from_profiles
from eaco_features.sets import IntArray
from eaco_predictor.planning import LearningPlanner
from eaco_predictor.registry import make_model

BUDGETS = (40, 80, 120, 160)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=8)
    options = parser.parse_args()
    table = load_dataset("lucid", options.data_dir)
    table = table[table["provenance"] == "measured"]
    examples = examples_from_profiles(table, "relative_speed")
    planned, random = np.array([_errors(table, examples, seed) for seed in range(options.seeds)]).transpose(1, 0, 2)
    for i, budget in enumerate(BUDGETS):
        difference = planned[:, i] - random[:, i]
        print(f"random_mae_{budget}={random[:, i].mean():.4f}")
        print(f"planned_mae_{budget}={planned[:, i].mean():.4f}")
        print(f"planned_minus_random_standard_error_{budget}={difference.std(ddof=1) / len(difference) ** 0.5:.4f}")


def _errors(table: pd.DataFrame, examples: Examples, seed: int) -> list[list[float]]:
    """Error at each budget, planned and at random."""
    configs = examples.sets.configs
    jobs = [Job(c.family, c.family, c.batch_size, c.precision, dataset=c.dataset or None) for c in configs]
    at = {tuple(sorted(pair)): i for i, pair in enumerate(examples.sets.config[:, :2].tolist())}
    random = np.random.default_rng(seed)
    order = [list(at)[i] for i in random.permutation(len(at))]
    test, pool = order[: len(order) // 3], order[len(order) // 3 :]
    place_of_test = np.array([at[pair] for pair in test])
    solo = table[table["role"] == "solo"]
    rows = dict(list(table[table["role"] == "colocated"].groupby("measurement_id")))
    planner, planned, measured = LearningPlanner(seed), [], [solo]
    for _ in range(max(BUDGETS)):
        chosen = planner.choose(jobs, pd.concat(measured, ignore_index=True), pool)
        assert chosen is not None
        planned.append(chosen)
        measured.append(rows[examples.measurement_id[at[chosen]]])
    return [
        [_error(examples, np.array([at[pair] for pair in way[:n]]), place_of_test) for n in BUDGETS]
        for way in (planned, pool)
    ]


def _error(examples: Examples, learned: IntArray, test: IntArray) -> float:
    model = make_model("relative_speed", "lightgbm").fit(examples.sets.take(learned), examples.target[learned])
    target = np.minimum(examples.target[test], 1.05)
    return float(np.nanmean(np.abs(model.predict(examples.sets.take(test)) - target)))


if __name__ == "__main__":
    main()
