"""Training examples out of a profile table: co-locations with what was measured of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from eaco_datasets.errors import DataError, UnknownNameError
from eaco_datasets.gpus import gpu_specs
from eaco_datasets.types import MAX_JOBS, PRECISIONS, SHARING_MODES
from eaco_features.sets import SOLO_FIELDS, BoolArray, ConfigKey, FloatArray, IntArray, SetBatch
from eaco_features.zoo.catalogue import epoch_samples

_ROLES = {
    "relative_speed": ("colocated",),
    "mem_mib": ("colocated",),
    "gpu_util_pct": ("colocated",),
    "mem_util_pct": ("colocated",),
    "gpu_power_w": ("solo",),
    "node_power_w": ("solo", "colocated"),
    "epoch_s": ("solo",),
}
TARGETS: tuple[str, ...] = tuple(_ROLES)
"""Columns of the profile table that can be learned. ``relative_speed`` and ``epoch_s`` are the job's own; the others
belong to the GPU or the node as a whole and are repeated on each job's row."""

_OF_A_JOB_ALONE = ("gpu_power_w", "epoch_s")
_ALSO_COLD = ("gpu_util_pct", "mem_util_pct", "mem_mib")
"""Measured of sets; when nothing but the graph is given, of jobs alone."""

_T = TypeVar("_T", bound=np.generic)
_CONFIG = ["family", "dataset", "batch_size", "precision", "optimizer"]


@dataclass(frozen=True)
class Examples:
    """Co-locations with the measured target of each job.

    ``target`` is ``(n_sets, MAX_JOBS)``, NaN where unknown, where the outcome was not ``ok`` or where there is no
    job. ``provenance`` is ``(n_sets, MAX_JOBS)`` of str, empty without a job. ``measurement_id`` and ``source`` are
    ``(n_sets,)``.
    """

    sets: SetBatch
    target: FloatArray
    provenance: NDArray[np.object_]
    measurement_id: NDArray[np.object_]
    source: NDArray[np.object_]

    def __len__(self) -> int:
        return len(self.sets)

    def take(self, index: IntArray | BoolArray) -> Examples:
        """The chosen sets, in the order of ``index``."""
        return Examples(
            self.sets.take(index),
            self.target[index],
            self.provenance[index],
            self.measurement_id[index],
            self.source[index],
        )


def examples_from_profiles(profiles: pd.DataFrame, target: str, *, cold: bool = False) -> Examples:
    """Join each job with its solo profile and line the target up.

    ``relative_speed``, ``mem_mib``, ``gpu_util_pct`` and ``mem_util_pct`` take the co-located measurements,
    ``gpu_power_w`` and ``epoch_s`` the solo ones, ``node_power_w`` both. For a target measured on solo rows no solo
    profile is joined: it would hold the answer. A solo profile is the median over the repeats of the same config, GPU
    type, GPU count and source. A row without an epoch time has that of its throughput and its data set's size in the
    catalogue of reference jobs; one with both says the size itself.

    ``cold`` asks what can be said of jobs whose graph alone is known: memory and utilisation are then those of the
    solo rows, without a solo profile. (The co-located rows of ``relative_speed`` stay as they are: who evaluates takes
    the held-out job's solo profile away.)

    Raises:
        UnknownNameError: ``target`` is none of ``TARGETS``.
        DataError: no row of the table has the target.
    """
    if target not in _ROLES:
        raise UnknownNameError("target", target, TARGETS)
    alone = target in _OF_A_JOB_ALONE or (cold and target in _ALSO_COLD)
    roles = ("solo",) if alone else _ROLES[target]
    rows = _plain_config(profiles[profiles["role"].isin(roles)].reset_index(drop=True))
    if target == "epoch_s":
        rows = rows.assign(epoch_s=_epoch_s(rows))
    if alone:
        rows = rows[rows[target].notna()].reset_index(drop=True)
    if not rows[target].notna().any():
        raise DataError(f"no {' or '.join(roles)} row has {target}", where="profiles", expected="some measured")
    at_set, ids = pd.factorize(rows["measurement_id"].astype(str))
    at = (np.asarray(at_set, dtype=np.int64), rows["job_index"].to_numpy(dtype=np.int64))
    first = np.unique(at[0], return_index=True)[1]
    solo = np.full((len(rows), len(SOLO_FIELDS)), np.nan)
    if not alone:
        solo = _solo_columns(rows, profiles)
    sets = _sets(rows, at, first, len(ids), solo)
    if target == "epoch_s":
        sizes = rows["epoch_s"] * rows["throughput_samples_s"]  # NaN: the catalogue's, else nobody knows the step
        sets = replace(
            sets, samples_per_epoch=_place(sizes.to_numpy(dtype=float, na_value=np.nan), at, len(ids), np.nan)
        )
    observed = rows[target].where(rows["outcome"] == "ok").to_numpy(dtype=float, na_value=np.nan)
    return Examples(
        sets=sets,
        target=_place(observed, at, len(ids), np.nan),
        provenance=_place(rows["provenance"].astype(object).to_numpy(), at, len(ids), ""),
        measurement_id=np.asarray(ids, dtype=object),
        source=rows["source"].astype(object).to_numpy()[first],
    )


