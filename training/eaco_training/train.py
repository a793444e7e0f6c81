"""Train a predictor, evaluate it on work it has not seen, track the run, and register the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from eaco_datasets.errors import DataError
from eaco_training.report import headline, to_html, to_json
from eaco_training.study import Progress, no_progress
from eaco_training.tracking import RunRecord, code_version, library_versions, log_run, store_of

if TYPE_CHECKING:
    from eaco_predictor.predictor import Predictor

EVALUATED: tuple[str, ...] = ("relative_speed",)
"""Targets evaluated with a training: those whose model is the served one. The served power model's error on families
left out is part of the predictor (``PredictorInfo.held_out``)."""
FIGURES: tuple[str, ...] = ("mae", "mae_raw", "macro_mae", "mape_pct", "macro_mape_pct", "r2", "coverage_pct")


@dataclass(frozen=True)
class TrainResult:
    """A trained predictor, its run, its registered version (``None``: not registered) and reports by target."""

    predictor: Predictor
    run_id: str
    version: int | None = None
    alias: str | None = None
    reports: Mapping[str, dict[str, Any]] = field(default_factory=dict)


def train(
    profiles: pd.DataFrame,
    *,
    dataset: str,
    model: str | None = None,
    seed: int = 0,
    home: Path,
    tracking_uri: str | None = None,
    register_as: str | None = None,
    promote: bool = False,
    evaluate_under: str | None = "leave-one-model-out",
    progress: Progress = no_progress,
) -> TrainResult:
    """Fit on a profile table, evaluate under a protocol, track, and register if asked.

    The first version of a name becomes its champion; later ones do when ``promote`` is set, and are the
    ``challenger`` otherwise. ``evaluate_under`` ``None`` leaves the evaluation out.
    """
    from eaco_predictor.fitting import fit_predictor

    predictor = fit_predictor(profiles, model=model, seed=seed)
    reports = (
        evaluations(profiles, dataset=dataset, protocol=evaluate_under, model=model, seed=seed, progress=progress)
        if evaluate_under
        else {}
    )
    run_id = log_run(store_of(home, tracking_uri), _record(predictor, dataset, seed, reports))
    if register_as is None:
        return TrainResult(predictor, run_id, reports=reports)
    version, alias = _registered(
        predictor, run_id, home=home, tracking_uri=tracking_uri, name=register_as, promote=promote
    )
    return TrainResult(predictor, run_id, version, alias, reports)


def adapt(
    profiles: pd.DataFrame,
    *,
    dataset: str,
    base: str,
    gpu: str,
    samples: int,
    seed: int = 0,
    home: Path,
    tracking_uri: str | None = None,
    register_as: str | None = None,
    promote: bool = False,
) -> TrainResult:
    """The champion of a registered predictor with one more GPU type, learned from a few measurements on it; tracked.

    Raises:
        NotReadyError: nothing is registered under the name ``base``.
        InputError: it answers for that type already, or there are fewer measurements.
    """
    from eaco_predictor.fitting import adapt_predictor
    from eaco_training.registry import load_champion

    before = load_champion(home, tracking_uri, name=base)
    predictor = adapt_predictor(before, profiles, gpu, samples=samples, seed=seed)
    record = _record(predictor, dataset, seed, {})
    carried = {"adapted_from": before.info.version, "adapted_to": gpu, "samples": samples}
    run_id = log_run(store_of(home, tracking_uri), replace(record, params={**record.params, **carried}))
    if register_as is None:
        return TrainResult(predictor, run_id)
    version, alias = _registered(
        predictor, run_id, home=home, tracking_uri=tracking_uri, name=register_as, promote=promote
    )
    return TrainResult(predictor, run_id, version, alias)


def _registered(
    predictor: Predictor, run_id: str, *, home: Path, tracking_uri: str | None, name: str, promote: bool
) -> tuple[int, str]:
    from eaco_training.registry import CHAMPION, list_versions, register

    served = any(CHAMPION in v.aliases for v in list_versions(home, tracking_uri, name=name))
    alias = CHAMPION if promote or not served else "challenger"
    version = register(predictor, home=home, tracking_uri=tracking_uri, name=name, alias=alias, run_id=run_id)
    return version, alias


def evaluations(
    profiles: pd.DataFrame,
    *,
    dataset: str,
    protocol: str,
    model: str | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> dict[str, dict[str, Any]]:
    """A report for each of ``EVALUATED`` that the data have with two families; ``model`` is for relative speed."""
    from eaco_training.evaluate import evaluate

    return {
        target: evaluate(
            profiles,
            dataset=dataset,
            protocol=protocol,
            target=target,
            model=model if target == "relative_speed" else None,
            seed=seed,
            progress=progress,
        )
        for target in EVALUATED
        if families_with(profiles, target) > 1
    }


def families_with(profiles: pd.DataFrame, target: str) -> int:
    """How many families have this target."""
    from eaco_features.examples import examples_from_profiles

    try:
        examples = examples_from_profiles(profiles, target)
    except DataError:
        return 0
    return len(np.unique(examples.sets.family[np.isfinite(examples.target)]))


def _record(predictor: Predictor, dataset: str, seed: int, reports: Mapping[str, dict[str, Any]]) -> RunRecord:
    info = predictor.info
    libraries = {f"library/{name}": version for name, version in library_versions().items()}
    return RunRecord(
        name=f"{dataset}-{info.model}",
        params={
            "dataset": dataset,
            "model": info.model,
            "seed": seed,
            "rows": info.n_rows,
            "families": len(info.families),
            "gpus": ", ".join(info.gpus),
            "data_sha256": info.data_sha256,
            **libraries,
        },
        metrics=metrics_of(reports),
        tags={
            "predictor_version": info.version,
            "data_sha256": info.data_sha256,
            "code_version": code_version(),
            **{f"provenance/{kind}": f"{share:.6g}" for kind, share in info.provenance.items()},
        },
        files={
            **{f"evaluation/{target}.json": to_json([report]) for target, report in reports.items()},
            **({"evaluation/report.html": to_html(list(reports.values()))} if reports else {}),
        },
    )


def metrics_of(reports: Mapping[str, dict[str, Any]]) -> dict[str, float]:
    """A run's metrics: figures over all and ``target/held-out/FAMILY/...``; simulated ones say so in their name."""
    metrics: dict[str, float] = {}
    for target, report in reports.items():
        kind = report["protocol"] if report["overall"] else f"{report['protocol']}-simulated"
        metrics |= _named(f"{target}/{kind}", headline(report))
        metrics |= _named(f"{target}/in-sample", report["in_sample"])
        for group in report["groups"]:
            plain = group["provenance"] in ("measured", "published")
            name = group["held_out"] if plain else f"{group['held_out']}-{group['provenance']}"
            metrics |= _named(f"{target}/held-out/{name}", group)
    return metrics


def _named(prefix: str, figures: Mapping[str, Any]) -> dict[str, float]:
    return {f"{prefix}/{name}": figures[name] for name in FIGURES if figures.get(name) is not None}
