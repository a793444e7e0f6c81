"""Train every part of a predictor on one profile table."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pandas as pd

from eaco_datasets.errors import DataError, InputError
from eaco_datasets.schema import profiles_sha256
from eaco_datasets.types import SHARING_MODES
from eaco_features.examples import Examples, examples_from_profiles, solo_sets
from eaco_features.schema import FEATURE_SCHEMA_VERSION
from eaco_features.sets import FloatArray
from eaco_predictor.distance import TrainingJobs
from eaco_predictor.pipeline import TargetPipeline
from eaco_predictor.predictor import COLD, Parts, Predictor, PredictorInfo
from eaco_predictor.registry import default_model
from eaco_predictor.set_power import SetPower, provenance_shares
from eaco_predictor.solo_fill import SoloFill
from eaco_predictor.solos import SoloTable

LIBRARIES = ("eaco", "numpy", "scipy", "scikit-learn", "lightgbm", "pandas")
"""Whose versions are recorded with a predictor: a pickle is only sure to load under the same ones."""


NETWORK_LIBRARIES = ("torch", "torch-geometric")
"""Those of a predictor with the graph neural network too."""

UNTRAINED: tuple[str, ...] = ("imputed",)
"""Provenances that never train a model: nobody measured them."""


def training_target(examples: Examples) -> FloatArray:
    """The targets that may be learned, ``(n_sets, MAX_JOBS)``: imputed rows are NaN."""
    return np.where(np.isin(examples.provenance, UNTRAINED), np.nan, examples.target)


def fit_predictor(profiles: pd.DataFrame, *, model: str | None = None, seed: int = 0) -> Predictor:
    """Train every part on a profile table (``eaco_datasets.schema``).

    ``model`` names the relative-speed model (default: the best out of sample).

    Raises:
        DataError: the table holds no co-located measurement with a relative speed.
        UnknownNameError: no such model.
    """
    speeds = examples_from_profiles(profiles, "relative_speed")
    target = training_target(speeds)
    name = model or default_model("relative_speed")
    speed = TargetPipeline("relative_speed", name, seed=seed).fit(speeds.sets, target)
    learned = np.isfinite(target)
    kept = speeds.take(np.nonzero(learned.any(axis=1))[0])
    at_set, at_job = np.nonzero(learned)
    gpu = [speeds.sets.gpus[code] for code in speeds.sets.gpu[at_set]]
    kinds = [str(kind) for kind in speeds.provenance[at_set, at_job]]
    parts = Parts(
        speed=speed,
        cold_speed=TargetPipeline("relative_speed", name, seed=seed, cold=True).fit(speeds.sets, target),
        cold={target: found for target in COLD if (found := _cold(profiles, target, seed)) is not None},
        fill=SoloFill().fit(solo_sets(profiles)),
        util=_set_pipeline(profiles, "gpu_util_pct", seed),
        memory=_set_pipeline(profiles, "mem_mib", seed),
        power=SetPower.from_profiles(profiles),
        solos=SoloTable.from_profiles(profiles),
        jobs=TrainingJobs.from_sets(kept.sets),
        modes=_modes(kept),
        speed_provenance=provenance_shares(gpu, kinds),
    )
    sha256 = profiles_sha256(profiles)
    counts = Counter(kinds)
    packages = (*LIBRARIES, *NETWORK_LIBRARIES) if name.startswith("gnn") else LIBRARIES
    libraries = {package: version(package) for package in packages}
    recipe = f"{sha256} {name} {seed} {FEATURE_SCHEMA_VERSION} {sorted(libraries.items())}"
    info = PredictorInfo(
        version=f"{name}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}",
        model=name,
        datasets=tuple(sorted({str(source) for source in kept.source})),
        data_sha256=sha256,
        n_rows=len(kinds),
        families=tuple(sorted({speeds.sets.families[c] for c in speeds.sets.family[learned]})),
        gpus=tuple(sorted(set(gpu))),
        provenance={kind: n / counts.total() for kind, n in sorted(counts.items())},
        seed=seed,
        libraries=libraries,
        notes=_notes(counts),
        held_out=_held_out(parts),
    )
    return Predictor(info, parts)


def adapt_predictor(
    predictor: Predictor, profiles: pd.DataFrame, gpu: str, *, samples: int, seed: int = 0
) -> Predictor:
    """The predictor with one more GPU type, learned from ``samples`` co-located measurements on it, drawn at random.

    The solo rows of the drawn jobs' configs on that type come with them. The fitted models stay as they are; what is
    learned is a head on their errors (``TargetPipeline.adapt``), how far kernels stay behind the type's data sheet, and
    its solo profiles. Power on the new type stays that of its data sheet where no row has one.

    Raises:
        InputError: the predictor answers for that type already, or there are fewer measurements on it.
    """
    if gpu in predictor.info.gpus:
        raise InputError(
            f"{predictor.info.version} answers for {gpu} already", where="--gpu", expected="a new GPU type"
        )
    drawn = _drawn(profiles[profiles["gpu"] == gpu], gpu, samples, seed)
    speeds = examples_from_profiles(drawn, "relative_speed")
    target, parts = training_target(speeds), predictor.parts
    solo = solo_sets(drawn)
    kinds = [str(kind) for kind in speeds.provenance[np.isfinite(target)]]
    adapted = replace(
        parts,
        speed=parts.speed.adapt(gpu, speeds.sets, target),
        cold_speed=parts.cold_speed.adapt(gpu, speeds.sets, target),
        cold={name: _adapted(pipeline, drawn, gpu) for name, pipeline in parts.cold.items()},
        fill=parts.fill.with_gpu(gpu, solo),
        solos=parts.solos.merged(SoloTable.from_profiles(drawn)),
        modes={**parts.modes, **_modes(speeds)},
        speed_provenance={**parts.speed_provenance, **provenance_shares([gpu] * len(kinds), kinds)},
    )
    info, sha256 = predictor.info, profiles_sha256(drawn)
    recipe = f"{info.version} {gpu} {samples} {seed} {sha256}"
    return Predictor(
        replace(
            info,
            version=f"{info.model}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}",
            datasets=tuple(sorted({*info.datasets, *map(str, speeds.source)})),
            n_rows=info.n_rows + len(kinds),
            gpus=tuple(sorted({*info.gpus, gpu})),
            notes=(*info.notes, f"{gpu} was learned from {samples} co-located measurements on it, from {info.version}"),
        ),
        adapted,
    )


def _drawn(rows: pd.DataFrame, gpu: str, samples: int, seed: int) -> pd.DataFrame:
    """``samples`` measurements with a relative speed, and the solo rows of their jobs' configs."""
    shared = rows[(rows["role"] == "colocated") & rows["relative_speed"].notna() & ~rows["provenance"].isin(UNTRAINED)]
    ids = np.sort(shared["measurement_id"].unique().astype(str))
    if not 1 <= samples <= len(ids):
        raise InputError(
            f"{samples} samples of {len(ids)} co-located measurements on {gpu}", where="--samples", expected="1 or more"
        )
    chosen = np.random.default_rng(seed).permutation(ids)[:samples]
    sets = rows[rows["measurement_id"].astype(str).isin(chosen)]
    config = ["family", "dataset", "batch_size", "precision", "optimizer", "num_gpus"]
    wanted = set(sets[config].astype(str).itertuples(index=False, name=None))
    solo = rows[rows["role"] == "solo"]
    keys = solo[config].astype(str).itertuples(index=False, name=None)
    return pd.concat([sets, solo[[key in wanted for key in keys]]], ignore_index=True)


