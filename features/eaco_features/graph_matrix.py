"""Features of jobs from their model graphs, as one array beside ``eaco_features.matrix``."""

from __future__ import annotations

import numpy as np

from eaco_features.graphs.summary import GRAPH_FEATURES, LAUNCH_S
from eaco_features.job_graphs import graph_columns, roofline_columns
from eaco_features.matrix import gpu_columns
from eaco_features.schema import Feature
from eaco_features.sets import FloatArray, SetBatch, others_max, others_sum

HOST_S_PER_KERNEL = 10 * LAUNCH_S
"""Host time of one kernel of an eager Python training step: an order of magnitude, to scale features with (choice)."""

GRAPH_MATRIX: tuple[Feature, ...] = (
    Feature("own_log_busy_ms", "log of the roofline time of the job's kernels"),
    Feature("own_log_kernel_us", "log of the same over the kernels: time of one kernel"),
    Feature("own_log_launches", "log of the kernels of a step"),
    Feature("own_duty", "roofline time / (roofline time + kernels x host time): how busy the GPU could be"),
    Feature("own_compute_share", "FLOP time / (FLOP time + byte time)"),
    Feature("own_graph_mem_share", "the graph's peak memory / GPU memory"),
    Feature("own_log_samples", "log of the samples of a step"),
    Feature("own_small_kernel_share", "share of kernels that last no longer than their launch"),
    Feature("own_log_flop_per_byte", "log of the arithmetic intensity"),
    Feature("own_log_parameters_m", "log of the trained parameters in millions"),
    Feature("own_measured_kernel_us", "log of solo utilisation x solo step time / kernels"),
    Feature("others_duty_sum", "sum of the co-runners' duty", load=True),
    Feature("others_duty_max", "largest duty among the co-runners", load=True),
    Feature("others_byte_duty_sum", "sum of the co-runners' byte time / step time at the roofline", load=True),
    Feature("others_graph_mem_share_sum", "sum of the co-runners' graph memory / GPU memory", load=True),
    Feature("others_kernel_us_max", "log of the longest mean kernel among the co-runners"),
)
"""Columns of ``graph_matrix``, in order; NaN where a graph, or what it is set against, is unknown."""

_SMALL, _INTENSITY, _PARAMETERS = (
    GRAPH_FEATURES.index(name) for name in ("small_kernel_share", "flop_per_byte", "parameters_m")
)


def graph_matrix(sets: SetBatch) -> FloatArray:
    """One row a job, in the order of ``sets.rows``: ``(n_rows, len(GRAPH_MATRIX))``."""
    roofline, graph, present = roofline_columns(sets), graph_columns(sets), sets.present
    memory_mib = gpu_columns(sets)["memory_mib"][:, None]
    host_s = roofline.launches * HOST_S_PER_KERNEL
    kernel_s = roofline.busy_s / roofline.launches
    duty = roofline.busy_s / (roofline.busy_s + host_s)
    step_s = sets.solo_step_s()
    measured_kernel_s = sets.solo_of("gpu_util_pct") / 100.0 * step_s / roofline.launches
    with np.errstate(divide="ignore"):
        columns = (
            np.log(roofline.busy_s * 1e3),
            np.log(kernel_s * 1e6),
            np.log(roofline.launches),
            duty,
            roofline.compute_s / (roofline.compute_s + roofline.memory_s),
            roofline.memory_mib / memory_mib,
            np.log(roofline.samples),
            graph[:, :, _SMALL],
            np.log(graph[:, :, _INTENSITY]),
            np.log(graph[:, :, _PARAMETERS]),
            np.log(measured_kernel_s * 1e6),
            others_sum(duty, present),
            others_max(duty, present),
            others_sum(roofline.memory_s / (roofline.busy_s + host_s), present),
            others_sum(roofline.memory_mib / memory_mib, present),
            np.log(others_max(kernel_s * 1e6, present)),
        )
    at_set, at_job = sets.rows
    rows = np.stack([column[at_set, at_job] for column in columns], axis=1)
    return np.where(np.isfinite(rows), rows, np.nan)
