"""The family as the unit of generalisation: folds that leave families out, and weights that make families equal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from eaco_features.sets import BoolArray, FloatArray, IntArray, SetBatch
from eaco_predictor.protocol import TargetModel

MAX_INNER_FOLDS = 8
"""Most refits of one inner leave-family-out pass; with more families, several leave together (choice: cost)."""


def families_of_targets(sets: SetBatch, known: BoolArray) -> IntArray:
    """Codes of the families that have a known target, in order of their names; ``known`` is ``(n_sets, MAX_JOBS)``."""
    codes = np.unique(sets.family[known & sets.present])
    return np.array(sorted(codes, key=lambda code: sets.families[code]), dtype=np.int64)


def family_folds(
    sets: SetBatch, known: BoolArray, max_folds: int = MAX_INNER_FOLDS
) -> list[tuple[BoolArray, BoolArray]]:
    """Splits ``(train_sets (n_sets,), test_jobs (n_sets, MAX_JOBS))`` that hold families out.

    A family that is out appears in no training set, neither as the job nor as its co-runner. Families are dealt to
    at most ``max_folds`` folds in order of their names. A fold whose training part has no target is left out.
    """
    families = families_of_targets(sets, known)
    folds: list[tuple[BoolArray, BoolArray]] = []
    for group in (families[i::max_folds] for i in range(min(max_folds, len(families)))):
        held = np.asarray(np.isin(sets.family, group))
        train = np.asarray(~held.any(axis=1))
        if known[train].any():
            folds.append((train, held & known))
    return folds


def family_weights(family: IntArray) -> FloatArray:
    """Weights ``(n_rows,)`` that give every family the same total; their mean is 1."""
    _, inverse, counts = np.unique(family, return_inverse=True, return_counts=True)
    weights = 1.0 / counts[inverse]
    return np.asarray(weights * (len(family) / weights.sum()), dtype=float)


def predict_out_of_family(
    make: Callable[[], TargetModel], sets: SetBatch, target: FloatArray, folds: list[tuple[BoolArray, BoolArray]]
) -> FloatArray:
    """Predictions ``(n_sets, MAX_JOBS)`` of the folds' test jobs, each by a fit on the fold's training sets only."""
    out = np.full(target.shape, np.nan)
    for train, test in folds:
        fitted = make().fit(sets.take(train), target[train])
        held = np.nonzero(test.any(axis=1))[0]
        out[held] = np.where(test[held], fitted.predict(sets.take(held)), out[held])
    return out


def macro_mae(prediction: FloatArray, target: FloatArray, family: IntArray) -> float:
    """Mean over families of their mean absolute error; arrays ``(n_rows,)``."""
    return float(np.average(np.abs(prediction - target), weights=family_weights(family)))
