"""Model graphs as JSON: written in one canonical form, checked strictly when read.

Every fault is a ``DataError`` of one line with a JSON pointer and what was expected there.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import numpy as np

from eaco_datasets.errors import DataError, InputError
from eaco_features.graphs.graph import COST_COLUMNS, SCHEMA, Attribute, Mode, ModelGraph, Recording, to_document
from eaco_features.graphs.vocabulary import OP_CLASSES, PHASES
from eaco_features.sets import FloatArray

_TOP = ("schema", "kind", "name", "torch", "content_hash", "recording", "ops", "dtypes", "nodes", "edges")
_NODES = ("op", "op_class", "phase", "dtype", "shape", "attributes", "kernels", "params", *COST_COLUMNS)
_COUNTS = ("parameter_count", "parameter_bytes", "trainable_bytes", "buffer_bytes", "optimizer_state_bytes")
_MAX_EXACT = 2**63 - 1


def dumps(graph: ModelGraph) -> str:
    """The graph as one line of JSON; the same graph gives the same text."""
    document = {**to_document(graph), "content_hash": graph.content_hash}
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True) + "\n"


def loads(text: str | bytes, *, where: str = "") -> ModelGraph:
    """The graph in a JSON text; ``where`` names the source in errors.

    Raises:
        DataError: not JSON, not a graph of this schema, or the content is not what the hash was made of.
    """
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}", where=where, expected="a model graph") from error
    try:
        return from_document(document)
    except DataError as error:
        raise error.at(f"{where}:{error.where or '/'}" if where else error.where) from error


def read_graph(path: str | Path) -> ModelGraph:
    """The graph in a ``.json`` or ``.json.gz`` file.

    Raises:
        InputError: the file cannot be read.
        DataError: as for ``loads``.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(error.strerror or str(error), where=str(path), expected="a model graph's file") from error
    if path.suffix == ".gz":
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"not gzip: {error}", where=str(path), expected="a compressed model graph") from error
    return loads(raw, where=str(path))


def write_graph(graph: ModelGraph, path: str | Path) -> None:
    """Write the graph to a ``.json`` or ``.json.gz`` file; the same graph gives the same bytes.

    Raises:
        InputError: the file cannot be written.
    """
    path = Path(path)
    raw = dumps(graph).encode()
    try:
        path.write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)
    except OSError as error:
        raise InputError(error.strerror or str(error), where=str(path), expected="a file to write to") from error


