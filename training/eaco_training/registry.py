"""Registered predictors: versions under a name, an alias for the one that is served, and its history.

A version is an MLflow model in models-from-code form whose artifact is the folder that ``Predictor.save`` wrote. The
alias moves by ``promote`` and ``rollback``; where it pointed before is kept in tags of the registered model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from eaco_datasets.errors import EacoError, InputError, NotReadyError, UnknownNameError
from eaco_training.tracking import (
    RunRecord,
    client_of,
    code_version,
    library_versions,
    log_run,
    mlflow_errors,
    one_at_a_time,
    store_of,
)

if TYPE_CHECKING:
    from eaco_predictor.predictor import Predictor

NAME = "eaco"
CHAMPION = "champion"
MODEL_PATH = "model"
PREDICTOR_PATH = "artifacts/predictor"
"""Where a model version keeps the predictor's own folder."""
_HISTORY_KEPT = 100
_MISSING = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")  # MLflow's codes for no such model, no such alias


@dataclass(frozen=True)
class RegisteredVersion:
    """One registered predictor.

    ``figures`` are the metrics of its training run, ``held_out`` the errors it carries itself (``PredictorInfo``).
    """

    name: str
    version: int
    aliases: tuple[str, ...]
    run_id: str
    predictor_version: str
    model: str
    datasets: str
    provenance: dict[str, float]
    figures: dict[str, float]
    held_out: dict[str, float] = field(default_factory=dict)


def folder_sha256(folder: Path) -> str:
    """Hash of a folder's file names and contents."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def register(
    predictor: Predictor,
    *,
    home: Path,
    tracking_uri: str | None = None,
    name: str = NAME,
    alias: str | None = CHAMPION,
    run_id: str | None = None,
) -> int:
    """Store a predictor as a new version and, if asked, point an alias at it.

    ``run_id`` is the run that trained it; without one a run is opened for it. Returns the version number.
    """
    store = store_of(home, tracking_uri)
    client = client_of(store)
    run_id = run_id or log_run(store, RunRecord("register", {"model": predictor.info.model}, {}, {}, {}))
    with TemporaryDirectory() as folder, mlflow_errors(store):
        sha256 = _write_model(predictor, Path(folder))
        client.log_artifacts(run_id, str(Path(folder, MODEL_PATH)), MODEL_PATH)
        source = f"{client.get_run(run_id).info.artifact_uri}/{MODEL_PATH}"
        with one_at_a_time(store.home, "registry"):
            if not client.search_registered_models(f"name = '{checked_name(name)}'"):
                client.create_registered_model(name)
            made = client.create_model_version(
                name, source, run_id, tags={**_facts(predictor), "predictor_sha256": sha256}
            )
            version = int(made.version)
            if alias is not None:
                _point(client, name, alias, version)
    return version


def checked_name(name: str) -> str:
    """The name itself. Raises ``InputError`` where MLflow could not register under it."""
    if not name or set(name) & set("/:'\"\\"):
        raise InputError(f"{name!r} is no name", where="--register", expected="a name without / : or quotes")
    return name


def _facts(predictor: Predictor) -> dict[str, str]:
    info = predictor.info
    return {
        "predictor_version": info.version,
        "model": info.model,
        "datasets": ", ".join(info.datasets),
        "data_sha256": info.data_sha256,
        "provenance": json.dumps(info.provenance, sort_keys=True),
        "held_out": json.dumps(info.held_out, sort_keys=True),
        "code_version": code_version(),
    }


def _write_model(predictor: Predictor, folder: Path) -> str:
    """Write the MLflow model into ``folder/model``; return the hash of the predictor's own folder."""
    from importlib.metadata import version

    import mlflow.pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema

    from eaco_training.longform import OPTIONAL, OUTPUT, REQUIRED, example_frame

    saved = folder / "predictor"
    predictor.save(saved)
    inputs = [ColSpec(kind, column) for column, kind in REQUIRED.items()]
    inputs += [ColSpec(kind, column, required=False) for column, kind in OPTIONAL.items()]
    outputs = [ColSpec(kind, column, required=kind == "string") for column, kind in OUTPUT.items()]
    mlflow.pyfunc.save_model(
        path=str(folder / MODEL_PATH),
        python_model=str(Path(__file__).with_name("served_model.py")),
        artifacts={"predictor": str(saved)},
        input_example=example_frame(),
        signature=ModelSignature(inputs=Schema(inputs), outputs=Schema(outputs)),
        pip_requirements=[f"eaco=={version('eaco')}", *(f"{n}=={v}" for n, v in library_versions().items())],
    )
    return folder_sha256(saved)


def load_champion(home: Path, tracking_uri: str | None = None, *, name: str = NAME, alias: str = CHAMPION) -> Predictor:
    """The predictor that an alias points at: the native object, its files verified against their hash.

    Raises:
        NotReadyError: nothing is registered under this name and alias.
        EacoError: the files are not those that were registered.
    """
    store = store_of(home, tracking_uri)
    client = client_of(store)
    with mlflow_errors(store), TemporaryDirectory() as folder:
        found = _aliased(client, name, alias)
        if found is None:
            raise NotReadyError(f"no predictor is registered as {name}@{alias} in {store.tracking_uri}")
        from mlflow.artifacts import download_artifacts

        local = Path(
            download_artifacts(
                artifact_uri=f"{found.source}/{PREDICTOR_PATH}", dst_path=folder, tracking_uri=store.tracking_uri
            )
        )
        if folder_sha256(local) != found.tags.get("predictor_sha256"):
            raise EacoError(f"{name} version {found.version}: its files are not those that were registered")
        from eaco_predictor.predictor import Predictor

        return Predictor.load(local)


