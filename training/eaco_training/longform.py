"""Co-locations as a long table, one row a job: the typed input and output of the registered model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pandas as pd

from eaco_datasets.errors import DataError, InputError
from eaco_datasets.types import MAX_JOBS, PRECISIONS, SHARING_MODES, CoLocation, Job, SoloProfile
from eaco_features.sets import SOLO_FIELDS
from eaco_predictor.prediction import Estimate, SetPrediction

REQUIRED: dict[str, str] = {
    "set_id": "string",
    "gpu": "string",
    "sharing_mode": "string",
    "num_gpus": "long",
    "model": "string",
    "batch_size": "long",
    "precision": "string",
}
"""Column -> MLflow type. A set's rows share ``set_id``, ``gpu``, ``sharing_mode`` and ``num_gpus``."""

OPTIONAL: dict[str, str] = {
    "dataset": "string",
    "optimizer": "string",
    **{f"solo_{field}": "double" for field in SOLO_FIELDS},
}
"""What a job may carry besides; null is unknown."""

_QUANTITIES = ("relative_speed", "gpu_power_w", "gpu_util_pct", "mem_mib")
OUTPUT: dict[str, str] = {
    "set_id": "string",
    **{f"{name}{suffix}": "double" for name in _QUANTITIES for suffix in ("", "_lower", "_upper")},
    "oom_probability": "double",
    "out_of_distribution": "double",
    "abstained": "string",
    "predictor_version": "string",
}
"""One row for each input row, in its order; ``abstained`` is empty where a prediction was made."""

_OF_THE_SET = ("gpu", "sharing_mode", "num_gpus")


def example_frame() -> pd.DataFrame:
    """Two jobs that share a GPU, as the registered model takes them."""
    together = {"set_id": "a", "gpu": "v100-sxm", "sharing_mode": "time-slice", "num_gpus": 1}
    jobs = [
        {"model": "resnet50", "batch_size": 64, "precision": "amp", "solo_gpu_util_pct": 85.0},
        {"model": "mobilenetv2", "batch_size": 32, "precision": "fp32", "solo_gpu_util_pct": 40.0},
    ]
    return pd.DataFrame([{**together, **job} for job in jobs])


def sets_from_frame(frame: pd.DataFrame) -> tuple[list[CoLocation], list[tuple[int, int]]]:
    """The co-locations of a long table, and the (set, job) place of each of its rows.

    Raises:
        DataError: a column is missing, a set's rows disagree, a set has more than 4 jobs, or a value is wrong; the
            message names row and column.
        UnknownNameError: nobody knows the GPU.
    """
    for column in REQUIRED:
        if column not in frame.columns:
            raise DataError("column missing", where=f"column {column}", expected=", ".join(REQUIRED))
    order: dict[Any, int] = {}
    members: list[list[dict[str, Any]]] = []
    places = []
    for number, row in enumerate(frame.to_dict("records")):
        named: dict[str, Any] = {str(key): value for key, value in row.items()}
        at = order.setdefault(named["set_id"], len(order))
        if at == len(members):
            members.append([])
        _check(named, members[at], number)
        places.append((at, len(members[at])))
        members[at].append(named)
    return [_colocation(rows) for rows in members], places


def _check(row: dict[str, Any], earlier: Sequence[dict[str, Any]], number: int) -> None:
    for column in REQUIRED:
        if pd.isna(row[column]):
            raise DataError("null", where=f"row {number}:{column}", expected="a value")
    for column, choices in (("sharing_mode", SHARING_MODES), ("precision", PRECISIONS)):
        if row[column] not in choices:
            raise DataError(repr(row[column]), where=f"row {number}:{column}", expected=f"one of {', '.join(choices)}")
    for column in ("num_gpus", "batch_size"):
        if row[column] < 1 or row[column] != int(row[column]):
            raise DataError(str(row[column]), where=f"row {number}:{column}", expected="a whole number from 1")
    if len(earlier) == MAX_JOBS:
        raise DataError(f"job {MAX_JOBS + 1} of a set", where=f"row {number}:set_id", expected=f"1 to {MAX_JOBS} jobs")
    for column in _OF_THE_SET:
        if earlier and row[column] != earlier[0][column]:
            raise DataError(
                f"{row[column]!r} differs within the set",
                where=f"row {number}:{column}",
                expected=repr(earlier[0][column]),
            )


def _colocation(rows: Sequence[dict[str, Any]]) -> CoLocation:
    from eaco_datasets.gpus import gpu_slug

    first = rows[0]
    return CoLocation(
        gpu=gpu_slug(str(first["gpu"])),
        sharing_mode=first["sharing_mode"],
        jobs=tuple(_job(row) for row in rows),
        num_gpus=int(first["num_gpus"]),
    )


def _job(row: dict[str, Any]) -> Job:
    from eaco_datasets.names import family_of

    def known(column: str) -> Any:
        value = row.get(column)
        return None if pd.isna(cast(Any, value)) else value

    model, dataset, optimizer = str(row["model"]), known("dataset"), known("optimizer")
    return Job(
        model=model,
        family=family_of(model, dataset),
        batch_size=int(row["batch_size"]),
        precision=row["precision"],
        dataset=dataset,
        optimizer=optimizer,
        solo=SoloProfile(**{field: _number(known(f"solo_{field}"), field) for field in SOLO_FIELDS}),
    )


def _number(value: Any, field: str) -> float | None:
    if value is None:
        return None
    if not value > 0:
        raise InputError(str(value), where=f"solo_{field}", expected="a positive number or null")
    return float(value)


def frame_from_predictions(
    set_ids: Sequence[str], places: Sequence[tuple[int, int]], predictions: Sequence[SetPrediction]
) -> pd.DataFrame:
    """Predictions beside the rows they answer, columns as in ``OUTPUT``."""
    rows = [
        _answer(set_id, predictions[at_set], at_job) for set_id, (at_set, at_job) in zip(set_ids, places, strict=True)
    ]
    table = pd.DataFrame(rows, columns=list(OUTPUT))
    return table.astype({name: "float64" for name, kind in OUTPUT.items() if kind == "double"})


def _answer(set_id: str, prediction: SetPrediction, at_job: int) -> dict[str, Any]:
    answered = prediction.abstained is None
    return {
        "set_id": set_id,
        **_bounds("relative_speed", prediction.jobs[at_job].relative_speed if answered else None),
        **_bounds("gpu_power_w", prediction.gpu_power_w),
        **_bounds("gpu_util_pct", prediction.gpu_util_pct),
        **_bounds("mem_mib", prediction.mem_mib),
        "oom_probability": prediction.oom_probability,
        "out_of_distribution": prediction.out_of_distribution,
        "abstained": prediction.abstained or "",
        "predictor_version": prediction.predictor_version,
    }


def _bounds(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    if estimate is None:
        return {name: None, f"{name}_lower": None, f"{name}_upper": None}
    return {name: estimate.mean, f"{name}_lower": estimate.lower, f"{name}_upper": estimate.upper}
