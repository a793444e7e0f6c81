"""``eaco place``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from eaco_serving.commands._options import (
    ALIAS,
    HOME,
    PREDICTOR,
    AliasOption,
    HomeOption,
    JsonOption,
    PredictorDirOption,
    PredictorOption,
    TrackingOption,
)

app = typer.Typer(add_completion=False)


@app.command()
def place(
    *,
    request: Annotated[str, typer.Argument(help="File with the body of POST /place; - is stdin.", metavar="REQUEST")],
    predictor: PredictorOption = PREDICTOR,
    alias: AliasOption = ALIAS,
    predictor_dir: PredictorDirOption = None,
    tracking_uri: TrackingOption = None,
    home: HomeOption = HOME,
    json_to: JsonOption = None,
) -> None:
    """Decide where a job goes in a cluster: beside others, on idle GPUs, or nowhere yet."""
    from eaco_scheduler.eaco import decide
    from eaco_serving.commands import _common as common
    from eaco_serving.convert import decision_wire, placement
    from eaco_serving.routes.wire import validated
    from eaco_serving.schemas_place import PlaceIn
    from eaco_serving.settings import load_settings
    from eaco_serving.tables import decision_tables

    settings = load_settings(predictor_name=predictor, predictor_alias=alias, tracking_uri=tracking_uri, home=home)
    parsed = common.read_json(request)
    with common.refused_at(partial(common.in_file, request)):
        asked = placement(validated(PlaceIn, parsed))
    served = common.pick_predictor(predictor_dir, settings)
    with common.refused_at(partial(common.in_file, request)):
        decision = decide(asked.request, asked.cluster, served, asked.settings)
    answer = decision_wire(decision, settings.alternatives_in_full)
    common.notice(served.info.provenance)
    if json_to is not None:
        common.write_json(answer, json_to)
    if json_to != "-":
        common.console().print(decision_tables(answer))