def from_document(document: Any) -> ModelGraph:
    """The graph in JSON data.

    Raises:
        DataError: it is not a graph of this schema, or its hash is wrong.
    """
    top = _object(document, "", ())
    if top.get("kind") != "eaco-model-graph":
        raise DataError("not a model graph", where="/kind", expected="'eaco-model-graph'")
    if top.get("schema") != SCHEMA:
        raise DataError(f"schema {top.get('schema')!r}", where="/schema", expected=str(SCHEMA))
    _object(document, "", _TOP)
    ops, dtypes = _strings(top["ops"], "/ops"), _strings(top["dtypes"], "/dtypes")
    nodes = _object(top["nodes"], "/nodes", _NODES)
    n = len(_list(nodes["op"], "/nodes/op"))
    columns: dict[str, Any] = {
        name: _affine(nodes[name], f"/nodes/{name}", n, least=None if name == "live_bytes" else 0.0)
        for name in COST_COLUMNS
    }
    graph = ModelGraph(
        name=_string(top["name"], "/name"),
        torch_version=_string(top["torch"], "/torch"),
        op=_coded(nodes["op"], "/nodes/op", n, ops),
        op_class=_words(nodes["op_class"], "/nodes/op_class", n, OP_CLASSES),
        phase=_words(nodes["phase"], "/nodes/phase", n, PHASES),
        dtype=_coded(nodes["dtype"], "/nodes/dtype", n, dtypes),
        shape=tuple(tuple(_counts(shape, f"/nodes/shape/{i}")) for i, shape in enumerate(_column(nodes, "shape", n))),
        attributes=tuple(
            _attributes(node, f"/nodes/attributes/{i}") for i, node in enumerate(_column(nodes, "attributes", n))
        ),
        kernels=np.array(_counts(_column(nodes, "kernels", n), "/nodes/kernels", least=1), dtype=np.int64),
        params=np.array(_counts(_column(nodes, "params", n), "/nodes/params"), dtype=np.int64),
        edges=_edges(top["edges"], n),
        recording=_recording(top["recording"]),
        **columns,
    )
    if graph.content_hash != top["content_hash"]:
        raise DataError("the content is not what was hashed", where="/content_hash", expected=graph.content_hash)
    return graph


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _object(value: Any, where: str, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{type(value).__name__} found", where=where or "/", expected="an object")
    if keys:
        for key in keys:
            if key not in value:
                raise DataError("missing", where=f"{where}/{key}", expected="a value")
        for key in value:
            if key not in keys:
                raise DataError("unknown field", where=f"{where}/{key}", expected=", ".join(keys))
    return value


def _list(value: Any, where: str, length: int | None = None) -> list[Any]:
    if not isinstance(value, list):
        raise DataError(f"{type(value).__name__} found", where=where, expected="an array")
    if length is not None and len(value) != length:
        raise DataError(f"{len(value)} values", where=where, expected=f"{length}")
    return value


def _column(nodes: Mapping[str, Any], name: str, n: int) -> list[Any]:
    return _list(nodes[name], f"/nodes/{name}", n)


def _string(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{value!r} found", where=where, expected="a string")
    return value


def _strings(value: Any, where: str) -> tuple[str, ...]:
    return tuple(_string(item, f"{where}/{i}") for i, item in enumerate(_list(value, where)))


def _words(value: Any, where: str, n: int, known: tuple[str, ...]) -> tuple[str, ...]:
    for i, word in enumerate(_list(value, where, n)):
        if word not in known:
            raise DataError(f"{word!r} found", where=f"{where}/{i}", expected="one of " + ", ".join(known))
    return tuple(value)


def _coded(value: Any, where: str, n: int, words: tuple[str, ...]) -> tuple[str, ...]:
    codes = _counts(_list(value, where, n), where)
    for i, code in enumerate(codes):
        if code >= len(words):
            raise DataError(f"code {code}", where=f"{where}/{i}", expected=f"below {len(words)}")
    return tuple(words[code] for code in codes)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MAX_EXACT


def _counts(value: Any, where: str, *, least: int = 0) -> list[int]:
    for i, item in enumerate(_list(value, where)):
        if not _is_whole(item) or item < least:
            raise DataError(f"{item!r} found", where=f"{where}/{i}", expected=f"a whole number, {least} or more")
    return list(value)


def _number(value: Any, where: str) -> float:
    if _is_whole(value) or (isinstance(value, float) and math.isfinite(value)):
        return float(value)
    raise DataError(f"{value!r} found", where=where, expected="a number")


def _affine(value: Any, where: str, n: int, *, least: float | None) -> FloatArray:
    parts = _object(value, where, ("intercept", "slope"))
    column = np.empty((n, 2))
    for at, part in enumerate(("intercept", "slope")):
        for i, item in enumerate(_list(parts[part], f"{where}/{part}", n)):
            column[i, at] = _number(item, f"{where}/{part}/{i}")
    if least is not None:
        for i in np.flatnonzero((column[:, 0] < least) & (column[:, 1] < least)).tolist():
            raise DataError("negative at every batch size", where=f"{where}/slope/{i}", expected="0 or more")
    return column


def _attributes(value: Any, where: str) -> dict[str, Attribute]:
    checked: dict[str, Attribute] = {}
    for key, item in _object(value, where, ()).items():
        if isinstance(item, list):
            checked[key] = tuple(_counts(item, f"{where}/{key}"))
        elif isinstance(item, str) or _is_whole(item):
            checked[key] = item
        else:
            raise DataError(f"{item!r} found", where=f"{where}/{key}", expected="a whole number, a word or an array")
    return checked


def _edges(value: Any, n: int) -> Any:
    pairs = _list(value, "/edges")
    for i, pair in enumerate(pairs):
        source, target = _counts(_list(pair, f"/edges/{i}", 2), f"/edges/{i}")
        if not source < target < n:
            raise DataError(f"{source} to {target}", where=f"/edges/{i}", expected=f"to a later node, below {n}")
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _recording(value: Any) -> Recording:
    where = "/recording"
    parts = _object(value, where, tuple(f.name for f in fields(Recording)))
    for name, least in {"batch_size": 1, "value_reads": 0, "shape_guesses": 0, **dict.fromkeys(_COUNTS, 0)}.items():
        if not _is_whole(parts[name]) or parts[name] < least:
            raise DataError(f"{parts[name]!r} found", where=f"{where}/{name}", expected=f"{least} or more")
    if parts["mode"] not in get_args(Mode):
        raise DataError(
            f"{parts['mode']!r} found", where=f"{where}/mode", expected=f"one of {', '.join(get_args(Mode))}"
        )
    if parts["affine"] is not None and not isinstance(parts["affine"], bool):
        raise DataError(f"{parts['affine']!r} found", where=f"{where}/affine", expected="true, false or null")
    intercept, slope = _list(parts["samples"], f"{where}/samples", 2)
    samples = (_number(intercept, f"{where}/samples/0"), _number(slope, f"{where}/samples/1"))
    worded = {name: _strings(parts[name], f"{where}/{name}") for name in ("optimizers", "notes")}
    return Recording(**{**parts, **worded, "samples": samples})
