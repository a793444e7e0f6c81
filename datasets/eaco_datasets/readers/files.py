"""What the readers share: finding a source's file, and reading its columns with the place of what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from eaco_datasets.columns import ColumnSpec, Problem, brought_to_dtype, report
from eaco_datasets.errors import DataError, InputError
from eaco_datasets.schema import read_csv_cells

DATA_DIR_VARIABLE = "EACO_DATA_DIR"


def source_file(data_dir: Path | None, relative: str) -> Path:
    """The path of a source's file under the data folder.

    Raises:
        InputError: no folder was named, or the file is not in it; says how to get it.
    """
    name = relative.partition("/")[0]
    cure = f"a folder with {relative}; `eaco datasets fetch {name}` gets it"
    if data_dir is None:
        raise InputError("no data folder named", where=f"--data-dir ({DATA_DIR_VARIABLE})", expected=cure)
    path = Path(data_dir) / relative
    if not path.is_file():
        named = f"--data-dir or {DATA_DIR_VARIABLE} to name {cure}"
        raise InputError("no such file", where=str(path), expected=named)
    return path


def read_source_csv(path: Path, columns: Sequence[ColumnSpec]) -> pd.DataFrame:
    """The named columns of a source's CSV file, in their dtypes, within their bounds.

    Raises:
        DataError: the file is no table, lacks a column, or has a cell that does not fit.
    """
    frame = read_csv_cells(path)
    names = [c.name for c in columns]
    missing = [n for n in names if n not in frame]
    if missing:
        raise DataError("the column is missing", where=f"{path}:{missing[0]}", expected="columns " + ", ".join(names))
    if frame.empty:
        raise DataError("the table has no rows", where=str(path), expected="at least one measurement")
    table: dict[str, pd.Series] = {}
    problems: list[Problem] = []
    for spec in columns:
        values, bad, null = brought_to_dtype(frame[spec.name], spec)
        table[spec.name] = values
        wrong = bad | null | _outside(values, spec)
        for row in np.flatnonzero(wrong):
            cell = frame[spec.name].iloc[row]
            what = "the cell is empty" if null[row] else f"{cell!r} does not fit"
            problems.append(Problem(int(row) + 1, spec.name, what, spec.expected))
    if problems:
        raise report(problems, names, str(path))
    return pd.DataFrame(table)


def _outside(values: pd.Series, spec: ColumnSpec) -> np.ndarray:
    outside = np.zeros(len(values), dtype=bool)
    if spec.choices:
        outside |= (~values.isin(spec.choices) & values.notna()).to_numpy()
    if spec.above is not None:
        outside |= (values <= spec.above).to_numpy(dtype=bool, na_value=False)
    if spec.at_least is not None:
        outside |= (values < spec.at_least).to_numpy(dtype=bool, na_value=False)
    if spec.at_most is not None:
        outside |= (values > spec.at_most).to_numpy(dtype=bool, na_value=False)
    return outside
