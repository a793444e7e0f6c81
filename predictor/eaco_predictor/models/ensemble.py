"""Physics and trees averaged; how much of each is decided on families that neither has seen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, NamedTuple, Self

import numpy as np

from eaco_features.sets import FloatArray, SetBatch
from eaco_predictor.families import family_folds, macro_mae, predict_out_of_family
from eaco_predictor.models.base import known_targets
from eaco_predictor.models.matrix_models import LightGBM, LightGBMBoth, ShallowForest
from eaco_predictor.models.soft_minimum import SoftMinimum
from eaco_predictor.protocol import TargetModel
from eaco_predictor.targets import target_spec

PHYSICS_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
MIN_LEAVES = (20, 40, 80, 160)
MIN_FOLDS = 3
"""With fewer families to leave out there is nothing to choose on, and nothing for trees to learn from: physics only."""


class Choice(NamedTuple):
    """Share of the soft minimum, and the name of the trees that take the rest."""

    physics_share: float
    trees: str


class Ensemble:
    """A weighted mean of the soft minimum and one tree model.

    Inside ``fit`` every candidate predicts each training family without it (leave-one-family-out); the share and the
    tree model with the least error, families weighted alike, are then fitted on everything.
    """

    name: ClassVar[str] = "ensemble"
    monotone: ClassVar[bool] = True

    def __init__(self, target: str = "relative_speed", seed: int = 0) -> None:
        self.target, self.seed = target, seed

    def fit(self, sets: SetBatch, target: FloatArray) -> Self:
        known = known_targets(sets, target)
        folds = family_folds(sets, known)
        makers = self._tree_makers()
        self.choice = Choice(1.0, f"{ShallowForest.name}-{MIN_LEAVES[-1]}")
        physics = predict_out_of_family(SoftMinimum, sets, target, folds)
        trees = {self.choice.trees: physics}
        if len(folds) >= MIN_FOLDS:
            trees = {name: predict_out_of_family(make, sets, target, folds) for name, make in makers.items()}
            self.choice = self._choose(sets, target, physics, trees)
        share = self.choice.physics_share
        self._out_of_family = _mix(share, physics, trees[self.choice.trees])
        self.physics = SoftMinimum().fit(sets, target)
        self.trees = makers[self.choice.trees]().fit(sets, target)
        return self

    def predict(self, sets: SetBatch) -> FloatArray:
        share = self.choice.physics_share
        if share == 0:
            return self.trees.predict(sets)
        physics = self.physics.predict(sets)
        return physics if share == 1 else _mix(share, physics, self.trees.predict(sets))

    def out_of_family(self) -> FloatArray:
        """What the choice was made on: predictions ``(n_sets, MAX_JOBS)`` without the job's family."""
        return self._out_of_family

    def _tree_makers(self) -> dict[str, Callable[[], TargetModel]]:
        makers: dict[str, Callable[[], TargetModel]] = {
            f"{ShallowForest.name}-{leaf}": partial(ShallowForest, self.target, self.seed, min_leaf=leaf)
            for leaf in MIN_LEAVES
        }
        trees = (LightGBM, LightGBMBoth)
        return {**makers, **{kind.name: partial(kind, self.target, self.seed) for kind in trees}}

    def _choose(self, sets: SetBatch, target: FloatArray, physics: FloatArray, trees: dict[str, FloatArray]) -> Choice:
        scored = np.isfinite(physics) & np.isfinite(target)
        observed, family = target_spec(self.target).clipped(target)[scored], sets.family[scored]
        errors = {
            Choice(share, name): macro_mae(_mix(share, physics, out)[scored], observed, family)
            for share in PHYSICS_SHARES
            for name, out in trees.items()
        }
        return min(errors, key=lambda choice: errors[choice])


def _mix(share: float, physics: FloatArray, trees: FloatArray) -> FloatArray:
    return share * physics + (1.0 - share) * trees
