"""A small profile table to break on purpose."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest


def _row(ident: str, index: int, family: str, role: str, **more: Any) -> dict[str, Any]:
    return {
        "measurement_id": ident,
        "job_index": index,
        "gpu": "rtx3090",
        "num_gpus": 1,
        "sharing_mode": "time-slice",
        "model": family,
        "family": family,
        "batch_size": 32,
        "precision": "fp32",
        "role": role,
        "outcome": "ok",
        "provenance": "measured",
        "source": "test",
        **more,
    }


@pytest.fixture
def profiles() -> pd.DataFrame:
    """Two solo jobs, one pair of them, one pair that ran out of memory; rows 1 to 6."""
    return pd.DataFrame(
        [
            _row("s1", 0, "resnet18", "solo", throughput_samples_s=1000.25, gpu_util_pct=60.5, mem_mib=2000.0),
            _row("s2", 0, "vgg16", "solo", throughput_samples_s=0.1 + 0.2, gpu_util_pct=50.0, mem_mib=3000.0),
            _row("p1", 0, "resnet18", "colocated", relative_speed=0.9, gpu_util_pct=95.0, mem_mib=5000.0),
            _row("p1", 1, "vgg16", "colocated", relative_speed=0.8, gpu_util_pct=95.0, mem_mib=5000.0),
            _row("p2", 0, "resnet18", "colocated", outcome="oom"),
            _row("p2", 1, "resnet18", "colocated", outcome="oom"),
        ]
    )


@pytest.fixture
def data_dir() -> Path:
    """The folder with the public data; skips where none is named."""
    named = os.environ.get("EACO_DATA_DIR")
    if not named:
        pytest.skip("EACO_DATA_DIR names no folder with the public data")
    return Path(named)
