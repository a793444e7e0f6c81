"""What the graph neural network costs in use: encoding a new job, and many sets from kept embeddings.

    python benchmarks/gnn_latency.py

Floors: 10 ms to encode one new job (graph to embedding), 20 ms for 1,000 candidate sets, on 2 cores. The reference in
the same run is the bare head on ready tensors. Wall milliseconds, medians over rounds; ends with one ``name=value`` a
line.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from eaco_datasets.types import CoLocation, Job
from eaco_features.sets import SetBatch, sets_from_colocations
from eaco_features.zoo.catalogue import reference_jobs
from eaco_features.zoo.recorded import catalogue_graph
from eaco_predictor.gnn.encode import JobKey, _skeleton, encode
from eaco_predictor.gnn.model import Gnn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)  # as the model itself computes, so that the head is compared alike
    sets = _candidates(options.sets)
    model = Gnn().fit(sets, np.where(sets.present, 0.7, np.nan))

    encoding = [_encode_ms(model, job.name, options.rounds) for job in reference_jobs()]
    model.predict(sets)
    whole = _median_ms(lambda: model.predict(sets), options.rounds)
    embedded = model._embedded(sets)
    context = torch.from_numpy(model._context(sets))
    present = torch.from_numpy(sets.present.astype(np.float64))
    head = model._head.double()
    with torch.no_grad():
        bare = _median_ms(lambda: head(embedded, context, present), options.rounds)
    print(f"sets={len(sets)}")
    print(f"encode_ms_median={statistics.median(encoding):.2f}")
    print(f"encode_ms_largest={max(encoding):.2f}")
    print(f"sets_ms={whole:.2f}")
    print(f"bare_head_ms={bare:.2f}")
    print(f"ratio_to_bare_head={whole / bare:.2f}")


def _candidates(n_sets: int) -> SetBatch:
    """Seeded sets of one to four reference jobs."""
    random = np.random.default_rng(0)
    known = [
        Job(job.name, job.family, batch, dataset=job.dataset) for job in reference_jobs() for batch in job.batch_sizes
    ]
    return sets_from_colocations(
        [
            CoLocation("v100-sxm", "time-slice", tuple(known[at] for at in random.integers(len(known), size=1 + i % 4)))
            for i in range(n_sets)
        ]
    )


def _encode_ms(model: Gnn, name: str, rounds: int) -> float:
    """From a job's graph to its embedding, at a batch size never seen before; the graph itself is at hand."""
    graph = catalogue_graph(name)
    graph.content_hash  # noqa: B018, it belongs to reading the graph
    times = []
    for batch_size in range(1001, 1001 + rounds):
        _skeleton.cache_clear()
        start = time.perf_counter()
        model.embed({JobKey(graph.content_hash, batch_size, "fp32"): encode(graph, batch_size, "fp32")})
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def _median_ms(call: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


if __name__ == "__main__":
    main()
