"""``eaco train``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from eaco_datasets.errors import InputError
from eaco_serving.commands._options import (
    HOME,
    DataDirOption,
    DatasetOption,
    HomeOption,
    JsonOption,
    SeedOption,
    TrackingOption,
)

app = typer.Typer(add_completion=False)

DEFAULT_PROTOCOL = "leave-one-model-out"


@app.command()
def train(
    *,
    dataset: DatasetOption = "embedded",
    data_dir: DataDirOption = None,
    model: Annotated[
        str | None, typer.Option(help="Relative-speed model; the best out of sample when not given.")
    ] = None,
    register: Annotated[str | None, typer.Option(metavar="NAME", help="Register the predictor, e.g. as eaco.")] = None,
    promote: Annotated[bool, typer.Option("--promote", help="Make it the champion even where there is one.")] = False,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="Protocol of the evaluation that is tracked with the run; none leaves it out.  "
            f"[default: {DEFAULT_PROTOCOL}]"
        ),
    ] = None,
    base: Annotated[
        str | None, typer.Option("--from", metavar="NAME", help="Carry this registered predictor to a new GPU type.")
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="With --from: the new GPU type.")] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, metavar="K", help="With --from: co-located measurements on it to learn from.")
    ] = None,
    home: HomeOption = HOME,
    tracking_uri: TrackingOption = None,
    seed: SeedOption = 0,
    json_to: JsonOption = None,
) -> None:
    """Train a predictor on profiles, evaluate it on work it has not seen, track the run in MLflow."""
    from eaco_datasets.gpus import gpu_slug
    from eaco_datasets.sources import load_dataset
    from eaco_serving.commands import _common as common
    from eaco_serving.commands import _training as shared
    from eaco_training.train import adapt
    from eaco_training.train import train as train_predictor

    _refuse_unknown(protocol, model, register)
    if len({base is None, gpu is None, samples is None}) > 1:
        raise InputError("some of --from, --gpu and --samples", where="train", expected="all three, or none")
    if base is not None and model is not None:
        raise InputError("--model with --from", where="--model", expected="one of them: the algorithm stays")
    if base is not None and protocol not in (None, "none"):
        raise InputError("--protocol with --from", where="--protocol", expected="one of them: nothing is evaluated")
    if promote and register is None:
        raise InputError("--promote without --register", where="--promote", expected="both")
    profiles = load_dataset(dataset, data_dir)
    shared.licence_notice(dataset)
    kept: dict[str, Any] = {
        "dataset": dataset,
        "seed": seed,
        "home": home,
        "tracking_uri": tracking_uri,
        "register_as": register,
        "promote": promote,
    }
    with shared.progress_bar() as progress:
        if base is not None and gpu is not None and samples is not None:
            result = adapt(profiles, base=base, gpu=gpu_slug(gpu), samples=samples, **kept)
        else:
            under = None if protocol == "none" else protocol or DEFAULT_PROTOCOL
            result = train_predictor(profiles, model=model, evaluate_under=under, progress=progress, **kept)
    info = result.predictor.info
    common.notice(info.provenance)
    if json_to is not None:
        summary = {
            "schema": 1,
            "run_id": result.run_id,
            "predictor_version": info.version,
            "model": info.model,
            "data_sha256": info.data_sha256,
            "provenance": info.provenance,
            "registered": {"name": register, "version": result.version, "alias": result.alias} if register else None,
            "evaluation": dict(result.reports),
        }
        common.write_json(summary, json_to)
    if json_to != "-":
        for report in result.reports.values():
            shared.print_report(report)
        typer.echo(f"predictor {info.version} ({info.model}) from {info.n_rows} rows of {dataset}; run {result.run_id}")
        if register:
            typer.echo(f"registered as {register} version {result.version}, {result.alias}")


def _refuse_unknown(protocol: str | None, model: str | None, register: str | None) -> None:
    """Raises ``InputError`` for a name that nobody knows, before anything is read or trained."""
    from eaco_training.choices import known_model
    from eaco_training.folds import protocol as known_protocol
    from eaco_training.registry import checked_name

    if protocol is not None and protocol != "none":
        known_protocol(protocol)
    if model is not None:
        known_model("relative_speed", model)
    if register is not None:
        checked_name(register)
