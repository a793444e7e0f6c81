"""What a profile run came to: rows, repeats, noise floor, rejected windows; and two plots."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from eaco_datasets.errors import EacoError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CONFIG = ["model", "dataset", "batch_size", "precision", "optimizer"]
_PLACE = ["gpu", "num_gpus", "sharing_mode"]
_MOST_LABELS = 40  # with more configs the matrix is of families


@dataclass(frozen=True)
class Floor:
    """How much repeats of the same measurement differ.

    ``n`` counts what was repeated; ``relative_difference`` is the median over these of the mean ``|a - b| / ((a + b) /
    2)`` of two repeats, a share of 1.
    """

    n: int
    relative_difference: float


@dataclass(frozen=True)
class Summary:
    """A profile run in figures.

    ``outcomes`` and ``provenance`` count measurements, ``sets`` those of each number of jobs (1 is solo).
    ``solo_floor`` is of throughput, ``shared_floor`` of relative speed; None without repeats. ``rejected`` counts
    windows that were thrown away, by reason.
    """

    n_rows: int
    n_families: int
    sets: Mapping[int, int]
    outcomes: Mapping[str, int]
    provenance: Mapping[str, int]
    n_throttled: int
    n_repeats: int
    solo_floor: Floor | None
    shared_floor: Floor | None
    rejected: Mapping[str, int] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """The summary as text, one fact a line."""
        return [
            f"{_counted(sum(self.sets.values()), 'measurement')}, {_counted(self.n_rows, 'row')}, "
            f"{_counted(self.n_families, 'model family', 'model families')} "
            f"({', '.join(f'{kind} {n}' for kind, n in self.provenance.items())})",
            "jobs at a time: " + (", ".join(f"{n} of {size}" for size, n in self.sets.items()) or "none"),
            "outcomes: " + (", ".join(f"{outcome} {n}" for outcome, n in self.outcomes.items()) or "none"),
            f"repeats: {self.n_repeats}",
            _floor_line("throughput alone", self.solo_floor),
            _floor_line("relative speed", self.shared_floor),
            f"throttled: {_counted(self.n_throttled, 'measurement')}",
            "rejected windows: " + ("; ".join(f"{n} x {why}" for why, n in self.rejected.items()) or "none"),
        ]


def summarise(profiles: pd.DataFrame, rejected: Iterable[str] = ()) -> Summary:
    """The figures of a profile table (``eaco_datasets.schema``, may be empty); ``rejected`` has a reason a window."""
    first = profiles.drop_duplicates("measurement_id") if len(profiles) else profiles
    sizes = profiles.groupby("measurement_id").size() if len(profiles) else pd.Series(dtype=int)
    ok = profiles[profiles["outcome"] == "ok"] if len(profiles) else profiles
    settings = Counter(_settings(profiles).values())
    throttled = first["throttled"].fillna(False).astype(bool) if "throttled" in first else pd.Series(dtype=bool)
    return Summary(
        n_rows=len(profiles),
        n_families=profiles["family"].nunique() if len(profiles) else 0,
        sets=_counts(sizes),
        outcomes=_counts(_worst_outcomes(profiles)),
        provenance=_counts(first["provenance"]) if len(first) else {},
        n_throttled=int(throttled.sum()),
        n_repeats=settings.total() - len(settings),
        solo_floor=_floor(ok, "solo", "throughput_samples_s"),
        shared_floor=_floor(ok, "colocated", "relative_speed"),
        rejected=dict(Counter(rejected).most_common()),
    )


def plots(profiles: pd.DataFrame) -> dict[str, str]:
    """SVG drawings by file name: ``relative-speed.svg``, ``power.svg``; those only for which there are rows."""
    import matplotlib as mpl

    drawn: dict[str, str] = {}
    with mpl.rc_context({"svg.hashsalt": "eaco", "svg.fonttype": "none", "font.size": 8}):
        for name, draw in (("relative-speed.svg", _speed_matrix), ("power.svg", _power_against_utilisation)):
            if (figure := draw(profiles)) is not None:
                written = io.StringIO()
                figure.savefig(written, format="svg", metadata={"Date": None})
                drawn[name] = written.getvalue()
    return drawn


def write_plots(profiles: pd.DataFrame, folder: Path) -> list[Path]:
    """The plots as files of a folder, which is made; each is written whole or not at all.

    Raises:
        EacoError: the folder cannot be written.
    """
    written = []
    for name, text in plots(profiles).items():
        path, part = folder / name, folder / f".{name}.part"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            part.write_text(text, encoding="utf-8")
            os.replace(part, path)
        except OSError as error:
            raise EacoError(f"{path}: cannot be written: {error.strerror or error}") from None
        written.append(path)
    return written


def _settings(profiles: pd.DataFrame) -> dict[str, tuple[Any, ...]]:
    """What each measurement measured, by its id: the place, and its jobs' configs in any order."""
    if not len(profiles):
        return {}
    rows = profiles[["measurement_id", *_PLACE, *_CONFIG]].astype(object)
    rows = rows.where(rows.notna(), "")
    found: dict[str, list[tuple[Any, ...]]] = {}
    for ident, *values in rows.itertuples(index=False, name=None):
        found.setdefault(ident, []).append(tuple(map(str, values)))
    return {ident: tuple(sorted(jobs)) for ident, jobs in found.items()}


