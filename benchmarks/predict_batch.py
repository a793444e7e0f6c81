"""Batch prediction in process, over the bare booster's own predict call on the same feature rows.

Trains a predictor with the ``lightgbm`` model on the embedded (simulated) profiles and asks it about ``--sets``
different co-locations of two jobs as one batch: from columns to finished columns (``ratio_to_bare_model``; features,
model, intervals, power, memory, distance), and from domain objects to domain objects, as the service asks
(``ratio_objects_to_bare_model``). All in alternation and in the same process.

    python benchmarks/predict_batch.py

Prints one ``name=value`` line a figure (medians of CPU seconds); the last is ``ratio_to_bare_model``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from itertools import cycle
from typing import cast

import numpy as np

from eaco_datasets.sources import load_dataset
from eaco_datasets.types import CoLocation, Job, Precision
from eaco_features.matrix import feature_matrix
from eaco_features.sets import sets_from_colocations
from eaco_predictor.fitting import fit_predictor
from eaco_predictor.models.matrix_models import LightGBM
from eaco_predictor.predictor import Predictor
from eaco_predictor.solos import SoloKey


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()

    predictor = fit_predictor(load_dataset("embedded"), model=LightGBM.name)
    sets = _pairs(predictor, options.sets)
    model = predictor.parts.speed.model
    assert isinstance(model, LightGBM)
    batch = sets_from_colocations(sets)
    filled, _ = predictor.parts.solos.fill(batch)
    rows = feature_matrix(filled)

    work: dict[str, Callable[[], object]] = {
        "bare_model": lambda: model.booster.predict(rows, num_threads=1),
        "columns": lambda: predictor.predict_columns(batch),
        "objects": lambda: predictor.predict(sets),
    }
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(options.rounds):
        for name, call in work.items():
            seconds[name].append(_cpu_s(call))
    median_s = {name: statistics.median(measured) for name, measured in seconds.items()}
    print(f"sets={len(sets)}")
    for name, value in median_s.items():
        print(f"{name}_us_per_set={1e6 * value / len(sets):.2f}")
    print(f"ratio_objects_to_bare_model={median_s['objects'] / median_s['bare_model']:.2f}")
    print(f"ratio_to_bare_model={median_s['columns'] / median_s['bare_model']:.2f}")


def _pairs(predictor: Predictor, n_sets: int) -> list[CoLocation]:
    """``n_sets`` seeded pairs of configs whose solo profile is known, over all GPU types in turn."""
    random = np.random.default_rng(0)
    known: dict[str, list[SoloKey]] = {}
    for key in predictor.parts.solos.profiles:
        if key.dataset and key.num_gpus == 1:
            known.setdefault(key.gpu, []).append(key)
    sets = []
    for gpu, _ in zip(cycle(sorted(known)), range(n_sets), strict=False):
        jobs = (known[gpu][at] for at in random.integers(len(known[gpu]), size=2))
        sets.append(CoLocation(gpu, "time-slice", tuple(_job(key) for key in jobs)))
    return sets


def _job(key: SoloKey) -> Job:
    precision = cast(Precision, key.precision)
    return Job(key.family, key.family, key.batch_size, precision, dataset=key.dataset)


def _cpu_s(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    main()