def ensure_champion(home: Path, tracking_uri: str | None, log: Callable[[str], None]) -> Predictor:
    """The champion; where none is registered, one trained first on the embedded data, and ``log`` is told.

    Safe when several processes start at once: the first trains, the others load what it registered.
    """
    try:
        return load_champion(home, tracking_uri)
    except NotReadyError:
        pass
    with one_at_a_time(home.resolve(), "champion"):
        try:
            return load_champion(home, tracking_uri)
        except NotReadyError:
            from eaco_datasets.sources import load_dataset
            from eaco_training.train import train

            log("no predictor is registered: training the default on the embedded data, which is simulated")
            result = train(
                load_dataset("embedded"),
                dataset="embedded",
                home=home,
                tracking_uri=tracking_uri,
                register_as=NAME,
                evaluate_under=None,
            )
            log(f"registered {NAME} version {result.version} as {CHAMPION}: its answers are about simulated data")
            return load_champion(home, tracking_uri)


def _aliased(client: Any, name: str, alias: str) -> Any:
    """The model version behind an alias, ``None`` where there is none."""
    from mlflow.exceptions import MlflowException

    try:
        return client.get_model_version_by_alias(name, alias)
    except MlflowException as error:
        if error.error_code in _MISSING:
            return None
        raise


def list_versions(home: Path, tracking_uri: str | None = None, *, name: str = NAME) -> list[RegisteredVersion]:
    """Every version under a name, oldest first; empty where the name is not registered."""
    store = store_of(home, tracking_uri)
    client = client_of(store)
    with mlflow_errors(store):
        found = client.search_model_versions(f"name = '{checked_name(name)}'")
        if not found:
            return []
        aliases: dict[str, str] = client.get_registered_model(name).aliases
        versions = [_described(client, version, aliases) for version in found]
    return sorted(versions, key=lambda version: version.version)


def _described(client: Any, found: Any, aliases: dict[str, str]) -> RegisteredVersion:
    tags: dict[str, str] = found.tags
    return RegisteredVersion(
        name=found.name,
        version=int(found.version),
        aliases=tuple(sorted(a for a, v in aliases.items() if int(v) == int(found.version))),
        run_id=found.run_id,
        predictor_version=tags.get("predictor_version", ""),
        model=tags.get("model", ""),
        datasets=tags.get("datasets", ""),
        provenance=json.loads(tags.get("provenance", "{}")),
        figures=dict(client.get_run(found.run_id).data.metrics),
        held_out=json.loads(tags.get("held_out", "{}")),
    )


def promote(
    version: int, *, home: Path, tracking_uri: str | None = None, name: str = NAME, alias: str = CHAMPION
) -> int | None:
    """Point an alias at a version; returns the version it pointed at before.

    Raises:
        UnknownNameError: there is no such version.
    """
    known = [str(v.version) for v in list_versions(home, tracking_uri, name=name)]
    if str(version) not in known:
        raise UnknownNameError(f"version of {name}", str(version), known or ["none registered"])
    store = store_of(home, tracking_uri)
    client = client_of(store)
    with mlflow_errors(store), one_at_a_time(store.home, "registry"):
        return _point(client, name, alias, version)


def rollback(
    *, home: Path, tracking_uri: str | None = None, name: str = NAME, alias: str = CHAMPION
) -> tuple[int, int]:
    """Point an alias back at where it was before the last promotion; returns (from, to).

    Raises:
        NotReadyError: the alias has been nowhere else.
    """
    store = store_of(home, tracking_uri)
    client = client_of(store)
    with mlflow_errors(store), one_at_a_time(store.home, "registry"):
        stack = (
            _history(client, name, alias) if client.search_registered_models(f"name = '{checked_name(name)}'") else []
        )
        if len(stack) < 2:
            raise NotReadyError(f"{name}@{alias} was never promoted from another version: nothing to roll back to")
        left, back = stack[-1], stack[-2]
        client.set_registered_model_alias(name, alias, str(back))
        client.set_registered_model_tag(name, f"{alias}_history", json.dumps(stack[:-1]))
        client.set_model_version_tag(name, str(left), f"{alias}_rolled_back_to", str(back))
    return left, back


def _history(client: Any, name: str, alias: str) -> list[int]:
    """Versions the alias pointed at, the present one last."""
    stack: list[int] = json.loads(client.get_registered_model(name).tags.get(f"{alias}_history", "[]"))
    return stack


def _point(client: Any, name: str, alias: str, version: int) -> int | None:
    stack = _history(client, name, alias)
    before = stack[-1] if stack else None
    client.set_registered_model_alias(name, alias, str(version))
    if before != version:
        client.set_registered_model_tag(name, f"{alias}_history", json.dumps([*stack, version][-_HISTORY_KEPT:]))
    return before


def compare(
    versions: list[int], *, home: Path, tracking_uri: str | None = None, name: str = NAME
) -> dict[str, dict[int, float]]:
    """Figure -> version -> value, over the figures that any of the versions' runs have.

    Raises:
        UnknownNameError: a version does not exist.
    """
    known = {v.version: v for v in list_versions(home, tracking_uri, name=name)}
    for version in versions:
        if version not in known:
            raise UnknownNameError(f"version of {name}", str(version), [str(v) for v in known] or ["none registered"])
    figures = sorted({figure for version in versions for figure in known[version].figures})
    return {figure: {v: known[v].figures[figure] for v in versions if figure in known[v].figures} for figure in figures}
