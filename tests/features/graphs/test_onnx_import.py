"""ONNX files as inference-only graphs: numbers derived by hand, and the recorder's for the same net."""

from __future__ import annotations

import gzip
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed (eaco[onnx])")

from eaco_datasets.errors import DataError, InputError, MissingExtraError, UnknownNameError  # noqa: E402
from eaco_features.graphs import onnx_import  # noqa: E402
from eaco_features.graphs.coarse import coarsen  # noqa: E402
from eaco_features.graphs.graph import ModelGraph, Recording  # noqa: E402
from eaco_features.graphs.onnx_import import import_onnx  # noqa: E402
from eaco_features.graphs.store import dumps, loads, read_graph  # noqa: E402
from eaco_features.graphs.summary import totals  # noqa: E402
from eaco_serving.cli import run  # noqa: E402

FLOAT = 4
Node = tuple[Any, ...]
Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Write a model of nodes (op, inputs, outputs, attributes), inputs and weights by shape; outputs have no shape."""

    def write(
        nodes: Sequence[Node],
        inputs: dict[str, Any],
        weights: dict[str, Any],
        outputs: Sequence[str] = ("y",),
        *,
        functions: Sequence[Any] = (),
        value_info: Sequence[Any] = (),
        name: str = "net.onnx",
    ) -> Path:
        h = onnx.helper
        made = [
            h.make_node(op, reads, writes, **dict(*rest))
            if ":" not in op
            else h.make_node(op.split(":")[1], reads, writes, domain=op.split(":")[0], **dict(*rest))
            for op, reads, writes, *rest in nodes
        ]
        stored = [
            onnx.numpy_helper.from_array(np.zeros(w, np.float32) if isinstance(w, tuple) else w, key)
            for key, w in weights.items()
        ]
        graph = h.make_graph(
            made,
            "graph",
            [h.make_tensor_value_info(key, onnx.TensorProto.FLOAT, shape) for key, shape in inputs.items()],
            [h.make_tensor_value_info(key, onnx.TensorProto.FLOAT, None) for key in outputs],
            stored,
            value_info=list(value_info),
        )
        opsets = [h.make_opsetid("", 23), h.make_opsetid("custom", 1)]
        model = h.make_model(graph, opset_imports=opsets, functions=list(functions))
        path = tmp_path / name
        path.write_bytes(model.SerializeToString())
        return path

    return write


def _one(graph: ModelGraph, kind: str) -> int:
    assert graph.op_class.count(kind) == 1, graph.op_class
    return graph.op_class.index(kind)


CONTRACTIONS: dict[str, tuple[Node, dict[str, Any], dict[str, Any], str, int]] = {
    "conv": (
        ("Conv", ["x", "w"], ["y"], {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
        {"x": ["N", 3, 8, 8]},
        {"w": (6, 3, 3, 3)},
        "conv",
        2 * 4 * 4 * 6 * 3 * 9,
    ),
    "conv in two groups": (
        ("Conv", ["x", "w"], ["y"], {"group": 2}),
        {"x": ["N", 4, 5, 5]},
        {"w": (6, 2, 3, 3)},
        "conv",
        2 * 3 * 3 * 6 * 2 * 9,
    ),
    "depthwise conv": (
        ("Conv", ["x", "w"], ["y"], {"group": 4}),
        {"x": ["N", 4, 5, 5]},
        {"w": (4, 1, 3, 3)},
        "conv_depthwise",
        2 * 3 * 3 * 4 * 9,
    ),
    "transposed conv": (
        ("ConvTranspose", ["x", "w"], ["y"], {"strides": [2, 2], "group": 2}),
        {"x": ["N", 4, 5, 5]},
        {"w": (4, 3, 2, 2)},
        "conv_transposed",
        2 * 5 * 5 * 4 * 3 * 4,
    ),
    "gemm": (
        ("Gemm", ["x", "w", "b"], ["y"], {"transB": 1}),
        {"x": ["N", 7]},
        {"w": (5, 7), "b": (5,)},
        "matmul",
        2 * 7 * 5,
    ),
    "matmul by a weight": (
        ("MatMul", ["x", "w"], ["y"]),
        {"x": ["N", 6, 7]},
        {"w": (7, 5)},
        "matmul",
        2 * 6 * 7 * 5,
    ),
    "matmul by a vector": (
        ("MatMul", ["x", "w"], ["y"]),
        {"x": ["N", 6, 7]},
        {"w": (7,)},
        "matmul",
        2 * 6 * 7,
    ),
    "batched matmul, broadcast": (
        ("MatMul", ["x", "w"], ["y"]),
        {"x": ["N", 1, 6, 7]},
        {"w": (3, 7, 5)},
        "batched_matmul",
        2 * 3 * 6 * 7 * 5,
    ),
    "einsum": (
        ("Einsum", ["x", "w"], ["y"], {"equation": "nij, jk -> nik"}),
        {"x": ["N", 6, 7]},
        {"w": (7, 5)},
        "batched_matmul",
        2 * 6 * 7 * 5,
    ),
    "attention, grouped heads": (
        ("Attention", ["x", "k", "v"], ["y"], {"q_num_heads": 4, "kv_num_heads": 2}),
        {"x": ["N", 6, 32], "k": ["N", 9, 16], "v": ["N", 9, 16]},
        {},
        "attention",
        2 * 4 * 6 * 9 * (8 + 8),
    ),
    "lstm, both ways": (
        ("LSTM", ["x", "w", "r"], ["y"], {"hidden_size": 5, "direction": "bidirectional"}),
        {"x": [11, "N", 3]},
        {"w": (2, 20, 3), "r": (2, 20, 5)},
        "rnn",
        2 * 11 * (2 * 20 * 3 + 2 * 20 * 5),
    ),
    "gru": (
        ("GRU", ["x", "w", "r"], ["y"], {"hidden_size": 5}),
        {"x": [11, "N", 3]},
        {"w": (1, 15, 3), "r": (1, 15, 5)},
        "rnn",
        2 * 11 * 15 * 8,
    ),
    "rnn, batch first": (
        ("RNN", ["x", "w", "r"], ["y"], {"hidden_size": 5, "layout": 1}),
        {"x": ["N", 11, 3]},
        {"w": (1, 5, 3), "r": (1, 5, 5)},
        "rnn",
        2 * 11 * 5 * 8,
    ),
}


@pytest.mark.parametrize("case", CONTRACTIONS.values(), ids=CONTRACTIONS)
def test_flops_by_hand(save: Save, case: tuple[Node, dict[str, Any], dict[str, Any], str, int]) -> None:
    node, inputs, weights, kind, per_sample = case
    graph = import_onnx(save([node], inputs, weights), batch_size=3)
    assert graph.op_class == (kind,)
    assert graph.flops.tolist() == [[0, per_sample]]
    assert graph.params.tolist() == [sum(prod(w) for w in weights.values())]
    assert graph.recording.parameter_count == graph.params[0]
    assert graph.recording.affine is True


def test_bytes_and_memory_by_hand(save: Save) -> None:
    """x [N, 4] -> a = x w [N, 6] -> b = relu a -> y = b + a: a is needed until the end, b dies with its reader."""
    path = save(
        [("MatMul", ["x", "w"], ["a"]), ("Relu", ["a"], ["b"]), ("Add", ["b", "a"], ["y"]), ("Neg", ["y"], ["z"])],
        {"x": ["N", 4]},
        {"w": (4, 6)},
        ["z"],
    )
    costs = import_onnx(path).at(10)
    weight, x, wide = 24 * FLOAT, 10 * 4 * FLOAT, 10 * 6 * FLOAT
    assert costs.bytes_read.tolist() == [weight + x, wide, 2 * wide, wide]
    assert costs.bytes_written.tolist() == [wide] * 4
    assert costs.live_bytes.tolist() == [weight + x + n * wide for n in (1, 2, 3, 2)]
    assert not costs.saved_activation_bytes.any()
    assert import_onnx(path).edges.tolist() == [[0, 1], [0, 2], [1, 2], [2, 3]]


def test_attention_by_its_products(save: Save) -> None:
    """Tokens are embedded, made queries and keys by one reshape from the run-time shape, and attend."""
    heads, size, tokens, words = 2, 4, 5, 50
    ids = onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["batch", "seq"])
    shape = np.array([0, 0, heads, size])
    path = save(
        [
            ("Gather", ["table", "ids"], ["e"]),
            ("MatMul", ["e", "wq"], ["q0"]),
            ("Shape", ["q0"], ["s"]),
            ("Gather", ["s", "zero"], ["n"], {"axis": 0}),
            ("Concat", ["n", "rest"], ["to"], {"axis": 0}),
            ("Reshape", ["q0", "to"], ["q1"]),
            ("Transpose", ["q1"], ["q"], {"perm": [0, 2, 1, 3]}),
            ("Reshape", ["e", "shape"], ["k1"]),
            ("Transpose", ["k1"], ["k"], {"perm": [0, 2, 3, 1]}),
            ("MatMul", ["q", "k"], ["p"]),
            ("Softmax", ["p"], ["y"]),
        ],
        {},
        {
            "table": (words, heads * size),
            "wq": (8, 8),
            "zero": np.array([0]),
            "rest": np.array([tokens, heads, size]),
            "shape": shape,
        },
    )
    model = onnx.load(path)
    model.graph.input.append(ids)
    onnx.save(model, path)
    graph = import_onnx(path, batch_size=2, sizes={"seq": tokens})
    assert graph.op_class == ("embedding", "matmul", "copy", "copy", "batched_matmul", "softmax")
    assert graph.flops[:, 1].tolist() == [0, 2 * tokens * 64, 0, 0, 2 * heads * tokens * size * tokens, 0]
    rows = tokens * heads * size * FLOAT + tokens * 8
    assert graph.bytes_read[0].tolist() == [0, rows]
    assert graph.recording.parameter_count == words * 8 + 64
    assert sorted(graph.edges.tolist()) == [[0, 1], [0, 3], [1, 2], [2, 4], [3, 4], [4, 5]]
    with pytest.raises(InputError, match=r"without a size: batch, seq; expected a size \(--dim NAME=SIZE\)"):
        import_onnx(path)
    with pytest.raises(UnknownNameError, match=r"unknown symbolic dimension 'sec'.*perhaps seq"):
        import_onnx(path, sizes={"sec": 1})


def test_a_fixed_batch_is_said_and_not_scaled(save: Save) -> None:
    graph = import_onnx(save([("MatMul", ["x", "w"], ["y"])], {"x": [8, 4]}, {"w": (4, 6)}), batch_size=32)
    assert graph.flops.tolist() == [[2 * 8 * 4 * 6, 0]]
    assert graph.at(100).samples == 8
    assert graph.recording.batch_size == 8
    assert graph.recording.affine is False
    assert graph.recording.notes == ("the file fixes the batch size (8, leading in 'x'): costs are those at any other",)


def test_costs_that_grow_with_the_square_of_the_batch_are_not_called_affine(save: Save) -> None:
    nodes = [("Transpose", ["x"], ["t"]), ("MatMul", ["x", "t"], ["y"])]
    graph = import_onnx(save(nodes, {"x": ["N", 4]}, {}), batch_size=2)
    assert graph.recording.affine is False


def test_a_file_that_bakes_its_batch_in_is_refused(save: Save) -> None:
    nodes = [("Reshape", ["x", "s"], ["r"]), ("MatMul", ["r", "w"], ["y"])]
    path = save(nodes, {"x": ["N", 2, 2]}, {"s": np.array([2, -1]), "w": (4, 6)})
    with pytest.raises(InputError, match="shapes do not fit together at N = 4"):
        import_onnx(path, batch_size=4)


def test_what_depends_on_no_input_is_no_kernel_and_shared_weights_count_once(save: Save) -> None:
    nodes = [
        ("Transpose", ["w"], ["t"]),
        ("MatMul", ["x", "t"], ["a"]),
        ("MatMul", ["a", "t"], ["b"]),
        ("Constant", [], ["half"], {"value": onnx.numpy_helper.from_array(np.float32(0.5))}),
        ("Mul", ["b", "half"], ["c"]),
        ("Constant", [], ["mask"], {"value": onnx.numpy_helper.from_array(np.zeros((1, 6), np.float32))}),
        ("Add", ["c", "mask"], ["y"]),
    ]
    graph = import_onnx(save(nodes, {"x": ["N", 6]}, {"w": (6, 6), "unread": (99,)}))
    assert graph.op == ("onnx.MatMul", "onnx.MatMul", "onnx.Mul", "onnx.Add")
    assert graph.params.tolist() == [36, 36, 0, 0]
    assert (graph.recording.parameter_count, graph.recording.parameter_bytes) == (36, 36 * FLOAT)
    assert graph.recording.buffer_bytes == FLOAT + 6 * FLOAT


def test_an_unknown_operation_is_described_by_its_bytes(save: Save) -> None:
    said = onnx.helper.make_tensor_value_info("h", onnx.TensorProto.FLOAT, ["N", 10])
    nodes = [("custom:Magic", ["x"], ["h"]), ("Relu", ["h"], ["y"])]
    graph = import_onnx(save(nodes, {"x": ["N", 4]}, {}, value_info=[said]))
    assert (graph.op[0], graph.op_class) == ("custom.Magic", ("unknown", "activation"))
    assert graph.bytes_read[0].tolist() == [0, 4 * FLOAT]
    assert graph.bytes_written[0].tolist() == [0, 10 * FLOAT]
    assert graph.recording.notes == ("unknown operations, described by their bytes alone: custom.Magic",)
    assert graph.recording.shape_guesses == 0


def test_values_of_unknown_shape_are_counted_and_no_product_is_guessed(save: Save) -> None:
    graph = import_onnx(save([("custom:Magic", ["x"], ["y"])], {"x": ["N", 4]}, {}))
    assert graph.bytes_written.tolist() == [[0, 0]]
    assert graph.recording.shape_guesses == 1
    assert graph.recording.notes[1] == "1 values of unknown shape count as 0 bytes, the first 'y'"
    path = save([("custom:Magic", ["x"], ["h"]), ("MatMul", ["h", "w"], ["y"])], {"x": ["N", 4]}, {"w": (4, 6)})
    with pytest.raises(InputError, match=r"MatMul of shapes .* cannot be counted"):
        import_onnx(path)


def test_local_functions_are_opened(save: Save) -> None:
    h = onnx.helper
    body = [h.make_node("MatMul", ["a", "b"], ["c"]), h.make_node("Relu", ["c"], ["d"])]
    function = h.make_function("custom", "Layer", ["a", "b"], ["d"], body, [h.make_opsetid("", 23)])
    path = save([("custom:Layer", ["x", "w"], ["y"])], {"x": ["N", 4]}, {"w": (4, 6)}, functions=[function])
    assert import_onnx(path).op == ("onnx.MatMul", "onnx.Relu")


def test_shapes_made_by_arithmetic_are_followed(save: Save) -> None:
    """As exporters write x.view(n // 2, 2, -1): two of them, the second on a shape that the first one settles."""
    nodes: list[Node] = []
    for before, after in (("x", "r"), ("r", "q")):
        nodes += [
            ("Shape", [before], [f"s{after}"]),
            ("Gather", [f"s{after}", "first"], [f"n{after}"]),
            ("Div", [f"n{after}", "two"], [f"h{after}"]),
            ("Expand", ["two", "one"], [f"e{after}"]),
            ("Where", ["yes", f"h{after}", f"e{after}"], [f"w{after}"]),
            ("Concat", [f"w{after}", "two", "rest"], [f"t{after}"], {"axis": 0}),
            ("Reshape", [before, f"t{after}"], [after]),
        ]
    nodes.append(("MatMul", ["q", "w"], ["y"]))
    numbers = {"first": [0], "two": [2], "one": [1], "rest": [-1], "yes": [True]}
    weights = {**{name: np.array(value) for name, value in numbers.items()}, "w": (16, 6)}
    graph = import_onnx(save(nodes, {"x": ["N", 8]}, weights), batch_size=16)
    assert graph.op == ("onnx.MatMul",)
    assert graph.shape == ((4, 2, 6),)
    assert graph.flops.tolist() == [[0, 2 * 16 * 6 / 2]]  # n samples make n / 4 * 2 rows of 16


@pytest.mark.parametrize("op", ["If", "Loop"])
def test_control_flow_is_refused(save: Save, op: str) -> None:
    h = onnx.helper
    branch = h.make_graph([], "branch", [], [])
    bodies = {"then_branch": branch, "else_branch": branch} if op == "If" else {"body": branch}
    with pytest.raises(InputError, match=rf"net.onnx:y: control flow \({op}\) depends on data; expected plain nodes"):
        import_onnx(save([(op, ["x"], ["y"], bodies)], {"x": [1]}, {}))


def test_external_data_is_not_needed(save: Save) -> None:
    path = save([("MatMul", ["x", "w"], ["y"])], {"x": ["N", 64]}, {"w": (64, 64)})
    whole = import_onnx(path)
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (path.parent / "weights.bin").unlink()
    assert import_onnx(path) == whole


def test_a_cut_file_a_foreign_file_and_none_are_one_line_each(save: Save, tmp_path: Path) -> None:
    path = save([("MatMul", ["x", "w"], ["y"])], {"x": ["N", 64]}, {"w": (64, 64)})
    raw = path.read_bytes()
    for broken in (raw[: len(raw) // 2], raw[:-1], b"<html>no model here</html>", gzip.compress(raw), b"", b"\x08\x0a"):
        path.write_bytes(broken)
        with pytest.raises(DataError, match="expected a binary ONNX model") as refused:
            import_onnx(path)
        assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match=r"none\.onnx: No such file"):
        import_onnx(tmp_path / "none.onnx")


def test_nodes_out_of_order_are_refused(save: Save) -> None:
    nodes = [("Relu", ["a"], ["y"]), ("Neg", ["x"], ["a"])]
    with pytest.raises(InputError, match=r"net\.onnx:y: |net\.onnx: ") as refused:
        import_onnx(save(nodes, {"x": ["N", 4]}, {}))
    assert "\n" not in str(refused.value)


def test_without_onnx_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(onnx_import, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match=r"onnx is not installed; install it with: pip install 'eaco\[onnx\]'"):
        import_onnx(tmp_path / "x.onnx")


NET: list[Node] = [
    ("Conv", ["x", "w1", "b1"], ["c1"], {"pads": [1, 1, 1, 1]}),
    ("BatchNormalization", ["c1", "g", "b", "mean", "var"], ["n1"]),
    ("Relu", ["n1"], ["r1"]),
    ("Conv", ["r1", "w2"], ["c2"], {"group": 8, "strides": [2, 2]}),
    ("Conv", ["c2", "w3"], ["c3"], {"group": 2}),
    ("Flatten", ["c3"], ["f"]),
    ("Gemm", ["f", "w4", "b4"], ["y"], {"transB": 1}),
]
NET_WEIGHTS = {
    "w1": (8, 3, 3, 3), "b1": (8,), "g": (8,), "b": (8,), "mean": (8,), "var": (8,),
    "w2": (8, 1, 3, 3), "w3": (12, 4, 1, 1), "w4": (10, 12 * 49), "b4": (10,),
}  # fmt: skip


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed (eaco[gnn])")
def test_the_forward_pass_is_the_recorders(save: Save) -> None:
    import torch
    from torch import nn

    from eaco_features.graphs.job import TrainingJob
    from eaco_features.graphs.recorder import record

    def build_job(batch_size: int) -> TrainingJob:
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, stride=2, groups=8, bias=False),
            nn.Conv2d(8, 12, 1, groups=2, bias=False),
            nn.Flatten(),
            nn.Linear(12 * 49, 10),
        )
        x = torch.randn(batch_size, 3, 16, 16)
        return TrainingJob(lambda: model(x), [model], [])

    recorded = record(build_job, 4)
    read = import_onnx(save(NET, {"x": ["N", 3, 16, 16]}, NET_WEIGHTS), batch_size=4)
    assert totals(read, 9).flops == totals(recorded, 9).flops
    assert read.recording.parameter_count == recorded.recording.parameter_count
    assert read.recording.parameter_bytes == recorded.recording.parameter_bytes
    by_hand = [i for i, flops in enumerate(recorded.flops[:, 1]) if flops]
    ours = [i for i, flops in enumerate(read.flops[:, 1]) if flops]
    for name in ("op_class", "attributes", "dtype", "shape"):
        assert [getattr(read, name)[i] for i in ours] == [getattr(recorded, name)[i] for i in by_hand]
    assert read.bytes_written[ours].tolist() == recorded.bytes_written[by_hand].tolist()


