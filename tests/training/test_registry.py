"""Predictors are registered, verified, promoted and rolled back; a store under a folder, no network."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from eaco_datasets.errors import EacoError, InputError, NotReadyError, UnknownNameError
from eaco_predictor.prediction import Estimate, JobPrediction, SetPrediction
from eaco_predictor.predictor import Predictor, PredictorInfo
from eaco_training import registry, tracking
from eaco_training.train import TrainResult, metrics_of


@dataclass
class Constant:
    """A predictor of one number, with the face of the real one."""

    info: PredictorInfo
    speed: float

    @classmethod
    def of(cls, speed):
        shares = {"measured": 0.75, "simulated": 0.25}
        return cls(PredictorInfo(f"v{speed}", "mean", ("made-up",), "00", 3, (), (), shares, 0, {}), speed)

    def save(self, path: Path) -> None:
        path.mkdir(parents=True)
        (path / "speed.json").write_text(json.dumps(self.speed))

    @classmethod
    def load(cls, path: Path):
        return cls.of(json.loads((path / "speed.json").read_text()))

    def predict(self, sets):
        speed = Estimate(self.speed, self.speed / 2, self.speed)
        return [
            SetPrediction(
                tuple(JobPrediction(j.job_id, speed, None, None, None) for j in s.jobs),
                *[None] * 7,
                nearest_families=(),
                abstained=None,
                predictor_version=self.info.version,
                provenance=self.info.provenance,
            )
            for s in sets
        ]


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory):
    """A home whose SQLite tables exist: making them is what takes time."""
    home = tmp_path_factory.mktemp("home")
    tracking.client_of(tracking.store_of(home))
    return home


@pytest.fixture(autouse=True)
def constant_loads(monkeypatch):
    monkeypatch.setattr(Predictor, "load", classmethod(lambda _, path: Constant.load(path)))


@pytest.fixture
def name(request):
    """A registered name of each test's own in the shared store."""
    return request.node.name.replace("[", "-").replace("]", "")


def test_what_is_registered_loads_back_natively_and_through_mlflow(empty_store, name):
    speed = 0.1 + 0.2  # a number that decimal text would lose
    version = registry.register(Constant.of(speed), home=empty_store, name=name)
    assert version == 1
    native = registry.load_champion(empty_store, name=name)
    assert native.speed == speed
    assert native.info.version == f"v{speed}"

    import mlflow

    client = tracking.client_of(tracking.store_of(empty_store))
    found = client.get_model_version_by_alias(name, "champion")
    loaded = mlflow.pyfunc.load_model(found.source)
    rows = pd.DataFrame(
        {
            "set_id": ["a", "a"],
            "gpu": ["v100", "v100"],
            "sharing_mode": ["time-slice"] * 2,
            "num_gpus": [1, 1],
            "model": ["resnet50", "vgg16"],
            "batch_size": [64, 32],
            "precision": ["amp", "fp32"],
        }
    )
    answer = loaded.predict(rows)
    assert answer["relative_speed"].tolist() == [speed, speed]
    assert answer["predictor_version"].tolist() == [native.info.version] * 2
    with pytest.raises(mlflow.exceptions.MlflowException, match="batch_size"):
        loaded.predict(rows.drop(columns="batch_size"))
    pinned = Path(client.download_artifacts(found.run_id, "model/requirements.txt")).read_text()
    assert "numpy==" in pinned
    assert "eaco==" in pinned


def test_files_that_changed_are_refused(empty_store, name):
    registry.register(Constant.of(0.5), home=empty_store, name=name)
    (version,) = registry.list_versions(empty_store, name=name)
    (saved,) = (empty_store / "artifacts" / version.run_id).rglob("speed.json")
    saved.write_text("0.9")
    with pytest.raises(EacoError, match="not those that were registered"):
        registry.load_champion(empty_store, name=name)


