"""Small synthetic examples and a spy pipeline, shared by the training tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from eaco_datasets.types import MAX_JOBS, SHARING_MODES
from eaco_features.examples import Examples
from eaco_features.sets import SOLO_FIELDS, ConfigKey, FloatArray, SetBatch
from eaco_predictor.pipeline import Bounds
from eaco_serving.cli import run

JobRow = tuple[str, int, float, str]
"""family, batch size, target, provenance"""


def build_examples(
    measurements: Sequence[Sequence[JobRow]],
    *,
    gpus: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    datasets: dict[str, str] | None = None,
) -> Examples:
    """Examples of the given measurements, each a sequence of jobs."""
    n = len(measurements)
    gpus = gpus or ["rtx3090"] * n
    gpu_names = tuple(dict.fromkeys(gpus))
    families = tuple(dict.fromkeys(job[0] for jobs in measurements for job in jobs))
    dataset_of = datasets or {}
    configs = tuple(
        dict.fromkeys(
            ConfigKey(job[0], dataset_of.get(job[0], "d"), job[1], "fp32", "") for jobs in measurements for job in jobs
        )
    )
    shape = (n, MAX_JOBS)
    family, config = np.full(shape, -1), np.full(shape, -1)
    batch_size, target = np.full(shape, np.nan), np.full(shape, np.nan)
    provenance = np.full(shape, "", dtype=object)
    for i, jobs in enumerate(measurements):
        for j, (name, batch, value, kind) in enumerate(jobs):
            family[i, j] = families.index(name)
            config[i, j] = configs.index(ConfigKey(name, dataset_of.get(name, "d"), batch, "fp32", ""))
            batch_size[i, j], target[i, j], provenance[i, j] = batch, value, kind
    return Examples(
        sets=SetBatch(
            gpu=np.array([gpu_names.index(g) for g in gpus], dtype=np.int64),
            sharing_mode=np.full(n, SHARING_MODES.index("time-slice")),
            num_gpus=np.ones(n),
            power_limit_w=np.full(n, np.nan),
            present=family >= 0,
            family=family,
            config=config,
            batch_size=batch_size,
            precision=np.where(family >= 0, 0, -1),
            solo=np.full((*shape, len(SOLO_FIELDS)), np.nan),
            samples_per_epoch=np.full(shape, np.nan),
            gpus=gpu_names,
            families=families,
            configs=configs,
        ),
        target=target,
        provenance=provenance,
        measurement_id=np.array(ids or [f"m{i}" for i in range(n)], dtype=object),
        source=np.full(n, "made-up", dtype=object),
    )


@dataclass
class SpyPipeline:
    """Predicts the mean of what it learned, per family where it was observed; records all that it is shown."""

    name: str
    intervals: bool
    fitted_on: list[tuple[SetBatch, FloatArray]] = field(default_factory=list)
    observed: list[tuple[SetBatch, FloatArray]] = field(default_factory=list)
    predicted: list[SetBatch] = field(default_factory=list)
    corrected: list[SpyPipeline] = field(default_factory=list)
    offset: float = 0.0
    mean: float = float("nan")

    def fit(self, sets: SetBatch, target: FloatArray) -> SpyPipeline:
        self.fitted_on.append((sets, target.copy()))
        self.mean = float(np.nanmean(target))
        return self

    def predict(self, sets: SetBatch) -> Bounds:
        self.predicted.append(sets)
        level = np.where(sets.present, self.mean + self.offset, np.nan)
        return Bounds(level, level - 0.1, level + 0.1)

    def observe(self, sets: SetBatch, target: FloatArray) -> SpyPipeline:
        seen = SpyPipeline(self.name, self.intervals, mean=self.mean)
        seen.observed = [*self.observed, (sets, target.copy())]
        seen.offset = float(np.nanmean(target)) - self.mean
        self.corrected.append(seen)
        return seen


@dataclass
class SpyFactory:
    """Makes spies and keeps them."""

    made: list[SpyPipeline] = field(default_factory=list)

    def __call__(self, model: str, intervals: bool) -> SpyPipeline:
        self.made.append(SpyPipeline(model, intervals))
        return self.made[-1]


def random_pairs(seed: int, n: int, families: Sequence[str], batches: Sequence[int] = (16, 32)) -> Examples:
    """Measured pairs of random configs; family ``a`` runs at .5, ``b`` at .6 and so on, plus a little noise."""
    random = np.random.default_rng(seed)

    def job() -> JobRow:
        code = int(random.integers(len(families)))
        value = 0.5 + 0.1 * code + float(random.normal(0, 0.02))
        return families[code], int(random.choice(list(batches))), value, "measured"

    return build_examples([[job(), job()] for _ in range(n)])


@pytest.fixture
def make_examples() -> Callable[..., Examples]:
    """The builder of synthetic examples."""
    return build_examples


@pytest.fixture
def make_pairs() -> Callable[..., Examples]:
    """The builder of random pairs."""
    return random_pairs


@pytest.fixture
def spies() -> SpyFactory:
    """A factory of spy pipelines."""
    return SpyFactory()


@pytest.fixture
def eaco(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., tuple[int | None, str, str]]:
    """Runs the command in a folder of its own; returns exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    for name in ("EACO_HOME", "EACO_DATA_DIR", "EACO_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)

    def call(*args: object) -> tuple[int | None, str, str]:
        code = run([str(arg) for arg in args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
