"""Known solo profiles: what fills in a job that comes without one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd

from eaco_features.examples import best_provenance, solo_rows
from eaco_features.sets import SOLO_FIELDS, BoolArray, ConfigKey, FloatArray, SetBatch

_UTIL, _POWER, _EPOCH, _THROUGHPUT = (
    SOLO_FIELDS.index(name) for name in ("gpu_util_pct", "gpu_power_w", "epoch_s", "throughput_samples_s")
)


_Value = TypeVar("_Value")


class SoloKey(NamedTuple):
    """A config on some GPUs of one type; dataset ``""`` stands for any."""

    gpu: str
    num_gpus: int
    family: str
    batch_size: int
    precision: str
    dataset: str


@dataclass(frozen=True)
class SoloTable:
    """Median solo profile of each training config, GPU type and number of GPUs.

    ``profiles`` maps a key to ``(len(SOLO_FIELDS),)`` numbers, NaN where unknown; ``out_of_memory`` holds the keys that
    ran out of memory alone. Each config stands once under its dataset and, where only one dataset was measured, once
    under ``""``.
    """

    profiles: Mapping[SoloKey, FloatArray]
    out_of_memory: frozenset[SoloKey] = frozenset()

    @classmethod
    def from_profiles(cls, profiles: pd.DataFrame) -> SoloTable:
        """Medians over the repeats of a profile table's solo rows, at the GPU's default power limit.

        Where a config has rows of several provenances, measured and published ones stand before simulated ones.
        """
        solo = solo_rows(profiles)
        keys = list(SoloKey._fields)
        numbers = {name: solo[name].to_numpy(dtype=float, na_value=np.nan) for name in SOLO_FIELDS}
        frame = solo.assign(**numbers)
        ran = best_provenance(frame[frame["outcome"] == "ok"], keys)
        medians = ran.groupby(keys, sort=True)[list(SOLO_FIELDS)].median()
        table = dict(zip(map(_key, medians.index), medians.to_numpy(dtype=float), strict=True))
        failed = frame.loc[frame["outcome"] == "oom", keys].drop_duplicates()
        out_of_memory = {_key(row) for row in failed.itertuples(index=False, name=None)} - set(table)
        unfit = dict.fromkeys(sorted(out_of_memory))
        return cls({**_anywhere(table), **table}, frozenset({**_anywhere(unfit), **unfit}))

    def get(self, gpu: str, num_gpus: int, config: ConfigKey) -> FloatArray | None:
        """The solo profile of a config on some GPUs, or None."""
        return self.profiles.get(_key_of(gpu, num_gpus, config))

    def merged(self, other: SoloTable) -> SoloTable:
        """Both tables; where both know a job, the other one's word counts."""
        return SoloTable(
            {**self.profiles, **other.profiles}, (self.out_of_memory - set(other.profiles)) | other.out_of_memory
        )

    @cached_property
    def places(self) -> frozenset[tuple[str, int]]:
        """GPU types and numbers of GPUs on which some job was measured alone."""
        return frozenset((key.gpu, key.num_gpus) for key in self.profiles)

    def ran_out_of_memory(self, gpu: str, num_gpus: int, config: ConfigKey) -> bool:
        """Whether the config was tried alone on these GPUs and did not fit."""
        return _key_of(gpu, num_gpus, config) in self.out_of_memory

    def fill(self, sets: SetBatch) -> tuple[SetBatch, BoolArray]:
        """Unknown solo fields taken from the table; also which jobs the table knows ``(n_sets, MAX_JOBS)``.

        What the caller gave stays. Beside a utilisation of the caller's the table's power is not used, since the two
        would be of different runs; beside a throughput of the caller's the table's epoch time is scaled to it. Looks up
        each distinct (GPU type, number of GPUs, config) once.
        """
        n_configs = max(len(sets.configs), 1)
        counts, count = np.unique(sets.num_gpus, return_inverse=True)
        place = (sets.gpu * len(counts) + count) * n_configs
        codes = np.where(sets.present, place[:, None] + sets.config, -1)
        distinct, inverse = np.unique(codes, return_inverse=True)
        rows = np.full((len(distinct), len(SOLO_FIELDS)), np.nan)
        known = np.zeros(len(distinct), dtype=bool)
        for i, code in enumerate(distinct.tolist()):
            if code >= 0:
                where, config = divmod(code, n_configs)
                gpu, number = divmod(where, len(counts))
                found = self.get(sets.gpus[gpu], int(counts[number]), sets.configs[config])
                if found is not None:
                    rows[i], known[i] = found, True
        inverse = inverse.reshape(codes.shape)
        own, table = sets.solo, rows[inverse]
        filled = np.where(np.isnan(own), table, own)
        filled[:, :, _POWER] = np.where(np.isnan(own[:, :, _UTIL]), filled[:, :, _POWER], own[:, :, _POWER])
        rescaled = table[:, :, _EPOCH] * table[:, :, _THROUGHPUT] / own[:, :, _THROUGHPUT]
        unscaled = np.isnan(own[:, :, _THROUGHPUT]) | ~np.isnan(own[:, :, _EPOCH])
        filled[:, :, _EPOCH] = np.where(unscaled, filled[:, :, _EPOCH], rescaled)
        return sets.with_solo(filled), known[inverse]


def _key(values: tuple[object, ...]) -> SoloKey:
    gpu, num_gpus, family, batch_size, precision, dataset = (str(value) for value in values)
    return SoloKey(gpu, int(num_gpus), family, int(batch_size), precision, dataset)


def _key_of(gpu: str, num_gpus: int, config: ConfigKey) -> SoloKey:
    return SoloKey(gpu, num_gpus, config.family, config.batch_size, config.precision, config.dataset)


def _anywhere(table: Mapping[SoloKey, _Value]) -> dict[SoloKey, _Value]:
    """The same under dataset ``""``, for configs of which one dataset only is known."""
    found: dict[SoloKey, list[_Value]] = {}
    for key, value in table.items():
        found.setdefault(key._replace(dataset=""), []).append(value)
    return {key: values[0] for key, values in found.items() if len(values) == 1}
