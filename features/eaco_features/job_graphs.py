"""The model graph of each job of a batch, and what it says of the job on the set's GPU. No torch here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np

from eaco_datasets.gpus import gpu_specs
from eaco_datasets.types import GpuSpec, Precision
from eaco_features.graphs.graph import ModelGraph
from eaco_features.graphs.summary import GRAPH_FEATURES, graph_features, roofline_parts
from eaco_features.sets import ConfigKey, FloatArray, SetBatch
from eaco_features.zoo.catalogue import ReferenceJob, epoch_samples, reference_of
from eaco_features.zoo.recorded import catalogue_graph


@dataclass(frozen=True)
class GraphBook:
    """Graphs by job: those registered under a family slug, then those of the catalogue's reference jobs."""

    registered: Mapping[str, ModelGraph] = field(default_factory=dict)

    def graph(self, config: ConfigKey) -> ModelGraph | None:
        """The graph of a job config, or None where neither its family nor its data set has one."""
        if config.family in self.registered:
            return self.registered[config.family]
        reference = self.reference(config)
        return None if reference is None else catalogue_graph(reference.name)

    def reference(self, config: ConfigKey) -> ReferenceJob | None:
        """The catalogue's reference job of a config, or None. A registered graph hides it."""
        return None if config.family in self.registered else _reference(config.family, config.dataset)

    def with_graph(self, family: str, graph: ModelGraph) -> GraphBook:
        """The same book with one more graph."""
        return replace(self, registered={**self.registered, family: graph})


CATALOGUE = GraphBook()

_reference = lru_cache(maxsize=4096)(lambda family, dataset: reference_of(family, dataset or None))
_epoch_samples = lru_cache(maxsize=4096)(lambda family, dataset: epoch_samples(family, dataset or None))


def book_of(sets: SetBatch) -> GraphBook:
    """The book that a batch's jobs are looked up in."""
    return sets.graphs or CATALOGUE


class RooflineColumns(NamedTuple):
    """What the graphs say of each job on its set's GPU; each ``(n_sets, MAX_JOBS)``, NaN where there is no graph, no
    batch size or no data sheet.

    ``busy_s`` is the time that a step's kernels need at data-sheet peaks, ``compute_s`` and ``memory_s`` that of its
    FLOPs and of its bytes alone; ``launches`` counts kernels, ``samples`` samples a step. ``memory_mib`` is the
    graph's peak, without a process's context.
    """

    busy_s: FloatArray
    compute_s: FloatArray
    memory_s: FloatArray
    launches: FloatArray
    samples: FloatArray
    memory_mib: FloatArray


def roofline_columns(sets: SetBatch) -> RooflineColumns:
    """Roofline figures of every job; each distinct (GPU, config) is computed once."""
    specs = gpu_specs()
    grid = np.full((len(RooflineColumns._fields), *sets.present.shape), np.nan)
    book = book_of(sets)
    codes = np.where(sets.present, sets.gpu[:, None] * max(len(sets.configs), 1) + sets.config, -1)
    distinct, inverse = np.unique(codes, return_inverse=True)
    values = np.full((len(distinct), len(RooflineColumns._fields)), np.nan)
    for i, code in enumerate(distinct.tolist()):
        if code < 0:
            continue
        gpu, at = divmod(code, len(sets.configs))
        config = sets.configs[at]
        graph = book.graph(config)
        if graph is not None and config.batch_size >= 1 and sets.gpus[gpu] in specs:
            values[i] = _roofline(graph, config.batch_size, sets.gpus[gpu], config.precision)
    grid[:] = values.T[:, inverse.reshape(sets.present.shape)]
    return RooflineColumns(*grid)


def graph_columns(sets: SetBatch) -> FloatArray:
    """The jobs' graphs as numbers ``(n_sets, MAX_JOBS, len(GRAPH_FEATURES))``; NaN where there is none."""
    table = np.full((len(sets.configs) + 1, len(GRAPH_FEATURES)), np.nan)  # the last row is for a place without a job
    for code, graph in graphs_of(sets):
        table[code] = _features(graph, sets.configs[code].batch_size)
    return cast(FloatArray, table[sets.config])


def graphs_of(sets: SetBatch) -> Iterator[tuple[int, ModelGraph]]:
    """Config code and graph of every config that occurs in the batch and has one."""
    book = book_of(sets)
    for code in np.unique(sets.config[sets.present]).tolist():
        config = sets.configs[code]
        graph = book.graph(config) if config.batch_size >= 1 else None
        if graph is not None:
            yield code, graph


def steps_per_epoch(sets: SetBatch) -> FloatArray:
    """Steps in one pass over the training data ``(n_sets, MAX_JOBS)``, not rounded; NaN where its size is unknown.

    The size is the caller's (``SetBatch.samples_per_epoch``), else that of the catalogue's reference job; without a
    stated dataset only where it is one and the same for the family.
    """
    book = book_of(sets)
    sizes = np.full(len(sets.configs) + 1, np.nan)
    for code, config in enumerate(sets.configs):
        size = None if config.family in book.registered else _epoch_samples(config.family, config.dataset)
        if size is not None:
            sizes[code] = size
    samples = np.where(np.isnan(sets.samples_per_epoch), sizes[sets.config], sets.samples_per_epoch)
    steps: FloatArray = samples / sets.samples_per_step
    return steps


@lru_cache(maxsize=4096)
def _roofline(graph: ModelGraph, batch_size: int, gpu: str, precision: Precision) -> tuple[float, ...]:
    spec: GpuSpec = gpu_specs()[gpu]
    parts = roofline_parts(graph, batch_size, spec, precision)
    costs = graph.at(batch_size)
    peak_mib = costs.peak_memory_bytes / 2**20
    return (parts.busy_s, parts.compute_s, parts.memory_s, float(parts.launches), costs.samples, peak_mib)


@lru_cache(maxsize=4096)
def _features(graph: ModelGraph, batch_size: int) -> FloatArray:
    return graph_features(graph, batch_size)
