"""Zeus (NSDI'23): epoch time and mean GPU power of solo jobs by batch size and power limit, on four GPU types.

Source: https://github.com/ml-energy/zeus, Apache-2.0. The files say nothing of precision: ``fp32`` is assumed.
Throughput stays null: whether an epoch's time holds its evaluation is not said.
The V100 has a 250 W limit, so it is the PCIe card.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from eaco_datasets.columns import ColumnSpec
from eaco_datasets.names import dataset_slug, family_of
from eaco_datasets.readers.files import read_source_csv, source_file
from eaco_datasets.schema import validate_profiles

SOURCE = "zeus"
FILES: dict[str, str] = {
    "zeus/summary_power_a40.csv": "a40",
    "zeus/summary_power_p100.csv": "p100",
    "zeus/summary_power_rtx6000.csv": "rtx6000-turing",
    "zeus/summary_power_v100.csv": "v100-pcie",
}
"""File -> GPU slug."""

_COLUMNS = (
    ColumnSpec("dataset", "text", required=True),
    ColumnSpec("network", "text", required=True),
    ColumnSpec("batch_size", "integer", required=True, at_least=1),
    ColumnSpec("optimizer", "text", required=True),
    ColumnSpec("power_limit", "number", required=True, above=0.0),
    ColumnSpec("time_per_epoch", "number", required=True, above=0.0),
    ColumnSpec("average_power", "number", required=True, above=0.0),
)


def read(data_dir: Path | None) -> pd.DataFrame:
    """Solo rows with ``power_limit_w``, ``epoch_s`` and ``gpu_power_w`` (one GPU), all measured.

    Raises:
        InputError: a file is missing.
        DataError: a file is no such table.
    """
    paths = {source_file(data_dir, relative): gpu for relative, gpu in FILES.items()}
    tables = [_rows(read_source_csv(path, _COLUMNS), gpu) for path, gpu in paths.items()]
    return validate_profiles(pd.concat(tables, ignore_index=True), where=str(next(iter(paths)).parent))


def _rows(raw: pd.DataFrame, gpu: str) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "measurement_id": [f"zeus-{gpu}-{i}" for i in range(1, len(raw) + 1)],
            "job_index": 0,
            "gpu": gpu,
            "num_gpus": 1,
            "sharing_mode": "time-slice",
            "model": raw["network"],
            "family": [family_of(m, d) for m, d in zip(raw["network"], raw["dataset"], strict=True)],
            "dataset": raw["dataset"].map(dataset_slug),
            "batch_size": raw["batch_size"],
            "precision": "fp32",
            "optimizer": raw["optimizer"],
            "role": "solo",
            "outcome": "ok",
            "provenance": "measured",
            "source": SOURCE,
            "power_limit_w": raw["power_limit"],
            "epoch_s": raw["time_per_epoch"],
            "gpu_power_w": raw["average_power"],
        }
    )