def test_promote_and_rollback_walk_the_history(empty_store, name):
    at = {"home": empty_store, "name": name}
    for speed in (0.1, 0.2, 0.3):
        registry.register(Constant.of(speed), alias="champion" if speed == 0.1 else None, **at)

    def served():
        return registry.load_champion(empty_store, name=name).speed

    assert served() == 0.1
    assert registry.promote(3, **at) == 1
    assert registry.promote(3, **at) == 3  # again: no new entry in the history
    assert registry.promote(2, **at) == 3
    assert served() == 0.2
    assert registry.rollback(**at) == (2, 3)
    assert registry.rollback(**at) == (3, 1)
    assert served() == 0.1
    with pytest.raises(NotReadyError, match="nothing to roll back to"):
        registry.rollback(**at)
    listed = registry.list_versions(empty_store, name=name)
    assert [v.version for v in listed] == [1, 2, 3]
    assert listed[0].aliases == ("champion",)
    assert listed[0].provenance == {"measured": 0.75, "simulated": 0.25}
    with pytest.raises(UnknownNameError, match="version of"):
        registry.promote(9, **at)


def test_nothing_registered_is_not_ready(empty_store):
    with pytest.raises(NotReadyError, match="nobody@champion"):
        registry.load_champion(empty_store, name="nobody")
    registry.register(Constant.of(0.5), home=empty_store, name="somebody", alias=None)
    with pytest.raises(NotReadyError, match="somebody@champion"):
        registry.load_champion(empty_store, name="somebody")
    with pytest.raises(NotReadyError):
        registry.rollback(home=empty_store, name="nobody")
    assert registry.list_versions(empty_store, name="nobody") == []


def test_a_name_that_mlflow_would_refuse_is_an_input_error():
    for bad in ("", "a/b", "a:b", "a'b"):
        with pytest.raises(InputError, match="--register"):
            registry.checked_name(bad)


def test_runs_keep_params_metrics_tags_and_files(empty_store, name):
    store = tracking.store_of(empty_store)
    record = tracking.RunRecord(
        "one",
        params={"seed": 0},
        metrics={f"relative_speed/held-out/f{i}/mae": i / 7 for i in range(600)},
        tags={"code_version": tracking.code_version()},
        files={"evaluation/relative_speed.json": '{"schema": 1}'},
    )
    run_id = tracking.log_run(store, record)
    data = tracking.client_of(store).get_run(run_id).data
    assert data.params["seed"] == "0"
    assert data.metrics == dict(record.metrics)
    assert data.tags["code_version"].startswith("0.")
    assert tracking.read_json_artifact(store, run_id, "evaluation/relative_speed.json") == {"schema": 1}
    assert tracking.read_json_artifact(store, run_id, "evaluation/gpu_power_w.json") is None

    for _ in range(2):
        registry.register(Constant.of(0.5), home=empty_store, name=name, run_id=run_id)
    figures = registry.compare([1, 2], home=empty_store, name=name)
    assert figures["relative_speed/held-out/f6/mae"] == {1: 6 / 7, 2: 6 / 7}
    with pytest.raises(UnknownNameError):
        registry.compare([1, 5], home=empty_store, name=name)


def test_processes_that_start_together_train_once(tmp_path, monkeypatch):
    trained, said = [], []

    def train(profiles, *, home, tracking_uri, register_as, **options):
        trained.append((profiles, options))
        version = registry.register(Constant.of(0.5), home=home, tracking_uri=tracking_uri, name=register_as)
        return TrainResult(Constant.of(0.5), "run", version)

    monkeypatch.setattr("eaco_training.train.train", train)
    monkeypatch.setattr("eaco_datasets.sources.load_dataset", lambda name: name)
    with ThreadPoolExecutor(3) as pool:
        loaded = list(pool.map(lambda _: registry.ensure_champion(tmp_path, None, said.append), range(3)))
    assert [p.speed for p in loaded] == [0.5] * 3
    assert len(trained) == 1
    assert "simulated" in said[0]


def test_metrics_name_the_family_and_simulated_figures_say_so():
    block = {"mae": 0.1, "r2": None}
    report = {
        "protocol": "leave-one-model-out",
        "overall": None,
        "overall_simulated": block,
        "in_sample": block,
        "groups": [{"held_out": "vgg16", "provenance": "simulated", "mae": 0.2}],
    }
    assert metrics_of({"relative_speed": report}) == {
        "relative_speed/leave-one-model-out-simulated/mae": 0.1,
        "relative_speed/in-sample/mae": 0.1,
        "relative_speed/held-out/vgg16-simulated/mae": 0.2,
    }


def test_an_unreadable_home_is_one_line(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(EacoError, match="cannot be written"):
        tracking.client_of(tracking.store_of(tmp_path / "file"))
