"""``eaco demo``."""

from __future__ import annotations

import typer

app = typer.Typer(add_completion=False)


@app.command()
def demo() -> None:
    """Start the service, ask it for a prediction and a placement over HTTP, show both, stop it (under 2 minutes).

    The default predictor is trained on simulated data: its figures show how EaCO works, not how a GPU behaves.
    """
    from eaco_serving.commands import _common as common
    from eaco_serving.demo import run_demo

    typer.echo("EaCO demo: the default predictor is trained on simulated data, in a temporary folder.")
    run_demo(typer.echo, common.console().print)
