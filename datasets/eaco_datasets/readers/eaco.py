"""EaCO's published tables (arXiv 2412.08294, tables 1 to 4), embedded in the package.

Four ImageNet jobs alone and six sets of them, each on all 8 V100 of one node. Utilisation is the GPUs' mean over the
run, power the whole node's. Of the sets only averages are published: ``epoch_s`` is the mean over the jobs, no job's
``relative_speed`` is known, and ``duration_s`` is the (mean) job completion time. Batch size and precision are not
published; the jobs are PyTorch's ImageNet example, whose defaults are taken: 256 over the node's 8 GPUs, 32 each, in
fp32. Nor is the way of sharing. The four-job row's energy is not power x time (93.66 against 85.9 kWh) and its epoch
time is not given; energies are not part of the profile table.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pandas as pd

from eaco_datasets.names import dataset_slug, family_of
from eaco_datasets.schema import validate_profiles

SOURCE = "eaco"
GPU = "v100-sxm"
BATCH_SIZE_PER_GPU = 32
"""Default ``--batch-size 256`` of the PyTorch ImageNet example, which it divides over the GPUs of the node (8)."""

_SECONDS_PER_HOUR = 3600.0


def read(data_dir: Path | None = None) -> pd.DataFrame:  # noqa: ARG001 - all readers are called alike
    """The published rows: 4 solo ones and 16 of the 6 sets, provenance ``published``. ``data_dir`` is not needed."""
    solos = _table("eaco_solo.csv").assign(job_set=lambda t: t["job"])
    sets = _table("eaco_colocated.csv").rename(columns={"avg_jct_h": "jct_h", "avg_epoch_h": "epoch_h"})
    rows = [_rows(solos, solos, "solo"), _rows(sets, solos, "colocated")]
    return validate_profiles(pd.concat(rows, ignore_index=True), where="eaco (embedded)")


def _table(name: str) -> pd.DataFrame:
    with files("eaco_datasets").joinpath("data").joinpath(name).open(encoding="utf-8") as lines:
        return pd.read_csv(lines, comment="#")


def _rows(measured: pd.DataFrame, jobs: pd.DataFrame, role: str) -> pd.DataFrame:
    """One row a job of each measurement; ``jobs`` says what J1 ... are."""
    members = measured["job_set"].str.split("+")
    rows = measured.drop(columns=["model", "dataset"], errors="ignore").assign(job=members).explode("job")
    rows["job_index"] = rows.groupby(level=0).cumcount()
    rows = rows.merge(jobs[["job", "model", "dataset"]], on="job", how="left", validate="many_to_one")
    return pd.DataFrame(
        {
            "measurement_id": [f"eaco-{name.lower()}" for name in rows["job_set"]],
            "job_index": rows["job_index"],
            "gpu": GPU,
            "num_gpus": rows["num_gpus"],
            "sharing_mode": "unknown",
            "model": rows["model"],
            "family": [family_of(m, d) for m, d in zip(rows["model"], rows["dataset"], strict=True)],
            "dataset": rows["dataset"].map(dataset_slug),
            "batch_size": BATCH_SIZE_PER_GPU,
            "precision": "fp32",
            "role": role,
            "outcome": "ok",
            "provenance": "published",
            "source": SOURCE,
            "duration_s": rows["jct_h"] * _SECONDS_PER_HOUR,
            "epoch_s": rows["epoch_h"] * _SECONDS_PER_HOUR,
            "gpu_util_pct": rows["gpu_util_avg_pct"],
            "gpu_util_max_pct": rows["gpu_util_max_pct"],
            "mem_util_pct": rows["gpu_mem_util_avg_pct"],
            "mem_util_max_pct": rows["gpu_mem_util_max_pct"],
            "node_power_w": rows["node_power_w"],
        }
    )
