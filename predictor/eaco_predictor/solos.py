"""Known solo profiles: what fills in a job that comes without one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from eaco_features.sets import SOLO_FIELDS, BoolArray, ConfigKey, FloatArray, SetBatch

_UTIL, _POWER = SOLO_FIELDS.index("gpu_util_pct"), SOLO_FIELDS.index("gpu_power_w")
_Key = tuple[str, str, int, str, str]
"""GPU type, family, batch size, precision, dataset (``""`` stands for any)."""


@dataclass(frozen=True)
class SoloTable:
    """Median solo profile of each training config and GPU type, single-GPU runs only.

    ``profiles`` maps a key to ``(len(SOLO_FIELDS),)`` numbers, NaN where unknown. Each config stands once under its
    dataset and, where only one dataset was measured, once under ``""``.
    """

    profiles: Mapping[_Key, FloatArray]

    @classmethod
    def from_profiles(cls, profiles: pd.DataFrame) -> SoloTable:
        """Medians over the repeats of a profile table's solo rows."""
        solo = profiles[(profiles["role"] == "solo") & (profiles["outcome"] == "ok") & (profiles["num_gpus"] == 1)]
        solo = solo[solo["batch_size"].notna()]
        keys = ["gpu", "family", "batch_size", "precision"]
        columns = {name: solo[name].to_numpy(dtype=float, na_value=np.nan) for name in SOLO_FIELDS}
        frame = solo[keys].astype({"batch_size": "int64"}).assign(**columns)
        frame = frame.assign(dataset=solo["dataset"].astype(object).where(solo["dataset"].notna(), "").astype(str))
        medians = frame.groupby([*keys, "dataset"], sort=True)[list(SOLO_FIELDS)].median()
        table: dict[_Key, FloatArray] = {}
        ambiguous: set[_Key] = set()
        for key, row in zip(medians.index, medians.to_numpy(dtype=float), strict=True):
            exact: _Key = (str(key[0]), str(key[1]), int(key[2]), str(key[3]), str(key[4]))
            table[exact] = row
            anywhere: _Key = (*exact[:4], "")
            if exact[4]:
                ambiguous |= {anywhere} if anywhere in table else set()
                table.setdefault(anywhere, row)
        return cls({key: row for key, row in table.items() if key not in ambiguous})

    def get(self, gpu: str, config: ConfigKey) -> FloatArray | None:
        """The solo profile of a config on a GPU type, or None."""
        key: _Key = (gpu, config.family, config.batch_size, config.precision, config.dataset)
        return self.profiles.get(key)

    def fill(self, sets: SetBatch) -> tuple[SetBatch, BoolArray]:
        """Unknown solo fields taken from the table; also which jobs the table knows ``(n_sets, MAX_JOBS)``.

        What the caller gave stays; beside a utilisation of the caller's the table's power is not used, since the two
        would be of different runs. Looks up each distinct (GPU type, config) once.
        """
        n_configs = max(len(sets.configs), 1)
        codes = np.where(sets.present, sets.gpu[:, None] * n_configs + sets.config, -1)
        distinct, inverse = np.unique(codes, return_inverse=True)
        rows = np.full((len(distinct), len(SOLO_FIELDS)), np.nan)
        known = np.zeros(len(distinct), dtype=bool)
        for i, code in enumerate(distinct):
            if code >= 0:
                found = self.get(sets.gpus[code // n_configs], sets.configs[code % n_configs])
                if found is not None:
                    rows[i], known[i] = found, True
        inverse = inverse.reshape(codes.shape)
        filled = np.where(np.isnan(sets.solo), rows[inverse], sets.solo)
        own_util = ~np.isnan(sets.solo[:, :, _UTIL])
        filled[:, :, _POWER] = np.where(own_util, sets.solo[:, :, _POWER], filled[:, :, _POWER])
        return sets.with_solo(filled), known[inverse]