def _adapted(pipeline: TargetPipeline, profiles: pd.DataFrame, gpu: str) -> TargetPipeline:
    """A cold pipeline that also learned of a few solo rows on a GPU type; itself where none states its target."""
    try:
        examples = examples_from_profiles(profiles, pipeline.spec.name, cold=True)
    except DataError:
        return pipeline
    return pipeline.adapt(gpu, examples.sets, training_target(examples))


def _set_pipeline(profiles: pd.DataFrame, target: str, seed: int) -> TargetPipeline | None:
    """The default model of a set's quantity; None where no row states both it and the solo profile it follows from.

    Without measured sets it is fitted on the solo rows, for which its formula is an identity.
    """
    if not profiles.loc[profiles["outcome"] == "ok", target].notna().any():
        return None
    pipeline = TargetPipeline(target, seed=seed)
    try:
        examples = examples_from_profiles(profiles, target)
    except DataError:
        solo = profiles[(profiles["role"] == "solo") & (profiles["outcome"] == "ok")]
        examples = examples_from_profiles(pd.concat([solo, solo.assign(role="colocated")]), target)
    try:
        return pipeline.fit(examples.sets, training_target(examples))
    except DataError:
        return None


def _cold(profiles: pd.DataFrame, target: str, seed: int) -> TargetPipeline | None:
    """A solo quantity from graphs; None where no solo row states it."""
    pipeline = TargetPipeline(target, default_model(target, cold=True), seed=seed, cold=True)
    try:
        examples = examples_from_profiles(profiles, target, cold=True)
        return pipeline.fit(examples.sets, training_target(examples))
    except DataError:
        return None


def _modes(examples: Examples) -> dict[str, frozenset[str]]:
    """Sharing modes seen on each GPU type."""
    sets = examples.sets
    pairs = {(sets.gpus[gpu], SHARING_MODES[mode]) for gpu, mode in zip(sets.gpu, sets.sharing_mode, strict=True)}
    return {slug: frozenset(mode for other, mode in pairs if other == slug) for slug, _ in pairs}


def _held_out(parts: Parts) -> dict[str, float]:
    """Errors on families left out, of what is served."""
    found: dict[str, float] = {}
    if parts.speed.errors is not None:
        errors = parts.speed.errors
        found["relative_speed_out_of_family_macro_mae"] = errors.out_of_family
        found["relative_speed_in_sample_macro_mae"] = errors.in_sample
        found["n_families"] = float(errors.n_families)
    if parts.power.held_out_mape_pct is not None:
        found["gpu_power_out_of_family_macro_mape_pct"] = parts.power.held_out_mape_pct
    return found


def _notes(kinds: Counter[str]) -> tuple[str, ...]:
    share = kinds["simulated"] / kinds.total()
    if not share:
        return ()
    return (
        f"{share:.0%} of the training rows are SIMULATED: no GPU ran them; train on measured profiles to rely on it",
    )
