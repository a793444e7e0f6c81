"""Predictions and decisions as tables for people. Cells are ``Text``: names of jobs and GPUs hold no markup."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

UNKNOWN = "unknown"
SET_ROWS = (
    ("GPU power", "gpu_power_w", "W", 1.0),
    ("node power", "node_power_w", "W", 1.0),
    ("GPU utilisation", "gpu_util_pct", "%", 1.0),
    ("GPU memory", "mem_mib", "MiB", 1.0),
    ("energy per epoch", "energy_j_per_epoch", "kJ", 1e-3),
)


def estimate(value: Mapping[str, float] | None, unit: str = "", scale: float = 1.0) -> str:
    """``mean (lower .. upper) unit``, or ``unknown``."""
    if value is None:
        return UNKNOWN
    mean, lower, upper = (_digits(value[name] * scale) for name in ("mean", "lower", "upper"))
    return f"{mean} ({lower} .. {upper}) {unit}".rstrip()


def _digits(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def prediction_tables(answer: Mapping[str, Any], labels: list[str]) -> RenderableType:
    """A prediction (``PredictionOut`` data): one row a job, then the set; ``labels`` name the jobs."""
    if answer["abstained"] is not None:
        return Text(f"no prediction: {answer['abstained']}")
    jobs = Table(title="Each job (90 % interval)", title_justify="left")
    for heading in ("job", "relative speed", "epoch", "JCT", "P(miss deadline)"):
        jobs.add_column(heading)
    for label, job in zip(labels, answer["jobs"], strict=True):
        miss = job["deadline_miss_probability"]
        _row(
            jobs,
            label,
            estimate(job["relative_speed"]),
            estimate(job["epoch_s"], "s"),
            estimate(job["jct_s"], "s"),
            "no deadline" if miss is None else f"{miss:.2f}",
        )
    together = Table(title="Together", title_justify="left", show_header=False)
    for label, name, unit, scale in SET_ROWS:
        _row(together, label, estimate(answer[name], unit, scale))
    _row(together, "out of memory", _probability(answer["oom_probability"]))
    _row(together, "out of distribution", _probability(answer["out_of_distribution"]))
    _row(together, "nearest families", ", ".join(answer["nearest_families"]) or UNKNOWN)
    _row(together, "predictor", answer["predictor_version"])
    _row(together, "learned from", ", ".join(f"{k} {v:.0%}" for k, v in answer["provenance"].items()))
    return Group(jobs, together)


def decision_tables(answer: Mapping[str, Any]) -> RenderableType:
    """A decision (``DecisionOut`` data): what, where, why, and what else was tried."""
    head = Table(show_header=False)
    _row(head, "decision", answer["decision"] + (f" ({answer['phase']})" if answer["phase"] else ""))
    _row(head, "GPUs", ", ".join(answer["gpus"]) or "none")
    _row(head, "beside", ", ".join(answer["co_residents"]) or "nobody")
    _row(head, "why", answer["explanation"])
    parts: list[RenderableType] = [head]
    if answer["alternatives"]:
        tried = Table(title="Sets tried", title_justify="left")
        for heading in ("rank", "GPUs", "beside", "score", "GPU power", "outcome"):
            tried.add_column(heading)
        for one in answer["alternatives"]:
            score = one["score"]
            _row(
                tried,
                str(one["rank"]),
                ", ".join(one["gpus"]),
                ", ".join(one["co_residents"]) or "nobody",
                UNKNOWN if score is None else f"{score:.3g}",
                _power(one["prediction"]),
                one["refused"] or "admitted",
            )
        parts.append(tried)
    if answer["refusals"]:
        refused = Table(title="Never candidates", title_justify="left")
        refused.add_column("GPUs")
        refused.add_column("reason")
        for one in answer["refusals"]:
            _row(refused, ", ".join(one["gpus"]), one["reason"])
        parts.append(refused)
    return Group(*parts)


def _row(table: Table, *cells: str) -> None:
    table.add_row(*(Text(cell) for cell in cells))


def _power(prediction: Mapping[str, Any] | None) -> str:
    return "-" if prediction is None else estimate(prediction["gpu_power_w"], "W")


def _probability(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}"
