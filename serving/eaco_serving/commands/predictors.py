"""``eaco predictors``: list, compare, promote and roll back registered predictors."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from eaco_datasets.errors import InputError
from eaco_serving.commands._options import (
    ALIAS,
    HOME,
    PREDICTOR,
    HomeOption,
    JsonOption,
    PredictorOption,
    TrackingOption,
)

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="List, compare, promote and roll back registered predictors."
)

MovedAliasOption = Annotated[str, typer.Option("--alias", help="Which alias moves; the service serves champion.")]
VersionArgument = Annotated[int, typer.Argument(min=1, help="Version number, as listed.")]


@app.command("list")
def list_(
    predictor: PredictorOption = PREDICTOR,
    home: HomeOption = HOME,
    tracking_uri: TrackingOption = None,
    json_to: JsonOption = None,
) -> None:
    """Every registered version, what it was trained on, and which one is served."""
    from eaco_serving.commands import _common as common
    from eaco_serving.commands import _training as shared
    from eaco_training.registry import list_versions

    versions = list_versions(home, tracking_uri, name=_named(predictor))
    if json_to is not None:
        common.write_json({"schema": 1, "name": predictor, "versions": [asdict(v) for v in versions]}, json_to)
    if json_to == "-":
        return
    if versions:
        shared.versions_table(versions)
    else:
        typer.echo(f"nothing is registered as {predictor}; register with: eaco train --register {predictor}")


@app.command()
def compare(
    versions: Annotated[list[int], typer.Argument(min=1, help="Versions to compare.")],
    predictor: PredictorOption = PREDICTOR,
    home: HomeOption = HOME,
    tracking_uri: TrackingOption = None,
    json_to: JsonOption = None,
) -> None:
    """The tracked figures of several versions side by side."""
    from rich.table import Table

    from eaco_serving.commands import _common as common
    from eaco_serving.commands import _training as shared
    from eaco_training.registry import compare as compared

    wanted = list(dict.fromkeys(versions))
    figures = compared(wanted, home=home, tracking_uri=tracking_uri, name=_named(predictor))
    if json_to is not None:
        common.write_json({"schema": 1, "name": predictor, "versions": wanted, "figures": figures}, json_to)
    if json_to == "-":
        return
    table = Table("figure", *(f"version {v}" for v in wanted))
    for figure, by_version in figures.items():
        table.add_row(figure, *(shared.figure(by_version.get(v)) for v in wanted))
    common.console().print(table)


@app.command()
def promote(
    version: VersionArgument,
    predictor: PredictorOption = PREDICTOR,
    alias: MovedAliasOption = ALIAS,
    home: HomeOption = HOME,
    tracking_uri: TrackingOption = None,
) -> None:
    """Point the alias at a version."""
    from eaco_training.registry import promote as point

    before = point(version, home=home, tracking_uri=tracking_uri, name=_named(predictor), alias=alias)
    typer.echo(f"{predictor}@{alias}: version {version}" + (f", was {before}" if before is not None else ""))


@app.command()
def rollback(
    predictor: PredictorOption = PREDICTOR,
    alias: MovedAliasOption = ALIAS,
    home: HomeOption = HOME,
    tracking_uri: TrackingOption = None,
) -> None:
    """Point the alias back at the version it pointed at before."""
    from eaco_training.registry import rollback as point_back

    left, back = point_back(home=home, tracking_uri=tracking_uri, name=_named(predictor), alias=alias)
    typer.echo(f"{predictor}@{alias}: back to version {back} from {left}")


def _named(predictor: str) -> str:
    """The name itself. Raises ``InputError`` where nothing can be registered under it."""
    from eaco_training.registry import checked_name

    try:
        return checked_name(predictor)
    except InputError as error:
        raise error.at("--predictor") from error
