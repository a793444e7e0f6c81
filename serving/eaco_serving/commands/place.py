"""``eaco place``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def place(
    *,
    request: Annotated[str, typer.Argument(help="File with the body of POST /place; - is stdin.", metavar="REQUEST")],
    model_dir: Annotated[Path | None, typer.Option(help="A saved predictor, in place of the registered one.")] = None,
    model: Annotated[str | None, typer.Option(help="Registered model.  [default: eaco]")] = None,
    alias: Annotated[str | None, typer.Option(help="Its alias.  [default: champion]")] = None,
    tracking_uri: Annotated[str | None, typer.Option(help="MLflow server or store.")] = None,
    home: Annotated[Path | None, typer.Option(help="Folder of EaCO's state.  [default: .eaco]")] = None,
    json_to: Annotated[str | None, typer.Option("--json", help="Write the decision as JSON; - is stdout.")] = None,
) -> None:
    """Decide where a job goes in a cluster: beside others, on idle GPUs, or nowhere yet."""
    from eaco_scheduler.eaco import decide
    from eaco_serving.commands import _common as common
    from eaco_serving.convert import decision_wire, placement
    from eaco_serving.routes.wire import validated
    from eaco_serving.schemas_place import PlaceIn
    from eaco_serving.tables import decision_tables

    parsed = common.read_json(request)
    body = common.as_input_error(lambda: validated(PlaceIn, parsed), request)
    asked = placement(body)
    predictor = common.pick_predictor(model_dir, name=model, alias=alias, tracking_uri=tracking_uri, home=home)
    answer = decision_wire(decide(asked.request, asked.cluster, predictor, asked.settings))
    common.notice(predictor.info.provenance)
    if json_to is not None:
        common.write_json(answer, json_to)
    if json_to != "-":
        common.console().print(decision_tables(answer))
