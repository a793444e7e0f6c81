"""What "K measurements of a held-out job" means: units of observation, their draws, and the noise floor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from eaco_features.examples import Examples
from eaco_features.sets import BoolArray, FloatArray, IntArray
from eaco_training.folds import Fold

N_DRAWS = 20
"""Seeds of the draw of observations (DESIGN: 20)."""

SOLO_TARGETS: tuple[str, ...] = ("gpu_power_w",)
"""Targets measured on a job alone: one configuration is one row, so the unit spans batch sizes and power limits."""

UNIT_NAMES = {True: "workload (family, dataset), optimizer and GPU", False: "job config and GPU"}


def unit_name(target: str) -> str:
    """What is observed K times, in words."""
    return UNIT_NAMES[target in SOLO_TARGETS]


def observation_units(examples: Examples, target: str) -> IntArray:
    """The unit of each row, ``(n_sets, MAX_JOBS)``; -1 without a job.

    A job config on a GPU type; for ``gpu_power_w`` a workload (family and dataset) with its optimizer on a GPU type.
    """
    sets = examples.sets
    if target in SOLO_TARGETS:
        keys = [(c.family, c.dataset, c.optimizer) for c in sets.configs]
        order = {key: code for code, key in enumerate(dict.fromkeys(keys))}
        of_config = np.array([order[key] for key in keys] + [-1], dtype=np.int64)
    else:
        of_config = np.append(np.arange(len(sets.configs), dtype=np.int64), -1)
    unit = of_config[sets.config] * len(sets.gpus) + sets.gpu[:, None]
    return np.where(sets.present, unit, -1)


@dataclass(frozen=True)
class Draw:
    """One seed's observations of one unit.

    ``order`` ``(k_max,)`` holds set indices: the first K of them are what is observed at K. ``rows`` marks the unit's
    own rows ``(n_sets, MAX_JOBS)``; ``test`` those of them that every K is scored on.
    """

    number: int
    unit: int
    order: IntArray
    rows: BoolArray
    test: BoolArray


def draws(fold: Fold, units: IntArray, k_max: int, *, seed: int, n_draws: int = N_DRAWS) -> Iterator[Draw]:
    """Every draw of every unit held out by a fold, drawn from the fold's test rows.

    Every row of a measurement drawn for any unit leaves the test rows of that draw. Draws are nested in K: what is
    observed at K is observed at K + 1 too. Units with no row left to test are passed over.
    """
    held_out = np.unique(units[fold.test])
    for number in range(n_draws):
        random = np.random.default_rng([seed, number])
        drawn = {}
        for unit in held_out:
            rows = fold.test & (units == unit)
            drawn[int(unit)] = (random.permutation(np.flatnonzero(rows.any(axis=1)))[:k_max], rows)
        taken = np.unique(np.concatenate([order for order, _ in drawn.values()]))
        for unit, (order, rows) in drawn.items():
            test = rows.copy()
            test[taken] = False
            if test.any():
                yield Draw(number, unit, order, rows, test)


def noise_floor(examples: Examples, clip: float | None) -> dict[str, int | float] | None:
    """Error that no predictor can avoid: the scatter of measurements of the same thing; ``None`` without repeats.

    Rows are repeats when GPU, sharing mode, GPU count, power limit, own config and co-runners' configs agree over at
    least two measurements. Figures are mean absolute deviations from the repeats' mean, times ``sqrt(n / (n - 1))``
    since that mean is of the same n rows.
    """
    sets = examples.sets
    at_set, at_job = np.nonzero(np.isfinite(examples.target))
    value = examples.target[at_set, at_job]
    value = value if clip is None else np.minimum(value, clip)
    key = np.column_stack(
        [
            sets.gpu[at_set],
            sets.sharing_mode[at_set],
            sets.num_gpus[at_set],
            np.nan_to_num(sets.power_limit_w[at_set], nan=-1.0),
            np.sort(sets.config, axis=1)[at_set],
            sets.config[at_set, at_job],
        ]
    )
    _, group = np.unique(key, axis=0, return_inverse=True)
    measurements = np.bincount(np.unique(np.column_stack([group, at_set]), axis=0)[:, 0])
    repeated = measurements[group] > 1
    if not repeated.any():
        return None
    n = np.bincount(group)
    mean = np.bincount(group, weights=value) / n
    widened = np.sqrt(n / np.maximum(n - 1, 1))
    deviation: FloatArray = (np.abs(value - mean[group]) * widened[group])[repeated]
    return {
        "n": int(repeated.sum()),
        "n_repeated": int((measurements > 1).sum()),
        "mae": round(float(deviation.mean()), 6),
        "mape_pct": round(float(100.0 * (deviation / np.abs(value[repeated])).mean()), 6),
    }
