"""``eaco features``: record the model graph of a training job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from eaco_features.graphs.graph import ModelGraph

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Record the model graph of a training job.")


@app.callback()
def features() -> None:
    """Record the model graph of a training job."""


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


def summary_table(graph: ModelGraph, batch_size: int) -> Table:
    """What a person wants to know of a graph first."""
    from rich.markup import escape
    from rich.table import Table

    from eaco_features.graphs.coarse import coarsen
    from eaco_features.graphs.summary import totals
    from eaco_features.graphs.vocabulary import PHASES

    found = totals(graph, batch_size)
    recording = graph.recording
    table = Table("what", *PHASES, "step", title=escape(f"{graph.name} at batch size {batch_size}"))
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


def _how(graph: ModelGraph) -> str:
    affine = {
        True: "exactly affine in the batch size",
        False: "not affine in the batch size",
        None: "affinity unchecked",
    }
    run = (
        "on fake tensors" if graph.recording.mode == "fake" else f"for real at batch size {graph.recording.batch_size}"
    )
    return f"run {run}; {affine[graph.recording.affine]}"
