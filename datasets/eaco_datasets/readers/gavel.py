"""Gavel (OSDI'20): steps/s of solo jobs and of co-located pairs on K80 and P100.

Source: https://github.com/stanford-futuredata/gavel, MIT. One step is one mini-batch. What its profiler did:

- a pair's entry is ``[0, 0]`` when a run ended without execution time, for whatever reason: outcome ``failed``;
- whether MPS was on is not recorded: sharing mode ``unknown``;
- steps/s of a job on several GPUs are summed over its workers, so samples/s = steps/s x batch size per GPU;
- a pair of the same job twice holds the mean of the two.

CycleGAN and A3C are named without a batch size: CycleGAN's script takes 1, A3C's 20 (frames between updates), when not
told otherwise. A3C's steps are one worker's of four, so its throughput in samples/s is left out.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from eaco_datasets.errors import DataError
from eaco_datasets.names import dataset_slug, family_of
from eaco_datasets.readers.files import source_file
from eaco_datasets.schema import validate_profiles

SOURCE = "gavel"
FILE = "gavel/throughputs.json"
GPUS = ("k80", "p100")
SOLO_KEY = "null"

DATASETS: dict[str, str] = {
    "A3C": "PongDeterministic-v4",
    "CycleGAN": "monet2photo",
    "LM": "Wikitext2",
    "Recommendation": "ML-20M",
    "ResNet-18": "CIFAR-10",
    "ResNet-50": "ImageNet",
    "Transformer": "Multi30k",
}
"""What each job trains on, from its command line in Gavel's job table."""

DEFAULT_BATCH_SIZES: dict[str, int] = {"A3C": 20, "CycleGAN": 1}
"""Defaults of the jobs' own scripts (``--num-steps``, ``--batch_size``), which Gavel's job table leaves as they are."""

NOT_IN_SAMPLES = ("A3C",)

_JOB_TYPE = re.compile(r"(?P<model>[^()]+?)(?: \(batch size (?P<batch_size>[1-9]\d*)\))?")
_JOB_SHAPE = "a key like ('ResNet-18 (batch size 64)', 1)"


@dataclass(frozen=True, slots=True)
class _JobType:
    """One key of the file: the job as it is named there, and the number of GPUs that it runs on."""

    key: str
    name: str
    model: str
    batch_size: int
    num_gpus: int

    def row(self, gpu: str) -> dict[str, Any]:
        dataset = DATASETS.get(self.model)
        return {
            "gpu": gpu,
            "num_gpus": self.num_gpus,
            "sharing_mode": "unknown",
            "model": self.model,
            "family": family_of(self.model, dataset),
            "dataset": None if dataset is None else dataset_slug(dataset),
            "batch_size": self.batch_size,
            "precision": "fp32",
            "provenance": "measured",
            "source": SOURCE,
        }

    def samples_s(self, steps_s: float) -> float | None:
        return None if self.model in NOT_IN_SAMPLES or steps_s <= 0 else steps_s * self.batch_size


def read(data_dir: Path | None, gpus: Sequence[str] = GPUS) -> pd.DataFrame:
    """Solo rows (on 1, 2, 4 and 8 GPUs) and pairs on one GPU, each pair once, of these GPU types.

    A pair's relative speed is its steps/s over the solo steps/s. Pairs on several GPUs are all ``[0, 0]``: never
    measured, so they are no rows; how many were left out is in ``frame.attrs["left_out"]``.

    Raises:
        InputError: the file is missing.
        DataError: the file is no such JSON.
    """
    path = source_file(data_dir, FILE)
    tables = _load(path)
    rows: list[dict[str, Any]] = []
    left_out = 0
    for gpu in gpus:
        if gpu not in tables:
            raise DataError(f"no throughputs of {gpu}", where=str(path), expected="the GPU types " + ", ".join(GPUS))
        jobs = {key: _job_type(key, f"{path}:/{gpu}") for key in tables[gpu]}
        rows += _solo_rows(gpu, tables[gpu], jobs, path)
        pairs, censored = _pair_rows(gpu, tables[gpu], jobs, path)
        rows += pairs
        left_out += censored
    frame = validate_profiles(pd.DataFrame(rows), where=str(path))
    frame.attrs["left_out"] = {"pairs on several GPUs that were never measured": left_out}
    return frame


def _load(path: Path) -> dict[str, dict[str, dict[str, Any]]]:
    shape = '{gpu: {"(\'MODEL (batch size B)\', GPUS)": {"null": steps/s, other: [a, b]}}}'
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 text (byte {error.start})", where=str(path), expected=shape) from None
    except json.JSONDecodeError as error:
        raise DataError(
            f"not JSON: {error.msg}", where=f"{path}:{error.lineno}:{error.colno}", expected=shape
        ) from None
    if not isinstance(loaded, dict):
        raise DataError(f"a {type(loaded).__name__} at the top", where=str(path), expected=shape)
    for gpu, table in loaded.items():
        if not isinstance(table, dict) or not all(isinstance(entry, dict) for entry in table.values()):
            raise DataError("not a table of jobs", where=f"{path}:/{gpu}", expected=shape)
    return loaded


