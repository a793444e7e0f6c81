"""How fast is ``POST /predict`` over HTTP, next to an echo endpoint of the same schema on the same server?

    python benchmarks/predict_http.py [--seconds 2] [--rounds 5] [--connections 16]

The server runs in a process of its own (one worker), serves the embedded default, and has two more routes that take the
request of ``/predict``, answer with its schema and compute nothing: ``/echo``, an ordinary FastAPI endpoint, and
``/bare``, on the very path that ``/predict`` takes (``ratio_to_bare`` is what the prediction itself leaves). The load
generator (this process) keeps connections alive and sends one request at a time on each, in alternating rounds, so that
all calls see the same machine; once more over a single connection, where no two requests can share a model call.
Loopback only. Prints ``name=value`` lines: medians over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import socket
import statistics
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import Request
from pydantic_core import to_json
from starlette.responses import Response

from eaco_serving.app import create_app
from eaco_serving.convert import co_location, prediction_wire
from eaco_serving.default import load_default
from eaco_serving.routes.predict import read
from eaco_serving.routes.wire import json_response, json_route
from eaco_serving.schemas import PredictionOut, SetIn
from eaco_serving.settings import load_settings

JOBS = [
    {"model": "resnet50", "batch_size": 64, "precision": "amp", "solo": {"gpu_util_pct": 62.0, "mem_util_pct": 30.0}},
    {"model": "vgg16", "batch_size": 32, "remaining_epochs": 10, "deadline_s": 90_000.0},
]
SET = {"gpu": "v100-sxm", "sharing_mode": "time-slice", "jobs": JOBS}
READY_WITHIN_S = 300


def serve(listening: socket.socket, ready: Connection, home: str) -> None:
    """The server process: the service with ``/echo`` beside ``/predict``."""
    settings = load_settings(home=Path(home))
    predictor = load_default(settings, lambda line: print(line, file=sys.stderr))
    app = create_app(settings, lambda: predictor)
    constant: dict[str, Any] = {}

    async def echo(body: SetIn) -> PredictionOut:
        return PredictionOut.model_construct(**constant, predictor_version=body.gpu)

    async def bare(body: SetIn, _request: Request) -> Response:
        return json_response(to_json({**answer, "predictor_version": body.gpu}))

    app.add_api_route("/echo", echo, methods=["POST"])
    app.router.add_api_route("/bare", bare, methods=["POST"], route_class_override=json_route(read))
    answer = prediction_wire(predictor.predict([co_location(SetIn.model_validate(SET))])[0])
    constant.update(
        {k: v for k, v in PredictionOut.model_validate_json(json.dumps(answer)) if k != "predictor_version"}
    )
    ready.send("ready")
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    server.run(sockets=[listening])


def request_bytes(path: str, body: Any) -> bytes:
    """A whole HTTP/1.1 request."""
    raw = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(raw)}"
    return head.encode() + b"\r\n\r\n" + raw


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    """One request on a kept connection; its answer's body."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"the service answered {head.splitlines()[0].decode()}")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    return await reader.readexactly(length)


async def rate(port: int, request: bytes, connections: int, seconds: float) -> float:
    """Answers a second over ``seconds``."""
    count = 0
    stop_s = time.perf_counter() + seconds

    async def one() -> None:
        nonlocal count
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < stop_s:
            await ask(reader, writer, request)
            count += 1
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    begin_s = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(connections)))
    return count / (time.perf_counter() - begin_s)


async def until_ready(port: int) -> None:
    """Wait for ``/readyz``."""
    async with httpx.AsyncClient(trust_env=False, base_url=f"http://127.0.0.1:{port}") as client:
        for _ in range(600):
            if (await client.get("/readyz")).status_code == 200:
                return
            await asyncio.sleep(0.05)
    raise SystemExit("the service did not become ready")


async def measure(port: int, options: argparse.Namespace) -> None:
    """Alternate the calls and print the figures."""
    requests = {
        "echo": request_bytes("/echo", SET),
        "bare": request_bytes("/bare", SET),
        "predict": request_bytes("/predict", SET),
        "batch256": request_bytes("/predict", {"candidates": [SET] * 256}),
    }
    await until_ready(port)
    for request in requests.values():
        await rate(port, request, 1, 0.3)
    rates: dict[str, list[float]] = {name: [] for name in (*requests, "echo_1", "predict_1")}
    for _ in range(options.rounds):
        for name, request in requests.items():
            rates[name].append(await rate(port, request, options.connections, options.seconds))
        for name in ("echo", "predict"):
            rates[f"{name}_1"].append(await rate(port, requests[name], 1, options.seconds))
    median = {name: statistics.median(values) for name, values in rates.items()}
    out = sys.stdout.write
    out(f"echo_requests_s={median['echo']:.0f}\n")
    out(f"bare_requests_s={median['bare']:.0f}\n")
    out(f"predict_requests_s={median['predict']:.0f}\n")
    out(f"batch256_requests_s={median['batch256']:.1f}\n")
    out(f"batch256_sets_s={256 * median['batch256']:.0f}\n")
    out(f"ratio_to_echo_with_one_connection={median['predict_1'] / median['echo_1']:.2f}\n")
    out(f"ratio_to_bare={median['predict'] / median['bare']:.2f}\n")
    out(f"ratio_to_echo={median['predict'] / median['echo']:.2f}\n")


def main() -> None:
    """Start the server, measure, stop it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one round of one call")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=16)
    options = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    with socket.create_server(("127.0.0.1", 0)) as listening, tempfile.TemporaryDirectory() as home:
        here, there = spawn.Pipe()
        server = spawn.Process(target=serve, args=(listening, there, home), daemon=True)
        server.start()
        there.close()
        try:
            if not here.poll(READY_WITHIN_S):
                raise SystemExit(f"the service was not ready within {READY_WITHIN_S} s")
            here.recv()
            asyncio.run(measure(listening.getsockname()[1], options))
        except EOFError:
            raise SystemExit("the service ended before it was ready") from None
        finally:
            server.terminate()
            server.join(15)


if __name__ == "__main__":
    main()
