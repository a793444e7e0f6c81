"""What the routes share: the settings and the predictor, loaded in the background."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from fastapi import Request

from eaco_datasets.errors import EacoError, NotReadyError
from eaco_datasets.types import CoLocation
from eaco_features.job_graphs import GraphBook
from eaco_predictor.prediction import PredictsSets, SetPrediction
from eaco_predictor.predictor import PredictorInfo
from eaco_serving.batching import Batcher
from eaco_serving.graph_store import GraphStore, Registered
from eaco_serving.settings import Settings

log = logging.getLogger("eaco.serving")


class ServedPredictor(PredictsSets, Protocol):
    """A predictor that says where it comes from, and can be handed the graphs of more models."""

    def predict(self, sets: Sequence[CoLocation], graphs: GraphBook | None = None) -> list[SetPrediction]:
        """One prediction a set, in order; model graphs are looked up in ``graphs``, else in the catalogue."""
        ...

    @property
    def info(self) -> PredictorInfo:
        """Version, data and provenance."""
        ...


@runtime_checkable
class Evaluated(Protocol):
    """A predictor that knows its errors: figure -> value, empty when it was not evaluated."""

    @property
    def out_of_sample(self) -> Mapping[str, float]:
        """On work that it had not seen."""
        ...

    @property
    def in_sample(self) -> Mapping[str, float]:
        """On what it learned from."""
        ...


LoadPredictor = Callable[[], ServedPredictor]


@dataclass(frozen=True)
class WithGraphs:
    """A predictor that knows the graphs which its store knows at the moment it is asked (``PredictsSets``)."""

    predictor: ServedPredictor
    store: GraphStore

    @property
    def info(self) -> PredictorInfo:
        """Version, data and provenance."""
        return self.predictor.info

    def predict(self, sets: Sequence[CoLocation]) -> list[SetPrediction]:
        """One prediction a set, in order."""
        known = self.store.known
        return self.predictor.predict(known.sized(sets), graphs=known.book)


class Service:
    """Loads the predictor once and hands it to the routes.

    Loading runs in a thread of its own, so that ``/healthz`` answers meanwhile and stopping does not wait for it.
    """

    def __init__(self, settings: Settings, load_predictor: LoadPredictor) -> None:
        self.settings = settings
        self.graphs = GraphStore(settings.home, log.warning)
        self._load = load_predictor
        self._predictor: ServedPredictor | None = None
        self._batcher: Batcher | None = None
        self._failure: str | None = None
        self._done = asyncio.Event()

    @property
    def predictor(self) -> ServedPredictor:
        """The loaded predictor.

        Raises:
            NotReadyError: it is still loading, or could not be loaded.
        """
        if self._predictor is None:
            raise NotReadyError(self._failure or "the predictor is still being loaded")
        return self._predictor

    async def registered(self) -> Registered:
        """The graphs registered by now. What another process wrote is read in a thread, while others are answered."""
        if self.graphs.changed():
            await asyncio.to_thread(self.graphs.registered)
        return self.graphs.known

    async def with_graphs(self) -> WithGraphs:
        """The loaded predictor as the routes ask it: it knows the graphs registered by now.

        Raises:
            NotReadyError: no predictor is loaded.
        """
        predictor = WithGraphs(self.predictor, self.graphs)
        await self.registered()
        return predictor

    async def predict_one(self, wanted: CoLocation) -> SetPrediction:
        """One set's prediction; requests that wait at the same moment share a model call.

        Raises:
            NotReadyError: no predictor is loaded.
        """
        predictor = await self.with_graphs()
        if self._batcher is None:
            self._batcher = Batcher(predictor, self.settings.inline_sets)
        return await self._batcher.predict(wanted)

    def start(self) -> None:
        """Begin to load; returns at once. To be called on the event loop."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, args=(loop,), name="load-predictor", daemon=True).start()

    async def loaded(self) -> None:
        """Wait until loading has ended, well or not."""
        await self._done.wait()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self.graphs.registered()  # so that no request has to wait for the files
            self._predictor = self._load()
        except EacoError as error:
            self._failure = f"the predictor could not be loaded: {error}"
            log.error(self._failure)
        except Exception:
            self._failure = "the predictor could not be loaded; the service's log has the details"
            log.exception("loading the predictor failed")
        else:
            announce(self._predictor.info)
        with suppress(RuntimeError):  # the loop is closed: the service stopped meanwhile, nobody waits
            loop.call_soon_threadsafe(self._done.set)


def service_of(request: Request) -> Service:
    """The service that the application was created with."""
    service: Service = request.app.state.service
    return service


def simulated_share(provenance: dict[str, float]) -> float:
    """Share of the training rows that were simulated, 0 to 1."""
    return provenance.get("simulated", 0.0)


def simulated_notice(provenance: dict[str, float]) -> str | None:
    """One sentence when any training row was simulated, else None."""
    share = simulated_share(provenance)
    if share <= 0:
        return None
    return f"simulated: {share:.0%} of the rows that this predictor learned from were simulated, not measured"


def announce(info: PredictorInfo) -> None:
    """Log what is served, and loudly when it learned from simulated data."""
    log.info(
        "serving predictor %s (%s) learned from %s, %d rows",
        info.version,
        info.model,
        ", ".join(info.datasets),
        info.n_rows,
    )
    notice = simulated_notice(info.provenance)
    if notice:
        log.warning(notice)