def _floor(ok: pd.DataFrame, role: str, column: str) -> Floor | None:
    """Differences between repeats of the same job in the same setting; equal jobs of a set count as their mean."""
    rows = ok[(ok["role"] == role) & ok[column].notna()] if len(ok) else ok
    if not len(rows):
        return None
    setting_of = _settings(rows)
    config = rows[_CONFIG].astype(object).where(rows[_CONFIG].notna(), "").astype(str).agg("|".join, axis=1)
    keyed = pd.DataFrame(
        {
            "setting": [str(setting_of[ident]) for ident in rows["measurement_id"]],
            "config": config,
            "measurement_id": rows["measurement_id"],
            "value": rows[column].astype(float),
        }
    )
    means = keyed.groupby(["setting", "config", "measurement_id"])["value"].mean()
    differences = [
        np.mean([2 * abs(a - b) / (a + b) for a, b in combinations(values, 2)])
        for _, values in means.groupby(level=["setting", "config"])
        if len(values) > 1
    ]
    return Floor(len(differences), float(np.median(differences))) if differences else None


def _worst_outcomes(profiles: pd.DataFrame) -> pd.Series[Any]:
    """One outcome a measurement: out of memory before failed before ok."""
    if not len(profiles):
        return pd.Series(dtype=str)
    rank = profiles["outcome"].map({"ok": 0, "failed": 1, "oom": 2})
    return rank.groupby(profiles["measurement_id"]).max().map({0: "ok", 1: "failed", 2: "oom"})


def _counts(values: pd.Series[Any]) -> dict[Any, int]:
    return {key: int(n) for key, n in values.value_counts().sort_index().items()}


def _counted(n: int, one: str, many: str = "") -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"


def _floor_line(what: str, floor: Floor | None) -> str:
    if floor is None:
        return f"noise floor of {what}: unknown, nothing was repeated"
    return f"noise floor of {what}: {100 * floor.relative_difference:.2f} % (median of {floor.n} repeated)"


def _labels(profiles: pd.DataFrame) -> pd.Series[str]:
    names = profiles["model"] + ":" + profiles["batch_size"].astype(str) + ":" + profiles["precision"]
    return names if names.nunique() <= _MOST_LABELS else profiles["family"]


def _pairs(profiles: pd.DataFrame) -> Iterator[tuple[str, str, float]]:
    """Label of a job, that of its co-runner, and its relative speed, for each job of each pair."""
    pairs = profiles[profiles.groupby("measurement_id")["job_index"].transform("size") == 2]
    labelled = pairs.assign(label=_labels(pairs)).sort_values(["measurement_id", "job_index"])
    for _, both in labelled.groupby("measurement_id", sort=False):
        labels, speeds = both["label"].tolist(), both["relative_speed"].tolist()
        yield from zip(labels, reversed(labels), speeds, strict=True)


def _speed_matrix(profiles: pd.DataFrame) -> Figure | None:
    """Relative speed of the job of each row beside the co-runner of each column."""
    known = [pair for pair in _pairs(profiles) if not np.isnan(pair[2])] if len(profiles) else []
    if not known:
        return None
    from matplotlib.figure import Figure

    table = pd.DataFrame(known, columns=["job", "beside", "speed"]).pivot_table("speed", "job", "beside")
    side = 2.0 + 0.22 * max(table.shape)
    figure = Figure(figsize=(side + 1.2, side), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(table.to_numpy(), vmin=0.0, vmax=1.0, cmap="viridis", aspect="auto")
    axes.set_xticks(range(table.shape[1]), table.columns, rotation=90)
    axes.set_yticks(range(table.shape[0]), table.index)
    axes.set_xlabel("beside")
    axes.set_ylabel("job")
    figure.colorbar(image, label="relative speed")
    return figure


def _power_against_utilisation(profiles: pd.DataFrame) -> Figure | None:
    """GPU power over GPU utilisation, a point a measurement, by the number of jobs."""
    if not len(profiles):
        return None
    size = profiles.groupby("measurement_id")["job_index"].transform("size")
    points = profiles.assign(size=size).drop_duplicates("measurement_id")
    points = points[points["gpu_power_w"].notna() & points["gpu_util_pct"].notna()]
    if not len(points):
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.0, 3.6), layout="constrained")
    axes = figure.subplots()
    for n_jobs, group in points.groupby("size"):
        axes.plot(group["gpu_util_pct"], group["gpu_power_w"], "o", markersize=3, label=f"{n_jobs} at a time")
    if points["power_limit_w"].notna().any():
        axes.axhline(points["power_limit_w"].max(), color="grey", linestyle="--", label="power limit")
    axes.set_xlabel("GPU utilisation (%)")
    axes.set_ylabel("GPU power (W)")
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure
