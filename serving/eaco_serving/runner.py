"""The service as a process: bind, load, serve, stop in good order."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from eaco_datasets.errors import EacoError
from eaco_serving.app import create_app
from eaco_serving.service import LoadPredictor, ServedPredictor
from eaco_serving.settings import Settings

log = logging.getLogger("eaco.serving")


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
        EacoError: the address cannot be had (port in use, unknown host, no right to it).
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise EacoError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def url_of(listening: socket.socket) -> str:
    """Where clients of this machine reach the socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(settings: Settings, load_predictor: LoadPredictor) -> None:
    """Serve until SIGTERM or Ctrl-C; the address is bound before anything is loaded or trained.

    Raises:
        EacoError: the address cannot be had, or the predictor could not be loaded.
        KeyboardInterrupt: Ctrl-C.
    """
    listening = bind(settings.host, settings.port)
    failures: list[Exception] = []

    def load_or_stop() -> ServedPredictor:
        try:
            return load_predictor()
        except Exception as error:
            failures.append(error)
            server.should_exit = True
            raise

    server = uvicorn.Server(
        uvicorn.Config(
            create_app(settings, load_or_stop),
            log_config=None,
            access_log=settings.access_log,
            server_header=False,
            timeout_graceful_shutdown=settings.stop_timeout_s,
        )
    )
    configure_logging(settings)
    log.info("listening on %s", url_of(listening))
    with listening, _stops_quietly():
        server.run(sockets=[listening])
    if failures:
        raise failures[0]
    log.info("stopped")


class _stops_quietly:
    """Ignores the SIGTERM that uvicorn raises again after it has stopped in good order: that is exit code 0."""

    def __enter__(self) -> None:
        self._before: Callable[[int, FrameType | None], object] | int | None
        self._before = signal.signal(signal.SIGTERM, lambda _signal, _frame: None)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._before)


def configure_logging(settings: Settings) -> None:
    """Log to stderr, one line an event; libraries only speak up when something is wrong."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING, force=True)
    logging.getLogger("eaco").setLevel(settings.log_level.upper())
    if settings.access_log:
        logging.getLogger("uvicorn.access").setLevel(logging.INFO)
