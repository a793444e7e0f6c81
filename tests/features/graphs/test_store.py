"""Graphs as JSON: the same back, the same bytes, and one clear line for each fault."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaco_datasets.errors import DataError, InputError
from eaco_features.graphs.graph import COST_COLUMNS, ModelGraph
from eaco_features.graphs.store import dumps, loads, read_graph, write_graph


def _same(a: ModelGraph, b: ModelGraph) -> None:
    assert a == b
    assert (a.name, a.torch_version, a.op, a.shape) == (b.name, b.torch_version, b.op, b.shape)
    assert a.attributes == b.attributes
    assert a.recording == b.recording
    for name in (*COST_COLUMNS, "edges", "kernels", "params"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_a_graph_survives_json(small_graph: ModelGraph) -> None:
    text = dumps(small_graph)
    _same(loads(text), small_graph)
    assert dumps(loads(text)) == text
    document = json.loads(text)
    assert document["schema"] == 1
    assert document["content_hash"] == small_graph.content_hash


@given(costs=st.lists(st.tuples(st.integers(0, 2**53), st.floats(0, 1e15)), min_size=1, max_size=5))
def test_every_cost_survives_json_exactly(make_graph: Callable[..., ModelGraph], costs: Any) -> None:
    graph = make_graph([("fwd", "conv", list(cost), list(cost), [0, 0]) for cost in costs])
    _same(loads(dumps(graph)), graph)


@pytest.mark.parametrize("name", ["graph.json", "graph.json.gz"])
def test_files_are_the_same_bytes_each_time(small_graph: ModelGraph, tmp_path: Path, name: str) -> None:
    write_graph(small_graph, tmp_path / name)
    first = (tmp_path / name).read_bytes()
    write_graph(small_graph, tmp_path / name)
    assert (tmp_path / name).read_bytes() == first
    _same(read_graph(tmp_path / name), small_graph)


def _set(pointer: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        *parents, last = pointer.strip("/").split("/")
        at: Any = document
        for part in parents:
            at = at[int(part)] if isinstance(at, list) else at[part]
        at[int(last) if isinstance(at, list) else last] = value

    return change


def _drop(key: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        del document[key]

    return change


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (_set("/kind", "a poem"), "/kind"),
        (_set("/schema", 2), "/schema"),
        (_drop("edges"), "/edges"),
        (_set("/surprise", 1), "/surprise"),
        (_set("/nodes/surprise", []), "/nodes/surprise"),
        (_set("/nodes", []), "/nodes"),
        (_set("/nodes/op/1", 99), "/nodes/op/1"),
        (_set("/nodes/op/1", True), "/nodes/op/1"),
        (_set("/nodes/op_class/2", "poem"), "/nodes/op_class/2"),
        (_set("/nodes/phase/0", "sideways"), "/nodes/phase/0"),
        (_set("/nodes/phase", ["fwd"]), "/nodes/phase"),
        (_set("/nodes/shape/3", [4, -2]), "/nodes/shape/3/1"),
        (_set("/nodes/flops/slope/2", "many"), "/nodes/flops/slope/2"),
        (_set("/nodes/flops/intercept", [0]), "/nodes/flops/intercept"),
        (_set("/nodes/bytes_read/slope/0", None), "/nodes/bytes_read/slope/0"),
        (_set("/nodes/kernels/0", 0), "/nodes/kernels/0"),
        (_set("/nodes/params/0", 1.5), "/nodes/params/0"),
        (_set("/nodes/attributes/0/groups", {"a": 1}), "/nodes/attributes/0/groups"),
        (_set("/nodes/dtype/0", -1), "/nodes/dtype/0"),
        (_set("/edges/0", [1, 0]), "/edges/0"),
        (_set("/edges/0", [0, 17]), "/edges/0"),
        (_set("/edges/0", [0]), "/edges/0"),
        (_set("/recording/mode", "dreamt"), "/recording/mode"),
        (_set("/recording/batch_size", 0), "/recording/batch_size"),
        (_set("/recording/affine", "yes"), "/recording/affine"),
        (_set("/recording/samples", [0, "x"]), "/recording/samples/1"),
        (_set("/recording/notes", "a note"), "/recording/notes"),
        (_set("/name", 7), "/name"),
        (_set("/content_hash", "sha256:0"), "/content_hash"),
        (_set("/nodes/flops/slope/0", 1001), "/content_hash"),
    ],
)
def test_a_malformed_graph_is_one_line_with_its_place(
    small_graph: ModelGraph, change: Callable[[dict[str, Any]], None], place: str
) -> None:
    document = json.loads(dumps(small_graph))
    change(document)
    with pytest.raises(DataError) as caught:
        loads(json.dumps(document), where="g.json")
    message = str(caught.value)
    assert message.startswith(f"g.json:{place}: ")
    assert "; expected " in message
    assert "\n" not in message


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"kind": NaN}', "[" * 100_000, b"\xff\xfe\x00"])
def test_what_is_no_json_object_is_refused(text: str | bytes) -> None:
    with pytest.raises(DataError) as caught:
        loads(text)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read_or_written(small_graph: ModelGraph, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json: No such file"):
        read_graph(tmp_path / "none.json")
    (tmp_path / "bad.json.gz").write_bytes(b"not gzip")
    with pytest.raises(DataError, match="not gzip"):
        read_graph(tmp_path / "bad.json.gz")
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(dumps(small_graph).encode())[:-20])
    with pytest.raises(DataError, match="not gzip"):
        read_graph(tmp_path / "cut.json.gz")
    with pytest.raises(InputError, match="No such file"):
        write_graph(small_graph, tmp_path / "no" / "folder.json")
