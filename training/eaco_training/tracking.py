"""Where runs are tracked: MLflow over SQLite under ``EACO_HOME`` by default, over any tracking URI when asked.

MLflow is imported inside functions, since it takes seconds, and only after ``quiet_mlflow``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eaco_datasets.errors import EacoError

EXPERIMENT = "eaco"
LOCK_TIMEOUT_S = 600
LIBRARIES: tuple[str, ...] = ("numpy", "scipy", "pandas", "scikit-learn", "lightgbm", "joblib", "mlflow")
PACKAGES: tuple[str, ...] = ("eaco_datasets", "eaco_features", "eaco_predictor", "eaco_training")
"""What a trained predictor depends on: other packages' code, and this project's."""

_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "GIT_PYTHON_REFRESH": "quiet",
}


@dataclass(frozen=True)
class Store:
    """An MLflow store; ``artifact_root`` is a URI of this machine's, ``None`` where a server decides."""

    home: Path
    tracking_uri: str
    artifact_root: str | None


def store_of(home: Path, tracking_uri: str | None = None) -> Store:
    """The store at a tracking URI; without one SQLite and an artifact folder under ``home``."""
    home = home.resolve()
    if tracking_uri:
        served = tracking_uri.startswith(("http:", "https:", "databricks"))  # a server keeps its own artifacts
        return Store(home, tracking_uri, None if served else (home / "artifacts").as_uri())
    return Store(home, f"sqlite:///{(home / 'mlflow.db').as_posix()}", (home / "artifacts").as_uri())


def quiet_mlflow() -> None:
    """Keep MLflow from phoning home and from talking; what the user set in the environment stays."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)


@contextmanager
def one_at_a_time(home: Path, name: str) -> Iterator[None]:
    """Keep other processes out of what is done inside, by a lock file under ``home``. Not reentrant."""
    from filelock import FileLock

    lock = FileLock(home / f"{name}.lock", timeout=LOCK_TIMEOUT_S)
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except TimeoutError as error:
        raise EacoError(f"{lock.lock_file}: still held by another process after {LOCK_TIMEOUT_S} s") from error
    except OSError as error:
        raise EacoError(f"{home}: cannot be written ({error.strerror}); choose another EACO_HOME") from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def mlflow_errors(store: Store) -> Iterator[None]:
    """Turn what MLflow raises into one line that names the store."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError) as error:
        line = str(error).strip().splitlines()[0]
        raise EacoError(f"MLflow store {store.tracking_uri}: {line}") from error


def client_of(store: Store) -> Any:
    """An ``MlflowClient`` of the store, whose tables exist. Touches no global state of MLflow."""
    quiet_mlflow()
    with one_at_a_time(store.home, "mlflow"):
        from mlflow import MlflowClient

        with mlflow_errors(store):
            client = MlflowClient(tracking_uri=store.tracking_uri, registry_uri=store.tracking_uri)
            if client.get_experiment_by_name(EXPERIMENT) is None:
                client.create_experiment(EXPERIMENT, artifact_location=store.artifact_root)
    return client


@dataclass(frozen=True)
class RunRecord:
    """What is kept of one training: ``files`` maps an artifact's path to its text."""

    name: str
    params: Mapping[str, object]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    files: Mapping[str, str]


def log_run(store: Store, record: RunRecord) -> str:
    """Write a finished run into the store and return its id."""
    client = client_of(store)
    from mlflow.entities import Metric, Param, RunTag

    with mlflow_errors(store):
        experiment = client.get_experiment_by_name(EXPERIMENT)
        run = client.create_run(experiment.experiment_id, run_name=record.name)
        run_id: str = run.info.run_id
        client.log_batch(
            run_id,
            params=[Param(key, str(value)) for key, value in record.params.items()],
            tags=[RunTag(key, value) for key, value in record.tags.items()],
        )
        metrics = [Metric(key, float(value), run.info.start_time, 0) for key, value in record.metrics.items()]
        for start in range(0, len(metrics), 500):  # a batch holds 1000 metrics at most
            client.log_batch(run_id, metrics=metrics[start : start + 500])
        for path, text in record.files.items():
            client.log_text(run_id, text, path)
        client.set_terminated(run_id)
    return run_id


def read_json_artifact(store: Store, run_id: str, path: str) -> Any:
    """A JSON artifact of a run, ``None`` where the run has none."""
    client = client_of(store)
    from tempfile import TemporaryDirectory

    with mlflow_errors(store), TemporaryDirectory() as folder:
        if path not in {item.path for item in client.list_artifacts(run_id, str(Path(path).parent))}:
            return None
        return json.loads(Path(client.download_artifacts(run_id, path, folder)).read_text(encoding="utf-8"))


def library_versions() -> dict[str, str]:
    """Installed versions of what a predictor depends on."""
    from importlib.metadata import version

    return {name: version(name) for name in LIBRARIES}


def code_version() -> str:
    """The distribution's version with a hash of its source, so that a checkout without git has one too."""
    from importlib.metadata import version
    from importlib.util import find_spec

    digest = hashlib.sha256()
    for package in PACKAGES:
        spec = find_spec(package)
        for root in (spec.submodule_search_locations or []) if spec else []:
            for file in sorted(Path(root).rglob("*.py")):
                digest.update(f"{package}/{file.relative_to(root).as_posix()}\0".encode())
                digest.update(file.read_bytes())
    return f"{version('eaco')}+{digest.hexdigest()[:12]}"
