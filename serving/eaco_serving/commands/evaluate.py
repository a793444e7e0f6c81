"""``eaco evaluate``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eaco_datasets.errors import InputError
from eaco_serving.commands._options import DataDirOption, DatasetOption, JsonOption, SeedOption

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer(add_completion=False)


@app.command()
def evaluate(
    *,
    dataset: DatasetOption = "embedded",
    data_dir: DataDirOption = None,
    protocol: Annotated[str, typer.Option(help="What is held out.")] = "leave-one-model-out",
    target: Annotated[str, typer.Option(help="What is predicted.")] = "relative_speed",
    model: Annotated[
        str | None, typer.Option(help="A model, or all of the target's; the best out of sample when not given.")
    ] = None,
    observations: Annotated[
        str | None,
        typer.Option(metavar="K", help="Measurements of held-out work that are given; several: 0,1,2.  [default: 0]"),
    ] = None,
    samples: Annotated[
        str | None,
        typer.Option(
            metavar="K", help="With leave-one-gpu-out: measurements on the new GPU type that adapt the model: 0,5,10."
        ),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="With --samples: the new GPU type; each in turn when not given.")
    ] = None,
    cold: Annotated[
        bool, typer.Option("--cold", help="Give nothing of held-out work but its model graph: no solo profile.")
    ] = False,
    seed: SeedOption = 0,
    json_to: JsonOption = None,
    html_to: Annotated[Path | None, typer.Option("--html", metavar="OUT", help="Write a page of tables.")] = None,
) -> None:
    """Measure a model's error on work it has not seen, beside its baselines and its in-sample error."""
    from eaco_datasets.sources import load_dataset
    from eaco_serving.commands import _training as shared
    from eaco_serving.commands._common import say
    from eaco_training.choices import known_model, models_left_out, models_of
    from eaco_training.evaluate import evaluation_of
    from eaco_training.folds import protocol as known_protocol
    from eaco_training.report import to_html, to_json, write_text

    ks = shared.parse_observations("0" if observations is None else observations)
    known_protocol(protocol)
    models = models_of(target, cold=cold) if model == "all" else (known_model(target, model, cold=cold),)
    if samples is not None and protocol != "leave-one-gpu-out":
        raise InputError(f"--samples with {protocol}", where="--protocol", expected="leave-one-gpu-out")
    if gpu is not None and samples is None:
        raise InputError("--gpu without --samples", where="--gpu", expected="both")
    if samples is not None and observations is not None:
        raise InputError("--observations with --samples", where="--observations", expected="one of them")
    counts = None if samples is None else shared.parse_observations(samples, "--samples")
    missing = models_left_out(target, cold=cold) if model == "all" else {}
    if missing:
        say(f"NOTE {', '.join(missing)} left out: {next(iter(missing.values()))}")
    profiles = load_dataset(dataset, data_dir)
    shared.licence_notice(dataset)
    show: Callable[[dict[str, Any]], None] = shared.print_report
    if counts is not None:
        asked = {"dataset": dataset, "target": target, "samples": counts, "cold": cold, "seed": seed}
        reports, show = _curves(profiles, asked, models, gpu, html_to=html_to), shared.print_curve
    else:
        with shared.progress_bar() as progress:
            evaluation = evaluation_of(
                profiles,
                dataset=dataset,
                protocol_name=protocol,
                target=target,
                seed=seed,
                cold=cold,
                progress=progress,
            )
            reports = [report for name in models for report in evaluation.report(name, ks=ks)]
        if html_to is not None:
            write_text(to_html(reports), html_to)
    if json_to not in (None, "-"):
        write_text(to_json(reports), Path(str(json_to)))
    if json_to == "-":
        typer.echo(to_json(reports), nl=False)
    else:
        for report in reports:
            show(report)


def _curves(
    profiles: pd.DataFrame, asked: dict[str, Any], models: Sequence[str], gpu: str | None, *, html_to: Path | None
) -> list[dict[str, Any]]:
    """What samples on a new GPU type are worth: ``eaco_training.transfer``."""
    from eaco_datasets.gpus import gpu_slug
    from eaco_serving.commands import _training as shared
    from eaco_training.report import write_text
    from eaco_training.transfer import plot, transfer_curve

    types = sorted(profiles["gpu"].astype(str).unique()) if gpu is None else [gpu_slug(gpu)]
    with shared.progress_bar() as progress:
        curves = [
            transfer_curve(profiles, gpu=slug, model=name, progress=progress, **asked)
            for name in models
            for slug in types
        ]
    if html_to is not None:
        drawing = plot(curves)
        write_text("<!doctype html>\n<title>Transfer</title>\n" + drawing[drawing.index("<svg") :], html_to)
    return curves
