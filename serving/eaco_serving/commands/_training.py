"""What the commands that train and evaluate share: notices, progress and the tables of figures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from eaco_datasets.errors import InputError
from eaco_serving.commands._common import console, say

if TYPE_CHECKING:
    from eaco_training.registry import RegisteredVersion

HELD_OUT = {
    "relative_speed_out_of_family_macro_mae": "speed MAE {}",
    "relative_speed_in_sample_macro_mae": "(in-sample {})",
    "gpu_power_out_of_family_macro_mape_pct": "power MAPE {} %",
}
"""Figure of a predictor's own held-out errors -> how a table says it."""

ProgressCall = Callable[[str, int, int], None]


def licence_notice(dataset: str) -> None:
    """Say on stderr when a data set may not be used commercially."""
    from eaco_datasets.sources import sources_of

    for source in sources_of(dataset):
        if source.non_commercial:
            say(f"NOTE {source.name} is under a non-commercial licence: {source.licence}")


@contextmanager
def progress_bar() -> Iterator[ProgressCall]:
    """A progress bar on stderr where that is a terminal; silence in a pipe."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from eaco_training.study import no_progress

    if not sys.stderr.isatty():
        yield no_progress
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


def print_report(report: dict[str, Any]) -> None:
    """An evaluation as two tables: the model beside its baselines, and the held-out groups."""
    from rich.table import Table

    from eaco_training.report import headline

    overall = headline(report)
    observed = f", {report['observations']} observations" if report["observations_max"] else ""
    observed += ", cold" if report["cold"] else ""
    title = f"{report['target']} on {report['dataset']}, {report['protocol']}{observed}"
    table = Table("model", "n", "MAE", "macro MAE", "95 % interval", "MAPE %", "macro MAPE %", "R2", title=title)
    table.add_row(report["model"], *_figures(overall, _interval(overall.get("macro_mae_ci"))), style="bold")
    beside = {
        **report["baselines"],
        "same, nothing observed": report.get("without_observations"),
        "same, observed batch size": report.get("same_batch_size"),
        "same, random split": report["random"],
        "same, in-sample": report["in_sample"],
    }
    for name, figures in beside.items():
        if figures and figures["n"]:
            table.add_row(name, *_figures(figures, ""))
    console().print(table)
    groups = Table("held out", "provenance", "n", "MAE", "raw MAE", "MAPE %", "coverage %", "width")
    for group in report["groups"]:
        cells = (group[k] for k in ("mae", "mae_raw", "mape_pct", "coverage_pct", "interval_width"))
        groups.add_row(group["held_out"], group["provenance"], str(group["n"]), *(figure(c) for c in cells))
    console().print(groups)
    for line in _remarks(report):
        console().print(line)


def _figures(block: dict[str, Any], interval: str) -> list[str]:
    before, after = ("mae", "macro_mae"), ("mape_pct", "macro_mape_pct", "r2")
    return [
        str(block.get("n", 0)),
        *(figure(block.get(k)) for k in before),
        interval,
        *(figure(block.get(k)) for k in after),
    ]


def _interval(bounds: Sequence[float] | None) -> str:
    return f"{figure(bounds[0])} to {figure(bounds[1])}" if bounds else ""


def _remarks(report: dict[str, Any]) -> Iterator[str]:
    if not report["overall"]:
        yield "No measured or published row: every figure above is of simulated rows."
    rival = report["versus_best_baseline"]
    if rival:
        difference, interval = rival["macro_mae_difference"], _interval(rival["macro_mae_difference_ci"])
        yield f"macro MAE less that of {rival['baseline']}: {figure(difference)} ({interval or 'one family only'})"
    if report["noise_floor"]:
        yield f"noise floor from repeated measurements: MAE {figure(report['noise_floor']['mae'])}"


def figure(value: float | None) -> str:
    """Four digits; ``-`` where there is none."""
    return "-" if value is None else f"{value:.4g}"


def versions_table(versions: Sequence[RegisteredVersion]) -> None:
    """Registered versions, one a line."""
    from rich.table import Table

    table = Table("version", "aliases", "predictor", "model", "trained on", "provenance", "error, families left out")
    for v in versions:
        shares = ", ".join(f"{kind} {100 * share:.0f} %" for kind, share in v.provenance.items())
        cells = (", ".join(v.aliases), v.predictor_version, v.model, v.datasets, shares, _held_out(v.held_out))
        table.add_row(str(v.version), *cells)
    console().print(table)


def _held_out(figures: Mapping[str, float]) -> str:
    """What a predictor errs on families left out of its own fit (``PredictorInfo.held_out``)."""
    parts = [said.format(figure(figures[name])) for name, said in HELD_OUT.items() if name in figures]
    return "\n".join(parts) or "unknown"


def print_curve(curve: dict[str, Any]) -> None:
    """A transfer curve as a table: error over the measurements on the new GPU type."""
    from rich.table import Table

    title = f"{curve['target']} on {curve['dataset']}, {', '.join(curve['trained_on'])} to {curve['gpu']}: "
    table = Table("samples", "MAE", "MAPE %", "coverage %", "MAE from scratch", "MAPE % from scratch")
    table.title = title + f"{curve['model']}, {curve['n_draws']} draws"
    for point in curve["points"]:
        adapted, scratch = point["adapted"], point["scratch"] or {}
        cells = [
            *(adapted[k] for k in ("mae", "mape_pct", "coverage_pct")),
            scratch.get("mae"),
            scratch.get("mape_pct"),
        ]
        table.add_row(str(point["samples"]), *map(figure, cells))
    console().print(table)


def parse_observations(text: str, option: str = "--observations") -> tuple[int, ...]:
    """``"1"`` or ``"0,1,2"`` as numbers.

    Raises:
        InputError: not whole numbers from 0, separated by commas.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 6 for part in parts):
        raise InputError(repr(text), where=option, expected="a whole number, or several: 0,1,2")
    return tuple(dict.fromkeys(int(part) for part in parts))
