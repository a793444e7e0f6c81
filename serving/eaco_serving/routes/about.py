"""What the service is and whether it is ready: ``/gpus``, ``/predictor``, ``/healthz``, ``/readyz``."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from fastapi import FastAPI, Request

from eaco_predictor.prediction import SCHEMA_VERSION
from eaco_serving.convert import gpus_wire
from eaco_serving.schemas import GpusOut, HealthOut, PredictorOut, ProblemOut
from eaco_serving.service import Evaluated, service_of, simulated_share


async def gpus() -> dict[str, Any]:
    """The GPU types that are known, with the source of each figure."""
    return gpus_wire()


async def predictor(request: Request) -> dict[str, Any]:
    """The served predictor: version, data, and its errors on work that it had not seen."""
    served = service_of(request).predictor
    plain = {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(served.info).items()}
    return {
        **plain,
        "simulated": simulated_share(served.info.provenance) > 0,
        "out_of_sample": dict(served.out_of_sample) if isinstance(served, Evaluated) else {},
        "in_sample": dict(served.in_sample) if isinstance(served, Evaluated) else {},
        "schema_version": SCHEMA_VERSION,
    }


async def healthz() -> dict[str, str]:
    """The process is alive."""
    return {"status": "ok"}


async def readyz(request: Request) -> dict[str, str]:
    """A predictor is loaded: the service can answer."""
    _ = service_of(request).predictor
    return {"status": "ready"}


def add_to(app: FastAPI) -> None:
    """Add the calls."""
    add: Any = partial(app.add_api_route, tags=["about"])
    not_ready: dict[int | str, dict[str, Any]] = {503: {"model": ProblemOut}}
    add("/gpus", gpus, response_model=GpusOut)
    add("/predictor", predictor, response_model=PredictorOut, responses=not_ready)
    add("/healthz", healthz, response_model=HealthOut)
    add("/readyz", readyz, response_model=HealthOut, responses=not_ready)
