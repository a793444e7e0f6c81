"""``eaco datasets``: list, describe, check and fetch measured profiles."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from rich.table import Table

from eaco_datasets.check import QualityReport, check_profiles
from eaco_datasets.errors import InputError, UnknownNameError
from eaco_datasets.sources import Source, dataset_names, load_dataset, sources, sources_of
from eaco_serving.commands._common import console, say, write_json
from eaco_serving.commands._options import DataDirOption, JsonOption

app = typer.Typer(add_completion=False, no_args_is_help=True, help="List, describe, check and fetch measured profiles.")


@app.command("list")
def list_sources(data_dir: DataDirOption = None) -> None:
    """What there is, on which GPUs, under which licence, and whether it is here."""
    table = Table("name", "what", "GPUs", "licence", "here", title="Sources of profiles")
    for known in sources():
        cells = (known.name, known.what, " ".join(known.gpus) or "all known", known.licence, _where(known, data_dir))
        table.add_row(*cells)
    console().print(table)
    _warn_of_licence(sources())


@app.command()
def describe(
    name: Annotated[str, typer.Argument(help="A data set: " + ", ".join(dataset_names()) + ".")],
    data_dir: DataDirOption = None,
) -> None:
    """Where a data set comes from, its licence and its traps; its rows too, where its files are here."""
    behind = sources_of(name)
    if not behind:
        raise UnknownNameError("data set", name, dataset_names())
    for known in behind:
        console().print(_facts(known, data_dir))
    if any(known.name == "simulated" for known in behind):
        from eaco_datasets.simulated import describe_simulation

        console().print_json(data=describe_simulation())
    _warn_of_licence(behind)
    if all(known.embedded or _is_here(known, data_dir) for known in behind):
        console().print(_rows(name, data_dir))


@app.command()
def check(
    name: Annotated[str, typer.Argument(help="A data set's name, or a .parquet or .csv file with a profile table.")],
    data_dir: DataDirOption = None,
    json_to: JsonOption = None,
) -> None:
    """Check a table against the schema, then report what is odd in it."""
    report = check_profiles(load_dataset(name, data_dir))
    _warn_of_licence(sources_of(name))
    if json_to is not None:
        write_json({"schema": 1, "dataset": name, **asdict(report)}, json_to)
    if json_to != "-":
        _print_report(name, report)


@app.command("fetch")
def fetch_files(
    names: Annotated[
        list[str] | None, typer.Argument(help="Sources or files to fetch; all when none is named.")
    ] = None,
    data_dir: DataDirOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace local files that differ from the public ones.")
    ] = False,
) -> None:
    """Download the public files at their pinned commits into the data folder; resumes, and checks SHA-256."""
    if data_dir is None:
        raise InputError("no data folder named", where="--data-dir (EACO_DATA_DIR)", expected="a folder to fetch into")
    from eaco_datasets.fetch import fetch

    _warn_of_licence([known for known in sources() if not names or any(_asks_for(n, known) for n in names)])
    with _Bars() as bars:
        done = fetch(data_dir, names or None, progress=bars, force=force)
    for fetched in done:
        typer.echo(f"{fetched.name}: {fetched.how}, {fetched.size_bytes} bytes")


class _Bars:
    """A progress bar a file, on a terminal only."""

    def __init__(self) -> None:
        shown = console()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            console=shown,
            disable=not shown.is_terminal,
        )
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> _Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, name: str, done_bytes: int, total_bytes: int | None) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total_bytes)
        self._progress.update(self._tasks[name], completed=done_bytes, total=total_bytes)


def _asks_for(name: str, known: Source) -> bool:
    return name.partition("/")[0] == known.name


def _warn_of_licence(behind: Any) -> None:
    for known in behind:
        if known.non_commercial:
            say(f"NOTE {known.name}: {known.licence}: non-commercial use only")


def _is_here(known: Source, data_dir: Path | None) -> bool:
    return data_dir is not None and all((data_dir / file).is_file() for file in known.files)


def _where(known: Source, data_dir: Path | None) -> str:
    if known.embedded:
        return "embedded"
    return "yes" if _is_here(known, data_dir) else f"no: eaco datasets fetch {known.name}"


def _facts(known: Source, data_dir: Path | None) -> Table:
    table = Table("", "", title=known.name, show_header=False)
    facts = {
        "what": known.what,
        "GPUs": " ".join(known.gpus) or "all known",
        "licence": known.licence,
        "from": known.url,
        "cite": known.citation,
        "files": " ".join(known.files),
        "here": _where(known, data_dir),
    }
    for label, value in facts.items():
        if value:
            table.add_row(label, value)
    for note in known.notes:
        table.add_row("note", note)
    return table


def _rows(name: str, data_dir: Path | None) -> Table:
    frame = load_dataset(name, data_dir)
    table = Table("GPU", "role", "outcome", "provenance", "rows", "measurements", "families", title=f"{name}: rows")
    grouped = frame.groupby(["gpu", "role", "outcome", "provenance"], sort=True)
    counts = grouped.agg(rows=("role", "size"), sets=("measurement_id", "nunique"), families=("family", "nunique"))
    for (gpu, role, outcome, provenance), row in zip(counts.index, counts.itertuples(index=False), strict=True):
        table.add_row(gpu, role, outcome, provenance, *(str(n) for n in row))
    return table


def _print_report(name: str, report: QualityReport) -> None:
    title = f"{name}: {report.rows} rows of {report.measurements} measurements"
    table = Table("severity", "code", "count", "what", "for example", title=title)
    for finding in report.findings:
        cells = (finding.severity, finding.code, str(finding.count), finding.message, "\n".join(finding.examples))
        table.add_row(*cells)
    console().print(table)
