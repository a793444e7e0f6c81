"""The demonstration: the real service in a process of its own, asked over HTTP, then stopped.

It needs nothing but this package: its state is a temporary folder, its port a free one, its predictor the embedded
default, which is trained on simulated profiles (and says so).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from eaco_datasets.errors import EacoError

READY_WITHIN_S = 110.0
"""Longest wait for the service to have trained its default and be ready: the whole demonstration stays under 2 min."""

POLL_S = 0.2
STOP_WITHIN_S = 15.0
LISTENING = "listening on "

SHARED = {
    "gpu": "v100",
    "sharing_mode": "time-slice",
    "jobs": [
        {"job_id": "vision", "model": "resnet50", "batch_size": 64, "precision": "amp", "dataset": "imagenet"},
        {"job_id": "speech", "model": "lstm-lm", "batch_size": 20, "dataset": "wikitext-2"},
    ],
    "node": {"cpu_idle_w": 200.0, "cpu_busy_w": 500.0, "cpu_util_pct": 12.0},
}
"""Asked of ``/predict``: two jobs that share one V100."""

RESIDENT = {
    "job_id": "speech",
    "model": "lstm-lm",
    "batch_size": 20,
    "dataset": "wikitext-2",
    "solo": {"epoch_s": 120.0, "gpu_util_pct": 35.0, "mem_util_pct": 20.0, "mem_mib": 2600.0, "gpu_power_w": 110.0},
    "remaining_epochs": 30,
    "deadline_s": 14_400,
    "phase": "final",
    "placed_epoch": 2,
}
PLACEMENT = {
    "job": {
        "job_id": "vision",
        "model": "resnet50",
        "batch_size": 64,
        "precision": "amp",
        "dataset": "imagenet",
        "solo": {"epoch_s": 900.0, "gpu_util_pct": 45.0, "mem_util_pct": 30.0, "mem_mib": 6200.0, "gpu_power_w": 170.0},
        "remaining_epochs": 10,
        "deadline_s": 36_000,
        "num_gpus": 1,
    },
    "cluster": {
        "nodes": [
            {
                "node_id": "node-a",
                "gpu": "v100",
                "state": "active",
                "gpus": [
                    {"uuid": "GPU-a0", "core_util_pct": 35, "mem_util_pct": 20, "residents": [RESIDENT]},
                    {"uuid": "GPU-a1"},
                ],
            },
            {"node_id": "node-b", "gpu": "v100", "state": "idle", "gpus": [{"uuid": "GPU-b0"}, {"uuid": "GPU-b1"}]},
        ]
    },
}
"""Asked of ``/place``: a job beside another, or on idle GPUs?"""

Say = Callable[[str], None]


def run_demo(say: Say, show: Callable[[Any], None]) -> None:
    """Start the service, ask it for a prediction and a placement, show both, stop it.

    Args:
        say: told what happens, line by line.
        show: given what rich can render.

    Raises:
        EacoError: the service did not start, was not ready in time or refused a request.
    """
    from eaco_serving.tables import decision_tables, prediction_tables

    with tempfile.TemporaryDirectory(prefix="eaco-demo-") as home, service(Path(home), say) as client:
        about = _ask(client, "GET", "/predictor")
        say(f"The service is ready; predictor {about['version']} learned from {', '.join(about['datasets'])}.")
        say("\nPOST /predict: resnet50 and an LSTM language model share one V100")
        answer = _ask(client, "POST", "/predict", SHARED)
        show(prediction_tables(answer, [f"{j['model']}:{j['batch_size']}" for j in _jobs(SHARED)]))
        say("\nPOST /place: resnet50 arrives; the language model runs on GPU-a0, three GPUs are free")
        show(decision_tables(_ask(client, "POST", "/place", PLACEMENT)))
        if about["simulated"]:
            say("These figures are for show: the default predictor is trained on simulated data, not on measurements.")
            say("Train on measured profiles with: eaco train --dataset NAME --register eaco")


@contextmanager
def service(home: Path, say: Say, *, ready_within_s: float = READY_WITHIN_S) -> Iterator[httpx.Client]:
    """A client of a service that runs in a process of its own and is ready; it is stopped at the end.

    Raises:
        EacoError: it ended, or was not ready in time.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("EACO_")}
    command = [sys.executable, "-m", "eaco_serving.cli", "serve", "--port", "0", "--home", str(home)]
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    listener = _Listener(process, say)
    try:
        stop_s = time.monotonic() + ready_within_s
        with httpx.Client(base_url=listener.url(ready_within_s), timeout=30, trust_env=False) as client:
            _wait_ready(client, process, listener, stop_s)
            yield client
    finally:
        _stop(process)
        listener.join()


class _Listener:
    """Passes the service's log on, and picks out where it listens."""

    def __init__(self, process: subprocess.Popen[str], say: Say) -> None:
        self._process, self._say = process, say
        self._url: str | None = None
        self._known = threading.Event()
        self.last = "it said nothing"
        self._thread = threading.Thread(target=self._pump, name="service-log", daemon=True)
        self._thread.start()

    def url(self, within_s: float) -> str:
        self._known.wait(within_s)
        if self._url is None:
            raise EacoError(f"the service did not start: {self.last}")
        return self._url

    def join(self) -> None:
        self._thread.join(STOP_WITHIN_S)

    def _pump(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as log:
            for line in log:
                self.last = line.strip()
                self._say(f"  service | {self.last}")
                if self._url is None and LISTENING in line:
                    self._url = line.partition(LISTENING)[2].strip()
                    self._known.set()
        self._known.set()


def _wait_ready(client: httpx.Client, process: subprocess.Popen[str], listener: _Listener, stop_s: float) -> None:
    while time.monotonic() < stop_s:
        if process.poll() is not None:
            listener.join()
            raise EacoError(f"the service ended with exit code {process.returncode}: {listener.last}")
        try:
            if client.get("/readyz").status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass  # it listens but does not answer yet
        time.sleep(POLL_S)
    raise EacoError(f"the service was not ready in time: {listener.last}")


def _ask(client: httpx.Client, method: str, path: str, body: Any = None) -> Any:
    try:
        answer = client.request(method, path, json=body)
    except httpx.TransportError as error:
        raise EacoError(f"{method} {path} failed: {error}") from error
    if answer.status_code != httpx.codes.OK:
        raise EacoError(f"{method} {path} was answered with {answer.status_code}: {answer.text}")
    return answer.json()


def _jobs(request: dict[str, Any]) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = request["jobs"]
    return jobs


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
