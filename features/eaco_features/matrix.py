"""Features of N sets as one array, without a Python loop over rows."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from eaco_datasets.gpus import gpu_specs
from eaco_datasets.types import SHARING_MODES
from eaco_features.schema import FEATURE_NAMES
from eaco_features.sets import FloatArray, SetBatch, others_max, others_sum

_GPU_COLUMNS = ("memory_mib", "fp32_tflops", "bandwidth_gbs", "sms", "power_limit_w", "idle_w")
_MPS, _UNKNOWN_MODE = SHARING_MODES.index("mps"), SHARING_MODES.index("unknown")


@lru_cache(maxsize=256)
def _spec_table(gpus: tuple[str, ...]) -> FloatArray:
    specs = gpu_specs()
    rows = [[getattr(specs[slug], name) if slug in specs else np.nan for name in _GPU_COLUMNS] for slug in gpus]
    return np.array(rows, dtype=float).reshape(-1, len(_GPU_COLUMNS))


def gpu_columns(sets: SetBatch) -> dict[str, FloatArray]:
    """Data-sheet columns of each set's GPU ``(n_sets,)``; NaN for a device that the catalogue does not hold."""
    values = _spec_table(sets.gpus)[sets.gpu]
    return {column: values[:, i] for i, column in enumerate(_GPU_COLUMNS)}


def feature_matrix(sets: SetBatch) -> FloatArray:
    """One row a job, in the order of ``sets.rows``: ``(n_rows, len(FEATURES))``; unknown is NaN.

    Set features are sums and maxima over the co-runners, so the order of the jobs never matters.
    """
    gpu = gpu_columns(sets)
    present = sets.present
    util, mem_util = sets.solo_of("gpu_util_pct"), sets.solo_of("mem_util_pct")
    mem_share = sets.solo_of("mem_mib") / gpu["memory_mib"][:, None]
    step_ms = 1e3 * sets.solo_step_s()
    mode = np.where(sets.sharing_mode == _UNKNOWN_MODE, np.nan, sets.sharing_mode == _MPS)
    per_job = {
        "own_gpu_util_pct": util,
        "own_mem_util_pct": mem_util,
        "own_mem_share": mem_share,
        "own_step_ms": step_ms,
        "own_log2_batch_size": np.log2(sets.batch_size),
        "own_reduced_precision": (sets.precision > 0).astype(float),
        "others_gpu_util_pct_sum": others_sum(util, present),
        "others_gpu_util_pct_max": others_max(util, present),
        "others_mem_util_pct_sum": others_sum(mem_util, present),
        "others_mem_util_pct_max": others_max(mem_util, present),
        "others_mem_share_sum": others_sum(mem_share, present),
        "others_step_ms_max": others_max(step_ms, present),
    }
    per_set = {
        "n_others": sets.n_jobs - 1.0,
        "num_gpus": sets.num_gpus,
        "mps": mode,
        "gpu_memory_gib": gpu["memory_mib"] / 1024.0,
        "gpu_fp32_tflops": gpu["fp32_tflops"],
        "gpu_bandwidth_gbs": gpu["bandwidth_gbs"],
        "gpu_sms": gpu["sms"],
        "gpu_power_limit_w": np.where(np.isnan(sets.power_limit_w), gpu["power_limit_w"], sets.power_limit_w),
    }
    at_set, at_job = sets.rows
    out = np.empty((len(at_set), len(FEATURE_NAMES)))
    for i, name in enumerate(FEATURE_NAMES):
        out[:, i] = per_job[name][at_set, at_job] if name in per_job else per_set[name][at_set]
    return out
