"""The summary of a profile run and its plots."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

from eaco_datasets.errors import EacoError
from eaco_datasets.profiling.report import plots, summarise, write_plots
from eaco_datasets.schema import COLUMN_NAMES, validate_profiles

_USUAL = {
    "gpu": "h200",
    "num_gpus": 1,
    "sharing_mode": "time-slice",
    "batch_size": 32,
    "precision": "fp32",
    "outcome": "ok",
    "provenance": "measured",
    "source": "lab",
}


def _measurement(ident: str, jobs: Sequence[tuple[str, float | None]], **columns: Any) -> list[dict[str, Any]]:
    """Rows of jobs with their throughput (one job) or relative speed (several)."""
    speed = "throughput_samples_s" if len(jobs) == 1 else "relative_speed"
    role = "solo" if len(jobs) == 1 else "colocated"
    return [
        {
            **_USUAL,
            "measurement_id": ident,
            "job_index": i,
            "role": role,
            "model": model,
            "family": model,
            speed: value,
            **columns,
        }
        for i, (model, value) in enumerate(jobs)
    ]


@pytest.fixture
def table() -> pd.DataFrame:
    rows = [
        *_measurement("s0", [("resnet50", 100.0)], gpu_util_pct=90.0, gpu_power_w=500.0, power_limit_w=700.0),
        *_measurement("s1", [("resnet50", 110.0)], gpu_util_pct=92.0, gpu_power_w=510.0, power_limit_w=700.0),
        *_measurement("s2", [("vgg16", 50.0)], throttled=True),
        *_measurement("p0", [("resnet50", 0.5), ("vgg16", 0.6)], gpu_util_pct=99.0, gpu_power_w=600.0),
        *_measurement("p1", [("vgg16", 0.66), ("resnet50", 0.5)]),
        *_measurement("p2", [("vgg16", 0.5), ("vgg16", 0.7)]),
        *_measurement("p3", [("vgg16", 0.7), ("vgg16", 0.5)]),
        *_measurement("p4", [("resnet50", None), ("resnet50", None)], outcome="oom"),
        *_measurement("t0", [("resnet50", None), ("vgg16", None), ("vgg16", None)], outcome="failed"),
    ]
    return validate_profiles(pd.DataFrame(rows), where="test")


def test_the_summary_counts_rows_measurements_and_outcomes(table: pd.DataFrame) -> None:
    found = summarise(table, ["unstable: drift 8 %", "throttled", "unstable: drift 8 %"])
    assert (found.n_rows, found.n_families, found.n_throttled) == (16, 2, 1)
    assert found.sets == {1: 3, 2: 5, 3: 1}
    assert found.outcomes == {"failed": 1, "ok": 7, "oom": 1}
    assert found.provenance == {"measured": 9}
    assert found.rejected == {"unstable: drift 8 %": 2, "throttled": 1}
    assert found.n_repeats == 3  # s1, p1 in another order, p3


def test_the_noise_floor_is_the_median_relative_difference_of_repeats(table: pd.DataFrame) -> None:
    found = summarise(table)
    assert found.solo_floor is not None
    assert found.shared_floor is not None
    assert (found.solo_floor.n, found.solo_floor.relative_difference) == (1, pytest.approx(10 / 105))
    # resnet50 beside vgg16: 0; vgg16 beside resnet50: 0.06 / 0.63; vgg16 beside itself, whichever is first: 0
    assert (found.shared_floor.n, found.shared_floor.relative_difference) == (3, 0.0)
    only = summarise(table[table["measurement_id"].isin(["p0", "p1"])]).shared_floor
    assert only is not None
    assert only.relative_difference == pytest.approx((0.06 / 0.63) / 2)


def test_three_repeats_count_every_two_of_them() -> None:
    rows = [row for i, speed in enumerate((100.0, 100.0, 50.0)) for row in _measurement(f"s{i}", [("vgg16", speed)])]
    floor = summarise(validate_profiles(pd.DataFrame(rows), where="test")).solo_floor
    assert floor is not None
    assert floor.relative_difference == pytest.approx((0 + 2 / 3 + 2 / 3) / 3)


@pytest.mark.parametrize("column", ["gpu", "sharing_mode", "batch_size", "precision"])
def test_another_setting_is_no_repeat(column: str) -> None:
    other = {"gpu": "a100-40", "sharing_mode": "mps", "batch_size": 64, "precision": "bf16"}[column]
    rows = _measurement("a", [("vgg16", 1.0)]) + _measurement("b", [("vgg16", 2.0)], **{column: other})
    found = summarise(validate_profiles(pd.DataFrame(rows), where="test"))
    assert (found.n_repeats, found.solo_floor) == (0, None)


def test_the_summary_as_text_states_what_is_known_and_what_is_not(table: pd.DataFrame) -> None:
    lines = summarise(table, ["throttled"]).lines()
    assert lines[0] == "9 measurements, 16 rows, 2 model families (measured 9)"
    assert "jobs at a time: 3 of 1, 5 of 2, 1 of 3" in lines
    assert "noise floor of throughput alone: 9.52 % (median of 1 repeated)" in lines
    assert "rejected windows: 1 x throttled" in lines
    once = summarise(table[table["measurement_id"] == "s2"]).lines()
    assert "noise floor of relative speed: unknown, nothing was repeated" in once


def test_an_empty_run_has_a_summary_and_no_plots() -> None:
    empty = pd.DataFrame(columns=COLUMN_NAMES)
    found = summarise(empty, ["worker died"])
    assert (found.n_rows, found.sets, found.shared_floor) == (0, {}, None)
    assert found.lines()[-1] == "rejected windows: 1 x worker died"
    assert plots(empty) == {}


def _texts(svg: str) -> str:
    return " ".join(ElementTree.canonicalize(svg).split())


def test_plots_are_drawings_of_what_is_there_and_the_same_each_time(table: pd.DataFrame) -> None:
    drawn = plots(table)
    assert set(drawn) == {"relative-speed.svg", "power.svg"}
    assert drawn == plots(table)
    matrix = _texts(drawn["relative-speed.svg"])
    assert all(label in matrix for label in ("resnet50:32:fp32", "vgg16:32:fp32", "relative speed"))
    power = _texts(drawn["power.svg"])
    assert all(label in power for label in ("1 at a time", "2 at a time", "power limit", "GPU power (W)"))


def test_without_power_or_pairs_there_is_no_plot_of_them(table: pd.DataFrame) -> None:
    assert set(plots(table.assign(gpu_power_w=float("nan")))) == {"relative-speed.svg"}
    assert set(plots(table[table["role"] == "solo"])) == {"power.svg"}


def test_plots_are_written_to_a_folder(table: pd.DataFrame, tmp_path: Path) -> None:
    written = write_plots(table, tmp_path / "new")
    assert [path.name for path in written] == ["relative-speed.svg", "power.svg"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["power.svg", "relative-speed.svg"]
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(EacoError, match="cannot be written"):
        write_plots(table, tmp_path / "file")


def test_a_summary_needs_no_plotting_library() -> None:
    code = (
        "import sys, pandas\nfrom eaco_datasets.profiling.report import summarise\n"
        "from eaco_datasets.schema import COLUMN_NAMES\nsummarise(pandas.DataFrame(columns=COLUMN_NAMES))\n"
        "assert 'matplotlib' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
