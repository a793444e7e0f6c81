"""``eaco predict``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import typer

from eaco_datasets.errors import InputError
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

JOB_SYNTAX = "MODEL:BATCH_SIZE[:PRECISION], for example resnet50:64:amp"


def parse_job(text: str) -> dict[str, Any]:
    """A job as wire data from ``model:batch[:precision]``.

    Raises:
        InputError: another number of parts, or a batch size that is no whole number.
    """
    parts = [part.strip() for part in text.split(":")]
    if len(parts) not in (2, 3) or not all(parts):
        raise InputError(f"cannot read {text!r}", where="--job", expected=JOB_SYNTAX)
    if not (parts[1].isascii() and parts[1].isdecimal() and len(parts[1]) < 12):
        raise InputError(f"batch size {parts[1]!r} is no whole number", where="--job", expected=JOB_SYNTAX)
    job: dict[str, Any] = {"model": parts[0], "batch_size": int(parts[1])}
    if len(parts) == 3:
        job["precision"] = parts[2].lower()
    return job


def option_at(jobs: Sequence[str], pointer: str) -> str:
    """The option behind a JSON pointer: ``--num-gpus``, ``--job resnet50:0 (batch_size)``."""
    name, *rest = pointer.strip("/").split("/")
    if name != "jobs":
        return f"--{name.replace('_', '-')}"
    return f"--job {jobs[int(rest[0])]} ({'/'.join(rest[1:])})" if rest else "--job"


@app.command()
def predict(
    *,
    gpu: Annotated[str, typer.Option(help="GPU type: slug or alias.")],
    sharing_mode: Annotated[str, typer.Option(help="time-slice, mps or mig.")],
    job: Annotated[list[str], typer.Option(help=f"{JOB_SYNTAX}; once a job, up to 4.")],
    num_gpus: Annotated[int, typer.Option(help="GPUs that each job runs on.")] = 1,
    predictor: PredictorOption = PREDICTOR,
    alias: AliasOption = ALIAS,
    predictor_dir: PredictorDirOption = None,
    tracking_uri: TrackingOption = None,
    home: HomeOption = HOME,
    json_to: JsonOption = None,
) -> None:
    """Predict speed, power, utilisation and memory of jobs that share GPUs."""
    from eaco_serving.commands import _common as common
    from eaco_serving.convert import co_location, prediction_wire
    from eaco_serving.routes.wire import validated
    from eaco_serving.schemas import SetIn
    from eaco_serving.settings import load_settings
    from eaco_serving.tables import prediction_tables

    asked = {"gpu": gpu, "sharing_mode": sharing_mode, "num_gpus": num_gpus, "jobs": [parse_job(text) for text in job]}
    with common.refused_at(partial(option_at, job)):
        together = co_location(validated(SetIn, asked))
    settings = load_settings(predictor_name=predictor, predictor_alias=alias, tracking_uri=tracking_uri, home=home)
    (prediction,) = common.pick_predictor(predictor_dir, settings).predict([together])
    answer = prediction_wire(prediction)
    common.notice(prediction.provenance)
    if json_to is not None:
        common.write_json(answer, json_to)
    if json_to != "-":
        common.console().print(prediction_tables(answer, job))
