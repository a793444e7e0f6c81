"""Evaluation reports as JSON and as one self-contained HTML page."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eaco_datasets.errors import EacoError

Report = dict[str, Any]

_FACTS = ("data_sha256", "seed", "observed_unit", "n_draws", "target_clip", "rows_tested", "provenance", "noise_floor")


def headline(report: Report) -> Report:
    """The block that sums a report up: ``overall``, or the simulated one where nothing was measured."""
    block: Report = report["overall"] or report["overall_simulated"] or {}
    return block


def to_json(reports: Sequence[Report]) -> str:
    """One report as it is, several as ``{"schema": 1, "reports": [...]}``; ends with a newline."""
    document: Any = reports[0] if len(reports) == 1 else {"schema": 1, "reports": list(reports)}
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def to_html(reports: Sequence[Report]) -> str:
    """A page of tables with bars; needs no network and no script."""
    from importlib.resources import files

    from jinja2 import Environment

    page = files("eaco_training").joinpath("templates", "report.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True)
    environment.filters["figure"] = _figure
    return environment.from_string(page).render(reports=[_view(report) for report in reports])


def write_text(text: str, path: Path) -> None:
    """Write a file whole or not at all. Raises ``EacoError`` where it cannot be written."""
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        raise EacoError(f"{path}: cannot be written ({error.strerror or error})") from error


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _view(report: Report) -> Report:
    """A report as the page shows it, bars scaled to the largest figure of their table."""
    best = headline(report)
    models = [
        {"name": report["model"], "kind": "own", **best},
        *({"name": name, "kind": "rival", **figures} for name, figures in report["baselines"].items()),
        {"name": f"{report['model']}, random", "kind": "rival", **(report["random"] or {})},
        {"name": f"{report['model']}, in-sample", "kind": "rival", **report["in_sample"]},
    ]
    return {
        "report": report,
        "models": _with_bars([m for m in models if m.get("n")], "macro_mae"),
        "groups": _with_bars(report["groups"], "mae"),
        "facts": [(key.replace("_", " "), report[key]) for key in _FACTS if report.get(key) is not None],
    }


def _with_bars(rows: Sequence[Report], figure: str) -> list[Report]:
    largest = max((row[figure] or 0.0 for row in rows), default=0.0) or 1.0
    return [{**row, "width_pct": round(100 * (row[figure] or 0.0) / largest, 1)} for row in rows]
