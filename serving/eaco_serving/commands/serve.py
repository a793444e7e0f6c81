"""``eaco serve``."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from eaco_serving.commands._options import (
    ALIAS,
    HOME,
    PREDICTOR,
    AliasOption,
    HomeOption,
    PredictorOption,
    TrackingOption,
)

app = typer.Typer(add_completion=False)

log = logging.getLogger("eaco.serving")


@app.command()
def serve(
    *,
    host: Annotated[str | None, typer.Option(help="Address to listen on.  [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one.  [default: 8000]")] = None,
    predictor: PredictorOption = PREDICTOR,
    alias: AliasOption = ALIAS,
    tracking_uri: TrackingOption = None,
    home: HomeOption = HOME,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.  [default: info]")] = None,
) -> None:
    """Serve predictions and placements over REST, until SIGTERM or Ctrl-C.

    Serves the registered predictor's champion. Where none is registered yet, the embedded default is trained on
    simulated and published profiles first, and says so. Each option is also an EACO_* variable (EACO_PORT ...).
    """
    from eaco_serving.default import load_default
    from eaco_serving.runner import serve as run
    from eaco_serving.settings import load_settings

    settings = load_settings(
        host=host,
        port=port,
        predictor_name=predictor,
        predictor_alias=alias,
        tracking_uri=tracking_uri,
        home=home,
        log_level=log_level,
    )
    run(settings, lambda: load_default(settings, log.info))
