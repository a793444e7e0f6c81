"""Small seeded examples shared by the predictor's tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from eaco_datasets.gpus import gpu
from eaco_datasets.physics import soft_cap_w
from eaco_datasets.schema import validate_profiles
from eaco_datasets.simulated import simulate_profiles
from eaco_datasets.sources import load_dataset
from eaco_features.examples import Examples, examples_from_profiles
from eaco_predictor.fitting import fit_predictor
from eaco_predictor.predictor import Predictor

Row = dict[str, Any]

_USUAL: Row = {
    "job_index": 0,
    "gpu": "rtx3090",
    "num_gpus": 1,
    "sharing_mode": "time-slice",
    "model": "m",
    "family": "resnet50",
    "dataset": "imagenet",
    "batch_size": 32,
    "precision": "fp32",
    "role": "solo",
    "outcome": "ok",
    "provenance": "measured",
    "source": "lab",
}

SATURATION = {"bert": 0.85, "deepspeech2": 0.55, "neumf": 0.1, "resnet50": 0.75, "shufflenetv2": 0.4}
"""Share of the span from idle to limit that each family asks for at batch size 32."""


def build_table(rows: Sequence[Row]) -> pd.DataFrame:
    """Rows over usual values, checked; each row without a ``measurement_id`` is a measurement of its own."""
    filled = [{"measurement_id": f"m{i}", **_USUAL, **row} for i, row in enumerate(rows)]
    return validate_profiles(pd.DataFrame(filled), where="test")


@pytest.fixture
def make_table() -> Callable[[Sequence[Row]], pd.DataFrame]:
    """The builder of small profile tables."""
    return build_table


@pytest.fixture(scope="session")
def simulated() -> pd.DataFrame:
    """Simulated profiles on two GPU types. Treat as read-only."""
    return simulate_profiles(gpus=["rtx3090", "v100-sxm"], n_sets_per_gpu=60)


@pytest.fixture(scope="session")
def power_table() -> pd.DataFrame:
    """Solo rows at several power limits and batch sizes on two GPU types, made with a soft cap and 2 % noise."""
    random = np.random.default_rng(7)
    rows: list[Row] = []
    for slug in ("v100-pcie", "a40"):
        spec = gpu(slug)
        for family, at_32 in SATURATION.items():
            for batch_size in (16, 32, 64):
                odds = at_32 / (1 - at_32) * np.sqrt(batch_size / 32)
                demand_w = spec.idle_w + odds / (1 + odds) * (spec.power_limit_w - spec.idle_w)
                for share in (0.5, 0.75, 1.0):
                    limit_w = share * spec.power_limit_w
                    power_w = float(soft_cap_w(demand_w, limit_w, 6.0)) * (1 + 0.02 * random.uniform(-1, 1))
                    rows.append(
                        {
                            "gpu": slug,
                            "model": family,
                            "family": family,
                            "dataset": "d",
                            "batch_size": batch_size,
                            "power_limit_w": limit_w,
                            "gpu_power_w": min(power_w, limit_w),
                        }
                    )
    return build_table(rows)


@pytest.fixture(scope="session")
def examples_of(simulated: pd.DataFrame, power_table: pd.DataFrame) -> Callable[[str], Examples]:
    """Small examples of each target: simulated sets, synthetic solo power, the published node power."""
    tables = {"gpu_power_w": power_table, "node_power_w": load_dataset("eaco")}
    made: dict[str, Examples] = {}

    def of(target: str) -> Examples:
        if target not in made:
            made[target] = examples_from_profiles(tables.get(target, simulated), target)
        return made[target]

    return of


@pytest.fixture(scope="session")
def predictor(simulated: pd.DataFrame) -> Predictor:
    """A predictor of the simulated profiles with the default models."""
    return fit_predictor(simulated)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of the public measured data."""
    named = os.environ.get("EACO_DATA_DIR")
    if not named:
        pytest.skip("EACO_DATA_DIR is not set: it names the folder of the public measured data")
    return Path(named)
