"""``eaco evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eaco_serving.commands._options import DataDirOption, DatasetOption, JsonOption, SeedOption

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
        str, typer.Option(metavar="K", help="Measurements of held-out work that are given; several: 0,1,2.")
    ] = "0",
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
    from eaco_training.evaluate import evaluation_of, known_model, models_of
    from eaco_training.folds import protocol as known_protocol
    from eaco_training.report import to_html, to_json, write_text

    ks = shared.parse_observations(observations)
    known_protocol(protocol)
    models = models_of(target, cold=cold) if model == "all" else (known_model(target, model, cold=cold),)
    profiles = load_dataset(dataset, data_dir)
    shared.licence_notice(dataset)
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
    if json_to not in (None, "-"):
        write_text(to_json(reports), Path(str(json_to)))
    if html_to is not None:
        write_text(to_html(reports), html_to)
    if json_to == "-":
        typer.echo(to_json(reports), nl=False)
    else:
        for report in reports:
            shared.print_report(report)
