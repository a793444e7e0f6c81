"""Models on the feature matrix: ridge, forest, boosted trees and a shallow monotone forest."""

from __future__ import annotations

from typing import Any, ClassVar

import lightgbm
import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge as SklearnRidge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from eaco_features.sets import FloatArray
from eaco_predictor.models.base import Inputs, MatrixModel, input_features


def _imputer() -> SimpleImputer:
    return SimpleImputer(strategy="median", keep_empty_features=True)


class Ridge(MatrixModel):
    """Linear in standardised features; unknown features are taken as the training median."""

    name: ClassVar[str] = "ridge"

    def __init__(self, target: str = "relative_speed", seed: int = 0, penalty: float = 10.0) -> None:
        super().__init__(target, seed)
        self.penalty = penalty

    def _fit_rows(self, features: FloatArray, target: FloatArray, weights: FloatArray) -> None:
        self._model: Pipeline = make_pipeline(_imputer(), StandardScaler(), SklearnRidge(alpha=self.penalty))
        self._model.fit(features, target, ridge__sample_weight=weights)

    def _predict_rows(self, features: FloatArray) -> FloatArray:
        scaled = self._model[:-1].transform(features)  # summed row by row, so that no row's place changes its last bit
        return np.asarray(np.einsum("ij,j->i", scaled, self._model[-1].coef_) + self._model[-1].intercept_, dtype=float)


class Forest(MatrixModel):
    """A plain random forest, as most published predictors use; unknown features are the training median."""

    name: ClassVar[str] = "forest"

    def __init__(self, target: str = "relative_speed", seed: int = 0, n_trees: int = 200, min_leaf: int = 20) -> None:
        super().__init__(target, seed)
        self.n_trees, self.min_leaf = n_trees, min_leaf

    def _fit_rows(self, features: FloatArray, target: FloatArray, weights: FloatArray) -> None:
        forest = RandomForestRegressor(
            self.n_trees, min_samples_leaf=self.min_leaf, random_state=self.seed, max_features=1 / 3
        )
        self._model: Pipeline = make_pipeline(_imputer(), forest)
        self._model.fit(features, target, randomforestregressor__sample_weight=weights)

    def _predict_rows(self, features: FloatArray) -> FloatArray:
        return np.asarray(self._model.predict(features), dtype=float)


class _LightGBM(MatrixModel):
    """A LightGBM booster; unknown features stay unknown. Monotone in the co-runners' load for relative speed."""

    monotone: ClassVar[bool] = True

    def _parameters(self) -> dict[str, Any]:
        raise TypeError(f"{type(self).__name__} names no parameters")

    def _rounds(self) -> int:
        return 200

    def _categories(self) -> list[int]:
        return []

    def _fit_rows(self, features: FloatArray, target: FloatArray, weights: FloatArray) -> None:
        parameters = {
            "objective": "regression",
            "seed": self.seed,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 1,
            "verbosity": -1,
            "min_sum_hessian_in_leaf": 0.0,
            **self._parameters(),
        }
        if self.target == "relative_speed":
            parameters["monotone_constraints"] = [-1 if f.load else 0 for f in input_features(self.inputs)]
        self._centre = float(np.average(target, weights=weights))  # a tree that cannot split must say the mean, not 0
        centred = target - self._centre
        data = lightgbm.Dataset(features, label=centred, weight=weights, categorical_feature=self._categories())
        self.booster: lightgbm.Booster = lightgbm.train(parameters, data, num_boost_round=self._rounds())

    def _predict_rows(self, features: FloatArray) -> FloatArray:
        return np.asarray(self._centre + self.booster.predict(features, num_threads=1), dtype=float)


class LightGBM(_LightGBM):
    """Gradient-boosted trees."""

    name: ClassVar[str] = "lightgbm"

    def _parameters(self) -> dict[str, Any]:
        return {"learning_rate": 0.05, "num_leaves": 15, "min_data_in_leaf": 20}


class LightGBMGraph(LightGBM):
    """The same on the jobs' model graphs, without their solo profiles."""

    name: ClassVar[str] = "lightgbm-graph"
    inputs: ClassVar[Inputs] = "graph"


class LightGBMBoth(LightGBM):
    """The same on solo profiles and model graphs."""

    name: ClassVar[str] = "lightgbm-both"
    inputs: ClassVar[Inputs] = "both"


class ShallowForest(_LightGBM):
    """An extremely randomised, monotone forest with large leaves and families weighted alike.

    With few families a tree must not tell them apart: leaves hold at least ``min_leaf`` rows.
    """

    name: ClassVar[str] = "shallow-forest"
    equal_families: ClassVar[bool] = True

    def __init__(self, target: str = "relative_speed", seed: int = 0, min_leaf: int = 80, n_trees: int = 100) -> None:
        super().__init__(target, seed)
        self.min_leaf, self.n_trees = min_leaf, n_trees

    def _rounds(self) -> int:
        return self.n_trees

    def _parameters(self) -> dict[str, Any]:
        return {
            "boosting": "rf",
            "extra_trees": True,
            "extra_seed": self.seed,
            "num_leaves": 31,
            "min_data_in_leaf": self.min_leaf,
            "bagging_fraction": 0.8,
            "bagging_freq": 1,
            "feature_fraction": 0.5,
        }
