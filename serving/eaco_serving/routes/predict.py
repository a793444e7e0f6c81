"""``POST /predict``: one set, or up to 1024 candidates."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI, Request
from pydantic_core import to_json
from starlette.responses import Response

from eaco_predictor.prediction import PredictsSets
from eaco_serving.convert import co_location, prediction_wire
from eaco_serving.routes.wire import json_response, json_route, validated
from eaco_serving.schemas import CandidatesIn, PredictionOut, PredictionsOut, ProblemOut, SetIn
from eaco_serving.service import service_of


def read(parsed: Any) -> SetIn | CandidatesIn:
    """The body: many sets where it says ``candidates``, else one set."""
    if isinstance(parsed, dict) and "candidates" in parsed:
        return validated(CandidatesIn, parsed)
    return validated(SetIn, parsed)


async def predict(body: SetIn | CandidatesIn, request: Request) -> Response:
    """Speed, power, utilisation and memory of jobs that share GPUs.

    A set that cannot be predicted is answered with a reason in `abstained`; a malformed one refuses the whole call.
    """
    service = service_of(request)
    if isinstance(body, SetIn):
        return json_response(to_json(prediction_wire(await service.predict_one(co_location(body)))))
    predictor = await service.with_graphs()
    if len(body.candidates) <= service.settings.inline_sets:
        return json_response(predict_batch(predictor, body))
    return json_response(await asyncio.to_thread(predict_batch, predictor, body))


def predict_batch(predictor: PredictsSets, body: CandidatesIn) -> bytes:
    """The JSON answer to many sets, one model call."""
    sets = [co_location(s, where=f"/candidates/{i}") for i, s in enumerate(body.candidates)]
    return to_json({"predictions": [prediction_wire(p) for p in predictor.predict(sets)]})


def add_to(app: FastAPI) -> None:
    """Add the call."""
    app.router.add_api_route(
        "/predict",
        predict,
        methods=["POST"],
        tags=["predict"],
        response_model=PredictionOut | PredictionsOut,
        responses={status: {"model": ProblemOut} for status in (400, 413, 415, 422, 503)},
        route_class_override=json_route(read),
    )
