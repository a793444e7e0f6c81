"""The versioned list of features: what a model's columns are, in order.

A change of name, meaning, unit or order raises ``FEATURE_SCHEMA_VERSION``; a model remembers the version it was
trained with and refuses another.
"""

from __future__ import annotations

from dataclasses import dataclass

FEATURE_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Feature:
    """One column. ``load`` marks load on the co-runners: more of it never speeds a job up (monotone constraint)."""

    name: str
    what: str
    load: bool = False


FEATURES: tuple[Feature, ...] = (
    Feature("own_gpu_util_pct", "solo GPU utilisation of the job"),
    Feature("own_mem_util_pct", "solo memory-bandwidth utilisation of the job"),
    Feature("own_mem_share", "solo peak memory of the job / GPU memory"),
    Feature("own_step_ms", "solo time of one training step (batch size per GPU x GPUs / throughput)"),
    Feature("own_log2_batch_size", "log2 of the job's batch size per GPU"),
    Feature("own_reduced_precision", "1 for amp or bf16, 0 for fp32"),
    Feature("others_gpu_util_pct_sum", "sum of the co-runners' solo GPU utilisation", load=True),
    Feature("others_gpu_util_pct_max", "largest of the co-runners' solo GPU utilisation", load=True),
    Feature("others_mem_util_pct_sum", "sum of the co-runners' solo memory-bandwidth utilisation", load=True),
    Feature("others_mem_util_pct_max", "largest of the co-runners' solo memory-bandwidth utilisation", load=True),
    Feature("others_mem_share_sum", "sum of the co-runners' peak memory / GPU memory", load=True),
    Feature("others_step_ms_max", "longest solo step time among the co-runners"),
    Feature("n_others", "number of co-runners", load=True),
    Feature("num_gpus", "GPUs of the set"),
    Feature("mps", "1 under MPS, 0 under time slicing or MIG, NaN when the mode is unknown"),
    Feature("gpu_memory_gib", "memory of the GPU"),
    Feature("gpu_fp32_tflops", "peak fp32 rate of the GPU"),
    Feature("gpu_bandwidth_gbs", "memory bandwidth of the GPU"),
    Feature("gpu_sms", "streaming multiprocessors of the GPU"),
    Feature("gpu_power_limit_w", "power limit of the GPU"),
)

FEATURE_NAMES: tuple[str, ...] = tuple(f.name for f in FEATURES)
