"""What the commands that ask a predictor share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import typer
from pydantic_core import to_json
from rich.console import Console

from eaco_datasets.errors import InputError
from eaco_serving.graph_store import GraphStore
from eaco_serving.problems import Refused
from eaco_serving.service import WithGraphs, simulated_notice
from eaco_serving.settings import Settings
from eaco_serving.strict_json import parse_strict


def say(line: str) -> None:
    """A line to the user that is not the answer: stderr."""
    typer.echo(line, err=True)


def pick_predictor(saved: Path | None, settings: Settings) -> WithGraphs:
    """The predictor saved in a folder, or the registered one that the settings name; with the registered graphs."""
    from eaco_serving.default import load_default, load_saved

    graphs = GraphStore(settings.home, say)
    graphs.registered()
    return WithGraphs(load_default(settings, say) if saved is None else load_saved(saved), graphs)


def notice(provenance: dict[str, float]) -> None:
    """Say on stderr when a predictor learned from simulated rows."""
    line = simulated_notice(provenance)
    if line:
        say(f"NOTE {line}")


def read_json(source: str) -> Any:
    """The JSON value in a file, or on stdin for ``-``.

    Raises:
        InputError: there is no such file, it is not JSON, or an object in it has a key twice.
    """
    try:
        raw = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise InputError(error.strerror or str(error), where=source, expected="a JSON file, or - for stdin") from error
    try:
        with refused_at(partial(in_file, source)):
            return parse_strict(raw)
    except ValueError as error:
        raise InputError(f"not JSON: {error}", where=source, expected="one JSON object") from error


def in_file(source: str, pointer: str) -> str:
    """Where something is in a JSON file: ``request.json:/job/batch_size``."""
    return f"{source}:{pointer or '/'}"


@contextmanager
def refused_at(place: Callable[[str], str]) -> Iterator[None]:
    """Whatever the schema or the domain refuses at a JSON pointer, as an ``InputError`` at ``place(pointer)``."""
    try:
        yield
    except Refused as refused:
        pointer, what = refused.errors[0]
        raise InputError(what, where=place(pointer)) from refused
    except InputError as error:
        raise error.at(place(error.where)) from error


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
    """Where tables go: stdout, as wide as the terminal (120 columns in a pipe).

    What is printed there is data, names that others gave included: it is shown as it is, never read as markup.
    """
    return Console(width=None if sys.stdout.isatty() else 120, highlight=False, markup=False, emoji=False)
