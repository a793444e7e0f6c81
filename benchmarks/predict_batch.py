"""Batch prediction in process: time from columns to finished columns, over the bare booster's own predict call.

Trains a predictor with the ``lightgbm`` model on the embedded (simulated) profiles, predicts ``--sets`` co-locations
of two jobs as one batch, and compares with the bare LightGBM booster on the feature rows of the same batch, in
alternation and in the same process.

    python benchmarks/predict_batch.py

Prints one ``name=value`` line a figure (medians of CPU seconds); the last is ``ratio_to_bare_model``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from eaco_datasets.sources import load_dataset
from eaco_features.examples import examples_from_profiles
from eaco_features.matrix import feature_matrix
from eaco_features.sets import SetBatch
from eaco_predictor.fitting import fit_predictor
from eaco_predictor.models.matrix_models import LightGBM


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()

    profiles = load_dataset("embedded")
    predictor = fit_predictor(profiles, model=LightGBM.name)
    batch = _pairs(examples_from_profiles(profiles, "relative_speed").sets, options.sets)
    model = predictor.parts.speed.model
    assert isinstance(model, LightGBM)
    rows = feature_matrix(batch)

    end_to_end, model_only = [], []
    for _ in range(options.rounds):
        end_to_end.append(_cpu_s(lambda: predictor.predict_columns(batch)))
        model_only.append(_cpu_s(lambda: model.booster.predict(rows, num_threads=1)))
    whole, alone = statistics.median(end_to_end), statistics.median(model_only)
    print(f"sets={len(batch)}")
    print(f"end_to_end_us_per_set={1e6 * whole / len(batch):.2f}")
    print(f"bare_model_us_per_set={1e6 * alone / len(batch):.2f}")
    print(f"ratio_to_bare_model={whole / alone:.2f}")


def _pairs(sets: SetBatch, n_sets: int) -> SetBatch:
    """``n_sets`` sets of two jobs, the training ones over and over."""
    pairs = np.flatnonzero(sets.n_jobs == 2)
    return sets.take(np.resize(pairs, n_sets))


def _cpu_s(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    main()
