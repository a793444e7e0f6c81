"""The served predictor: every fitted part behind one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from eaco_datasets.types import CoLocation
from eaco_predictor.prediction import SetPrediction


@dataclass(frozen=True)
class PredictorInfo:
    """Where a predictor comes from. ``version`` is a content hash; ``provenance`` shares of the training rows."""

    version: str
    model: str
    datasets: tuple[str, ...]
    data_sha256: str
    n_rows: int
    families: tuple[str, ...]
    gpus: tuple[str, ...]
    provenance: dict[str, float]
    seed: int
    libraries: dict[str, str]
    notes: tuple[str, ...] = ()


class Predictor:
    """Relative speed, power, utilisation and memory of co-locations."""

    info: PredictorInfo

    def predict(self, sets: Sequence[CoLocation]) -> list[SetPrediction]:
        raise NotImplementedError

    def save(self, path: Path) -> None:
        raise NotImplementedError

    @classmethod
    def load(cls, path: Path) -> Predictor:
        raise NotImplementedError


def fit_predictor(
    profiles: pd.DataFrame, *, model: str | None = None, seed: int = 0, options: dict[str, Any] | None = None
) -> Predictor:
    """Train every part on a profile table (see ``eaco_datasets.schema``)."""
    raise NotImplementedError