def test_the_flag_is_kept_and_lowers_confidence(save: Save) -> None:
    graph = import_onnx(save(NET, {"x": ["N", 3, 16, 16]}, NET_WEIGHTS))
    again = loads(dumps(graph))
    assert again == graph
    assert again.recording.inference_only
    assert again.recording.confidence == 0.5
    assert set(graph.phase) == {"fwd"}
    assert not Recording(batch_size=1).inference_only
    assert replace(graph, recording=replace(graph.recording, mode="fake")) != graph
    assert totals(coarsen(graph), 8).flops == totals(graph, 8).flops


def test_the_command(save: Save, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(NET, {"x": ["N", 3, "side", 16]}, NET_WEIGHTS)
    target = tmp_path / "g.json.gz"
    options = ["--name", "mine", "--batch-size", "4", "--dim", "side=16"]
    assert run(["features", "import-onnx", str(path), "-o", str(target), *options]) == 0
    assert read_graph(target) == import_onnx(path, batch_size=4, sizes={"side": 16})
    assert read_graph(target).name == "mine"
    out = capsys.readouterr().out
    assert "mine at batch size 4, inference only" in out
    assert "0.50 (inference only, read from ONNX; exactly affine" in out
    for wrong in (["--dim", "side"], ["--dim", "side=x"], ["--dim", "side=0"], []):
        assert run(["features", "import-onnx", str(path), "-o", str(target), *wrong]) == 2
        assert capsys.readouterr().err.count("\n") == 1
