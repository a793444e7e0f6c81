"""Data quality of a profile table: what the schema lets through but a reader of the results should know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from eaco_datasets.gpus import gpu_specs
from eaco_datasets.names import family_of
from eaco_datasets.schema import OPTIONAL_COLUMNS
from eaco_datasets.sources import sources
from eaco_datasets.types import MAX_RELATIVE_SPEED

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")

EXAMPLES = 3
POWER_TOLERANCE = 1.05
"""A reading up to this multiple of the power limit is the sensor's and the control loop's, not impossible."""
CONSTANT_FROM_ROWS = 10
"""A column or a family's target that never varies is reported from this many values on."""

CONFIG_COLUMNS = ["model", "family", "dataset", "batch_size", "precision", "optimizer"]
SETTING_COLUMNS = ["gpu", "num_gpus", "sharing_mode", "source"]
SOLO_KEY_COLUMNS = ["gpu", "num_gpus", "source", "family", "dataset", "batch_size", "precision"]
GPU_WIDE_COLUMNS = [
    "gpu_util_pct",
    "gpu_util_max_pct",
    "mem_util_pct",
    "mem_util_max_pct",
    "mem_mib",
    "gpu_power_w",
    "power_limit_w",
    "node_power_w",
]
VALUE_COLUMNS = ["throughput_samples_s", "epoch_s", "relative_speed", *GPU_WIDE_COLUMNS]


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of trouble. ``examples`` are ``measurement_id/job_index (row N)``, rows counted from 1."""

    code: str
    severity: Severity
    count: int
    message: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QualityReport:
    """What was found in a table. ``missing_pct``: share of empty cells of each optional column."""

    rows: int
    measurements: int
    findings: tuple[Finding, ...]
    missing_pct: dict[str, float]

    def of(self, code: str) -> Finding | None:
        """The finding of this code, if there is one."""
        return next((f for f in self.findings if f.code == code), None)


def check_profiles(frame: pd.DataFrame) -> QualityReport:
    """Look for trouble in a checked profile table (see ``eaco_datasets.schema.validate_profiles``).

    Findings come sorted by severity. The table is left untouched.
    """
    found = [finding for check in _CHECKS for finding in check(frame)]
    found.sort(key=lambda f: SEVERITIES.index(f.severity))
    missing = frame[OPTIONAL_COLUMNS].isna().mean() * 100.0
    return QualityReport(
        rows=len(frame),
        measurements=int(frame["measurement_id"].nunique()),
        findings=tuple(found),
        missing_pct={str(name): round(float(share), 2) for name, share in missing.items()},
    )


def _finding(frame: pd.DataFrame, mask: Any, code: str, severity: Severity, message: str) -> Iterator[Finding]:
    rows = np.flatnonzero(np.asarray(mask, dtype=bool))
    if len(rows):
        shown = frame.iloc[rows[:EXAMPLES]]
        examples = tuple(
            f"{ident}/{index} (row {row + 1})"
            for ident, index, row in zip(shown["measurement_id"], shown["job_index"], rows[:EXAMPLES], strict=True)
        )
        yield Finding(code, severity, len(rows), message, examples)


def _impossible(frame: pd.DataFrame) -> Iterator[Finding]:
    specs = gpu_specs()
    memory = frame["gpu"].map({slug: s.memory_mib for slug, s in specs.items()}).astype(float)
    limit = frame["gpu"].map({slug: s.power_limit_w for slug, s in specs.items()}).astype(float)
    set_limit = frame["power_limit_w"].fillna(limit)
    over = frame["gpu_power_w"] > POWER_TOLERANCE * set_limit
    yield from _finding(frame, over, "power-above-limit", "warning", "GPU power above its power limit by over 5 %")
    over = frame["power_limit_w"] > POWER_TOLERANCE * limit
    yield from _finding(frame, over, "limit-above-card", "warning", "power limit above the card's highest by over 5 %")
    over = (frame["mem_mib"] > memory) & (frame["outcome"] == "ok")
    yield from _finding(frame, over, "memory-above-gpu", "error", "more memory used than the GPU has")
    for mean, peak in (("gpu_util_pct", "gpu_util_max_pct"), ("mem_util_pct", "mem_util_max_pct")):
        over = frame[mean] > frame[peak]
        yield from _finding(frame, over, f"{mean}-above-maximum", "error", f"{mean} above {peak}")
    node = frame["gpu_power_w"] * frame["num_gpus"] > frame["node_power_w"]
    yield from _finding(frame, node, "node-below-gpus", "error", "node power below the sum of its GPUs' power")


def _fast(frame: pd.DataFrame) -> Iterator[Finding]:
    over = frame["relative_speed"] > MAX_RELATIVE_SPEED
    message = f"relative speed above {MAX_RELATIVE_SPEED:g}: faster together than alone, noise of the solo measurement"
    yield from _finding(frame, over, "relative-speed-above-limit", "warning", message)


def _disagreeing(frame: pd.DataFrame) -> Iterator[Finding]:
    """GPU-wide values that are not the same on all rows of a measurement."""
    grouped = frame.groupby("measurement_id", sort=False)[GPU_WIDE_COLUMNS]
    first = grouped.transform("first")
    values = frame[GPU_WIDE_COLUMNS]
    differs = ((values != first) & values.notna()).any(axis=1)
    message = "GPU-wide values (utilisation, memory, power) differ between the rows of one measurement"
    yield from _finding(frame, differs, "totals-disagree", "error", message)


def _repeats(frame: pd.DataFrame) -> Iterator[Finding]:
    """Measurements of the same job set: the same values again, the jobs in another order, or a true repeat."""
    rows = pd.DataFrame({"id": frame["measurement_id"], "job_index": frame["job_index"]})
    rows["config"] = _joined(frame, CONFIG_COLUMNS)
    rows["whole"] = rows["config"] + "|" + _joined(frame, VALUE_COLUMNS)
    setting = _joined(frame, [*SETTING_COLUMNS, "power_limit_w", "outcome"])
    ordered = rows.sort_values(["id", "job_index"]).groupby("id", sort=False)["config"].agg("&".join)
    any_order = rows.sort_values(["id", "config"]).groupby("id", sort=False)["config"].agg("&".join)
    contents = rows.sort_values(["id", "whole"]).groupby("id", sort=False)["whole"].agg("&".join)
    per_id = pd.DataFrame({"ordered": ordered, "any_order": any_order, "contents": contents})
    per_id["setting"] = setting.groupby(frame["measurement_id"], sort=False).first()
    per_id = per_id.reindex(frame["measurement_id"].unique())

    same_contents = per_id.duplicated(["setting", "contents"])
    same_order = per_id.duplicated(["setting", "ordered"])
    same_set = per_id.duplicated(["setting", "any_order"])
    leads = frame["job_index"] == 0

    def of(mask: pd.Series[bool]) -> Any:
        return leads & frame["measurement_id"].isin(per_id.index[mask])

    message = "measurements that hold another one's very values again"
    yield from _finding(frame, of(same_contents), "duplicated", "warning", message)
    message = "measurements of an earlier one's jobs in another order"
    yield from _finding(frame, of(same_set & ~same_order & ~same_contents), "mirrored", "info", message)
    message = "repeated measurements of the same jobs: the noise floor can be told"
    yield from _finding(frame, of(same_order & ~same_contents), "repeated", "info", message)


def _joined(frame: pd.DataFrame, columns: list[str]) -> pd.Series[str]:
    texts = [frame[name].astype(object).where(frame[name].notna(), "").astype("str") for name in columns]
    first, *rest = texts
    return first.str.cat(pd.concat(rest, axis=1), sep="|")


def _censored(frame: pd.DataFrame) -> Iterator[Finding]:
    for outcome, meaning in (("oom", "ran out of memory"), ("failed", "could not be run")):
        censored = frame["outcome"] == outcome
        message = f"rows of measurements that {meaning}: no speed is known, none is assumed"
        yield from _finding(frame, censored, f"censored-{outcome}", "info", message)
    left_out = frame.attrs.get("left_out")
    if isinstance(left_out, dict):
        for what, count in left_out.items():
            yield Finding("left-out", "info", int(count), f"in the source but no rows: {what}")


def _solo_missing(frame: pd.DataFrame) -> Iterator[Finding]:
    keys = _joined(frame, SOLO_KEY_COLUMNS)
    solo = (frame["role"] == "solo") & (frame["outcome"] == "ok")
    lacking = (frame["role"] == "colocated") & ~keys.isin(keys[solo].unique())
    message = "co-located rows whose job config has no solo profile on the same GPUs"
    yield from _finding(frame, lacking, "solo-profile-missing", "warning", message)


def _not_measured(frame: pd.DataFrame) -> Iterator[Finding]:
    for provenance, meaning in (
        ("imputed", "filled in by the source, not measured: out of training and out of overall errors"),
        ("simulated", "made by formulas: nothing in them was measured"),
    ):
        rows = frame["provenance"] == provenance
        yield from _finding(frame, rows, f"provenance-{provenance}", "warning", f"rows {meaning}")


def _constant(frame: pd.DataFrame) -> Iterator[Finding]:
    values = frame[VALUE_COLUMNS]
    enough = values.notna().sum() >= CONSTANT_FROM_ROWS
    names = [str(n) for n in values.columns[enough.to_numpy() & (values.min() == values.max()).to_numpy()]]
    if names:
        message = "columns that hold one value only: " + ", ".join(names)
        yield Finding("constant-column", "warning", len(names), message)
    known = frame["relative_speed"].notna() & (frame["role"] == "colocated") & (frame["provenance"] != "imputed")
    by_family = frame[known].groupby(["source", "family"])["relative_speed"].agg(["size", "nunique"])
    fixed = by_family[(by_family["size"] >= CONSTANT_FROM_ROWS) & (by_family["nunique"] == 1)]
    if len(fixed):
        families = {family for _, family in fixed.index}
        message = "families whose relative speed never varies, though it is not marked imputed: " + ", ".join(families)
        mask = known & frame["family"].isin(families)
        yield from _finding(frame, mask, "constant-relative-speed", "warning", message)


def _misnamed(frame: pd.DataFrame) -> Iterator[Finding]:
    pairs = frame[["model", "dataset", "family"]].drop_duplicates()
    expected = [family_of(m, None if pd.isna(d) else d) for m, d in zip(pairs["model"], pairs["dataset"], strict=True)]
    odd = pairs[pairs["family"] != np.array(expected, dtype=object)]
    mask: NDArray[np.bool_] = _joined(frame, ["model", "family"]).isin(_joined(odd, ["model", "family"])).to_numpy()
    message = "rows whose family is not the alias table's for their model"
    yield from _finding(frame, mask, "family-differs", "warning", message)


def _missing(frame: pd.DataFrame) -> Iterator[Finding]:
    empty = [name for name in OPTIONAL_COLUMNS if frame[name].isna().all()]
    if empty:
        message = "columns with no value at all: " + ", ".join(empty)
        yield Finding("empty-column", "info", len(empty), message)


def _of_sources(frame: pd.DataFrame) -> Iterator[Finding]:
    for known in sources():
        rows = int((frame["source"] == known.name).sum())
        if not rows:
            continue
        if known.non_commercial:
            message = f"{known.name}: {known.licence}: non-commercial use only"
            yield Finding("licence-non-commercial", "warning", rows, message)
        for note in known.notes:
            yield Finding("source-note", "info", rows, f"{known.name}: {note}")


_CHECKS: tuple[Callable[[pd.DataFrame], Iterator[Finding]], ...] = (
    _impossible,
    _fast,
    _disagreeing,
    _repeats,
    _censored,
    _solo_missing,
    _not_measured,
    _constant,
    _misnamed,
    _missing,
    _of_sources,
)
