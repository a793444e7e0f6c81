"""The profile table: one row per (measurement, job), checked wherever a table enters.

Key: ``measurement_id, job_index``. Utilisation, memory and power of a co-located measurement are the GPU's, all jobs
together, repeated on each row. Missing is null, never 0 or -1. A row whose outcome is not ``ok`` has no speed.
"""

from __future__ import annotations

import hashlib
import os
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from eaco_datasets.columns import ColumnSpec, Problem, brought_to_dtype, report
from eaco_datasets.errors import DataError, EacoError, InputError, UnknownNameError
from eaco_datasets.names import FAMILY_PATTERN
from eaco_datasets.types import MAX_JOBS, OUTCOMES, PRECISIONS, PROVENANCES, ROLES, SHARING_MODES

if TYPE_CHECKING:
    import pandera.pandas as pa

HIGHEST_PCT = 100.5
"""Highest percentage accepted: nvidia-smi's averages may round above 100."""

HIGHEST_RELATIVE_SPEED = 5.0
"""A relative speed from here on is a broken solo measurement, not noise (the highest in public data is 1.5)."""

HIGHEST_BATCH_SIZE = 2**31 - 1


def _positive(name: str) -> ColumnSpec:
    return ColumnSpec(name, "number", above=0.0)


def _percent(name: str) -> ColumnSpec:
    return ColumnSpec(name, "number", at_least=0.0, at_most=HIGHEST_PCT)


def _enum(name: str, choices: tuple[str, ...]) -> ColumnSpec:
    return ColumnSpec(name, "text", required=True, choices=choices)


COLUMNS: tuple[ColumnSpec, ...] = (
    ColumnSpec("measurement_id", "text", required=True),
    ColumnSpec("job_index", "integer", required=True, at_least=0, at_most=MAX_JOBS - 1),
    ColumnSpec("gpu", "text", required=True),
    ColumnSpec("num_gpus", "integer", required=True, at_least=1, at_most=100_000),
    _enum("sharing_mode", SHARING_MODES),
    ColumnSpec("model", "text", required=True),
    ColumnSpec("family", "text", required=True, pattern=FAMILY_PATTERN),
    ColumnSpec("batch_size", "integer", required=True, at_least=1, at_most=HIGHEST_BATCH_SIZE),
    _enum("precision", PRECISIONS),
    _enum("role", ROLES),
    _enum("outcome", OUTCOMES),
    _enum("provenance", PROVENANCES),
    ColumnSpec("source", "text", required=True),
    ColumnSpec("dataset", "text"),
    ColumnSpec("optimizer", "text"),
    ColumnSpec("num_workers", "count", at_least=0),
    ColumnSpec("repeat", "count", at_least=0),
    _positive("duration_s"),
    _positive("throughput_samples_s"),
    _positive("epoch_s"),
    ColumnSpec("relative_speed", "number", above=0.0, at_most=HIGHEST_RELATIVE_SPEED),
    _percent("gpu_util_pct"),
    _percent("gpu_util_max_pct"),
    _percent("mem_util_pct"),
    _percent("mem_util_max_pct"),
    _positive("mem_mib"),
    _positive("gpu_power_w"),
    _positive("power_limit_w"),
    _positive("node_power_w"),
    _percent("cpu_util_pct"),
    _positive("sm_clock_mhz"),
    ColumnSpec("throttled", "flag"),
    ColumnSpec("net_rx_mbs", "number", at_least=0.0),
    ColumnSpec("net_tx_mbs", "number", at_least=0.0),
    ColumnSpec("gpu_burst_s", "number", at_least=0.0),
    ColumnSpec("gpu_idle_s", "number", at_least=0.0),
)
"""The profile table's columns in their order."""

COLUMN_NAMES: list[str] = [c.name for c in COLUMNS]
REQUIRED_COLUMNS: list[str] = [c.name for c in COLUMNS if c.required]
OPTIONAL_COLUMNS: list[str] = [c.name for c in COLUMNS if not c.required]
SAME_IN_MEASUREMENT: tuple[str, ...] = ("gpu", "num_gpus", "sharing_mode", "role", "source")
"""What all rows of one measurement agree on."""
SPEED_COLUMNS: tuple[str, ...] = ("throughput_samples_s", "epoch_s", "relative_speed")


@cache
def profile_schema() -> pa.DataFrameSchema:
    """The profile table as a pandera schema: dtypes, nullability, bounds, choices."""
    import pandera.pandas as pa

    def checks(spec: ColumnSpec) -> list[pa.Check]:
        said = spec.expected
        found = [pa.Check.isin(list(spec.choices), error=said)] if spec.choices else []
        found += [pa.Check.str_matches(spec.pattern, error=said)] if spec.pattern else []
        found += [pa.Check.gt(spec.above, error=said)] if spec.above is not None else []
        found += [pa.Check.ge(spec.at_least, error=said)] if spec.at_least is not None else []
        found += [pa.Check.le(spec.at_most, error=said)] if spec.at_most is not None else []
        if spec.kind == "text" and spec.required and not (spec.choices or spec.pattern):
            found.append(pa.Check.str_length(min_value=1, error="text"))
        return found

    return pa.DataFrameSchema(
        {c.name: pa.Column(c.dtype, checks(c), nullable=not c.required) for c in COLUMNS},
        strict=True,
        ordered=True,
        name="profiles",
    )


