"""SIMULATED profiles: a seeded generator of solo and co-located measurements that nobody took.

It exists so that everything runs before measured data is at hand. Every row says ``provenance = simulated`` and
``source = simulated``; whatever is trained on it must say so. Contention, memory and power come from
``physics.contend``, ``physics.set_memory_mib`` and ``physics.saturating_power_w``, none of which a learned model or
baseline uses: the simulated truth never shares its formula with a prediction.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from eaco_datasets.errors import InputError
from eaco_datasets.gpus import gpu, gpu_specs
from eaco_datasets.physics import BoolArray, FloatArray, contend, out_of_memory, saturating_power_w, set_memory_mib
from eaco_datasets.schema import validate_profiles
from eaco_datasets.simulated_jobs import (
    DEFAULT_PARAMETERS,
    MPS_SINCE_YEAR,
    IntArray,
    SimulatedJobs,
    SimulatedSets,
    SimulationParameters,
    simulate_sets,
    simulated_families,
    simulated_jobs,
)
from eaco_datasets.types import MAX_JOBS, MAX_RELATIVE_SPEED, GpuSpec, Role

SOURCE = "simulated"
DEFAULT_SETS_PER_GPU = 250
DEFAULT_NOISE = 0.015
HIGHEST_NOISE = 0.2
_NOISE_CUT = 3.0  # standard deviations


def simulate_profiles(
    *,
    seed: int = 0,
    gpus: Sequence[str] | None = None,
    n_sets_per_gpu: int = DEFAULT_SETS_PER_GPU,
    noise: float = DEFAULT_NOISE,
    parameters: SimulationParameters = DEFAULT_PARAMETERS,
) -> pd.DataFrame:
    """SIMULATED solo and co-located profiles in the profile table's form (``schema.COLUMNS``); nothing was measured.

    Every job config appears alone on every GPU type, out-of-memory outcomes included; sets of 2 to 4 jobs are drawn
    from the configs that fit alone. A GPU's rows depend on the seed and that GPU only, and the same call gives the
    same bytes.

    Args:
        gpus: slugs or aliases; all of the catalogue when ``None``.
        n_sets_per_gpu: how many different sets are drawn a GPU type; some are measured more than once.
        noise: relative standard deviation of a measured throughput, utilisation or power (normal, cut at three).

    Raises:
        InputError: ``seed`` or ``n_sets_per_gpu`` below 0, ``noise`` outside 0..0.2, a GPU named twice or none.
        UnknownNameError: a GPU that the catalogue does not have.
    """
    _check(seed, n_sets_per_gpu, noise)
    parts = [
        _profiles_of_gpu(spec, _generator(seed, spec), n_sets_per_gpu, noise, parameters) for spec in _chosen(gpus)
    ]
    return validate_profiles(pd.concat(parts, ignore_index=True), where=SOURCE)


def describe_simulation(parameters: SimulationParameters = DEFAULT_PARAMETERS) -> dict[str, Any]:
    """Everything a report must print about simulated profiles: formulas, parameters, families; all JSON types."""
    return {
        "provenance": "simulated",
        "note": "These profiles are simulated: an analytic model with the parameters below, not a measurement.",
        "contention": " ".join((contend.__doc__ or "").split()),
        "power": " ".join((saturating_power_w.__doc__ or "").split()),
        "memory": " ".join((set_memory_mib.__doc__ or "").split()),
        "default_noise": DEFAULT_NOISE,
        "default_sets_per_gpu": DEFAULT_SETS_PER_GPU,
        "gpus": list(gpu_specs()),
        "parameters": asdict(parameters),
        "families": [asdict(family) for family in simulated_families()],
    }


def _check(seed: int, n_sets_per_gpu: int, noise: float) -> None:
    if seed < 0:
        raise InputError(f"seed {seed}", where="seed", expected="0 or more")
    if n_sets_per_gpu < 0:
        raise InputError(f"{n_sets_per_gpu} sets a GPU", where="n_sets_per_gpu", expected="0 or more")
    if not 0.0 <= noise <= HIGHEST_NOISE:
        raise InputError(f"noise {noise:g}", where="noise", expected=f"0 to {HIGHEST_NOISE:g}")


def _chosen(gpus: Sequence[str] | None) -> list[GpuSpec]:
    if gpus is None:
        return list(gpu_specs().values())
    specs = [gpu(name) for name in gpus]
    if not specs or len({spec.slug for spec in specs}) < len(specs):
        raise InputError("no GPU, or one named twice", where="gpus", expected="different GPU types")
    return specs


def _generator(seed: int, spec: GpuSpec) -> np.random.Generator:
    """A stream of its own for each GPU type, whatever other types are asked for."""
    return np.random.default_rng([seed, zlib.crc32(spec.slug.encode("ascii"))])


def _profiles_of_gpu(
    spec: GpuSpec, rng: np.random.Generator, n_sets: int, noise: float, parameters: SimulationParameters
) -> pd.DataFrame:
    jobs = simulated_jobs(spec, parameters)
    n_configs, repeats = len(jobs), parameters.solo_repeats
    alone = np.full((n_configs, MAX_JOBS), -1, dtype=np.int64)
    alone[:, 0] = np.arange(n_configs)
    solo_errors = _errors(rng, (n_configs * repeats, MAX_JOBS), noise)
    measured_solo = solo_errors[:, 0].reshape(n_configs, repeats).mean(axis=1)
    common: dict[str, Any] = {"spec": spec, "jobs": jobs, "rng": rng, "noise": noise, "parameters": parameters}
    solo = _table(
        role="solo",
        sets=SimulatedSets(alone, np.zeros(n_configs, dtype=bool)),
        times=np.full(n_configs, repeats, dtype=np.int64),
        errors=solo_errors,
        against=measured_solo,
        **common,
    )
    times = np.where(np.arange(n_sets) < round(parameters.repeated_share * n_sets), parameters.repeats, 1)
    shared = _table(
        role="colocated",
        sets=_draw_sets(rng, jobs, spec, n_sets, parameters),
        times=times,
        errors=_errors(rng, (int(times.sum()), MAX_JOBS), noise),
        against=measured_solo,
        **common,
    )
    return pd.concat([solo, shared], ignore_index=True)


def _errors(rng: np.random.Generator, shape: tuple[int, ...], noise: float) -> FloatArray:
    """Factors around 1 with the given relative standard deviation, cut at three of them."""
    cut = np.clip(rng.standard_normal(shape), -_NOISE_CUT, _NOISE_CUT)
    return np.asarray(1.0 + noise * cut, dtype=float)


def _draw_sets(
    rng: np.random.Generator, jobs: SimulatedJobs, spec: GpuSpec, n_sets: int, parameters: SimulationParameters
) -> SimulatedSets:
    """Sets of 2 to 4 jobs: each a family by equal chance, then one of its configs that fits the GPU alone."""
    fits = ~out_of_memory(jobs.memory_mib, spec.memory_mib)
    slugs = [family.slug for family in jobs.family]
    by_family = [np.flatnonzero(fits & np.array([s == slug for s in slugs])) for slug in dict.fromkeys(slugs)]
    by_family = [configs for configs in by_family if len(configs)]
    counts = np.array([len(configs) for configs in by_family])
    starts = np.cumsum(counts) - counts
    which = rng.integers(len(by_family), size=(n_sets, MAX_JOBS))
    within = (rng.random((n_sets, MAX_JOBS)) * counts[which]).astype(np.int64)
    config = np.concatenate(by_family)[starts[which] + within]
    sizes = rng.choice(np.arange(2, MAX_JOBS + 1), size=n_sets, p=parameters.set_sizes)
    mps = (rng.random(n_sets) < parameters.mps_share) & (spec.year >= MPS_SINCE_YEAR)
    return SimulatedSets(np.where(np.arange(MAX_JOBS) < sizes[:, None], config, -1), mps)


def _table(
    *,
    role: Role,
    spec: GpuSpec,
    jobs: SimulatedJobs,
    sets: SimulatedSets,
    times: IntArray,
    errors: FloatArray,
    against: FloatArray,
    rng: np.random.Generator,
    noise: float,
    parameters: SimulationParameters,
) -> pd.DataFrame:
    """The rows of all measurements of the sets: set ``i`` is measured ``times[i]`` times.

    ``errors`` ``(times.sum(), MAX_JOBS)`` multiplies each job's true speed, ``against`` ``(n_configs,)`` the true solo
    speed: a relative speed is taken against what the solo measurements said, their own error included.
    """
    truth = simulate_sets(spec, jobs, sets, parameters)
    which = np.repeat(np.arange(len(times)), times)
    repeat = np.arange(len(which)) - np.repeat(np.cumsum(times) - times, times)
    util_error, mem_error, power_error = _errors(rng, (3, len(which)), noise)
    measured_power_w = np.clip(truth.gpu_power_w[which] * power_error, spec.idle_w, spec.power_limit_w)

    row, place = np.nonzero(sets.config[which] >= 0)
    config = sets.config[which][row, place]
    ok = ~truth.oom[which][row]
    alone = (against * jobs.batch_size / jobs.step_s)[config]
    throughput = truth.relative_speed[which][row, place] * errors[row, place] * (jobs.batch_size / jobs.step_s)[config]
    if role == "colocated":
        throughput = np.minimum(throughput, MAX_RELATIVE_SPEED * alone)
    columns = _config_columns(jobs, config)
    columns |= {
        "measurement_id": [f"{SOURCE}-{spec.slug}-{role}-{which[r]:04d}-{repeat[r]}" for r in row],
        "job_index": place,
        "gpu": spec.slug,
        "num_gpus": 1,
        "sharing_mode": np.where(sets.mps[which][row], "mps", "time-slice"),
        "role": role,
        "outcome": np.where(ok, "ok", "oom"),
        "provenance": "simulated",
        "source": SOURCE,
        "repeat": repeat[row],
        "duration_s": _where(ok, np.full(len(row), parameters.duration_s), 1),
        "throughput_samples_s": _where(ok, throughput, 4),
        "epoch_s": _where(ok, columns.pop("samples_per_epoch") / throughput, 4),
        "relative_speed": _where(ok, np.ones(len(row)) if role == "solo" else throughput / alone, 5),
        "gpu_util_pct": _where(ok, np.clip(truth.gpu_util_pct[which] * util_error, 0.0, 100.0)[row], 3),
        "mem_util_pct": _where(ok, np.clip(truth.mem_util_pct[which] * mem_error, 0.0, 100.0)[row], 3),
        "mem_mib": _where(ok, truth.mem_mib[which][row], 1),
        "gpu_power_w": _where(ok, measured_power_w[row], 3),
        "power_limit_w": spec.power_limit_w,
    }
    return pd.DataFrame(columns)


def _config_columns(jobs: SimulatedJobs, config: IntArray) -> dict[str, Any]:
    def of_family(name: str) -> Any:
        return np.array([getattr(family, name) for family in jobs.family])[config]

    return {
        "model": of_family("slug"),
        "family": of_family("slug"),
        "dataset": of_family("dataset"),
        "optimizer": of_family("optimizer"),
        "samples_per_epoch": of_family("samples_per_epoch"),
        "batch_size": jobs.batch_size[config],
        "precision": np.array(jobs.precision)[config],
    }


def _where(ok: BoolArray, values: FloatArray, decimals: int) -> FloatArray:
    """The values where the measurement succeeded, else NaN; rounded, so that the last bits of no machine show."""
    return np.where(ok, np.round(values, decimals), np.nan)
