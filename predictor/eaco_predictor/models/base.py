"""What models that read feature rows share: known rows in, a grid of jobs out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, Self

import numpy as np

from eaco_datasets.errors import DataError
from eaco_features.graph_matrix import GRAPH_MATRIX, graph_matrix
from eaco_features.matrix import feature_matrix
from eaco_features.schema import FEATURES, Feature
from eaco_features.sets import BoolArray, FloatArray, SetBatch
from eaco_predictor.families import family_weights
from eaco_predictor.targets import target_spec

Inputs = Literal["solo", "graph", "both"]
"""What a model is told of a job: its solo profile, its model graph, or both. Batch size, precision and GPU always."""

_PROFILED = ("own_gpu_util_pct", "own_mem_util_pct", "own_mem_share", "own_step_ms")
_NOT_IN_A_GRAPH = frozenset(
    name for feature in FEATURES if (name := feature.name) in _PROFILED or name.startswith("others_")
)
_MEASURED = "own_measured_kernel_us"


def input_features(inputs: Inputs) -> tuple[Feature, ...]:
    """The columns that a model with these inputs reads, in order."""
    if inputs == "solo":
        return FEATURES
    if inputs == "both":
        return FEATURES + GRAPH_MATRIX
    kept = tuple(feature for feature in FEATURES if feature.name not in _NOT_IN_A_GRAPH)
    return kept + tuple(feature for feature in GRAPH_MATRIX if feature.name != _MEASURED)


def input_matrix(sets: SetBatch, inputs: Inputs) -> FloatArray:
    """One row a job, in the order of ``sets.rows``: ``(n_rows, len(input_features(inputs)))``."""
    if inputs == "solo":
        return feature_matrix(sets)
    everything = np.hstack([feature_matrix(sets), graph_matrix(sets)])
    names = [feature.name for feature in FEATURES + GRAPH_MATRIX]
    return everything[:, [names.index(feature.name) for feature in input_features(inputs)]]


def known_targets(sets: SetBatch, target: FloatArray) -> BoolArray:
    """Where a target is known ``(n_sets, MAX_JOBS)``.

    Raises:
        DataError: nowhere.
    """
    known = sets.present & np.isfinite(target)
    if not known.any():
        raise DataError("no row has a known target", where="training data", expected="at least one")
    return known


class MatrixModel(ABC):
    """Base of the models that learn from feature rows.

    ``target`` names what is learned, ``seed`` seeds what is random.
    """

    name: ClassVar[str]
    monotone: ClassVar[bool] = False
    equal_families: ClassVar[bool] = False
    inputs: ClassVar[Inputs] = "solo"

    def __init__(self, target: str = "relative_speed", seed: int = 0) -> None:
        self.target, self.seed = target, seed

    def fit(self, sets: SetBatch, target: FloatArray) -> Self:
        known = known_targets(sets, target)
        at_row = known[sets.rows]
        values = target_spec(self.target).clipped(target)[sets.rows]
        weights = np.ones(int(at_row.sum()))
        if self.equal_families:
            weights = family_weights(sets.family[sets.rows][at_row])
        self._fit_rows(self._matrix(sets)[at_row], values[at_row], weights)
        return self

    def predict(self, sets: SetBatch) -> FloatArray:
        grid = np.full(sets.present.shape, np.nan)
        if len(sets):
            grid[sets.rows] = self._predict_rows(self._matrix(sets))
        return target_spec(self.target).limit(sets, grid)

    def _matrix(self, sets: SetBatch) -> FloatArray:
        return input_matrix(sets, self.inputs)

    @abstractmethod
    def _fit_rows(self, features: FloatArray, target: FloatArray, weights: FloatArray) -> None: ...

    @abstractmethod
    def _predict_rows(self, features: FloatArray) -> FloatArray: ...
