"""Columns of a table: what each may hold, and how cells are brought to their dtype without losing the bad ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from eaco_datasets.errors import DataError

Kind = Literal["text", "integer", "count", "number", "flag"]

_DTYPES: dict[Kind, str] = {
    "text": "str",
    "integer": "int64",
    "count": "Int64",
    "number": "float64",
    "flag": "boolean",
}
_FLAGS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
_NULL_WORDS = {"", "na", "nan", "none", "null", "<na>"}
_LARGEST_INTEGER = 2.0**53


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column: its kind, whether it must be filled, and its bounds (``above`` is exclusive) or choices.

    Kinds: ``text``, ``integer`` (never null), ``count`` (integer or null), ``number`` (null is NaN), ``flag``.
    """

    name: str
    kind: Kind
    required: bool = False
    above: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str | None = None

    @property
    def dtype(self) -> str:
        """The pandas dtype of the column."""
        return _DTYPES[self.kind]

    @property
    def expected(self) -> str:
        """What a cell may hold, in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.pattern:
            return f"text like {self.pattern}"
        what = {"text": "text", "number": "a number", "flag": "true or false"}.get(self.kind, "a whole number")
        bounds = [
            f"{words} {limit:g}"
            for words, limit in (("above", self.above), ("at least", self.at_least), ("at most", self.at_most))
            if limit is not None
        ]
        return " ".join([what, " and ".join(bounds)]).strip() + ("" if self.required else ", or empty")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a table; ``row`` counts data rows from 1, the header not counted; 0 is the whole column."""

    row: int
    column: str
    what: str
    expected: str


def report(problems: list[Problem], columns: list[str], where: str) -> DataError:
    """The first problem, in reading order, as one line, with how many more there are."""
    order = {name: i for i, name in enumerate(columns)}
    first = min(problems, key=lambda p: (p.row, order.get(p.column, len(order)), p.what))
    more = f" (+{len(problems) - 1} more)" if len(problems) > 1 else ""
    place = f"{where}:{first.row}:{first.column}" if first.row else f"{where}:{first.column}"
    return DataError(first.what + more, where=place, expected=first.expected)


def brought_to_dtype(
    column: pd.Series[Any], spec: ColumnSpec
) -> tuple[pd.Series[Any], NDArray[np.bool_], NDArray[np.bool_]]:
    """The column in the dtype of its spec.

    Returns:
        the column (cells that do not fit are null, or 0 in an ``integer`` column), the mask of those cells, and the
        mask of cells that are null though the column must be filled.
    """
    if spec.kind == "text":
        values, bad = _as_text(column)
    elif spec.kind == "flag":
        values, bad = _as_flags(column)
    else:
        values, bad = _as_numbers(column, whole=spec.kind != "number")
    null = values.isna().to_numpy() & ~bad if spec.required else np.zeros(len(values), dtype=bool)
    if spec.kind == "integer":
        values = values.fillna(0)
    return values.astype(pd.api.types.pandas_dtype(spec.dtype)), bad, null


def _as_text(column: pd.Series[Any]) -> tuple[pd.Series[Any], NDArray[np.bool_]]:
    if column.dtype == "str":
        return column, np.zeros(len(column), dtype=bool)
    cells = column.astype(object)
    null = column.isna().to_numpy()
    good = null | np.fromiter((isinstance(v, str) for v in cells), dtype=bool, count=len(cells))
    return cells.where(good & ~null, None).astype("str"), ~good


def _as_numbers(column: pd.Series[Any], *, whole: bool) -> tuple[pd.Series[Any], NDArray[np.bool_]]:
    if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype):
        values = column.astype("float64")
        bad = np.zeros(len(values), dtype=bool)
    else:
        cells = [_number(v) for v in column.astype(object)]
        bad = np.array([c is None for c in cells], dtype=bool)
        values = pd.Series([np.nan if c is None else c for c in cells], index=column.index, dtype="float64")
    raw = values.to_numpy()
    bad |= np.isinf(raw)
    if whole:
        with np.errstate(invalid="ignore"):
            bad |= ~np.isnan(raw) & ((raw != np.round(raw)) | (np.abs(raw) > _LARGEST_INTEGER))
    return values.mask(pd.Series(bad, index=values.index)), bad


def _number(cell: Any) -> float | None:
    """A cell as a float (NaN when it says nothing), ``None`` when it is no number. Exact for printed floats."""
    if isinstance(cell, bool | np.bool_):
        return None
    if isinstance(cell, str):
        if cell.strip().lower() in _NULL_WORDS:
            return np.nan
        try:
            return float(cell)
        except ValueError:
            return None
    if isinstance(cell, int | float | np.number):
        return float(cell)
    return np.nan if cell is None or cell is pd.NA or cell is pd.NaT else None


def _as_flags(column: pd.Series[Any]) -> tuple[pd.Series[Any], NDArray[np.bool_]]:
    if pd.api.types.is_bool_dtype(column.dtype):
        return column.astype("boolean"), np.zeros(len(column), dtype=bool)
    words = column.astype(object).where(column.notna(), "").map(lambda v: str(v).strip().lower())
    null = words.isin(_NULL_WORDS).to_numpy()
    good = null | words.isin(list(_FLAGS)).to_numpy()
    return words.map(_FLAGS).astype("boolean"), ~good
