"""A predictor of known answers, and the service around it, asked through the ASGI transport."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import anyio.from_thread
import httpx
import pytest

from eaco_datasets.types import CoLocation
from eaco_features.job_graphs import GraphBook
from eaco_predictor.prediction import Estimate, JobPrediction, SetPrediction
from eaco_predictor.predictor import PredictorInfo
from eaco_serving.app import create_app
from eaco_serving.service import LoadPredictor
from eaco_serving.settings import Settings


class FakePredictor:
    """Honours the contract: relative speed 1/n for n jobs, 100 W a job, abstains on CPUs."""

    def __init__(self) -> None:
        self.asked: list[CoLocation] = []
        self.threads: list[str] = []
        self.books: list[GraphBook | None] = []
        self.info = PredictorInfo(
            version="fake-1",
            model="equal-shares",
            datasets=("simulated", "eaco"),
            data_sha256="0" * 64,
            n_rows=10,
            families=("resnet50", "vgg16"),
            gpus=("v100-sxm",),
            provenance={"simulated": 0.75, "published": 0.25},
            seed=0,
            libraries={"numpy": "2"},
            held_out={"relative_speed_out_of_family_macro_mae": 0.07},
        )

    def predict(self, sets: Sequence[CoLocation], graphs: GraphBook | None = None) -> list[SetPrediction]:
        self.asked.extend(sets)
        self.books.append(graphs)
        self.threads.append(threading.current_thread().name)
        return [self._one(s) for s in sets]

    def _one(self, s: CoLocation) -> SetPrediction:
        abstained = "no rows of a CPU" if s.gpu.startswith("cpu-") else None
        speed = 1 / len(s.jobs)

        def around(mean: float) -> Estimate | None:
            return None if abstained else Estimate(mean, mean * 0.9, mean * 1.1)

        return SetPrediction(
            jobs=()
            if abstained
            else tuple(
                JobPrediction(
                    job_id=j.job_id,
                    relative_speed=Estimate(speed, speed * 0.9, min(1.05, speed * 1.1)),
                    epoch_s=None if j.solo.epoch_s is None else around(j.solo.epoch_s / speed),
                    jct_s=None
                    if j.solo.epoch_s is None or j.remaining_epochs is None
                    else around(j.solo.epoch_s / speed * j.remaining_epochs),
                    deadline_miss_probability=None if j.deadline_s is None else 0.0,
                )
                for j in s.jobs
            ),
            gpu_power_w=around(100.0 * len(s.jobs)),
            node_power_w=around(500.0) if s.node else None,
            gpu_util_pct=around(20.0 * len(s.jobs)),
            mem_mib=around(2000.0 * len(s.jobs)),
            oom_probability=None if abstained else 0.01,
            energy_j_per_epoch=None,
            out_of_distribution=None if abstained else 0.5,
            nearest_families=() if abstained else ("resnet50",),
            abstained=abstained,
            predictor_version=self.info.version,
            provenance=self.info.provenance,
        )


@asynccontextmanager
async def running(load: LoadPredictor, **settings: object) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application, with its lifespan begun and loading ended."""
    app = create_app(Settings(**settings), load)  # type: ignore[arg-type]
    async with app.router.lifespan_context(app):
        await app.state.service.loaded()
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            yield client


Ask = Callable[..., httpx.Response]


@contextmanager
def asking(load: LoadPredictor, **settings: object) -> Iterator[Ask]:
    """``ask(method, path, json=..., content=...)`` against one service, from tests that are not coroutines."""
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(running(load, **settings)) as client,
    ):

        def call(method: str, path: str, **body: object) -> httpx.Response:
            return portal.call(lambda: client.request(method, path, **body))  # type: ignore[arg-type]

        yield call


@pytest.fixture(scope="module")
def predictor() -> FakePredictor:
    return FakePredictor()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``EACO_HOME`` of the service behind ``ask``."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def ask(predictor: FakePredictor, home: Path) -> Iterator[Ask]:
    """One service for the module's tests."""
    with asking(lambda: predictor, home=home, max_body_mib=0.25, max_graph_mib=1, inline_sets=2) as call:
        yield call


Serve = Callable[..., AbstractContextManager[Ask]]


@pytest.fixture(scope="session")
def serve() -> Serve:
    """``with serve(load, **settings) as ask``: a service of its own."""
    return asking
