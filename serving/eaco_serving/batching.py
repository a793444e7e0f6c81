"""Requests that wait at the same moment share one call of the model.

A model call has a fixed cost that outweighs that of one more set. Nothing waits for company: sets are gathered only
while the event loop is busy anyway, so a lone request is predicted at once.
"""

from __future__ import annotations

import asyncio
from collections import deque

from eaco_datasets.types import CoLocation
from eaco_predictor.prediction import PredictsSets, SetPrediction


class Batcher:
    """Predicts one set a call, for many callers on one event loop, at most ``largest`` sets in a model call."""

    def __init__(self, predictor: PredictsSets, largest: int) -> None:
        self._predictor, self._largest = predictor, max(1, largest)
        self._waiting: deque[tuple[CoLocation, asyncio.Future[SetPrediction]]] = deque()

    async def predict(self, wanted: CoLocation) -> SetPrediction:
        """The prediction of one set; raises what the predictor raises for it."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[SetPrediction] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._predict_waiting, loop)
        self._waiting.append((wanted, answer))
        return await answer

    def _predict_waiting(self, loop: asyncio.AbstractEventLoop) -> None:
        taken = [self._waiting.popleft() for _ in range(min(self._largest, len(self._waiting)))]
        if self._waiting:
            loop.call_soon(self._predict_waiting, loop)
        try:
            answers = self._predictor.predict([wanted for wanted, _ in taken])
        except Exception as error:
            if len(taken) == 1:
                _settle(taken[0][1], error)
                return
            for one in taken:  # so that only the request at fault fails
                self._predict_alone(*one)
            return
        for (_, answer), prediction in zip(taken, answers, strict=True):
            _settle(answer, prediction)

    def _predict_alone(self, wanted: CoLocation, answer: asyncio.Future[SetPrediction]) -> None:
        try:
            (prediction,) = self._predictor.predict([wanted])
        except Exception as error:
            _settle(answer, error)
        else:
            _settle(answer, prediction)


def _settle(answer: asyncio.Future[SetPrediction], outcome: SetPrediction | Exception) -> None:
    if answer.done():  # its caller has gone
        return
    if isinstance(outcome, Exception):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