def _job_type(key: str, where: str) -> _JobType:
    try:
        name, num_gpus = ast.literal_eval(key)
        matched = _JOB_TYPE.fullmatch(name)
    except (ValueError, SyntaxError, TypeError):
        raise DataError(f"{key!r} names no job", where=where, expected=_JOB_SHAPE) from None
    if matched is None or not isinstance(num_gpus, int) or num_gpus < 1:
        raise DataError(f"{key!r} names no job", where=where, expected=_JOB_SHAPE)
    model = matched["model"]
    batch_size = int(matched["batch_size"]) if matched["batch_size"] else DEFAULT_BATCH_SIZES.get(model)
    if batch_size is None:
        raise DataError(f"{key!r} has no batch size", where=where, expected=_JOB_SHAPE)
    return _JobType(key, name, model, batch_size, num_gpus)


def _solo_rows(
    gpu: str, table: dict[str, dict[str, Any]], jobs: dict[str, _JobType], path: Path
) -> list[dict[str, Any]]:
    rows = []
    for key, job in jobs.items():
        steps_s = _rate(table[key].get(SOLO_KEY), f"{path}:/{gpu}/{key}/{SOLO_KEY}")
        rows.append(
            job.row(gpu)
            | {
                "measurement_id": f"gavel-{gpu}-{job.num_gpus}x {job.name}",
                "job_index": 0,
                "role": "solo",
                "outcome": "ok" if steps_s > 0 else "failed",
                "throughput_samples_s": job.samples_s(steps_s),
                "relative_speed": None,
            }
        )
    return rows


def _pair_rows(
    gpu: str, table: dict[str, dict[str, Any]], jobs: dict[str, _JobType], path: Path
) -> tuple[list[dict[str, Any]], int]:
    """The rows of the pairs on one GPU, and how many pairs on several GPUs were left out as never measured."""
    rows: list[dict[str, Any]] = []
    left_out = 0
    done: set[frozenset[str]] = set()
    for key, others in table.items():
        for other in others:
            if other == SOLO_KEY or (both := frozenset((key, other))) in done:
                continue
            done.add(both)
            steps_s = _checked_rates(table, jobs, (key, other), f"{path}:/{gpu}/{key}/{other}")
            if jobs[key].num_gpus == 1:
                rows += _pair(gpu, table, (jobs[key], jobs[other]), steps_s)
            else:
                left_out += 1
    return rows, left_out


def _checked_rates(
    table: dict[str, dict[str, Any]], jobs: dict[str, _JobType], pair: tuple[str, str], where: str
) -> tuple[float, float]:
    """The steps/s of a pair, which must be consistent with the rest of the file."""
    key, other = pair
    if other not in jobs:
        raise DataError("the co-runner has no entry of its own", where=where, expected="a job of the same GPU type")
    if jobs[key].num_gpus != jobs[other].num_gpus:
        raise DataError("two jobs on different numbers of GPUs", where=where, expected="the same number")
    steps_s = _pair_rates(table[key][other], where)
    if table[other].get(key) != table[key][other][::-1]:
        raise DataError("not the mirror of the reverse entry", where=where, expected="[a, b] and [b, a]")
    if max(steps_s) > 0:
        if jobs[key].num_gpus > 1:
            raise DataError("a pair on several GPUs with a speed", where=where, expected="[0, 0]")
        if min(table[key][SOLO_KEY], table[other][SOLO_KEY]) <= 0:
            raise DataError("a pair with a speed, of a job without", where=where, expected="solo speeds above 0")
    return steps_s


def _pair(
    gpu: str, table: dict[str, dict[str, Any]], pair: tuple[_JobType, _JobType], steps_s: tuple[float, float]
) -> list[dict[str, Any]]:
    ran = min(steps_s) > 0
    name = " + ".join(job.name for job in pair)
    return [
        job.row(gpu)
        | {
            "measurement_id": f"gavel-{gpu}-{name}",
            "job_index": index,
            "role": "colocated",
            "outcome": "ok" if ran else "failed",
            "throughput_samples_s": job.samples_s(rate) if ran else None,
            "relative_speed": rate / table[job.key][SOLO_KEY] if ran else None,
        }
        for index, (job, rate) in enumerate(zip(pair, steps_s, strict=True))
    ]


def _rate(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise DataError(f"{value!r} is no speed", where=where, expected="steps/s, 0 or more")
    return float(value)


def _pair_rates(value: Any, where: str) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise DataError(f"{value!r} is no pair of speeds", where=where, expected="[a, b] in steps/s")
    first, second = (_rate(v, where) for v in value)
    if (first > 0) != (second > 0):
        raise DataError("one job of the pair has no speed", where=where, expected="both speeds, or [0, 0]")
    return first, second