def solo_sets(profiles: pd.DataFrame) -> SetBatch:
    """The jobs that ran alone at the GPU's default power limit, with their solo profiles; imputed rows left out."""
    rows = solo_rows(profiles)
    rows = rows[(rows["outcome"] == "ok") & (rows["provenance"] != "imputed")].reset_index(drop=True)
    alone = np.arange(len(rows), dtype=np.int64)
    solo = np.column_stack([rows[name].to_numpy(dtype=float, na_value=np.nan) for name in SOLO_FIELDS])
    return _sets(rows, (alone, np.zeros_like(alone)), alone, len(rows), solo)


def _plain_config(rows: pd.DataFrame) -> pd.DataFrame:
    """Config columns without nulls, so that they can be compared: unknown dataset or optimizer is ``""``."""
    plain: dict[str, Any] = {
        name: rows[name].astype(object).where(rows[name].notna(), "").astype(str) for name in _CONFIG
    }
    plain["batch_size"] = rows["batch_size"].astype("float64").fillna(0).astype("int64")
    return rows.assign(**plain)


def solo_rows(profiles: pd.DataFrame) -> pd.DataFrame:
    """Solo rows at the GPU's default power limit, whatever their outcome, with plain config columns."""
    solo = profiles[profiles["role"] == "solo"]
    default = solo["gpu"].map({slug: spec.power_limit_w for slug, spec in gpu_specs().items()}).astype(float)
    return _plain_config(solo[solo["power_limit_w"].isna() | default.isna() | (solo["power_limit_w"] >= default)])


def best_provenance(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Of each group of rows with the same keys, those of the best provenance: measured or published, then simulated."""
    rank = rows["provenance"].map({"measured": 0, "published": 0, "simulated": 1, "imputed": 2})
    best = rank.groupby([rows[key] for key in keys]).transform("min")
    return rows[rank == best]


def _epoch_s(rows: pd.DataFrame) -> pd.Series[float]:
    """Measured epoch times, and where there is none the data set's size over the throughput; NaN where unknown."""
    keys = list(zip(rows["family"], rows["dataset"], strict=True))
    size_of = {(family, dataset): epoch_samples(family, dataset or None) for family, dataset in dict.fromkeys(keys)}
    sizes = np.array([size_of[key] or np.nan for key in keys])
    measured = rows["epoch_s"].to_numpy(dtype=float, na_value=np.nan)
    derived = sizes / rows["throughput_samples_s"].to_numpy(dtype=float, na_value=np.nan)
    return pd.Series(np.where(np.isnan(measured), derived, measured), index=rows.index)


def _solo_columns(rows: pd.DataFrame, profiles: pd.DataFrame) -> FloatArray:
    """Solo profile of each row's config ``(n_rows, len(SOLO_FIELDS))``; NaN where none was measured."""
    key = ["source", "gpu", "num_gpus", *_CONFIG]
    solo = solo_rows(profiles)
    solo = solo[solo["outcome"] == "ok"]
    numbers = {name: solo[name].to_numpy(dtype=float, na_value=np.nan) for name in SOLO_FIELDS}
    medians = solo[key].assign(**numbers).groupby(key, sort=False)[list(SOLO_FIELDS)].median()
    joined = rows[key].merge(medians.reset_index(), on=key, how="left", validate="many_to_one")
    return joined[list(SOLO_FIELDS)].to_numpy(dtype=float)


def _place(values: NDArray[_T], at: tuple[IntArray, IntArray], n_sets: int, empty: object) -> NDArray[_T]:
    """Row values moved to their set and job place ``(n_sets, MAX_JOBS, ...)``."""
    out = np.full((n_sets, MAX_JOBS, *values.shape[1:]), empty, dtype=values.dtype)
    out[at] = values
    return out


def _sets(
    rows: pd.DataFrame, at: tuple[IntArray, IntArray], first: IntArray, n_sets: int, solo: FloatArray
) -> SetBatch:
    gpu, gpus = pd.factorize(rows["gpu"].astype(str))
    family, families = pd.factorize(rows["family"])
    config, configs = pd.factorize(pd.MultiIndex.from_frame(rows[_CONFIG]))
    precision = pd.Categorical(rows["precision"], categories=list(PRECISIONS)).codes.astype(np.int64)
    mode = pd.Categorical(rows["sharing_mode"].astype(str), categories=list(SHARING_MODES)).codes.astype(np.int64)
    batch_size = rows["batch_size"].to_numpy(dtype=float)
    placed_family = _place(np.asarray(family, dtype=np.int64), at, n_sets, -1)
    return SetBatch(
        gpu=np.asarray(gpu, dtype=np.int64)[first],
        sharing_mode=mode[first],
        num_gpus=rows["num_gpus"].to_numpy(dtype=float)[first],
        power_limit_w=rows["power_limit_w"].to_numpy(dtype=float, na_value=np.nan)[first],
        present=placed_family >= 0,
        family=placed_family,
        config=_place(np.asarray(config, dtype=np.int64), at, n_sets, -1),
        batch_size=_place(np.where(batch_size > 0, batch_size, np.nan), at, n_sets, np.nan),
        precision=_place(precision, at, n_sets, -1),
        solo=_place(solo, at, n_sets, np.nan),
        samples_per_epoch=np.full(placed_family.shape, np.nan),
        gpus=tuple(str(g) for g in gpus),
        families=tuple(str(f) for f in families),
        configs=tuple(ConfigKey(*key) for key in configs),
    )
