"""What the commands that ask a predictor share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import typer
from pydantic import BaseModel
from pydantic_core import from_json, to_json
from rich.console import Console

from eaco_datasets.errors import InputError
from eaco_serving.problems import Refused
from eaco_serving.service import ServedPredictor, simulated_notice

Model = TypeVar("Model", bound=BaseModel)


def say(line: str) -> None:
    """A line to the user that is not the answer: stderr."""
    typer.echo(line, err=True)


def pick_predictor(
    saved: Path | None, *, name: str | None, alias: str | None, tracking_uri: str | None, home: Path | None
) -> ServedPredictor:
    """The predictor that the options name."""
    from eaco_serving.default import load_default, load_saved
    from eaco_serving.settings import load_settings

    if saved is not None:
        return load_saved(saved)
    settings = load_settings(predictor_name=name, predictor_alias=alias, tracking_uri=tracking_uri, home=home)
    return load_default(settings, say)


def notice(provenance: dict[str, float]) -> None:
    """Say on stderr when a predictor learned from simulated rows."""
    line = simulated_notice(provenance)
    if line:
        say(f"NOTE {line}")


def read_json(source: str) -> Any:
    """The JSON value in a file, or on stdin for ``-``.

    Raises:
        InputError: there is no such file, or it is not JSON.
    """
    try:
        raw = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise InputError(error.strerror or str(error), where=source, expected="a JSON file, or - for stdin") from error
    try:
        return from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise InputError(f"not JSON: {error}", where=source, expected="one JSON object") from error


def as_input_error(make: Callable[[], Model], source: str) -> Model:
    """What ``make`` returns.

    Raises:
        InputError: at ``source`` and the JSON pointer, where the wire schema refuses it.
    """
    try:
        return make()
    except Refused as refused:
        pointer, what = refused.errors[0]
        raise InputError(what, where=f"{source}:{pointer or '/'}") from refused


def write_json(value: dict[str, Any], target: str) -> None:
    """JSON into a file, or to stdout for ``-``."""
    text = to_json(value, indent=2).decode()
    if target == "-":
        typer.echo(text)
        return
    try:
        Path(target).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(error.strerror or str(error), where=target, expected="a file that can be written") from error


def console() -> Console:
    """Where tables go: stdout, as wide as the terminal (120 columns in a pipe)."""
    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)
