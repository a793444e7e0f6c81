"""``eaco features``: record the model graph of a training job, and register it for predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eaco_serving.commands._options import HOME, HomeOption

if TYPE_CHECKING:
    from rich.table import Table

    from eaco_features.graphs.graph import ModelGraph

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Model graphs of training jobs: record, register and list them."
)


@app.callback()
def features() -> None:
    """Model graphs of training jobs: record, register and list them."""


@app.command()
def extract(
    job: Annotated[
        str, typer.Argument(metavar="PKG.MOD:BUILD_JOB", help="Function: build_job(batch_size) -> TrainingJob.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write: .json or .json.gz.")],
    batch_size: Annotated[
        int, typer.Option(min=1, help="Batch size per GPU to record at; others follow from it.")
    ] = 32,
    timeout: Annotated[float, typer.Option(help="Most seconds that it may take.")] = 60.0,
    memory_mib: Annotated[int, typer.Option(min=1, help="Most memory, beyond torch's own, that it may map.")] = 8192,
) -> None:
    """Run two training steps of a job without its arithmetic and write down every kernel of the second."""
    from eaco_features.graphs.extract import extract as extract_graph
    from eaco_features.graphs.store import write_graph
    from eaco_serving.commands._common import console, say

    graph = extract_graph(job, batch_size, timeout_s=timeout, memory_mib=memory_mib)
    write_graph(graph, output)
    for note in graph.recording.notes:
        say(f"NOTE {note}")
    console().print(summary_table(graph, batch_size))


@app.command("import-onnx")
def import_file(
    file: Annotated[Path, typer.Argument(metavar="MODEL.ONNX", help="ONNX file; its external data is not needed.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write: .json or .json.gz.")],
    batch_size: Annotated[
        int, typer.Option(min=1, help="Batch size to anchor costs at, unless the file fixes its own.")
    ] = 32,
    name: Annotated[str, typer.Option(help="The graph's name; the file's unless given.")] = "",
    dim: Annotated[
        list[str] | None, typer.Option(metavar="NAME=SIZE", help="Size of a symbolic dimension that is not the batch.")
    ] = None,
) -> None:
    """Read the forward pass of an ONNX file as a graph: inference only, no training step."""
    from eaco_features.graphs.onnx_import import import_onnx
    from eaco_features.graphs.store import write_graph
    from eaco_serving.commands._common import console, say

    graph = import_onnx(file, batch_size=batch_size, name=name, sizes=_sizes(dim or []))
    write_graph(graph, output)
    for note in graph.recording.notes:
        say(f"NOTE {note}")
    console().print(summary_table(graph, graph.recording.batch_size))


def _sizes(given: list[str]) -> dict[str, int]:
    """``NAME=SIZE`` options as sizes by name."""
    from eaco_datasets.errors import InputError

    sizes = {}
    for one in given:
        name, _, size = one.rpartition("=")
        if not name or not size.isdecimal():
            raise InputError(f"{one!r} found", where="--dim", expected="NAME=SIZE, as in sequence=128")
        sizes[name] = int(size)
    return sizes


@app.command()
def register(
    model: Annotated[str, typer.Argument(metavar="NAME", help="What jobs call the model: a name of your own.")],
    graph: Annotated[Path, typer.Argument(metavar="GRAPH.JSON", help="What extract wrote: .json or .json.gz.")],
    samples_per_epoch: Annotated[
        float | None, typer.Option(help="Size of the training data, for jobs that do not state it.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Take the place of another graph of this name.")] = False,
    home: HomeOption = HOME,
) -> None:
    """Register a graph under a name: predictions of jobs of that model, served ones too, then know it."""
    from eaco_features.graphs.store import read_graph
    from eaco_serving.commands._common import refused_at, say
    from eaco_serving.graph_store import GraphStore, registration
    from eaco_serving.routes.wire import validated
    from eaco_serving.schemas_catalogue import RegistrationIn

    found = read_graph(graph)
    with refused_at(lambda pointer: _register_argument(pointer, graph)):
        wire = validated(RegistrationIn, {"model": model, "samples_per_epoch": samples_per_epoch, "replace": replace})
        wanted = registration(wire.model, found, wire.samples_per_epoch)
    store = GraphStore(home, say)
    kept, new = store.register(wanted, over=replace)
    typer.echo(
        f"{'registered' if new else 'is registered as'} {kept.family}: {kept.graph.content_hash} in {store.folder}"
    )


@app.command()
def catalogue() -> None:
    """List the reference jobs with the totals of their kept graphs."""
    from rich.table import Table

    from eaco_features.graphs.summary import totals
    from eaco_features.zoo.catalogue import reference_jobs
    from eaco_features.zoo.recorded import catalogue_graph
    from eaco_serving.commands._common import console

    table = Table("job", "batch size", "parameters", "GFLOP a sample", "kernels", "peak MiB, estimated")
    for job in reference_jobs():
        graph = catalogue_graph(job.name)
        found = totals(graph, graph.recording.batch_size)
        gflop = sum(found.flops.values()) / 1e9 / found.samples
        numbers = (f"{found.parameter_count:,}", f"{gflop:.4g}", f"{sum(found.kernels.values()):,}")
        table.add_row(job.name, str(found.batch_size), *numbers, f"{found.peak_memory_mib:,.0f}")
    console().print(table)


@app.command("record-catalogue")
def record_again(
    names: Annotated[list[str] | None, typer.Argument(help="Reference jobs; all unless named.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder to write the graphs to.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
) -> None:
    """Record the reference jobs again and say which graphs differ from the kept ones."""
    from rich.table import Table

    from eaco_datasets.errors import EacoError
    from eaco_features.zoo.recorded import keep, record_catalogue
    from eaco_serving.commands._common import console

    table = Table("job", "kernels", "CPU s", "kept graph")
    differ = []
    for one in record_catalogue(names or [], workers=workers):
        table.add_row(one.name, f"{len(one.graph):,}", f"{one.cpu_s:.1f}", "the same" if one.unchanged else "DIFFERS")
        differ += [] if one.unchanged else [one.name]
        if output is not None:
            keep(one, output)
    console().print(table)
    if differ and output is None:
        raise EacoError(f"{len(differ)} kept graph(s) differ from what was recorded: {', '.join(differ)}")


def _register_argument(pointer: str, graph: Path) -> str:
    """What the user gave that became a JSON pointer's value."""
    if pointer.startswith("/graph"):
        return f"{graph}:{pointer.removeprefix('/graph')}"
    return {"/model": "NAME"}.get(pointer, f"--{pointer.strip('/').replace('_', '-')}")


