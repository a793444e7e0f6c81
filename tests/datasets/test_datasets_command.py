"""``eaco datasets``: what a person and a script get to see."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from eaco_datasets import fetch as fetching
from eaco_datasets.schema import write_profiles
from eaco_serving.cli import run

DATA = os.environ.get("EACO_DATA_DIR")


@pytest.fixture(autouse=True)
def _no_data_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EACO_DATA_DIR", raising=False)


def test_list_names_every_source_and_warns_of_the_licence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["datasets", "list"]) == 0
    seen = capsys.readouterr()
    for word in ("simulated", "eaco", "lucid", "gavel", "zeus", "rtx3090", "Apache-2.0", "embedded"):
        assert word in seen.out
    assert "lucid: S-Lab License 1.0 (non-commercial): non-commercial use only" in seen.err


def test_describe_cites_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["datasets", "describe", "eaco"]) == 0
    seen = capsys.readouterr()
    assert "arXiv 2412.08294" in seen.out
    assert "published" in seen.out
    assert "16" in seen.out
    assert seen.err == ""


def test_describe_without_the_files_still_describes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["datasets", "describe", "lucid", "--data-dir", str(tmp_path)]) == 0
    seen = capsys.readouterr()
    assert "eaco datasets fetch lucid" in seen.out
    assert "non-commercial use only" in seen.err


def test_check_reports_on_a_file(profiles: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.csv"
    write_profiles(profiles, path)
    assert run(["datasets", "check", str(path)]) == 0
    seen = capsys.readouterr()
    assert "censored-oom" in seen.out
    assert "6 rows of 4 measurements" in seen.out


def test_check_writes_json_and_nothing_else(
    profiles: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.parquet"
    write_profiles(profiles, path)
    assert run(["datasets", "check", str(path), "--json", "-"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["schema"], answer["rows"], answer["measurements"]) == (1, 6, 4)
    assert {f["code"] for f in answer["findings"]} == {"censored-oom", "empty-column"}
    assert answer["missing_pct"]["node_power_w"] == 100.0


def test_a_malformed_file_is_one_line_and_exit_code_2(
    profiles: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.csv"
    profiles.assign(precision="fp16").to_csv(path, index=False)
    assert run(["datasets", "check", str(path)]) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err == (f"eaco: {path}:1:precision: 'fp16' is not allowed (+5 more); expected one of fp32, amp, bf16\n")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["check", "lucid"], "--data-dir (EACO_DATA_DIR): no data folder named"),
        (["check", "lucit"], "unknown data set 'lucit'; expected perhaps lucid"),
        (["check", "nowhere.csv"], "nowhere.csv: no such file"),
        (["describe", "lucit"], "unknown data set 'lucit'"),
        (["fetch"], "--data-dir (EACO_DATA_DIR): no data folder named"),
        (["fetch", "lucit", "--data-dir", "x"], "unknown public file 'lucit'"),
        (["describe"], "Missing argument"),
        (["guess"], "No such command"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(
    args: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["datasets", *args]) == 2
    seen = capsys.readouterr()
    assert message in seen.err
    assert seen.err.splitlines()[-1].startswith("eaco: ")


def test_fetch_asks_for_the_named_files_and_says_what_came(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def fetch(data_dir: Path, names: list[str] | None, *, progress: Any, force: bool) -> list[fetching.Fetched]:
        asked.append((data_dir, names, force))
        progress("lucid/single_data.csv", 10, None)
        progress("lucid/single_data.csv", 20, 20)
        return [fetching.Fetched("lucid/single_data.csv", data_dir / "lucid/single_data.csv", 20, "downloaded")]

    monkeypatch.setattr(fetching, "fetch", fetch)
    assert run(["datasets", "fetch", "lucid", "--data-dir", str(tmp_path)]) == 0
    seen = capsys.readouterr()
    assert seen.out == "lucid/single_data.csv: downloaded, 20 bytes\n"
    assert "non-commercial use only" in seen.err
    assert run(["datasets", "fetch", "zeus", "--data-dir", str(tmp_path), "--force"]) == 0
    assert "non-commercial" not in capsys.readouterr().err
    assert asked == [(tmp_path, ["lucid"], False), (tmp_path, ["zeus"], True)]


@pytest.mark.skipif(not DATA, reason="EACO_DATA_DIR names no folder with the public data")
def test_the_data_folder_may_come_from_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EACO_DATA_DIR", DATA or "")
    assert run(["datasets", "check", "lucid", "--json", "-"]) == 0
    seen = capsys.readouterr()
    counts = {f["code"]: f["count"] for f in json.loads(seen.out)["findings"]}
    assert counts["provenance-imputed"] == 246
    assert "non-commercial use only" in seen.err
    assert run(["datasets", "describe", "gavel-k80"]) == 0
    assert "failed" in capsys.readouterr().out
