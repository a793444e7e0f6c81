"""Requests that wait at the same moment share one model call, and only the one at fault fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from eaco_datasets.errors import InputError
from eaco_datasets.types import CoLocation, Job
from eaco_predictor.prediction import SetPrediction
from eaco_serving.batching import Batcher


class Counting:
    """Answers with the GPU's name as the version; refuses ``bad``; remembers the size of each call."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def predict(self, sets: Sequence[CoLocation]) -> list[SetPrediction]:
        self.calls.append(len(sets))
        if any(s.gpu == "bad" for s in sets):
            raise InputError("bad set")
        return [
            SetPrediction(
                (), None, None, None, None, None, None, None, (), "no", predictor_version=s.gpu, provenance={}
            )
            for s in sets
        ]


def wanted(gpu: str) -> CoLocation:
    return CoLocation(gpu, "time-slice", (Job("vgg16", "vgg16", 8),))


def gather(model: Counting, largest: int, *gpus: str) -> list[Any]:
    async def story() -> list[Any]:
        batcher = Batcher(model, largest)
        asked = (batcher.predict(wanted(gpu)) for gpu in gpus)
        return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(story())


def test_a_lone_request_is_one_call() -> None:
    model = Counting()
    assert [p.predictor_version for p in gather(model, 8, "a")] == ["a"]
    assert model.calls == [1]


@pytest.mark.parametrize(("largest", "calls"), [(8, [5]), (2, [2, 2, 1]), (0, [1] * 5)])
def test_waiting_requests_share_calls_and_each_gets_its_own_answer(largest: int, calls: list[int]) -> None:
    model = Counting()
    assert [p.predictor_version for p in gather(model, largest, *"abcde")] == list("abcde")
    assert model.calls == calls


def test_only_the_request_at_fault_fails() -> None:
    model = Counting()
    first, second, third = gather(model, 8, "a", "bad", "c")
    assert (first.predictor_version, third.predictor_version) == ("a", "c")
    assert isinstance(second, InputError)


def test_a_caller_that_has_gone_holds_nobody_up() -> None:
    async def story() -> SetPrediction:
        batcher = Batcher(Counting(), 8)
        gone = asyncio.ensure_future(batcher.predict(wanted("a")))
        stays = asyncio.ensure_future(batcher.predict(wanted("b")))
        await asyncio.sleep(0)
        gone.cancel()
        return await stays

    assert asyncio.run(story()).predictor_version == "b"


def test_later_requests_are_served_too() -> None:
    async def story() -> list[str]:
        batcher = Batcher(Counting(), 8)
        return [(await batcher.predict(wanted(gpu))).predictor_version for gpu in "abc"]

    assert asyncio.run(story()) == ["a", "b", "c"]
