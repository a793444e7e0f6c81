"""Lucid (ASPLOS'23): solo jobs and co-located pairs on one RTX 3090.

Source: https://github.com/S-Lab-System-Group/Lucid, licence S-Lab 1.0: **non-commercial use only**. Utilisation is
nvidia-smi's, polled every 0.2 s over about 30 s; ``gmem`` is the mean of a solo job and the maximum of a pair.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from eaco_datasets.columns import ColumnSpec
from eaco_datasets.names import dataset_slug, family_of
from eaco_datasets.readers.files import read_source_csv, source_file
from eaco_datasets.schema import HIGHEST_PCT, HIGHEST_RELATIVE_SPEED, validate_profiles

SOURCE = "lucid"
GPU = "rtx3090"
SOLO_FILE = "lucid/single_data.csv"
PAIR_FILE = "lucid/colocate_info.csv"

UNMEASURED_MODELS = ("PPO", "TD3")
"""Their relative speed is exactly 1 in every pair: filled in, not measured. Their solo speed is not samples/s."""


def _text(name: str) -> ColumnSpec:
    return ColumnSpec(name, "text", required=True)


def _count(name: str, at_least: float = 1, at_most: float | None = None) -> ColumnSpec:
    return ColumnSpec(name, "integer", required=True, at_least=at_least, at_most=at_most)


def _number(name: str, *, above: float | None = None, at_most: float | None = None) -> ColumnSpec:
    at_least = 0.0 if above is None else None
    return ColumnSpec(name, "number", required=True, above=above, at_least=at_least, at_most=at_most)


_GPU_COLUMNS = (
    _number("gpu_util", at_most=HIGHEST_PCT),
    _number("gmem_util", at_most=HIGHEST_PCT),
    _number("gmem", above=0.0),
)
_SOLO_COLUMNS = (
    _text("model"),
    _text("dataset"),
    _count("batchsize"),
    _count("amp", 0, 1),
    _number("speed", above=0.0),
    *_GPU_COLUMNS,
)
_JOB_COLUMNS = ("model", "dataset", "gpu_num", "batchsize", "amp", "speed")
_PAIR_COLUMNS = (
    *(
        spec
        for i in ("1", "2")
        for spec in (
            _text(f"model{i}"),
            _text(f"dataset{i}"),
            _count(f"gpu_num{i}"),
            _count(f"batchsize{i}"),
            _count(f"amp{i}", 0, 1),
            _number(f"speed{i}", above=0.0, at_most=HIGHEST_RELATIVE_SPEED),
        )
    ),
    *_GPU_COLUMNS,
)


def read(data_dir: Path | None) -> pd.DataFrame:
    """Solo profiles and pairs (two rows each) on one RTX 3090, time-sliced.

    Relative speeds are as published, not clipped. PPO's and TD3's own are ``imputed``, their co-runners' ``measured``.

    Raises:
        InputError: a file is missing.
        DataError: a file is no such table.
    """
    solo_path, pair_path = source_file(data_dir, SOLO_FILE), source_file(data_dir, PAIR_FILE)
    solos = _solo_rows(read_source_csv(solo_path, _SOLO_COLUMNS))
    pairs = _pair_rows(read_source_csv(pair_path, _PAIR_COLUMNS))
    return validate_profiles(pd.concat([solos, pairs], ignore_index=True), where=f"{solo_path} and {pair_path.name}")


def _solo_rows(raw: pd.DataFrame) -> pd.DataFrame:
    in_samples = ~raw["model"].isin(UNMEASURED_MODELS)
    rows = _job_columns(raw).assign(
        measurement_id=[f"lucid-solo-{i}" for i in range(1, len(raw) + 1)],
        job_index=0,
        num_gpus=1,
        role="solo",
        provenance="measured",
        throughput_samples_s=raw["speed"].where(in_samples),
    )
    return rows.join(_gpu_columns(raw))


def _pair_rows(raw: pd.DataFrame) -> pd.DataFrame:
    ids = [f"lucid-pair-{i}" for i in range(1, len(raw) + 1)]
    halves = []
    for index in (0, 1):
        job = raw.rename(columns={f"{name}{index + 1}": name for name in _JOB_COLUMNS})
        unmeasured = job["model"].isin(UNMEASURED_MODELS) & (job["speed"] == 1.0)
        half = _job_columns(job).assign(
            measurement_id=ids,
            job_index=index,
            num_gpus=job["gpu_num"],
            role="colocated",
            provenance=np.where(unmeasured, "imputed", "measured"),
            relative_speed=job["speed"],
        )
        halves.append(half.join(_gpu_columns(raw)))
    order = np.arange(2 * len(raw)).reshape(2, -1).T.ravel()
    return pd.concat(halves, ignore_index=True).iloc[order]


def _job_columns(raw: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "gpu": GPU,
            "sharing_mode": "time-slice",
            "model": raw["model"],
            "family": [family_of(m, d) for m, d in zip(raw["model"], raw["dataset"], strict=True)],
            "dataset": raw["dataset"].map(dataset_slug),
            "batch_size": raw["batchsize"],
            "precision": np.where(raw["amp"] == 1, "amp", "fp32"),
            "outcome": "ok",
            "source": SOURCE,
        }
    )


def _gpu_columns(raw: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {"gpu_util_pct": raw["gpu_util"], "mem_util_pct": raw["gmem_util"], "mem_mib": raw["gmem"].astype(float)}
    )
