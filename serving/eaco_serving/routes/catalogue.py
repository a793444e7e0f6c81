"""``/catalogue``: reference jobs, registered graphs, and how to register one."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from functools import lru_cache, partial
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from pydantic_core import to_json
from starlette.responses import Response

from eaco_datasets.errors import InputError, UnknownNameError
from eaco_datasets.names import family_of
from eaco_features.graphs.graph import ModelGraph, to_document
from eaco_features.graphs.summary import totals
from eaco_features.zoo.catalogue import ReferenceJob, reference_jobs, reference_of
from eaco_features.zoo.recorded import catalogue_graph
from eaco_serving.graph_store import GraphStore, Registered, Registration, graph_in, registration
from eaco_serving.problems import UNKNOWN_NAME, Kind, Refused
from eaco_serving.routes.wire import ProblemRoute, json_response, json_route, validated
from eaco_serving.schemas import ProblemOut
from eaco_serving.schemas_catalogue import CatalogueJobOut, CatalogueJobWithGraphOut, CatalogueOut, JobQuery, RegisterIn
from eaco_serving.service import service_of

NO_SUCH_JOB = Kind(UNKNOWN_NAME.slug, "The catalogue has no such job", 404)


async def catalogue(request: Request) -> Response:
    """The reference jobs and the registered graphs, each with the totals of a step at its first batch size."""
    return json_response(await asyncio.to_thread(_listed, await service_of(request).registered()))


async def one_job(model: str, query: Annotated[JobQuery, Query()], request: Request) -> Response:
    """One job by its name, or the one that a job of that model is predicted by."""
    registered = await service_of(request).registered()
    return json_response(await asyncio.to_thread(_told, registered, model, query))


def read(parsed: Any) -> RegisterIn:
    """The body."""
    return validated(RegisterIn, parsed)


async def register(body: RegisterIn, request: Request) -> Response:
    """Register a model graph: jobs of that model are then predicted by it.

    The same graph again is answered with 200, another one under the same name with 409 unless `replace` is true.
    """
    found, new = await asyncio.to_thread(_register, service_of(request).graphs, body)
    answer = json_response(to_json(_of_registered(found)), 201 if new else 200)
    answer.headers["Location"] = f"/catalogue/{found.family}"
    return answer


def add_to(app: FastAPI) -> None:
    """Add the calls."""
    add: Any = partial(app.router.add_api_route, tags=["catalogue"])
    add("/catalogue", catalogue, response_model=CatalogueOut, route_class_override=ProblemRoute)
    add(
        "/catalogue/{model}",
        one_job,
        response_model=CatalogueJobWithGraphOut,
        responses={status: {"model": ProblemOut} for status in (404, 422)},
        route_class_override=ProblemRoute,
    )
    add(
        "/catalogue",
        register,
        methods=["POST"],
        status_code=201,
        response_model=CatalogueJobOut,
        responses={
            200: {"model": CatalogueJobOut, "description": "It was registered already, or took another's place."},
            **{status: {"model": ProblemOut} for status in (400, 409, 413, 415, 422)},
        },
        route_class_override=json_route(read, lambda settings: settings.max_graph_mib),
    )


def _listed(registered: Registered) -> bytes:
    jobs = [_of_reference(job, job.batch_sizes[0]) for job in reference_jobs()]
    return to_json({"jobs": jobs + [_of_registered(one) for _, one in sorted(registered.by_family.items())]})


def _told(registered: Registered, model: str, query: JobQuery) -> bytes:
    found = _find(registered, model)
    if isinstance(found, Registration):
        graph, told = found.graph, _of_registered(found, query.batch_size)
    else:
        graph = catalogue_graph(found.name)
        told = _of_reference(found, query.batch_size or found.batch_sizes[0])
    document = {**to_document(graph), "content_hash": graph.content_hash} if query.graph else None
    return to_json({**told, "graph": document})


def _find(registered: Registered, model: str) -> ReferenceJob | Registration:
    by_name = {job.name: job for job in reference_jobs()}
    if model in by_name:
        return by_name[model]
    try:
        family = family_of(model)
    except InputError:
        family = model
    found = registered.by_family.get(family) or reference_of(family)
    if found is None:
        families = {job.family for job in by_name.values()}
        error = UnknownNameError("job of the catalogue", model, {*by_name, *families, *registered.by_family})
        raise Refused(NO_SUCH_JOB, str(error))
    return found


def _register(store: GraphStore, body: RegisterIn) -> tuple[Registration, bool]:
    wanted = registration(body.model, graph_in(body), body.samples_per_epoch)
    return store.register(wanted, over=body.replace)


@lru_cache(maxsize=256)
def _of_reference(job: ReferenceJob, batch_size: int) -> dict[str, Any]:
    """A reference job as JSON data (``CatalogueJobOut``)."""
    graph = catalogue_graph(job.name)
    return {
        "name": job.name,
        "kind": "reference",
        "family": job.family,
        "dataset": job.dataset,
        "batch_sizes": job.batch_sizes,
        "samples_per_epoch": job.samples_per_epoch,
        "optimizer": job.optimizer,
        "parameters": asdict(job.parameters),
        "forward_macs": None if job.forward_macs is None else asdict(job.forward_macs),
        "content_hash": graph.content_hash,
        "totals": _totals(graph, batch_size),
    }


def _of_registered(one: Registration, batch_size: int | None = None) -> dict[str, Any]:
    """A registered graph as JSON data (``CatalogueJobOut``)."""
    recording = one.graph.recording
    return {
        "name": one.model,
        "kind": "registered",
        "family": one.family,
        "dataset": None,
        "batch_sizes": [recording.batch_size],
        "samples_per_epoch": one.samples_per_epoch,
        "optimizer": ", ".join(recording.optimizers) or None,
        "parameters": {
            "value": recording.parameter_count,
            "status": "recorded",
            "source": "the registered graph",
            "input_shape": None,
        },
        "forward_macs": None,
        "content_hash": one.graph.content_hash,
        "totals": _totals(one.graph, batch_size or recording.batch_size),
    }


def _totals(graph: ModelGraph, batch_size: int) -> dict[str, Any]:
    found = totals(graph, batch_size)
    return {
        "batch_size": found.batch_size,
        "samples": found.samples,
        "gflop": {phase: value / 1e9 for phase, value in found.flops.items()},
        "moved_mib": {phase: value / 2**20 for phase, value in found.bytes_moved.items()},
        "kernels": found.kernels,
        "peak_memory_mib": found.peak_memory_mib,
        "saved_activation_mib": found.saved_activation_bytes / 2**20,
        "optimizer_state_mib": found.optimizer_state_bytes / 2**20,
        "dynamic_ops": found.dynamic_ops,
        "confidence": found.confidence,
    }
