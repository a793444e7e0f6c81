"""The graphs of the reference jobs, recorded once and kept as data: reading them needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from time import process_time

from eaco_datasets.errors import InputError, MissingExtraError
from eaco_features.graphs.graph import ModelGraph
from eaco_features.graphs.store import read_graph, write_graph
from eaco_features.zoo.catalogue import ReferenceJob, reference_job, reference_jobs

RECORDED = Path(__file__).parent / "graphs"


@dataclass(frozen=True)
class Recorded:
    """One reference job recorded anew: its graph, the CPU seconds it took, and whether the kept graph is the same."""

    name: str
    graph: ModelGraph
    cpu_s: float
    unchanged: bool


@cache
def catalogue_graph(name: str) -> ModelGraph:
    """The kept graph of a reference job.

    Raises:
        UnknownNameError: no such reference job.
        InputError: the file is missing or not what was recorded.
    """
    return read_graph(_file(RECORDED, reference_job(name).name))


def record_catalogue(names: Sequence[str] = (), *, workers: int = 2) -> Iterator[Recorded]:
    """Record reference jobs (all of them unless named) at their first batch size, as they get done.

    Raises:
        MissingExtraError: torch is not installed.
        UnknownNameError: no such reference job.
    """
    jobs = [reference_job(name) for name in names] or list(reference_jobs())
    if find_spec("torch") is None:
        raise MissingExtraError("torch", "gnn")
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_record, jobs)


def keep(recorded: Recorded, folder: Path = RECORDED) -> Path:
    """Write a recorded graph into a folder; returns its file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = _file(folder, recorded.name)
    write_graph(recorded.graph, path)
    return path


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.json.gz"


def _record(job: ReferenceJob) -> Recorded:
    import torch

    from eaco_features.graphs.recorder import record

    torch.set_num_threads(1)
    module, function = job.build.split(":")
    build: Callable[[int], object] = getattr(import_module(module), function)
    start = process_time()
    graph = record(build, job.batch_sizes[0], name=job.name)  # type: ignore[arg-type]
    cpu_s = process_time() - start
    try:
        unchanged = catalogue_graph(job.name) == graph
    except InputError:  # not kept yet, or not readable any more
        unchanged = False
    return Recorded(job.name, graph, cpu_s, unchanged)
