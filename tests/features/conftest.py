"""A builder of small profile tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import pytest

from eaco_datasets.schema import validate_profiles

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


@pytest.fixture
def make_table() -> Callable[[Sequence[Row]], pd.DataFrame]:
    """Rows over usual values, checked; each row without a ``measurement_id`` is a measurement of its own."""

    def build(rows: Sequence[Row]) -> pd.DataFrame:
        filled = [{"measurement_id": f"m{i}", **_USUAL, **row} for i, row in enumerate(rows)]
        return validate_profiles(pd.DataFrame(filled), where="test")

    return build
