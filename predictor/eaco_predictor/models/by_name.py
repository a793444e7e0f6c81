"""What a model learns that is told the job's name: nearly everything in sample, nothing about an unseen job."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from eaco_features.schema import FEATURE_NAMES
from eaco_features.sets import FloatArray, SetBatch
from eaco_predictor.models.matrix_models import LightGBM

_NAMES = ("family", "dataset", "optimizer")


class LightGBMByName(LightGBM):
    """Gradient-boosted trees that also read family, dataset and optimizer as categories; an unseen one is unknown.

    The honest opponent: on a random split it looks excellent, and leave-one-model-out shows what that is worth.
    """

    name: ClassVar[str] = "lightgbm-by-name"
    monotone: ClassVar[bool] = False

    def fit(self, sets: SetBatch, target: FloatArray) -> Self:
        used = np.unique(sets.config[sets.present & np.isfinite(target)])
        self._codes: dict[str, dict[Any, int]] = {
            name: {value: i for i, value in enumerate(sorted({getattr(sets.configs[c], name) for c in used}))}
            for name in _NAMES
        }
        return super().fit(sets, target)

    def _matrix(self, sets: SetBatch) -> FloatArray:
        by_config = np.array(
            [[self._codes[name].get(getattr(key, name), np.nan) for name in _NAMES] for key in sets.configs]
        ).reshape(-1, len(_NAMES))
        return np.hstack([super()._matrix(sets), by_config[sets.config[sets.rows]]])

    def _categories(self) -> list[int]:
        return list(range(len(FEATURE_NAMES), len(FEATURE_NAMES) + len(_NAMES)))