def summary_table(graph: ModelGraph, batch_size: int) -> Table:
    """What a person wants to know of a graph first."""
    from rich.table import Table

    from eaco_features.graphs.coarse import coarsen
    from eaco_features.graphs.summary import totals
    from eaco_features.graphs.vocabulary import PHASES

    found = totals(graph, batch_size)
    recording = graph.recording
    table = Table("what", *PHASES, "step", title=_title(graph, batch_size))
    moved = {phase: value / 2**20 for phase, value in found.bytes_moved.items()}
    gflop = {phase: value / 1e9 for phase, value in found.flops.items()}
    for label, parts, form in (
        ("GFLOP", gflop, "{:,.3f}"),
        ("MiB moved", moved, "{:,.1f}"),
        ("kernels", found.kernels, "{:,}"),
    ):
        table.add_row(label, *(form.format(parts[phase]) for phase in PHASES), form.format(sum(parts.values())))
    table.add_section()
    states = f"{found.optimizer_state_bytes / 2**20:,.1f} MiB ({', '.join(recording.optimizers) or 'no optimizer'})"
    most = ", ".join(f"{kind} {share:.0%}" for kind, share in list(found.byte_share.items())[:4])
    for label, value in {
        "parameters": f"{found.parameter_count:,}",
        "optimizer state": states,
        "saved activations": f"{found.saved_activation_bytes / 2**20:,.1f} MiB",
        "peak memory, estimated": f"{found.peak_memory_mib:,.1f} MiB",
        "small kernels": f"{found.small_kernel_share:.0%}",
        "depth": f"{found.depth:,} ({len(coarsen(graph)):,} nodes when coarsened)",
        "bytes by class": most,
        "dynamic operations": f"{found.dynamic_ops:,}",
        "confidence": f"{found.confidence:.2f} ({_how(graph)})",
        "content": graph.content_hash[: len("sha256:") + 16],
    }.items():
        table.add_row(label, "", "", "", value)
    return table


def _title(graph: ModelGraph, batch_size: int) -> str:
    flag = ", inference only" if graph.recording.inference_only else ""
    return f"{graph.name} at batch size {batch_size}{flag}"


def _how(graph: ModelGraph) -> str:
    affine = {
        True: "exactly affine in the batch size",
        False: "not affine in the batch size",
        None: "affinity unchecked",
    }
    how = {
        "fake": "run on fake tensors",
        "real": f"run for real at batch size {graph.recording.batch_size}",
        "onnx": "inference only, read from ONNX",
    }
    return f"{how[graph.recording.mode]}; {affine[graph.recording.affine]}"