def validate_profiles(frame: pd.DataFrame, *, where: str) -> pd.DataFrame:
    """A checked copy of a profile table: all columns, in order, in their dtypes, index 0..n-1, GPU aliases resolved.

    Args:
        frame: at least the required columns; missing optional ones are added as nulls.
        where: the name of the table in error messages, usually its file.

    Raises:
        DataError: one line with file, row (from 1, the header not counted), column, reason and what was expected.
    """
    problems = _column_problems(frame)
    if problems:
        raise report(problems, COLUMN_NAMES, where)
    if frame.empty:
        raise DataError("the table has no rows", where=where, expected="at least one measurement")
    table, problems = _to_dtypes(frame)
    problems += _gpu_problems(table)
    skip = {(p.row, p.column) for p in problems}
    problems += [p for p in _pandera_problems(table) if (p.row, p.column) not in skip]
    if not problems:
        problems = _measurement_problems(table)
    if problems:
        raise report(problems, COLUMN_NAMES, where)
    return table


def _column_problems(frame: pd.DataFrame) -> list[Problem]:
    names = [str(n) for n in frame.columns]
    twice = sorted({n for n in names if names.count(n) > 1})
    problems = [Problem(0, n, "the column is there twice", "each column once") for n in twice]
    for name in names:
        if name not in COLUMN_NAMES:
            near = get_close_matches(name, COLUMN_NAMES, n=1)
            hint = f"perhaps {near[0]}" if near else "a column of the profile table: " + ", ".join(COLUMN_NAMES)
            problems.append(Problem(0, name, "unknown column", hint))
    missing = [n for n in REQUIRED_COLUMNS if n not in names]
    if missing:
        needed = "the required columns " + ", ".join(REQUIRED_COLUMNS)
        problems += [Problem(0, n, "the required column is missing", needed) for n in missing]
    return problems


def _to_dtypes(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[Problem]]:
    given = frame.reset_index(drop=True)
    columns: dict[str, pd.Series[Any]] = {}
    problems: list[Problem] = []
    for spec in COLUMNS:
        if spec.name not in given:
            columns[spec.name] = pd.Series([None] * len(given), dtype=pd.api.types.pandas_dtype(spec.dtype))
            continue
        values, bad, null = brought_to_dtype(given[spec.name], spec)
        columns[spec.name] = values
        for row in np.flatnonzero(bad):
            cell = given[spec.name].iloc[row]
            problems.append(Problem(int(row) + 1, spec.name, f"{cell!r} does not fit", spec.expected))
        problems += [Problem(int(r) + 1, spec.name, "the cell is empty", spec.expected) for r in np.flatnonzero(null)]
    table = pd.DataFrame(columns)
    table.attrs = dict(frame.attrs)
    return table, problems


def _gpu_problems(table: pd.DataFrame) -> list[Problem]:
    """Resolves GPU aliases in place; names that the catalogue does not know are problems."""
    from eaco_datasets.gpus import gpu_slug

    problems: list[Problem] = []
    slugs: dict[str, str] = {}
    for name in table["gpu"].dropna().unique():
        try:
            slugs[name] = gpu_slug(name)
        except UnknownNameError as unknown:
            rows = np.flatnonzero((table["gpu"] == name).to_numpy(dtype=bool, na_value=False))
            problems += [Problem(int(r) + 1, "gpu", unknown.what, unknown.expected) for r in rows]
    if any(name != slug for name, slug in slugs.items()):
        table["gpu"] = table["gpu"].map(lambda n: slugs.get(n, n)).astype("str")
    return problems


def _pandera_problems(table: pd.DataFrame) -> list[Problem]:
    import pandera.errors

    try:
        profile_schema().validate(table, lazy=True)
    except pandera.errors.SchemaErrors as found:
        cases = found.failure_cases
        return [
            Problem(0 if pd.isna(index) else int(index) + 1, str(column), f"{_shown(cell)} is not allowed", str(check))
            for column, check, cell, index in zip(
                cases["column"], cases["check"], cases["failure_case"], cases["index"], strict=True
            )
        ]
    return []


def _shown(cell: object) -> str:
    return repr(cell) if isinstance(cell, str) else f"{cell}"


