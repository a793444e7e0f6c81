"""Settings of the service: one frozen object, built at the edge from ``EACO_*`` and the command's options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from eaco_datasets.errors import InputError


class Settings(BaseSettings):
    """How the service runs. ``EACO_PORT=9000`` sets ``port``, and so on."""

    model_config = SettingsConfigDict(env_prefix="EACO_", frozen=True, extra="forbid")

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8000
    home: Path = Path(".eaco")
    """State: MLflow store, artifacts, registered graphs."""
    tracking_uri: str | None = None
    """MLflow tracking server or store; None is the SQLite store under ``home``."""
    predictor_name: Annotated[str, Field(min_length=1)] = "eaco"
    """Registered model to serve."""
    predictor_alias: Annotated[str, Field(min_length=1)] = "champion"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    access_log: bool = False
    max_body_mib: Annotated[float, Field(gt=0, le=1024)] = 4
    """Largest request body that is read: some 2,000 GPUs with four residents each."""
    max_graph_mib: Annotated[float, Field(gt=0, le=1024)] = 16
    """Largest body of ``POST /catalogue``: a graph of some 150,000 kernels."""
    alternatives_in_full: Annotated[int, Field(ge=0, le=100_000)] = 16
    """Of how many alternatives, the best by rank, a placement's answer holds the whole prediction; of the others it
    gives GPUs, rank, score and the reason."""
    inline_sets: Annotated[int, Field(ge=0)] = 32
    """Sets predicted on the event loop itself; larger batches go to a worker thread so that others are not held up."""
    stop_timeout_s: Annotated[int, Field(ge=0, le=600)] = 10
    """How long running requests may take once the service is told to stop."""


OPTIONS = {"predictor_name": "--predictor", "predictor_alias": "--alias"}
"""Settings whose option is not named after them."""


def load_settings(**options: Any) -> Settings:
    """Settings from the environment, overridden by options that are not None.

    Raises:
        InputError: one line naming the setting, what was given and what was expected.
    """
    try:
        return Settings(**{name: value for name, value in options.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        option = OPTIONS.get(name, f"--{name.replace('_', '-')}")
        where = option if options.get(name) is not None else f"EACO_{name.upper()}"
        raise InputError(f"{first['msg']}; got {first['input']!r}", where=where) from error
