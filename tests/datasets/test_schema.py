"""The profile table's schema: what it fills in, what it refuses and where it says the trouble is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eaco_datasets import schema
from eaco_datasets.errors import DataError, EacoError, InputError


def test_a_good_table_is_completed_and_ordered(profiles: pd.DataFrame) -> None:
    before = profiles.copy(deep=True)
    shuffled_columns = profiles[profiles.columns[::-1]].set_axis([7, 7, 3, 2, 1, 0])
    table = schema.validate_profiles(shuffled_columns, where="t.csv")
    assert list(table.columns) == schema.COLUMN_NAMES
    assert list(table.index) == list(range(6))
    assert {c.name: str(table[c.name].dtype) for c in schema.COLUMNS} == {c.name: c.dtype for c in schema.COLUMNS}
    assert table["node_power_w"].isna().all()
    assert table["throttled"].isna().all()
    pd.testing.assert_frame_equal(profiles, before)
    pd.testing.assert_frame_equal(schema.validate_profiles(table, where="t.csv"), table)


def test_gpu_aliases_become_slugs(profiles: pd.DataFrame) -> None:
    table = schema.validate_profiles(profiles.assign(gpu="v100"), where="t.csv")
    assert set(table["gpu"]) == {"v100-sxm"}
    assert set(schema.validate_profiles(profiles.assign(gpu="cpu-2core"), where="t")["gpu"]) == {"cpu-2core"}


def _set(row: int, column: str, value: Any) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def change(frame: pd.DataFrame) -> pd.DataFrame:
        if column not in frame:
            frame[column] = None
        frame[column] = frame[column].astype(object)
        frame.loc[row - 1, column] = value
        return frame

    return change


def _twice(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([frame, frame.iloc[[2]]], ignore_index=True)


MALFORMED: list[tuple[Callable[[pd.DataFrame], pd.DataFrame], str]] = [
    (lambda f: f.drop(columns="batch_size"), "t.csv:batch_size: the required column is missing"),
    (lambda f: f.assign(gpu_utl_pct=1.0), "t.csv:gpu_utl_pct: unknown column; expected perhaps gpu_util_pct"),
    (lambda f: pd.concat([f, f[["gpu"]]], axis=1), "t.csv:gpu: the column is there twice"),
    (lambda f: f.iloc[:0], "t.csv: the table has no rows"),
    (_set(3, "batch_size", 0), "t.csv:3:batch_size: 0 is not allowed; expected a whole number at least 1"),
    (_set(3, "batch_size", -1), "t.csv:3:batch_size: -1 is not allowed"),
    (_set(3, "batch_size", 32.5), "t.csv:3:batch_size: 32.5 does not fit; expected a whole number"),
    (_set(3, "batch_size", "many"), "t.csv:3:batch_size: 'many' does not fit"),
    (_set(3, "batch_size", None), "t.csv:3:batch_size: the cell is empty"),
    (_set(3, "batch_size", True), "t.csv:3:batch_size: True does not fit"),
    (_set(3, "batch_size", 10**30), "t.csv:3:batch_size: 1000000000000000000000000000000 does not fit"),
    (_set(1, "job_index", 4), "t.csv:1:job_index: 4 is not allowed; expected a whole number at least 0 and at most 3"),
    (_set(2, "num_gpus", 0), "t.csv:2:num_gpus: 0 is not allowed"),
    (_set(4, "gpu", "rtx9999"), "t.csv:4:gpu: unknown GPU type 'rtx9999'"),
    (_set(4, "gpu", None), "t.csv:4:gpu: the cell is empty"),
    (_set(4, "gpu", 3090), "t.csv:4:gpu: 3090 does not fit; expected text"),
    (_set(4, "precision", "fp16"), "t.csv:4:precision: 'fp16' is not allowed; expected one of fp32, amp, bf16"),
    (_set(4, "sharing_mode", "both"), "t.csv:4:sharing_mode: 'both' is not allowed; expected one of time-slice"),
    (_set(4, "role", "alone"), "t.csv:4:role: 'alone' is not allowed"),
    (_set(4, "outcome", ""), "t.csv:4:outcome: '' is not allowed"),
    (_set(4, "provenance", "guessed"), "t.csv:4:provenance: 'guessed' is not allowed"),
    (_set(4, "family", "ResNet 18"), "t.csv:4:family: 'ResNet 18' is not allowed; expected text like"),
    (_set(4, "model", ""), "t.csv:4:model: '' is not allowed"),
    (_set(3, "relative_speed", 0.0), "t.csv:3:relative_speed: 0.0 is not allowed; expected a number above 0"),
    (_set(3, "relative_speed", 7), "t.csv:3:relative_speed: 7.0 is not allowed"),
    (_set(3, "relative_speed", "90%"), "t.csv:3:relative_speed: '90%' does not fit"),
    (_set(1, "relative_speed", 0.7), "t.csv:1:relative_speed: a solo row with a relative speed other than 1"),
    (_set(1, "gpu_util_pct", -1), "t.csv:1:gpu_util_pct: -1.0 is not allowed"),
    (_set(1, "gpu_util_pct", 250), "t.csv:1:gpu_util_pct: 250.0 is not allowed"),
    (_set(1, "mem_mib", 0), "t.csv:1:mem_mib: 0.0 is not allowed"),
    (_set(1, "gpu_power_w", -1), "t.csv:1:gpu_power_w: -1.0 is not allowed"),
    (_set(1, "throughput_samples_s", np.inf), "t.csv:1:throughput_samples_s: inf does not fit"),
    (_set(1, "throttled", "perhaps"), "t.csv:1:throttled: 'perhaps' does not fit; expected true or false"),
    (_set(1, "num_workers", 1.5), "t.csv:1:num_workers: 1.5 does not fit"),
    (_twice, "t.csv:7:job_index: the row is there twice (measurement 'p1')"),
    (_set(4, "gpu", "k80"), "t.csv:4:gpu: differs from the measurement's first row (measurement 'p1')"),
    (_set(4, "sharing_mode", "mps"), "t.csv:4:sharing_mode: differs from the measurement's first row"),
    (_set(4, "num_gpus", 2), "t.csv:4:num_gpus: differs from the measurement's first row"),
    (_set(4, "job_index", 2), "t.csv:3:job_index: job indices have a gap"),
    (lambda f: f.drop(index=3), "t.csv:3:role: a co-located measurement with one row"),
    (lambda f: f.assign(role="solo"), "t.csv:3:role: a solo measurement with several rows"),
    (_set(5, "relative_speed", 0.5), "t.csv:5:relative_speed: a speed though the outcome is not ok"),
    (_set(6, "throughput_samples_s", 5.0), "t.csv:6:throughput_samples_s: a speed though the outcome is not ok"),
]


@pytest.mark.parametrize(
    ("change", "message"), MALFORMED, ids=[m.partition(": ")[0] + f"-{i}" for i, (_, m) in enumerate(MALFORMED)]
)
def test_a_malformed_table_is_refused_in_one_line(
    profiles: pd.DataFrame, change: Callable[[pd.DataFrame], pd.DataFrame], message: str
) -> None:
    with pytest.raises(DataError) as caught:
        schema.validate_profiles(change(profiles), where="t.csv")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert caught.value.expected


def test_the_first_problem_is_told_and_the_rest_counted(profiles: pd.DataFrame) -> None:
    broken = _set(5, "precision", "fp8")(_set(2, "mem_mib", -5)(_set(3, "batch_size", "x")(profiles)))
    with pytest.raises(
        DataError, match=r"^t\.csv:2:mem_mib: -5\.0 is not allowed \(\+2 more\); expected a number above 0"
    ):
        schema.validate_profiles(broken, where="t.csv")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_written_table_reads_back_equal(profiles: pd.DataFrame, tmp_path: Path, suffix: str) -> None:
    table = schema.validate_profiles(
        profiles.assign(throttled=[True, None, False, None, None, True], repeat=[1, 2, None, 3, 4, 5]), where="t"
    )
    path = tmp_path / "new" / f"t.{suffix}"
    schema.write_profiles(table, path)
    back = schema.read_profiles(path)
    pd.testing.assert_frame_equal(back, table)
    assert schema.profiles_sha256(back) == schema.profiles_sha256(table)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@settings(max_examples=25)
@given(st.floats(1e-9, 5.0), st.floats(1e-300, 1e300), st.floats(0.0, 100.0), st.integers(1, 2**31 - 1))
def test_numbers_survive_text_exactly(speed: float, rate: float, util: float, batch_size: int) -> None:
    from io import StringIO

    row = {
        "measurement_id": "m", "job_index": [0, 1], "gpu": "k80", "num_gpus": 1, "sharing_mode": "mps", "model": "a",
        "family": "a", "batch_size": batch_size, "precision": "amp", "role": "colocated", "outcome": "ok",
        "provenance": "measured", "source": "s", "relative_speed": speed, "throughput_samples_s": rate,
        "gpu_util_pct": util,
    }  # fmt: skip
    table = schema.validate_profiles(pd.DataFrame(row), where="t")
    cells = pd.read_csv(StringIO(table.to_csv(index=False)), dtype="str", keep_default_na=False, na_values=[""])
    pd.testing.assert_frame_equal(schema.validate_profiles(cells, where="t"), table, check_exact=True)


@settings(max_examples=25)
@given(st.permutations(range(6)), st.permutations(range(16)))
def test_the_hash_is_the_contents(rows: list[int], columns: list[int]) -> None:
    frame = pd.DataFrame({"measurement_id": list("abcdef"), "job_index": 0, "batch_size": range(6)})
    wide = frame.assign(**dict.fromkeys(schema.OPTIONAL_COLUMNS[5:18], 1.5))
    mixed = wide.iloc[list(rows)][[wide.columns[c] for c in columns]]
    assert schema.profiles_sha256(mixed) == schema.profiles_sha256(wide)
    assert schema.profiles_sha256(wide.assign(batch_size=7)) != schema.profiles_sha256(wide)


def _file(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"", "the file is empty"),
        ("t.csv", b"\n\n", "the file has no header"),
        ("t.csv", "modèle\n".encode("latin-1"), "not UTF-8 text"),
        ("t.csv", b"a,b\n1,2\n1,2,3,4\n", "not a table: "),
        ("t.csv", b"a,b\n1,2\n", ":measurement_id: the required column is missing"),
        ("t.csv", b"\x00\x01\x02", "the required column is missing"),
        ("t.parquet", b"", "the file is empty"),
        ("t.parquet", b"PAR1 but not really", "not a Parquet file"),
        ("t.xlsx", b"PK", "cannot read .xlsx; expected a .parquet or .csv file"),
        ("t", b"x", "cannot read a file without ending"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = _file(tmp_path, name, content)
    with pytest.raises(InputError) as caught:
        schema.read_profiles(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.csv: no such file; expected"):
        schema.read_profiles(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match="this is a folder"):
        schema.read_profiles(tmp_path)


def test_a_table_is_written_whole_or_not_at_all(profiles: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    schema.write_profiles(profiles, path)
    before = path.read_bytes()
    with pytest.raises(DataError):
        schema.write_profiles(profiles.assign(batch_size=0), path)
    assert path.read_bytes() == before
    with pytest.raises(InputError, match=r"cannot write \.xlsx"):
        schema.write_profiles(profiles, tmp_path / "t.xlsx")
    with pytest.raises(EacoError, match="cannot be written"):
        schema.write_profiles(profiles, path / "below-a-file.csv")


def test_a_large_table_is_checked_by_columns(profiles: pd.DataFrame) -> None:
    pair = profiles.iloc[2:4]
    many = pd.concat([pair] * 5000, ignore_index=True)
    many["measurement_id"] = [f"p{i // 2}" for i in range(len(many))]
    many.loc[9999, "relative_speed"] = -1.0
    with pytest.raises(DataError, match=r"^big:10000:relative_speed: -1\.0 is not allowed; expected"):
        schema.validate_profiles(many, where="big")
