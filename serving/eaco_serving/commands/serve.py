"""``eaco serve``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)

log = logging.getLogger("eaco.serving")


@app.command()
def serve(
    *,
    host: Annotated[str | None, typer.Option(help="Address to listen on.  [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one.  [default: 8000]")] = None,
    model: Annotated[str | None, typer.Option(help="Registered model to serve.  [default: eaco]")] = None,
    alias: Annotated[str | None, typer.Option(help="Its alias.  [default: champion]")] = None,
    tracking_uri: Annotated[str | None, typer.Option(help="MLflow server or store.")] = None,
    home: Annotated[Path | None, typer.Option(help="Folder of EaCO's state.  [default: .eaco]")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.  [default: info]")] = None,
) -> None:
    """Serve predictions and placements over REST, until SIGTERM or Ctrl-C.

    Serves the registered model's champion. Where none is registered yet, the embedded default is trained on simulated
    and published profiles first, and says so. Each option is also an EACO_* variable (EACO_PORT ...).
    """
    from eaco_serving.default import load_default
    from eaco_serving.runner import serve as run
    from eaco_serving.settings import load_settings

    settings = load_settings(
        host=host,
        port=port,
        predictor_name=model,
        predictor_alias=alias,
        tracking_uri=tracking_uri,
        home=home,
        log_level=log_level,
    )
    run(settings, lambda: load_default(settings, log.info))
