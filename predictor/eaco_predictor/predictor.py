"""The served predictor: every fitted part behind one call."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, cast

import joblib
import numpy as np

from eaco_datasets.errors import DataError
from eaco_datasets.physics import DRIVER_RESERVE_MIB
from eaco_datasets.types import SHARING_MODES, CoLocation
from eaco_features.job_graphs import GraphBook
from eaco_features.matrix import gpu_columns
from eaco_features.schema import FEATURE_SCHEMA_VERSION
from eaco_features.sets import BoolArray, FloatArray, IntArray, SetBatch, sets_from_colocations
from eaco_predictor.answers import answer
from eaco_predictor.distance import TrainingJobs, out_of_distribution
from eaco_predictor.intervals import miss_probability
from eaco_predictor.pipeline import Bounds, TargetPipeline
from eaco_predictor.prediction import SetPrediction
from eaco_predictor.set_power import SetBounds, SetPower
from eaco_predictor.solo_fill import SoloFill, with_epoch_times
from eaco_predictor.solos import SoloTable

_MODEL_FILE, _MANIFEST_FILE = "predictor.joblib", "manifest.json"

PARTS_VERSION = 2
"""Raised whenever ``Parts``, or what is inside it, changes so that a file of before would not answer as trained."""


COLD: tuple[str, ...] = ("epoch_s", "mem_mib", "gpu_util_pct")
"""What is predicted of a job alone when only its graph is known, each with its doubt."""


@dataclass(frozen=True)
class PredictorInfo:
    """Where a predictor comes from. ``version`` is a content hash; ``provenance`` shares of the training rows.

    ``held_out`` holds the errors of what is served, on families left out inside the fit: relative speed (beside the
    in-sample error, ``eaco_predictor.pipeline.HeldOutErrors``) and GPU power at the measured utilisation.
    """

    version: str
    model: str
    datasets: tuple[str, ...]
    data_sha256: str
    n_rows: int
    families: tuple[str, ...]
    gpus: tuple[str, ...]
    provenance: dict[str, float]
    seed: int
    libraries: dict[str, str]
    notes: tuple[str, ...] = ()
    held_out: dict[str, float] = field(default_factory=dict)


class Columns(NamedTuple):
    """Predictions of ``n_sets`` co-locations as columns.

    ``relative_speed`` is ``(n_sets, MAX_JOBS)``, the rest ``(n_sets,)``; NaN is unknown. ``nearest`` holds, for each
    job in the order of ``sets.rows``, codes into the training families. ``out_of_distribution`` is the set's worst
    job's. ``solo_known`` ``(n_sets, MAX_JOBS)`` says whose config was measured alone on this GPU type, ``cold`` whose
    solo profile was predicted from a graph.
    """

    sets: SetBatch
    relative_speed: Bounds
    pace: Bounds
    gpu_util_pct: SetBounds
    mem_mib: SetBounds
    gpu_power_w: SetBounds
    oom_probability: FloatArray
    out_of_distribution: FloatArray
    nearest: IntArray
    solo_known: BoolArray
    cold: BoolArray


@dataclass(frozen=True)
class Parts:
    """The fitted parts; ``util`` and ``memory`` are None where the table stated neither.

    ``modes`` are the sharing modes of the training sets, for each GPU type.
    ``speed_provenance`` holds the shares of the training rows' provenance for each GPU type.
    ``fill`` and ``cold_speed`` answer for jobs of which only the model graph is known: their solo profile and their
    relative speed. ``cold`` holds, by target, what knows the doubt about such a profile's epoch time, memory and
    utilisation; a target that no solo row states is missing.
    """

    speed: TargetPipeline
    cold_speed: TargetPipeline
    cold: Mapping[str, TargetPipeline]
    fill: SoloFill
    util: TargetPipeline | None
    memory: TargetPipeline | None
    power: SetPower
    solos: SoloTable
    jobs: TrainingJobs
    modes: Mapping[str, frozenset[str]]
    speed_provenance: Mapping[str, Mapping[str, float]]


class Predictor:
    """Relative speed, power, utilisation and memory of co-locations.

    Honours ``eaco_predictor.prediction.PredictsSets``. Made by ``eaco_predictor.fitting.fit_predictor``.
    """

    def __init__(self, info: PredictorInfo, parts: Parts) -> None:
        self.info, self.parts = info, parts

    def predict(self, sets: Sequence[CoLocation], graphs: GraphBook | None = None) -> list[SetPrediction]:
        """One prediction a set, in order. A set that cannot be predicted is answered with ``abstained``.

        ``graphs`` is where the jobs' model graphs are looked up; the catalogue of reference jobs when None.
        """
        if not sets:
            return []
        batch = sets_from_colocations(sets, graphs)
        columns = self.predict_columns(batch)
        reasons: list[str | None] = [None] * len(sets)
        for i in np.flatnonzero(self._doubtful(columns)).tolist():
            reasons[i] = self._reason(columns, i)
        shares = {slug: self.provenance_of(slug) for slug in batch.gpus}
        families = self.parts.jobs.families
        return answer(sets, columns, reasons=reasons, provenance=shares, families=families, version=self.info.version)

    def predict_columns(self, sets: SetBatch) -> Columns:
        """The same as columns: one array a quantity, no loop over sets."""
        parts = self.parts
        known, solo_known = parts.solos.fill(sets)
        known = with_epoch_times(known)
        filled, cold = self._filled_from_graphs(known, solo_known)
        doubted = {name: cold & np.isnan(known.solo_of(name)) for name in COLD}
        speed = parts.speed.predict(filled)
        pace = speed
        if cold.any():
            some = np.flatnonzero(cold.any(axis=1))
            speed = Bounds(*(column.copy() for column in speed))
            for column, found in zip(speed, parts.cold_speed.predict(filled.take(some)), strict=True):
                column[some] = found
            shortest, longest = self._doubt("epoch_s", filled, doubted)
            pace = Bounds(speed.mean, speed.lower / longest, speed.upper / shortest)
        util = self._of_set("gpu_util_pct", parts.util, filled, doubted)
        memory = self._of_set("mem_mib", parts.memory, filled, doubted)
        least, usual, most = (parts.power.predict(filled, of_util) for of_util in (util.lower, util.mean, util.upper))
        of_cold = cold.any(axis=1)
        power = SetBounds(
            usual.mean,
            np.where(of_cold, least.lower, usual.lower),
            np.where(of_cold, most.upper, usual.upper),
        )
        distance, nearest = parts.jobs.distances(filled)
        worst = np.zeros(len(sets))
        np.maximum.at(worst, filled.rows[0], distance)
        capacity = gpu_columns(sets)["memory_mib"] - DRIVER_RESERVE_MIB
        return Columns(
            sets=filled,
            relative_speed=speed,
            pace=pace,
            gpu_util_pct=util,
            mem_mib=memory,
            gpu_power_w=power,
            oom_probability=1.0 - miss_probability(capacity, *memory),
            out_of_distribution=out_of_distribution(worst),
            nearest=nearest,
            solo_known=solo_known,
            cold=cold,
        )

    def _filled_from_graphs(self, sets: SetBatch, solo_known: BoolArray) -> tuple[SetBatch, BoolArray]:
        """Solo profiles of jobs that were never measured and state no utilisation, predicted where they have a graph.

        Only where some job was measured alone on as many GPUs of the type, and not where this one ran out of memory.
        Also which jobs these are ``(n_sets, MAX_JOBS)``.
        """
        unknown = sets.present & ~solo_known & np.isnan(sets.solo_of("gpu_util_pct"))
        able = np.zeros(sets.present.shape, dtype=bool)
        for i, j in zip(*np.nonzero(unknown), strict=True):
            place = (sets.gpus[sets.gpu[i]], int(sets.num_gpus[i]))
            measured = place in self.parts.solos.places
            out_of_memory = self.parts.solos.ran_out_of_memory(*place, sets.configs[sets.config[i, j]])
            able[i, j] = measured and not out_of_memory
        if not able.any():
            return sets, able
        filled = self.parts.fill.fill(sets, able)
        return filled, able & ~np.isnan(filled.solo_of("gpu_util_pct"))

    def _doubt(self, target: str, sets: SetBatch, doubted: Mapping[str, BoolArray]) -> tuple[FloatArray, FloatArray]:
        """Bounds of a predicted job's true solo quantity over the predicted one ``(n_sets, MAX_JOBS)``.

        1 for jobs whose quantity is stated or measured, NaN where nobody knows the doubt. Both this doubt and that
        about the set are taken at their worst at once.
        """
        here = doubted[target]
        least, most = np.where(here, np.nan, 1.0), np.where(here, np.nan, 1.0)
        some = np.flatnonzero(here.any(axis=1))
        if target in self.parts.cold and len(some):
            chosen = sets.take(some)
            one_step = replace(chosen, samples_per_epoch=chosen.samples_per_step)
            mean, lower, upper = self.parts.cold[target].predict(one_step)
            with np.errstate(divide="ignore", invalid="ignore"):
                ratios = [np.where(mean > 0, bound / mean, np.nan) for bound in (lower, upper)]
            least[some], most[some] = (np.where(here[some], ratio, 1.0) for ratio in ratios)
        return least, most

    def _of_set(
        self, target: str, pipeline: TargetPipeline | None, sets: SetBatch, doubted: Mapping[str, BoolArray]
    ) -> SetBounds:
        """A quantity that all jobs of a set share, once a set; NaN when nobody learned it or its doubt."""
        if pipeline is None:
            return SetBounds(*np.full((3, len(sets)), np.nan))
        at = (np.arange(len(sets)), sets.present.argmax(axis=1))
        mean, lower, upper = pipeline.predict(sets)
        least, most = self._doubt(target, sets, doubted)
        low, high = lower[at] * least.min(axis=1), upper[at] * most.max(axis=1)
        limited = pipeline.spec.limit(sets, np.broadcast_to(high[:, None], sets.present.shape))
        return SetBounds(np.where(np.isnan(low), np.nan, mean[at]), low, limited[at])

    def provenance_of(self, gpu: str) -> dict[str, float]:
        """Shares of the provenance of what answers for a GPU type: relative speed and power count alike.

        Power without a learned row comes from the GPU's own data sheet and counts as ``imputed``.
        """
        halves = (self.parts.speed_provenance.get(gpu, {}), self.parts.power.provenance.get(gpu, {"imputed": 1.0}))
        kinds = sorted({kind for half in halves for kind in half})
        return {kind: sum(half.get(kind, 0.0) for half in halves) / len(halves) for kind in kinds}

    def _doubtful(self, columns: Columns) -> BoolArray:
        """Sets that cannot be predicted ``(n_sets,)``: no rows of the GPU type, none of the mode, or an unknown job."""
        sets = columns.sets
        allowed = np.array([[self._allows(slug, mode) for mode in SHARING_MODES] for slug in sets.gpus])
        learned = np.array([slug in self.parts.modes for slug in sets.gpus])[sets.gpu]
        mode_known = allowed[sets.gpu, sets.sharing_mode] | (sets.n_jobs == 1)
        doubtful: BoolArray = ~(learned & mode_known) | self._unknown_jobs(columns).any(axis=1)
        return doubtful

    def _allows(self, gpu: str, mode: str) -> bool:
        """Whether training rows of the GPU type answer for a sharing mode; rows of an unknown mode do for all."""
        modes = self.parts.modes.get(gpu, frozenset())
        return mode in modes or "unknown" in modes | {mode}

    def _unknown_jobs(self, columns: Columns) -> BoolArray:
        """Jobs of which nothing is known, no graph either ``(n_sets, MAX_JOBS)``."""
        sets = columns.sets
        return sets.present & ~columns.solo_known & np.isnan(sets.solo_of("gpu_util_pct"))

    def _reason(self, columns: Columns, i: int) -> str:
        """Why a doubtful set cannot be predicted."""
        sets = columns.sets
        gpu = sets.gpus[sets.gpu[i]]
        modes = self.parts.modes.get(gpu)
        if modes is None:
            return f"no training rows of GPU type {gpu}; there are rows of {', '.join(sorted(self.parts.modes))}"
        mode = SHARING_MODES[sets.sharing_mode[i]]
        if sets.n_jobs[i] > 1 and not self._allows(gpu, mode):
            return f"no training rows of {gpu} under {mode}; there are rows under {', '.join(sorted(modes))}"
        key = sets.configs[sets.config[i, int(np.argmax(self._unknown_jobs(columns)[i]))]]
        number = int(sets.num_gpus[i])
        where = gpu if number == 1 else f"{number} x {gpu}"
        job = f"job {key.family} (batch size {key.batch_size}, {key.precision})"
        if self.parts.solos.ran_out_of_memory(gpu, number, key):
            return f"{job} ran out of memory alone on {where}"
        return f"{job} has no solo gpu_util_pct, its config was never measured on {where}, and its graph cannot tell"

    def save(self, folder: Path) -> None:
        """Write the predictor into a folder: the fitted parts and a manifest with their SHA-256."""
        folder.mkdir(parents=True, exist_ok=True)
        joblib.dump(self.parts, folder / _MODEL_FILE, compress=3)
        manifest = {
            "feature_schema_version": FEATURE_SCHEMA_VERSION,
            "parts_version": PARTS_VERSION,
            "sha256": _sha256(folder / _MODEL_FILE),
            "info": asdict(self.info),
        }
        (folder / _MANIFEST_FILE).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Predictor:
        """Read what ``save`` wrote. The file is a pickle: load only what you trust.

        Raises:
            DataError: no predictor there, another feature schema, or a file that does not match its SHA-256.
        """
        try:
            manifest: dict[str, Any] = json.loads((folder / _MANIFEST_FILE).read_text(encoding="utf-8"))
            info = {name: manifest["info"][name] for name in PredictorInfo.__dataclass_fields__}
            info |= {name: tuple(info[name]) for name in ("datasets", "families", "gpus", "notes")}
            if manifest["feature_schema_version"] != FEATURE_SCHEMA_VERSION:
                raise DataError(
                    f"feature schema {manifest['feature_schema_version']}",
                    where=str(folder),
                    expected=f"schema {FEATURE_SCHEMA_VERSION}; train it again",
                )
            if manifest.get("parts_version") != PARTS_VERSION:
                raise DataError(
                    "a predictor saved by another release",
                    where=str(folder),
                    expected="one saved by this release; train it again",
                )
            if _sha256(folder / _MODEL_FILE) != manifest["sha256"]:
                raise DataError(
                    "the model file does not match its SHA-256", where=str(folder), expected="an intact file"
                )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"no readable predictor ({error})", where=str(folder), expected="a saved predictor"
            ) from error
        return cls(PredictorInfo(**info), _unpickled(folder, info["libraries"]))


def _unpickled(folder: Path, trained_with: Mapping[str, str]) -> Parts:
    """The fitted parts; a pickle that other library versions cannot read is a ``DataError`` that names them."""
    try:
        return cast(Parts, joblib.load(folder / _MODEL_FILE))
    except Exception as error:  # unpickling runs other libraries' code: anything may come out of it
        here = {name: version(name) for name in trained_with}
        changed = [f"{name} {then}, here {here[name]}" for name, then in trained_with.items() if here[name] != then]
        differ = ", ".join(changed) or "the same versions"
        raise DataError(
            f"the model file cannot be read here ({type(error).__name__}); trained with {differ}",
            where=str(folder),
            expected="the library versions it was trained with",
        ) from error


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
