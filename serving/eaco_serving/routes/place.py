"""``POST /place``: where a job goes in a cluster; stateless."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI, Request
from pydantic_core import to_json
from starlette.responses import Response

from eaco_predictor.prediction import PredictsSets
from eaco_scheduler.eaco import decide
from eaco_serving.convert import decision_wire, placement
from eaco_serving.routes.wire import json_response, json_route, validated
from eaco_serving.schemas import ProblemOut
from eaco_serving.schemas_place import DecisionOut, PlaceIn
from eaco_serving.service import service_of


def read(parsed: Any) -> PlaceIn:
    """The body."""
    return validated(PlaceIn, parsed)


def answer(body: PlaceIn, predictor: PredictsSets, in_full: int) -> dict[str, Any]:
    """The decision on a request as JSON data (``DecisionOut``), its ``in_full`` best alternatives with predictions.

    Raises:
        InputError: at the field of the request that is impossible or contradicts another.
    """
    asked = placement(body)
    return decision_wire(decide(asked.request, asked.cluster, predictor, asked.settings), in_full)


async def place(body: PlaceIn, request: Request) -> Response:
    """Where a job goes: beside others, on idle GPUs, or nowhere yet; with every set tried and why."""
    service = service_of(request)
    in_full = service.settings.alternatives_in_full
    predictor = await service.with_graphs()
    return json_response(to_json(await asyncio.to_thread(answer, body, predictor, in_full)))


def add_to(app: FastAPI) -> None:
    """Add the call."""
    app.router.add_api_route(
        "/place",
        place,
        methods=["POST"],
        tags=["place"],
        response_model=DecisionOut,
        responses={status: {"model": ProblemOut} for status in (400, 413, 415, 422, 503)},
        route_class_override=json_route(read),
    )