def _measurement_problems(table: pd.DataFrame) -> list[Problem]:
    """Rules across rows: unique keys, rows of a measurement that agree, how many there are, no speed without ``ok``."""
    problems: list[Problem] = []

    def add(mask: Any, column: str, what: str, expected: str) -> None:
        for row in np.flatnonzero(np.asarray(mask, dtype=bool)):
            ident = table["measurement_id"].iloc[row]
            problems.append(Problem(int(row) + 1, column, f"{what} (measurement {ident!r})", expected))

    key = ["measurement_id", "job_index"]
    twice = table.duplicated(key)
    add(twice, "job_index", "the row is there twice", "each measurement_id with each job_index once")
    by_id = table.groupby("measurement_id", sort=False)
    for name in SAME_IN_MEASUREMENT:
        differs = table[name] != by_id[name].transform("first")
        add(differs, name, "differs from the measurement's first row", f"one {name} in a measurement")
    rows = by_id["job_index"].transform("size")
    solo = table["role"] == "solo"
    add(solo & (rows != 1), "role", "a solo measurement with several rows", "one row, or role colocated")
    add(~solo & (rows == 1), "role", "a co-located measurement with one row", f"2 to {MAX_JOBS} rows, or role solo")
    gap = by_id["job_index"].transform("max") != by_id["job_index"].transform("nunique") - 1
    add(gap, "job_index", "job indices have a gap", "0, 1, ... one a job")
    not_ok = table["outcome"] != "ok"
    for name in SPEED_COLUMNS:
        add(not_ok & table[name].notna(), name, "a speed though the outcome is not ok", "an empty cell")
    odd_solo = solo & table["relative_speed"].notna() & (table["relative_speed"] != 1.0)
    add(odd_solo, "relative_speed", "a solo row with a relative speed other than 1", "1 or an empty cell")
    return problems


def profiles_sha256(frame: pd.DataFrame) -> str:
    """A content hash of a profile table, whatever its index, row order, column order and file format."""
    table = frame.reindex(columns=COLUMN_NAMES).sort_values(["measurement_id", "job_index"], kind="stable")
    text = table.to_csv(index=False, lineterminator="\n")
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def read_profiles(path: Path) -> pd.DataFrame:
    """Read and check a profile table from a ``.parquet`` or ``.csv`` file.

    Raises:
        InputError: no such file, a folder, or another file type.
        DataError: the file is empty, no such table, wrongly encoded, or breaks the schema.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError("this is a folder", where=str(path), expected="a .parquet or .csv file")
    if not path.is_file():
        raise InputError("no such file", where=str(path), expected="a .parquet or .csv file")
    if path.stat().st_size == 0:
        raise DataError("the file is empty", where=str(path), expected="a profile table")
    suffix = path.suffix.lower()
    if suffix == ".csv":
        frame = read_csv_cells(path)
    elif suffix in (".parquet", ".pq"):
        frame = _read_parquet(path)
    else:
        raise InputError(
            f"cannot read {path.suffix or 'a file without ending'}", where=str(path), expected="a .parquet or .csv file"
        )
    return validate_profiles(frame, where=str(path))


def read_csv_cells(path: Path) -> pd.DataFrame:
    """A CSV file's cells as text, empty ones null; ``#`` starts no comment.

    Raises:
        DataError: the file is no UTF-8 text, has no header, or has rows of unequal length.
    """
    try:
        frame = pd.read_csv(path, dtype="str", keep_default_na=False, na_values=[""], index_col=False)
    except UnicodeDecodeError as error:
        raise DataError(
            f"not UTF-8 text (byte {error.start})", where=str(path), expected="a CSV file in UTF-8"
        ) from None
    except pd.errors.EmptyDataError:
        raise DataError("the file has no header", where=str(path), expected="a CSV file with a header line") from None
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"not a table: {reason}", where=str(path), expected="as many cells a row as the header"
        ) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    return frame


def _read_parquet(path: Path) -> pd.DataFrame:
    import pyarrow as arrow

    try:
        return pd.read_parquet(path)
    except (arrow.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:160]
        raise DataError(f"not a Parquet file: {reason}", where=str(path), expected="a Parquet table") from None


def write_profiles(frame: pd.DataFrame, path: Path) -> None:
    """Check a profile table and write it to ``.parquet`` or ``.csv``, whole or not at all.

    Raises:
        InputError: another file type, or the folder cannot be written.
        DataError: the table breaks the schema.
    """
    path = Path(path)
    table = validate_profiles(frame, where=str(path))
    suffix = path.suffix.lower()
    if suffix not in (".parquet", ".pq", ".csv"):
        raise InputError(
            f"cannot write {path.suffix or 'a file without ending'}", where=str(path), expected=".parquet or .csv"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            if suffix == ".csv":
                table.to_csv(part, index=False, lineterminator="\n")
            else:
                table.to_parquet(part, index=False)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise EacoError(f"{path}: cannot be written: {error.strerror or error}") from None
