"""The quality report finds what was put into a good table, and nothing in the good table itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from eaco_datasets.check import SEVERITIES, QualityReport, check_profiles
from eaco_datasets.schema import validate_profiles
from eaco_datasets.sources import load_dataset


@pytest.fixture
def table(profiles: pd.DataFrame) -> pd.DataFrame:
    return validate_profiles(profiles, where="t")


def _with(table: pd.DataFrame, row: int, **values: Any) -> QualityReport:
    changed = table.copy()
    for column, value in values.items():
        changed.loc[row - 1, column] = value
    return check_profiles(changed)


def test_a_good_table_has_only_what_it_says_of_itself(table: pd.DataFrame) -> None:
    before = table.copy(deep=True)
    report = check_profiles(table)
    assert (report.rows, report.measurements) == (6, 4)
    assert {f.code for f in report.findings} == {"censored-oom", "empty-column"}
    oom = report.of("censored-oom")
    assert oom is not None
    assert oom.count == 2
    assert oom.examples == ("p2/0 (row 5)", "p2/1 (row 6)")
    assert report.missing_pct["relative_speed"] == 66.67
    assert report.missing_pct["node_power_w"] == 100.0
    assert report.of("mirrored") is None
    pd.testing.assert_frame_equal(table, before)


@pytest.mark.parametrize(
    ("row", "values", "code", "severity"),
    [
        (3, {"relative_speed": 1.2}, "relative-speed-above-limit", "warning"),
        (1, {"gpu_power_w": 500.0}, "power-above-limit", "warning"),
        (1, {"gpu_power_w": 250.0, "power_limit_w": 200.0}, "power-above-limit", "warning"),
        (1, {"power_limit_w": 900.0}, "limit-above-card", "warning"),
        (1, {"mem_mib": 30_000.0}, "memory-above-gpu", "error"),
        (1, {"gpu_util_max_pct": 10.0}, "gpu_util_pct-above-maximum", "error"),
        (1, {"gpu_power_w": 300.0, "node_power_w": 200.0}, "node-below-gpus", "error"),
        (4, {"mem_mib": 5001.0}, "totals-disagree", "error"),
        (4, {"batch_size": 64}, "solo-profile-missing", "warning"),
        (4, {"provenance": "imputed"}, "provenance-imputed", "warning"),
        (4, {"provenance": "simulated"}, "provenance-simulated", "warning"),
        (4, {"family": "vgg19"}, "family-differs", "warning"),
        (5, {"outcome": "failed"}, "censored-failed", "info"),
    ],
)
def test_trouble_is_found_where_it_is(
    table: pd.DataFrame, row: int, values: dict[str, Any], code: str, severity: str
) -> None:
    assert check_profiles(table).of(code) is None
    found = _with(table, row, **values).of(code)
    assert found is not None
    assert (found.severity, found.count) == (severity, 1)
    assert found.examples[0].endswith(f"(row {row})")


def test_a_reading_a_little_above_the_limit_is_the_sensor(table: pd.DataFrame) -> None:
    assert _with(table, 1, gpu_power_w=205.0, power_limit_w=200.0).of("power-above-limit") is None


def test_the_same_pair_again_is_a_duplicate_a_mirror_or_a_repeat(table: pd.DataFrame) -> None:
    pair = table.iloc[2:4]
    mirror = pair.iloc[::-1].assign(job_index=[0, 1], measurement_id="again", relative_speed=[0.7, 0.6])
    cases = {
        "duplicated": pair.assign(measurement_id="again"),
        "mirrored": mirror,
        "repeated": pair.assign(measurement_id="again", relative_speed=[0.91, 0.79]),
    }
    for code, more in cases.items():
        report = check_profiles(pd.concat([table, more], ignore_index=True))
        codes = {f.code for f in report.findings} & set(cases)
        found = report.of(code)
        assert codes == {code}
        assert found is not None
        assert found.count == 1
        assert found.examples == ("again/0 (row 7)",)


def test_a_mirror_with_the_same_values_is_a_duplicate(table: pd.DataFrame) -> None:
    mirror = table.iloc[[3, 2]].assign(job_index=[0, 1], measurement_id="again")
    report = check_profiles(pd.concat([table, mirror], ignore_index=True))
    assert report.of("duplicated") is not None
    assert report.of("mirrored") is None


def test_the_same_pair_elsewhere_is_no_repeat(table: pd.DataFrame) -> None:
    elsewhere = table.iloc[2:4].assign(measurement_id="again", gpu="a40")
    report = check_profiles(pd.concat([table, elsewhere], ignore_index=True))
    assert report.of("duplicated") is None
    assert report.of("repeated") is None


def test_a_target_that_never_varies_is_told(table: pd.DataFrame) -> None:
    many = pd.concat([table.iloc[2:4].assign(measurement_id=f"p{i}") for i in range(10, 25)], ignore_index=True)
    many.loc[many["family"] == "vgg16", "relative_speed"] = [0.5 + i / 100 for i in range(15)]
    report = check_profiles(many)
    found = report.of("constant-relative-speed")
    assert found is not None
    assert found.count == 15
    assert "resnet18" in found.message
    assert "vgg16" not in found.message
    columns = report.of("constant-column")
    assert columns is not None
    assert "mem_mib" in columns.message
    assert "relative_speed" not in columns.message


def test_what_is_known_of_the_sources_is_told(table: pd.DataFrame) -> None:
    report = check_profiles(table.assign(source="lucid"))
    licence = report.of("licence-non-commercial")
    assert licence is not None
    assert licence.count == 6
    assert "S-Lab" in licence.message
    assert check_profiles(table.assign(source="zeus")).of("licence-non-commercial") is None


def test_findings_come_by_severity(table: pd.DataFrame) -> None:
    report = _with(table, 4, mem_mib=5001.0, relative_speed=1.2)
    order = [SEVERITIES.index(f.severity) for f in report.findings]
    assert order == sorted(order)
    assert {f.severity for f in report.findings} == set(SEVERITIES)


def test_the_published_tables_have_no_error_but_say_what_was_assumed() -> None:
    report = check_profiles(load_dataset("eaco"))
    assert {f.severity for f in report.findings} == {"info"}
    assert any("batch size" in f.message for f in report.findings if f.code == "source-note")


def test_lucid(data_dir: Path) -> None:
    report = check_profiles(load_dataset("lucid", data_dir))
    counts = {f.code: f.count for f in report.findings}
    assert counts["provenance-imputed"] == 246
    assert counts["relative-speed-above-limit"] == 242
    assert counts["licence-non-commercial"] == report.rows
    assert not counts.keys() & {"solo-profile-missing", "duplicated", "mirrored", "constant-relative-speed"}


def test_gavel(data_dir: Path) -> None:
    report = check_profiles(load_dataset("gavel", data_dir))
    counts = {f.code: f.count for f in report.findings}
    assert counts["censored-failed"] == 2 * (45 + 11) + 3
    assert counts["left-out"] == 1140
    assert not counts.keys() & {"duplicated", "mirrored", "relative-speed-above-limit", "solo-profile-missing"}


def test_zeus(data_dir: Path) -> None:
    counts = {f.code: f.count for f in check_profiles(load_dataset("zeus", data_dir)).findings}
    assert counts["power-above-limit"] == 22
    assert not counts.keys() & {"duplicated", "repeated", "limit-above-card"}
