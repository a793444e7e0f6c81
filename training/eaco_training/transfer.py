"""What a few measurements on a new GPU type are worth: a model carried over, against one trained from scratch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from eaco_datasets.errors import DataError, InputError, UnknownNameError
from eaco_features.examples import Examples, examples_from_profiles
from eaco_features.sets import FloatArray, IntArray
from eaco_predictor.fitting import training_target
from eaco_predictor.pipeline import Bounds, TargetPipeline
from eaco_predictor.registry import default_model
from eaco_predictor.solo_fill import forget
from eaco_training.choices import ABLE
from eaco_training.study import Progress, no_progress

SCHEMA = 1
SAMPLES = (0, 5, 10, 20, 50)
N_DRAWS = 10
"""Seeded draws of the measured samples (choice: each one trains a model from scratch for every number of samples)."""


def transfer_curve(
    profiles: pd.DataFrame,
    *,
    dataset: str,
    target: str,
    gpu: str,
    model: str | None = None,
    samples: Sequence[int] = SAMPLES,
    n_draws: int = N_DRAWS,
    seed: int = 0,
    cold: bool = False,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Leave one GPU type out, give K measurements on it: error of the adapted model and of one trained on them alone.

    Samples are nested in K; every K is scored on the same rows, those that the largest K leaves. Families occur on
    both types: what is new is the GPU. With ``cold`` no solo profile of any job on the new GPU is known: neither of
    the measured sets nor of the tested ones.

    Raises:
        UnknownNameError: no row of that GPU type, or no such model.
        InputError: nothing to train on without it, no row left to test, or none that the model answers.
    """
    if not samples or min(samples) < 0:
        raise InputError(f"{list(samples)} samples", where="--samples", expected="0 or more")
    examples = examples_from_profiles(profiles, target, cold=cold)
    learned = training_target(examples)
    with_target = np.isfinite(learned).any(axis=1)
    if gpu not in examples.sets.gpus:
        raise UnknownNameError("GPU type with this target", gpu, examples.sets.gpus, where="--gpu")
    on_it = examples.sets.gpu == examples.sets.gpus.index(gpu)
    source, new = np.flatnonzero(with_target & ~on_it), np.flatnonzero(with_target & on_it)
    if not len(source):
        raise InputError(f"every row is of {gpu}", where="dataset", expected="rows of another GPU type to carry over")
    if len(new) <= max(samples):
        raise InputError(
            f"{max(samples)} samples of {len(new)} measurements on {gpu}",
            where="--samples",
            expected=f"below {len(new)}",
        )
    name = model or default_model(target, cold=cold)
    sets = forget(examples.sets, on_it[:, None] & examples.sets.present) if cold else examples.sets

    def pipeline(intervals: bool) -> TargetPipeline:
        return TargetPipeline(target, name, seed=seed, cold=cold, intervals=intervals)

    progress(f"{gpu}: fit {name} without it", 0, n_draws)
    carried = pipeline(True).fit(sets.take(source), learned[source])
    adapted: dict[int, list[dict[str, float]]] = {k: [] for k in samples}
    scratch: dict[int, list[dict[str, float]]] = {k: [] for k in samples if k > 0}
    for draw in range(n_draws):
        progress(f"{gpu}: samples", draw, n_draws)
        order = np.random.default_rng([seed, draw]).permutation(new)
        test = np.sort(order[max(samples) :])
        for k in samples:
            chosen = np.sort(order[:k])
            fitted = carried.adapt(gpu, sets.take(chosen), learned[chosen])
            figures = _figures(fitted.predict(sets.take(test)), examples, learned, test, carried)
            if figures is None:
                raise InputError(f"{name} answers no tested row on {gpu}", where="--model", expected=ABLE)
            adapted[k].append(figures)
            if k > 0:
                try:
                    alone = pipeline(False).fit(sets.take(chosen), learned[chosen])
                except DataError:  # nothing that the model reads is known of so few
                    continue
                figures = _figures(alone.predict(sets.take(test)), examples, learned, test, carried)
                scratch[k] += [] if figures is None else [figures]
    points = [
        {"samples": k, "adapted": _mean(adapted[k]), "scratch": _mean(scratch.get(k, []), without=("coverage_pct",))}
        for k in samples
    ]
    return {
        "schema": SCHEMA,
        "dataset": dataset,
        "protocol": "leave-one-gpu-out",
        "target": target,
        "model": name,
        "cold": cold,
        "gpu": gpu,
        "trained_on": sorted({examples.sets.gpus[code] for code in examples.sets.gpu[source]}),
        "seed": seed,
        "n_draws": n_draws,
        "rows_tested": len(new) - max(samples),
        "points": points,
    }


def plot(curves: Sequence[dict[str, Any]]) -> str:
    """The curves as an SVG drawing: error over samples, adapted and from scratch."""
    import io

    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "eaco", "font.size": 9}):
        figure = Figure(figsize=(4.2 * len(curves), 3.2), layout="constrained")
        for curve, axes in zip(curves, np.atleast_1d(figure.subplots(1, len(curves))), strict=True):
            metric = "mape_pct" if curve["target"] == "epoch_s" else "mae"
            for kind, style in (("adapted", "o-"), ("scratch", "s--")):
                drawn = [(p["samples"], p[kind][metric]) for p in curve["points"] if p[kind]]
                if drawn:  # without a measurement there is nothing to train from scratch on
                    axes.plot(*zip(*drawn, strict=True), style, label=kind)
            axes.set_title(f"{curve['target']}: {', '.join(curve['trained_on'])} to {curve['gpu']}")
            axes.set_xlabel(f"measurements on {curve['gpu']}")
            axes.set_ylabel("MAPE %" if metric == "mape_pct" else "MAE")
            axes.set_ylim(bottom=0)
            axes.legend()
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None})
    return written.getvalue()


def _figures(
    bounds: Bounds, examples: Examples, learned: FloatArray, test: IntArray, pipeline: TargetPipeline
) -> dict[str, float] | None:
    known = np.isfinite(learned[test]) & np.isfinite(bounds.mean)
    if not known.any():
        return None
    observed = pipeline.spec.clipped(learned[test])[known]
    error = np.abs(bounds.mean[known] - observed)
    inside = (bounds.lower[known] <= observed) & (observed <= bounds.upper[known])
    family = examples.sets.family[test][known]
    macro = float(np.mean([error[family == code].mean() for code in np.unique(family)]))
    return {
        "mae": float(error.mean()),
        "macro_mae": macro,
        "mape_pct": float(100.0 * (error / observed).mean()),
        "coverage_pct": float(100.0 * inside.mean()),
    }


def _mean(draws: Sequence[dict[str, float]], without: Sequence[str] = ()) -> dict[str, float] | None:
    if not draws:
        return None
    return {name: round(float(np.mean([draw[name] for draw in draws])), 6) for name in draws[0] if name not in without}
